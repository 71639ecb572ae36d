"""A labelled pool: the design that splits it anew, and PTDI without a sort of each split, `tdd.study.resample`."""

from __future__ import annotations

import dataclasses
import functools
import time
from typing import Any, Unpack

import jax
import jax.numpy as jnp
import numpy as np

from tdd.device_kinds import DeviceKind, kind_of
from tdd.kernels import resample as engine
from tdd.kernels import resample_pool, tally
from tdd.records import Null
from tdd.runs.described import described
from tdd.runs.folder import versions
from tdd.study import checks
from tdd.study.designs import Sample
from tdd.study.engine import exact_levels
from tdd.study.results import StudyResult
from tdd.study.runner import BlockSums, Cell, Plan, StudyRun, StudyRunOptions, run_study, sum_over_blocks
from tdd.validate import InputError, arrays
from tdd.validate.settings import on_own_devices

_LARGEST = 2**24

_STEP = 2**13  # repetitions of the first call
_LARGEST_STEP = 2**18  # a tally holds 2^19
_SMALLEST = 2**10  # repetitions of a piece that a shard runs
_HOST_LANES, _DEVICE_LANES = 1024, _LARGEST_STEP
_HOST_BYTES = 10 * 2**20
_FEWEST = 128
_NARROW = 16  # of a pool whose tables fit into no cache: one register of counts
_UNROLL = 32  # items in one launch of an accelerator: beyond it the program grows and no time is won


