"""Where `tdd power` finds scores with known labels, or shards: a table, a trained laboratory run, an exchange run."""

from __future__ import annotations

import json
import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.tables import load_score_table
from tdd.texts.read import read_rows
from tdd.validate import texts as text_checks
from tdd.validate.errors import InputError
from tdd.validate.npz import read_npz

__all__ = ["Labelled", "Shards", "is_exchange_run", "read_exchange_run", "read_lab_run", "read_labelled"]

_TEXTS = ("candidates.jsonl", "calibration.jsonl", "known_members.jsonl")


class Labelled(NamedTuple):
    """Items with known labels: [K, N] loss-like scores, [N] bool, and where they came from."""

    scores: np.ndarray
    is_member: np.ndarray
    name: str


class Shards(NamedTuple):
    """Shards of one data set: [r] and [r, k] log-probabilities, tokens of a shard on average, and a name."""

    canonical: np.ndarray
    shuffled: np.ndarray
    shard_tokens: float | None
    name: str


def read_labelled(
    table: Any,
    *,
    scores: Sequence[str] = (),
    label_field: str | None = None,
    truth: Any = None,
    higher_is_member: bool = False,
    id_field: str | None = None,
    format: str | None = None,
) -> Labelled:
    """Scores and labels of a table; rows without all scores or a label are left out.

    Args:
      table: a path or a Python table, as `tdd.load_score_table` takes. Roles are not read: an item is what its label
        says.
      scores: K columns; without them, the only one that has no other purpose.
      label_field: column of known truth, 1 member, 0 not; default "label".
      truth: another table that has the labels, joined by id.
      higher_is_member: the score columns are higher for members; their sign is turned.
      id_field: column of identifiers, of both tables.
      format: of the file of scores, where its ending does not tell.

    Raises:
      InputError: an unreadable table, unknown columns, no row with a label, ids of one table that the other lacks.
    """
    label = label_field or "label"
    found = load_score_table(
        table,
        scores=list(scores) or None,
        label_field=None if truth is not None else label,
        higher_is_member=tuple(scores) if higher_is_member else (),
        calibrated=False,
        candidate_role=None,
        id_field=id_field,
        format=format,
    )
    labels = found.labels if truth is None else _joined(found.ids, truth, label, id_field, found.source)
    values = np.stack([found.scores[name] for name in (scores or found.scores)])
    if not scores and len(values) > 1:
        raise InputError(f"{found.source}: name the score columns, of {', '.join(found.scores)}")
    whole = (labels >= 0) & ~np.isnan(values).any(axis=0)
    left = "" if whole.all() else f" ({int((~whole).sum())} of {whole.size} rows without a score or label left out)"
    named = ", ".join(scores or found.scores)
    return Labelled(values[:, whole], labels[whole] == 1, f"{pathlib.PurePath(found.source).name} ({named}){left}")


def _joined(ids: Sequence[str], truth: Any, label: str, id_field: str | None, source: str) -> np.ndarray:
    rows = read_rows(truth)
    own = text_checks.existing_field(rows.source, "id_field", id_field or "id", rows.fields)
    text_checks.existing_field(rows.source, "label_field", label, rows.fields)
    names = text_checks.identifier_column(rows.source, rows.column(own), rows.place)
    known = dict(
        zip(names, text_checks.label_column(rows.source, rows.column(label), rows.place, missing=-1), strict=True)
    )
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
) -> Labelled:
    """Scores and labels of the texts of a laboratory run, under one of its models.

    `scores.csv` beside the checkpoint is read where it is there; otherwise the texts of the run (candidates.jsonl,
    calibration.jsonl, known_members.jsonl) are scored with the checkpoint now.

    Args:
      folder: of the run, as `tdd lab train` leaves it.
      scores: names; the columns of scores.csv, or what is computed.
      model: which one, counted from 1, where the run has several.
      truth: a table with the labels; default truth.csv in the folder.
      label_field: its column of labels; default that of the model ("model-1"), else "label".
      out: where freshly computed scores are kept, as scores.csv.
      **scoring: of `tdd.score`.

    Raises:
      InputError: a folder without these files, several models and no number, a run of planted sets.
    """
    place = _model_folder(folder, model)
    if truth is None and (folder / "truth.csv").is_file():
        truth = folder / "truth.csv"
        label_field = label_field or (None if place == folder else place.name)
    table: Any = place / "scores.csv"
    if not table.is_file():
        table = _score(folder, place / "checkpoint", scores, out, scoring)
    found = read_labelled(table, scores=list(scores), truth=truth, label_field=label_field)
    return found._replace(name=f"{folder.name}/{found.name}")


