"""Evidence over many looks that the suspects, as a set and one by one, are in the training data.

The set. Null hypothesis: given everything the training did, which of the m + n items are suspects and which are
references is a uniformly random labelling. The scores of all items at all looks are compared with those under random
relabellings that are drawn once, so looking often costs no error (`tdd.kernels.set_statistics`,
`tdd.kernels.trajectories`).

The items. E_j(t) = sum over the looks s <= t of w_s e_js, e_js the conformal e-value of suspect j at look s. The
weights w_s >= 0 are the fractions of the level that the looks spend; a planned last look has a quarter of the others'
besides, since with few references it alone may show anything. FDR <= alpha for e-BH on E(tau) at any look tau, however
chosen: E_j never falls, so E_j(tau) <= E_j(end), and e-BH has FDR <= (alpha/m) E sum_j E_j(tau) over the
suspects j for which the null holds; at each look their e-values sum to at most m in expectation, and the w_s sum to at
most 1. What a look flags is flagged by every later one.
"""

from __future__ import annotations

import dataclasses
import functools
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import lax

from tdd.kernels import evalues, trajectories
from tdd.kernels.set_statistics import Statistic, set_statistics
from tdd.kernels.trajectories import Evidence
from tdd.probe.result import ProbeResult
from tdd.procedures import anytime
from tdd.records import Guarantee

__all__ = ["ITEMS", "Evidence", "ProbeState", "SetEvidence"]

ITEMS = Guarantee(
    "FDR <= alpha among the flagged suspects, at whatever look one stops",
    (
        "at every look, given the scores of the other suspects, references and suspects that were not trained on are "
        "exchangeable: items of the same kind, prepared and scored in the same way",
        "the score, the steps of the looks and their number were fixed before any score was seen",
        "the training does not react to the evidence, except by stopping",
    ),
    "finite-sample",
    "e-BH on conformal e-values that add up over the looks (tdd.probe.evidence); Wang & Ramdas (2022); Bashari et al. "
    "(2023)",
)

CANARIES = Guarantee(
    "P(p <= t) <= t for every t and each canary that was not trained on, at a look fixed beforehand",
    (
        "canaries and their references were made in the same way, and which of them were planted was drawn at random",
        "the score and every other option were chosen before any result was seen",
    ),
    "finite-sample",
    "rank among exchangeable scores; Carlini et al. (2019), section 4, for the exposure",
)
GUARANTEE_ROWS = [
    ("tdd.Probe", "alarm", anytime.GUARANTEE),
    ("tdd.Probe", "flagged suspects", ITEMS),
    ("tdd.Probe", "canary p-values", CANARIES),
    ("tdd.probe.contamination", "alarm, reference=...", anytime.GUARANTEE),
    ("tdd.probe.over_checkpoints", "alarm", anytime.GUARANTEE),
    ("tdd.probe.over_checkpoints", "flagged suspects", ITEMS),
]


class ProbeState(NamedTuple):
    """State that a probe carries from look to look; a pytree of fixed shape.

    Attributes:
      rule: state of the sequential rule.
      baseline: [m + n] float32, the first finite score of each item; NaN where there is none yet.
      look: [] int32, number of looks so far.
      item_e_values: [m] e-values of the suspects, over all looks so far; they never fall.
    """

    rule: Any
    baseline: jax.Array
    look: jax.Array
    item_e_values: jax.Array


@dataclasses.dataclass(frozen=True)
class SetEvidence:
    """The rule that turns looks into evidence."""

    num_suspects: int
    num_items: int
    num_draws: int
    alpha: float
    horizon: int | None  # number of looks over which the level is spent
    from_first: bool  # whether later looks test what the scores of the first look do not explain
    statistic: Statistic

    def init(self) -> ProbeState:
        """The state before the first look."""
        rule = trajectories.start(self.num_draws, alpha=self.alpha)
        unknown = jnp.full(self.num_items, jnp.nan, jnp.float32)
        return ProbeState(rule, unknown, jnp.int32(0), jnp.zeros(self.num_suspects, rule.spent.dtype))

    def observe(self, labels: jax.Array, state: ProbeState, result: ProbeResult) -> tuple[ProbeState, Evidence]:
        """Take in one look.

        Items without a finite score, now or so far, are left out under every labelling alike. Looks beyond the horizon
        spend no more of the level: what was found stays valid, and hardly anything is added.
        """
        scores = jnp.concatenate([result.suspect_scores, result.reference_scores])
        statistics = functools.partial(set_statistics, scores, labels, statistic=self.statistic)
        if self.from_first:
            labelled = lax.cond(state.look == 0, statistics, lambda: statistics(baseline=state.baseline))
        else:
            labelled = statistics()
        look = state.look + 1
        rule, evidence = trajectories.advance(state.rule, labelled, trajectories.spending(look, self.horizon))
        known = jnp.isfinite(state.baseline) | ~jnp.isfinite(scores)
        weight = self._total_weight(look, rule.spent) - self._total_weight(state.look, state.rule.spent)
        items = state.item_e_values + weight * self.item_e_values(result)
        return ProbeState(rule, jnp.where(known, state.baseline, scores), look, items), evidence

    def _total_weight(self, look: jax.Array, spent: jax.Array) -> jax.Array:
        """[] sum of the weights w_s of the looks up to this one."""
        return spent if self.horizon is None else jnp.where(look >= self.horizon, 1, 0.75 * spent)

    def item_e_values(self, result: ProbeResult) -> jax.Array:
        """[m] conformal e-values of the suspects at one look; 0 without a finite score.

        Their threshold is where BH cuts at a fifth of alpha, so that evidence in a fifth of the looks can suffice.
        """
        reference, suspect = result.reference_scores, result.suspect_scores
        masks = {"calibration_mask": jnp.isfinite(reference), "mask": jnp.isfinite(suspect)}
        e_values = evalues.conformal_e_values(reference, suspect, self.alpha / 5, null="nonmember", **masks)
        return jnp.where(masks["calibration_mask"].any() & ~jnp.isnan(e_values), e_values, 0)

    def flagged(self, state: ProbeState) -> evalues.EStepUp:
        """e-BH over the suspects at alpha: [m] decisions that hold at whatever look one stops."""
        return evalues.e_bh(state.item_e_values, self.alpha)
