"""Sources of `tdd power`: a table of scores with labels, a laboratory run, a finished test of canonical order."""

from __future__ import annotations

import dataclasses
import json
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.study.power.scores import LabelledScores
from tdd.study.power.shards import ShardLogProbs
from tdd.tables import load_score_table
from tdd.texts import read_rows
from tdd.texts import rows as text_checks
from tdd.validate import InputError
from tdd.validate.files import read_npz

_TEXTS = ("candidates.jsonl", "calibration.jsonl", "known_members.jsonl")


def read_labelled(
    table: Any,
    *,
    scores: Sequence[str] = (),
    label_field: str | None = None,
    truth: Any = None,
    higher_is_member: bool = False,
    id_field: str | None = None,
    format: str | None = None,
) -> LabelledScores:
    """Read scores and labels of a table; rows without all scores or a label are left out, and roles are not read.

    Arguments as `tdd.load_score_table`. Without `scores` the only column that has no other purpose is read;
    `higher_is_member` turns the sign of all; `truth` is another table that has the labels, joined by id.

    Raises:
      InputError: An unreadable table, unknown columns, no labels, ids of one table that the other lacks.
    """
    label_field = label_field or "label"
    columns = load_score_table(
        table,
        scores=list(scores) or None,
        label_field=None if truth is not None else label_field,
        calibrated=False,
        candidate_role=None,
        id_field=id_field,
        format=format,
    )
    labels = columns.labels
    if truth is not None:
        labels = _joined_labels(columns.ids, truth, label_field, id_field, columns.source)
    names = list(scores or columns.scores)
    if not scores and len(names) > 1:
        raise InputError(f"{columns.source}: name the score columns, of {', '.join(names)}")
    values = np.stack([columns.scores[name] for name in names]) * (-1 if higher_is_member else 1)
    whole = (labels >= 0) & ~np.isnan(values).any(axis=0)
    left_out = f" ({int((~whole).sum())} of {whole.size} rows without a score or label left out)"
    name = f"{pathlib.PurePath(columns.source).name} ({', '.join(names)}){'' if whole.all() else left_out}"
    return LabelledScores(values[:, whole], labels[whole] == 1, name=name)


def _joined_labels(ids: Sequence[str], truth: Any, label_field: str, id_field: str | None, source: str) -> np.ndarray:
    """[N] labels of these items in another table, -1 where it has none."""
    rows = read_rows(truth)
    id_field = text_checks.existing_field(rows.source, "id_field", id_field or "id", rows.fields)
    text_checks.existing_field(rows.source, "label_field", label_field, rows.fields)
    names = text_checks.identifier_column(rows.source, rows.column(id_field), rows.place)
    values = text_checks.label_column(rows.source, rows.column(label_field), rows.place, missing=-1)
    known = dict(zip(names, values, strict=True))
    labels = np.array([known.get(name, -1) for name in ids], np.int64)
    if (labels < 0).all():
        raise InputError(
            f"{rows.source} has no label of any of the {len(ids)} items of {source}; are the ids the same?"
        )
    return labels


def read_lab_run(
    folder: pathlib.Path,
    *,
    scores: Sequence[str],
    model: int | None = None,
    truth: Any = None,
    label_field: str | None = None,
    out: pathlib.Path | None = None,
    **scoring: Any,
) -> LabelledScores:
    """Read scores and labels of the texts of a laboratory run, under one of its models.

    `scores.csv` beside the checkpoint is read where it exists; otherwise the texts of the run are scored with the
    checkpoint now, under the options `scoring` of `tdd.score`, and kept in the folder `out`. Labels are those of
    truth.csv in the folder of the run by default, in the column of the model ("model-1") or else "label".

    Raises:
      InputError: A folder without these files, several models and no number, a run of planted sets.
    """
    place = _model_folder(folder, model)
    if truth is None and (folder / "truth.csv").is_file():
        truth = folder / "truth.csv"
        label_field = label_field or (None if place == folder else place.name)
    table: Any = place / "scores.csv"
    if not table.is_file():
        table = _score(folder, place / "checkpoint", scores, out, scoring)
    labelled = read_labelled(table, scores=list(scores), truth=truth, label_field=label_field)
    return dataclasses.replace(labelled, name=f"{folder.name}/{labelled.name}")


