"""Designs: frozen values that draw data sets, `Sample`, with a known truth from laws of scores.

One score an item, scores beside those of knockoffs, several detectors or several models, or shards of a data set in
canonical and shuffled order. Sizes, names of laws and the direction of the null are static; other numbers are data, so
that one compiled program serves a grid over them. Scores are loss-like: lower = more member-like.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, runtime_checkable

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import Evidence, Null, pytree
from tdd.study import checks
from tdd.validate import InputError

_OPTIONAL = frozenset({
    "members", "knockoffs", "calibration_knockoffs", "members_knockoffs", "weights", "calibration_weights", "split",
    "p_values",
})  # fmt: skip


class Sample(NamedTuple):
    """One data set with its truth.

    Attributes:
      calibration: [n] or [K, n] loss-like scores of items for which the null holds.
      scores: [m] or [K, m] loss-like scores of the test items, one row a detector or model.
      target: [m] bool, True where selecting the item is right: the null is false.
      mask: [m] bool, True = real item; None if all are.
      calibration_mask: [n] bool, True = real item; None if all are.
      extra: further data for methods, by name: `knockoffs` [m, k], `calibration_knockoffs` [n, k], `members` [n1],
        `members_knockoffs` [n1, k], `member` [K, m], `canonical` [r], `shuffled` [r, k], `p_values` [m]; `validation`
        [v] or [K, v] scores of items with known labels, and `validation_target` [v] bool, for thresholds.
    """

    calibration: jax.Array
    scores: jax.Array
    target: jax.Array
    mask: jax.Array | None = None
    calibration_mask: jax.Array | None = None
    extra: dict[str, Any] = {}  # noqa: RUF012 - never written to

    @property
    def evidence(self) -> Evidence:
        """The data without the truth, for procedures to decide on."""
        optional = {name: value for name, value in self.extra.items() if name in _OPTIONAL}
        return Evidence(self.calibration, self.scores, self.mask, self.calibration_mask, **optional)


@runtime_checkable
class Design(Protocol):
    """Anything that draws samples.

    `draw` is pure and runs under `jax.vmap` in one compiled program; shapes depend on static fields alone. A design
    that is a registered pytree may have its array fields changed without a new compilation. It may say in `null`
    which items calibrate ("nonmember", "member"): methods made for the other kind are then refused.
    """

    def draw(self, key: jax.Array) -> Sample:
        """One data set, from a PRNG key."""
        ...


SHARD_LAWS = ("normal", "exponential", "lognormal")
_PAIR_LAWS = ("normal", "exponential", "negative_exponential", "lognormal")
_DETECTOR_LAWS = ("normal", "uniform", "exponential", "lognormal")

Labels = Literal["fixed", "random"]
_LABELS = ("fixed", "random")


def _draw_targets(key: jax.Array, num_tests: int, fraction: Any, labels: Labels) -> jax.Array:
    """[m] bool: the first round(fraction·m) items ("fixed"), or each one with probability `fraction` ("random")."""
    if labels == "random":
        return jax.random.bernoulli(key, fraction, (num_tests,))
    return jnp.arange(num_tests) < jnp.rint(jnp.asarray(fraction, jnp.result_type(float)) * num_tests)


def direction(null: str) -> float:
    """-1 where targets are members and score lower, +1 where they are non-members and score higher."""
    return -1.0 if null == "nonmember" else 1.0


@pytree("num_calibration", "num_tests", "null", "labels")
class NormalShift:
    """Independent scores: N(0, 1) under the null, N(-+signal, spread^2) for targets.

    Targets are members and lie lower for `null="nonmember"`, non-members and higher for `null="member"`.

    Attributes:
      num_calibration: n.
      num_tests: m.
      target_share: fraction of the test items that are targets.
      signal: distance of the means, in standard deviations of the null.
      spread: standard deviation of the targets' scores.
      null: the kind of items that calibrate.
      labels: targets are the first round(target_share·m) items, "fixed", or each with that probability, "random".

    >>> import jax
    >>> NormalShift(num_calibration=5, num_tests=4).draw(jax.random.key(0)).target.tolist()
    [True, True, False, False]
    """

    num_calibration: int = 200
    num_tests: int = 200
    target_share: Any = 0.5
    signal: Any = 2.0
    spread: Any = 1.0
    null: Null = "nonmember"
    labels: Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_calibration", "num_tests")
        checks.check_numbers(self, target_share=(0, 1), signal=(None, None), spread=(0, None))
        checks.check_names(self, null=checks.NULLS, labels=_LABELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        calibration_key, test_key, label_key = jax.random.split(key, 3)
        target = _draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        z = jax.random.normal(test_key, (self.num_tests,))
        shifted = direction(self.null) * self.signal + self.spread * z
        scores = jnp.where(target, shifted, z)
        return Sample(jax.random.normal(calibration_key, (self.num_calibration,)), scores, target)


@pytree("num_calibration", "num_tests", "null", "labels")
class Mixture:
    """Independent scores; each law is a mixture of normal components, given as rows (weight, mean, sd).

    Attributes:
      num_calibration: n.
      num_tests: m.
      target_share: fraction of the test items that are targets.
      null_components: [C, 3] of calibration and null items; weights are relative.
      target_components: [D, 3] of targets; by default half of them lie far below the others.
      null: the kind of items that calibrate.
      labels: targets are the first round(target_share·m) items, "fixed", or each with that probability, "random".
    """

    num_calibration: int = 200
    num_tests: int = 200
    target_share: Any = 0.5
    null_components: Any = ((1.0, 0.0, 1.0),)
    target_components: Any = ((1.0, -3.0, 1.0), (1.0, -0.5, 1.0))
    null: Null = "nonmember"
    labels: Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_calibration", "num_tests")
        checks.check_numbers(self, target_share=(0, 1))
        _check_components(self, "null_components")
        _check_components(self, "target_components")
        checks.check_names(self, null=checks.NULLS, labels=_LABELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        calibration_key, null_key, target_key, label_key = jax.random.split(key, 4)
        target = _draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        scores = jnp.where(
            target,
            _draw(target_key, self.target_components, self.num_tests),
            _draw(null_key, self.null_components, self.num_tests),
        )
        return Sample(_draw(calibration_key, self.null_components, self.num_calibration), scores, target)


def _draw(key: jax.Array, components: Any, size: int) -> jax.Array:
    """[size] draws of a mixture."""
    weight, mean, spread = jnp.asarray(components, jnp.result_type(float)).T
    choosing, drawing = jax.random.split(key)
    component = jax.random.categorical(choosing, jnp.log(weight), shape=(size,))
    return mean[component] + spread[component] * jax.random.normal(drawing, (size,))


def _check_components(design: Any, name: str) -> None:
    """Check components of a normal mixture: rows (weight, mean, sd)."""
    value = getattr(design, name)
    if not checks.is_known(value):
        return
    where = f"{type(design).__name__}: {name}"
    try:
        rows = np.asarray(value, float)
    except (TypeError, ValueError) as error:
        raise InputError(f"{where} must be rows (weight, mean, sd): {error}") from error
    if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
        raise InputError(f"{where} must be rows (weight, mean, sd), at least one; got shape {rows.shape}")
    if not np.isfinite(rows).all() or (rows[:, 0] < 0).any() or rows[:, 0].sum() <= 0 or (rows[:, 2] < 0).any():
        raise InputError(f"{where} needs finite means, weights and sds that are not negative; got {value!r}")


@pytree("num_tests", "num_knockoffs", "num_calibration", "num_members", "law", "labels")
class PairedScores:
    """The k + 1 scores of an item, text and knockoffs, are an item's level plus independent draws of one law.

    The own score of a member is lower by `signal`. So the copies of a non-member are exchangeable, and the W of
    non-members are symmetric about 0 for k = 1 but, unless the law is symmetric, not for k > 1.

    Attributes:
      num_tests: m.
      num_knockoffs: k.
      num_calibration: n, known non-members with knockoffs of their own.
      target_share: fraction of the test items that are members.
      signal: shift of a member's own score to lower values.
      item_spread: standard deviation of the items' levels.
      law: "normal" N(0, 1), "exponential" Exp(1), "negative_exponential" -Exp(1), or "lognormal" exp(N(0, 1)).
      labels: targets are the first round(target_share·m) items, "fixed", or each with that probability, "random".
      num_members: n1, known members with knockoffs of their own.
    """

    null: ClassVar[Null] = "nonmember"

    num_tests: int = 200
    num_knockoffs: int = 1
    num_calibration: int = 200
    target_share: Any = 0.5
    signal: Any = 2.0
    item_spread: Any = 1.0
    law: Literal["normal", "exponential", "negative_exponential", "lognormal"] = "normal"
    labels: Labels = "fixed"
    num_members: int = 0

    def __post_init__(self):
        checks.check_counts(self, "num_tests", "num_knockoffs", "num_calibration")
        if self.num_members != 0:
            checks.check_counts(self, "num_members")
        checks.check_numbers(self, target_share=(0, 1), signal=(None, None), item_spread=(0, None))
        checks.check_names(self, law=_PAIR_LAWS, labels=_LABELS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra["knockoffs"]` [m, k] and the other scores with knockoffs beside them."""
        calibration_key, test_key, label_key, member_key = jax.random.split(key, 4)
        target = _draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        calibration, others = self._copies(calibration_key, self.num_calibration)
        scores, knockoffs = self._copies(test_key, self.num_tests)
        extra = {"knockoffs": knockoffs, "calibration_knockoffs": others}
        if self.num_members:
            members, extra["members_knockoffs"] = self._copies(member_key, self.num_members)
            extra["members"] = members - self.signal
        return Sample(calibration, scores - self.signal * target, target, extra=extra)

    def _copies(self, key: jax.Array, size: int) -> tuple[jax.Array, jax.Array]:
        """[size] first copies and [size, k] others."""
        level, single = jax.random.split(key)
        shape = (size, self.num_knockoffs + 1)
        if self.law in ("exponential", "negative_exponential"):
            x = jax.random.exponential(single, shape) * (1 if self.law == "exponential" else -1)
        else:
            x = jax.random.normal(single, shape)
            x = jnp.exp(x) if self.law == "lognormal" else x
        x = x + self.item_spread * jax.random.normal(level, (size, 1))
        return x[:, 0], x[:, 1:]


