"""Knockoffs: error and power over how many paraphrases an item has, by the law of the scores."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import PairedScores
from tdd.study.named.knockoff_pool import KnockoffPool
from tdd.study.named.pools import run_options
from tdd.study.named.record import Figure, NamedStudy, Needs, Options, Promise
from tdd.study.results import StudyResult
from tdd.study.runner import run
from tdd.study.sample import Sample

__all__ = ["STUDY"]

NUM_KNOCKOFFS = (1, 3, 5, 10, 50)
LAWS: tuple[Any, ...] = ("normal", "exponential", "negative_exponential")
NUM_TESTS, SIGNAL = 200, 2.0
METHODS = ("ktd/ktd", "ktd/multi", "ktd/derandomized")


@pytree("num_knockoffs")
class AnyLaw:
    """`PairedScores` with the law as a number: one program for all of them.

    Attributes:
      law: place in `LAWS`.
      num_knockoffs: k.
    """

    null: ClassVar[Null] = "nonmember"

    law: Any = 0
    num_knockoffs: int = 1

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        draws = [
            PairedScores(
                num_tests=NUM_TESTS, num_knockoffs=self.num_knockoffs, num_calibration=1, signal=SIGNAL, law=law
            ).draw(key)
            for law in LAWS
        ]
        return jax.tree.map(lambda *leaves: jnp.stack(leaves)[self.law], *draws)


def _run(options: Options) -> StudyResult:
    settings = run_options(options)
    if options.columns is None:
        result = run(AnyLaw(), METHODS, grid={"law": range(len(LAWS)), "num_knockoffs": NUM_KNOCKOFFS}, **settings)
        return dataclasses.replace(result, cells=tuple(cell | {"law": LAWS[cell["law"]]} for cell in result.cells))
    columns = options.columns
    most = columns.knockoffs.shape[1]
    design = KnockoffPool(columns.scores[0], columns.knockoffs, columns.labels[0])
    grid = {"num_knockoffs": tuple(sorted({k for k in NUM_KNOCKOFFS if k < most} | {most}))}
    return run(design, METHODS, grid=grid, **settings)


def _promise(options: Options, cell: Mapping[str, Any], method: str) -> Promise:
    if options.columns is not None:
        return Promise("none")  # paraphrases are as exchangeable with their texts as they are
    return Promise("none" if method == "ktd/ktd" and cell["num_knockoffs"] > 1 else "finite-sample")


def _design(options: Options) -> str:
    if options.columns is not None:
        columns = options.columns
        return f"{columns.source}, {columns.names[0]}: random halves of {columns.labels.shape[1]} items"
    return (
        f"{NUM_TESTS} texts, half of them members with scores {SIGNAL:g} lower, and k paraphrases of each; "
        "the scores of a text and its paraphrases follow one law"
    )


STUDY = NamedStudy(
    name="ktd-draws",
    title="Knockoffs, by their number an item and by the law of the scores",
    design=_design,
    run=_run,
    figure=Figure(
        "parameter",
        panels="law",
        x="num_knockoffs",
        x_label="knockoffs an item, k",
        labels={
            "ktd/ktd": "averaged W (the paper)",
            "ktd/multi": "multiple knockoffs (exact)",
            "ktd/derandomized": "derandomized (exact)",
            "negative_exponential": "minus exponential",
            "num_knockoffs": "k",
        },
    ),
    promise=_promise,
    repetitions=4_000,
    alphas=(0.1, 0.2),
    needs=Needs(knockoffs=True),
)
