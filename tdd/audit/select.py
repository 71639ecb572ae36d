"""A table of scores → decision: the black-box way, no model needed."""

from __future__ import annotations

import dataclasses
import inspect
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.audit.assemble import RESERVED, Shown, assemble
from tdd.audit.decide import choose, evidence_of
from tdd.audit.inputs import check_clusters_named, check_knockoffs, check_known_labels, check_used
from tdd.audit.rankings import SELECTED, rankings
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
from tdd.records import Evidence
from tdd.runs.folder import Audit, fingerprint, open_run_folder, plain
from tdd.tables import Role, RoleOptions, ScoreTable, load_score_table
from tdd.validate import InputError, as_names
from tdd.validate.settings import in_own_settings

_ROLES: tuple[Role, ...] = ("candidate", "calibration", "member", "nonmember")


@in_own_settings()
def select(
    table: Any,
    *,
    alpha: float,
    score: str | Sequence[str] | None = None,
    method: str | Procedure = "ptdi",
    weight_column: str | None = None,
    split_column: str | None = None,
    knockoffs: Sequence[str] = (),
    results: Sequence[str] = (),
    delta: float = 0.05,
    null: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int | None = None,
    **columns: Any,
) -> Audit:
    """Select items from a table of scores.

    Args:
      table: a `ScoreTable`, or what `tdd.tables.load_score_table` reads (a path, a data frame, ...).
      alpha: level in (0, 1).
      score: the column that decides, or the columns of the K detectors ("td4eval") or models ("jmcs", "jecs"); by
        default the only ones there are. It must be chosen before its results are seen.
      method: "ptdi", "best_score", "combined_score", "conditional", "weighted" and "ktd" find members; "td4eval",
        "jmcs" and "jecs" find clean items, calibrated on known members. Options are part of it:
        "ptdi:proportion=none,eta=0.1", or the value `tdd.PTDI("none", eta=0.1)`; see `tdd.PTDI`, `tdd.TD4Eval`, ...
      weight_column: column with the density ratio of each item ("weighted"); see `tdd.weighted_conformal_selection`.
      split_column: column with 1 for the calibration items from which "td4eval:combine=split_weights" learns its
        weights.
      knockoffs: columns with the scores of each item's knockoffs ("ktd").
      results: columns with the result of each of several models on every candidate, higher = better, for a method that
        finds clean items: the report then ranks the models on all candidates, on the selected ones and on those that
        each detector selects alone (`tdd.audit.rankings`). With known clean items beside the calibration items
        (`nonmember_role`), also on those that each detector keeps by its threshold of the highest accuracy, the
        baselines of TD4Eval's tables 2 and 8 to 11, for which no error rate is controlled.
      delta: the simultaneous bounds of the report hold with probability at least 1 - delta.
      null: the null that the caller means to test, "nonmember" or "member"; checked where given.
      out: run folder to write.
      seed: of random choices and simulated bounds; None is 0, and for a randomised rule a draw from the operating
        system, which `run["seed"]` records and a run in the same folder takes again.
      **columns: passed to `load_score_table` (role_field, calibration, label_field, higher_is_member, nonmember_role,
        ...).

    Returns:
      `Audit`.

    Raises:
      InputError: unreadable or unusable table, options, or output folder.
    """
    known = {*inspect.signature(load_score_table).parameters, *RoleOptions.__annotations__} - {"roles"}
    others = {name: value for name, value in columns.items() if name not in known}
    choices = choose(method, alpha=alpha, delta=delta, seed=seed, null=null, others=others, out=out)
    procedure, name = choices.procedure, choices.procedure.name
    names = () if score is None else as_names(score, "score")
    knockoffs, results = as_names(knockoffs, "knockoffs"), as_names(results, "results")
    used = (*knockoffs, *(column for column in (weight_column, split_column) if column is not None))
    signed = as_names(columns.get("higher_is_member", ()), "higher_is_member")
    _check_results(results, procedure, (*names, *used, *signed))
    beside = (*used, *results)
    _check_needs(procedure, knockoffs, weight_column, split_column)
    optional = (*((split_column,) if split_column else ()), *results)
    table, names = _read(table, procedure, None if score is None else names, beside, optional, columns)
    _check_columns(procedure, names, knockoffs, beside, table)
    _check_split(table, split_column)
    clustered = bool(table.groups) and isinstance(procedure, PTDI)
    check_clusters_named(procedure, clustered)
    calibration, candidates = table.rows("calibration"), table.rows("candidate")
    ids = np.asarray(table.ids, dtype=object)
    check_known_labels(table.labels[calibration], ids[calibration], procedure.null)
    _check_clean(table, names, results, columns.get("nonmember_role"))
    if "members" in procedure.needs and not table.rows("member").size:
        raise InputError(f"method {procedure.label!r} needs known members; give a table of members or a member role")
    tables = {role: {name: table.values(name, role) for name in table.scores} for role in _ROLES}
    evidence = evidence_of(
        procedure,
        tables,
        names,
        knockoffs=knockoffs,
        weight=weight_column,
        split=split_column,
        clusters=[table.groups[i] for i in candidates] if clustered else (),
        calibration_clusters=[table.groups[i] for i in calibration] if clustered else (),
    )
    items = Shown(
        ids=ids[candidates],
        scores=tables["candidate"],
        labels=table.labels[candidates],
        calibration={"id": ids[calibration], **tables["calibration"]},
        ignored_groups=() if clustered or not table.groups else [table.groups[i] for i in (*candidates, *calibration)],
    )
    options = {
        **procedure.identity(),
        **({"weight_column": weight_column} if "weights" in procedure.needs else {}),
        **({"split_column": split_column} if name == "td4eval" else {}),
        "alpha": alpha,
        "score": list(names),
        "knockoffs": list(knockoffs),
        "unit": getattr(procedure, "unit", None) if clustered else None,
        "delta": delta,
        **({"results": list(results)} if results else {}),
    }
    inputs = {"table": {"source": table.source, "sha256": table.sha256, "rows": len(table)}}
    audit = assemble(choices, evidence, items, options=options, inputs=inputs)
    if results and audit.verdict_stands:
        of_models = {one: tables["candidate"][one] for one in results}
        clean = {one: tables["nonmember"][one] for one in names if table.rows("nonmember").size}
        audit = _ranked(audit, evidence, names, of_models, items.labels, alpha, clean)
    if out is not None:
        identity = fingerprint({"inputs": table.sha256, "seed": choices.seed, **options})
        open_run_folder(pathlib.Path(out), identity, f"selection from {table.source}", choices.drawn)
        audit.save(pathlib.Path(out))
    return audit