@pytree("num_detectors", "num_calibration", "num_tests", "null", "law", "labels")
class CorrelatedDetectors:
    """K scores an item, joined by a normal copula with equal correlations, or by Student's.

    Z_k = sqrt(correlation)·Z + sqrt(1 - correlation)·E_k, shifted by -+signal_k for targets (lower for
    `null="nonmember"`, higher for `null="member"`), then brought to the marginal law by an increasing function; ranks,
    and with them every method of `tdd` for several detectors, do not see that function.

    Attributes:
      num_detectors: K.
      num_calibration: n.
      num_tests: m.
      target_share: fraction of the test items that are targets.
      signal: shift, one number or [K], in standard deviations.
      correlation: correlation of any two detectors, in [0, 1].
      degrees: degrees of freedom: the null vector (Z_k) is divided by sqrt(chi^2/degrees), one an item, which makes
        extreme scores of different detectors come together (Student's copula). None: normal.
      null: the kind of items that calibrate.
      law: law of a null score: "normal", "uniform" on (0, 1), "exponential" with mean 1, or "lognormal"; only "normal"
        (no function) where `degrees` are given, and the marginal law is Student's then.
      labels: targets are the first round(target_share·m) items, "fixed", or each with that probability, "random".
    """

    num_detectors: int = 5
    num_calibration: int = 200
    num_tests: int = 200
    target_share: Any = 0.5
    signal: Any = 1.0
    correlation: Any = 0.3
    degrees: Any = None
    null: Null = "member"
    law: Literal["normal", "uniform", "exponential", "lognormal"] = "normal"
    labels: Labels = "fixed"

    def __post_init__(self):
        checks.check_counts(self, "num_detectors", "num_calibration", "num_tests")
        checks.check_numbers(self, target_share=(0, 1), correlation=(0, 1), degrees=(0.1, None))
        _check_signal(self.signal, self.num_detectors)
        checks.check_names(self, null=checks.NULLS, law=_DETECTOR_LAWS, labels=_LABELS)
        if self.degrees is not None and self.law != "normal":
            raise InputError(
                'CorrelatedDetectors: with degrees the law must be "normal" (the margins are Student\'s), got '
                f"{self.law!r}"
            )

    def draw(self, key: jax.Array) -> Sample:
        """One data set."""
        calibration_key, test_key, label_key = jax.random.split(key, 3)
        target = _draw_targets(label_key, self.num_tests, self.target_share, self.labels)
        signal = jnp.broadcast_to(jnp.asarray(self.signal, jnp.result_type(float)), (self.num_detectors,))
        shift = direction(self.null) * signal[:, None] * target
        return Sample(
            self._marginal(self._nulls(calibration_key, self.num_calibration)),
            self._marginal(self._nulls(test_key, self.num_tests) + shift),
            target,
        )

    def _nulls(self, key: jax.Array, size: int) -> jax.Array:
        """[K, size] vectors of the copula, before the marginal law."""
        common, single, scaling = jax.random.split(key, 3)
        rho = jnp.asarray(self.correlation, jnp.result_type(float))
        z = jnp.sqrt(rho) * jax.random.normal(common, (size,))
        z = z + jnp.sqrt(1 - rho) * jax.random.normal(single, (self.num_detectors, size))
        if self.degrees is None:
            return z
        half = jnp.asarray(self.degrees, jnp.result_type(float)) / 2
        return z / jnp.sqrt(jax.random.gamma(scaling, half, (size,)) / half)

    def _marginal(self, z: jax.Array) -> jax.Array:
        """Increasing in z; of the law that is asked for where z is standard normal."""
        if self.law == "uniform":
            return jax.scipy.special.ndtr(z)
        if self.law == "exponential":
            return -jax.scipy.special.log_ndtr(-z)
        return jnp.exp(z) if self.law == "lognormal" else z


