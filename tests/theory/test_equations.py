"""Each formula is what its function computes, in the units it states; planted errors are caught."""

from __future__ import annotations

import dataclasses
import math
from itertools import pairwise

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from inferlab import data
from inferlab.book import equation_check as check
from inferlab.theory import counts, economics, formulas, latency, roofline, shapes
from inferlab.theory.equations import Equation, collect, equation, names_in, of
from inferlab.theory.notation import CITATIONS, OPERATIONS, SYMBOLS, WORDS, Symbol, table

EQUATIONS = {e.id: e for e in collect(formulas.MODULES)}
# The list of the book's plan, in its order.
ASKED = """
    sequence-probability softmax attention perplexity prefill-flops decode-flops total-flops
    step-bytes kv-bytes-per-token arithmetic-intensity ridge-point roofline-time additive-time
    mfu mbu ttft tpot goodput littles-law critical-batch speculative-tokens experts-touched
    cost-per-token serving-card lifetime-break-even margin
"""
each = pytest.mark.parametrize("e", EQUATIONS.values(), ids=EQUATIONS.keys())


def shrunk(draw, value):
    """A value of the example's kind, smaller by a random factor; whole numbers stay whole."""
    if isinstance(value, tuple):
        return tuple(shrunk(draw, one) for one in value)
    factor = draw(st.floats(0.3, 1.0))
    if isinstance(value, int) and abs(value) > 1:
        return max(2, round(value * factor))
    return value if isinstance(value, int) else value * factor


@st.composite
def points(draw, e: Equation):
    """A random point in the domain of an equation, drawn around its example."""
    return {name: shrunk(draw, value) for name, value in e.example.items()}


def test_every_equation_of_the_plan_is_there():
    assert set(ASKED.split()) <= set(EQUATIONS)


@each
def test_function_and_expression_agree_at_random_points(e):
    @settings(max_examples=12, deadline=None, derandomize=True)
    @given(points(e))
    def agree(values):
        wanted = check.evaluate(e, values)
        assert e.function(**values) == pytest.approx(wanted, rel=1e-9, abs=1e-300)

    agree()


@each
def test_units_of_both_sides_are_the_same(e):
    assert check.units_fault(e) == ""


@each
def test_parameters_of_the_function_are_the_symbols_of_the_expression(e):
    free = {n for n in names_in(e.expression)} - {
        s.name for s in SYMBOLS.values() if s.role in ("constant", "index", "size")
    }
    assert set(e.function.__code__.co_varnames[: e.function.__code__.co_argcount]) == free
    assert set(e.example) == free


@each
def test_every_equation_says_what_a_reader_may_ask(e):
    claims = yaml.safe_load(data.path("claims.yml").read_text(encoding="utf-8"))
    assert len(e.reading.split()) > 20
    assert e.assumptions
    assert e.example_from
    assert not e.claim or e.claim in {c["id"] for c in claims["claims"]}
    assert {p.file for p in e.passages} <= set(claims["sources"])
    assert e.cites or e.claim


# A test that a wrong formula fails: the same function, an expression with one error in it.
@pytest.mark.parametrize(
    ("name", "right", "wrong"),
    [
        ("prefill_flops", "two_flop*", ""),
        ("step_bytes", "params_read*", "two_flop*params_read*"),
        ("step_bytes", "(seen + written_token)", "seen"),
        ("kv_bytes_per_token", "two_kv*", ""),
        ("experts_touched", "**tokens", "**(tokens + 1)"),
        ("tpot", "(output_tokens - first_token)", "output_tokens"),
        ("critical_batch", "two_flop*", ""),
        ("roofline_time", "Max(step_flops/peak_flops, ", "(step_flops/peak_flops + "),
        ("speculative_tokens", "guesses + 1", "guesses"),
        ("serving_card", "output_tokens**2/2", "output_tokens**2"),
        ("attention", "/sqrt(key_width)", ""),
        ("perplexity", "1/length*", ""),
        ("softmax", "logits[i]/temperature", "logits[i]"),
        ("sequence_probability", "length - 1", "length - 2"),
    ],
)
def test_a_wrong_formula_is_caught(name, right, wrong):
    e = of(getattr(formulas, name))
    assert right in e.expression
    planted = dataclasses.replace(e, expression=e.expression.replace(right, wrong))
    value = e.compute()
    assert check.evaluate(planted, e.example) != pytest.approx(value, rel=1e-6)