def _read(
    table: Any,
    procedure: Procedure,
    names: tuple[str, ...] | None,
    beside: Sequence[str],
    optional: Sequence[str],
    columns: dict[str, Any],
) -> tuple[ScoreTable, tuple[str, ...]]:
    """The table, and the names of the columns that decide; `columns` goes to `load_score_table`."""
    if not isinstance(table, ScoreTable):
        if names is not None:
            columns.setdefault("scores", tuple(dict.fromkeys((*names, *beside))))
        table = load_score_table(
            table, calibrated="calibration" in procedure.needs, optional=tuple(optional), **columns
        )
    if names is not None:
        return table, names
    names = tuple(column for column in table.scores if column not in beside)
    if procedure.columns == "one" and len(names) != 1:
        raise InputError(
            f"score is missing and the table has {len(names)} score columns: {', '.join(names)}; choose the one "
            "that decides before looking at results"
        )
    return table, names


def _check_needs(
    procedure: Procedure, knockoffs: Sequence[str], weight_column: str | None, split_column: str | None
) -> None:
    """Check that the columns beside the scores are those that the procedure needs."""
    name = procedure.name
    check_used(name, name if "knockoffs" in procedure.needs else "ktd", knockoffs=knockoffs or None)
    check_used(name, name if "weights" in procedure.needs else "weighted", weight_column=weight_column)
    check_used(name, "td4eval", split_column=split_column)
    if "weights" in procedure.needs and weight_column is None:
        raise InputError(
            f"weight_column (--weight-field) is missing: method {name!r} needs the column of the density ratios"
        )
    check_knockoffs(procedure, knockoffs)


def _check_split(table: ScoreTable, split_column: str | None) -> None:
    """Check that the column, if there is one, says of calibration items yes, no or nothing."""
    if split_column is None:
        return
    split = table.values(split_column, "calibration")
    odd = split[~(np.isnan(split) | np.isin(split, (0, 1)))]
    if odd.size:
        raise InputError(f"split_column {split_column!r} holds {odd[0]:g}; it must hold 1, 0 or blanks")


