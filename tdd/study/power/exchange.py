"""`tdd.study.expected_exchange_power`: numbers of shards and shuffles with which a test of order has power."""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tdd.kernels.randomization import is_enumerable
from tdd.runs.display import progress_bar
from tdd.runs.folder import versions
from tdd.runs.portable import command_of, typed_words
from tdd.study import checks
from tdd.study.engine import prepared
from tdd.study.power import ExchangePlan
from tdd.study.power.shards import TESTS, ShardEffect, ShardLogProbs, log10_floor, num_draws, shard_sums, survival_table
from tdd.study.power.simulate import Effect, binomial_error, smallest_effect
from tdd.validate import InputError
from tdd.validate.arrays import check_choice, key_of_seed
from tdd.validate.settings import on_own_devices

_DRAWS = 99_999  # relabellings of the test itself


@on_own_devices()
def expected_exchange_power(
    source: ShardLogProbs | ShardEffect,
    *,
    shifted_share: float = 1.0,
    num_shards: Any = (10, 20, 50),
    num_shuffles: Any = (5, 20, 50),
    test: Any = "combined",
    alpha: Any = 0.05,
    power: float = 0.8,
    search: bool = True,
    repetitions: int = 1_024,
    seed: int = 0,
    devices: Sequence[Any] | None = None,
    progress: bool = False,
) -> ExchangePlan:
    """Power of tests of canonical order by their numbers of shards and shuffles, and their costs.

    Shards are those of a finished test, drawn anew, or follow a law with a given effect. Whatever their number, they
    have the length of the shards of the source: fewer shards are fewer examples, not longer shards.

    **Effect.** The number of standard deviations of a shuffle by which the canonical order of a shard is more likely
    than its shuffles, in `shifted_share` of the shards (the others show nothing). The smallest detectable one is that
    at which the power is at least `power`, by interpolation between effects a factor of 1.2 or less apart, with common
    random numbers; for shards of a finished test the shuffles then keep their own law.

    **Draws** from a finished test: shards with replacement, the shuffles of each without replacement where it has
    enough (one more for the smallest effect), else with replacement (`extrapolated`). The power is that of a new data
    set of the same kind.

    Args:
      source: `ShardLogProbs`, the shards of a finished test, or `ShardEffect`, a law with an effect.
      shifted_share: Fraction of the shards that show the effect; of a finished test, the one that is searched for.
      num_shards: r, one or several.
      num_shuffles: k, one or several.
      test: A test of `tdd.exchangeability`, or "e_process" (`tdd.exchangeability_sequence`: stops as soon as p <=
        alpha, with at most k shuffles); one or several.
      alpha: Level, one or several.
      power: Wanted power.
      search: False leaves the smallest detectable effect out.
      repetitions: Data sets drawn for each row.
      seed: Random seed.
      devices: Devices that share the repetitions (default: all).
      progress: Show a bar on standard error, if that is a terminal.

    Returns:
      `ExchangePlan`; model calls are r (k + 1), for the e-process r (1 + the shuffles that it reads on average).

    Raises:
      InputError: Another source, options out of range.

    Cost: One compilation for each number of shuffles; that of the tests, "exact" with 50/alpha relabellings or 1,000.

    >>> source = ShardEffect(effect=1.0)
    >>> plan = expected_exchange_power(source, num_shards=20, num_shuffles=5, test="rank_sum", search=False)
    >>> plan.rows[0]["calls"], plan.rows[0]["power"] > 0.9
    (120, True)

    References: the sharded exchangeability test, section 3.2.
    """
    started = time.perf_counter()
    if not isinstance(source, (ShardLogProbs, ShardEffect)):
        raise InputError(
            "source must be tdd.study.ShardLogProbs(canonical, shuffled) or tdd.study.ShardEffect(effect), got "
            f"{type(source).__name__}"
        )
    if not 0 < checks.as_float(shifted_share) <= 1:
        raise InputError(
            f"shifted_share (--shifted-fraction) must lie above 0 and at most at 1, got {shifted_share!r}; 0.1 stands "
            "for 10%"
        )
    checks.check_run(repetitions, seed, None)
    wanted = checks.as_probability("power", power)
    counts, widths = checks.as_counts("num_shards", num_shards), checks.as_counts("num_shuffles", num_shuffles)
    simulation = _Simulation(
        source,
        float(shifted_share),
        _as_tests(test),
        checks.as_levels(alpha),
        max(counts),
        repetitions,
        key_of_seed(seed),
        checks.as_devices(devices),
    )
    rows: list[dict[str, Any]] = []
    with progress_bar("power", len(counts) * len(widths), enabled=progress, unit="settings") as advance:
        for k in widths:
            for r in counts:
                rows += _rows(simulation, r, k, wanted, search)
                advance(1)
    rows.sort(key=lambda row: (row["calls"], row["num_shards"], row["test"], row["alpha"]))
    cheapest = [
        {
            "test": name,
            "alpha": level,
            "row": next((row for row in rows if (row["test"], row["alpha"]) == (name, level) and row["reaches"]), None),
        }
        for name in simulation.tests
        for level in simulation.levels
    ]
    law = source if isinstance(source, ShardEffect) else None
    about = {
        "source": source.words(simulation.shifted_share),
        "measured_effect": source.measured_effect(),
        "effect": None if law is None else float(law.effect),
        "shifted_share": simulation.shifted_share,
        "law": None if law is None else law.law,
        "tests": list(simulation.tests),
        "alphas": list(simulation.levels),
        "wanted": wanted,
        "shard_tokens": None if source.shard_tokens is None else float(source.shard_tokens),
        "seed": int(seed),
        "command": command_of(typed_words()) or None,
        "versions": versions(),
        "warnings": _warnings(source, rows),
        "seconds": time.perf_counter() - started,
    }
    return ExchangePlan(tuple(rows), tuple(cheapest), about)


