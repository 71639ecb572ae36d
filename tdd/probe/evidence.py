"""Evidence over many looks that the suspects, as a set, are in the training data.

Null hypothesis: given everything the training did, which of the m + n items are suspects and which are references is
a uniformly random labelling. The scores of all items at all looks are compared with those under random relabellings
that are drawn once, so looking often costs no error (`tdd.kernels.set_statistics`, `tdd.kernels.trajectories`).
"""

from __future__ import annotations

import dataclasses
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import trajectories
from tdd.kernels.set_statistics import Statistic, set_statistics
from tdd.kernels.trajectories import Evidence
from tdd.probe.result import ProbeResult

__all__ = ["Evidence", "ProbeState", "SetEvidence"]


class ProbeState(NamedTuple):
    """What a probe carries from look to look; a pytree of fixed shape.

    Attributes:
      rule: state of the sequential rule.
      baseline: [m + n] float32, the first finite score of each item; NaN where there is none yet.
      look: [] int32, looks so far.
    """

    rule: Any
    baseline: jax.Array
    look: jax.Array


@dataclasses.dataclass(frozen=True)
class SetEvidence:
    """How evidence is gathered.

    Attributes:
      num_items: m + n.
      num_draws: relabellings beside the true one.
      alpha: level of the alarm.
      horizon: looks over which the level is spent, or None where that is not known.
      from_first: whether what the first look's scores explain is taken out at later ones.
      statistic: how a labelling's scores become one number.
    """

    num_items: int
    num_draws: int
    alpha: float
    horizon: int | None
    from_first: bool
    statistic: Statistic

    def init(self) -> ProbeState:
        """The state before the first look."""
        rule = trajectories.start(self.num_draws, alpha=self.alpha)
        return ProbeState(rule, jnp.full(self.num_items, jnp.nan, jnp.float32), jnp.int32(0))

    def observe(self, labels: jax.Array, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look.

        Items without a finite score, now or at the first look, are left out under every labelling alike. Looks beyond
        the horizon spend no more of the level: what was found stays valid, and hardly anything is added.
        """
        scores = jnp.concatenate([result.suspect_scores, result.reference_scores])

        def statistics(baseline: jax.Array | None) -> jax.Array:
            return set_statistics(scores, labels, baseline=baseline, statistic=self.statistic)

        if self.from_first:
            found = lax.cond(state.look == 0, lambda: statistics(None), lambda: statistics(state.baseline))
        else:
            found = statistics(None)
        look = state.look + 1
        spent = trajectories.spending(look, self.horizon)
        rule, evidence = trajectories.advance(state.rule, found, spent)
        known = jnp.isfinite(state.baseline) | ~jnp.isfinite(scores)
        return ProbeState(rule, jnp.where(known, state.baseline, scores), look), evidence
