"""What a decision is about, in words: its unit, what a false one is, what is found."""

from __future__ import annotations

from typing import NamedTuple


class Unit(NamedTuple):
    """The words for one kind of decision; of pairs the first is for a single one."""

    tested: tuple[str, str]
    listed: tuple[str, str]  # in the list of what is selected
    selected_as: str
    false: tuple[str, str]
    found: str
    is_found: tuple[str, str]


_ITEM = Unit(
    ("candidate", "candidates"),
    ("item", "items"),
    "suspected training data",
    ("non-member", "non-members"),
    "members",
    ("is a member", "are members"),
)
_UNITS = {
    ("nonmember", "item"): _ITEM,
    ("nonmember", "drawn"): _ITEM._replace(tested=("drawn candidate", "drawn candidates")),
    ("nonmember", "cluster"): Unit(
        ("cluster", "clusters"),
        ("cluster", "clusters"),
        "suspected training data",
        ("cluster without any member", "clusters without any member"),
        "clusters with a member",
        ("has a member", "have a member"),
    ),
    ("member", "item"): Unit(
        ("candidate", "candidates"),
        ("item", "items"),
        "presumed clean",
        ("contaminated item", "contaminated items"),
        "clean items",
        ("is clean", "are clean"),
    ),
}


def unit_of(null: str, unit: str) -> Unit:
    """The words for a null hypothesis and a unit, "item", "drawn" or "cluster"."""
    return _UNITS[null, unit]


def counted(number: int, words: tuple[str, str]) -> str:
    """A number with its word.

    >>> counted(1, ("item", "items")), counted(1000, ("item", "items"))
    ('1 item', '1000 items')
    """
    return f"{number} {words[number != 1]}"
