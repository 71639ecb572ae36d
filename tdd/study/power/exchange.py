"""`tdd.expected_exchange_power`: shards and shuffles with which a test of canonical order finds what is there."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
import numpy as np

from tdd.runs.folder import versions
from tdd.runs.progress import progress_bar
from tdd.study import checks as study_checks
from tdd.study.designs import SkewedShards
from tdd.study.designs.shards import LAWS
from tdd.study.engine import prepared
from tdd.study.power.effects import Curve, smallest_effects, told
from tdd.study.power.record import ExchangePlan
from tdd.study.power.shard_designs import ResampledShards
from tdd.study.power.shard_sums import TESTS, log10_floor, num_draws, shard_sums, survival_table
from tdd.validate import power as checks
from tdd.validate.errors import InputError

__all__ = ["expected_exchange_power"]

_SHARDS, _SHUFFLES = (10, 20, 50), (5, 20, 50)
_REPETITIONS = 1_024
_DRAWS = 99_999  # of the test itself
_STEPS = 7  # of one search, about: for the progress bar


def expected_exchange_power(
    canonical: Any = None,
    shuffled: Any = None,
    *,
    effect: float | None = None,
    shifted_share: float = 1.0,
    law: str = "normal",
    num_shards: Any = None,
    num_shuffles: Any = None,
    test: Any = "combined",
    alpha: Any = 0.05,
    power: float = 0.8,
    search: bool = True,
    shard_tokens: float | None = None,
    repetitions: int = _REPETITIONS,
    seed: int = 0,
    source: str = "the shards",
    devices: Sequence[Any] | None = None,
    progress: bool = False,
) -> ExchangePlan:
    """Power of tests of canonical order by their numbers of shards and shuffles, and what each costs.

    Shards are those of a finished test, drawn anew, or follow a law with a given effect. Whatever their number, they
    have the length of the shards that the effect is of: fewer shards are fewer examples, not longer shards.

    **Effect.** By how many standard deviations of a shuffle the canonical order of a shard is more likely than its
    shuffles, in `shifted_share` of the shards (the others show nothing). The smallest detectable one is that at which
    the power is at least `power`, by interpolation between effects a factor of 1.2 or less apart, with common random
    numbers; for shards of a finished test the shuffles then keep their own law.

    **Draws** of a finished test: shards with replacement, of each its shuffles without replacement where it has
    enough (one more for the smallest effect), else with replacement (`extrapolated`). The power is that of a new data
    set of the same kind.

    Args:
      canonical: [r0] log-probabilities of the shards of a finished test in canonical order.
      shuffled: [r0, k0] those of their shuffles, k0 >= 2.
      effect: in place of them: the effect.
      shifted_share: share of the shards that show it.
      law: of the log-probability of one order, with `effect`: "normal", "exponential" (-Exp(1): a long left tail and a
        sharp upper end, which any gain exceeds), "lognormal" (-exp(N(0, 1))).
      num_shards: r, one or several; default 10, 20 and 50.
      num_shuffles: k, one or several; default 5, 20 and 50.
      test: of `tdd.exchangeability`, or "e_process" (`tdd.exchangeability_sequence`: stops as soon as p <= alpha, with
        at most k shuffles); one or several.
      alpha: level, one or several.
      power: wanted power.
      search: False leaves the smallest detectable effect out.
      shard_tokens: tokens of one shard, for the cost in tokens.
      repetitions: data sets drawn for each row.
      seed: of everything random.
      source: name of the finished test for the report.
      devices: to share the repetitions out over (default: all).
      progress: shows a bar on standard error, if that is a terminal.

    Returns:
      `ExchangePlan`; model calls are r (k + 1), of the e-process r (1 + the shuffles it reads on average).

    Raises:
      InputError: neither or both sources, shards that do not fit, missing or infinite log-probabilities, options out
        of range.

    Cost: one compilation for each number of shuffles; that of the tests, "exact" with 50/alpha relabellings or
    1,000.

    >>> plan = expected_exchange_power(effect=1.0, num_shards=20, num_shuffles=5, test="rank_sum", search=False)
    >>> plan.rows[0]["calls"], plan.rows[0]["power"] > 0.9
    (120, True)

    References: the sharded exchangeability test, section 3.2.
    """
    started = time.perf_counter()
    checks.check_one_source({"canonical": canonical is not None, "effect": effect is not None})
    shards = None
    if effect is None:
        shards = _as_shard_pool(canonical, shuffled)
    else:
        effect = _check_effect(effect)
    share = _check_shifted(shifted_share)
    checks.check_name("law", law, LAWS)
    tests = _as_tests(test, TESTS)
    levels = study_checks.as_levels(alpha)
    wanted = checks.check_proportion("power", power)
    tokens = _check_tokens(shard_tokens)
    study_checks.check_run(repetitions, seed, None)
    counts = checks.as_counts("num_shards", _SHARDS if num_shards is None else num_shards)
    widths = checks.as_counts("num_shuffles", _SHUFFLES if num_shuffles is None else num_shuffles)
    places = study_checks.as_devices(devices)
    total = len(counts) * len(widths) * (1 + search * _STEPS)
    rows, done = [], 0
    with progress_bar("power", total, enabled=progress, unit="settings") as advance:

        def tell(count: int = 1) -> None:
            nonlocal done
            done += count
            advance(count)

        for k in widths:
            measured, raised = _curves(shards, effect, law, share, counts, k, tests, levels, repetitions, seed, places)
            extrapolated = shards is not None and k > shards[1].shape[1]
            for r in counts:
                at = measured(r)
                tell()
                found = smallest_effects(told(raised(r), tell), r, share, wanted, len(tests), len(levels), search)
                rows += [
                    {
                        "num_shards": r,
                        "num_shuffles": k,
                        "test": name,
                        "alpha": level,
                        "power": float(at[0][i, j]),
                        "power_se": float(at[1][i, j]),
                        "reaches": bool(at[0][i, j] >= wanted),
                        **found[i][j],
                        "log10_floor": log10_floor(name, r, k, _DRAWS),
                        **_cost(name, r, k, float(at[2][j]), tokens),
                        "extrapolated": extrapolated,
                        "repetitions": int(repetitions),
                    }
                    for i, name in enumerate(tests)
                    for j, level in enumerate(levels)
                ]
        advance(max(0, total - done))
    rows.sort(key=lambda row: (row["calls"], row["num_shards"], row["test"], row["alpha"]))
    cheapest = [
        next((row for row in rows if (row["test"], row["alpha"]) == (name, level) and row["reaches"]), None)
        for name in tests
        for level in levels
    ]
    about = {
        "source": _source(shards, effect, share, law, source),
        "measured_effect": None if shards is None else _measured_effect(shards),
        "effect": effect,
        "shifted_share": share,
        "law": None if shards is not None else law,
        "tests": list(tests),
        "alphas": list(levels),
        "wanted": wanted,
        "shard_tokens": tokens,
        "seed": int(seed),
        "versions": versions(),
        "warnings": _warnings(shards, rows),
        "seconds": time.perf_counter() - started,
    }
    picked = tuple(
        {"test": name, "alpha": level, "row": row}
        for (name, level), row in zip(((n, a) for n in tests for a in levels), cheapest, strict=True)
    )
    return ExchangePlan(tuple(rows), picked, about)


def _curves(
    shards: tuple[np.ndarray, np.ndarray] | None,
    effect: float | None,
    law: str,
    share: float,
    counts: Sequence[int],
    k: int,
    tests: tuple[str, ...],
    levels: tuple[float, ...],
    repetitions: int,
    seed: int,
    devices: Sequence[Any],
) -> tuple[Callable[[int], tuple[np.ndarray, np.ndarray, np.ndarray]], Callable[[int], Curve]]:
    """`r -> (power, s.e., shuffles read)` of what is there, and `r -> (effect -> (power, s.e.))`, for k shuffles."""
    most, draws = max(counts), num_draws(levels)
    key = jax.random.key(seed, impl="threefry2x32")
    bounds = np.asarray(levels, np.float32)

    def run(design: Any, r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        numbers = most * (k + 1) if shards is None else most * max(k + 1, shards[1].shape[1])
        sums = shard_sums(tests, len(levels), draws, numbers, tuple(devices))
        operands = (prepared(design, [{}])[0], np.int32(r), survival_table(r, k, most), bounds, key)
        found = jax.tree.map(lambda leaf: np.asarray(leaf).astype(np.int64).sum(axis=0), sums(operands, 0, repetitions))
        power = found.count / repetitions
        cautious = (found.count + 1) / (repetitions + 2)
        return power, np.sqrt(cautious * (1 - cautious) / (repetitions + 2)), found.shuffles / repetitions

    def raised(r: int) -> Curve:
        """Of the first r of all places the share that is asked for shows the effect."""
        part = round(share * r) / most

        def at(size: float) -> tuple[np.ndarray, np.ndarray]:
            if shards is None:
                design: Any = SkewedShards(most, k, np.float32(size), np.float32(part), law)  # type: ignore[arg-type]
            else:
                design = ResampledShards(most, k, np.bool_(False), *shards, np.float32(size), np.float32(part))
            return run(design, r)[:2]

        return at

    def measured(r: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        if shards is not None:
            return run(ResampledShards(most, k, np.bool_(True), *shards, np.float32(0), np.float32(1)), r)
        part = round(share * r) / most
        return run(SkewedShards(most, k, np.float32(effect), np.float32(part), law), r)  # type: ignore[arg-type]

    return measured, raised


def _cost(test: str, r: int, k: int, shuffles: float, tokens: float | None) -> dict[str, float | None]:
    calls = r * (1 + shuffles) if test == "e_process" else float(r * (k + 1))
    return {"calls": calls if test == "e_process" else int(calls), "tokens": None if tokens is None else calls * tokens}


def _measured_effect(shards: tuple[np.ndarray, np.ndarray]) -> dict[str, float]:
    """Mean and median over shards of the canonical order's gain, in standard deviations of the shuffles."""
    spread = shards[1].std(axis=1, ddof=1)
    gain = shards[0][spread > 0] / spread[spread > 0]
    if not gain.size:
        return {"mean": math.nan, "median": math.nan}
    return {"mean": float(gain.mean()), "median": float(np.median(gain))}