def _model_folder(folder: pathlib.Path, model: int | None) -> pathlib.Path:
    """Where the checkpoint of a run lies: in the run's folder, or in that of the model."""
    several = sorted(path.name for path in folder.glob("model-*") if (path / "checkpoint").is_dir())
    if not several:
        if model is not None:
            raise InputError(f"{folder} has one model, or none: leave the number {model} out")
        return folder
    if model is None:
        raise InputError(f"{folder} has {len(several)} models, {', '.join(several)}: say which, as model 1")
    if f"model-{model}" not in several:
        raise InputError(f"{folder} has no model {model}; it has {', '.join(several)}")
    return folder / f"model-{model}"


def _score(
    folder: pathlib.Path, checkpoint: pathlib.Path, scores: Sequence[str], out: pathlib.Path | None, scoring: Any
) -> Any:
    texts = [folder / name for name in _TEXTS if (folder / name).is_file()]
    if not texts and (folder / "canaries").is_dir():
        raise InputError(
            f"{folder} is a run of planted sets: test their order first (tdd exchange), and plan from that"
        )
    if not texts or not checkpoint.is_dir():
        raise InputError(
            f"{folder} holds neither a finished test of canonical order (run.json, log_probs.npz) nor a laboratory run "
            f"(checkpoint/ and {' or '.join(_TEXTS[:2])}, or scores.csv); give a table of scores with labels instead"
        )
    from tdd.audit.score import score
    from tdd.records import Texts
    from tdd.runs.atomic import disk_errors
    from tdd.scoring.table import write_scores
    from tdd.texts import load_texts

    parts = [load_texts(path) for path in texts]
    every = Texts(
        ids=tuple(name for part in parts for name in part.ids),
        texts=tuple(text for part in parts for text in part.texts),
    )
    found = score(checkpoint, every, list(scores), **scoring)
    if out is None:
        return {"id": list(found.ids), **{name: np.asarray(column).tolist() for name, column in found.values.items()}}
    with disk_errors(out):
        out.mkdir(parents=True, exist_ok=True)
    write_scores(found, out / "scores.csv")
    return out / "scores.csv"


def is_exchange_run(folder: pathlib.Path) -> bool:
    """Whether the folder holds a finished test of canonical order."""
    return (folder / "log_probs.npz").is_file()


def read_exchange_run(folder: pathlib.Path, data: str | None = None) -> Shards:
    """Log-probabilities of one data set of a finished test of canonical order; shards with a NaN are left out.

    Args:
      folder: as `tdd exchange` writes it.
      data: name of the data set; not needed where there is one.

    Raises:
      InputError: a damaged folder, an unknown name, several data sets and no name.
    """
    try:
        file = read_npz(folder / "log_probs.npz")
        names = [str(name) for name in file["names"]]
        arrays = [(file[f"canonical_{i}"], file[f"shuffled_{i}"]) for i in range(len(names))]
        run = json.loads((folder / "run.json").read_text("utf-8"))
        tokens = {one["name"]: one["num_tokens"] for one in run["data"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} holds no readable test of canonical order: {error}; run the test again") from error
    if data is None and len(names) > 1:
        raise InputError(f"{folder} holds {len(names)} data sets, {', '.join(names)}: name one with data")
    if data is not None and data not in names:
        raise InputError(f"{folder} has no data set {data!r}; it has {', '.join(names)}")
    place = 0 if data is None else names.index(data)
    canonical, shuffled = arrays[place]
    whole = ~(np.isnan(canonical) | np.isnan(shuffled).any(axis=1))
    total = tokens.get(names[place])
    return Shards(
        canonical[whole],
        shuffled[whole],
        None if not total else total / len(canonical),
        f"{folder.name}, {names[place]}",
    )
