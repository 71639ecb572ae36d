"""A table of scores → decision: the black-box road, no model needed."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.audit.assemble import RESERVED, assemble, score_checks, warnings_of
from tdd.audit.certificates import certify
from tdd.audit.cluster_sizes import cluster_sizes
from tdd.audit.decide import decide
from tdd.audit.evidence import Evidence
from tdd.audit.knockoff_checks import symmetry
from tdd.audit.procedures import METHODS, PROCEDURES, settled
from tdd.audit.statement import groups_warning
from tdd.runs.folder import Audit, fingerprint, open_run_folder
from tdd.tables import ScoreTable, load_score_table
from tdd.validate import runs
from tdd.validate.errors import InputError

__all__ = ["select"]


def select(
    table: Any,
    *,
    alpha: float,
    score: str | Sequence[str] | None = None,
    method: str = "ptdi",
    proportion: str | None = None,
    eta: float | None = None,
    weights: Sequence[float] | None = None,
    grid: Sequence[float] | None = None,
    weight_column: str | None = None,
    split_column: str | None = None,
    combine: str | None = None,
    rule: str | None = None,
    knockoffs: Sequence[str] = (),
    unit: str | None = None,
    delta: float = 0.05,
    null: str | None = None,
    out: str | os.PathLike[str] | None = None,
    seed: int = 0,
    **columns: Any,
) -> Audit:
    """Select items from a table of scores.

    Args:
      table: a `ScoreTable`, or what `tdd.tables.load_score_table` reads (a path, a data frame, ...).
      alpha: level in (0, 1).
      score: the column that decides, or the columns of the K detectors ("td4eval") or models ("jmcs", "jecs"); may be
        left out where the table has no others. It must be chosen before its results are seen.
      method: "ptdi", "best_score", "conditional", "weighted" and "ktd" find members; "td4eval", "jmcs" and "jecs"
        find clean items, calibrated on known members.
      proportion: how the proportion of members is estimated, "storey" unless given; see `tdd.ptdi`.
      eta: see `tdd.ptdi` (0.05 unless given) and `tdd.jmcs` (0.5).
      weights: of the detectors, fixed beforehand; see `tdd.td4eval`.
      grid: see `tdd.jecs`.
      weight_column: column with the density ratio of each item ("weighted"); see `tdd.weighted_conformal_selection`.
      split_column: column with 1 for the calibration items from which combine="split_weights" learns its weights.
      combine: see `tdd.td4eval`; "pooled_rank" unless given.
      rule: see `tdd.ktd` ("multi" unless given), `tdd.td4eval` ("sum"), `tdd.jmcs` ("bh"),
        `tdd.calibration_conditional_p_values` (its method, "simes") or `tdd.weighted_conformal_selection` (its prune,
        "heterogeneous"); for "best_score" "deterministic" or "randomized", which draws its key from `seed`.
      knockoffs: columns with the scores of each item's knockoffs ("ktd").
      unit: "cluster" (unless given), "item" or "drawn", where `group_field` names clusters of items ("ptdi"); see
        `tdd.cluster_ptdi`.
      delta: the simultaneous bounds of the report hold with probability at least 1 - delta.
      null: the direction that the caller believes to test; checked where given.
      out: run folder to write.
      seed: of random choices in the decision and of the simulation behind the bounds.
      **columns: passed to `load_score_table` (role_field, calibration, label_field, higher_is_member, ...).

    Returns:
      `Audit`.

    Raises:
      InputError: unreadable or unusable table, options, or output folder.
    """
    runs.check_method(method, METHODS)
    procedure = PROCEDURES[method]
    runs.check_direction(null, procedure.null, method)
    runs.check_used(method, knockoffs=(knockoffs or None, "ktd"))
    options, own_options = settled(
        method,
        alpha,
        delta,
        seed,
        proportion=proportion,
        eta=eta,
        combine=combine,
        rule=rule,
        unit=unit,
        weights=None if weights is None else tuple(weights),
        grid=None if grid is None else tuple(grid),
        weight_column=weight_column,
        split_column=split_column,
    )
    if method == "weighted" and weight_column is None:
        raise InputError("weight_column is missing: method 'weighted' needs the column of the density ratios")
    beside = tuple(name for name in (weight_column, split_column) if name is not None)
    knockoffs = (knockoffs,) if isinstance(knockoffs, str) else tuple(knockoffs)
    runs.check_knockoffs(method, knockoffs)
    calibrates = procedure.calibrates or rule == "conformal"
    wanted = None if score is None else (score,) if isinstance(score, str) else tuple(score)
    if not isinstance(table, ScoreTable):
        if wanted is not None:
            columns.setdefault("scores", (*wanted, *(x for x in (*knockoffs, *beside) if x not in wanted)))
        table = load_score_table(
            table, calibrated=calibrates, optional=(split_column,) if split_column else (), **columns
        )
    names = runs.deciding_columns(
        wanted, [name for name in table.scores if name not in (*knockoffs, *beside)], table.scores, procedure.columns
    )
    runs.check_columns_exist(knockoffs, table.scores, "knockoffs")
    runs.check_columns_exist(beside, table.scores, "weight_column or split_column")
    runs.check_knockoffs_apart(names, knockoffs)
    runs.check_column_names(table.scores, RESERVED)
    calibration, candidates = table.rows("calibration"), table.rows("candidate")
    ids = np.asarray(table.ids, dtype=object)
    runs.check_known_labels(table.labels[calibration], ids[calibration], METHODS[method])
    members = table.values(names[0], "member") if proportion == "moment" else np.zeros(0)
    runs.check_members(options.proportion, members.size)
    grouped = bool(table.groups) and method == "ptdi"
    runs.check_unit(unit, grouped)
    evidence = Evidence(
        names,
        _panel(table, names, candidates),
        _panel(table, names, calibration),
        members,
        _panel(table, knockoffs, candidates).T,
        _panel(table, knockoffs, calibration).T,
        tuple(table.groups[i] for i in candidates) if grouped else (),
        tuple(table.groups[i] for i in calibration) if grouped else (),
        weights=_column(table, weight_column, "candidate"),
        calibration_weights=_column(table, weight_column, "calibration"),
        split=_column(table, split_column, "calibration") > 0,
    )
    labels = table.labels[candidates]
    decision = decide(evidence, options, null=null, labels=labels)
    checks = {
        **score_checks(decision, evidence),
        **symmetry(evidence, options.rule),
        **cluster_sizes(evidence, options.unit, options.seed),
    }
    warnings = warnings_of(checks, decision)
    if table.groups and not grouped:
        number = len({table.groups[i] for i in calibration} | {table.groups[i] for i in candidates})
        warnings.append(groups_warning(method, len(table), number))
    run_options = {
        "method": method,
        **own_options,
        "alpha": alpha,
        "score": list(names),
        "knockoffs": list(knockoffs),
        "unit": options.unit if grouped else None,
        "delta": delta,
    }
    audit = assemble(
        "select",
        decision,
        certify(evidence, options, decision),
        run_options,
        {"table": {"source": table.source, "sha256": table.sha256, "rows": len(table)}},
        None,
        checks,
        warnings,
        texts=False,
        groups_ignored=bool(table.groups) and not grouped,
        seed=seed,
        ids=ids[candidates],
        scores={key: column[candidates] for key, column in table.scores.items()},
        labels=labels,
        calibration={
            "id": ids[calibration],
            **{key: column[calibration] for key, column in table.scores.items()},
        },
    )
    if out is not None:
        identity = fingerprint({"inputs": table.sha256, "seed": seed, **run_options})
        open_run_folder(pathlib.Path(out), identity, f"selection from {table.source}")
        audit.save(pathlib.Path(out))
    return audit


def _column(table: ScoreTable, name: str | None, role: Any) -> np.ndarray:
    return np.zeros(0) if name is None else table.values(name, role)


def _panel(table: ScoreTable, names: Sequence[str], rows: np.ndarray) -> np.ndarray:
    """[columns, items] of some rows."""
    return np.stack([table.scores[name][rows] for name in names]) if names else np.zeros((0, len(rows)))
