"""Sources of the scores of a planned audit, and the designs that draw it.

Sizes and number of targets are data of a design, so that one program serves a whole plan.

Draws beyond a pool come from a kernel estimate of its law. Drawn with replacement, a small pool has no scores beyond
its own extremes, while a selection is decided in the tail of the null: the power is overstated, and equal scores hide
false discoveries. Perturbed draws err less, if they are made in a scale without long tails: that of normal scores,
which depend on the order alone, as decisions do. The tests measure both on known laws.
"""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import resample_pool
from tdd.records import Null, pytree
from tdd.study.checks import as_float
from tdd.study.designs import Sample, direction
from tdd.validate import InputError
from tdd.validate.arrays import check_choice

_IQR = 1.349  # interquartile range of N(0, 1)


@dataclasses.dataclass(frozen=True)
class NormalScores:
    """Normal scores of members and of non-members, for a power plan without data.

    Attributes:
      auc: Probability that a member scores lower than a non-member, in (0.5, 1).
      sd_ratio: Standard deviation of the members' scores, in those of the non-members'.

    Raises:
      InputError: An AUC or a ratio out of range.
    """

    draw: ClassVar[str] = "auto"
    num_scores: ClassVar[int] = 1

    auc: float
    sd_ratio: float = 1.0

    def __post_init__(self) -> None:
        if not 0.5 < as_float(self.auc) < 1:
            raise InputError(
                f"auc must lie strictly between 0.5 (no signal) and 1, got {self.auc!r}; it is the probability that a "
                "member scores lower (more member-like) than a non-member"
            )
        ratio = as_float(self.sd_ratio)
        if not (math.isfinite(ratio) and ratio > 0):
            raise InputError(
                "sd_ratio must be a positive number, the standard deviation of the members' scores in those of the "
                f"non-members'; got {self.sd_ratio!r}"
            )

    def suffices(self, n: int, m: int, num_targets: int) -> bool:
        """True: a law does not run out of items."""
        return True

    def without_replacement(self, n: int, m: int, num_targets: int) -> bool:
        """False: a law is not a pool."""
        return False

    def design(self, most: tuple[int, int], null: Null, *, exact: bool) -> BinormalAudit:
        """A design with places for so many calibration items and candidates; its sizes are still to be set."""
        spread = float(self.sd_ratio) if null == "nonmember" else 1 / self.sd_ratio
        signal = math.sqrt(1 + spread**2) * NormalDist().inv_cdf(self.auc)
        return BinormalAudit(*most, 0, 0, 0, signal, spread, null)

    def drawn(self, exact: bool) -> str:
        """The kind of draw, in words."""
        return "normal laws"

    def words(self) -> str:
        """The source, in words."""
        ratio = f", members' scores with {self.sd_ratio:g} times the standard deviation" if self.sd_ratio != 1 else ""
        return f"normal scores of AUC {self.auc:g}{ratio}"


@dataclasses.dataclass(frozen=True, eq=False)
class LabelledScores:
    """Scores of items whose labels are known, from which the audits of a power plan are drawn.

    Attributes:
      scores: [N] loss-like scores (lower = more member-like); [K, N] for several detectors, or for knockoffs (the
        item's score, then those of its K - 1 knockoffs).
      is_member: [N] bool.
      draw: "auto": without replacement where the items suffice, else from a kernel estimate of their laws. "without":
        audits that the items cannot give without replacement are refused. "smoothed": always the kernel estimate.
      name: Name of the items in the report.

    Raises:
      InputError: Scores that are missing, infinite or no numbers, labels that do not fit, items of one kind only.
    """

    scores: Any
    is_member: Any
    draw: str = "auto"
    name: str = "the pool"

    def __post_init__(self) -> None:
        check_choice(self.draw, ("auto", "without", "smoothed"), "draw")
        try:
            scores = np.atleast_2d(np.asarray(self.scores, np.float64))
        except (TypeError, ValueError) as error:
            raise InputError(f"scores must be numbers, [items] or [detectors, items]: {error}") from error
        if scores.ndim != 2 or scores.shape[1] < 2:
            shape = np.shape(self.scores)
            raise InputError(f"scores must be [items] or [detectors, items] with at least two items, got {shape}")
        bad = int((~np.isfinite(scores)).any(axis=0).sum())
        if bad:
            raise InputError(
                f"scores: {bad} of {scores.shape[1]} items have a missing or infinite score; leave them out"
            )
        labels = np.asarray(self.is_member)
        if labels.shape != scores.shape[1:]:
            raise InputError(f"is_member must be one label an item, shape {scores.shape[1:]}; got {labels.shape}")
        if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
            raise InputError(f"is_member must hold True and False (or 1 and 0), got {np.unique(labels)[:5].tolist()}")
        labels = labels.astype(bool)
        for word, count in (("member", int(labels.sum())), ("non-member", int((~labels).sum()))):
            if not count:
                raise InputError(
                    f"no {word} among the {labels.size} labelled items; power is measured on items of both kinds: "
                    "known members and known non-members of the same kind of text"
                )
        object.__setattr__(self, "scores", scores)
        object.__setattr__(self, "is_member", labels)


