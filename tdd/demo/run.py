"""The demonstration: audit the packaged checkpoint and compare the decisions with the known truth."""

from __future__ import annotations

import dataclasses
import functools
import os
import pathlib
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from tdd.audit.decide import decide
from tdd.audit.run import run_audit
from tdd.demo.data import DemoFiles, demo_files, load_calibration, load_candidates
from tdd.procedures.ptdi import ptdi
from tdd.procedures.values import PTDI
from tdd.records import Evidence
from tdd.runs.folder import Audit, plain
from tdd.validate.arrays import key_of_seed

_LEVELS = (0.05, 0.1, 0.2)
_SCORES = ("loss", "zlib", "lowercase", "min_k", "min_k_plus_plus", "m_entropy", "max_renyi")
_DECIDING = "loss"
_RESPLITS = 1_000


class Demo(NamedTuple):
    """The results of the demonstration."""

    audit: Audit  # the audit at level 0.1 on the loss; its run holds the rows too, as "demonstration"
    # one for each score and level: score, alpha, num_selected, num_false, fdp, power, proportion, and over 1,000 random
    # divisions of the non-members into calibration and candidates the mean FDP, its standard error and the mean power:
    # mean_fdp, se_fdp, mean_power
    rows: tuple[dict[str, Any], ...]


def run_demo(
    *,
    files: DemoFiles | None = None,
    out: str | os.PathLike[str] | None = None,
    **scoring: Any,
) -> Demo:
    """Audit the packaged model on the packaged texts, whose membership is known.

    Each row of its table is a demonstration of one score chosen beforehand; picking the best row afterwards would void
    the guarantee.

    Args:
      files: another demonstration, from `tdd.demo.retrain.retrain`.
      out: run folder of the audit.
      **scoring: passed to `tdd.score`.

    Returns:
      `Demo`.
    """
    files = files or demo_files()
    candidates, calibration = load_candidates(files), load_calibration(files)
    audit = run_audit(
        files.checkpoint, candidates, calibration, alpha=0.1, score=_DECIDING, extra_scores=_SCORES, out=out, **scoring
    )
    rows = []
    member = np.asarray(candidates.labels) == 1
    for name in _SCORES:
        known, values = np.asarray(audit.calibration[name]), np.asarray(audit.items[name])
        repeated = _resplit(
            jnp.asarray(np.concatenate([known, values[~member]])),
            jnp.asarray(values[member]),
            jnp.asarray(_LEVELS),
            num_calibration=len(known),
        )
        for alpha, (fdp, power) in zip(_LEVELS, np.asarray(repeated, np.float64), strict=True):
            decision = decide(Evidence(known, values, names=(name,)), PTDI(), alpha, labels=candidates.labels)
            truth = decision.truth
            assert truth is not None  # the packaged candidates all have labels
            rows.append(
                {
                    "score": name,
                    "alpha": alpha,
                    "num_selected": decision.num_selected,
                    "num_false": truth.num_false,
                    "fdp": truth.fdp,
                    "power": truth.power,
                    "proportion": decision.proportion,
                    "mean_fdp": fdp.mean(),
                    "se_fdp": fdp.std(ddof=1) / np.sqrt(_RESPLITS),
                    "mean_power": power.mean(),
                }
            )
    audit = dataclasses.replace(audit, run=plain({**audit.run, "demonstration": rows}))
    if out is not None:
        audit.save(pathlib.Path(out))
    return Demo(audit, tuple(rows))


@functools.partial(jax.jit, static_argnames="num_calibration")
def _resplit(nonmembers: jax.Array, members: jax.Array, levels: jax.Array, *, num_calibration: int) -> jax.Array:
    """FDP and power of PTDI when chance decides which non-members calibrate: [levels, 2, repetitions].

    The guarantee is about exactly this repetition: which non-members came to calibration is random.
    """
    num_false = nonmembers.shape[0] - num_calibration

    def repetition(alpha: jax.Array, key: jax.Array) -> jax.Array:
        shuffled = jax.random.permutation(key, nonmembers)
        candidates = jnp.concatenate([shuffled[num_calibration:], members])
        selected = ptdi(shuffled[:num_calibration], candidates, alpha=alpha).selected
        false, total = jnp.sum(selected[:num_false]), jnp.sum(selected)
        return jnp.stack([false / jnp.maximum(total, 1), (total - false) / members.shape[0]])

    keys = jax.random.split(key_of_seed(0), _RESPLITS)
    return jax.vmap(lambda alpha: jax.vmap(lambda key: repetition(alpha, key), out_axes=1)(keys))(levels)
