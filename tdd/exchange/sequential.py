"""Sequential runs: the looks of a schedule, and the decision to stop at each."""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np

__all__ = ["SequentialTest", "as_double", "waves"]

_WAVE = 50
"""Most shuffles of a shard that are tokenised at a time."""

_LEAST, _WAVE_TOKENS = 8, 2**25
"""Fewest, and tokens of a wave beyond which it has fewer: they are held in memory."""

_ENOUGH = 10
"""Shuffles of the whole data set that reach the canonical order before a run gives up."""


def as_double(value: Any) -> float:
    """A number in double precision: of a float32 the shortest decimal that it stands for, so that 1/20 is .05 and not
    a little more, and p <= alpha is decided as it is on paper."""
    array = np.asarray(value)
    return float(str(array[()])) if array.dtype == np.float32 else float(array)


def waves(num_shuffles: int, *, looks: tuple[int, ...] = (), num_tokens: int = 0) -> tuple[tuple[int, int], ...]:
    """Shuffles (first, stop) of each wave, counted from 1; with looks, one wave ends at each of them.

    Args:
      num_shuffles: Shuffles of a shard.
      looks: Numbers of shuffles.
      num_tokens: Tokens of one order of all shards; large data sets get smaller waves.

    >>> waves(120)
    ((1, 51), (51, 101), (101, 121))
    >>> waves(10, looks=(1, 2, 5, 10))
    ((1, 2), (2, 3), (3, 6), (6, 11))
    """
    step = min(_WAVE, max(_LEAST, _WAVE_TOKENS // max(1, num_tokens)))
    ends = sorted({*looks, *range(step, num_shuffles, step), num_shuffles})
    return tuple((first + 1, stop + 1) for first, stop in zip([0, *ends[:-1]], ends, strict=True))


@dataclasses.dataclass
class SequentialTest:
    """The sequential test of one data set.

    Attributes:
      rule: "e_process", "spending" or "besag_clifford".
      looks: Numbers of shuffles at which the rule looks, fixed beforehand; the last is the horizon.
      target: Level at which the run stops for evidence.
      test: That "spending" looks at.
      key: PRNG key of its relabellings.
      history: One dict a look: shuffles, calls, p_value, log_e_value.
      stopped: None while it runs, then "evidence", "futility" or "complete".
      result: What the rule said last.
    """

    rule: str
    looks: tuple[int, ...]
    target: float
    test: str
    key: Any
    history: list[dict[str, Any]] = dataclasses.field(default_factory=list)
    stopped: str | None = None
    result: Any = None

    def look(self, canonical: np.ndarray, shuffled: np.ndarray, calls: int) -> None:
        """Decide whether to go on, after a wave: [r] and [r, b] log-probabilities.

        The run stops for evidence once p <= target, for futility once shuffles of the whole data set have reached the
        canonical order ten times and p > target, and at the horizon. A p-value of "e_process" or "spending" is valid
        whichever it was, "besag_clifford" is defined by that number of times.
        """
        from tdd.procedures.sequential import exchangeability_sequence

        b = shuffled.shape[1]
        if b not in self.looks:
            return
        if not (np.isfinite(canonical) & np.isfinite(shuffled).all(axis=1)).any():
            self.stopped = "complete"  # no shard is left to compare
            return
        self.result = exchangeability_sequence(
            canonical,
            shuffled,
            rule=self.rule,  # type: ignore[arg-type]
            looks=self.looks,
            test=self.test,  # type: ignore[arg-type]
            num_exceedances=_ENOUGH,
            key=self.key,
        )
        p, log_e = as_double(self.result.p_value[-1]), float(self.result.log_e_value[-1])
        self.history.append(
            {"shuffles": b, "calls": calls, "p_value": p, "log_e_value": None if np.isnan(log_e) else log_e}
        )
        if p <= self.target and self.rule != "besag_clifford":
            self.stopped = "evidence"
        elif int(self.result.num_exceedances[-1]) >= _ENOUGH:
            self.stopped = "futility"
        elif b == self.looks[-1]:
            self.stopped = "complete"