def _check_signal(signal: Any, num_detectors: int) -> None:
    """Check for one shift, or one a detector."""
    if not checks.is_known(signal):
        return
    shifts = np.asarray(signal, float)
    if shifts.shape not in ((), (num_detectors,)) or not np.isfinite(shifts).all():
        raise InputError(
            f"CorrelatedDetectors: signal must be one finite number or {num_detectors}, one a detector; got {signal!r}"
        )


@pytree("num_models", "num_calibration", "num_tests")
class JointLabels:
    """Items that all models were trained on calibrate; each of the others is a member of each model at random.

    A test item is a member of each model with the same probability, independently over items and models; targets are
    the items that no model was trained on. Scores are N(-signal·member, 1), independent over items and models:
    loss-like, so that members score lower (the paper has the other sign). The defaults are 30% and 70% of 2,000 items
    and five models.

    Attributes:
      num_models: K.
      num_calibration: n, items that every model was trained on.
      num_tests: m.
      signal: distance between the mean scores of non-members and members, in standard deviations.
      member_share: probability that a test item is a member of one model; a target is a member of none.

    References: JECS, appendix E.1.
    """

    null: ClassVar[Null] = "member"

    num_models: int = 5
    num_calibration: int = 600
    num_tests: int = 1400
    signal: Any = 2.0
    member_share: Any = 0.25

    def __post_init__(self):
        checks.check_counts(self, "num_models", "num_calibration", "num_tests")
        checks.check_numbers(self, signal=(None, None), member_share=(0, 1))

    def draw(self, key: jax.Array) -> Sample:
        """One data set; `extra["member"]` [K, m] says which model was trained on which item."""
        labels, calibration, scores = jax.random.split(key, 3)
        member = jax.random.bernoulli(labels, self.member_share, (self.num_models, self.num_tests))
        return Sample(
            jax.random.normal(calibration, (self.num_models, self.num_calibration)) - self.signal,
            jax.random.normal(scores, (self.num_models, self.num_tests)) - self.signal * member,
            ~jnp.any(member, axis=0),
            extra={"member": member},
        )


