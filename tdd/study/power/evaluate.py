"""What a planned audit may expect, for any sizes: one compiled program, and every answer kept."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import jax
import numpy as np

from tdd.kernels import resample_pool
from tdd.study.engine import STEP, exact_levels, prepared, shape
from tdd.study.power.laws import Binormal, ScorePool
from tdd.study.power.rules import Rule
from tdd.study.power.sums import Outcome, design_sums, outcome, pool_sums
from tdd.validate.errors import InputError

__all__ = ["Cell", "Evaluator"]

_FAST, _FEWEST, _MOST = 10_000, 256, 4_096
_NUMBERS = 4e6  # scores that the repetitions of one audit may draw, where sorting dominates
_POOL_LANES = 1024
_RANGE = 2**15  # repetitions a call


@dataclasses.dataclass(frozen=True)
class Cell:
    """One planned audit.

    Attributes:
      n: calibration items.
      m: candidates.
      num_targets: of them, right to select.
      outcome: by level.
      extrapolated: not from draws without replacement.
      drawn: how, in words.
    """

    n: int
    m: int
    num_targets: int
    outcome: Outcome
    extrapolated: bool
    drawn: str


class Evaluator:
    """`evaluator(n, m, num_targets) -> Cell`, with the same random numbers in every call.

    Args:
      law: of the scores.
      rule: that decides.
      levels: A of them.
      most: the largest n and m that will be asked for.
      repetitions: of each audit; None: as many as take well under a second.
      seed: of everything random.
      draw: "auto", "without" (replacement) or "smoothed".
      devices: to share the repetitions out over.
      advance: told of every audit that is computed.
    """

    def __init__(
        self,
        law: Binormal | ScorePool,
        rule: Rule,
        levels: tuple[float, ...],
        *,
        most: tuple[int, int],
        repetitions: int | None,
        seed: int,
        draw: str,
        devices: Sequence[Any],
        advance: Callable[[int], None] = lambda count: None,
    ):
        self.law, self.rule, self.levels, self.most = law, rule, levels, most
        self.repetitions, self.draw, self.devices, self.advance = repetitions, draw, tuple(devices), advance
        self.key = jax.random.key(seed, impl="threefry2x32")
        self.exact = exact_levels(levels)
        self.cells: dict[tuple[int, int, int], Cell] = {}
        self._programs: dict[bool, Callable[[int, int, int], tuple[Any, Any, int]]] = {}

    def __call__(self, n: int, m: int, num_targets: int) -> Cell:
        """The audit of these sizes."""
        place = (n, m, num_targets)
        if place not in self.cells:
            exact = self._without_replacement(*place)
            if exact not in self._programs:
                self._programs[exact] = self._pool() if exact and self.rule.proportion else self._design(exact)
            sums, operands, count = self._programs[exact](*place)
            parts = [sums(operands, first, min(first + _RANGE, count)) for first in range(0, count, _RANGE)]
            found = outcome(parts, len(self.levels), m)
            extrapolated = isinstance(self.law, ScorePool) and not exact
            self.cells[place] = Cell(n, m, num_targets, found, extrapolated, self.law.drawn(exact))
            self.advance(1)
        return self.cells[place]

    def _without_replacement(self, n: int, m: int, num_targets: int) -> bool:
        """Whether this audit is drawn so."""
        if isinstance(self.law, Binormal) or self.draw == "smoothed":
            return False
        if self.draw == "without":
            own = 0 if self.rule.kind == "knockoffs" else n
            words = ("non-members", "members") if self.rule.null == "nonmember" else ("members", "non-members")
            pool = self.law.nulls.shape[1], self.law.targets.shape[1]
            _check_pool_suffices(own, m - num_targets, num_targets, *pool, words)
        return self.law.suffices(n, m, num_targets)

    def _pool(self) -> Callable[[int, int, int], tuple[Any, Any, int]]:
        """Splits of a prepared pool: sizes are operands."""
        assert isinstance(self.law, ScorePool)
        pool = self.law.prepared()
        tails = resample_pool.tails(self.law.nulls.shape[1], 0.05)
        size = self.law.nulls.shape[1] + self.law.targets.shape[1]
        lanes = _POOL_LANES
        while lanes > 16 and 6 * size * lanes > 10 * 2**20:
            lanes //= 2
        sums = pool_sums(self.rule.proportion, len(self.levels), lanes, self.devices)
        words = np.asarray(jax.random.key_data(self.key))
        count = self.repetitions or int(np.clip(1e8 // size, _FEWEST, _FAST))

        def program(n: int, m: int, num_targets: int) -> tuple[Any, Any, int]:
            split = resample_pool.fixed_split(n, m, num_targets)
            return sums, (pool, split, self.exact, tails, words), count

        return program

    def _design(self, exact: bool) -> Callable[[int, int, int], tuple[Any, Any, int]]:
        """A design with places for the largest audit."""
        if isinstance(self.law, Binormal):
            design: Any = self.law.design(self.most, self.rule.null)
        else:
            design = self.law.design(self.most, self.rule.null, smooth=not exact)
        design = prepared(design, [{}])[0]
        _, lanes = shape(design, self.key)
        sums = design_sums(self.rule.select, self.levels, lanes, self.devices)
        rows = len(self.law.nulls) if isinstance(self.law, ScorePool) else 1
        count = self.repetitions or int(np.clip(_NUMBERS // (rows * sum(self.most)), _FEWEST, _MOST))
        count = count if self.repetitions else -(-count // STEP) * STEP if count > STEP else count

        def program(n: int, m: int, num_targets: int) -> tuple[Any, Any, int]:
            sizes = [np.int32(value) for value in (n, m, num_targets)]
            placed = dataclasses.replace(design, num_calibration=sizes[0], num_tests=sizes[1], num_targets=sizes[2])
            return sums, (placed, self.exact, self.key), count

        return program


def _check_pool_suffices(
    n: int, num_null: int, num_targets: int, nulls: int, targets: int, words: Iterable[str]
) -> None:
    """A pool that can give what is drawn without replacement."""
    null_word, target_word = words
    if n + num_null > nulls or num_targets > targets:
        raise InputError(
            f"without replacement the pool cannot give {n + num_null} {null_word} ({n} to calibrate, {num_null} among "
            f"the candidates) and {num_targets} {target_word}: it has {nulls} and {targets}. Ask for fewer, or let "
            'such draws be extrapolated, draw="auto"'
        )
