"""Checks of what is planted: numbers of copies, sets of examples, shares and blocks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tdd.validate.errors import InputError
from tdd.validate.lab import check_count, check_range, check_texts

__all__ = ["check_all_trained", "check_blocks", "check_canaries", "check_copies", "check_set_names", "check_shares"]


_LONGEST_NAME = 200


def check_all_trained(shares: Sequence[float], items: int, shared: int) -> None:
    """Every model is trained on some text; a share of less than half an item is none."""
    for model, share in enumerate(shares, start=1):
        if not shared and int(share * items + 0.5) == 0:
            raise InputError(
                f"model {model} is trained on nothing: its share of the {items} items is {share:g}, and there are "
                "neither known_members nor background; give it some"
            )


def check_copies(name: str, value: object, *, minimum: int) -> tuple[int, ...]:
    """Numbers of copies: one whole number, or a non-empty sequence of them."""
    counts = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,)
    if not counts:
        raise InputError(f"{name} is empty; give at least one number of copies")
    for index, count in enumerate(counts):
        check_count(name if len(counts) == 1 else f"{name}[{index}]", count, minimum=minimum)
    return tuple(int(count) for count in counts)  # type: ignore[arg-type]


def check_canaries(sets: Mapping[str, Any], duplication: Mapping[str, int], separator: str) -> None:
    """Every set has a number of copies and no other number is given; the separator is text."""
    if not sets:
        raise InputError("sets is empty; give at least one set of examples")
    for name in sorted(sets.keys() ^ duplication.keys()):
        where, other = ("sets", "duplication") if name in sets else ("duplication", "sets")
        raise InputError(f"{where} names {name!r}, but {other} does not; name the same sets in both")
    for name, count in duplication.items():
        check_count(f"duplication[{name!r}]", count, minimum=0)
        check_texts(f"sets[{name!r}]", sets[name].texts)
    if not isinstance(separator, str) or not separator:
        raise InputError(f"separator must be a non-empty text, got {separator!r}")


def check_blocks(available: int, sizes: Sequence[int], calibration: float, remainder: float) -> None:
    """None of the three blocks is empty."""
    clean = available - sum(sizes)
    for name, size, share in (("calibration", sizes[0], calibration), ("remainder", sizes[1], remainder)):
        if size < 1:
            raise InputError(f"{name}={share:g} of {available} texts is none; raise it, or give more texts")
    if clean < 1:
        raise InputError(
            f"calibration={calibration:g} and remainder={remainder:g} leave no clean text of {available}; lower one"
        )


def check_set_names(sets: Mapping[str, Any], taken: Mapping[str, int]) -> None:
    """Names of sets can be names of files and are given once."""
    seen = {name.casefold(): name for name in taken}
    for name in sets:
        if not name or not all(letter.isalnum() or letter in "-_." for letter in name) or name.startswith("."):
            raise InputError(f"sets names {name!r}; use letters, digits, '-', '_' and '.', for it names a file")
        if len(name.encode()) > _LONGEST_NAME:
            raise InputError(f"sets names {name!r}, longer than {_LONGEST_NAME} bytes, and it names a file; shorten it")
        if name in taken:
            raise InputError(f"sets names {name!r}, which is the name of a generated set; choose another")
        other = seen.setdefault(name.casefold(), name)
        if other != name:
            raise InputError(f"sets names {name!r}, which is one file with {other!r} on some systems; choose another")


def check_shares(name: str, value: object, count: int) -> tuple[float, ...]:
    """A share of 0..1 for each of `count` models: one number for all, or one for each."""
    shares = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,) * count
    if len(shares) != count:
        raise InputError(f"{name} holds {len(shares)} numbers for {count} models; give one number, or one a model")
    for index, share in enumerate(shares):
        check_range(f"{name}[{index}]" if isinstance(value, Sequence) else name, share, 0.0, 1.0)
    return tuple(float(share) for share in shares)  # type: ignore[arg-type]
