"""Examples of one data set that repeat each other: shuffles that exchange them cannot be told apart."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence

import numpy as np

from tdd.audit.duplicates import near_pairs
from tdd.audit.word_split import normalise

__all__ = ["Repeats", "duplicates"]


@dataclasses.dataclass(frozen=True)
class Repeats:
    """Duplicates within a data set.

    Attributes:
      num_examples: All examples.
      num_distinct: Different texts among them.
      num_groups: Texts that occur more than once.
      largest_group: Examples of the most frequent text.
      num_within_shards: Examples that repeat an earlier one of the same shard.
      num_near: Examples with a near duplicate of another wording, whitespace or case.
      share: Fraction of the examples that have an exact or a near duplicate.
      complete: False if the search for near duplicates stopped early; `num_near` and `share` are then lower bounds.
      near: Jaccard similarity from which a pair counts as near.
    """

    num_examples: int
    num_distinct: int
    num_groups: int
    largest_group: int
    num_within_shards: int
    num_near: int
    share: float
    complete: bool
    near: float


def duplicates(
    examples: Sequence[str], bounds: Sequence[tuple[int, int]] | None = None, *, near: float = 0.8
) -> Repeats:
    """Count exact and near duplicates among the examples of a data set.

    Exact: equal strings. Near: different strings that are equal but for case, Unicode composition and white space, or
    whose sets of 5-grams (of words in long texts, of characters in short ones) have Jaccard similarity `near` or more.

    Args:
      examples: The texts.
      bounds: (first, stop) of each shard; the whole data set is one without it.
      near: Smallest similarity of a near duplicate.

    Returns:
      `Repeats`.

    Raises:
      InputError: `near` outside (0, 1].

    Cost: linear in the length of the texts, plus about 5 million comparisons of pairs at most.

    >>> duplicates(["a cat", "a dog", "a cat"]).num_groups
    1
    """
    times = collections.Counter(examples)
    bounds = [(0, len(examples))] if bounds is None else bounds
    folded: dict[str, set[str]] = {}
    for text in times:
        folded.setdefault(normalise(text), set()).add(text)
    distinct = list(folded)
    (left, right, _), complete = near_pairs(distinct, distinct, near)
    close = {distinct[i] for i in np.union1d(left, right)} | {text for text, same in folded.items() if len(same) > 1}
    has_near = {text for group in close for text in folded[group]}
    with_copy = sum(count for text, count in times.items() if count > 1 or text in has_near)
    return Repeats(
        num_examples=len(examples),
        num_distinct=len(times),
        num_groups=sum(count > 1 for count in times.values()),
        largest_group=max(times.values(), default=0),
        num_within_shards=sum(stop - first - len(set(examples[first:stop])) for first, stop in bounds),
        num_near=sum(times[text] for text in has_near),
        share=with_copy / max(1, len(examples)),
        complete=complete,
        near=near,
    )
