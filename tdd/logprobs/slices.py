"""Slices of an item, such as the image and the instruction that a model read: which positions belong to which."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.logprobs.record import Entry, check_lengths
from tdd.texts.rows import shown
from tdd.validate import InputError

__all__ = ["check_one_layout", "check_slices", "joined", "masks_of"]

_MOST = 32
"""More names than this are no names of slices."""


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
