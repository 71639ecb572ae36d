"""Procedures beside PTDI where the truth was planted: KTD, TD4Eval, JMCS, JECS, tests of a data set and of its order.

Each is measured by `tdd.study.run` over random divisions of scored texts: which of the texts calibrate for which the
null holds is drawn anew. A text is one of several versions that were drawn alike, so that the versions of a non-member
are exchangeable; which one of them was published is drawn anew, too, where versions are compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

import tdd
from tdd.records import Null, Texts, pytree

__all__ = [
    "CLEAN",
    "DETECTORS",
    "JOINT",
    "KNOCKOFFS",
    "SEPARATOR",
    "Divided",
    "How",
    "clean",
    "data_set",
    "joint",
    "knockoffs",
    "order",
]

SEPARATOR = "\n"
"""Between the examples of an ordered set, where it is trained on and where it is tested."""

DETECTORS = ("loss", "zlib", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
"""The scores that TD4Eval and the test of a data set combine."""

KNOCKOFFS = {"ktd, all knockoffs": "ktd/ktd", "multi": "ktd/multi", "conformal": "ktd/conformal"}
CLEAN = {"pooled_rank": "td4eval/pooled_rank", "cauchy": "td4eval/cauchy"}
JOINT = {
    "union": "union",
    "intersection": "intersection",
    "jmcs, by": "jmcs/by",
    "jmcs, bh": "jmcs/bh",
    "jmcs, storey": "jmcs/storey",
    "jecs": "jecs",
}
"""Name in the tables -> method of `tdd.study`. Union and intersection are of one Storey-BH a model."""


class How(NamedTuple):
    """How often it is decided, and at which levels.

    Attributes:
      alphas: levels.
      divisions: random divisions.
      seed: random seed of the divisions.
    """

    alphas: Sequence[float]
    divisions: int
    seed: int


@pytree("num_calibration", "null", "versions")
class Divided:
    """Items for which the null holds, divided at random: some calibrate, the others are candidates.

    Attributes:
      nulls: [C, N] scores of the items that are divided, a row a detector, model or version.
      others: [C, M] scores of further candidates, none or more.
      target: [M] bool, True where it is right to select one of them.
      num_calibration: n, items that calibrate.
      null: the kind of items that calibrate.
      versions: whether the rows are versions of an item, the published one first: those of the divided items are put in
        random order, each item's by itself.
    """

    nulls: Any
    others: Any
    target: Any
    num_calibration: int
    null: Null = "nonmember"
    versions: bool = False

    def draw(self, key: jax.Array) -> tdd.study.Sample:
        """One division."""
        nulls, others = (jnp.asarray(part, jnp.result_type(float)) for part in (self.nulls, self.others))
        mixed = jax.random.permutation(key, nulls, axis=1)
        if self.versions:
            mixed = jax.random.permutation(jax.random.fold_in(key, 1), mixed, axis=0, independent=True)
        calibration, rest = jnp.split(mixed, [self.num_calibration], axis=1)
        tested = jnp.concatenate([rest, others], axis=1)
        target = jnp.concatenate([jnp.zeros(rest.shape[1], bool), jnp.asarray(self.target)])
        if not self.versions:
            return tdd.study.Sample(calibration, tested, target)
        extra = {"knockoffs": tested[1:].T, "calibration_knockoffs": calibration[1:].T}
        return tdd.study.Sample(calibration[0], tested[0], target, extra=extra)


def knockoffs(losses: np.ndarray, member: np.ndarray, calibration: int, how: How) -> list[dict[str, Any]]:
    """What KTD finds in [1 + k, N] losses of published versions and of k paraphrases; `member` [N]."""

    def design(rows: np.ndarray) -> Divided:
        return _divided(rows, ~member, member, calibration, "nonmember", versions=True)

    return [
        *_rates("ktd", design(losses[:2]), {"ktd, 1 knockoff": "ktd/ktd"}, how),
        *_rates("ktd", design(losses), KNOCKOFFS, how),
    ]


def clean(columns: Mapping[str, np.ndarray], member: np.ndarray, calibration: int, how: How) -> list[dict[str, Any]]:
    """What TD4Eval finds to be clean by `DETECTORS`, calibrated on members."""
    detectors = np.stack([columns[name] for name in DETECTORS])
    return _rates("td4eval", _divided(detectors, member, ~member, calibration, "member"), CLEAN, how)


def joint(losses: np.ndarray, known: np.ndarray, pure: np.ndarray, calibration: int, how: How) -> list[dict[str, Any]]:
    """What is found to be clean for all models.

    Args:
      losses: [K, N], a row a model.
      known: [N] bool, texts that every model was trained on; some calibrate, the others are candidates.
      pure: [N] bool, texts that no model was trained on.
      calibration: how many calibrate.
      how: levels and divisions.
    """
    return _rates("joint", _divided(losses, known, pure, calibration, "member"), JOINT, how)


def data_set(columns: Mapping[str, np.ndarray], member: np.ndarray, seed: int) -> dict[str, float]:
    """p-values of `tdd.dataset_inference` on `DETECTORS`: members, and half of the non-members, beside the others."""
    detectors = np.stack([columns[name] for name in DETECTORS])
    inside, outside = detectors[:, member], detectors[:, ~member]
    half, key = outside.shape[1] // 2, jax.random.key(seed)
    compared = {"members": (inside, outside), "non-members": (outside[:, :half], outside[:, half:])}
    return {name: float(tdd.dataset_inference(*pair, key=key).p_value) for name, pair in compared.items()}


def order(model: Any, ordered: Mapping[int, Texts], shards: int, shuffles: int, seed: int) -> list[dict[str, Any]]:
    """p-values of `tdd.run_exchange` on sets of examples in canonical order, by number of copies."""
    run = tdd.run_exchange(
        model,
        {str(copies): [*examples.texts] for copies, examples in ordered.items()},
        num_shards=shards,
        num_shuffles=shuffles,
        separator=SEPARATOR,
        seed=seed,
        progress=False,
    )
    return [{"copies": copies, "p": float(p)} for copies, p in run.p_values.items()]


def _divided(
    rows: np.ndarray, nulls: np.ndarray, targets: np.ndarray, calibration: int, null: Null, versions: bool = False
) -> Divided:
    """Divide the items that `nulls` marks; all others are candidates, and it is right to select the `targets`."""
    return Divided(rows[:, nulls], rows[:, ~nulls], targets[~nulls], int(calibration), null, versions)


def _rates(family: str, design: Divided, methods: Mapping[str, str], how: How) -> list[dict[str, Any]]:
    """FDR of each method at each level, its standard error over the divisions, and power where there are targets."""
    result = tdd.study.run(
        design,
        [tdd.study.method(rule, label=label) for label, rule in methods.items()],
        alphas=how.alphas,
        repetitions=how.divisions,
        seed=how.seed,
    )
    kept = ("alpha", "fdr", "fdr_se", *(("power",) if design.target.any() else ()))
    levels: dict[str, list[dict[str, Any]]] = {name: [] for name in methods}
    for row in result.rows():
        levels[row["method"]].append({name: float(row[name]) for name in kept})
    return [{"procedure": family, "rule": name, "levels": found} for name, found in levels.items()]
