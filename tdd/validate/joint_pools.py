"""Checks of pools with one membership label a model, and of the subsets that are drawn from them."""

from __future__ import annotations

from typing import Any

import numpy as np

from tdd.kernels.joint_resample import LARGEST
from tdd.validate.arrays import as_matrix, check_finite
from tdd.validate.errors import InputError

__all__ = ["as_joint_pool", "check_subset"]


def as_joint_pool(calibration: Any, scores: Any, member: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Scores of both parts, and which candidates are contaminated: members of at least one model.

    Raises:
      InputError: shapes that do not fit, missing or infinite scores, labels that are not boolean, too many items.
    """
    own = np.asarray(as_matrix(calibration, "calibration", "[models, items]"))
    tested = np.asarray(as_matrix(scores, "scores", "[models, items]"))
    if own.shape[0] != tested.shape[0]:
        raise InputError(f"calibration has {own.shape[0]} models and scores {tested.shape[0]}; give the same models")
    for name, panel in (("calibration", own), ("scores", tested)):
        if panel.size == 0:
            raise InputError(f"{name} is empty, shape {panel.shape}; a pool needs at least one model and one item")
        check_finite(panel, name)
        if np.issubdtype(panel.dtype, np.floating):
            missing = int(np.isnan(panel).any(axis=0).sum())
            if missing:
                raise InputError(
                    f"{name}: {missing} of {panel.shape[1]} items lack the score of some model (NaN); leave them out "
                    "of the pool"
                )
        if panel.shape[1] > LARGEST:
            raise InputError(
                f"{name} holds {panel.shape[1]:,} items; this engine counts up to {LARGEST:,}. Pass a random part of "
                "the pool, or use tdd.study.run"
            )
    labels = np.asarray(member)
    if labels.shape not in (tested.shape, tested.shape[1:]):
        raise InputError(
            f"member must have the shape of scores, {tested.shape} (one label a model and item), or "
            f"{tested.shape[1:]} (member of at least one model); got {labels.shape}"
        )
    if labels.dtype != np.bool_:
        raise InputError(f"member must be boolean (True = the model was trained on the item), got dtype {labels.dtype}")
    return own, tested, labels if labels.ndim == 1 else np.asarray(labels.any(axis=0))


def check_subset(wanted: Any, size: int, name: str) -> int:
    """How many items of a pool a repetition draws; None is half of them, rounded down, and at least one."""
    if wanted is None:
        return max(1, size // 2)
    if isinstance(wanted, bool) or not isinstance(wanted, (int, np.integer)) or not 1 <= wanted <= size:
        raise InputError(
            f"{name} must be a whole number from 1 to {size}, the size of that part of the pool; got {wanted!r}"
        )
    return int(wanted)