# Units: every error is one that has been made in print.
@pytest.mark.parametrize(
    ("name", "units", "what"),
    [
        ("ridge_point", {"bandwidth": "GiB/second", "ridge": "FLOP/GB"}, "factor of"),
        ("mbu", {"bytes_moved": "GiB", "bandwidth": "GB/second"}, "factor of 1.07374"),
        ("step_bytes", {"bytes_per_weight": "GB/parameter"}, "factor of"),
        ("prefill_flops", {"two_flop": "MAC/(parameter*token)"}, "factor of 2"),
        ("mfu", {"flops": "MAC"}, "factor of 2"),
        ("mfu", {"peak_flops": "MAC/second"}, "factor of 0.5"),
        ("step_bytes", {"bytes_per_weight": "bit/parameter"}, "factor of"),
        ("kv_bytes_per_token", {"bytes_per_element": "bit/element"}, "factor of 0.125"),
        ("step_bytes", {"kv_per_token": "byte/step"}, "is not"),
        ("additive_time", {"fixed_time": "second/(layer*token)"}, "is not"),
        ("roofline_time", {"step_bytes": "byte/token"}, "is not"),
        ("tpot", {"tpot": "second/step"}, "is not"),
        ("critical_batch", {"once_per_step": "1"}, "is not"),
        ("cost_per_token", {"seconds_per_hour": "1"}, "factor of"),
        ("cost_per_token", {"dollars_per_hour": "dollar/(machine*second)"}, "factor of 3600"),
        ("littles_law", {"stay": "hour"}, "factor of 3600"),
        ("step_bytes", {"params_read": "parameter"}, "is not"),
        ("total_flops", {"output_tokens": "step"}, "is not"),
        ("experts_touched", {"tokens": "token"}, "exponent"),
        ("perplexity", {"length": "token"}, "argument of exp"),
        ("softmax", {"temperature": "token"}, "argument of exp"),
    ],
)
def test_a_wrong_unit_is_caught(name, units, what):
    fault = check.units_fault(of(getattr(formulas, name)), units)
    assert what in fault
    assert fault.startswith(of(getattr(formulas, name)).id)


def test_units_of_our_own_do_not_take_what_they_do_not_know_for_a_number():
    with pytest.raises(check.UnitMismatch):
        check.unit_of("a + b", {"a": "byte", "b": "step"})
    with pytest.raises(Exception, match="furlong"):
        check.unit_of("a", {"a": "furlong"})


def test_a_missing_constant_shows_in_the_units():
    e = of(formulas.prefill_flops)
    planted = dataclasses.replace(e, expression="n_params*prompt_tokens")
    assert "is not" in check.units_fault(planted)


def test_the_decorator_refuses_what_contradicts_itself():
    about = {
        "title": "x",
        "left": "ttft",
        "example_from": "x",
        "reading": "x",
        "assumptions": ("x",),
    }

    def plain(sent, first):
        return first - sent

    values = {"sent": 0.0, "first": 1.0}
    for change, message in (
        ({"expression": "first - nothing"}, "no symbol named nothing"),
        ({"expression": "last - sent"}, "the function takes first, sent, the expression needs"),
        ({"example": {"sent": 0.0}}, "the example gives sent, the expression needs"),
        ({"cites": ("nobody-1900",)}, "no citation nobody-1900"),
        ({"expression": "first -"}, "is no expression"),
        ({"expression": "sin(first) - sent"}, "sin is called"),
        ({"left": "t"}, "on the left is a index"),
    ):
        given_ = {"expression": "first - sent", "example": values} | about | change
        with pytest.raises(ValueError, match=message):
            equation("x", **given_)(plain)
    with pytest.raises(ValueError, match="has no equation"):
        of(plain)


def test_two_equations_of_one_id_are_refused():
    with pytest.raises(ValueError, match="two equations have the id"):
        collect([formulas.work, formulas.work])


