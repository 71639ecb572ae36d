"""The procedures of `tdd` as values: its functions with their options, for audits, studies and power plans."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any, ClassVar, Literal

import jax
import numpy as np

from tdd.kernels import lattice, pooled_ranks, weighted
from tdd.procedures import clusters
from tdd.procedures.best_score import GUARANTEES as BEST_SCORE
from tdd.procedures.best_score import best_score
from tdd.procedures.bounds import fdp_bounds, fdp_bounds_of_ranks, knockoff_fdp_bounds
from tdd.procedures.conditional import GUARANTEES as CONDITIONAL
from tdd.procedures.conditional import calibration_conditional_p_values
from tdd.procedures.jecs import GRID, checked_grid, jecs, jmcs
from tdd.procedures.jecs import GUARANTEES as JOINT
from tdd.procedures.jecs import RULES as JMCS_RULES
from tdd.procedures.ktd import GUARANTEES as KNOCKOFFS
from tdd.procedures.ktd import RULES as KTD_RULES
from tdd.procedures.ktd import ktd
from tdd.procedures.procedure import Procedure, check_options
from tdd.procedures.ptdi import GUARANTEES as PTDI_GUARANTEES
from tdd.procedures.ptdi import PROPORTIONS, ptdi
from tdd.procedures.td4eval import COMBINATIONS, td4eval
from tdd.procedures.td4eval import GUARANTEES as TD4EVAL_GUARANTEES
from tdd.procedures.testing import bh
from tdd.procedures.weighted import GUARANTEES as WEIGHTED_GUARANTEES
from tdd.procedures.weighted import WeightedSelection, weighted_conformal_selection
from tdd.records import CombinedSelection, Evidence, Guarantee, JointSelection, KnockoffSelection, Null, Selection
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEE_ROWS", "JECS", "JMCS", "KTD", "PTDI", "BestScore", "ConditionalBH", "TD4Eval", "Weighted"]

_UNKNOWN_LAW = "the law of the largest of several p-values under the null is not known"


@dataclasses.dataclass(frozen=True)
class PTDI(Procedure):
    """`tdd.ptdi`; `tdd.cluster_ptdi` where the evidence comes in clusters.

    Attributes:
      proportion: how the proportion of members is estimated, "none", "subtraction", "storey" or "moment".
      eta: region of presumed non-members.
      unit: what is decided on where items come in clusters, "cluster", "item" or "drawn".

    Raises:
      InputError: an option out of range; with unit="item", which decides by e-values, an estimate of the proportion.
    """

    name: ClassVar[str] = "ptdi"

    proportion: str = "storey"
    eta: float = 0.05
    unit: str = "cluster"

    def __post_init__(self) -> None:
        check_options(self, proportion=PROPORTIONS, unit=("cluster", "item", "drawn"))
        arrays.check_level(self.eta, "eta")
        if self.unit == "item":
            plain = {"proportion": PTDI.proportion, "eta": PTDI.eta}
            _check_unscaled(**{name: x if (x := getattr(self, name)) != y else None for name, y in plain.items()})

    @property
    def label(self) -> str:  # noqa: D102
        return f"ptdi/{self.proportion}"

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "members") if self.proportion == "moment" else ("calibration",)

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return PTDI_GUARANTEES[self.proportion]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        how: dict[str, Any] = {"alpha": alpha, "proportion": self.proportion, "eta": self.eta}
        how |= {"mask": evidence.mask, "calibration_mask": evidence.calibration_mask}
        if evidence.clusters:
            own = evidence.calibration_clusters
            return clusters.cluster_ptdi(
                evidence.calibration, evidence.scores, own, evidence.clusters, unit=_any(self.unit), key=key, **how
            )
        members = evidence.members if self.proportion == "moment" else None
        return ptdi(evidence.calibration, evidence.scores, members=members, **how)

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"unit": self.unit} if self.unit == "item" else super().record()

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        scaled = self.proportion in ("storey", "subtraction")
        return fewest_by_rank(n, m, alpha, max(Fraction(m - num_targets, m), Fraction(1, m)) if scaled else Fraction(1))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        if not isinstance(selection, clusters.ClusterSelection):
            return []
        number, chosen = int(selection.num_clusters), int(np.asarray(selection.cluster_selected).sum())
        return [
            ("clusters", f"{number} of candidates, {int(selection.num_calibration)} of calibration items"),
            ("clusters with a selected item", str(chosen)),
        ]

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if evidence.clusters:
            return "decisions are by cluster, and the bounds are for items that are exchangeable one by one"
        return fdp_bounds(evidence.calibration, evidence.scores, null="nonmember", **draws)


@dataclasses.dataclass(frozen=True)
class BestScore(Procedure):
    """`tdd.best_score`.

    Attributes:
      rule: "deterministic", or "randomized": e-BH with randomised e-values, more power.

    Raises:
      InputError: an unknown rule.
    """

    name: ClassVar[str] = "best_score"
    columns: ClassVar[Literal["one", "detectors", "models"]] = "detectors"

    rule: str = "deterministic"

    def __post_init__(self) -> None:
        check_options(self, rule=("deterministic", "randomized"))

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return BEST_SCORE["best_score"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        return best_score(
            evidence.calibration,
            evidence.scores,
            alpha=alpha,
            key=key if self.rule == "randomized" else None,
            **_masks(evidence),
        )

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return _weights_of_detectors(evidence, selection)

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        return "the scores were chosen from the data; name one score for bounds"


GIVEN_CALIBRATION = {
    rule: Guarantee(
        "FDR <= alpha given the calibration sample, for a share 1 - delta of such samples",
        (*record.assumes, "the candidates are independent of one another"),
        record.kind,
        f"{record.source}; Benjamini & Hochberg (1995)",
    )
    for rule, record in CONDITIONAL.items()
}


@dataclasses.dataclass(frozen=True)
class ConditionalBH(Procedure):
    """BH on p-values that hold for the calibration sample at hand, `tdd.calibration_conditional_p_values`.

    Attributes:
      rule: table of bounds, "simes", "dkwm", "monte_carlo" or "asymptotic".
      delta: the calibration sample is one for which the level holds with probability at least 1 - delta.

    Raises:
      InputError: an option out of range.
    """

    name: ClassVar[str] = "conditional"

    rule: str = "simes"
    delta: float = 0.05

    def __post_init__(self) -> None:
        check_options(self, rule=tuple(CONDITIONAL))
        arrays.check_level(self.delta, "delta")

    @property
    def label(self) -> str:  # noqa: D102
        return f"conditional/{self.rule}"

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return GIVEN_CALIBRATION[self.rule]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        draws: dict[str, Any] = {"key": key, "num_draws": max(999, math.ceil(1 / self.delta))}
        p_values = functools.partial(
            calibration_conditional_p_values,
            evidence.calibration,
            null=self.null,
            delta=self.delta,
            method=_any(self.rule),
            **(draws if self.rule == "monte_carlo" else {}),
        )
        p = p_values(evidence.scores)
        step, n = bh(p, alpha, mask=evidence.mask), np.count_nonzero(~np.isnan(evidence.calibration))
        m = int(step.num_tests)
        least = float(p_values([np.nanmin(evidence.calibration) - 1])[0])  # of the most extreme score there could be
        fewest = min(m + 1, max(1, math.ceil(least * m / alpha - 1e-6)))
        return self.selection(step, p, n, fewest)

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"rule": self.rule, **({} if self.delta == ConditionalBH.delta else {"calibration_delta": self.delta})}

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        return "method=ptdi has bounds for the same scores"


@dataclasses.dataclass(frozen=True)
class Weighted(Procedure):
    """`tdd.weighted_conformal_selection`, under a known covariate shift.

    Attributes:
      rule: how selections are pruned, "heterogeneous", "homogeneous" or "deterministic".

    Raises:
      InputError: an unknown rule.
    """

    name: ClassVar[str] = "weighted"

    rule: str = "heterogeneous"

    def __post_init__(self) -> None:
        check_options(self, rule=weighted.PRUNES)

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "weights", "calibration_weights")

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return WEIGHTED_GUARANTEES[self.rule]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        return weighted_conformal_selection(
            evidence.calibration,
            evidence.scores,
            evidence.calibration_weights,
            evidence.weights,
            alpha=alpha,
            null=self.null,
            prune=_any(self.rule),
            key=key,
            **_masks(evidence),
        )

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, WeightedSelection)
        size = float(selection.effective_sample_size)
        return [("effective calibration size", f"{size:.1f} equally weighted items")]

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        return "the law of the weighted ranks under the null is not known"


@dataclasses.dataclass(frozen=True)
class KTD(Procedure):
    """`tdd.ktd`, by knockoffs (paraphrases).

    Attributes:
      rule: "multi", "derandomized", "closed", "conformal" or "ktd", the paper's.
      proportion: for rule="conformal": "storey" (the default there) or "none".
      offset: 1 controls the FDR, 0 a modified one.

    Raises:
      InputError: an option out of range, or a proportion with another rule.
    """

    name: ClassVar[str] = "ktd"
    score: ClassVar[str] = "grad_norm"
    long_texts: ClassVar[str] = "truncate"

    rule: str = "multi"
    proportion: str | None = None
    offset: int = 1

    def __post_init__(self) -> None:
        check_options(self, rule=KTD_RULES)
        _check_proportion_used("ktd", self.rule, self.proportion)
        if self.rule == "conformal" and self.proportion is None:
            object.__setattr__(self, "proportion", "storey")

    @property
    def label(self) -> str:  # noqa: D102
        return f"ktd/{self.rule}"

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "knockoffs", "calibration_knockoffs") if self.rule == "conformal" else ("knockoffs",)

    @property
    def guarantee(self) -> Guarantee:
        """For several knockoffs an item; the selection's own is about as many as there are."""
        name = {"conformal": f"conformal, {self.proportion}", "ktd": "ktd, k > 1"}.get(self.rule, self.rule)
        return KNOCKOFFS[name if self.offset else f"{name}, offset=0"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        how: dict[str, Any] = {}
        if self.rule == "conformal":
            how = {
                "calibration": evidence.calibration,
                "calibration_knockoffs": evidence.calibration_knockoffs,
                "calibration_mask": evidence.calibration_mask,
                "proportion": self.proportion,
            }
        elif self.offset != 1:
            how = {"offset": self.offset}
        return ktd(evidence.scores, evidence.knockoffs, alpha=alpha, rule=_any(self.rule), mask=evidence.mask, **how)

    def record(self) -> dict[str, Any]:  # noqa: D102
        plain = {"rule": self.rule} if self.proportion is None else {"rule": self.rule, "proportion": self.proportion}
        return plain if self.offset == 1 else {**plain, "offset": self.offset}

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        copies = num_knockoffs if self.rule == "multi" else 1
        return min(m + 1, math.ceil(1 / (_exactly(alpha) * copies)))

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        assert isinstance(selection, KnockoffSelection)
        cut = float(selection.cut)
        return [
            ("knockoffs an item", str(evidence.knockoffs.shape[1])),
            ("statistic of an item", _STATISTICS[self.rule]),
            ("threshold of the statistic", f"{cut:.4g}" if np.isfinite(cut) else "none qualifies"),
        ]

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        same = int((evidence.knockoffs == evidence.scores[:, None]).any(axis=1).sum())
        alone = evidence.knockoffs.shape[1] == 1 and self.rule != "conformal"
        if not same or not (alone or self.rule == "multi"):
            return []
        return [f"{same} candidates have the same score as one of their knockoffs; a tie is never selected"]

    def bounds(self, evidence: Evidence, selection: Selection, *, delta: float, **draws: Any) -> Any:  # noqa: D102
        if self.rule == "conformal":
            own = evidence.calibration - evidence.calibration_knockoffs.mean(axis=1)
            theirs = evidence.scores - evidence.knockoffs.mean(axis=1)
            return fdp_bounds(own, theirs, null="nonmember", delta=delta, **draws)
        if evidence.knockoffs.shape[1] == 1 and self.rule in ("ktd", "multi"):
            assert isinstance(selection, KnockoffSelection)
            return knockoff_fdp_bounds(selection.statistic, delta=delta)
        return "only rule=conformal, and the signs of one knockoff an item (rule=ktd or multi), have bounds"


_W = "W = mean score of its knockoffs - its own; large = member"
_STATISTICS = {
    "ktd": _W,
    "conformal": f"{_W}; ranked among those of the calibration items",
    "multi": "how far its score is below its best knockoff's; negative where a knockoff scores lowest",
    "derandomized": "its e-value, averaged over the knockoffs",
    "closed": "its e-value, averaged over the knockoffs",
}


@dataclasses.dataclass(frozen=True)
class TD4Eval(Procedure):
    """`tdd.td4eval`, by several detectors.

    Attributes:
      combine: how the detectors are combined.
      rule: how pooled ranks are combined, "sum" or "cauchy"; empty for the usual one.
      weights: of the detectors, fixed beforehand; empty where they are equal.

    Raises:
      InputError: an unknown combination or rule.
    """

    name: ClassVar[str] = "td4eval"
    null: ClassVar[Null] = "member"
    columns: ClassVar[Literal["one", "detectors", "models"]] = "detectors"

    combine: str = "pooled_rank"
    rule: str = ""
    weights: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        check_options(self, combine=COMBINATIONS, **({"rule": pooled_ranks.RULES} if self.rule else {}))
        object.__setattr__(self, "weights", tuple(self.weights))

    @property
    def label(self) -> str:  # noqa: D102
        return f"td4eval/{self.combine}"

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return TD4EVAL_GUARANTEES[self.combine]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        drawn = self.combine == "random" or (self.combine == "split_weights" and evidence.split is None)
        return td4eval(
            evidence.calibration,
            evidence.scores,
            alpha=alpha,
            combine=_any(self.combine),
            rule=_any(self.rule or None),
            weights=self.weights or None,
            split=evidence.split,
            key=key if drawn else None,  # elsewhere a key would break ties at random
            **_masks(evidence),
        )

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        return fewest_by_rank(n, m, alpha)

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        return _weights_of_detectors(evidence, selection)

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        assert isinstance(selection, CombinedSelection)
        if self.combine == "cauchy" and not np.asarray(selection.num_rejected_alone).any():
            return ["no detector rejects anything alone, so the detectors were weighted equally"]
        return []

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if self.combine not in ("pooled_rank", "split_weights"):
            return "the law of merged p-values under the null is not known; combine=pooled_rank has bounds"
        n, p = int(selection.num_calibration), np.asarray(selection.p_values)
        tested = ~np.isnan(p)
        rank = np.where(tested, np.rint(np.nan_to_num(p, nan=1.0) * (n + 1)), n + 1).astype(np.int64)
        return fdp_bounds_of_ranks(rank, n, null=self.null, mask=tested, **draws)


@dataclasses.dataclass(frozen=True)
class JMCS(Procedure):
    """`tdd.jmcs`, for several models at once.

    Attributes:
      rule: "bh", "storey" or "by".
      eta: region of presumed members ("storey").

    Raises:
      InputError: an option out of range.
    """

    name: ClassVar[str] = "jmcs"
    null: ClassVar[Null] = "member"
    columns: ClassVar[Literal["one", "detectors", "models"]] = "models"

    rule: str = "bh"
    eta: float = 0.5

    def __post_init__(self) -> None:
        check_options(self, rule=JMCS_RULES)
        arrays.check_level(self.eta, "eta")

    @property
    def label(self) -> str:  # noqa: D102
        return f"jmcs/{self.rule}"

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return JOINT[self.rule]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        return jmcs(
            evidence.calibration,
            evidence.scores,
            alpha=alpha,
            rule=_any(self.rule),
            eta=self.eta,
            **_masks(evidence),
        )

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        return _UNKNOWN_LAW


@dataclasses.dataclass(frozen=True)
class JECS(Procedure):
    """`tdd.jecs`, for several models at once.

    Attributes:
      grid: candidate edges of the envelope; empty for the usual ones.
      neighbours: m -> number of nearest p-values that the density at an edge is estimated from; None for the usual.

    Raises:
      InputError: edges out of range.
    """

    name: ClassVar[str] = "jecs"
    null: ClassVar[Null] = "member"
    columns: ClassVar[Literal["one", "detectors", "models"]] = "models"

    grid: tuple[float, ...] = ()
    neighbours: Callable[[int], int] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "grid", tuple(self.grid))
        if self.grid:
            checked_grid(self.grid)

    @property
    def guarantee(self) -> Guarantee:  # noqa: D102
        return JOINT["jecs" if self.neighbours is None else "jecs, neighbours"]

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        return jecs(
            evidence.calibration,
            evidence.scores,
            alpha=alpha,
            grid=self.grid or GRID,
            neighbours=self.neighbours,
            **_masks(evidence),
        )

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

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        return _UNKNOWN_LAW


