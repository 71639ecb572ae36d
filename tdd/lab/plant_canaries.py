"""Planting whole sets of examples in their canonical order, some of them many times, among other documents."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.lab.truth import Row
from tdd.records import Texts
from tdd.validate.errors import InputError
from tdd.validate.lab import check_count, check_texts

__all__ = ["PlantedCanaries", "plant_canaries"]


class PlantedCanaries(NamedTuple):
    """Training documents with sets of examples among them.

    Attributes:
      documents: what to train on, in random order: the background, and the documents of each set as often as it is
        duplicated.
      truth: one row a set: set, num_examples, copies.
    """

    documents: tuple[str, ...]
    truth: tuple[Row, ...]


def plant_canaries(
    sets: Mapping[str, Texts],
    duplication: Mapping[str, int],
    background: Sequence[str],
    *,
    separator: str = "\n\n",
    examples_per_document: int | None = None,
    seed: int,
) -> PlantedCanaries:
    """Join the examples of each set, in the order given, into documents, and mix their copies into the background.

    The order within a set is kept: it is the canonical order that the exchangeability test looks for. A set of 0
    copies is planted nowhere; it is in the truth, and shows the size of the test.

    Args:
      sets: name -> its examples in canonical order.
      duplication: name -> how often the set is in the training data, 0 or more; the same names.
      background: other documents, one copy each; may be empty where some set is planted.
      separator: between two examples of a document; the one that the test is to use.
      examples_per_document: consecutive examples a document, or None for one document a set.
      seed: of the order of the documents.

    Raises:
      InputError: no set, an empty example, different names in `sets` and `duplication`, a negative number of copies,
        an empty separator, or nothing to train on.
    """
    _check_canaries(sets, duplication, separator)
    check_count("seed", seed, minimum=0)
    if examples_per_document is not None:
        check_count("examples_per_document", examples_per_document, minimum=1)
    documents = list(background)
    for name, examples in sets.items():
        size = examples_per_document or len(examples)
        joined = [separator.join(examples.texts[start : start + size]) for start in range(0, len(examples), size)]
        documents += joined * duplication[name]
    check_count("the number of training documents", len(documents), minimum=1)
    order = np.random.default_rng(seed).permutation(len(documents))
    return PlantedCanaries(
        documents=tuple(documents[index] for index in order),
        truth=tuple(
            {"set": name, "num_examples": len(examples), "copies": int(duplication[name])}
            for name, examples in sets.items()
        ),
    )


def _check_canaries(sets: Mapping[str, Any], duplication: Mapping[str, int], separator: str) -> None:
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
