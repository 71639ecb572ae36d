"""Planting: who is trained on, who calibrates, who is to be found out. Chosen at random, and written down."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import numpy as np

from tdd.lab.truth import Row, write_rows
from tdd.records import Texts
from tdd.texts import hash_texts
from tdd.validate.errors import InputError
from tdd.validate.lab import check_count
from tdd.validate.planting import check_copies

__all__ = ["Planted", "Role", "plant", "save_truth", "take", "truth_rows"]

Role = Literal["candidate", "calibration", "background"]
"""Candidates are audited; calibration texts are known non-members; background texts are trained on, no
more."""


class Planted(NamedTuple):
    """A random assignment of texts.

    Attributes:
      training: what to train on: the candidates of label 1, each as often as it is duplicated, and the background,
        in random order. The second copy of a text has the identifier `ID#2`, the third `ID#3`, ...
      calibration: non-members, for calibration; labels all 0.
      candidates: members (label 1) and non-members (label 0) in random order.
      truth: (id, role, label) of every assigned text, in the order of the input.
      copies: how often the text of each row of `truth` is in the training data; 0 for non-members.
    """

    training: Texts
    calibration: Texts
    candidates: Texts
    truth: tuple[tuple[str, Role, int], ...]
    copies: tuple[int, ...]


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
      texts: the pool.
      members: candidates that are trained on.
      nonmembers: candidates that are not.
      calibration: further texts that are not trained on.
      background: further texts that are trained on but not audited.
      duplication: copies of each member in the training data, or several such numbers, dealt out in turn to the
        members in random order: (1, 10) gives half of the members one copy and half ten. Background texts have one.
      seed: of the permutation; the parts do not depend on `duplication`.

    Raises:
      InputError: a part is negative, members, nonmembers or calibration are 0, a number of copies is not a positive
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
    truth: tuple[tuple[str, Role, int], ...] = tuple(
        (texts.ids[index], role[index], int(labels[index])) for index in sorted(role)
    )
    return Planted(
        training=take(texts, training, labels),
        calibration=take(texts, part["calibration"], labels),
        candidates=take(texts, candidates, labels),
        truth=truth,
        copies=tuple(int(copies[index]) for index in sorted(role)),
    )


def truth_rows(planted: Planted) -> tuple[Row, ...]:
    """The ground truth as rows of id, role, label, copies."""
    return tuple(
        {"id": name, "role": role, "label": label, "copies": copies}
        for (name, role, label), copies in zip(planted.truth, planted.copies, strict=True)
    )


def save_truth(path: str | os.PathLike[str], planted: Planted) -> None:
    """Write the ground truth as CSV with the columns id, role, label; and copies, where any text has more than one."""
    names = ("id", "role", "label", "copies") if max(planted.copies) > 1 else ("id", "role", "label")
    write_rows(path, [{name: row[name] for name in names} for row in truth_rows(planted)])


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


def _check_split(requested: int, available: int, parts: Mapping[str, int]) -> None:
    """The parts of a split fit into the texts that there are."""
    if requested > available:
        listed = " + ".join(f"{name}={count}" for name, count in parts.items())
        raise InputError(f"{listed} asks for {requested} texts, but texts holds {available}")