class ScorePool:
    """Labelled items as a procedure sees them: `nulls` [K, N0] under the null, `targets` [K, N1] right to select.

    The K scores of an item are "one", of "several" detectors, or its own and those of its K - 1 "knockoffs" (`kind`).

    Raises:
      InputError: More or fewer scores of an item than the procedure takes.
    """

    def __init__(self, source: LabelledScores, kind: str, null: Null):
        rows = len(source.scores)
        if kind == "one" and rows > 1:
            raise InputError(f"scores has {rows} rows; this method decides on one score an item: choose a row")
        if kind == "knockoffs" and rows < 2:
            raise InputError("knockoffs are missing: ktd needs the scores of at least one paraphrase of each item")
        is_null = source.is_member if null == "member" else ~source.is_member
        self.nulls, self.targets = source.scores[:, is_null], source.scores[:, ~is_null]
        self.kind, self.null, self.draw, self.name = kind, null, source.draw, source.name
        self.members, self.nonmembers = (
            (self.targets, self.nulls) if null == "nonmember" else (self.nulls, self.targets)
        )
        self.num_scores, self.num_nulls = self.nulls.shape
        self.num_targets = self.targets.shape[1]

    def suffices(self, n: int, m: int, num_targets: int) -> bool:
        """Whether the pool can give an audit without replacement."""
        calibration = 0 if self.kind == "knockoffs" else n
        return calibration + m - num_targets <= self.num_nulls and num_targets <= self.num_targets

    def without_replacement(self, n: int, m: int, num_targets: int) -> bool:
        """Whether an audit is drawn without replacement.

        Raises:
          InputError: It must be, and the pool is too small.
        """
        suffices = self.suffices(n, m, num_targets)
        if self.draw == "without" and not suffices:
            n = 0 if self.kind == "knockoffs" else n
            words = ("non-members", "members")
            null_word, target_word = words if self.null == "nonmember" else reversed(words)
            raise InputError(
                f"without replacement the pool cannot give {n + m - num_targets} {null_word} ({n} to calibrate, "
                f"{m - num_targets} among the candidates) and {num_targets} {target_word}: it has {self.num_nulls} and "
                f'{self.num_targets}. Ask for fewer, or let such draws be extrapolated, draw="auto"'
            )
        return suffices and self.draw != "smoothed"

    def prepared(self) -> resample_pool.Pool:
        """The items sorted for the fixed-pool engine, which takes kind "one" and null "nonmember"."""
        scores = np.concatenate([self.nulls[0], self.targets[0]])
        return resample_pool.prepare(scores, np.arange(scores.size) >= self.num_nulls)

    def design(self, most: tuple[int, int], null: Null, *, exact: bool) -> PooledAudit:
        """A design with places for so many calibration items and candidates; its sizes are still to be set."""
        scores = np.concatenate([self.nulls, self.targets], axis=1)
        kernels = [np.zeros((len(scores), len(scores)))] * 2
        if self.kind == "knockoffs":  # decided by differences between the scores of one item: as they are
            scores = (scores - scores.mean()) / (scores.std() or 1)
        elif exact:
            scores = np.stack([np.unique(row, return_inverse=True)[1] for row in scores])
        else:
            scores = normal_scores(scores)
        nulls, targets = scores[:, : self.num_nulls], scores[:, self.num_nulls :]
        if self.kind != "knockoffs" and not exact:
            (nulls, kernels[0]), (targets, kernels[1]) = smoothed(nulls), smoothed(targets)
        arrays = [np.asarray(part, np.float32) for part in (nulls, targets, *kernels)]
        return PooledAudit(*most, 0, 0, 0, *arrays, null=null, kind=self.kind, smoothed=not exact)

    def drawn(self, exact: bool) -> str:
        """The kind of draw, in words."""
        if exact:
            return "without replacement"
        return "with replacement" if self.kind == "knockoffs" else "smoothed pool"

    def aucs(self) -> list[float]:
        """P(member < non-member) + P(equal)/2 for each of the K scores."""
        aucs = []
        for low, high in zip(np.sort(self.members, axis=1), self.nonmembers, strict=True):
            counts = np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")
            aucs.append(float(counts.sum()) / (2 * low.size * high.size))
        return aucs

    def words(self) -> str:
        """The source, in words."""
        auc = "" if self.kind == "knockoffs" else f", AUC {self.aucs()[0]:.3f}"
        more = f" and {self.num_scores - 1} more scores" if self.kind == "several" and self.num_scores > 1 else ""
        return f"{self.name}: {self.members.shape[1]} members, {self.nonmembers.shape[1]} non-members{auc}{more}"


