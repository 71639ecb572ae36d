"""The records that the readers of all layouts return, and their common checks.

Slices are parts of an item, such as the image and the instruction that a model read: which positions belong to which.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.texts.rows import shown
from tdd.validate import InputError

_MOST = 32
"""More names than this are no names of slices."""


class Entry(NamedTuple):
    """One text as a file has it, in the file's own units."""

    place: str  # words that lead a person to it, such as "line 7, choice 2"
    # log-probabilities, one number a token, None where there is none; or a single number, the sum over all tokens; None
    # where there are only statistics
    values: Sequence[Any] | float | None
    id: Any = None  # its identifier, or None
    text: str | None = None  # the text that the numbers belong to, or None
    choices: Sequence[float] = ()  # sums of all choices of a multiple-choice item, this one's too; else empty
    statistics: Mapping[str, Sequence[Any]] = {}  # further statistics by name, one number a position
    token_ids: Sequence[int] = ()  # the tokens' ids, one a position, or empty
    # the slice that all positions belong to; or the names of those that each belongs to; None without slices
    slices: str | Sequence[tuple[str, ...]] | None = None
    count: int | None = None  # how many tokens a single sum is of, where that is known


@dataclasses.dataclass(frozen=True)
class LogProbs:
    """Log-probabilities of the tokens of N texts, and statistics of the distributions they come from, in nats."""

    ids: tuple[str, ...]  # N unique identifiers
    # names as in `tdd.records.TokenStats` -> one float64 array a text, of every scored token; empty where there are
    # only sums
    statistics: Mapping[str, tuple[np.ndarray, ...]]
    sums: np.ndarray  # [N] float64, sum of the log-probabilities over the scored tokens; NaN where there are none
    texts: tuple[str | None, ...]  # N texts, None where the file has none
    format: str  # the layout that was read
    num_floored: int = 0  # tokens whose log-probability was at or below the floor
    source: str = "memory"  # a path, or "memory"
    sha256: str = ""  # hash of ids and numbers
    file_sha256: str = ""  # hash of the file's bytes, or of the hashes of several; "" for objects in memory
    # sums of all choices of every item, one float64 array an item; empty where an item has no choices
    choices: tuple[np.ndarray, ...] = ()
    token_ids: tuple[np.ndarray, ...] = ()  # one int64 array a text, of the scored tokens; or empty
    # name -> one bool array a text, True at the scored positions of the slice; empty where texts have no slices
    slices: Mapping[str, tuple[np.ndarray, ...]] = dataclasses.field(default_factory=dict)
    counts: np.ndarray | None = None  # [N] int64, the tokens in every sum; None where there is none, or by `statistics`

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def num_tokens(self) -> np.ndarray:
        """Scored tokens of each text, 0 where there are only sums: [N] int64."""
        for values in self.statistics.values():
            return np.array([len(of_text) for of_text in values], np.int64)
        return np.zeros(len(self), np.int64) if self.counts is None else self.counts

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """log p(x_t | x_<t) of every scored token, one float64 array a text; empty where they are not known."""
        return self.statistics.get("log_prob", ())


def check_list(source: str, place: str, name: str, value: Any) -> None:
    """Check that a value is a list, one element a token."""
    if not isinstance(value, list):
        raise InputError(f"{source}: {place}: {name} must be a list, one element a token, not {shown(value)}")


def check_lengths(source: str, place: str, first: tuple[str, int], second: tuple[str, int]) -> None:
    """Check that two lists have one element for each of the same tokens."""
    if first[1] != second[1]:
        raise InputError(f"{source}: {place}: {first[0]} has {first[1]} elements, {second[0]} has {second[1]}")


def check_slices(source: str, place: str, value: Any, first: tuple[str, int]) -> str | list[tuple[str, ...]]:
    """A name, or a list of the names that every position has, from a name, a list of names or null for each."""
    if isinstance(value, str):
        return _name(source, place, value)
    if not isinstance(value, list):
        raise InputError(
            f"{source}: {place}: slice must be a name, or a list with a name, a list of names or null for every "
            f"position, not {shown(value)}"
        )
    check_lengths(source, place, first, ("slice", len(value)))
    several = [entry if isinstance(entry, list) else [] if entry is None else [entry] for entry in value]
    return [tuple(_name(source, place, name) for name in names) for names in several]


def _name(source: str, place: str, name: Any) -> str:
    if not isinstance(name, str) or not name.strip() or not name.isprintable() or set(name) & set(",;"):
        raise InputError(
            f"{source}: {place}: a slice's name must be printable, without comma and semicolon, not {shown(name)}"
        )
    return name


def check_one_layout(source: str, entries: Sequence[Entry]) -> None:
    """All rows name one slice, all have a list of names, or none has slices."""
    for entry in entries:
        if type(entry.slices) is not type(entries[0].slices):
            raise InputError(
                f"{source}: slice is another kind of value at {entry.place} than at {entries[0].place}; give every row "
                "one name, or every row a list"
            )


def masks_of(source: str, entry: Entry, offset: int, length: int) -> dict[str, np.ndarray]:
    """Each slice of an entry and the scored positions that it holds, [length] bool; at least one is in a slice."""
    if entry.slices is None:
        return {}
    if isinstance(entry.slices, str):
        return {entry.slices: np.ones(length, bool)}
    masks: dict[str, np.ndarray] = {}
    for position, names in enumerate(entry.slices[offset:]):
        for name in names:
            masks.setdefault(name, np.zeros(length, bool))[position] = True
    if not masks:
        raise InputError(f"{source}: {entry.place} has no scored position in any slice")
    return masks


def joined(
    source: str, masks: Sequence[Mapping[str, np.ndarray]], groups: Sequence[Sequence[int]]
) -> dict[str, tuple[np.ndarray, ...]]:
    """Each slice of each item, whose positions are those of a group of entries: name -> one bool array an item."""
    names = [*dict.fromkeys(name for one in masks for name in one)]
    if len(names) > _MOST:
        raise InputError(
            f"{source}: slice has {len(names)} different names, such as {', '.join(map(shown, names[:3]))}; items "
            f"have at most {_MOST} slices, under the same names in all"
        )
    lengths = [len(next(iter(one.values()))) if one else 0 for one in masks]
    return {
        name: tuple(np.concatenate([masks[i].get(name, np.zeros(lengths[i], bool)) for i in group]) for group in groups)
        for name in names
    }