def _check_results(results: Sequence[str], procedure: Procedure, others: Sequence[str]) -> None:
    """Check the columns of the models' results; `others` are columns with another use."""
    if results and procedure.null != "member":
        raise InputError(
            f"results ranks models on clean items, and {procedure.name} finds members; use td4eval, or leave it out"
        )
    if len(set(results)) != len(results) or len(results) == 1 or {*results} & {*others}:
        raise InputError(
            f"results must name two or more columns, each once and none with another use, got {', '.join(results)}"
        )


def _check_clean(table: ScoreTable, names: Sequence[str], results: Sequence[str], word: str | None) -> None:
    """Check that known non-members, if their role has a word, are there, scored, used, and none by their labels."""
    clean = table.rows("nonmember")
    if word is None and not (clean.size and results):
        return
    word = "nonmember" if word is None else word  # a table that is read already has the role, and not its word
    if not results or not clean.size:
        raise InputError(
            f"nonmember_role={word!r} is for rows of the table of candidates and for results, which ranks models on "
            f"what thresholds keep; there are {clean.size} such rows{'' if results else ' and no results'}"
        )
    for name in names:
        if np.isnan(table.values(name, "nonmember")).all():
            raise InputError(f"score column {name!r} has no value for any item with the role {word!r}")
    if wrong := int((table.labels[clean] == 1).sum()):
        raise InputError(f"{wrong} of {clean.size} items with the role {word!r} are labelled as members (label 1)")


def _ranked(
    audit: Audit,
    evidence: Evidence,
    detectors: Sequence[str],
    results: Mapping[str, np.ndarray],
    labels: np.ndarray,
    alpha: float,
    clean: Mapping[str, np.ndarray],
) -> Audit:
    """The run with the models on what each detector selects alone, by BH and by a threshold, and on the selection.

    `clean` has the scores of known clean items, which thresholds need, by detector; it is empty without them.
    """
    from tdd.procedures.p_values import conformal_p_values
    from tdd.procedures.testing import bh

    alone, thresholds = {}, {}
    rows = map(np.atleast_2d, (evidence.calibration, evidence.scores))
    for detector, own, tested in zip(detectors, *rows, strict=True):
        real, present = ~np.isnan(own), ~np.isnan(tested)
        p = conformal_p_values(own, tested, null="member", calibration_mask=real, mask=present)
        alone[f"{detector} alone"] = np.asarray(bh(p, alpha, mask=present).reject)
        if clean:
            thresholds[f"{detector}, threshold (no guarantee)"] = _by_accuracy(own, clean[detector], tested)
    alone |= thresholds
    ranked = rankings(results, {**alone, SELECTED: np.asarray(audit.items["selected"])}, labels)
    return dataclasses.replace(audit, run={**audit.run, "rankings": plain(ranked)})


def _by_accuracy(members: np.ndarray, clean: np.ndarray, tested: np.ndarray) -> np.ndarray:
    """[m] bool: candidates that look clean by the threshold of the highest accuracy on both kinds of known items."""
    from tdd.procedures.thresholds import threshold

    own = np.concatenate([members, clean])
    return np.asarray(threshold(own, np.arange(len(own)) >= len(members), tested, null="member").selected)


def _check_columns(
    procedure: Procedure, names: Sequence[str], knockoffs: Sequence[str], beside: Sequence[str], table: ScoreTable
) -> None:
    """Check the columns that decide, and those beside them, against the table."""
    available = ", ".join(table.scores)
    for name in names:
        if name not in table.scores:
            raise InputError(f"score {name!r} is not a score column; there are {available}")
    if procedure.columns == "one" and len(names) != 1:
        raise InputError(
            f"score names {len(names)} columns ({', '.join(names)}) and this method decides on one; choose it before "
            "looking at results"
        )
    if not names:
        raise InputError("score names no column; at least one detector or model is needed")
    if len(set(names)) < len(names):
        raise InputError(f"score names a column twice: {', '.join(names)}")
    for name in beside:
        if name not in table.scores:
            argument = "knockoffs" if name in knockoffs else "weight_column, split_column or results"
            raise InputError(f"{argument} names {name!r}, which is not a score column; there are {available}")
    for name in knockoffs:
        if name in names or knockoffs.count(name) > 1:
            raise InputError(f"knockoffs names {name!r}, which is the score itself or named twice; leave it out")
    for name in table.scores:
        if name in RESERVED:
            raise InputError(
                f"score column {name!r} has the name of a column of the result ({', '.join(RESERVED)}); rename it, or "
                "choose the score columns without it"
            )
