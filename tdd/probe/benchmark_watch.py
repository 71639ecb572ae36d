"""A probe of a benchmark that says, once it has raised an alarm, what is known of the leak."""

from __future__ import annotations

import math
from typing import Any

import jax
import numpy as np

from tdd.kernels.trajectories import spending
from tdd.methods.bounds import FdpBounds, fdp_bounds
from tdd.probe.leak import Leak, rises, start_of_rise
from tdd.probe.probe import Probe

__all__ = ["Contamination"]


class Contamination(Probe):
    """A `Probe` whose suspects are a benchmark: call `watch(step, params)` in the loop, read `watch.leak()`.

    Arguments, attributes and guarantees are those of `Probe`.
    """

    def leak(self) -> Leak | None:
        """What is known of the leak so far; None while there is no alarm.

        Guarantee: `Leak.num_false` and `Leak.num_leaked` hold at all looks together with probability 1 - alpha,
        finite-sample, provided that items that are not leaked are exchangeable with the references: the look t may
        fail with probability alpha (spent_t - spent_(t-1)), and one may read it whenever one likes.

        Cost: bounds by simulation, about a second for 1,000 items and references and 50 looks.
        """
        if self.first_alarm is None:
            return None
        within = len(self.history) if self.num_looks is None else min(len(self.history), self.num_looks)
        record = self.history[within - 1]
        alarmed = next(look for look, one in enumerate(self.history, 1) if one.alarm)
        start = start_of_rise(self._rises()[:alarmed])
        steps = [one.step for one in self.history]
        selected = np.asarray(record.result.selected)
        bounds = self._bounds(within)
        cut = None if bounds is None else bounds.of(selected)
        num_leaked = 0 if bounds is None else int(bounds.min_members)
        return Leak(
            alarm=self.first_alarm,
            began=(steps[start - 1] if start else None, steps[start]),
            step=record.step,
            items=tuple(np.asarray(self.roles["suspect"].ids)[selected].tolist()),
            num_false=int(selected.sum()) if cut is None else int(cut.false_bound),
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

    def _bounds(self, look: int) -> FdpBounds | None:
        """Simultaneous bounds at a look, at its share of the level; None where there is nothing to compare."""
        result = self.history[look - 1].result
        suspects, references = (
            np.where(np.isfinite(scores), scores, np.nan) for scores in (result.suspect_scores, result.reference_scores)
        )
        if np.isnan(suspects).all() or np.isnan(references).all():
            return None
        delta = self.alpha * float(spending(look, self.num_looks) - spending(look - 1, self.num_looks))
        return fdp_bounds(
            references,
            suspects,
            null="nonmember",
            delta=delta,
            num_draws=max(999, math.ceil(4 / delta)),
            key=jax.random.key(self.options["seed"]),
        )


def _estimate(p_values: np.ndarray) -> float:
    """Share of members by the p-values above one half, which hardly any member has; 0 where there are none."""
    real = p_values[~np.isnan(p_values)]
    return max(0.0, 1 - (1 + np.sum(real >= 0.5)) / (real.size / 2)) if real.size else 0.0
