"""The procedures of `tdd` as values: functions with their options, for audits, studies and power plans."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from fractions import Fraction
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from tdd.kernels import stepup
from tdd.kernels.weighted import PRUNES
from tdd.procedures import best_score as best
from tdd.procedures import clusters, jecs, ktd, p_values, ptdi, td4eval, testing, weighted
from tdd.procedures.bounds import fdp_bounds, fdp_bounds_of_ranks, knockoff_fdp_bounds
from tdd.procedures.calls import exact_fraction, level_operand
from tdd.procedures.procedure import Procedure, check_options
from tdd.records import CombinedSelection, Evidence, Guarantee, JointSelection, KnockoffSelection, Selection
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEE_ROWS", "JECS", "JMCS", "KTD", "PTDI", "BestScore", "ConditionalBH", "TD4Eval", "Weighted"]

_UNKNOWN_MAXIMUM = "the distribution of the largest of several p-values under the null is unknown"


@dataclasses.dataclass(frozen=True)
class _WithOption(Procedure):
    """A procedure whose label and guarantee follow from one option."""

    _option: ClassVar[str]
    _guarantees: ClassVar[Mapping[str, Guarantee]]

    @property
    def label(self) -> str:
        return f"{self.name}/{getattr(self, self._option)}"

    @property
    def guarantee(self) -> Guarantee:
        return self._guarantees[getattr(self, self._option)]


@dataclasses.dataclass(frozen=True)
class PTDI(_WithOption):
    """`tdd.ptdi`, or `tdd.cluster_ptdi` if the evidence comes in clusters.

    Attributes:
      proportion: estimator of the proportion of members, "none", "subtraction", "storey" or "moment".
      eta: fraction of the calibration scores in the region of presumed non-members.
      unit: unit of decision if items come in clusters, "cluster", "item" or "drawn".

    Raises:
      InputError: an option out of range; with unit="item", which decides by e-values, an estimate of the proportion.
    """

    name = "ptdi"
    _option = "proportion"
    _guarantees = ptdi.GUARANTEES

    proportion: ptdi.ProportionName = "storey"
    eta: float = 0.05
    unit: Literal["cluster", "item", "drawn"] = "cluster"

    def __post_init__(self) -> None:
        check_options(self, proportion=ptdi.PROPORTIONS, unit=clusters.UNITS)
        arrays.check_level(self.eta, "eta")
        if self.unit == "item":
            for name in ("proportion", "eta"):
                if (value := getattr(self, name)) != getattr(PTDI, name):
                    raise InputError(
                        f"{name}={value!r} has no use with unit='item', which decides by e-values; leave it out"
                    )

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "members") if self.proportion == "moment" else ("calibration",)

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        options: dict[str, Any] = {"alpha": alpha, "proportion": self.proportion, "eta": self.eta, **_masks(evidence)}
        if evidence.clusters:
            labels = evidence.calibration_clusters, evidence.clusters
            return clusters.cluster_ptdi(
                evidence.calibration, evidence.scores, *labels, unit=self.unit, key=key, **options
            )
        members = evidence.members if self.proportion == "moment" else None
        return ptdi.ptdi(evidence.calibration, evidence.scores, members=members, **options)

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"unit": self.unit} if self.unit == "item" else super().record()

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        scaled = self.proportion in ("storey", "subtraction")
        scale = Fraction(max(m - num_targets, 1), m) if scaled else Fraction(1)
        return _min_selections_by_rank(n, m, alpha, scale)

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        if not isinstance(selection, clusters.ClusterSelection):
            return []
        tested, calibrated = int(selection.num_clusters), int(selection.num_calibration)
        found = ("clusters", f"{tested} of candidates, {calibrated} of calibration items")
        return [found, ("clusters with a selected item", str(int(np.asarray(selection.cluster_selected).sum())))]

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if evidence.clusters:
            return "decisions are by cluster, and the bounds are for items that are exchangeable one by one"
        return fdp_bounds(evidence.calibration, evidence.scores, null="nonmember", **_masks(evidence), **draws)


@dataclasses.dataclass(frozen=True)
class BestScore(Procedure):
    """`tdd.best_score`.

    Attributes:
      rule: "deterministic", or "randomized": e-BH with randomised e-values, more power.
    """

    name = "best_score"
    no_bounds = "the scores were chosen from the data; name one score for bounds"
    columns = "detectors"

    rule: Literal["deterministic", "randomized"] = "deterministic"

    def __post_init__(self) -> None:
        check_options(self, rule=("deterministic", "randomized"))

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return best.GUARANTEES["best_score"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        key = key if self.rule == "randomized" else None
        return best.best_score(evidence.calibration, evidence.scores, alpha=alpha, key=key, **_masks(evidence))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return _weights_of_detectors(evidence, selection)


GIVEN_CALIBRATION = {
    rule: Guarantee(
        "FDR <= alpha given the calibration sample, with probability 1 - delta over such samples",
        (*record.assumes, "the candidates are independent of one another"),
        record.kind,
        f"{record.source}; Benjamini & Hochberg (1995)",
    )
    for rule, record in p_values.CONDITIONAL.items()
}


@dataclasses.dataclass(frozen=True)
class ConditionalBH(_WithOption):
    """BH on p-values that hold for the calibration sample at hand, `tdd.calibration_conditional_p_values`.

    Attributes:
      rule: table of bounds, "simes", "dkwm", "monte_carlo" or "asymptotic".
      delta: probability over calibration samples that the level does not hold.
    """

    name = "conditional"
    no_bounds = "method=ptdi has bounds for the same scores"
    _option = "rule"
    _guarantees = GIVEN_CALIBRATION

    rule: Literal["simes", "dkwm", "monte_carlo", "asymptotic"] = "simes"
    delta: float = 0.05

    def __post_init__(self) -> None:
        check_options(self, rule=tuple(p_values.CONDITIONAL))
        arrays.check_level(self.delta, "delta")

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        drawn = {"key": key, "num_draws": max(999, math.ceil(1 / self.delta))} if self.rule == "monte_carlo" else {}
        options: dict[str, Any] = {"null": self.null, "delta": self.delta, "method": self.rule, **drawn}
        p, smallest, n = p_values.conditional_p_values(
            evidence.calibration, evidence.scores, **options, **_masks(evidence)
        )
        step = testing.bh(p, alpha)
        scale = ((smallest, step.num_tests), (1,))
        return self.selection(step, p, n, stepup.min_rejections(level_operand(alpha), len(p), scale=scale))

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"rule": self.rule, **({} if self.delta == ConditionalBH.delta else {"calibration_delta": self.delta})}


@dataclasses.dataclass(frozen=True)
class Weighted(Procedure):
    """`tdd.weighted_conformal_selection`, under a known covariate shift.

    Attributes:
      rule: rule of the pruning, "heterogeneous", "homogeneous" or "deterministic".
    """

    name = "weighted"
    no_bounds = "the distribution of the weighted ranks under the null is unknown"

    rule: Literal["heterogeneous", "homogeneous", "deterministic"] = "heterogeneous"

    def __post_init__(self) -> None:
        check_options(self, rule=PRUNES)

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "weights", "calibration_weights")

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return weighted.GUARANTEES[self.rule]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        return weighted.weighted_conformal_selection(
            evidence.calibration,
            evidence.scores,
            evidence.calibration_weights,
            evidence.weights,
            alpha=alpha,
            null=self.null,
            prune=self.rule,
            key=key,
            **_masks(evidence),
        )

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, weighted.WeightedSelection)
        size = float(selection.effective_sample_size)
        return [("effective calibration size", f"{size:.1f} equally weighted items")]


@dataclasses.dataclass(frozen=True)
class KTD(_WithOption):
    """`tdd.ktd`, by knockoffs (paraphrases).

    Attributes:
      rule: "multi", "derandomized", "closed", "conformal" or "ktd", the paper's.
      proportion: for rule="conformal": "storey" (the default there) or "none".
      offset: 1 controls the FDR, 0 a modified one.
    """

    name = "ktd"
    _option = "rule"
    score = "grad_norm"
    long_texts = "truncate"

    rule: ktd.Rule = "multi"
    proportion: Literal["storey", "none"] | None = None
    offset: int = 1

    def __post_init__(self) -> None:
        check_options(self, rule=ktd.RULES)
        ktd.check_offset(self.offset, self.rule)
        if self.rule != "conformal" and self.proportion is not None:
            raise InputError(
                f"proportion={self.proportion!r} belongs to rule 'conformal' of method 'ktd'; leave it out"
            )
        if self.rule == "conformal":
            object.__setattr__(self, "proportion", self.proportion or "storey")
            check_options(self, proportion=ktd.PROPORTIONS)

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "knockoffs", "calibration_knockoffs") if self.rule == "conformal" else ("knockoffs",)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee for several knockoffs an item; that of a selection is for the actual number."""
        return ktd.guarantee_of(self.rule, self.proportion, self.offset, 2)

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        options: dict[str, Any] = {}
        if self.rule == "conformal":
            options = {
                "calibration": evidence.calibration,
                "calibration_knockoffs": evidence.calibration_knockoffs,
                "calibration_mask": evidence.calibration_mask,
                "proportion": self.proportion,
            }
        elif self.offset != 1:
            options = {"offset": self.offset}
        return ktd.ktd(evidence.scores, evidence.knockoffs, alpha=alpha, rule=self.rule, mask=evidence.mask, **options)

    def record(self) -> dict[str, Any]:  # noqa: D102
        plain = {"rule": self.rule} if self.proportion is None else {"rule": self.rule, "proportion": self.proportion}
        return plain if self.offset == 1 else {**plain, "offset": self.offset}

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        if self.rule == "conformal":
            return PTDI(self.proportion or "storey").min_selections(n, m, num_targets, alpha)
        copies = num_knockoffs if self.rule == "multi" else 1
        return min(m + 1, max(1, math.ceil(self.offset / (exact_fraction(alpha) * copies))))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, KnockoffSelection)
        cut = float(selection.cut)
        return [
            ("knockoffs an item", str(evidence.knockoffs.shape[1])),
            ("statistic of an item", _STATISTICS[self.rule]),
            ("threshold of the statistic", f"{cut:.4g}" if np.isfinite(cut) else "none qualifies"),
        ]

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        tied = (evidence.knockoffs == evidence.scores[:, None]).any(axis=1)
        num_tied = int((tied if evidence.mask is None else tied & evidence.mask).sum())
        single = evidence.knockoffs.shape[1] == 1 and self.rule != "conformal"
        if not num_tied or not (single or self.rule == "multi"):
            return []
        return [f"{num_tied} candidates have the same score as one of their knockoffs; a tie is never selected"]

    def bounds(self, evidence: Evidence, selection: Selection, *, delta: float, **draws: Any) -> Any:  # noqa: D102
        if self.rule == "conformal":
            calibration = evidence.calibration - evidence.calibration_knockoffs.mean(axis=1)
            scores = evidence.scores - evidence.knockoffs.mean(axis=1)
            return fdp_bounds(calibration, scores, null="nonmember", delta=delta, **_masks(evidence), **draws)
        if evidence.knockoffs.shape[1] == 1 and self.rule in ("ktd", "multi"):
            assert isinstance(selection, KnockoffSelection)
            return knockoff_fdp_bounds(selection.statistic, delta=delta)
        return "only rule=conformal, and the signs of one knockoff an item (rule=ktd or multi), have bounds"