@pytree("most_calibration", "most_tests", "null")
class BinormalAudit:
    """n calibration items N(0, 1) and m candidates, the first `num_targets` of them N(-+signal, spread^2).

    The random numbers of a place do not depend on the sizes: with more targets or items the others stay as they were.
    """

    most_calibration: int  # places for calibration items, at least n
    most_tests: int  # places for candidates, at least m
    num_calibration: Any
    num_tests: Any
    num_targets: Any
    signal: Any
    spread: Any = 1.0
    null: Null = "nonmember"

    def draw(self, key: jax.Array) -> Sample:
        """One audit."""
        calibration_key, test_key = jax.random.split(key)
        target, masks = _places(self)
        z = jax.random.normal(test_key, (self.most_tests,))
        scores = jnp.where(target, direction(self.null) * self.signal + self.spread * z, z)
        return Sample(jax.random.normal(calibration_key, (self.most_calibration,)), scores, target, **masks)


@pytree("most_calibration", "most_tests", "null", "kind", "smoothed")
class PooledAudit:
    """Calibration items and candidates from a pool of items with known labels.

    Not smoothed: drawn without replacement. Smoothed: drawn with replacement and perturbed, a kernel estimate of the
    two laws. Sizes as in `BinormalAudit`, scores and kind as in `ScorePool`.
    """

    most_calibration: int
    most_tests: int
    num_calibration: Any
    num_tests: Any
    num_targets: Any
    nulls: Any
    targets: Any
    null_kernel: Any  # [K, K] factor of the covariance of the nulls' perturbation; zeros where not smoothed
    target_kernel: Any  # [K, K] likewise for the targets
    null: Null = "nonmember"
    kind: str = "one"
    smoothed: bool = False

    def draw(self, key: jax.Array) -> Sample:
        """One audit."""
        target, masks = _places(self)
        draw = self._with_replacement if self.smoothed else self._without_replacement
        calibration, scores = draw(key, target)
        if self.kind == "several":
            return Sample(calibration, scores, target, **masks)
        extra = {"knockoffs": scores[1:].T} if self.kind == "knockoffs" else {}
        return Sample(calibration[0], scores[0], target, extra=extra, **masks)

    def _without_replacement(self, key: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        null_key, target_key = jax.random.split(key)
        nulls = jax.random.permutation(null_key, jnp.asarray(self.nulls).shape[1])
        targets = jax.random.permutation(target_key, jnp.asarray(self.targets).shape[1])
        place = jnp.arange(self.most_tests)
        # Places beyond the sizes repeat the last item: the masks leave them out.
        calibration = jnp.take(nulls, jnp.arange(self.most_calibration), mode="clip")
        # Knockoffs set no item aside to calibrate: the last candidate wraps around to the first item.
        null_tests = jnp.take(nulls, self.num_calibration + place - self.num_targets, mode="wrap")
        target_tests = jnp.take(targets, place, mode="clip")
        scores = jnp.where(
            target, jnp.take(self.targets, target_tests, axis=1), jnp.take(self.nulls, null_tests, axis=1)
        )
        return jnp.take(self.nulls, calibration, axis=1), scores

    def _with_replacement(self, key: jax.Array, target: jax.Array) -> tuple[jax.Array, jax.Array]:
        calibration_key, null_key, target_key = jax.random.split(key, 3)
        calibration = _perturbed(calibration_key, self.nulls, self.null_kernel, self.most_calibration)
        scores = jnp.where(
            target,
            _perturbed(target_key, self.targets, self.target_kernel, self.most_tests),
            _perturbed(null_key, self.nulls, self.null_kernel, self.most_tests),
        )
        return calibration, scores


def _places(design: BinormalAudit | PooledAudit) -> tuple[jax.Array, dict[str, Any]]:
    """[most_tests] bool, the places of targets, and the masks of the places that hold items at all."""
    place = jnp.arange(design.most_tests)
    masks = {
        "mask": place < design.num_tests,
        "calibration_mask": jnp.arange(design.most_calibration) < design.num_calibration,
    }
    return place < design.num_targets, masks


def _perturbed(key: jax.Array, values: Any, kernel: Any, size: int) -> jax.Array:
    """[K, size] items of a pool, drawn with replacement, each moved by a normal vector."""
    index_key, move_key = jax.random.split(key)
    values = jnp.asarray(values)
    index = jax.random.randint(index_key, (size,), 0, values.shape[1])
    z = jax.random.normal(move_key, (values.shape[0], size))
    return values[:, index] + jnp.matmul(jnp.asarray(kernel), z, precision=jax.lax.Precision.HIGHEST)


def normal_scores(values: np.ndarray) -> np.ndarray:
    """[K, N] standard normal quantiles of (rank - 1/2)/N, row by row; equal values share the mean of their ranks."""
    from scipy.stats import rankdata

    places = (rankdata(values, axis=1) - 0.5) / values.shape[1]
    return np.asarray(jax.scipy.special.ndtri(places), np.float64)


def smoothed(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Shrink the values of a pool towards their means, and give the factor of the perturbation's covariance.

    With h Silverman's bandwidth in K dimensions and s the smaller of the standard deviation and IQR/1.349 of a row, a
    draw is mean + (x - mean + h s e)/sqrt(1 + h^2 s^2/sd^2), with e normal and correlated as the rows are.

    Args:
      values: [K, N] scores of one kind of items.

    Returns:
      [K, N] values and [K, K] factor F: a draw is values[:, i] + F z with z ~ N(0, I). A single item, and rows that do
      not vary, are not moved.

    References: Silverman (1986), Density Estimation, sections 3.4, 4.3 and 6.4.1.
    """
    dimensions, size = values.shape
    mean = values.mean(axis=1, keepdims=True)
    if size < 2:
        return values, np.zeros((dimensions, dimensions))
    sd = values.std(axis=1, ddof=1)
    quartiles = np.quantile(values, (0.25, 0.75), axis=1)
    iqr = (quartiles[1] - quartiles[0]) / _IQR
    scale = np.where(iqr > 0, np.minimum(sd, iqr), sd)
    width = (4 / ((dimensions + 2) * size)) ** (1 / (dimensions + 4)) * scale
    varies = np.where(sd > 0, sd, 1)
    shrink = 1 / np.sqrt(1 + (width / varies) ** 2)
    unit = (values - mean) / varies[:, None]
    correlation = unit @ unit.T / (size - 1)
    strength, axes = np.linalg.eigh(correlation)
    root = axes * np.sqrt(np.maximum(strength, 0))
    return mean + shrink[:, None] * (values - mean), (shrink * width)[:, None] * root
