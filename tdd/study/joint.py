"""JMCS and JECS decided on counted ranks: random subsets of a labelled table, or new scores in each repetition."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, NamedTuple, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from tdd.device_kinds import DeviceKind, kind_of
from tdd.kernels import joint_cuts, joint_fresh, joint_resample, proportion, tally
from tdd.kernels.joint_resample import LARGEST
from tdd.procedures import jecs as joint
from tdd.runs.described import described
from tdd.runs.folder import versions
from tdd.study import checks
from tdd.study.designs import JointLabels
from tdd.study.engine import exact_levels
from tdd.study.results import StudyResult
from tdd.study.runner import BlockSums, Cell, Plan, StudyRun, StudyRunOptions, run_study, sum_over_blocks
from tdd.validate import InputError, arrays
from tdd.validate.arrays import as_matrix, check_finite
from tdd.validate.settings import on_own_devices

METHODS = ("jecs", "jmcs/bh", "jmcs/storey", "jmcs/by")
_LARGEST = 2**18  # repetitions a call, far from where the sums of a tally would wrap
_STEP, _SMALLEST = 2**12, 2**9  # repetitions of the first call; of a piece that a shard runs
_HOST_BYTES = 2**29  # that the repetitions side by side may hold on a core
_MOST_NUMBERS = 2**31  # that they may hold elsewhere: no table has more places than an index counts
_UNROLL = 16  # steps of a loop in one launch of an accelerator


class _RankCounter(NamedTuple):
    """Draws repetitions and counts their ranks; equal counters share one compiled engine."""

    # `(source, words, *, unroll, **sizes) -> RankCounts` of L repetitions, from a pytree of arrays and [2, L] random
    # bits
    count: Callable[..., joint_resample.RankCounts]
    # names and values of the static sizes; "num_calibration" and "num_tests" are among them
    sizes: tuple[tuple[str, int], ...]
    lanes: int  # largest number of repetitions side by side on a CPU; no number depends on it
    num_numbers: int  # about how many 32-bit numbers one repetition holds


@on_own_devices()
def resample_joint(
    calibration: Any,
    scores: Any,
    member: Any,
    *,
    alphas: Any,
    methods: Any = METHODS,
    num_calibration: int | None = None,
    num_tests: int | None = None,
    eta: float = 0.5,
    grid: Sequence[Any] = joint.GRID,
    repetitions: int,
    seed: int = 0,
    **options: Unpack[StudyRunOptions],
) -> StudyResult:
    """Measure the contamination rate and the power of joint selections over subsets of a pool.

    Each repetition draws `num_calibration` calibration items and `num_tests` candidates, uniformly and without
    replacement, and decides by every method at every level. A selection is false if at least one model was trained
    on the item: `fdr` is the global contamination rate, `power` the fraction of the jointly pure candidates that is
    selected. Decisions are exactly those of `tdd.jecs` and `tdd.jmcs` on the drawn items; ties count against the
    candidate.

    Rates are those over random subsets of this pool, not of a population.

    Args:
      calibration: [K, N] loss-like scores (lower = more member-like) of items that every model was trained on.
      scores: [K, M] loss-like scores of the candidates, models in the same order.
      member: [K, M] bool, whether the model was trained on the candidate; or [M], whether any was.
      alphas: levels in (0, 1), taken as exact fractions.
      methods: one or several of `METHODS`.
      num_calibration: n, calibration items that a repetition draws (default: half of them).
      num_tests: m, candidates that a repetition draws (default: half of them).
      eta: option of "jmcs/storey", as in `tdd.jmcs`.
      grid: candidates for tau of "jecs", as in `tdd.jecs`.
      repetitions: number of repetitions.
      seed: random seed; the numbers depend neither on the devices nor on the shards.
      **options: folder, shard, devices, progress, as in `tdd.study.run`.

    Returns:
      `StudyResult` with axes [method, alpha].

    Raises:
      InputError: shapes, labels, sizes or options out of range; missing or infinite scores; more than 32,767 items of
        one kind; a folder of another study; a shard that does not exist, or without a folder.

    Cost: no sort and no search after the pool has been ordered once; N + M random numbers and K (N + M) additions a
    repetition.

    >>> import numpy as np
    >>> draws = np.random.default_rng(0)
    >>> member = draws.random((3, 400)) < 0.2
    >>> table = draws.normal(size=(3, 200)) - 3, draws.normal(size=(3, 400)) - 3 * member
    >>> resample_joint(*table, member, alphas=0.2, methods="jmcs/bh", repetitions=256).fdr.shape
    (1, 1)

    References: JECS, section 4 (500 repetitions, each on a part of the calibration and of the test items).
    """
    own, tested, contaminated = _as_joint_pool(calibration, scores, member)
    n = _check_subset(num_calibration, own.shape[1], "num_calibration")
    m = _check_subset(num_tests, tested.shape[1], "num_tests")
    pool = jax.tree.map(jnp.asarray, joint_resample.pool(own, tested, contaminated))
    design = {"pool": {"models": len(own), "calibration": own.shape[1], "candidates": tested.shape[1]}}
    sizes = {"num_calibration": n, "num_tests": m}
    num_numbers = own.shape[1] * (len(own) // 2 + 8)
    return _run_joint(
        _RankCounter(joint_resample.count_ranks, tuple(sizes.items()), 256, num_numbers),
        pool,
        {"engine": "tdd.study.resample_joint", "design": design | sizes},
        _Options(alphas, methods, eta, grid, repetitions, seed, StudyRun(**options)),
    )


@on_own_devices()
def simulate_joint(
    design: JointLabels | None = None,
    *,
    alphas: Any,
    methods: Any = METHODS,
    eta: float = 0.5,
    grid: Sequence[Any] = joint.GRID,
    repetitions: int,
    seed: int = 0,
    **options: Unpack[StudyRunOptions],
) -> StudyResult:
    """Measure the contamination rate and the power of joint selections on JECS's synthetic set-up.

    The result has the law of `tdd.study.run(design, methods, ...)` and takes a fraction of its time: the calibration
    items are drawn in order, as normalised sums of exponentials, and each candidate's largest rank, together with
    whether it is contaminated, directly from its law given the calibration items (`tdd.kernels.joint_fresh` has the
    argument). Decisions are exactly those of `tdd.jecs` and `tdd.jmcs` on such ranks.

    Args:
      design: sizes, signal and fraction of members; another signal or fraction costs no compilation.
      alphas: as in `resample_joint`, and so are all further arguments.

    Returns:
      `StudyResult` as that of `resample_joint`.

    Raises:
      InputError: options out of range; a folder of another study; a shard that does not exist, or without a folder.

    Cost: K (n + 1) + m random numbers a repetition, a normal quantile for each calibration score, a look-up by halving
    for each candidate.

    >>> from tdd.study import JointLabels
    >>> small = JointLabels(num_models=2, num_calibration=99, num_tests=50, signal=3.0)
    >>> bool(simulate_joint(small, alphas=0.2, methods="jmcs/bh", repetitions=640).fdr[0, 0] < 0.2)
    True

    References: JECS, appendix E.1; Renyi (1953) for the order statistics.
    """
    design = JointLabels() if design is None else design
    sizes = {name: getattr(design, name) for name in ("num_models", "num_calibration", "num_tests")}
    num_numbers = (design.num_calibration + 1) * (2 * design.num_models + 12) + design.num_tests
    return _run_joint(
        _RankCounter(_count_fresh_ranks, tuple(sizes.items()), 64, num_numbers),
        (jnp.float32(design.signal), jnp.float32(design.member_share)),
        {"engine": "tdd.study.simulate_joint", "design": described(design)},
        _Options(alphas, methods, eta, grid, repetitions, seed, StudyRun(**options)),
    )


def _count_fresh_ranks(law: tuple[jax.Array, jax.Array], words: jax.Array, **sizes: int) -> joint_resample.RankCounts:
    return joint_fresh.count_ranks(words, *law, **sizes)


class _Options(NamedTuple):
    """Options of `resample_joint` that `simulate_joint` has too."""

    alphas: Any
    methods: Any
    eta: Any
    grid: Sequence[Any]
    repetitions: int
    seed: int
    how: StudyRun


def _run_joint(counter: _RankCounter, source: Any, about: dict[str, Any], options: _Options) -> StudyResult:
    """Decide on ranks that are counted from `source`; `about` begins the record."""
    started = time.perf_counter()
    alphas, methods, eta, grid, repetitions, seed, how = options
    checks.check_run(repetitions, seed, None)
    levels, names = checks.as_levels(alphas), checks.as_names(methods, METHODS)
    candidates = joint.checked_grid(grid)
    arrays.check_level(eta, "eta")
    devices = how.find_devices()
    sizes = dict(counter.sizes)
    n, m = sizes["num_calibration"], sizes["num_tests"]
    harmonic = tuple(jnp.asarray(table[m]) for table in joint.harmonic(m))
    scales = (proportion.tail_size(n, eta, n), *harmonic)
    operands = (source, exact_levels(levels), scales, arrays.key_of_seed(seed))
    kind = kind_of(devices[0])
    lanes = _width(counter, kind)
    sums = _engine(counter, names, candidates, len(levels), lanes, _UNROLL if kind.wide else 1, devices)
    setting = {
        **about,
        "seed": int(seed),
        "eta": float(eta),
        "grid": [str(tau) for tau in candidates],
        "versions": versions(),
        "platform": devices[0].platform,
    }
    further = {"source": source, "methods": names, "alphas": levels, "repetitions": int(repetitions)}
    largest = _LARGEST * (len(devices) if kind.wide else 1)  # a tally for each of them
    plan = Plan(int(repetitions), largest if how.folder is None else _STEP, largest, max(_SMALLEST, lanes))
    return run_study(
        [Cell(sums, operands, m, plan)],
        methods=names,
        alphas=levels,
        how=how,
        fingerprint={**setting, **further},
        provenance=setting,
        devices=devices,
        started=started,
        title=about["engine"].rpartition(".")[2],
    )


def _width(counter: _RankCounter, kind: DeviceKind) -> int:
    """Number of repetitions side by side: as many as there is room for."""
    width, room = _LARGEST if kind.wide else counter.lanes, min(kind.room(_HOST_BYTES) // 4, _MOST_NUMBERS)
    while width > 1 and width * counter.num_numbers > room:
        width //= 2
    return width


@functools.lru_cache(maxsize=32)
def _engine(
    counter: _RankCounter,
    methods: tuple[str, ...],
    grid: tuple[Fraction, ...],
    num_levels: int,
    lanes: int,
    unroll: int,
    devices: tuple[Any, ...],
) -> BlockSums:
    """Compile the sums; the pool, the levels and the key are operands."""
    sizes = dict(counter.sizes)
    n, m = sizes["num_calibration"], sizes["num_tests"]

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: tally.Tally) -> tally.Tally:
        source, levels, (tail, top, bottom), key = operands
        words = jax.vmap(lambda i: jax.random.bits(jax.random.fold_in(key, i), (2,), jnp.uint32), out_axes=1)(index)
        counts = counter.count(source, words, unroll=unroll, **sizes)

        def decide(at_most: jax.Array, contaminated: jax.Array) -> tuple[jax.Array, jax.Array]:
            """Numbers of selected and of falsely selected items, [method, alpha] each, in one repetition."""
            tests, points = jnp.int32(m), jnp.int32(n + 1)
            scales: dict[str, Any] = {
                "jmcs/bh": ((tests,), (points,)),
                "jmcs/storey": joint_cuts.storey_scale(at_most, n, tail),
                "jmcs/by": ((tests, top), (points, bottom)),
            }
            cuts = [
                joint_cuts.jecs_cuts(at_most, n, levels, grid, max_tests=m)
                if name == "jecs"
                else jax.vmap(
                    lambda level, name=name: joint_cuts.bh_cut(at_most, level, scale=scales[name], max_tests=m)
                )(levels)
                for name in methods
            ]
            cut = jnp.stack(cuts)
            return at_most[cut], contaminated[cut]

        selected, false = jax.vmap(decide, out_axes=-1)(*map(joint_resample.by_lane, counts))
        pure = m - counts.contaminated[-1]
        return tally.update(totals, false, selected, pure, jnp.int32(m), real=real)

    shape = (len(methods), num_levels)
    return sum_over_blocks(one_block, lambda: tally.zero(shape), lanes=lanes, devices=devices)


def _as_joint_pool(calibration: Any, scores: Any, member: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of both parts, and which candidates are contaminated: members of at least one model."""
    own = np.asarray(as_matrix(calibration, "calibration", "[models, items]"))
    tested = np.asarray(as_matrix(scores, "scores", "[models, items]"))
    if own.shape[0] != tested.shape[0]:
        raise InputError(f"calibration has {own.shape[0]} models and scores {tested.shape[0]}; give the same models")
    for name, panel in (("calibration", own), ("scores", tested)):
        if panel.size == 0:
            raise InputError(f"{name} is empty, shape {panel.shape}; a pool needs at least one model and one item")
        check_finite(panel, name)
        if np.issubdtype(panel.dtype, np.floating):
            missing = int(np.isnan(panel).any(axis=0).sum())
            if missing:
                raise InputError(
                    f"{name}: {missing} of {panel.shape[1]} items lack the score of some model (NaN); leave them out "
                    "of the pool"
                )
        if panel.shape[1] > LARGEST:
            raise InputError(
                f"{name} holds {panel.shape[1]:,} items; this engine counts up to {LARGEST:,}. Pass a random part of "
                "the pool, or use tdd.study.run"
            )
    labels = np.asarray(member)
    if labels.shape not in (tested.shape, tested.shape[1:]):
        raise InputError(
            f"member must have the shape of scores, {tested.shape} (one label a model and item), or "
            f"{tested.shape[1:]} (member of at least one model); got {labels.shape}"
        )
    if labels.dtype != np.bool_:
        raise InputError(f"member must be boolean (True = the model was trained on the item), got dtype {labels.dtype}")
    return own, tested, labels if labels.ndim == 1 else np.asarray(labels.any(axis=0))


def _check_subset(wanted: Any, size: int, name: str) -> int:
    """Number of items of a pool that a repetition draws; None is half of them, rounded down, and at least one."""
    if wanted is None:
        return max(1, size // 2)
    if isinstance(wanted, bool) or not isinstance(wanted, (int, np.integer)) or not 1 <= wanted <= size:
        raise InputError(
            f"{name} must be a whole number from 1 to {size}, the size of that part of the pool; got {wanted!r}"
        )
    return int(wanted)
