"""A table of scores → decision: the black-box road, no model needed."""

from __future__ import annotations

import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tdd.audit.assemble import RESERVED, assemble, score_checks, warnings_of
from tdd.audit.certificates import certify
from tdd.audit.cluster_sizes import cluster_sizes
from tdd.audit.decide import decide
from tdd.audit.evidence import Panels
from tdd.audit.knockoff_checks import symmetry
from tdd.audit.options import audited
from tdd.audit.statement import groups_warning
from tdd.procedures.procedure import Procedure
from tdd.procedures.values import PTDI
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
    method: str | Procedure = "ptdi",
    weight_column: str | None = None,
    split_column: str | None = None,
    knockoffs: Sequence[str] = (),
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
        find clean items, calibrated on known members. Options are part of it: "ptdi:proportion=none,eta=0.1", or the
        value `tdd.PTDI("none", eta=0.1)`; see `tdd.PTDI`, `tdd.TD4Eval`, ...
      weight_column: column with the density ratio of each item ("weighted"); see `tdd.weighted_conformal_selection`.
      split_column: column with 1 for the calibration items from which "td4eval:combine=split_weights" learns its
        weights.
      knockoffs: columns with the scores of each item's knockoffs ("ktd").
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
    procedure = audited(method, alpha=alpha, delta=delta, seed=seed, null=null, others=columns)
    name = procedure.name
    runs.check_used(
        name,
        knockoffs=(knockoffs or None, "ktd" if "knockoffs" not in procedure.needs else name),
        weight_column=(weight_column, "weighted" if "weights" not in procedure.needs else name),
        split_column=(split_column, "td4eval" if name != "td4eval" else name),
    )
    if "weights" in procedure.needs and weight_column is None:
        raise InputError(f"weight_column is missing: method {name!r} needs the column of the density ratios")
    beside = tuple(one for one in (weight_column, split_column) if one is not None)
    knockoffs = (knockoffs,) if isinstance(knockoffs, str) else tuple(knockoffs)
    runs.check_knockoffs(name, "knockoffs" in procedure.needs, knockoffs)
    calibrates = "calibration" in procedure.needs
    wanted = None if score is None else (score,) if isinstance(score, str) else tuple(score)
    if not isinstance(table, ScoreTable):
        if wanted is not None:
            columns.setdefault("scores", (*wanted, *(x for x in (*knockoffs, *beside) if x not in wanted)))
        table = load_score_table(
            table, calibrated=calibrates, optional=(split_column,) if split_column else (), **columns
        )
    names = _deciding_columns(
        wanted, [name for name in table.scores if name not in (*knockoffs, *beside)], table.scores, procedure.columns
    )
    _check_columns_exist(knockoffs, table.scores, "knockoffs")
    _check_columns_exist(beside, table.scores, "weight_column or split_column")
    _check_knockoffs_apart(names, knockoffs)
    _check_column_names(table.scores, RESERVED)
    calibration, candidates = table.rows("calibration"), table.rows("candidate")
    ids = np.asarray(table.ids, dtype=object)
    runs.check_known_labels(table.labels[calibration], ids[calibration], procedure.null)
    members = table.values(names[0], "member") if "members" in procedure.needs else np.zeros(0)
    _check_members("members" in procedure.needs, members.size)
    grouped = bool(table.groups) and isinstance(procedure, PTDI)
    runs.check_unit(procedure, grouped)
    panels = Panels(
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
    decision = decide(panels, procedure, alpha, seed=seed, labels=labels)
    checks = {
        **score_checks(decision, panels),
        **symmetry(panels, getattr(procedure, "rule", "")),
        **cluster_sizes(panels, decision.unit, seed),
    }
    warnings = warnings_of(checks, decision)
    if table.groups and not grouped:
        number = len({table.groups[i] for i in calibration} | {table.groups[i] for i in candidates})
        warnings.append(groups_warning(name, len(table), number))
    run_options = {
        "method": name,
        **procedure.record(),
        **({"weight_column": weight_column} if "weights" in procedure.needs else {}),
        **({"split_column": split_column} if name == "td4eval" else {}),
        "alpha": alpha,
        "score": list(names),
        "knockoffs": list(knockoffs),
        "unit": decision.unit if grouped else None,
        "delta": delta,
    }
    audit = assemble(
        "select",
        decision,
        certify(panels, procedure, decision, delta=delta, seed=seed),
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


def _check_knockoffs_apart(names: Sequence[str], knockoffs: Sequence[str]) -> None:
    """No column is its own knockoff, and none is named twice."""
    both = [name for name in knockoffs if name in names or list(knockoffs).count(name) > 1]
    if both:
        raise InputError(f"knockoffs names {both[0]!r}, which is the score itself or named twice; leave it out")


def _check_members(needed: bool, count: int) -> None:
    """Known members for the moment estimate."""
    if needed and not count:
        raise InputError('proportion="moment" needs known members; give a table of members or a member role')


def _check_columns_exist(names: Iterable[str], available: Iterable[str], argument: str) -> None:
    """Columns that the table has."""
    known = list(available)
    for name in names:
        if name not in known:
            raise InputError(f"{argument} names {name!r}, which is not a score column; there are {', '.join(known)}")


def _deciding_columns(
    wanted: Sequence[str] | None, free: Sequence[str], available: Iterable[str], number: str
) -> tuple[str, ...]:
    """The column or columns that decide: those asked for, else the only ones there are."""
    names = tuple(free if wanted is None else wanted)
    if wanted is None and number == "one" and len(names) != 1:
        raise InputError(
            f"score is missing and the table has {len(names)} score columns: {', '.join(names)}; choose the one that "
            "decides before looking at results"
        )
    known = list(available)
    for name in names:
        if name not in known:
            raise InputError(f"score {name!r} is not a score column; there are {', '.join(known)}")
    if number == "one" and len(names) != 1:
        raise InputError(
            f"score names {len(names)} columns ({', '.join(names)}) and this method decides on one; choose it before "
            "looking at results"
        )
    if not names:
        raise InputError("score names no column; at least one detector or model is needed")
    if len(set(names)) < len(names):
        raise InputError(f"score names a column twice: {', '.join(names)}")
    return names


def _check_column_names(names: Iterable[str], reserved: Sequence[str]) -> None:
    """No score is called like a column of the result."""
    taken = [name for name in names if name in reserved]
    if taken:
        raise InputError(
            f"score column {taken[0]!r} has the name of a column of the result ({', '.join(reserved)}); rename it, or "
            "choose the score columns without it"
        )