@pytree("num_shards", "num_shuffles", "law")
class SkewedShards:
    """Independent log-probabilities of one law for every order of every shard; the canonical ones may be raised.

    The one item to decide on (m = 1) is the data set: selecting it is right where signal·shifted_share > 0. So the
    false discovery rate is the size of a test for `signal=0`, and the power its power otherwise.

    Attributes:
      num_shards: r.
      num_shuffles: k.
      signal: shift of the canonical order, in standard deviations, in the shards that show it.
      shifted_share: fraction of the shards that do (the first round(shifted_share·r)).
      law: "normal", "exponential" (-Exp(1)) or "lognormal" (-exp(N(0, 1))), the latter two with a long left tail; each
        scaled to standard deviation 1.
    """

    null: ClassVar[Null] = "nonmember"

    num_shards: int = 50
    num_shuffles: int = 50
    signal: Any = 0.0
    shifted_share: Any = 1.0
    law: Literal["normal", "exponential", "lognormal"] = "exponential"

    def __post_init__(self):
        checks.check_counts(self, "num_shards", "num_shuffles")
        checks.check_numbers(self, signal=(0, None), shifted_share=(0, 1))
        checks.check_names(self, law=SHARD_LAWS)

    def draw(self, key: jax.Array) -> Sample:
        """One data set: `extra["canonical"]` [r], `extra["shuffled"]` [r, k].

        `calibration` [k] and `scores` [1] are minus the sums over shards: PTDI on them is the permutation test.
        """
        shape = (self.num_shards, self.num_shuffles + 1)
        if self.law == "exponential":
            orders = -jax.random.exponential(key, shape)
        else:
            z = jax.random.normal(key, shape)
            orders = z if self.law == "normal" else -jnp.exp(z) / math.sqrt(math.e * (math.e - 1))
        shown = jnp.arange(self.num_shards) < jnp.rint(jnp.asarray(self.shifted_share, orders.dtype) * self.num_shards)
        orders = orders.at[:, 0].add(self.signal * shown)
        sums = -jnp.sum(orders, axis=0)
        target = (jnp.asarray(self.signal) > 0) & jnp.any(shown)
        return Sample(sums[1:], sums[:1], target[None], extra={"canonical": orders[:, 0], "shuffled": orders[:, 1:]})