GUARANTEE_ROWS = [
    ("tdd.select", f'method="conditional", rule="{rule}"', guarantee) for rule, guarantee in GIVEN_CALIBRATION.items()
]


def fewest_by_rank(n: int, m: int, alpha: float, scale: Fraction = Fraction(1)) -> int:
    """The smallest k with scale/(n + 1) <= alpha k/m: fewer of m tests no step-up on conformal p-values rejects; m + 1
    where none up to m will do."""
    return min(m + 1, max(1, math.ceil(scale * m / (_exactly(alpha) * (n + 1)))))


def _exactly(alpha: float) -> Fraction:
    level = lattice.as_level(alpha)
    return Fraction(int(level.numerator), int(level.denominator))


def _any(value: str | None) -> Any:
    """A name that has been checked against its choices."""
    return value


def _masks(evidence: Evidence) -> dict[str, Any]:
    return {"mask": evidence.mask, "calibration_mask": evidence.calibration_mask}


def _weights_of_detectors(evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:
    assert isinstance(selection, CombinedSelection)
    weights, alone = np.asarray(selection.weights), np.asarray(selection.num_rejected_alone)
    parts = [
        f"{name} {weight:.3g} ({count})" for name, weight, count in zip(evidence.names, weights, alone, strict=True)
    ]
    return [("weight of each detector (what it would select alone)", ", ".join(parts))]


def _check_proportion_used(method: str, rule: str | None, proportion: str | None) -> None:
    """Of the knockoff rules, "conformal" alone estimates a proportion."""
    if method == "ktd" and proportion is not None and rule != "conformal":
        raise InputError(f"proportion={proportion!r} belongs to rule 'conformal' of method 'ktd'; leave it out")


def _check_unscaled(**options: Any) -> None:
    """Items of clusters are decided on by e-values, which no estimate of a proportion scales."""
    for name, value in options.items():
        if value is not None:
            raise InputError(f"{name}={value!r} has no use with unit='item', which decides by e-values; leave it out")
