"""Docstrings and help pages state costs in counts: a length of time is that of one machine, and no test holds it."""

import ast
import pathlib
import re

import pytest

from tdd.cli import _parser

ROOT = pathlib.Path(__file__).parents[2]
FILES = sorted(path for folder in ("tdd", "kernels") for path in (ROOT / folder).rglob("*.py"))
SINGULAR = r"(?:(?:milli|micro|nano)?second|minute|hour|day)"
MANY = r"(?:[\d.,]*\d|two|three|four|five|six|seven|eight|nine|ten|few|several|some|many)"
TIME = re.compile(
    rf"\b{MANY} (?:s|ms|µs|us|ns|{SINGULAR}s)\b(?!\.e)"
    rf"|\b(?:under|within|about|half|quarter of|less than) (?:of )?(?:an? )?{SINGULAR}\b"
    r"|\b\S+(?: \w+)? a second on\b|\b(?:thousands|millions) of \w+ a second\b"
    r"|\btimes (?:as (?:fast|slow)|faster|slower|the (?:time|speed) of)\b|\b(?:tenth|half|quarter) of the time\b"
)
"""A length of time, a rate on a machine, or a factor of speed."""

EXCEPTIONS = {
    ("kernels/majorant.py", "2 s"),  # s points
    ("tdd/study/power/scores.py", "2 s"),  # a standard deviation
    ("tdd/scoring/store/namespace.py", "many seconds"),  # an option of the store
}


def stated(text):
    """The times in a text."""
    return [found.group() for found in TIME.finditer(" ".join(text.split()))]


def docstrings(source):
    """Every string that stands alone: docstrings, and descriptions below constants."""
    nodes = [ast.parse(source)]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.value.value
        nodes += [child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.expr)]


def pages(parser):
    """The help pages of a parser and of its commands."""
    yield parser.format_help()
    for action in parser._actions:
        for one in dict(action.choices).values() if isinstance(action.choices, dict) else ():
            yield from pages(one)


def test_no_docstring_states_a_time():
    found = {
        (path.relative_to(ROOT).as_posix(), time)
        for path in FILES
        for text in docstrings(path.read_text(encoding="utf-8"))
        for time in stated(text)
    }
    assert found == EXCEPTIONS


def test_no_help_page_states_a_time():
    texts = [*pages(_parser())]
    assert len(texts) > 15
    assert [time for text in texts for time in stated(text)] == []


@pytest.mark.parametrize(
    "text",
    [
        "Cost: O(m^2 log m): 60 ms for m = 1,000, 5 s for 10,000.",
        "u_k takes a quarter of a second of processor time at n = 100, four seconds at 1,000",
        "about a second for 1,000 items",
        "O(K m (n + m)): about 10^8 steps a second on one core.",
        "PTDI on millions of splits a second",
        "XLA:CPU sorts them five times as fast as floating-point numbers",
        "take a quarter of the time of a sort with places",
        "less than a minute",
    ],
)
def test_the_search_finds_times(text):
    assert stated(text)


@pytest.mark.parametrize("text", ["± 2 s.e.", "label: 1 first class, 2 second class", "a second pass", "O(m log m)"])
def test_the_search_finds_nothing_else(text):
    assert not stated(text)
