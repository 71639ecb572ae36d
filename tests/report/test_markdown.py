"""A report in Markdown: what a reader of GitHub's Markdown sees is the text, and nothing of it is read as a mark."""

import pytest
from markdown_it import MarkdownIt

from tdd.report.page import to_markdown
from tests.report.test_page import HOSTILE, report_of

MARKS = (*HOSTILE, "a|b", "`code` *strong* _em_ ~~no~~", "[text](http://x.invalid)", "# heading", "$x$", "&amp; !")


def tokens(text):
    """Kinds of the elements, and all text, as a reader with HTML switched on sees them."""
    parsed = MarkdownIt("gfm-like", {"linkify": False, "html": True}).parse(text)
    inner = [child for token in parsed for child in token.children or ()]
    shown = "".join(child.content for child in inner if child.type in ("text", "text_special"))
    return [token.type for token in (*parsed, *inner) if token.type not in ("text", "text_special")], shown


@pytest.mark.parametrize("text", MARKS)
def test_texts_stay_inert(text):
    kinds, shown = tokens(to_markdown(report_of(text)))
    assert kinds == tokens(to_markdown(report_of("plain")))[0]
    if text.isprintable():
        assert shown.count(text) == 14


def test_a_broken_twin_is_seen():
    """Without escaping, the elements differ."""
    page = to_markdown(report_of("plain")).replace("plain", MARKS[0])
    assert tokens(page)[0] != tokens(to_markdown(report_of("plain")))[0]


def test_sections_in_the_order_of_the_report():
    text = to_markdown(report_of("x"))
    assert text.startswith("# x\n\n**x**\n\nx\n\n## x\n\n|  |  |\n| --- | --- |\n| x | x |\n")
    assert text.endswith("\n| x | x |\n| --- | --- |\n| x | x |\n\nx\n")
