"""Scores by role → decision, diagnostics, bounds, and the run that says and stores them.

The sentences of a run are made here: its outcome, reasons to withhold a verdict, warnings, and open points.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.checks import (
    cluster_sizes,
    copied_scores,
    direction,
    effective_calibration_size,
    repeated_value,
    resolution,
    symmetry,
)
from tdd.audit.decide import (
    Choices,
    Decision,
    SimultaneousBounds,
    complete_items,
    decide,
    simultaneous_bounds,
)
from tdd.audit.sampling import LEVEL, OF_EACH, SLACK
from tdd.records import Evidence, Guarantee, Texts
from tdd.runs.display import level_in_words
from tdd.runs.folder import NO_VERDICT, Audit, log_findings, plain, run_head
from tdd.runs.portable import without_folders
from tdd.runs.units import counted, unit_of

RESERVED = ("id", "p_value", "adjusted", "selected", "statistic", "fdp_bound", "group", "label")
"""Columns of items.csv that no score may be called."""

_PER_ITEM = ("selected", "p_values", "adjusted", "statistic", "warnings", "selection")

_FRACTION = 0.01
_CANDIDATE, _CALIBRATION = ("candidate", "candidates"), ("calibration item", "calibration items")
_RULE = (
    "A verdict is withheld where a test speaks against exchangeability: marks of unlike preparation, the blind "
    "baseline, the sizes of clusters, or, "
    "where more than 1% of the calibration items or of the candidates are copies or parts of texts of the other role, "
    "their number against random divisions of the same items; for knockoffs alone the symmetry test. The levels of "
    "these tests add up to 1%: where the assumptions hold, that happens in at most 1% of runs. It is also withheld "
    "where one value of a score is that of most items of a role, and where a rule flagged the candidates alone and "
    "nobody asserts that its flags are independent of the scores, whatever the data."
)

_RATES = {"FDR": "false discovery rate (FDR)", "GCR": "global contamination rate (GCR)"}
_PLAIN = {
    *("FDR", "GCR", "alpha", "m", "n", "over", "clusters", "the", "drawn", "items", "and", "counting"),
    *("in", "limit", "of", "many"),
}
"""The words of guarantees of which the bound in numbers says all: others are named with their conditions."""


@dataclasses.dataclass(frozen=True)
class Shown:
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
    items: Shown,
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
    unchecked = [check.unchecked for check in checks.values() if getattr(check, "unchecked", "")]
    warnings = warnings_of(checks, decision, items.ignored_groups, stands=not failed)
    if failed:
        void = Guarantee("nothing: a check speaks against its assumptions", decision.guarantee.assumes, "none", _RULE)
        decision = dataclasses.replace(decision, guarantee=void)
        bounds = SimultaneousBounds(False, "a check speaks against the assumptions of the bounds", bounds.delta)
    log_findings((*failed, *warnings))
    run = {
        **run_head("select" if model is None else "audit", choices.seed),
        "options": dict(options),
        "inputs": dict(inputs),
        "model": model,
        "outcome": _outcome(decision, bounds, failed, unchecked),
        "verdict": {"stands": not failed, "failed": failed, "unchecked": unchecked, "rule": _RULE},
        "decision": {
            field.name: getattr(decision, field.name)
            for field in dataclasses.fields(decision)
            if field.name not in _PER_ITEM
        },
        "certificate": bounds.summary(),
        "checks": checks,
        "warnings": warnings,
        "open_points": _open_points(
            decision,
            failed,
            texts=model is not None,
            groups_ignored=bool(items.ignored_groups),
            symmetry_tested="symmetry" in checks,
            beside=beside,
        ),
    }
    columns = _item_columns(decision, bounds, items)
    own = (*columns, *items.calibration, *_shown_words(checks))
    return Audit(without_folders(plain(run), own=own), columns, items.calibration)


def _score_checks(choices: Choices, evidence: Evidence, decision: Decision, texts: Texts | None) -> dict[str, Any]:
    """The diagnostics of the scores by name, None for those that do not apply."""
    checks: dict[str, Any] = {}
    if decision.num_calibration:
        complete = complete_items(evidence.calibration, evidence.calibration_knockoffs)
        scores = np.where(complete, np.atleast_2d(evidence.calibration)[0], np.nan)
        if decision.unit != "drawn":  # one item of each cluster is in use
            checks["effective_calibration"] = effective_calibration_size(scores, texts)
        if not evidence.clusters:
            checks["resolution"] = resolution(
                choices.procedure,
                decision.num_calibration,
                decision.num_tests,
                decision.alpha,
                max(0.0, 1 - decision.proportion),
                decision.min_selections,
                num_learned=max(0, int(complete.sum()) - decision.num_calibration),
            )
    checks["repeated_value"] = repeated_value(evidence)
    checks["copied_scores"] = copied_scores(evidence) if decision.num_calibration else None
    checks["direction"] = direction(evidence, decision.null) if decision.num_calibration else None
    checks["symmetry"] = symmetry(evidence, getattr(choices.procedure, "rule", ""))
    checks["cluster_sizes"] = cluster_sizes(evidence, decision.unit, choices.seed)
    return checks


def _shown_words(checks: Mapping[str, Any]) -> Iterator[str]:
    """The ids of items and the parts of texts that the diagnostics show."""
    left = [plain(getattr(check, field, ())) for check in checks.values() for field in ("example", "found", "pairs")]
    while left:
        value = left.pop()
        if isinstance(value, str):
            yield value
        elif isinstance(value, (dict, list)):
            left += value.values() if isinstance(value, dict) else value


def _item_columns(decision: Decision, bounds: SimultaneousBounds, items: Shown) -> dict[str, np.ndarray]:
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


def failures(checks: Mapping[str, Any], decision: Decision) -> list[str]:
    """Why no verdict is given, one sentence a failed check; empty where the verdict stands.

    Guarantee: where calibration items and candidates (for knockoffs without calibration: originals and knockoffs of
    known non-members) are exchangeable, P(a test fails) <= 1%: each of the four has a quarter of that level. A score
    of which most items of a role have one value fails besides, whatever the data.
    """
    failed = []
    calibrated = decision.num_calibration > 0
    sizes, shared = checks.get("cluster_sizes"), checks.get("sharing")
    baseline = checks.get("blind_baseline")
    prepared, level = checks.get("preparation"), OF_EACH * SLACK
    if (repeated := checks.get("repeated_value")) is not None:
        failed.append(repeated.warning)
    if sizes is not None and sizes.p_value <= level:
        failed.append(sizes.warning)
    if calibrated and prepared is not None and prepared.p_value <= level:
        failed.append(prepared.finding)
    if calibrated and baseline is not None and baseline.p_value <= level:
        failed.append(
            "calibration items and candidates can be told apart by a classifier that does not use the model (AUC "
            f"{baseline.auc:.3f}, p = {baseline.p_value:.3g}), which speaks against their exchangeability"
        )
    flags, symmetry = checks.get("flags"), checks.get("symmetry")
    if calibrated and flags is not None and flags.num_calibration_flagged is None and not flags.independent:
        failed.append(flags.warning)
    if not calibrated and symmetry is not None and symmetry.p_value <= LEVEL:
        failed.append(
            f"the model tells known non-members from their knockoffs (p = {symmetry.p_value:.3g}), which speaks "
            "against their exchangeability"
        )
    if calibrated and shared is not None and shared.p_value <= level:
        for what, name in (("copies or near copies of items", "duplicates"), ("parts of texts", "overlap")):
            check = checks.get(name)
            if check is None:
                continue
            fractions = check.num_calibration / check.total_calibration, check.num_candidates / check.total_candidates
            if max(fractions) > _FRACTION:
                failed.append(
                    f"{check.num_calibration} of {check.total_calibration} calibration items and "
                    f"{check.num_candidates} of {check.total_candidates} candidates are {what} of the other role, more "
                    f"than a division at random would make (p = {shared.p_value:.3g})"
                )
    return failed


def warnings_of(
    checks: Mapping[str, Any], decision: Decision, ignored_groups: Sequence[str], *, stands: bool
) -> list[str]:
    """Everything that the reader of the result must know; nothing of the selection where the verdict does not stand."""
    warnings = [check.warning for check in checks.values() if check.warning]
    for count, role in ((decision.num_missing, _CANDIDATE), (decision.num_missing_calibration, _CALIBRATION)):
        if count:
            alone = len(decision.columns) == 1 and not decision.statistic.size
            what = f"{decision.score} is NaN" if alone else "one of their scores is NaN"
            have, were = ("has", "was") if count == 1 else ("have", "were")
            warnings.append(f"{counted(count, role)} {have} no score ({what}) and {were} left out")
    if decision.min_selections > decision.num_tests and "resolution" not in checks:
        warnings.append(
            f"nothing can be selected: with as few as {_few(decision)}, {decision.method} selects nothing at level "
            f"{decision.alpha:g}, whatever the scores"
        )
    divided = decision.proportion > 0 and not decision.statistic.size
    unit = unit_of(decision.null, decision.unit)
    if stands and decision.num_selected and decision.threshold > decision.alpha and divided:
        one, several = unit.tested
        remedy = f". With ptdi:proportion=none no such {one} is selected" if decision.null == "nonmember" else ""
        warnings.append(
            f"some selected candidates have p-values above the level, up to {decision.threshold:.2g}: the procedure "
            f"estimates that {decision.proportion:.0%} of the {several} {unit.is_found[1]}, which is no lower bound, "
            f"and multiplies all p-values by the other {1 - decision.proportion:.0%}. The list as a whole keeps its "
            f"error rate; by itself, such a p-value is no evidence that its {one} {unit.is_found[0]}{remedy}"
        )
    if decision.guarantee.kind == "asymptotic":
        warnings.append(f"the guarantee of {decision.method} is asymptotic: not proven for finite samples")
    if decision.guarantee.kind == "none":
        warnings.append(f"{decision.method} carries no guarantee: {decision.guarantee.controls}")
    warnings += decision.warnings
    if ignored_groups:
        name = decision.method.partition("/")[0]
        warnings.append(
            f"the {len(ignored_groups)} items come from {len(set(ignored_groups))} groups; {name} takes items as "
            "exchangeable one by one, which items of one group are not, so the error can exceed the level"
        )
    return warnings


def _outcome(
    decision: Decision, bounds: SimultaneousBounds, failed: Sequence[str], unchecked: Sequence[str] = ()
) -> str:
    """The number of candidates shown to be members (or clean), and the selection; or why there is no verdict.

    These are two answers: far more items may be shown to be among the candidates than can be named.
    """
    if failed:
        return (
            f"No verdict: {'; '.join(failed)}. What the procedure selected is in items.csv; its error rate is unknown, "
            "so it is not a result. The warnings give the details."
        )
    untested = (
        f"Not tested: {'; '.join(unchecked)}. That calibration items are like the candidates rests on the word of "
        "whoever supplied them. "
        if unchecked
        else ""
    )
    of_set, of_items = _of_set(decision, bounds), _of_items(decision)
    return untested + of_set + (f"n{of_items[1:]}" if of_set and of_items.startswith("None") else of_items)


def _of_set(decision: Decision, bounds: SimultaneousBounds) -> str:
    """The number of candidates shown to be members, or clean; empty where nothing is known."""
    least, m = bounds.min_alternatives, decision.num_tests
    if not bounds.applies or not least or decision.guarantee.kind != "finite-sample":
        return ""
    what = "were in the training data" if decision.null == "nonmember" else "are clean"
    return (
        f"If the assumptions hold, at least {least} of the {m} candidates ({least / m:.0%}) {what}, with confidence "
        f"{100 * (1 - bounds.delta):g}%. This does not say which. Separately, "
    )


def _of_items(decision: Decision) -> str:
    """The selection and its error rate in two sentences."""
    level = level_in_words(decision.alpha)
    unit, count, selected = unit_of(decision.null, decision.unit), decision.num_units, decision.num_units_selected
    tested = counted(count, unit.tested)
    answer = f"None of {tested} is" if count != 1 else f"The only {unit.tested[0]} is not"
    if selected:
        answer = f"{selected} of {tested} {'is' if selected == 1 else 'are'}"
    answer += f" selected as {unit.selected_as}"
    errors = f"{unit.false[1]} among the selected"
    if decision.unit == "cluster":
        errors += " clusters"
        answer += f" ({counted(decision.num_selected, _CANDIDATE)})" if selected else ""
    answer += f" at level {level}."
    if decision.min_selections > decision.num_tests:
        return (
            f"{answer} With as few as {_few(decision)}, no selection was possible (see the warnings): the candidates "
            "remain undecided."
        )
    if decision.guarantee.kind == "none":
        return f"{answer} This procedure carries no guarantee."
    if not decision.guarantee.controls.startswith(tuple(_RATES)):
        return f"{answer} What is known of its errors: {decision.guarantee.controls}."
    rate = _RATES[decision.guarantee.controls[:3]]
    how = "" if decision.guarantee.kind == "finite-sample" else " in the limit of many items"
    bound = level if decision.bound == decision.alpha else f"{100 * decision.bound:.3g}%"
    if "given the calibration sample" in decision.guarantee.controls:
        return (
            f"{answer} If the assumptions hold, the {rate}, which is the expected fraction of {errors}, is at most "
            f"{bound}{how} for a given calibration sample, with probability 1 - delta over such samples, where delta "
            "is the procedure's option; over repetitions of the whole audit, calibration sample included, it is at "
            "most alpha + delta."
        )
    plain_words = set(re.findall("[A-Za-z]+", decision.guarantee.controls)) <= _PLAIN
    exactly = "" if plain_words else f" ({decision.guarantee.controls})"
    return (
        f"{answer} If the assumptions hold, the {rate}, which is the expected fraction of {errors} over repetitions of "
        f"the whole audit, is at most {bound}{how}{exactly}."
    )


def _few(decision: Decision) -> str:
    """What decides by its number whether anything can be selected: calibration items, clusters, or what is tested."""
    if not decision.num_calibration:
        return counted(decision.num_units, unit_of(decision.null, decision.unit).tested)
    what = "cluster" if decision.method.startswith("cluster_ptdi/") else "item"
    return counted(decision.num_calibration, (f"calibration {what}", f"calibration {what}s"))


def _open_points(
    decision: Decision,
    failed: Sequence[str],
    *,
    texts: bool,
    groups_ignored: bool,
    symmetry_tested: bool,
    beside: Sequence[str] = (),
) -> Sequence[str]:
    """The points that the run does not establish."""
    points = [
        "The level bounds an average over repetitions. The fraction of errors in this one list can be larger or "
        "smaller.",
    ]
    if failed:
        points = [NO_VERDICT]
    elif not decision.num_selected:
        points = ["Nothing was selected, so there is no list whose errors could be counted."]
    chosen = f"that {', '.join(['score', *beside, 'level'])} and options were chosen before any result was seen"
    if decision.num_calibration:
        kind = "were not in the training data" if decision.null == "nonmember" else "were in the training data"
        points.append(
            f"Not checked: that the calibration items {kind}, and {chosen}. Both rest on the word of whoever ran the "
            "audit; no computation can check them."
        )
        what = "cluster" if decision.unit == "cluster" else "item"
        if texts and not failed:
            points.append(
                f"Checked only in part: that calibration {what}s are exchangeable with the candidate {what}s that "
                f"{kind}. The checks below can contradict it and cannot confirm it."
            )
    else:
        points.append(f"Not checked: {chosen}. This rests on the word of whoever ran the audit.")
        points.append(
            "That the model treats a non-member and its knockoffs alike rests on the word of whoever made the "
            "knockoffs. A model can prefer the style of the originals to that of paraphrases without having seen these "
            "texts; the error rate can then exceed the level. "
            + (
                "The symmetry test on known non-members can contradict the assumption and cannot prove it."
                if symmetry_tested
                else "Known non-members with knockoffs made in the same way would allow a test of it, or the use of "
                'rule="conformal", which does not need it.'
            )
        )
    if not failed:
        points.append(
            "A candidate that is not selected may still have been in the training data."
            if decision.null == "nonmember"
            else "A candidate that is not selected may still be clean."
        )
    if not texts:
        points.append(
            "Only scores were seen: duplicates and differences in content between calibration items and candidates "
            "could not be looked for."
            if decision.num_calibration
            else "Only scores were seen: whether texts and knockoffs differ and are of one kind is unknown."
        )
    if decision.unit == "cluster":
        points.append(
            "Clusters are decided on, not their items: to select a cluster is to say that at least one of its items is "
            "a member, not which."
        )
    if groups_ignored:
        points.append(
            "Items come in groups. The guarantee takes items as exchangeable one by one; within groups they may not be."
        )
    return points
