"""The procedures that compose functions of several files, as values: PTDI on items or clusters, conditional BH."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from tdd.kernels import stepup
from tdd.procedures import clusters, p_values, ptdi, testing
from tdd.procedures.bounds import fdp_bounds
from tdd.procedures.calls import level_operand
from tdd.procedures.procedure import WithOption, check_options, masks, min_selections_by_rank
from tdd.records import Evidence, Guarantee, Selection
from tdd.validate import arrays
from tdd.validate.errors import InputError

__all__ = ["GUARANTEE_ROWS", "PTDI", "ConditionalBH"]


@dataclasses.dataclass(frozen=True)
class PTDI(WithOption):
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
        options: dict[str, Any] = {"alpha": alpha, "proportion": self.proportion, "eta": self.eta, **masks(evidence)}
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
        return min_selections_by_rank(n, m, alpha, scale)

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        if not isinstance(selection, clusters.ClusterSelection):
            return []
        tested, calibrated = int(selection.num_clusters), int(selection.num_calibration)
        found = ("clusters", f"{tested} of candidates, {calibrated} of calibration items")
        return [found, ("clusters with a selected item", str(int(np.asarray(selection.cluster_selected).sum())))]

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if evidence.clusters:
            return "decisions are by cluster, and the bounds are for items that are exchangeable one by one"
        return fdp_bounds(evidence.calibration, evidence.scores, null="nonmember", **masks(evidence), **draws)


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
class ConditionalBH(WithOption):
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
            evidence.calibration, evidence.scores, **options, **masks(evidence)
        )
        step = testing.bh(p, alpha)
        scale = ((smallest, step.num_tests), (1,))
        fewest = stepup.min_rejections(level_operand(alpha), len(p), scale=scale)
        return self.selection(step, p, n, jnp.minimum(fewest, step.num_tests + 1))

    def record(self) -> dict[str, Any]:  # noqa: D102
        return {"rule": self.rule, **({} if self.delta == ConditionalBH.delta else {"calibration_delta": self.delta})}


GUARANTEE_ROWS = [
    ("tdd.select", f'method="conditional", rule="{rule}"', guarantee) for rule, guarantee in GIVEN_CALIBRATION.items()
]
