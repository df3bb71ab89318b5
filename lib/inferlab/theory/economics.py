"""What one request costs: from machine time, from a price list, from electricity.

Dollars are US dollars. A price is an argument and carries its date where it is stored
(data/prices.csv); none is built in.
"""

from __future__ import annotations

import difflib
import functools
from dataclasses import dataclass

from inferlab import data

SECONDS_PER_HOUR = 3600.0
JOULES_PER_KWH = 3.6e6


@dataclass(frozen=True)
class TokenPrice:
    """A list price in dollars per million tokens.

    cached_input  price of prompt tokens found in the provider's cache; None where none is listed.
    valid_from, valid_to  dates as far as the source gives them ('2024-07', ''), note: what else it
    says; source: where it was read.
    """

    id: str
    input: float
    output: float
    cached_input: float | None = None
    valid_from: str = ""
    valid_to: str = ""
    source: str = ""
    note: str = ""


def token_price(id: str) -> TokenPrice:
    """The list price of this id. Source: data/prices.csv, with a source per row.

    Raises ValueError for an unknown id and names the ids most like it.
    """
    known = _prices()
    if id not in known:
        near = difflib.get_close_matches(id, known, n=4, cutoff=0.4) or sorted(known)
        raise ValueError(f"no token price {id!r}: did you mean {', '.join(near)}?")
    return known[id]


def token_prices() -> tuple[str, ...]:
    """Ids of the list prices, in the order of data/prices.csv."""
    return tuple(_prices())


def cost_of_time(
    seconds: float, dollars_per_hour: float, n_gpus: int = 1, utilization: float = 1.0
) -> float:
    """Dollars of `seconds` on n machines rented by the hour, seconds n price / (3600 u).

    seconds            of the whole machine that the request took; with a batch, its share of them
    dollars_per_hour   rent of one machine
    utilization        u, share of the paid time in which the machine serves, 0 < u <= 1: idle
                       hours are paid by the requests of the busy ones
    """
    _not_negative(seconds=seconds, dollars_per_hour=dollars_per_hour, n_gpus=n_gpus)
    if not 0 < utilization <= 1:
        raise ValueError(f"utilization={utilization}: a share above 0 and up to 1")
    return seconds * n_gpus * dollars_per_hour / (SECONDS_PER_HOUR * utilization)


def utilization(busy_seconds: float, paid_seconds: float) -> float:
    """Share of the paid time in which the machine served, 0 ... 1: busy / paid, both in seconds."""
    _not_negative(busy_seconds=busy_seconds)
    if not paid_seconds > 0 or busy_seconds > paid_seconds:
        raise ValueError(
            f"{busy_seconds} s busy of {paid_seconds} s paid: paid time is above zero and holds "
            "the busy time"
        )
    return busy_seconds / paid_seconds


def cost_of_tokens(
    input_tokens: int,
    output_tokens: int,
    input_price: float,
    output_price: float,
    cached_tokens: int = 0,
    cached_price: float | None = None,
) -> float:
    """Dollars of a request by a price list.

    (fresh input * input_price + cached * cached_price + output * output_price) / 1e6, with
    fresh input = input_tokens - cached_tokens. Prices in dollars per million tokens;
    cached_price None charges cached tokens as fresh ones.
    """
    _not_negative(
        input_tokens=input_tokens,
        output_tokens=output_tokens,
        input_price=input_price,
        output_price=output_price,
        cached_price=cached_price or 0.0,
    )
    if not 0 <= cached_tokens <= input_tokens:
        raise ValueError(
            f"cached_tokens={cached_tokens} of {input_tokens} input tokens: cached tokens are "
            "part of the input"
        )
    cached = input_price if cached_price is None else cached_price
    fresh = input_tokens - cached_tokens
    return (fresh * input_price + cached_tokens * cached + output_tokens * output_price) / 1e6


def list_price(
    price: TokenPrice, input_tokens: int, output_tokens: int, cached_tokens: int = 0
) -> float:
    """Dollars of a request at a list price of data/prices.csv; see `cost_of_tokens`."""
    return cost_of_tokens(
        input_tokens,
        output_tokens,
        price.input,
        price.output,
        cached_tokens,
        price.cached_input,
    )


def dollars_per_million_tokens(dollars: float, tokens: int) -> float:
    """Cost of a million tokens when `tokens` of them cost `dollars`: 1e6 dollars / tokens."""
    _not_negative(dollars=dollars)
    if tokens < 1:
        raise ValueError(f"tokens={tokens}: a cost per token needs at least one token")
    return 1e6 * dollars / tokens


def energy(watts: float, seconds: float) -> float:
    """Joules drawn in `seconds` at a mean power of `watts`."""
    _not_negative(watts=watts, seconds=seconds)
    return watts * seconds


def cost_of_energy(joules: float, dollars_per_kwh: float, overhead: float = 1.0) -> float:
    """Dollars of electricity: joules * overhead / 3.6e6 J per kWh * dollars_per_kwh.

    overhead  the building's power per watt of computing (PUE), 1 or more: cooling and conversion.
    """
    _not_negative(joules=joules, dollars_per_kwh=dollars_per_kwh)
    if overhead < 1:
        raise ValueError(f"overhead={overhead}: a building draws at least what its machines draw")
    return joules * overhead / JOULES_PER_KWH * dollars_per_kwh


@functools.cache
def _prices() -> dict[str, TokenPrice]:
    prices = {}
    for row in data.read_csv("prices.csv"):
        cached = row["cached_input_dollars_per_million_tokens"]
        prices[row["id"]] = TokenPrice(
            id=row["id"],
            input=float(row["input_dollars_per_million_tokens"]),
            output=float(row["output_dollars_per_million_tokens"]),
            cached_input=float(cached) if cached else None,
            valid_from=row["valid_from"],
            valid_to=row["valid_to"],
            source=row["source"],
            note="; ".join(part for part in (row["valid_note"], row["note"]) if part),
        )
    return prices


def _not_negative(**values: float) -> None:
    for name, value in values.items():
        if not value >= 0:
            raise ValueError(f"{name}={value}: it cannot be negative")
