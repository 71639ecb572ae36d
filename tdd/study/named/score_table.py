"""Reading of a given score table for a named study."""

from __future__ import annotations

import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.study.named.record import Columns, Needs
from tdd.tables import load_score_table
from tdd.validate.errors import InputError

__all__ = ["read_columns"]


def read_columns(
    source: Any,
    needs: Needs,
    *,
    scores: Sequence[str] = (),
    knockoffs: Sequence[str] = (),
    labels: Sequence[str] = (),
    higher_is_member: bool = False,
    id_field: str | None = None,
    format: str | None = None,
) -> Columns:
    """Read the columns that a study needs; rows without a score or a label are left out.

    Args:
      source: a path or a Python table, as `tdd.load_score_table` takes.
      needs: columns that the study needs.
      scores: columns of detection scores, or of the canonical order.
      knockoffs: columns of paraphrases, or of shuffles.
      labels: columns of known truth, 1 member, 0 not: one, or one for each score column.
      higher_is_member: score and knockoff columns are higher for members; their sign is changed.
      id_field: column of identifiers.
      format: format of the file, if its ending does not tell.

    Raises:
      InputError: an unreadable table, other columns than the study needs, too few rows with all of them.
    """
    _check_named(needs, scores, knockoffs, labels)
    columns = (*scores, *knockoffs) or None
    tables = [
        load_score_table(
            source,
            scores=columns,
            label_field=label,
            higher_is_member=tuple(columns or ()) if higher_is_member else (),
            calibrated=False,
            id_field=id_field,
            format=format,
        )
        for label in (labels or (None,))
    ]
    table = tables[0]
    names = tuple(scores) or tuple(table.scores)
    values = np.stack([table.scores[name] for name in names])
    copies = np.stack([table.scores[name] for name in knockoffs], 1) if knockoffs else np.zeros((len(table), 0))
    truth = np.stack([labelled.labels for labelled in tables]) if labels else np.zeros((0, len(table)), np.int64)
    complete = ~np.isnan(values).any(0) & ~np.isnan(copies).any(1) & (truth >= 0).all(0)
    if complete.sum() < 4:
        raise InputError(
            f"{table.source}: {int(complete.sum())} of {len(table)} rows have every score and label that the study "
            "reads; at least 4 are needed"
        )
    left_out = "" if complete.all() else f" ({int((~complete).sum())} of {len(table)} rows incomplete, left out)"
    return Columns(
        source=f"{pathlib.PurePath(table.source).name}{left_out}",
        sha256=" ".join(labelled.sha256 for labelled in tables),
        names=names,
        scores=values[:, complete],
        labels=truth[:, complete] == 1,
        knockoffs=copies[complete],
    )


def _check_named(needs: Needs, scores: Sequence[str], knockoffs: Sequence[str], labels: Sequence[str]) -> None:
    if needs.scores == "one" and len(scores) > 1:
        raise InputError(f"score names {len(scores)} columns; this study reads one")
    if needs.scores == "several" and len(scores) < 2:
        raise InputError("score must name at least two columns for this study, repeated or separated by commas")
    if needs.knockoffs and not knockoffs:
        raise InputError("knockoffs must name the columns of the paraphrases or shuffles for this study")
    if knockoffs and not needs.knockoffs:
        raise InputError("knockoffs are not read by this study; leave them out")
    if knockoffs and not scores:
        raise InputError("score must name the column of the originals where knockoffs are named")
    wanted = {"one": 1, "each": len(scores), "none": 0}[needs.labels]
    if len(labels) != wanted:
        what = {
            "one": "must name the column of known truth (1 member, 0 not)",
            "each": f"must name {wanted} columns of known truth (1 member, 0 not), one for each score column",
            "none": "is not read by this study; leave it out",
        }
        raise InputError(f"label_field {what[needs.labels]}; got {', '.join(labels) or 'none'}")