def _model_folder(folder: pathlib.Path, model: int | None) -> pathlib.Path:
    """The folder of a checkpoint: that of the run, or of one of its models."""
    names = sorted(path.name for path in folder.glob("model-*") if (path / "checkpoint").is_dir())
    if not names:
        if model is not None:
            raise InputError(f"{folder} has one model, or none: leave the number {model} out")
        return folder
    if model is None:
        raise InputError(f"{folder} has {len(names)} models, {', '.join(names)}: say which, as model 1")
    if f"model-{model}" not in names:
        raise InputError(f"{folder} has no model {model}; it has {', '.join(names)}")
    return folder / f"model-{model}"


def _score(
    folder: pathlib.Path, checkpoint: pathlib.Path, scores: Sequence[str], out: pathlib.Path | None, scoring: Any
) -> Any:
    """A table with the scores of all texts of a run."""
    paths = [folder / name for name in _TEXTS if (folder / name).is_file()]
    if not paths and (folder / "canaries").is_dir():
        raise InputError(
            f"{folder} is a run of planted sets: test their order first (tdd exchange), and plan from that"
        )
    if not paths or not checkpoint.is_dir():
        raise InputError(
            f"{folder} holds neither a finished test of canonical order (run.json, log_probs.npz) nor a laboratory run "
            f"(checkpoint/ and {' or '.join(_TEXTS[:2])}, or scores.csv); give a table of scores with labels instead"
        )
    from tdd.records import Texts
    from tdd.runs.atomic import disk_errors
    from tdd.scoring.score import score
    from tdd.scoring.table import write_scores
    from tdd.texts import load_texts

    parts = [load_texts(path) for path in paths]
    ids = tuple(name for part in parts for name in part.ids)
    texts = Texts(ids=ids, texts=tuple(text for part in parts for text in part.texts))
    scored = score(checkpoint, texts, list(scores), **scoring)
    if out is None:
        return {"id": list(scored.ids), **{name: np.asarray(values).tolist() for name, values in scored.values.items()}}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    write_scores(scored, out / "scores.csv")
    return out / "scores.csv"


def is_exchange_run(folder: pathlib.Path) -> bool:
    """Whether the folder holds a finished test of canonical order."""
    return (folder / "log_probs.npz").is_file()


def read_exchange_run(folder: pathlib.Path, data: str | None = None) -> ShardLogProbs:
    """Read the log-probabilities of one data set of a finished test of canonical order, without shards with a NaN.

    Raises:
      InputError: A damaged folder, an unknown name, several data sets and no name.
    """
    try:
        file = read_npz(folder / "log_probs.npz")
        names = [str(name) for name in file["names"]]
        arrays = [(file[f"canonical_{i}"], file[f"shuffled_{i}"]) for i in range(len(names))]
        run = json.loads((folder / "run.json").read_text("utf-8"))
        tokens = {record["name"]: record["num_tokens"] for record in run["data"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} holds no readable test of canonical order: {error}; run the test again") from error
    if data is None and len(names) > 1:
        raise InputError(f"{folder} holds {len(names)} data sets, {', '.join(names)}: name one with data")
    if data is not None and data not in names:
        raise InputError(f"{folder} has no data set {data!r}; it has {', '.join(names)}")
    name = data or names[0]
    canonical, shuffled = arrays[names.index(name)]
    whole = ~(np.isnan(canonical) | np.isnan(shuffled).any(axis=1))
    total = tokens.get(name)
    shard_tokens = total / len(canonical) if total else None
    return ShardLogProbs(canonical[whole], shuffled[whole], shard_tokens, f"{folder.name}, {name}")