_W = "W = mean score of its knockoffs - its own; large = member"
_STATISTICS = {
    "ktd": _W,
    "conformal": f"{_W}; ranked among those of the calibration items",
    "multi": "gap between its score and the lowest of its knockoffs; negative if a knockoff scores lowest",
    "derandomized": "its e-value, averaged over the knockoffs",
    "closed": "its e-value, averaged over the knockoffs",
}


@dataclasses.dataclass(frozen=True)
class TD4Eval(_WithOption):
    """`tdd.td4eval`, by several detectors.

    Attributes:
      combine: rule by which the detectors are combined.
      rule: combination of pooled ranks, "sum" or "cauchy"; empty for the default.
      weights: weights of the detectors, fixed beforehand; empty for equal ones.
    """

    name = "td4eval"
    _option = "combine"
    _guarantees = td4eval.GUARANTEES
    null = "member"
    columns = "detectors"

    combine: td4eval.Combination = "pooled_rank"
    rule: Literal["", "sum", "cauchy"] = ""
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "weights", tuple(self.weights))
        td4eval.check_options(self.combine, rule=self.rule or None, weights=self.weights or None)
        if self.weights:
            arrays.check_weights(arrays.as_vector(self.weights, "weights"))

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        drawn = self.combine == "random" or (self.combine == "split_weights" and evidence.split is None)
        return td4eval.td4eval(
            evidence.calibration,
            evidence.scores,
            alpha=alpha,
            combine=self.combine,
            rule=self.rule or None,
            weights=self.weights or None,
            split=evidence.split,
            key=key if drawn else None,  # otherwise a key would break ties at random
            **_masks(evidence),
        )

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        return _min_selections_by_rank(n, m, alpha)

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return _weights_of_detectors(evidence, selection)

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        assert isinstance(selection, CombinedSelection)
        if self.combine == "cauchy" and not np.asarray(selection.num_rejected_alone).any():
            return ["no detector rejects anything alone, so the detectors were weighted equally"]
        return []

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if self.combine not in ("pooled_rank", "split_weights"):
            return "the distribution of merged p-values under the null is unknown; combine=pooled_rank has bounds"
        n, p = int(selection.num_calibration), np.asarray(selection.p_values)
        tested = ~np.isnan(p)
        rank = np.where(tested, np.rint(np.nan_to_num(p, nan=1.0) * (n + 1)), n + 1).astype(np.int64)
        return fdp_bounds_of_ranks(rank, n, null=self.null, mask=tested, **draws)


