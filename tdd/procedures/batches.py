"""Many rows of p-values from the host through one compiled function, a few megabytes at a time.

Copying 80 MB to a fresh device buffer takes longer than deciding on them. Pieces that fit the processor's cache are
copied where the piece before lay, while that one is being worked on.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

__all__ = ["in_pieces"]

PIECE_ITEMS = 2**20  # all pieces have one shape: the last overlaps the one before it where need be


def in_pieces(run: Callable[..., Any], rows: np.ndarray, mask: Any) -> Any:
    """`run(rows, mask)` over pieces of the rows.

    Args:
      run: compiled; rows [b, m] and mask [b, m] or None to a pytree of arrays [b, ...].
      rows: [B, m].
      mask: [B, m] or None.

    Returns:
      The pytree of NumPy arrays [B, ...].
    """
    total = rows.shape[0]
    step = max(1, PIECE_ITEMS // max(rows.shape[1], 1))
    if step >= total:
        return jax.tree.map(np.asarray, run(rows, mask))
    firsts = [min(first, total - step) for first in range(0, total, step)]
    pieces = [run(rows[i : i + step], None if mask is None else mask[i : i + step]) for i in firsts]
    skipped = len(firsts) * step - total  # rows of the last piece that the one before has

    def join(*leaves: jax.Array) -> np.ndarray:
        *whole, last = map(np.asarray, leaves)
        return np.concatenate([*whole, last[skipped:]])

    return jax.tree.map(join, *pieces)
