"""Samples, words and promises of the KTD studies: synthetic scores, or a given table of texts and paraphrases."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import PairedScores
from tdd.study.named.record import Options, Promise
from tdd.study.results import StudyResult
from tdd.study.sample import Sample

__all__ = ["LABELS", "LAWS", "AnyLaw", "KnockoffPool", "design_words", "promise", "table", "with_laws"]

LAWS: tuple[Any, ...] = ("normal", "exponential", "negative_exponential")
NUM_TESTS, SIGNAL, NUM_VALIDATION = 200, 2.0, 100

LABELS = {
    "ktd/ktd": "averaged W (the paper)",
    "ktd/multi": "multiple knockoffs (exact)",
    "ktd/derandomized": "derandomized (exact)",
    "negative_exponential": "minus exponential",
    "num_knockoffs": "k",
    "signal": "signal",
}


@pytree("num_knockoffs")
class AnyLaw:
    """`PairedScores` with the law as a number: one program for all of them. Labelled items of the same law validate.

    Attributes:
      law: place in `LAWS`.
      num_knockoffs: k.
      signal: by how much a member's own score is lower.
    """

    null: ClassVar[Null] = "nonmember"

    law: Any = 0
    num_knockoffs: int = 1
    signal: Any = SIGNAL

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        draws = [self._of(key, law) for law in LAWS]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[self.law], *draws)

    def _of(self, key: jax.Array, law: Any) -> Sample:
        sizes: dict[str, Any] = {"num_calibration": 1, "signal": self.signal, "law": law}
        sample = PairedScores(num_tests=NUM_TESTS, num_knockoffs=self.num_knockoffs, **sizes).draw(key)
        labelled = PairedScores(num_tests=NUM_VALIDATION, **sizes).draw(jax.random.fold_in(key, 1))
        validation = {"validation": labelled.scores, "validation_target": labelled.target}
        return sample._replace(extra=sample.extra | validation)


@pytree("num_knockoffs")
class KnockoffPool:
    """Half of the items, drawn anew in each repetition, with the first k of their knockoffs; up to 100 others validate.

    Attributes:
      scores: [N] loss-like scores of the texts.
      knockoffs: [N, at least k] of their knockoffs.
      is_member: [N] bool.
      num_knockoffs: k.
    """

    null: ClassVar[Null] = "nonmember"

    scores: Any
    knockoffs: Any
    is_member: Any
    num_knockoffs: int = 1

    def draw(self, key: jax.Array) -> Sample:
        """One half, with `extra["knockoffs"]` [m, k]."""
        scores = jnp.asarray(self.scores, jnp.result_type(float))
        knockoffs = jnp.asarray(self.knockoffs, jnp.result_type(float))[:, : self.num_knockoffs]
        order, is_member = jax.random.permutation(key, scores.shape[0]), jnp.asarray(self.is_member)
        chosen, rest = jnp.split(order, [scores.shape[0] // 2])
        rest = rest[:NUM_VALIDATION]
        validation = {"validation": scores[rest], "validation_target": is_member[rest]}
        extra = {"knockoffs": knockoffs[chosen], **validation}
        return Sample(scores[:0], scores[chosen], is_member[chosen], extra=extra)


def table(options: Options, num_knockoffs: int | None = None) -> KnockoffPool:
    """The given table with the first k of its knockoffs, or all."""
    columns = options.columns
    assert columns is not None
    most = columns.knockoffs.shape[1]
    return KnockoffPool(columns.scores[0], columns.knockoffs, columns.labels[0], num_knockoffs or most)


def with_laws(result: StudyResult) -> StudyResult:
    """Cells that name the law in place of its number."""
    return dataclasses.replace(result, cells=tuple(cell | {"law": LAWS[cell["law"]]} for cell in result.cells))


def promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    """What holds of copies of one law; paraphrases of a table are as exchangeable with their texts as they are."""
    if options.columns is not None or not method.startswith("ktd/"):
        return Promise("none")
    return Promise("none" if method == "ktd/ktd" and cell.get("num_knockoffs", 2) > 1 else "finite-sample")


def design_words(options: Options, signal: str = f"{SIGNAL:g}", knockoffs: str = "k paraphrases") -> str:
    """The design in words."""
    if options.columns is not None:
        columns = options.columns
        return f"{columns.source}, {columns.names[0]}: random halves of {columns.labels.shape[1]} items"
    return (
        f"{NUM_TESTS} texts, half of them members with scores {signal} lower, and {knockoffs} of each; "
        "the scores of a text and its paraphrases follow one law"
    )
