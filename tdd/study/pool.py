"""PTDI on random splits of one labelled pool, millions of repetitions a second: `tdd.study.resample`."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.device_kinds import DeviceKind, kind_of
from tdd.kernels import resample as engine
from tdd.kernels import resample_pool, tally
from tdd.runs.folder import versions
from tdd.study import blocks, checks
from tdd.study.designs import Pool
from tdd.study.designs.resampled import as_membership
from tdd.study.engine import exact_levels
from tdd.study.fingerprint import described
from tdd.study.results import StudyResult
from tdd.study.runner import Cell, Plan, run_study
from tdd.validate import InputError, arrays

__all__ = ["resample"]

_LARGEST = 2**24

_STEP = 2**13  # repetitions of the first call
_LARGEST_STEP = 2**18  # a tally holds 2^19
_SMALLEST = 2**10  # repetitions of a piece that a shard runs
_HOST_LANES, _DEVICE_LANES = 1024, _LARGEST_STEP
_HOST_BYTES = 10 * 2**20
_FEWEST = 128
_NARROW = 16  # of a pool whose tables fit into no cache: one register of counts
_UNROLL = 32  # items in one launch of an accelerator: beyond it the program grows and no time is won


def resample(
    scores: Any,
    is_member: Any,
    *,
    alphas: Any,
    methods: Any = ("none", "subtraction"),
    eta: Any = 0.05,
    repetitions: int,
    key: jax.Array,
    test_members: float | None = None,
    calibration_ratio: float | None = None,
    target_se: float | None = None,
    devices: Sequence[Any] | None = None,
    folder: str | os.PathLike[str] | None = None,
    shard: tuple[int, int] | str | None = None,
    progress: bool = False,
) -> StudyResult:
    """FDR and power of PTDI over random splits of a labelled pool, in one pass a split.

    Each repetition splits the pool in halves at random: the non-members of the first, floor(N/2) items, calibrate, the
    others are tested; or, with `test_members` or `calibration_ratio`, it draws sets of fixed sizes. Every method
    decides at every level on the same splits. Decisions are exact and equal those of `tdd.ptdi` on the split, ties
    included (for "moment" up to the rounding of its estimate). A split depends on `key` and on its number alone, and
    sums are integers: the numbers depend neither on devices and shards nor on interruptions.

    Random splits make the items of a pool exchangeable, so that every guarantee of `tdd.ptdi` applies. The rates say
    nothing on items that were not sampled like the pool.

    Args:
      scores: [N] loss-like scores (lower = more member-like), any real type; their order alone matters, but for
        "moment".
      is_member: [N] bool.
      alphas: levels in (0, 1), as exact fractions.
      methods: proportion estimates of `tdd.ptdi`: "none", "storey", "subtraction", "moment". For the last one the
        members that are not tested are the known ones.
      eta: fraction of the calibration scores in the region of presumed non-members.
      repetitions: largest number of splits.
      key: PRNG key.
      test_members: fraction of the test items that are members (default: half splits; with a ratio alone, the pool's).
      calibration_ratio: n/m, calibration over test items (default: half splits; with a fraction alone, 1).
      target_se: stop once the standard errors of FDR and power of all methods and levels are at most this. They are
        checked whenever the number of repetitions is 8,192 times a power of two, on any devices.
      devices: devices that share the repetitions (default: all).
      folder: keeps the totals, so that an interrupted run continues there, and the result. A folder of another study
        is refused.
      shard: as in `tdd.study.run`.
      progress: show a bar on standard error, if that is a terminal.

    Returns:
      `StudyResult` with arrays [method, alpha].

    Raises:
      InputError: scores or labels that do not fit, options out of range, sizes that the pool cannot give, a folder of
        another study; a shard that does not exist, or without a folder.

    Cost: O(N) a repetition, about 1 ns an item and core; memory does not grow with `repetitions`.

    >>> rng = np.random.default_rng(0)
    >>> member = np.arange(200) < 100
    >>> scores = rng.normal(size=200) - 2 * member
    >>> result = resample(scores, member, alphas=[0.1, 0.2], repetitions=2_000, key=jax.random.key(0))
    >>> result.fdr.shape, bool((result.fdr <= [0.11, 0.21]).all())
    ((2, 2), True)

    References: PTDI, section 5.1; `tdd.kernels.resample` for the engine.
    """
    started = time.perf_counter()
    values, labels = _as_labelled_pool(scores, is_member)
    names = checks.as_names(methods, engine.PROPORTIONS)
    checks.check_run(repetitions, 0, target_se)
    arrays.check_level(eta, "eta")
    arrays.check_key(key, "a study")
    eta = checks.as_number(eta)
    levels = checks.as_levels(alphas)
    split, num_tests = _split(values, labels, test_members, calibration_ratio)
    devices = checks.as_devices(devices)
    words = _words(key)
    setting = {
        "scores": described(values),
        "is_member": described(labels),
        "methods": list(names),
        "alphas": levels,
        "eta": eta,
        "repetitions": int(repetitions),
        "key": words.tolist(),
        "test_members": test_members,
        "calibration_ratio": calibration_ratio,
        "target_se": target_se,
        "platform": devices[0].platform,
        "versions": versions(),
    }
    size, members = len(values), int(labels.sum())
    sizes = {"num_items": size, "num_members": members}
    kind = kind_of(devices[0])
    lanes = _lanes(size, kind)
    operands = (
        resample_pool.prepare(values, labels),
        split,
        exact_levels(levels),
        resample_pool.tails(size - members, eta),
        words,
    )
    largest = _LARGEST_STEP * (len(devices) if kind.wide else 1)  # a tally for each of them
    plan = Plan(int(repetitions), max(_STEP, lanes), largest, max(_SMALLEST, lanes), target_se, next_stop=_next_stop)
    sums = _engine(names, len(levels), lanes, _UNROLL if kind.wide else 1, devices)
    return run_study(
        [Cell(sums, jax.device_put(operands), num_tests, plan)],
        methods=names,
        alphas=levels,
        folder=folder,
        shard=shard,
        fingerprint=setting,
        provenance={"engine": "tdd.study.resample", **setting, **sizes, "stopping": None},
        devices=devices,
        started=started,
        progress="resample" if progress else "",
    )


def _words(key: jax.Array) -> np.ndarray:
    """Two words for a key of any kind; a threefry key has its own."""
    words = np.asarray(jax.random.key_data(key)).ravel()
    return words if words.size == 2 else np.asarray(jax.random.bits(key, (2,), jnp.uint32))


def _split(
    values: np.ndarray, labels: np.ndarray, test_members: float | None, calibration_ratio: float | None
) -> tuple[resample_pool.Split, int]:
    """The sizes, by the same rule as the design `Pool`; and m."""
    size, members = len(values), int(labels.sum())
    if test_members is None and calibration_ratio is None:
        return resample_pool.half_split(size - members, members), size - size // 2
    n, num_nulls, num_targets = Pool(np.arange(size), labels, test_members, calibration_ratio).sizes()
    return resample_pool.fixed_split(n, num_nulls + num_targets, num_targets), num_nulls + num_targets


def _lanes(size: int, kind: DeviceKind) -> int:
    """Repetitions side by side: a power of two, whose tables of counts stay in the cache of a host's core."""
    fitting = kind.room(_HOST_BYTES) // (6 * size)
    if fitting < _FEWEST:
        return _FEWEST if kind.wide else _NARROW
    return min(_DEVICE_LANES if kind.wide else _HOST_LANES, 1 << (fitting.bit_length() - 1))


def _next_stop(done: int) -> int:
    """The first number of repetitions beyond `done` at which a run may stop."""
    at = _STEP
    while at <= done:
        at *= 2
    return at


@functools.lru_cache(maxsize=32)
def _engine(
    names: tuple[str, ...], num_levels: int, lanes: int, unroll: int, devices: tuple[Any, ...]
) -> blocks.BlockSums:
    """The compiled program; pools of one size share it, whatever their scores, levels and sizes of splits."""

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: tally.Tally) -> tally.Tally:
        pool, split, levels, tails, seed = operands
        root = jax.random.wrap_key_data(seed, impl="threefry2x32")
        keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(root, i)))(index)
        drawn = engine.draw(pool, split, keys.T, unroll=unroll)
        decided = engine.decide(pool, drawn, levels, proportions=names, tails=tails, unroll=unroll)
        return tally.update(totals, decided.false, decided.selected, drawn.test_members, drawn.num_tests, real=real)

    shape = (len(names), num_levels)
    return blocks.sum_over_blocks(one_block, lambda: tally.zero(shape), lanes=lanes, devices=devices)


def _as_labelled_pool(scores: Any, is_member: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores [N], finite, in their own type, and labels [N] bool with both values."""
    values = np.asarray(scores)
    if values.ndim != 1 or values.dtype.kind not in "fiu":
        raise InputError(
            f"scores must be one number an item, shape [N]; got {values.dtype} of shape {values.shape}. One pool holds "
            "one score: study several one by one"
        )
    if not 2 <= len(values) < _LARGEST:
        raise InputError(f"scores must hold from 2 to {_LARGEST - 1:,} items, got {len(values):,}")
    bad = int((~np.isfinite(values)).sum()) if values.dtype.kind == "f" else 0
    if bad:
        raise InputError(
            f"scores has {bad} missing or infinite values among {len(values)} items; leave these items out"
        )
    return values, as_membership(is_member, len(values))