def _source(shards: Any, effect: float | None, share: float, law: str, source: str) -> str:
    if shards is not None:
        return f"{source}: {shards[1].shape[0]} shards with {shards[1].shape[1]} shuffles"
    shown = "every shard" if share == 1 else f"{share:.0%} of the shards"
    return f"an effect of {effect:g} sd in {shown}, {law} log-probabilities"


def _warnings(shards: Any, rows: Sequence[dict[str, Any]]) -> list[str]:
    out = []
    if any(row["extrapolated"] for row in rows):
        out.append(
            f"rows with more than the {shards[1].shape[1]} shuffles that were scored draw them with replacement: they "
            "are marked as extrapolated"
        )
    if shards is not None and shards[0].size < 20:
        out.append(f"{shards[0].size} shards say little on the spread of the effect from shard to shard")
    floors = sorted({row["test"] for row in rows if row["log10_floor"] > math.log10(row["alpha"])})
    if floors:
        out.append(
            f"{', '.join(floors)}: some numbers of shards and shuffles allow no p-value as small as the level; "
            "their power is 0 whatever the effect"
        )
    return out


def _as_shard_pool(canonical: Any, shuffled: Any) -> tuple[np.ndarray, np.ndarray]:
    """[r0] and [r0, k0] log-probabilities, centred by shard, in single precision."""
    if shuffled is None:
        raise InputError("shuffled is missing: the log-probabilities of the shuffles of each shard, [shards, shuffles]")
    own, others = np.asarray(canonical, np.float64), np.asarray(shuffled, np.float64)
    if own.ndim != 1 or others.ndim != 2 or len(own) != len(others):
        raise InputError(
            f"canonical must be [shards] and shuffled [shards, shuffles], got shapes {own.shape} and {others.shape}"
        )
    if len(own) < 1 or others.shape[1] < 2:
        raise InputError(
            f"at least one shard with two shuffles is needed, got {len(own)} shards with {others.shape[1]} shuffles"
        )
    bad = int((~np.isfinite(own) | ~np.isfinite(others).all(axis=1)).sum())
    if bad:
        raise InputError(f"{bad} of {len(own)} shards have a missing or infinite log-probability; leave them out")
    middle = others.mean(axis=1)
    return (own - middle).astype(np.float32), (others - middle[:, None]).astype(np.float32)


