"""Monte Carlo studies beside the loops that they replace: repetitions a second, compilation included and not.

Each function runs in a process of its own (`subprocess_bench`): the study and its peer in interleaved rounds, after
their error rates and powers were found to agree.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.memory import peak_during

__all__ = ["ALPHAS", "agree_in_law", "jecs_fixed", "jecs_fresh", "pool", "resample"]

ALPHAS = (0.1, 0.2, 0.3, 0.4, 0.5)
_SURE = 5.0  # standard errors of the difference between two independent studies


def pool(size: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """A labelled pool: half members, whose N(0, 1) scores lie one lower."""
    rng = np.random.default_rng(seed)
    is_member = rng.random(size) < 0.5
    return (rng.normal(size=size) - is_member).astype(np.float32), is_member


def resample(
    size: int, repetitions: int, first: int = 100_000, peer_repetitions: int = 1_000, rounds: int = 5
) -> dict[str, Any]:
    """`tdd.study.resample` on random half splits of a pool, plain and scaled, against the SciPy loop.

    Args:
      size: N of the pool.
      repetitions: of each steady round.
      first: of the first call, whose time includes the compilation.
      peer_repetitions: of the loop in each round.
      rounds: interleaved.
    """
    from benchmarks.throughput.peers.resampling import resample as loop
    from tdd.study import pool as study

    scores, is_member = pool(size)

    def ours(number: int, seed: int) -> Any:
        import jax

        return study.resample(
            scores,
            is_member,
            alphas=ALPHAS,
            methods=("none", "subtraction"),
            repetitions=number,
            key=jax.random.key(seed),
        )

    def by_loop(number: int, seed: int, reuse: bool = False) -> np.ndarray:
        return loop(scores, is_member, ALPHAS, number, seed, reuse=reuse)

    def gate(found: Any, expected: np.ndarray) -> None:
        mean, error = expected.mean(0), expected.std(0, ddof=1) / math.sqrt(len(expected))
        agree_in_law("FDR", found.fdr, found.fdr_se, mean[0], error[0])
        agree_in_law("power", found.power, found.power_se, mean[1], error[1])

    once = {"SciPy loop, one call": lambda number, seed: by_loop(number, seed, True)}
    return _interleaved(ours, by_loop, gate, repetitions, first, peer_repetitions, rounds, once)


def jecs_fixed(
    repetitions: int, first: int | None = None, peer_repetitions: int = 200, rounds: int = 5
) -> dict[str, Any]:
    """JECS on subsets of a fixed pool, K = 5, n = 600 and m = 1,400 of twice as many, against the NumPy loop."""
    import jax

    from benchmarks.throughput import joint_peer
    from tdd.study import JointLabels, resample_joint

    drawn = JointLabels(num_calibration=1200, num_tests=2800, signal=3.0).draw(jax.random.key(0))
    calibration, scores = np.asarray(drawn.calibration), np.asarray(drawn.scores)
    contaminated = ~np.asarray(drawn.target)
    levels = [Fraction(str(alpha)) for alpha in ALPHAS[:3]]

    def ours(number: int, seed: int) -> Any:
        return resample_joint(
            calibration,
            scores,
            np.asarray(drawn.extra["member"]),
            num_calibration=600,
            num_tests=1400,
            alphas=ALPHAS[:3],
            methods=("jecs",),
            repetitions=number,
            seed=seed,
        )

    def loop(counting: bool) -> Callable[[int, int], np.ndarray]:
        def call(number: int, seed: int) -> np.ndarray:
            generator = np.random.default_rng(seed)
            every = joint_peer.drawn_subsets(generator, 1200, 2800, 600, 1400)
            subsets = (pair for pair, _ in zip(every, range(number), strict=False))
            return _metrics(
                joint_peer.fixed_pool(calibration, scores, contaminated, subsets, levels, counting=counting)
            )

        return call

    once = {"NumPy loop, running counts": loop(True)}
    return _interleaved(ours, loop(False), _joint_gate, repetitions, first, peer_repetitions, rounds, once)


def jecs_fresh(
    repetitions: int, first: int | None = None, peer_repetitions: int = 200, rounds: int = 5
) -> dict[str, Any]:
    """JECS on new normal scores in each repetition, K = 5, n = 600, m = 1,400, against the NumPy loop."""
    from benchmarks.throughput import joint_peer
    from tdd.study import simulate_joint

    levels = [Fraction(str(alpha)) for alpha in ALPHAS[:3]]

    def ours(number: int, seed: int) -> Any:
        return simulate_joint(alphas=ALPHAS[:3], methods=("jecs",), repetitions=number, seed=seed)

    def by_loop(number: int, seed: int) -> np.ndarray:
        return _metrics(joint_peer.fresh_panels(np.random.default_rng(seed), levels, number))

    return _interleaved(ours, by_loop, _joint_gate, repetitions, first, peer_repetitions, rounds, {})


def agree_in_law(name: str, found: Any, found_se: Any, expected: Any, expected_se: Any) -> None:
    """Two independent estimates of the same means lie within five standard errors of their difference.

    Raises:
      Disagreement: they do not.
    """
    found, expected = np.asarray(found, float), np.asarray(expected, float)
    error = np.sqrt(np.asarray(found_se, float) ** 2 + np.asarray(expected_se, float) ** 2)
    wrong = ~(np.abs(found - expected) <= _SURE * error + 1e-9)
    if wrong.any():
        at = tuple(int(i) for i in np.argwhere(wrong)[0])
        raise Disagreement(f"{name} at {at}: {found[at]:.5f} against the loop's {expected[at]:.5f} ± {error[at]:.5f}")


def _metrics(rows: list[Any]) -> np.ndarray:
    """[repetitions, 2 (FDP, power), levels] of `joint_peer.JointCounts`."""
    false = np.array([row.false for row in rows], float)
    selected = np.array([row.selected for row in rows], float)
    pure = np.array([[row.pure] for row in rows], float)
    return np.stack([false / np.maximum(selected, 1), (selected - false) / np.maximum(pure, 1)], axis=1)


def _joint_gate(found: Any, expected: np.ndarray) -> None:
    mean, error = expected.mean(0), expected.std(0, ddof=1) / math.sqrt(len(expected))
    jecs = list(found.methods).index("jecs")
    agree_in_law("GCR", found.fdr[jecs], found.fdr_se[jecs], mean[0], error[0])
    agree_in_law("power", found.power[jecs], found.power_se[jecs], mean[1], error[1])


def _interleaved(
    ours: Callable[[int, int], Any],
    peer: Callable[[int, int], np.ndarray],
    gate: Callable[[Any, np.ndarray], None],
    repetitions: int,
    first: int | None,
    peer_repetitions: int,
    rounds: int,
    others: dict[str, Callable[[int, int], np.ndarray]],
) -> dict[str, Any]:
    """First call, agreement, then rounds of the study, its peer and other forms of the peer."""
    import jax

    first = repetitions if first is None else first
    start = time.perf_counter()
    found = ours(first, 0)
    first_s = time.perf_counter() - start
    gate(found, peer(peer_repetitions, 0))
    for other in others.values():
        gate(found, other(peer_repetitions, 1))
    calls = {"peer": peer, **others}
    rates: dict[str, list[float]] = {name: [] for name in ("tdd", *calls)}
    ours(repetitions, 1)  # another number of repetitions may be another program
    for i in range(rounds):
        start = time.perf_counter()
        ours(repetitions, i + 2)
        rates["tdd"].append(repetitions / (time.perf_counter() - start))
        for name, call in calls.items():
            start = time.perf_counter()
            call(peer_repetitions, i + 2)
            rates[name].append(peer_repetitions / (time.perf_counter() - start))
    ratios = {name: statistics.median(a / b for a, b in zip(rates["tdd"], rates[name], strict=True)) for name in calls}
    return {
        "first_repetitions": first,
        "first_s": first_s,
        "repetitions": repetitions,
        "per_s": statistics.median(rates["tdd"]),
        "peers_per_s": {name: statistics.median(rates[name]) for name in calls},
        "ratios": ratios,
        "first_ratio": first / first_s / statistics.median(rates["peer"]),
        "resident_peak_bytes": peak_during(lambda: ours(repetitions, 1) and None),
        "num_devices": jax.local_device_count(),
        "device": str(jax.local_devices()[0]),
        "rates": rates,
    }