@jax.tree_util.register_pytree_node_class
@dataclasses.dataclass(frozen=True)
class Pool:
    """Real scores with known labels: each repetition draws calibration and test items from them.

    Without `test_members` and `calibration_ratio` a uniformly random half, floor(N/2) items, serves for calibration
    (those among them for which the null holds; n is random, a mask says which) and the others are the test items. With
    one of the two, calibration and test sets have fixed sizes, as large as the pool allows, and are drawn without
    replacement.

    The items of a pool are drawn from it, not from a population: rates are those over random splits of this pool.

    Attributes:
      scores: [N] or [K, N] loss-like scores.
      is_member: [N] bool.
      test_members: fraction of the test items that are members (default, with a ratio alone: the pool's).
      calibration_ratio: n/m, calibration over test items (default, with a fraction alone: 1).
      null: the kind of items that calibrate.
      num_members: number of members, counted from `is_member`.

    Raises:
      InputError: missing or infinite scores, labels that do not fit, only one label, scores that single precision
        cannot tell apart, a fraction or ratio that the pool cannot give.

    References: PTDI, section 5 (half splits, fractions of members, ratios).
    """

    scores: Any
    is_member: Any
    test_members: float | None = None
    calibration_ratio: float | None = None
    null: Null = "nonmember"
    num_members: int = dataclasses.field(init=False)

    def __post_init__(self):
        scores, is_member = _as_pool(self.scores, self.is_member)
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "is_member", is_member)
        object.__setattr__(self, "num_members", int(np.sum(is_member)))
        checks.check_names(self, null=checks.NULLS)
        for name, low, high in (("test_members", 0, 1), ("calibration_ratio", 0, None)):
            if getattr(self, name) is not None:
                checks.check_number(f"Pool: {name}", getattr(self, name), low, high)
        if self._fixed and self.sizes()[0] == 0:
            raise InputError(
                f"Pool: no draw has test_members={self.test_members!r} and "
                f"calibration_ratio={self.calibration_ratio!r}: the pool has too few items; ask for less extreme values"
            )

    def tree_flatten(self):
        """The arrays, and what is static: the options and how many members there are."""
        static = (self.test_members, self.calibration_ratio, self.null, self.num_members)
        return (self.scores, self.is_member), static

    @classmethod
    def tree_unflatten(cls, static, arrays) -> Pool:
        """The inverse of `tree_flatten`; it checks nothing."""
        pool = object.__new__(cls)
        for field, value in zip(dataclasses.fields(cls), (*arrays, *static), strict=True):
            object.__setattr__(pool, field.name, value)
        return pool

    @property
    def _fixed(self) -> bool:
        return self.test_members is not None or self.calibration_ratio is not None

    def sizes(self) -> tuple[int, int, int]:
        """n, null test items and targets of a draw of fixed sizes."""
        total = self.scores.shape[-1]
        members = self.num_members
        nulls, targets = (total - members, members) if self.null == "nonmember" else (members, total - members)
        ratio = 1.0 if self.calibration_ratio is None else float(self.calibration_ratio)
        fraction = members / total if self.test_members is None else float(self.test_members)
        fraction = fraction if self.null == "nonmember" else 1 - fraction
        for size in range(min(total, int(nulls / max(ratio + 1 - fraction, 1e-9)) + 2), 0, -1):
            num_targets, n = round(fraction * size), round(ratio * size)
            num_nulls = size - num_targets
            if num_targets <= targets and num_nulls + n <= nulls and n > 0:
                return n, num_nulls, num_targets
        return 0, 0, 0

    def draw(self, key: jax.Array) -> Sample:
        """One split; a half split has a `calibration_mask`. `extra["members"]`: scores of members left over."""
        scores, is_member = jnp.asarray(self.scores), jnp.asarray(self.is_member)
        null = ~is_member if self.null == "nonmember" else is_member
        plain = scores.ndim == 1 and self.null == "nonmember"
        if not self._fixed:
            order = jax.random.permutation(key, scores.shape[-1])
            first, rest = jnp.split(order, [scores.shape[-1] // 2])
            extra = {"members": jnp.where(null[first], jnp.nan, scores[first])} if plain else {}
            return Sample(scores[..., first], scores[..., rest], ~null[rest], calibration_mask=null[first], extra=extra)
        n, num_nulls, num_targets = self.sizes()
        count = scores.shape[-1] - self.num_members if self.null == "nonmember" else self.num_members
        nulls_first = jnp.argsort(~null, stable=True)
        null_key, target_key = jax.random.split(key)
        nulls = jax.random.permutation(null_key, nulls_first[:count])
        targets = jax.random.permutation(target_key, nulls_first[count:])
        chosen = jnp.concatenate([targets[:num_targets], nulls[n : n + num_nulls]])
        left = targets[num_targets:]
        extra = {"members": scores[left]} if plain and left.size else {}
        target = jnp.arange(num_nulls + num_targets) < num_targets
        return Sample(scores[..., nulls[:n]], scores[..., chosen], target, extra=extra)


def _as_pool(scores: Any, is_member: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a labelled pool in JAX's float type, distinct where they were, and labels."""
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Pool: scores must be numbers, [items] or [detectors, items]: {error}") from error
    if values.ndim not in (1, 2) or values.shape[-1] < 2:
        raise InputError(
            f"Pool: scores must be [items] or [detectors, items] with at least two items, got shape {values.shape}"
        )
    bad = int((~np.isfinite(values)).any(axis=tuple(range(values.ndim - 1))).sum())
    if bad:
        raise InputError(f"Pool: {bad} of {values.shape[-1]} items have a missing or infinite score; leave them out")
    labels = _as_membership(is_member, values.shape[-1])
    rows = np.atleast_2d(values)
    narrow = values.astype(np.float32)
    if any(len(np.unique(a)) != len(np.unique(b)) for a, b in zip(np.atleast_2d(narrow), rows, strict=True)):
        raise InputError(
            "Pool: some scores differ by less than single precision tells apart; pass their ranks "
            "(scipy.stats.rankdata, one detector at a time), which every method that compares scores decides alike"
        )
    return narrow, labels


def _as_membership(is_member: Any, size: int) -> np.ndarray:
    """Labels [N] bool of a pool, with both values."""
    labels = np.asarray(is_member)
    if labels.shape != (size,):
        raise InputError(f"is_member must be one label an item, shape {(size,)}; got shape {labels.shape}")
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise InputError(f"is_member must hold True and False (or 1 and 0), got {np.unique(labels)[:5].tolist()}")
    labels = labels.astype(bool)
    if labels.all() or not labels.any():
        kind = "members" if labels[0] else "non-members"
        raise InputError(f"is_member says that all {size} items are {kind}; a pool needs both")
    return labels


# --- the fixed-pool engine --------------------------------------------------------------------------------------------


@on_own_devices()
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
    **options: Unpack[StudyRunOptions],
) -> StudyResult:
    """FDR and power of PTDI over random splits of a labelled pool, in one pass a split.

    Each repetition splits the pool in halves at random: the non-members of the first, floor(N/2) items, calibrate, the
    others are tested; or, with `test_members` or `calibration_ratio`, it draws sets of fixed sizes. Every method
    decides at every level on the same splits. Decisions are exact and equal those of `tdd.ptdi` on the split, ties
    included (for the moment estimates up to their rounding). A split depends on `key` and on its number alone, and
    sums are integers: the numbers depend neither on devices and shards nor on interruptions.

    Random splits make the items of a pool exchangeable, so that every guarantee of `tdd.ptdi` applies. The rates say
    nothing on items that were not sampled like the pool.

    Args:
      scores: [N] loss-like scores (lower = more member-like), any real type; their order alone matters, but for
        the moment estimates.
      is_member: [N] bool.
      alphas: levels in (0, 1), as exact fractions.
      methods: proportion estimates of `tdd.ptdi`: "none", "storey", "subtraction", "moment", "moment_paper". For
        the last two the members that are not tested are the known ones.
      eta: fraction of the calibration scores in the region of presumed non-members.
      repetitions: largest number of splits.
      key: PRNG key.
      test_members: fraction of the test items that are members (default: half splits; with a ratio alone, the pool's).
      calibration_ratio: n/m, calibration over test items (default: half splits; with a fraction alone, 1).
      target_se: stop once the standard errors of FDR and power of all methods and levels are at most this. They are
        checked whenever the number of repetitions is 8,192 times a power of two, on any devices.
      **options: folder, shard, devices, progress, as in `tdd.study.run`.

    Returns:
      `StudyResult` with arrays [method, alpha].

    Raises:
      InputError: scores or labels that do not fit, options out of range, sizes that the pool cannot give, a folder of
        another study; a shard that does not exist, or without a folder.

    Cost: O(N) a repetition; memory does not grow with `repetitions`.

    >>> rng = np.random.default_rng(0)
    >>> member = np.arange(200) < 100
    >>> scores = rng.normal(size=200) - 2 * member
    >>> result = resample(scores, member, alphas=[0.1, 0.2], repetitions=2_000, key=jax.random.key(0))
    >>> result.fdr.shape, bool((result.fdr <= [0.11, 0.21]).all())
    ((2, 2), True)

    References: PTDI, section 5.1; `tdd.kernels.resample` for the engine.
    """
    started, how = time.perf_counter(), StudyRun(**options)
    values, labels = _as_labelled_pool(scores, is_member)
    names = checks.as_names(methods, engine.PROPORTIONS)
    checks.check_run(repetitions, 0, target_se)
    arrays.check_level(eta, "eta")
    arrays.check_key(key, "a study")
    eta = checks.as_number(eta)
    levels = checks.as_levels(alphas)
    split, num_tests = _split(values, labels, test_members, calibration_ratio)
    devices = how.find_devices()
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
        how=how,
        fingerprint=setting,
        provenance={"engine": "tdd.study.resample", **setting, **sizes, "stopping": None},
        devices=devices,
        started=started,
        title="resample",
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
def _engine(names: tuple[str, ...], num_levels: int, lanes: int, unroll: int, devices: tuple[Any, ...]) -> BlockSums:
    """The compiled program; pools of one size share it, whatever their scores, levels and sizes of splits."""

    def one_block(operands: Any, index: jax.Array, real: jax.Array, totals: tally.Tally) -> tally.Tally:
        pool, split, levels, tails, seed = operands
        root = jax.random.wrap_key_data(seed, impl="threefry2x32")
        keys = jax.vmap(lambda i: jax.random.key_data(jax.random.fold_in(root, i)))(index)
        drawn = engine.draw(pool, split, keys.T, unroll=unroll)
        decided = engine.decide(pool, drawn, levels, proportions=names, tails=tails, unroll=unroll)
        return tally.update(totals, decided.false, decided.selected, drawn.test_members, drawn.num_tests, real=real)

    shape = (len(names), num_levels)
    return sum_over_blocks(one_block, lambda: tally.zero(shape), lanes=lanes, devices=devices)


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
    return values, _as_membership(is_member, len(values))
