"""Decision and checks → what a run says and stores."""

from __future__ import annotations

import dataclasses
import datetime
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.certificates import Certificate
from tdd.audit.decide import Decision
from tdd.audit.evidence import Panels
from tdd.audit.honesty import effective_calibration_size, resolution
from tdd.audit.statement import open_points, outcome
from tdd.audit.verdict import RULE, failures
from tdd.records import Guarantee, Texts
from tdd.runs.folder import SCHEMA, Audit, plain, versions

__all__ = ["RESERVED", "assemble", "score_checks", "warnings_of"]

RESERVED = ("id", "p_value", "adjusted", "selected", "statistic", "fdp_bound", "group", "label")
"""Columns of items.csv that no score may be called."""

_PER_ITEM = ("selected", "p_values", "adjusted", "statistic", "warnings", "selection")
_findings = logging.getLogger("tdd.findings")
"""Warnings about the data; a program that prints the report turns this one off."""


def score_checks(decision: Decision, panels: Panels, texts: Texts | None = None) -> dict[str, Any]:
    """Resolution and effective size of the calibration sample, where there is one."""
    if not decision.num_calibration:
        return {}
    missing = np.isnan(panels.calibration).any(axis=0)
    if len(panels.calibration_knockoffs) == missing.size:
        missing |= np.isnan(panels.calibration_knockoffs).any(axis=1)
    known = np.where(missing, np.nan, panels.calibration[0])
    checks: dict[str, Any] = {"effective_calibration": effective_calibration_size(known, texts)}
    if not panels.clusters:
        checks["resolution"] = resolution(
            decision.num_calibration,
            decision.num_tests,
            decision.alpha,
            max(0.0, 1 - decision.proportion),
            min_selections=decision.min_selections,
        )
    return checks


def warnings_of(checks: Mapping[str, Any], decision: Decision) -> list[str]:
    """Everything that the reader of the result must know."""
    warnings = [check.warning for check in checks.values() if check.warning]
    for count, role in (
        (decision.num_missing, "candidates"),
        (decision.num_missing_calibration, "calibration items"),
    ):
        if count:
            alone = len(decision.columns) == 1 and not decision.statistic.size
            what = f"{decision.score} is NaN" if alone else "one of their scores is NaN"
            warnings.append(f"{count} {role} have no score ({what}) and were left out")
    if decision.edge_ties:
        warnings.append(
            f"{decision.edge_ties} calibration scores tie at the edge of the region of presumed non-members: the bound "
            f"of {decision.method} is not proven with such ties and can be exceeded; proportion=storey needs no such "
            "condition"
        )
    if decision.min_selections > decision.num_tests and "resolution" not in checks:
        warnings.append(
            f"nothing can be selected: {decision.method} at level {decision.alpha:g} needs at least "
            f"{decision.min_selections} selections and there are {decision.num_tests} candidates"
        )
    divided = decision.proportion > 0 and not decision.statistic.size
    if decision.num_selected and decision.threshold > decision.alpha and divided:
        warnings.append(
            f"selected candidates have p-values up to {decision.threshold:.2g}: the estimate that a share of "
            f"{decision.proportion:.2f} of the candidates are members divides the p-values, so that adjusted ones are "
            "below them. The list as a whole keeps its error rate; a single item with a large p-value is not shown to "
            "be a member. proportion=none selects no such item"
        )
    if decision.guarantee.kind == "asymptotic":
        warnings.append(f"the guarantee of {decision.method} is asymptotic: not proven for finite samples")
    if decision.guarantee.kind == "none":
        warnings.append(f"{decision.method} carries no guarantee: {decision.guarantee.controls}")
    return [*warnings, *decision.warnings]


def assemble(
    kind: str,
    decision: Decision,
    certificate: Certificate,
    options: Mapping[str, Any],
    inputs: Mapping[str, Any],
    model: Mapping[str, Any] | None,
    checks: Mapping[str, Any],
    warnings: Sequence[str],
    *,
    texts: bool,
    groups_ignored: bool,
    seed: int | None,
    ids: Sequence[str] | np.ndarray,
    scores: Mapping[str, np.ndarray],
    labels: np.ndarray,
    calibration: Mapping[str, np.ndarray],
) -> Audit:
    """The finished run in memory; its warnings are logged."""
    failed = failures(checks, decision)
    if failed:
        void = Guarantee("nothing: a check speaks against its assumptions", decision.guarantee.assumes, "none", RULE)
        decision = dataclasses.replace(decision, guarantee=void)
        certificate = Certificate(False, "a check speaks against the assumptions of the bounds", certificate.delta)
    for warning in (*failed, *warnings):
        _findings.warning("%s", warning)
    summary = {
        field.name: getattr(decision, field.name)
        for field in dataclasses.fields(decision)
        if field.name not in _PER_ITEM
    }
    items: dict[str, np.ndarray] = {"id": np.asarray(ids, dtype=object), **scores}
    if decision.statistic.size:
        items["statistic"] = decision.statistic
    items |= {"p_value": decision.p_values, "adjusted": decision.adjusted}
    if certificate.applies:
        items["fdp_bound"] = certificate.item_bound
    items["selected"] = decision.selected
    if labels.size and (labels >= 0).any():
        items["label"] = labels
    run = {
        "schema": SCHEMA,
        "kind": kind,
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "versions": versions(),
        "seed": seed,
        "options": dict(options),
        "inputs": dict(inputs),
        "model": model,
        "outcome": outcome(decision, certificate, failed),
        "verdict": {"stands": not failed, "failed": failed, "rule": RULE},
        "decision": summary,
        "certificate": certificate.summary(),
        "checks": dict(checks),
        "warnings": list(warnings),
        "open_points": list(
            open_points(
                decision, failed, texts=texts, groups_ignored=groups_ignored, symmetry_tested="symmetry" in checks
            )
        ),
    }
    return Audit(plain(run), items, calibration)
