"""Quantised weights → float32, by the definition of each format. Pure NumPy; a block of rows is unpacked at a time.

Every function multiplies in float32, in the order of its definition: products of a 16-bit scale and an integer of at
most 8 bits are exact, others are rounded once. None makes a second copy of the whole weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

_BLOCK = 1 << 20
"""Numbers that are unpacked at a time."""

_NIBBLE_OF_COLUMN = np.array([0, 4, 1, 5, 2, 6, 3, 7], np.uint32)
"""AWQ's order: where column j of each eight lies in its word; nibbles 0 .. 7 hold columns 0, 2, 4, 6, 1, 3, 5, 7."""

_E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6], np.float32)
"""Magnitudes of the 4-bit numbers with two bits of exponent and one of mantissa; the highest bit is the sign."""

_EIGHT_BITS = (np.dtype(ml_dtypes.float8_e4m3fn), np.dtype(ml_dtypes.float8_e5m2), np.dtype(ml_dtypes.float8_e8m0fnu))


def floats(numbers: np.ndarray) -> np.ndarray:
    """As float32; those of eight bits by a table."""
    if numbers.dtype not in _EIGHT_BITS:
        return numbers.astype(np.float32)
    with np.errstate(invalid="ignore"):
        table = np.arange(256, dtype=np.uint8).view(numbers.dtype).astype(np.float32)
    return table[numbers.view(np.uint8)]


def scaled(
    numbers: Callable[[slice], np.ndarray],
    scales: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray,
    zeros: np.ndarray | None = None,
) -> np.ndarray:
    """w[i, j] = s[g, h] (q[i, j] - z[g, h]) with g = rows[i], h = columns[j].

    Args:
      numbers: A slice of rows (it starts at a multiple of 32) → q there [rows, C].
      scales: s [G, H], or [1, H], [G, 1], [1, 1].
      rows: The group of each row [R].
      columns: The group of each column [C].
      zeros: z [G, H], or None for 0.

    Returns:
      w [R, C], float32.
    """
    whole = np.empty((rows.size, columns.size), np.float32)
    scales = floats(scales)
    zeros = None if zeros is None else floats(zeros)

    def spread(groups: np.ndarray, part: slice) -> np.ndarray:
        chosen = groups[rows[part]]
        return chosen if groups.shape[1] == 1 else chosen[:, columns]

    for part in _blocks(rows.size, columns.size):
        block = floats(numbers(part))
        if zeros is not None:
            block -= spread(zeros, part)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found by who checks the weights
            np.multiply(block, spread(scales, part), out=whole[part])
    return whole


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    step = max(32, _BLOCK // max(1, columns) // 32 * 32)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