def test_symbols_have_one_name_and_every_one_is_used():
    used = {s.name for e in EQUATIONS.values() for s in e.symbols}
    assert set(SYMBOLS) - used == set()
    titles = [s.title for s in SYMBOLS.values() if s.role not in ("index", "size")]
    assert len(titles) == len(set(titles))
    for s in SYMBOLS.values():
        check.registry().Unit("" if s.unit == "1" else s.unit)
        assert set(s.axes) <= set(SYMBOLS)
        assert set(s.cites) <= set(CITATIONS)
        assert s.meaning.endswith(".")
        assert s.origin or s.role in ("constant", "index", "result")


def test_a_symbol_that_contradicts_itself_is_refused():
    one = {"name": "x", "letter": "x", "title": "x", "unit": "1", "meaning": "x."}
    with pytest.raises(ValueError, match="none of"):
        Symbol(**one, role="guess")
    with pytest.raises(ValueError, match="a constant has a value"):
        Symbol(**one, role="constant")
    with pytest.raises(ValueError, match="one entry"):
        table(Symbol(**one, role="model"), Symbol(**one, role="model"))


def test_every_citation_is_used_and_has_an_address():
    used = {key for e in EQUATIONS.values() for key in e.cites}
    used |= {key for s in SYMBOLS.values() for key in s.cites}
    assert used == set(CITATIONS)
    assert all(c.url.startswith("https://") for c in CITATIONS.values())
    assert all(name in SYMBOLS for word in WORDS for name in word.see)
    assert len({o.title for o in OPERATIONS.values()}) == len(OPERATIONS)


# The scalar formulas are the arithmetic of the rich functions.
def test_formulas_are_what_the_rich_functions_compute():
    llama, past = shapes.get("llama-3-8b"), 1024
    kappa = formulas.kv_bytes_per_token(llama.n_layers, llama.n_kv_heads, llama.head_dim, 2)
    assert kappa == llama.kv_bytes_per_token("bf16") == 131072
    got = formulas.step_bytes(llama.params_streamed, 2, 3, past + 1, kappa)
    assert got == counts.bytes_per_step(llama, batch=3, context=past)
    line = latency.Timeline(0.5, (1.0, 1.25, 1.75))
    assert line.ttft == formulas.ttft(0.5, 1.0)
    assert (
        line.tpot
        == formulas.tpot(1.0, 1.75, 3)
        == pytest.approx(sum(b - a for a, b in pairwise(line.tokens)) / 2)
    )
    rented = economics.cost_of_time(1 / 2500, 2.0, utilization=0.5)
    assert formulas.cost_per_token(2.0, 1, 0.5, 2500.0) == pytest.approx(rented)
    assert of(formulas.critical_batch).compute() == pytest.approx(
        roofline.critical_batch(_Nameplate())
    )


class _Nameplate:
    bandwidth = 3.35e12

    def peak_flops(self, dtype):
        return 989.4e12


def test_worked_answers_of_others():
    """The source's request; DeepSeek's expert coverage; the paper's sum of a geometric series."""
    assert formulas.prefill_flops(70e9, 500) == 7.00e13
    assert formulas.decode_flops(70e9, 500) == 7.00e13
    assert formulas.total_flops(70e9, 500, 500) == 1.40e14
    shares = [formulas.experts_touched(256, 8, t) / 256 for t in (1, 8, 32, 128)]
    assert [round(100 * s, 1) for s in shares] == [3.1, 22.4, 63.8, 98.3]
    series = sum(0.8**i for i in range(5))
    assert formulas.speculative_tokens(0.8, 4) == pytest.approx(series)
    assert formulas.speculative_tokens(1.0, 4) == 5
    assert formulas.lifetime_break_even(15e12) == 45e12
    assert formulas.margin(562_027.0, 87_072.0) == pytest.approx(0.845, abs=5e-4)
    assert formulas.perplexity((0.25,) * 7) == pytest.approx(4.0)
    assert math.isclose(sum(formulas.softmax((1e3, 2e3, 0.0), 0.5)), 1.0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: formulas.softmax((1.0,), 0.0), "temperature=0"),
        (lambda: formulas.perplexity(()), "at least one"),
        (lambda: formulas.tpot(0.0, 1.0, 1), "undefined for 1"),
        (lambda: formulas.goodput((1,), 0.0), "above zero"),
        (lambda: formulas.speculative_tokens(1.2, 4), "a probability"),
        (lambda: formulas.margin(0.0, 1.0), "above zero"),
    ],
)
def test_errors_say_what_is_possible(call, message):
    with pytest.raises(ValueError, match=message):
        call()
