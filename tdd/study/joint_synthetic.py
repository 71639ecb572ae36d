"""JMCS and JECS on new scores in each repetition, drawn as ranks."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels import joint_fresh, joint_resample
from tdd.procedures import jecs as joint
from tdd.study.designs import JointLabels
from tdd.study.fingerprint import described
from tdd.study.joint_pool import METHODS, RankCounter, run_joint
from tdd.study.results import StudyResult

__all__ = ["simulate_joint"]


def simulate_joint(
    design: JointLabels | None = None,
    *,
    alphas: Any,
    methods: Any = METHODS,
    eta: float = 0.5,
    grid: Sequence[Any] = joint.GRID,
    repetitions: int,
    seed: int = 0,
    devices: Sequence[Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | str | None = None,
) -> StudyResult:
    """Measure the contamination rate and the power of joint selections on JECS's synthetic set-up.

    The result has the law of `tdd.study.run(design, methods, ...)` and takes a fraction of its time: the calibration
    items are drawn in order, as normalised sums of exponentials, and each candidate's largest rank, together with
    whether it is contaminated, directly from its law given the calibration items (`tdd.kernels.joint_fresh` has the
    argument). Decisions are exactly those of `tdd.jecs` and `tdd.jmcs` on such ranks.

    Args:
      design: sizes, signal and fraction of members; another signal or fraction costs no compilation.
      alphas: levels in (0, 1), taken as exact fractions.
      methods: one or several of "jecs", "jmcs/bh", "jmcs/storey", "jmcs/by".
      eta: option of "jmcs/storey", as in `tdd.jmcs`.
      grid: candidates for tau of "jecs", as in `tdd.jecs`.
      repetitions: number of repetitions.
      seed: random seed; the numbers depend neither on the devices nor on the shards.
      devices: devices that share the repetitions (default: all).
      folder: as in `resample_joint`.
      shard: as in `tdd.study.run`.

    Returns:
      `StudyResult` with axes [method, alpha]: `fdr` is the global contamination rate, `power` the fraction of the
      jointly pure candidates that is selected.

    Raises:
      InputError: options out of range; a folder of another study; a shard that does not exist, or without a folder.

    Cost: K (n + 1) + m random numbers a repetition, a normal quantile for each calibration score, a look-up by halving
    for each candidate.

    >>> from tdd.study import JointLabels
    >>> small = JointLabels(num_models=2, num_calibration=99, num_tests=50, signal=3.0)
    >>> bool(simulate_joint(small, alphas=0.2, methods="jmcs/bh", repetitions=640).fdr[0, 0] < 0.2)
    True

    References: JECS, appendix E.1; Renyi (1953) for the order statistics.
    """
    design = JointLabels() if design is None else design
    sizes = {
        "num_models": design.num_models,
        "num_calibration": design.num_calibration,
        "num_tests": design.num_tests,
    }
    num_numbers = (design.num_calibration + 1) * (2 * design.num_models + 12) + design.num_tests
    return run_joint(
        RankCounter(_count_ranks, tuple(sizes.items()), (64, 2**12), num_numbers),
        (jnp.float32(design.signal), jnp.float32(design.member_share)),
        {"engine": "tdd.study.simulate_joint", "design": described(design)},
        alphas=alphas,
        methods=methods,
        eta=eta,
        grid=grid,
        repetitions=repetitions,
        seed=seed,
        devices=devices,
        folder=folder,
        shard=shard,
    )


def _count_ranks(law: tuple[jax.Array, jax.Array], words: jax.Array, **sizes: int) -> joint_resample.RankCounts:
    return joint_fresh.count_ranks(words, *law, **sizes)
