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
from tdd.validate import power as checks

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
        values, labels = checks.as_labelled_scores(scores, is_member, kind)
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
