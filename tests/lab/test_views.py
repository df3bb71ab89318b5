"""Tables, tokens and answers: text in, HTML and plain text out, nothing of it markup."""

from __future__ import annotations

import pytest

from inferlab.lab import views


def test_a_table_escapes_and_lines_up():
    shown = views.table(["", "a<b"], [["x", 1], ["longer", "<i>"]], "cap & tion")
    html = shown._repr_html_()
    assert '<th scope="row">longer</th><td>&lt;i&gt;</td>' in html
    assert "a&lt;b" in html
    assert "<caption>cap &amp; tion</caption>" in html
    assert repr(shown).splitlines() == ["        a<b", "x         1", "longer  <i>"]


def test_a_row_of_another_length_is_named():
    with pytest.raises(ValueError, match="1 cells; the header has 2"):
        views.table(["a", "b"], [["x"]])


def test_tokens_show_their_white_space():
    shown = views.tokens([" the", b"\n", "<b>", b"\xf0\x9f"])
    assert repr(shown) == "␣the | ↵ | <b> | \ufffd"
    assert "&lt;b&gt;" in shown._repr_html_()


def test_an_answer_is_shown_as_it_stands():
    shown = views.answer("One <b>.\n\nTwo.")
    assert "<p>One &lt;b&gt;.</p><p>Two.</p>" in shown._repr_html_()
    assert repr(shown) == "One <b>.\n\nTwo."


def test_a_cell_of_prose_keeps_some_width():
    html = views.table(["a", "b"], [["x" * 60, "y" * 60], ["x", "y"]])._repr_html_()
    assert html.count('class="il-words"') == 1
    assert f'<td class="il-words">{"y" * 60}</td>' in html


def test_a_number_is_marked_to_stay_with_its_unit():
    shown = views.table(["", "read"], [["a", "25.5 GB"], ["b", "16 of 20"], ["c", "7"]])
    assert '<td class="il-quantity">25.5 GB</td>' in shown._repr_html_()
    assert shown._repr_html_().count("il-quantity") == 1
