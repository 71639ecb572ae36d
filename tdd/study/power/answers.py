"""What a power plan says of the audits that were computed: rows, the smallest detectable share, warnings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tdd.study.power.evaluate import Cell, Evaluator
from tdd.study.power.laws import Binormal, ScorePool
from tdd.study.power.rules import Rule
from tdd.study.power.search import smallest

__all__ = ["detectable", "rows_of", "warnings_of"]

_SPREADS = ("q10", "q50", "q90")


def rows_of(cell: Cell, evaluate: Evaluator) -> list[dict[str, Any]]:
    """One row for each level, as `PowerPlan` describes them."""
    found, rule = cell.outcome, evaluate.rule
    members = cell.num_targets if rule.null == "nonmember" else cell.m - cell.num_targets
    copies = _num_knockoffs(evaluate.law)
    rows = []
    for i, alpha in enumerate(evaluate.levels):
        row: dict[str, Any] = {
            "num_calibration": cell.n,
            "num_tests": cell.m,
            "member_share": members / cell.m,
            "num_members": members,
            "num_targets": cell.num_targets,
            "alpha": alpha,
        }
        for name in (
            "power", "power_se", "fdp", "fdp_se", "any_selected", "any_true", "any_true_se", "num_selected",
            "num_selected_se",
        ):  # fmt: skip
            row[name] = float(getattr(found, name)[i])
        for name in ("power", "num_selected"):
            spread = getattr(found, f"{name}_quantiles")[i].tolist()
            row |= {f"{name}_{q}": value for q, value in zip(_SPREADS, spread, strict=True)}
        row["min_selections"] = rule.min_selections(cell.n, cell.m, cell.num_targets, alpha, copies)
        row |= {"repetitions": found.repetitions, "extrapolated": cell.extrapolated, "drawn": cell.drawn}
        rows.append(row)
    return rows


def detectable(
    evaluate: Evaluator, n: int, m: int, wanted: dict[str, float], *, known: Iterable[int]
) -> list[dict[str, Any]]:
    """The smallest detectable share by criterion and level.

    Args:
      evaluate: the audits.
      n: calibration items.
      m: candidates.
      wanted: criterion ("power", "any_true") -> what it is to reach.
      known: numbers of targets to begin with; the search keeps to those that can be drawn, m at most.
    """
    fewest, most = 1, m
    if evaluate.draw == "without":
        assert isinstance(evaluate.law, ScorePool)
        possible = [k for k in range(1, m + 1) if evaluate.law.suffices(n, m, k)]
        if not possible:
            return []
        fewest, most = possible[0], possible[-1]
        known = [k for k in known if k in {*possible}]
    start, rule = sorted({*known}), evaluate.rule
    rows = []
    for criterion, height in wanted.items():
        for i, alpha in enumerate(evaluate.levels):

            def curve(count: int, i: int = i, criterion: str = criterion) -> tuple[float, float]:
                found = evaluate(n, m, count).outcome
                return float(getattr(found, criterion)[i]), float(getattr(found, f"{criterion}_se")[i])

            crossing = smallest(curve, start, most, height, fewest=fewest)
            count = crossing.count
            shares = [None if each is None else each / m for each in (count, crossing.low, crossing.high)]
            member_share = shares[0]
            if member_share is not None and rule.null == "member":
                member_share = 1 - member_share
            rows.append(
                {
                    "num_calibration": n,
                    "num_tests": m,
                    "alpha": alpha,
                    "criterion": criterion,
                    "wanted": height,
                    "num_targets": count,
                    "target_share": shares[0],
                    "target_share_low": shares[1],
                    "target_share_high": shares[2],
                    "member_share": member_share,
                    "value": crossing.value,
                    "value_se": crossing.error,
                    "extrapolated": evaluate(n, m, count or most).extrapolated,
                    "reason": _bound(count, fewest, m, rule.targets) if count else _reason(evaluate, n, m, most, alpha),
                }
            )
    return rows


def _bound(count: int, fewest: int, m: int, targets: str) -> str:
    """That fewer targets than were found may do as well, where the pool gives no fewer."""
    if count > fewest or fewest == 1:
        return ""
    return f"pool: without replacement it gives no fewer than {fewest} {targets} among {m} candidates; fewer may do"


def _reason(evaluate: Evaluator, n: int, m: int, most: int, alpha: float) -> str:
    """Why even the largest number of targets is not detected."""
    rule = evaluate.rule
    fewest = rule.min_selections(n, m, most, alpha, _num_knockoffs(evaluate.law))
    if fewest > m:
        if rule.kind == "knockoffs":
            return f"resolution: at level {alpha:g} no fewer than {fewest} of {m} candidates could be selected"
        return f"resolution: {n} calibration items give no p-value below 1/{n + 1}, too large at level {alpha:g}"
    reached = "all candidates" if most == m else f"{most} of {m} candidates, all that the pool gives,"
    return f"signal: the scores separate too little, even where {reached} are {rule.targets}"


def _num_knockoffs(law: Binormal | ScorePool) -> int:
    return len(law.nulls) - 1 if isinstance(law, ScorePool) and law.kind == "knockoffs" else 1


def warnings_of(law: Binormal | ScorePool, cells: Sequence[Cell], rule: Rule) -> list[str]:
    """What the reader must know besides."""
    if isinstance(law, Binormal):
        return ["normal scores are an assumption, and tails decide; a labelled pool, even a small one, tells more"]
    out = []
    if any(cell.extrapolated for cell in cells):
        nulls, targets = law.nulls.shape[1], law.targets.shape[1]
        out.append(
            f"audits marked as extrapolated are drawn from a smoothed pool ({nulls} items under the null, {targets} "
            f"{rule.targets}): the null's tail beyond its extremes is a guess"
        )
    every = np.concatenate([law.nulls, law.targets], axis=1)
    if any(2 * np.unique(row).size < row.size for row in every):
        out.append("most scores of the pool are equal to others; smoothed draws have no ties")
    if rule.kind != "knockoffs" and max(law.aucs()) <= 0.5:
        out.append("in this pool members do not score lower than non-members: is HIGHER more member-like here?")
    return out