@dataclasses.dataclass(frozen=True)
class JMCS(_WithOption):
    """`tdd.jmcs`, for several models at once.

    Attributes:
      rule: "bh", "storey" or "by".
      eta: fraction of the calibration scores in the region of presumed members ("storey").
    """

    name = "jmcs"
    no_bounds = _UNKNOWN_MAXIMUM
    _option = "rule"
    _guarantees = jecs.GUARANTEES
    null = "member"
    columns = "models"

    rule: jecs.Rule = "bh"
    eta: float = 0.5

    def __post_init__(self) -> None:
        check_options(self, rule=jecs.RULES)
        arrays.check_level(self.eta, "eta")

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        options: dict[str, Any] = {"alpha": alpha, "rule": self.rule, "eta": self.eta, **_masks(evidence)}
        return jecs.jmcs(evidence.calibration, evidence.scores, **options)


@dataclasses.dataclass(frozen=True)
class JECS(Procedure):
    """`tdd.jecs`, for several models at once.

    Attributes:
      grid: candidate edges of the envelope; empty for the default ones.
      neighbours: function from m to the number of nearest p-values for the density at an edge; None for the default.
    """

    name = "jecs"
    no_bounds = _UNKNOWN_MAXIMUM
    null = "member"
    columns = "models"

    grid: tuple[float, ...] = ()
    neighbours: Callable[[int], int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(self.grid))
        if self.grid:
            jecs.checked_grid(self.grid)
        jecs.check_neighbours(self.neighbours)

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return jecs.GUARANTEES["jecs" if self.neighbours is None else "jecs, neighbours"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        grid = self.grid or jecs.GRID
        options: dict[str, Any] = {"alpha": alpha, "grid": grid, "neighbours": self.neighbours, **_masks(evidence)}
        return jecs.jecs(evidence.calibration, evidence.scores, **options)

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"grid": list(self.grid)}

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, JointSelection)
        envelope = selection.envelope
        if not bool(envelope.fitted):
            return [("envelope", "not fitted: too few p-values above every grid point")]
        return [("envelope", f"slope {float(envelope.slope):.3g} up to tau = {float(envelope.tau):.3g}")]

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        assert isinstance(selection, JointSelection)
        if bool(selection.envelope.fitted):
            return []
        return ["the envelope could not be fitted, so this is the selection of JMCS"]


GUARANTEE_ROWS = [
    ("tdd.select", f'method="conditional", rule="{rule}"', guarantee) for rule, guarantee in GIVEN_CALIBRATION.items()
]


def _min_selections_by_rank(n: int, m: int, alpha: float, scale: Fraction = Fraction(1)) -> int:
    """Return the smallest k with scale/(n + 1) <= alpha k/m, m + 1 if there is none: no step-up rejects fewer of m."""
    return min(m + 1, max(1, math.ceil(scale * m / (exact_fraction(alpha) * (n + 1)))))


def _masks(evidence: Evidence) -> dict[str, Any]:
    return {"mask": evidence.mask, "calibration_mask": evidence.calibration_mask}


def _weights_of_detectors(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, CombinedSelection)
    weights, counts = np.asarray(selection.weights), np.asarray(selection.num_rejected_alone)
    parts = [
        f"{name} {weight:.3g} ({count})" for name, weight, count in zip(evidence.names, weights, counts, strict=True)
    ]
    return [("weight of each detector (what it would select alone)", ", ".join(parts))]