@dataclasses.dataclass(frozen=True)
class _Simulation:
    """Data sets drawn from a source, and tested."""

    source: ShardLogProbs | ShardEffect
    shifted_share: float
    tests: tuple[str, ...]
    levels: tuple[float, ...]  # A of them
    most: int  # the largest number of shards; designs have places for so many
    repetitions: int
    key: jax.Array
    devices: tuple[Any, ...]

    def power(self, r: int, k: int, effect: float | None = None) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Power [tests, A], its standard error, and shuffles read [A], for the source's effect or another one."""
        draws = num_draws(self.levels)
        listed = {"combined", "exact"} & {*self.tests} and is_enumerable(r, k, draws)
        most = r if listed else self.most  # all relabellings are listed of a design that has no more shards
        design = self.source.design(most, k, round(self.shifted_share * r) / most, effect)
        numbers = most * max(k + 1, self.source.num_shuffles)
        sums = shard_sums(self.tests, len(self.levels), draws, numbers, self.devices)
        bounds = np.asarray(self.levels, np.float32)
        operands = (prepared(design, [{}])[0], np.int32(r), survival_table(r, k, most), bounds, self.key)
        parts = sums(operands, 0, self.repetitions)
        count, shuffles = (np.asarray(part).astype(np.int64).sum(axis=0) for part in parts)
        return count / self.repetitions, binomial_error(count, self.repetitions), shuffles / self.repetitions


def _rows(simulation: _Simulation, r: int, k: int, wanted: float, search: bool) -> list[dict[str, Any]]:
    """One row for each test and level with r shards and k shuffles."""
    power, power_se, shuffles = simulation.power(r, k)
    shown = round(simulation.shifted_share * r)
    start = 2.0 ** round(math.log2(min(max(3 * math.sqrt(r) / max(shown, 1), 1 / 64), 8.0)))
    at = functools.cache(lambda effect: simulation.power(r, k, effect))
    tokens = simulation.source.shard_tokens
    rows = []
    for i, name in enumerate(simulation.tests):
        for j, level in enumerate(simulation.levels):

            def curve(effect: float, i: int = i, j: int = j) -> tuple[float, float]:
                power, power_se, _ = at(effect)
                return float(power[i, j]), float(power_se[i, j])

            effect = smallest_effect(curve, start, wanted) if search and shown else Effect(None, None, None)
            calls = r * (1 + float(shuffles[j])) if name == "e_process" else r * (k + 1)
            rows.append(
                {
                    "num_shards": r,
                    "num_shuffles": k,
                    "test": name,
                    "alpha": level,
                    "power": float(power[i, j]),
                    "power_se": float(power_se[i, j]),
                    "reaches": bool(power[i, j] >= wanted),
                    **effect._asdict(),
                    "log10_floor": log10_floor(name, r, k, _DRAWS),
                    "calls": calls,
                    "tokens": None if tokens is None else calls * float(tokens),
                    "extrapolated": simulation.source.extrapolated(k),
                    "repetitions": int(simulation.repetitions),
                }
            )
    return rows


def _as_tests(given: Any) -> tuple[str, ...]:
    """Names of tests, each once."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InputError(f"test is empty; choose among {', '.join(TESTS)}")
    for name in names:
        check_choice(name, TESTS, "test")
    return tuple(dict.fromkeys(names))


def _warnings(source: ShardLogProbs | ShardEffect, rows: Sequence[dict[str, Any]]) -> list[str]:
    warnings = []
    if isinstance(source, ShardLogProbs):
        if any(row["extrapolated"] for row in rows):
            warnings.append(
                f"rows with more than the {source.num_shuffles} shuffles that were scored draw them with replacement: "
                "they are marked as extrapolated"
            )
        if (count := len(source.canonical)) < 20:
            warnings.append(f"{count} shards say little on the spread of the effect from shard to shard")
    tests = sorted({row["test"] for row in rows if row["log10_floor"] > math.log10(row["alpha"])})
    if tests:
        warnings.append(
            f"{', '.join(tests)}: some numbers of shards and shuffles allow no p-value as small as the level; their "
            "power is 0 whatever the effect"
        )
    return warnings
