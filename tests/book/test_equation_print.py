"""A formula is printed as it was written: LaTeX, words and MathML say what the expression says."""

from __future__ import annotations

import ast
import re
from xml.etree import ElementTree

import pytest

from inferlab.book import equation_check
from inferlab.book.sphinx.equation_math import MathML, unit_text
from inferlab.book.sphinx.equation_print import Latex, Words
from inferlab.theory import formulas
from inferlab.theory.equations import collect, names_in, of
from inferlab.theory.notation import OPERATIONS, SYMBOLS

EQUATIONS = {e.id: e for e in collect(formulas.MODULES)}
each = pytest.mark.parametrize("e", EQUATIONS.values(), ids=EQUATIONS.keys())
# Formulas without lists, which sympy's own LaTeX parser can read back.
ALGEBRA = [e for e in EQUATIONS.values() if not any(s.axes for s in e.symbols)]


def pages(kind, name):
    return f"{kind}/{name}.html"


class Lettered(Latex):
    """The printer with one plain letter for each symbol, so that the LaTeX can be parsed."""

    def __init__(self, names):
        self.letters = dict(zip(names, "abcfghjkmnpqrs", strict=False))

    def symbol(self, symbol):
        return f"{{{self.letters[symbol.name]}}}"

    def product(self, factors):
        return r" \cdot ".join(factors)


@pytest.mark.parametrize("e", ALGEBRA, ids=[e.id for e in ALGEBRA])
def test_latex_read_back_is_the_function(e):
    """Printed, parsed by sympy, evaluated: the same number as the function gives."""
    from sympy import Symbol
    from sympy.parsing.latex import parse_latex

    printer = Lettered(names_in(e.expression))
    text = printer.expression(e.expression).replace(r"\left", "").replace(r"\right", "")
    values = {
        Symbol(letter): e.example.get(name, SYMBOLS[name].value)
        for name, letter in printer.letters.items()
    }
    parsed = parse_latex(text, backend="lark")
    assert float(parsed.subs(values)) == pytest.approx(e.compute(), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "latex"),
    [
        ("prefill_flops", r"C_{\mathrm{prefill}} = 2\,N\,P"),
        ("total_flops", r"C_{\mathrm{total}} = 2\,N\,\left(P + G\right)"),
        ("roofline_time", None),
        (
            "sequence_probability",
            r"p(x) = \prod_{t = 0}^{n - 1} p(x_{t + 1} \mid x_{\le t})",
        ),
        ("experts_touched", None),
        ("speculative_tokens", r"m = \frac{1 - \alpha^{\gamma + 1}}{1 - \alpha}"),
        (
            "softmax",
            r"p_{i} = \frac{\exp\left(z_{i} / \tau\right)}"
            r"{\sum_{j = 1}^{V} \exp\left(z_{j} / \tau\right)}",
        ),
        (
            "perplexity",
            r"\mathrm{PPL} = \exp\left(-\frac{1}{n}\,\sum_{t = 1}^{n} "
            r"\ln\left(p(x_{t} \mid x_{< t})\right)\right)",
        ),
    ],
)
def test_latex_is_as_one_would_type_it(name, latex):
    printed = Latex().equation(of(getattr(formulas, name)))
    assert latex is None or printed == latex
    assert printed.count("{") == printed.count("}")


def test_brackets_stand_where_they_are_needed_and_nowhere_else():
    latex = Latex().expression
    assert latex("n_params*(prompt_tokens + output_tokens)") == r"N\,\left(P + G\right)"
    assert latex("n_params*prompt_tokens + output_tokens") == r"N\,P + G"
    assert latex("batch - (seen - tokens)") == r"B - \left(S - T\right)"
    assert latex("(batch - seen) - tokens") == "B - S - T"
    assert latex("(batch/seen)**tokens") == r"\left(\frac{B}{S}\right)^{T}"
    assert latex("(batch*seen)**tokens") == r"\left(B\,S\right)^{T}"
    assert latex("-(batch + seen)") == r"-\left(B + S\right)"
    assert latex("per_round*(batch + seen)/tokens") == r"\frac{B + S}{T}"
    assert latex("per_round*(batch + seen)*tokens") == r"\left(B + S\right)\,T"
    assert latex("Sum(kept[i] + batch, (i, 1, n_requests))") == (
        r"\sum_{i = 1}^{R} \left(s_{i} + B\right)"
    )


@each
def test_words_name_every_part_once_and_read_as_a_sentence(e):
    words = Words().equation(e)
    assert words.endswith(".")
    assert ",," not in words
    assert " ," not in words
    for symbol in e.symbols:
        written = symbol.name in names_in(e.expression)
        if symbol.role != "index" and symbol.shown and written and not symbol.given:
            assert symbol.title in words
    assert words.count("end of fraction") == words.count("the fraction with")
    opened = re.findall(r"(?<!end of )bracket,", words)
    assert len(opened) == words.count("end of bracket")


def test_the_words_of_one_formula():
    assert Words().equation(of(formulas.prefill_flops)) == (
        "C_prefill, FLOPs of prefill, equals 2 (two FLOP per weight and token) times N, number of "
        "parameters, times P, tokens of the prompt."
    )


@each
def test_every_part_of_the_mathml_is_a_link_with_a_name(e):
    tree = ElementTree.fromstring(MathML(pages).math(e))
    links = [node for node in tree.iter("a")]
    shown = {link.get("data-part") for link in links}
    wanted = {n for n in names_in(e.left) + names_in(e.expression) if SYMBOLS[n].shown}
    assert wanted <= shown
    for link in links:
        part = link.get("data-part")
        kind = "symbol" if part in SYMBOLS else "operation"
        assert link.get("href") == f"{kind}/{part}.html"
        title = SYMBOLS[part].title if kind == "symbol" else OPERATIONS[part].title
        assert title in link.get("aria-label")
        assert link.get("title").startswith(link.get("aria-label"))
        assert "".join(link.itertext()).strip()
    written = {type(node.op) for node in ast.walk(ast.parse(e.expression)) if hasattr(node, "op")}
    assert ("addition" in shown) == (ast.Add in written)


def test_a_part_without_a_page_is_named_all_the_same():
    text = MathML(lambda kind, name: "").math(of(formulas.ridge_point))
    assert "<a " not in text
    assert text.count('tabindex="0"') == 3
    assert 'aria-label="F: peak rate of computing, FLOP/s"' in text


def test_a_marked_symbol_is_set_off():
    text = MathML(pages, mark="bandwidth").math(of(formulas.ridge_point))
    assert re.findall(r'eq-mark" data-part="(\w+)"', text) == ["bandwidth"]


def test_mathml_escapes_what_html_would_read():
    ElementTree.fromstring(MathML(pages).math(of(formulas.perplexity)))
    assert "&lt;" in MathML(pages).math(of(formulas.perplexity))


def test_units_as_they_are_read():
    assert unit_text("FLOP/(parameter*token)") == "FLOP/(parameter·token)"
    assert unit_text("byte/second") == "byte/s"
    assert unit_text("1") == "a plain number"
    units = {unit_text(s.unit) for s in SYMBOLS.values()}
    assert not any("second" in unit or "*" in unit for unit in units)


def test_what_cannot_be_printed_is_refused():
    with pytest.raises(ValueError, match="cannot be printed"):
        Latex().expression("batch if seen else tokens")
    with pytest.raises(ValueError, match="no rule for its unit"):
        equation_check.unit_of("a if b else c", {"a": "1", "b": "1", "c": "1"})
