"""PTDI as a value: on items or, where the evidence comes in clusters, on clusters."""

from __future__ import annotations

import dataclasses
import math
from fractions import Fraction
from typing import Any, Literal

import jax
import numpy as np

from tdd.kernels.proportion import tail_size
from tdd.procedures import ptdi
from tdd.procedures.calls import exact_fraction
from tdd.procedures.procedure import WithOption, check_options, least_calibration_by_rank, masks, min_selections_by_rank
from tdd.records import CLUSTER_UNITS, ClusterSelection, Evidence, Selection
from tdd.validate import InputError, arrays


@dataclasses.dataclass(frozen=True)
class PTDI(WithOption):
    """`tdd.ptdi`, or `tdd.cluster_ptdi` if the evidence comes in clusters.

    Attributes:
      proportion: estimator of the proportion of members, "none", "subtraction", "storey", "moment" (our variant) or
        "moment_paper".
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
        ptdi.check_proportion(self.proportion)
        check_options(self, unit=CLUSTER_UNITS)
        arrays.check_level(self.eta, "eta")
        if self.unit == "item":
            for name in ("proportion", "eta"):
                if (value := getattr(self, name)) != getattr(PTDI, name):
                    raise InputError(
                        f"{name}={value!r} has no use with unit='item', which decides by e-values; leave it out"
                    )

    @property
    def needs(self) -> tuple[str, ...]:  # noqa: D102
        return ("calibration", "members") if self.proportion in ptdi.WITH_MEMBERS else ("calibration",)

    def select(self, evidence: Evidence, alpha: Any, key: jax.Array | None = None) -> Selection:  # noqa: D102
        options: dict[str, Any] = {"alpha": alpha, "proportion": self.proportion, "eta": self.eta, **masks(evidence)}
        if evidence.clusters:
            return self._select_clusters(evidence, key, **options)
        members = evidence.members if self.proportion in ptdi.WITH_MEMBERS else None
        return ptdi.ptdi(evidence.calibration, evidence.scores, members=members, **options)

    def _select_clusters(self, evidence: Evidence, key: jax.Array | None, **options: Any) -> Selection:
        from tdd.procedures.clusters import cluster_ptdi

        if self.proportion not in ("storey", "none"):
            raise InputError(
                f"proportion={self.proportion!r} is not offered where items come in clusters; use 'storey' or 'none'"
            )
        labels = evidence.calibration_clusters, evidence.clusters
        return cluster_ptdi(evidence.calibration, evidence.scores, *labels, unit=self.unit, key=key, **options)

    def min_selections(self, n: int, m: int, num_targets: int, alpha: float, num_knockoffs: int = 1) -> int:  # noqa: D102
        if self.proportion == "none":
            return min_selections_by_rank(n, m, alpha)
        if self.proportion != "storey":  # estimates that can be near 0
            return 1
        tail = max(1, math.floor(exact_fraction(self.eta) * n))  # its smallest estimate has no candidate in the region
        return min_selections_by_rank(n, m, alpha, Fraction(n + 1, tail * m))

    def smallest_p_value(self, n: int) -> float | None:  # noqa: D102
        return 1 / (n + 1)

    def least_calibration(self, k: int, m: int, alpha: float, null_proportion: float = 1) -> int | None:  # noqa: D102
        return least_calibration_by_rank(k, m, alpha, null_proportion)

    def bound(self, alpha: float, selection: Selection) -> float:  # noqa: D102
        if self.proportion != "subtraction":
            return super().bound(alpha, selection)
        return ptdi.subtraction_bound(alpha, selection)

    def warnings(self, evidence: Evidence, selection: Selection) -> list[str]:  # noqa: D102
        tied = _edge_ties(np.asarray(evidence.calibration), self.eta) if self.proportion == "subtraction" else 0
        if not tied:
            return []
        return [
            f"{tied} calibration scores tie at the edge of the region of presumed non-members: the bound of "
            f"{selection.method} is not proven with such ties and can be exceeded; proportion=storey needs no such "
            "condition"
        ]

    def facts(self, evidence: Evidence, selection: Selection) -> list[tuple[str, str]]:  # noqa: D102
        if not isinstance(selection, ClusterSelection):
            return []
        tested, calibrated = int(selection.num_clusters), int(selection.num_calibration)
        found = ("clusters", f"{tested} of candidates, {calibrated} of calibration items")
        facts = [found, ("clusters with a selected item", str(int(np.asarray(selection.cluster_selected).sum())))]
        if self.unit == "drawn":
            mask = True if evidence.mask is None else np.asarray(evidence.mask, bool)
            scored = int(np.sum(mask & ~np.isnan(np.asarray(evidence.scores))))
            facts.append(("candidates that were not drawn, and not decided on", str(scored - tested)))
        return facts

    def bounds(self, evidence: Evidence, selection: Selection, **draws: Any) -> Any:  # noqa: D102
        if evidence.clusters:
            return "decisions are by cluster, and the bounds are for items that are exchangeable one by one"
        from tdd.procedures.bounds import fdp_bounds

        return fdp_bounds(evidence.calibration, evidence.scores, null="nonmember", **masks(evidence), **draws)


def _edge_ties(calibration: np.ndarray, eta: float) -> int:
    """Calibration scores that the region (tau, inf) loses because they tie with tau."""
    ordered = np.sort(calibration[~np.isnan(calibration)])
    tail = int(tail_size(ordered.size, eta, ordered.size))
    if tail >= ordered.size:
        return 0
    return tail - int((ordered > ordered[ordered.size - tail - 1]).sum())
