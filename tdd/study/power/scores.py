"""Sources of the scores of a planned audit: items with known labels, or two normal laws."""

from __future__ import annotations

import dataclasses
import math
from statistics import NormalDist
from typing import Any, ClassVar

import numpy as np

from tdd.kernels import resample_pool
from tdd.records import Null
from tdd.study.power.checks import as_float
from tdd.study.power.draws import BinormalAudit, PooledAudit, normal_scores, smoothed
from tdd.validate.arrays import check_choice
from tdd.validate.errors import InputError

__all__ = ["LabelledScores", "NormalScores", "ScorePool"]


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
    """Labelled items as a procedure sees them.

    Attributes:
      nulls: [K, N0] loss-like scores of the items under the null.
      targets: [K, N1] those of the items that it is right to select.
      kind: Meaning of the K scores of an item: "one", "several", "knockoffs".
      null: Which items are under the null.
      draw: How items are drawn, as in `LabelledScores`.
      num_scores: K.
      num_nulls: N0.
      num_targets: N1.

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
        members, nonmembers = self._by_label()
        aucs = []
        for low, high in zip(np.sort(members, axis=1), nonmembers, strict=True):
            counts = np.searchsorted(low, high, "left") + np.searchsorted(low, high, "right")
            aucs.append(float(counts.sum()) / (2 * low.size * high.size))
        return aucs

    def words(self) -> str:
        """The source, in words."""
        members, nonmembers = self._by_label()
        auc = "" if self.kind == "knockoffs" else f", AUC {self.aucs()[0]:.3f}"
        more = f" and {len(members) - 1} more scores" if self.kind == "several" and len(members) > 1 else ""
        return f"{self.name}: {members.shape[1]} members, {nonmembers.shape[1]} non-members{auc}{more}"

    def _by_label(self) -> tuple[np.ndarray, np.ndarray]:
        return (self.targets, self.nulls) if self.null == "nonmember" else (self.nulls, self.targets)