def _as_tests(given: Any, known: Sequence[str]) -> tuple[str, ...]:
    """Names of tests, each once."""
    names = (given,) if isinstance(given, str) else tuple(given)
    if not names:
        raise InputError(f"test is empty; choose among {', '.join(known)}")
    for name in names:
        if name not in known:
            raise InputError(f"test must be one of {', '.join(known)}; got {name!r}")
    return tuple(dict.fromkeys(names))


def _check_effect(effect: Any) -> float:
    """A positive number of standard deviations."""
    number = math.nan if isinstance(effect, (bool, str)) else float(effect)
    if not 0 < number <= 1_000:
        raise InputError(
            f"effect must be positive (and at most 1000): by how many standard deviations of a shuffle the canonical "
            f"order is more likely; got {effect!r}"
        )
    return number


def _check_shifted(share: Any) -> float:
    """A share in (0, 1]."""
    number = math.nan if isinstance(share, (bool, str)) else float(share)
    if not 0 < number <= 1:
        raise InputError(f"shifted_share must lie above 0 and at most at 1, got {share!r}; 0.1 stands for 10 %")
    return number


def _check_tokens(tokens: Any) -> float | None:
    """Tokens of a shard."""
    if tokens is None:
        return None
    number = math.nan if isinstance(tokens, (bool, str)) else float(tokens)
    if not (math.isfinite(number) and number > 0):
        raise InputError(f"shard_tokens must be a positive number of tokens, got {tokens!r}")
    return number
