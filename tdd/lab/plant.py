"""Planting members: which texts are trained on, which calibrate, which are audited, drawn at random and recorded."""

from __future__ import annotations

import csv
import io
import os
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple

import numpy as np

from tdd.lab.checks import check_count
from tdd.records import Texts
from tdd.runs.atomic import write_atomically
from tdd.texts import hash_texts
from tdd.validate.errors import InputError

__all__ = ["Planted", "Role", "Row", "check_copies", "csv_bytes", "plant", "save_truth", "take"]

Row = Mapping[str, Any]
"""One row of a ground truth: a planted text or set as plain values."""

Role = Literal["candidate", "calibration", "background"]
"""Candidates are audited; calibration texts are known non-members; background texts are only trained on."""


class Planted(NamedTuple):
    """A random assignment of texts.

    Attributes:
      training: The training texts: the candidates of label 1, each as often as it is duplicated, and the background,
        in random order. The second copy of a text has the identifier `ID#2`, the third `ID#3`, ...
      calibration: Non-members for calibration; labels all 0.
      candidates: Members (label 1) and non-members (label 0) in random order.
      truth: One row per assigned text in the order of the input: id, role, label, copies (in the training data).
    """

    training: Texts
    calibration: Texts
    candidates: Texts
    truth: tuple[Row, ...]


def plant(
    texts: Texts,
    *,
    members: int,
    nonmembers: int,
    calibration: int,
    background: int = 0,
    duplication: int | Sequence[int] = 1,
    seed: int,
) -> Planted:
    """Assign texts to their parts by one random permutation.

    Every text is equally likely to get any part, so calibration texts and the candidates that are not members
    are exchangeable: conformal p-values of the latter are super-uniform whatever the model and the score.
    Texts beyond the sum of the parts are left out.

    Args:
      texts: The pool.
      members: Number of candidates that are trained on.
      nonmembers: Number of candidates that are not.
      calibration: Number of further texts that are not trained on.
      background: Number of further texts that are trained on but not audited.
      duplication: Copies of each member in the training data, or several such numbers, dealt out in turn to the
        members in random order: (1, 10) gives half of the members one copy and half ten. Background texts have one.
      seed: Random seed of the permutation; the parts do not depend on `duplication`.

    Raises:
      InputError: A part is negative, members, nonmembers or calibration are 0, a number of copies is not a positive
        whole number, or the pool is too small.
    """
    counts = {"members": members, "nonmembers": nonmembers, "calibration": calibration}
    for name, count in counts.items():
        check_count(name, count, minimum=1)
    check_count("background", background, minimum=0)
    check_count("seed", seed, minimum=0)
    dealt = check_copies("duplication", duplication, minimum=1)
    counts["background"] = background
    _check_split(sum(counts.values()), len(texts), counts)

    rng = np.random.default_rng(seed)
    bounds = np.cumsum([0, *counts.values()])
    order = rng.permutation(len(texts))
    part = {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(counts)}
    labels = np.zeros(len(texts), int)
    labels[part["members"]] = labels[part["background"]] = 1
    copies = labels.copy()
    copies[part["members"]] = np.resize(dealt, members)
    candidates = rng.permutation(np.concatenate([part["members"], part["nonmembers"]]))
    trained = np.concatenate([part["members"], part["background"]])
    training = rng.permutation(np.repeat(trained, copies[trained]))

    role: dict[int, Role] = dict.fromkeys(candidates.tolist(), "candidate")
    role |= dict.fromkeys(part["calibration"].tolist(), "calibration")
    role |= dict.fromkeys(part["background"].tolist(), "background")
    truth = tuple(
        {"id": texts.ids[index], "role": role[index], "label": int(labels[index]), "copies": int(copies[index])}
        for index in sorted(role)
    )
    return Planted(
        training=take(texts, training, labels),
        calibration=take(texts, part["calibration"], labels),
        candidates=take(texts, candidates, labels),
        truth=truth,
    )


def save_truth(path: str | os.PathLike[str], planted: Planted) -> None:
    """Write the ground truth as CSV with the columns id, role, label; and copies, if any text has more than one."""
    repeated = any(row["copies"] > 1 for row in planted.truth)
    names = ("id", "role", "label", "copies") if repeated else ("id", "role", "label")
    write_atomically(path, csv_bytes([{name: row[name] for name in names} for row in planted.truth]))


def csv_bytes(rows: Sequence[Row]) -> bytes:
    """Rows as CSV in UTF-8 with the keys of the first one as header; every row has the same keys."""
    content = io.StringIO(newline="")
    writer = csv.DictWriter(content, list(rows[0]) if rows else [], lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return content.getvalue().encode()


def take(texts: Texts, indices: np.ndarray, labels: np.ndarray | None = None) -> Texts:
    """The texts at `indices`, in that order, with their labels; later copies of a text get an `ID#2`, `ID#3`, ..."""
    seen: dict[int, int] = {}
    ids = []
    for index in indices.tolist():
        seen[index] = seen.get(index, 0) + 1
        ids.append(texts.ids[index] if seen[index] == 1 else f"{texts.ids[index]}#{seen[index]}")
    taken = tuple(texts.texts[index] for index in indices)
    return Texts(
        ids=tuple(ids),
        texts=taken,
        labels=() if labels is None else tuple(int(labels[index]) for index in indices),
        source=texts.source,
        sha256=hash_texts(ids, taken),
    )


def check_copies(name: str, value: object, *, minimum: int) -> tuple[int, ...]:
    """Numbers of copies: one whole number, or a non-empty sequence of them."""
    counts = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,)
    if not counts:
        raise InputError(f"{name} is empty; give at least one number of copies")
    for index, count in enumerate(counts):
        check_count(name if len(counts) == 1 else f"{name}[{index}]", count, minimum=minimum)
    return tuple(int(count) for count in counts)  # type: ignore[arg-type]


def _check_split(requested: int, available: int, parts: Mapping[str, int]) -> None:
    """The pool holds as many texts as the parts ask for."""
    if requested > available:
        listed = " + ".join(f"{name}={count}" for name, count in parts.items())
        raise InputError(f"{listed} asks for {requested} texts, but texts holds {available}")
