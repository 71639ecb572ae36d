"""A probe of a benchmark that says, once it has raised an alarm, what is known of the leak."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from tdd.kernels.trajectories import spending
from tdd.probe.leak import Leak, rises, start_of_rise
from tdd.probe.probe import Probe
from tdd.procedures.bounds import dkw_fdp_bounds, fdp_bounds

__all__ = ["Contamination"]

_MOST_DRAWN = 30_000_000
"""Items times draws of the bounds by simulation, four bytes each; beyond it, where a look's share of the level is tiny,
bounds in closed form."""


class Contamination(Probe):
    """A `Probe` whose suspects are a benchmark: call `watch(step, params)` in the loop, read `watch.leak()`.

    Arguments, attributes and guarantees are those of `Probe`.
    """

    def leak(self) -> Leak | None:
        """What is known of the leak so far; None while there is no alarm.

        Guarantee: `Leak.num_false` and `Leak.num_leaked` hold at all looks together with probability 1 - alpha,
        finite-sample, provided that items that are not leaked are exchangeable with the references: the look t may
        fail with probability alpha (spent_t - spent_(t-1)), and one may read it whenever one likes.

        Cost: bounds by simulation, about a second for 1,000 items and references and 50 looks; in closed form, and
        wider, where a look's share of the level would take too many draws.
        """
        if self.first_alarm is None:
            return None
        within = len(self.history) if self.num_looks is None else min(len(self.history), self.num_looks)
        record = self.history[within - 1]
        alarmed = next(look for look, one in enumerate(self.history, 1) if one.alarm)
        start = start_of_rise(self._rises()[:alarmed])
        steps = [one.step for one in self.history]
        selected = np.asarray(record.flagged)
        num_false, num_leaked = self._bounds(within, selected)
        return Leak(
            alarm=self.first_alarm,
            began=(steps[start - 1] if start else None, steps[start]),
            step=record.step,
            items=tuple(np.asarray(self.roles["suspect"].ids)[selected].tolist()),
            num_false=num_false,
            num_leaked=num_leaked,
            share=num_leaked / self.sizes[0],
            share_estimate=max(num_leaked / self.sizes[0], _estimate(np.asarray(record.result.p_values))),
            confidence=1 - self.alpha,
        )

    def _rises(self) -> np.ndarray:
        """[L] by how much the benchmark fell at each look, in standard deviations."""
        return rises(np.stack([self._scores(record.result) for record in self.history]), self.sizes[0])

    def _scores(self, result: Any) -> np.ndarray:
        return np.concatenate([result.suspect_scores, result.reference_scores])

    def _bounds(self, look: int, selected: np.ndarray) -> tuple[int, int]:
        """At most how many of the selected items are not leaked, and at least how many of all items are; at the look's
        share of the level."""
        result = self.history[look - 1].result
        suspects, references = (
            np.where(np.isfinite(scores), scores, np.nan) for scores in (result.suspect_scores, result.reference_scores)
        )
        num_references = int(np.sum(~np.isnan(references)))
        if np.isnan(suspects).all() or not num_references:
            return int(selected.sum()), 0
        delta = self.alpha * float(spending(look, self.num_looks) - spending(look - 1, self.num_looks))
        num_draws = max(999, math.ceil(4 / delta))
        if num_draws * (len(suspects) + len(references)) <= _MOST_DRAWN:
            key = jax.random.key(self.options["seed"])
            drawn = fdp_bounds(references, suspects, null="nonmember", delta=delta, num_draws=num_draws, key=key)
            return int(drawn.of(selected).false_bound), int(drawn.min_members)
        p_values = np.asarray(result.p_values)
        closed = dkw_fdp_bounds(p_values, num_calibration=num_references, delta=delta)
        false = np.asarray(closed.false_bound)
        real = ~np.isnan(p_values)
        chosen = real & selected
        at_most = int(false[chosen & (p_values == p_values[chosen].max())][0]) if chosen.any() else 0
        return at_most, int(np.max((np.asarray(closed.num_selected) - false)[real], initial=0))


def _estimate(p_values: np.ndarray) -> float:
    """Share of members by the p-values above one half, which hardly any member has; 0 where there are none."""
    real = p_values[~np.isnan(p_values)]
    return max(0.0, 1 - (1 + np.sum(real >= 0.5)) / (real.size / 2)) if real.size else 0.0
