"""One case at one size: agreement first, then compilation, memory, and rounds interleaved with the peers'."""

from __future__ import annotations

import dataclasses
import statistics
import time
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np

from benchmarks.throughput import memory
from benchmarks.throughput.cases import Case, Peer, Size, check_agreement, missing
from benchmarks.throughput.harness import interleaved, ratio, seconds_of
from tdd.kernels import rows

__all__ = ["Options", "measure"]

SEED = 0
_SHORT = 5e-3  # calls shorter than this are repeated within a round


@dataclasses.dataclass(frozen=True)
class Options:
    """How carefully.

    Attributes:
      rounds: interleaved rounds.
      peer_seconds: a peer that loops over a batch runs as many of its data sets as fit into this, at least one.
      gate_seconds: likewise for the comparison before timing.
      bandwidth: bytes a second of a plain copy on the device; 0 if it was not measured.
      flops: of its matrix product; 0 likewise.
      quick: smaller sizes.
      texts: that the cases of whole texts score; None: their own number.
    """

    rounds: int = 5
    peer_seconds: float = 0.5
    gate_seconds: float = 2.0
    bandwidth: float = 0.0
    flops: float = 0.0
    quick: bool = False
    texts: int | None = None


def measure(case: Case, size: Size, options: Options) -> dict[str, Any]:
    """The row of one case: see the keys at the end.

    Raises:
      Disagreement: a peer's results are not the case's; nothing was timed.
    """
    arrays = case.make(np.random.default_rng(SEED), size)
    ours, compile_s, program = _compiled(case, size, arrays)
    results: list[Any] = []
    peak = memory.peak_during(lambda: results.append(_timed(ours)))
    first_s, found = results[0]

    skipped: dict[str, str] = {}
    loops: dict[str, tuple[Callable[[], Any], float]] = {}
    for name, peer in case.peers.items():
        reason = missing(peer, size)
        if reason is not None:
            skipped[name] = reason
            continue
        each = _gate(case, name, peer, arrays, size, found, options)
        loops[name] = _loop(peer, arrays, size, each, options)

    once = min(seconds_of(ours) for _ in range(2))
    calls = {"tdd": ours} | {name: call for name, (call, _) in loops.items()}
    repeats = {"tdd": int(max(1, min(100, _SHORT / max(once, 1e-9))))}
    repeats |= {name: int(max(1, min(100, _SHORT / max(seconds_of(call), 1e-9)))) for name, (call, _) in loops.items()}
    seconds = interleaved(calls, options.rounds, repeats)
    for name, (_, share) in loops.items():
        seconds[name] = [value / share for value in seconds[name]]
    steady = statistics.median(seconds["tdd"])
    traffic = sum(value.nbytes for value in arrays.values()) + sum(value.nbytes for value in found.values())
    sets = size.batch or 1
    flops = sets * case.flops(size.items)
    return {
        "case": case.name,
        "items": size.items,
        "batch": size.batch,
        "unit": case.unit,
        "compile_s": max(0.0, first_s - steady) if compile_s is None else compile_s,
        "first_s": first_s,
        "steady_s": steady,
        "per_s": sets * size.items / steady,
        **program,
        "resident_peak_bytes": peak,
        "device_peak_bytes": (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use"),
        "traffic_bytes": traffic,
        "bandwidth_share": traffic / steady / options.bandwidth if options.bandwidth else None,
        "matmul_share": flops / steady / options.flops if options.flops and flops else None,
        "peers": {
            name: {
                "steady_s": statistics.median(seconds[name]),
                "ratio": ratio(seconds[name], seconds["tdd"]),
                "share_run": share,
            }
            for name, (_, share) in loops.items()
        },
        "bars": _bars(case, size),
        "skipped": skipped,
        "seconds": seconds,
    }


def _compiled(
    case: Case, size: Size, arrays: Mapping[str, np.ndarray]
) -> tuple[Callable[[], Any], float | None, dict[str, int]]:
    """The timed call, seconds of its compilation (None where its first call compiles), and the program's memory."""
    if case.public:
        return lambda: case.call(**arrays), None, {}
    names = list(arrays)

    def one(*values: jax.Array) -> Mapping[str, Any]:
        return case.call(**dict(zip(names, values, strict=True)))

    jitted = jax.jit(one if size.batch is None else lambda *values: rows.map_rows(one, *values))
    operands = [jax.device_put(value) for value in arrays.values()]
    start = time.perf_counter()
    compiled = jitted.lower(*operands).compile()
    return lambda: compiled(*operands), time.perf_counter() - start, memory.program_bytes(compiled)


def _timed(call: Callable[[], Any]) -> tuple[float, dict[str, np.ndarray]]:
    """Seconds of a call and its results on the host, which are not timed."""
    start = time.perf_counter()
    found = jax.block_until_ready(call())
    seconds = time.perf_counter() - start
    return seconds, {name: np.asarray(value) for name, value in found.items()}


def _bars(case: Case, size: Size) -> dict[str, float]:
    """What must be reached here: the bars are stated for the case's own sizes."""
    if size not in case.sizes:
        return {}
    return dict(case.bars if jax.default_backend() == "cpu" else case.gpu_bars)


def _gate(
    case: Case,
    name: str,
    peer: Peer,
    arrays: Mapping[str, np.ndarray],
    size: Size,
    found: Mapping[str, np.ndarray],
    options: Options,
) -> float:
    """Compare with the peer, data set by data set while time is left; seconds of one."""
    where = f"{case.name} at {size} against {name}"
    start, done = time.perf_counter(), 0
    if size.batch is None or peer.whole:
        check_agreement(found, peer.call(**arrays), case.tolerance, where)
        return time.perf_counter() - start
    peer.call(**{key: value[0] for key, value in arrays.items()})  # imports and caches are not its time
    start = time.perf_counter()
    for i in range(size.batch):
        expected = peer.call(**{key: value[i] for key, value in arrays.items()})
        check_agreement({key: value[i] for key, value in found.items()}, expected, case.tolerance, f"{where}, set {i}")
        done += 1
        if time.perf_counter() - start > options.gate_seconds:
            break
    return (time.perf_counter() - start) / done


def _loop(
    peer: Peer, arrays: Mapping[str, np.ndarray], size: Size, each: float, options: Options
) -> tuple[Callable[[], Any], float]:
    """The peer's timed call and the share of the batch that it covers."""
    if size.batch is None or peer.whole:
        return lambda: peer.call(**arrays), 1.0
    count = int(max(1, min(size.batch, options.peer_seconds / max(each, 1e-9))))

    def loop() -> None:
        for i in range(count):
            peer.call(**{key: value[i] for key, value in arrays.items()})

    return loop, count / size.batch
