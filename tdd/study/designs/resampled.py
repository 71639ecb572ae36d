"""A labelled pool, split anew in each repetition."""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import Null
from tdd.study import checks
from tdd.study.sample import Sample
from tdd.validate import InputError

__all__ = ["Pool", "as_membership"]


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
    labels = as_membership(is_member, values.shape[-1])
    rows = np.atleast_2d(values)
    narrow = values.astype(np.float32)
    if any(len(np.unique(a)) != len(np.unique(b)) for a, b in zip(np.atleast_2d(narrow), rows, strict=True)):
        raise InputError(
            "Pool: some scores differ by less than single precision tells apart; pass their ranks "
            "(scipy.stats.rankdata, one detector at a time), which every method that compares scores decides alike"
        )
    return narrow, labels


def as_membership(is_member: Any, size: int) -> np.ndarray:
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
