"""Scores by role → decision, diagnostics, bounds, and the run that says and stores them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.checks import cluster_sizes, effective_calibration_size, resolution, symmetry
from tdd.audit.decide import Choices, Decision, SimultaneousBounds, complete_items, decide, simultaneous_bounds
from tdd.audit.summary import RULE, failures, open_points, outcome, warnings_of
from tdd.records import Evidence, Guarantee, Texts
from tdd.runs.folder import Audit, log_findings, plain, run_head

__all__ = ["RESERVED", "Items", "assemble"]

RESERVED = ("id", "p_value", "adjusted", "selected", "statistic", "fdp_bound", "group", "label")
"""Columns of items.csv that no score may be called."""

_PER_ITEM = ("selected", "p_values", "adjusted", "statistic", "warnings", "selection")


@dataclasses.dataclass(frozen=True)
class Items:
    """Identifiers, scores, labels and groups of the items."""

    ids: Sequence[str] | np.ndarray  # [m] identifiers of the candidates
    scores: Mapping[str, np.ndarray]  # name -> [m] column of items.csv
    labels: np.ndarray  # [m] 1 member, 0 non-member, -1 unknown; or empty
    calibration: Mapping[str, np.ndarray]  # columns of calibration.csv
    calibration_texts: Texts | None = None  # texts of the calibration items, or None where only scores are known
    ignored_groups: Sequence[str] = ()  # group of every item, where there are groups and the procedure ignores them


def assemble(
    choices: Choices,
    evidence: Evidence,
    items: Items,
    *,
    options: Mapping[str, Any],
    inputs: Mapping[str, Any],
    model: Mapping[str, Any] | None = None,
    checks: Mapping[str, Any] | None = None,
    assumes: Sequence[str] = (),
    beside: Sequence[str] = (),
) -> Audit:
    """Decide, and put together the finished run in memory; its warnings are logged.

    `options`, `inputs` and `model` (None for a selection from scores alone) are as run.json records them; to `checks`,
    the diagnostics of the texts by name, None for those that do not apply, those of the scores are added. `assumes` is
    what the guarantee assumes beside what the procedure does, `beside` names the models and texts that scores rest on.
    """
    decision = decide(evidence, choices.procedure, choices.alpha, seed=choices.seed, labels=items.labels)
    guarantee = dataclasses.replace(decision.guarantee, assumes=(*decision.guarantee.assumes, *assumes))
    decision = dataclasses.replace(decision, guarantee=guarantee)
    findings = {**_score_checks(choices, evidence, decision, items.calibration_texts), **(checks or {})}
    checks = {name: finding for name, finding in findings.items() if finding is not None}
    bounds = simultaneous_bounds(evidence, choices, decision)
    failed = failures(checks, decision)
    warnings = warnings_of(checks, decision, items.ignored_groups, stands=not failed)
    if failed:
        void = Guarantee("nothing: a check speaks against its assumptions", decision.guarantee.assumes, "none", RULE)
        decision = dataclasses.replace(decision, guarantee=void)
        bounds = SimultaneousBounds(False, "a check speaks against the assumptions of the bounds", bounds.delta)
    log_findings((*failed, *warnings))
    run = {
        **run_head("select" if model is None else "audit", choices.seed),
        "options": dict(options),
        "inputs": dict(inputs),
        "model": model,
        "outcome": outcome(decision, bounds, failed),
        "verdict": {"stands": not failed, "failed": failed, "rule": RULE},
        "decision": {
            field.name: getattr(decision, field.name)
            for field in dataclasses.fields(decision)
            if field.name not in _PER_ITEM
        },
        "certificate": bounds.summary(),
        "checks": checks,
        "warnings": warnings,
        "open_points": open_points(
            decision,
            failed,
            texts=model is not None,
            groups_ignored=bool(items.ignored_groups),
            symmetry_tested="symmetry" in checks,
            beside=beside,
        ),
    }
    return Audit(plain(run), _item_columns(decision, bounds, items), items.calibration)


def _score_checks(choices: Choices, evidence: Evidence, decision: Decision, texts: Texts | None) -> dict[str, Any]:
    """The diagnostics of the scores by name, None for those that do not apply."""
    checks: dict[str, Any] = {}
    if decision.num_calibration:
        complete = complete_items(evidence.calibration, evidence.calibration_knockoffs)
        scores = np.where(complete, np.atleast_2d(evidence.calibration)[0], np.nan)
        checks["effective_calibration"] = effective_calibration_size(scores, texts)
        if not evidence.clusters:
            checks["resolution"] = resolution(
                decision.num_calibration,
                decision.num_tests,
                decision.alpha,
                max(0.0, 1 - decision.proportion),
                decision.min_selections,
                decision.null,
            )
    checks["symmetry"] = symmetry(evidence, getattr(choices.procedure, "rule", ""))
    checks["cluster_sizes"] = cluster_sizes(evidence, decision.unit, choices.seed)
    return checks


def _item_columns(decision: Decision, bounds: SimultaneousBounds, items: Items) -> dict[str, np.ndarray]:
    """The columns of items.csv."""
    columns: dict[str, np.ndarray] = {"id": np.asarray(items.ids, dtype=object), **items.scores}
    if decision.statistic.size:
        columns["statistic"] = decision.statistic
    columns |= {"p_value": decision.p_values, "adjusted": decision.adjusted}
    if bounds.applies:
        columns["fdp_bound"] = bounds.item_bound
    columns["selected"] = decision.selected
    if items.labels.size and (items.labels >= 0).any():
        columns["label"] = items.labels
    return columns
