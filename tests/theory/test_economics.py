"""Cost of one request: worked by hand, and against what a provider disclosed."""

import pytest

from inferlab import data
from inferlab.theory import economics


def test_time_costs_rent():
    # 36 s on one machine at $2 an hour is 2 cents; half idle, 4; two machines, 4.
    assert economics.cost_of_time(36, 2.0) == pytest.approx(0.02)
    assert economics.cost_of_time(36, 2.0, utilization=0.5) == pytest.approx(0.04)
    assert economics.cost_of_time(36, 2.0, n_gpus=2) == pytest.approx(0.04)


def test_a_disclosed_day():
    """DeepSeek's day of 27-28 Feb 2025 (open-infra-index, day 6).

    226.75 nodes of 8 GPUs at $2 per GPU-hour cost $87,072; at R1's list prices (0.14 cached input,
    0.55 input, 2.19 output) 608 G input tokens, 342 G of them cached, and 168 G output tokens are
    a theoretical revenue of $562,027. Token counts are rounded to 1 G: the tolerance.
    """
    assert economics.cost_of_time(86400, 2.0, n_gpus=226.75 * 8) == 87072
    price = economics.token_price("deepseek-reasoner")
    revenue = economics.list_price(price, 608 * 10**9, 168 * 10**9, cached_tokens=342 * 10**9)
    rounding = 0.5e9 * (0.55 + (0.55 - 0.14) + 2.19) / 1e6
    assert revenue == pytest.approx(562027, abs=rounding)
    # Planted faults: cached tokens at the full price, input and output swapped.
    full = economics.cost_of_tokens(608 * 10**9, 168 * 10**9, price.input, price.output)
    swapped = economics.list_price(price, 168 * 10**9, 608 * 10**9)
    assert abs(full - 562027) > rounding
    assert abs(swapped - 562027) > rounding


def test_a_request_at_a_list_price():
    price = economics.token_price("gpt-4o-mini")
    assert (price.input, price.output, price.cached_input) == (0.15, 0.60, 0.075)
    assert economics.list_price(price, 1000, 500) == pytest.approx(0.00045)
    assert economics.list_price(price, 1000, 500, cached_tokens=800) == pytest.approx(0.00039)


def test_a_price_without_cache_discount_charges_cached_tokens_in_full():
    price = economics.token_price("text-davinci-003")
    assert price.cached_input is None
    assert economics.list_price(price, 10, 0, 5) == economics.list_price(price, 10, 0)


def test_energy():
    assert economics.energy(700, 3600) == 2.52e6
    # 1 kWh at 10 cents; with an overhead of 1.2, 12 cents.
    assert economics.cost_of_energy(3.6e6, 0.10) == pytest.approx(0.10)
    assert economics.cost_of_energy(3.6e6, 0.10, overhead=1.2) == pytest.approx(0.12)


def test_per_million_and_utilization():
    assert economics.dollars_per_million_tokens(0.02, 1000) == pytest.approx(20.0)
    assert economics.utilization(30.0, 120.0) == 0.25


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: economics.cost_of_time(1, 2, utilization=0), "utilization=0"),
        (lambda: economics.cost_of_time(1, 2, utilization=1.5), "utilization=1.5"),
        (lambda: economics.cost_of_time(-1, 2), "seconds=-1"),
        (lambda: economics.cost_of_tokens(10, 0, 1, 1, cached_tokens=11), "part of the input"),
        (lambda: economics.cost_of_tokens(-1, 0, 1, 1), "input_tokens=-1"),
        (lambda: economics.utilization(2, 1), "busy"),
        (lambda: economics.dollars_per_million_tokens(1, 0), "at least one token"),
        (lambda: economics.cost_of_energy(1, 1, overhead=0.9), "overhead=0.9"),
        (lambda: economics.token_price("gpt-4o-mini2"), "gpt-4o-mini"),
    ],
)
def test_bad_input_is_explained(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_every_price_is_a_number_with_a_source_and_a_date():
    rows = data.read_csv("prices.csv")
    assert len({row["id"] for row in rows}) == len(rows) >= 20
    assert economics.token_prices() == tuple(row["id"] for row in rows)
    for row in rows:
        price = economics.token_price(row["id"])
        assert price.input > 0
        assert price.output > 0
        assert price.source
        assert price.valid_from or price.valid_to or "2026" in price.note
        assert row["source_kind"] in ("primary", "secondary")
