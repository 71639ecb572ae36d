"""Planting: who is trained on, who calibrates, who is to be found out. Chosen at random, and written down."""

from __future__ import annotations

import csv
import io
import os
from typing import Literal, NamedTuple

import numpy as np

from tdd.atomic import write_atomically
from tdd.records import Texts
from tdd.texts import hash_texts
from tdd.validate.lab import check_count, check_split

__all__ = ["Planted", "Role", "plant", "save_truth"]

Role = Literal["candidate", "calibration", "background"]
"""Candidates are audited; calibration texts are known non-members; background texts are trained on, no
more."""


class Planted(NamedTuple):
    """A random assignment of texts.

    Attributes:
      training: what to train on: the candidates of label 1, and the background.
      calibration: non-members, for calibration; labels all 0.
      candidates: members (label 1) and non-members (label 0) in random order.
      truth: (id, role, label) of every assigned text, in the order of the input.
    """

    training: Texts
    calibration: Texts
    candidates: Texts
    truth: tuple[tuple[str, Role, int], ...]


def plant(texts: Texts, *, members: int, nonmembers: int, calibration: int, background: int = 0, seed: int) -> Planted:
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
      seed: of the permutation.

    Raises:
      InputError: a part is negative, members, nonmembers or calibration are 0, or the pool is too small.
    """
    counts = {"members": members, "nonmembers": nonmembers, "calibration": calibration}
    for name, count in counts.items():
        check_count(name, count, minimum=1)
    check_count("background", background, minimum=0)
    check_count("seed", seed, minimum=0)
    counts["background"] = background
    check_split(sum(counts.values()), len(texts), counts)

    rng = np.random.default_rng(seed)
    bounds = np.cumsum([0, *counts.values()])
    order = rng.permutation(len(texts))
    part = {name: order[bounds[i] : bounds[i + 1]] for i, name in enumerate(counts)}
    labels = np.zeros(len(texts), int)
    labels[part["members"]] = labels[part["background"]] = 1
    candidates = rng.permutation(np.concatenate([part["members"], part["nonmembers"]]))
    training = rng.permutation(np.concatenate([part["members"], part["background"]]))

    role: dict[int, Role] = dict.fromkeys(candidates.tolist(), "candidate")
    role |= dict.fromkeys(part["calibration"].tolist(), "calibration")
    role |= dict.fromkeys(part["background"].tolist(), "background")
    truth: tuple[tuple[str, Role, int], ...] = tuple(
        (texts.ids[index], role[index], int(labels[index])) for index in sorted(role)
    )
    return Planted(
        training=_take(texts, training, labels),
        calibration=_take(texts, part["calibration"], labels),
        candidates=_take(texts, candidates, labels),
        truth=truth,
    )


def save_truth(path: str | os.PathLike[str], planted: Planted) -> None:
    """Write the ground truth as CSV with the columns id, role, label."""
    content = io.StringIO(newline="")
    writer = csv.writer(content, lineterminator="\n")
    writer.writerow(("id", "role", "label"))
    writer.writerows(planted.truth)
    write_atomically(path, content.getvalue().encode())


def _take(texts: Texts, indices: np.ndarray, labels: np.ndarray) -> Texts:
    """The texts at `indices`, in that order, with their labels."""
    ids = tuple(texts.ids[index] for index in indices)
    taken = tuple(texts.texts[index] for index in indices)
    return Texts(
        ids=ids,
        texts=taken,
        labels=tuple(int(labels[index]) for index in indices),
        source=texts.source,
        sha256=hash_texts(ids, taken),
    )
