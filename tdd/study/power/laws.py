"""Where the scores of a planned audit come from: a pool of items with known labels, or two normal laws."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist
from typing import Any

import numpy as np

from tdd.kernels import resample_pool
from tdd.records import Null
from tdd.study.power.designs import BinormalAudit, PooledAudit
from tdd.study.power.smoothing import normal_scores, smoothed
from tdd.validate.errors import InputError

__all__ = ["Binormal", "ScorePool", "pool_auc"]


@dataclasses.dataclass(frozen=True)
class Binormal:
    """Scores of members and non-members, both normal.

    Attributes:
      auc: probability that a member scores lower than a non-member.
      sd_ratio: standard deviation of the members' scores in those of the non-members'.
    """

    auc: float
    sd_ratio: float = 1.0

    def design(self, most: tuple[int, int], null: Null) -> BinormalAudit:
        """A design with these many places; its sizes are still to be set."""
        spread = self.sd_ratio if null == "nonmember" else 1 / self.sd_ratio
        signal = math.sqrt(1 + spread**2) * NormalDist().inv_cdf(self.auc)
        return BinormalAudit(*most, 0, 0, 0, signal, spread, null)

    def suffices(self, n: int, m: int, num_targets: int) -> bool:
        """A law never runs out of items."""
        return True

    def drawn(self, exact: bool) -> str:
        """How items are drawn, in words."""
        return "normal laws"

    def words(self) -> str:
        """The source in words."""
        ratio = "" if self.sd_ratio == 1 else f", members' scores with {self.sd_ratio:g} times the standard deviation"
        return f"normal scores of AUC {self.auc:g}{ratio}"


@dataclasses.dataclass(frozen=True)
class ScorePool:
    """Items with known labels.

    Attributes:
      nulls: [K, N0] loss-like scores of the items under the null.
      targets: [K, N1] those of the items that it is right to select.
      kind: what the K scores of an item are: "one", "several", "knockoffs".
      null: which items are under the null.
      name: of the pool, in words.
    """

    nulls: np.ndarray
    targets: np.ndarray
    kind: str
    null: Null
    name: str = "the pool"

    @classmethod
    def of(cls, scores: Any, is_member: Any, kind: str, null: Null, name: str = "the pool") -> ScorePool:
        """From [N] or [K, N] scores and [N] labels.

        Raises:
          InputError: scores or labels that do not fit, only one kind of items.
        """
        values, labels = _as_labelled_scores(scores, is_member, kind)
        members = labels if null == "member" else ~labels
        return cls(values[:, members], values[:, ~members], kind, null, name)

    def prepared(self) -> resample_pool.Pool:
        """Sorted for the fixed-pool engine, which takes "one" score and the null "nonmember"."""
        scores = np.concatenate([self.nulls[0], self.targets[0]])
        return resample_pool.prepare(scores, np.arange(scores.size) >= self.nulls.shape[1])

    def design(self, most: tuple[int, int], null: Null, *, smooth: bool) -> PooledAudit:
        """A design with these many places; its sizes are still to be set."""
        size = self.nulls.shape[1]
        every = np.concatenate([self.nulls, self.targets], axis=1)
        kernels = [np.zeros((len(every), len(every)))] * 2
        if self.kind == "knockoffs":  # decided by differences between the scores of one item: as they are
            every = (every - every.mean()) / (every.std() or 1)
            nulls, targets = every[:, :size], every[:, size:]
        elif smooth:
            every = normal_scores(every)
            (nulls, kernels[0]), (targets, kernels[1]) = smoothed(every[:, :size]), smoothed(every[:, size:])
        else:
            every = np.stack([np.unique(row, return_inverse=True)[1] for row in every])
            nulls, targets = every[:, :size], every[:, size:]
        arrays = [np.asarray(part, np.float32) for part in (nulls, targets, *kernels)]
        return PooledAudit(*most, 0, 0, 0, *arrays, null=null, kind=self.kind, smoothed=smooth)

    def suffices(self, n: int, m: int, num_targets: int) -> bool:
        """Whether such a draw can be made without replacement."""
        own = 0 if self.kind == "knockoffs" else n
        return own + m - num_targets <= self.nulls.shape[1] and num_targets <= self.targets.shape[1]

    def drawn(self, exact: bool) -> str:
        """How items are drawn, in words."""
        if exact:
            return "without replacement"
        return "with replacement" if self.kind == "knockoffs" else "smoothed pool"

    def aucs(self) -> list[float]:
        """P(a member scores lower than a non-member) of each of the K scores."""
        members, others = (self.targets, self.nulls) if self.null == "nonmember" else (self.nulls, self.targets)
        return [pool_auc(*rows) for rows in zip(others, members, strict=True)]

    def words(self) -> str:
        """The source in words."""
        members, others = (self.targets, self.nulls) if self.null == "nonmember" else (self.nulls, self.targets)
        shown = "" if self.kind == "knockoffs" else f", AUC {self.aucs()[0]:.3f}"
        more = f" and {len(members) - 1} more scores" if self.kind == "several" and len(members) > 1 else ""
        return f"{self.name}: {members.shape[1]} members, {others.shape[1]} non-members{shown}{more}"


def pool_auc(nonmembers: np.ndarray, members: np.ndarray) -> float:
    """P(member < non-member) + P(equal)/2 of loss-like scores."""
    low = np.sort(members)
    counts = np.searchsorted(low, nonmembers, "left") + np.searchsorted(low, nonmembers, "right")
    return float(counts.sum()) / (2 * low.size * nonmembers.size)


def _as_labelled_scores(scores: Any, is_member: Any, kind: str) -> tuple[np.ndarray, np.ndarray]:
    """Scores [K, N], finite, and labels [N] bool with both values.

    Args:
      scores: [N], or [K, N].
      is_member: [N] True and False, or 1 and 0.
      kind: "one" (K = 1), "several" (K >= 1) or "knockoffs" (K >= 2).
    """
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"scores must be numbers, [items] or [detectors, items]: {error}") from error
    values = values[None] if values.ndim == 1 else values
    if values.ndim != 2 or values.shape[1] < 2:
        raise InputError(f"scores must be [items] or [detectors, items] with at least two items, got {values.shape}")
    if kind == "one" and len(values) > 1:
        raise InputError(f"scores has {len(values)} rows; this method decides on one score an item: choose a row")
    if kind == "knockoffs" and len(values) < 2:
        raise InputError("knockoffs are missing: ktd needs the scores of at least one paraphrase of each item")
    bad = int((~np.isfinite(values)).any(axis=0).sum())
    if bad:
        raise InputError(f"scores: {bad} of {values.shape[1]} items have a missing or infinite score; leave them out")
    labels = np.asarray(is_member)
    if labels.shape != values.shape[1:]:
        raise InputError(f"is_member must be one label an item, shape {values.shape[1:]}; got {labels.shape}")
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise InputError(f"is_member must hold True and False (or 1 and 0), got {np.unique(labels)[:5].tolist()}")
    labels = labels.astype(bool)
    for word, count in (("member", int(labels.sum())), ("non-member", int((~labels).sum()))):
        if not count:
            raise InputError(
                f"no {word} among the {labels.size} labelled items; power is measured on items of both kinds: known "
                "members and known non-members of the same kind of text"
            )
    return values, labels
