"""Quantised weights → float32, by the definition of each format. Pure NumPy; a block of rows is unpacked at a time.

Every function multiplies in float32, in the order of its definition: products of a 16-bit scale and an integer of at
most 8 bits are exact, others are rounded once. None makes a second copy of the whole weight.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import ml_dtypes
import numpy as np

_BLOCK = 1 << 16
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


def unpacked(words: np.ndarray, bits: int, count: int) -> np.ndarray:
    """Unsigned integers of `bits` bits, one after the other, lowest bits first, along the first axis of 32-bit words.

    Args:
      words: int32 [N, ...], N = ceil(count * bits / 32).
      bits: 1 to 8.
      count: K, how many integers there are.

    Returns:
      [K, ...], uint8. Integer k is in the bits k * bits to k * bits + bits - 1 of the stream, across words.
    """
    stream = words.view(np.uint32)
    first = np.arange(count) * bits
    shift = (first % 32).astype(np.uint32).reshape(-1, *[1] * (words.ndim - 1))
    found = stream[first // 32] >> shift
    if 32 % bits:
        crossing = np.flatnonzero(first % 32 + bits > 32)
        found[crossing] |= stream[first[crossing] // 32 + 1] << (32 - shift[crossing])
    return (found & np.uint32(2**bits - 1)).astype(np.uint8)


def gptq(
    numbers: np.ndarray, zeros: np.ndarray, scales: np.ndarray, groups: np.ndarray, *, bits: int, offset: int
) -> np.ndarray:
    """GPTQ: w[o, i] = s[g, o] (q[i, o] - z[g, o]) with g = groups[i] (Frantar et al. 2023; AutoGPTQ's layout).

    The first version of the format stores zero points minus 1, which `offset` = 1 undoes: they are 1 to 2^bits, as the
    kernels of AutoGPTQ, ExLlama and Marlin read them. The second version stores them as they are.

    Args:
      numbers: q, packed along inputs, int32 [I bits / 32, O].
      zeros: Packed along outputs, int32 [G, O bits / 32].
      scales: s [G, O].
      groups: The group of each input [I], below G.
      bits: 2, 3, 4 or 8.
      offset: 1 or 0.

    Returns:
      w [O, I], float32, transposed in memory.
    """
    outputs = scales.shape[1]
    points = unpacked(zeros.T, bits, outputs).T.astype(np.uint16) + offset

    def rows(part: slice) -> np.ndarray:
        return unpacked(numbers[part.start * bits // 32 : -(-part.stop * bits // 32)], bits, part.stop - part.start)

    return scaled(rows, scales, groups, outputs, points).T


def awq(numbers: np.ndarray, zeros: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """AWQ, as its GEMM reads it: w[o, i] = s[g, o] (q[i, o] - z[g, o]), groups of I / G inputs (Lin et al. 2024).

    Args:
      numbers: q, four bits each, packed along outputs in AWQ's order, int32 [I, O / 8].
      zeros: z, packed likewise, int32 [G, O / 8].
      scales: s [G, O].

    Returns:
      w [O, I], float32, transposed in memory.
    """

    def columns(words: np.ndarray) -> np.ndarray:
        nibbles = (words.view(np.uint32)[..., None] >> (4 * _NIBBLE_OF_COLUMN)) & np.uint32(15)
        return nibbles.astype(np.uint8).reshape(len(words), -1)

    inputs, outputs = len(numbers), scales.shape[1]
    groups = np.arange(inputs) // (inputs // len(scales))
    return scaled(lambda part: columns(numbers[part]), scales, groups, outputs, columns(zeros)).T


def four_bits(numbers: np.ndarray, scales: np.ndarray, code: np.ndarray, *, block: int, count: int) -> np.ndarray:
    """bitsandbytes' 4 bits: w[k] = code[q[k]] s[k // block], k along the flat weight (Dettmers et al. 2023).

    Args:
      numbers: q, two in a byte, the first in its upper half, uint8 [ceil(K / 2)].
      scales: s [ceil(K / block)], the greatest magnitude of each block, float32.
      code: The 16 numbers that q stands for, float32.
      block: How many numbers share a scale.
      count: K.

    Returns:
      w [K], float32.
    """
    whole = np.empty(count, np.float32)
    step = max(2 * block, _BLOCK // (2 * block) * (2 * block))
    for start in range(0, count, step):
        stop = min(start + step, count)
        packed = numbers[start // 2 : -(-stop // 2)]
        halves = np.stack([packed >> 4, packed & 15], -1).reshape(-1)[: stop - start]
        of_each = np.repeat(scales[start // block : -(-stop // block)], block)[: stop - start]
        with np.errstate(over="ignore", invalid="ignore"):
            np.multiply(code[halves], of_each, out=whole[start:stop])
    return whole


def nested(numbers: np.ndarray, scales: np.ndarray, code: np.ndarray, *, block: int, offset: float) -> np.ndarray:
    """bitsandbytes' scales of scales: code[q[k]] s[k // block] + offset.

    Args:
      numbers: q, uint8 [K].
      scales: s [ceil(K / block)], float32.
      code: The 256 numbers that q stands for, float32.
      block: How many numbers share a scale.
      offset: What was subtracted before.

    Returns:
      [K], float32; product and sum are each rounded.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        return code[numbers] * np.repeat(scales, block)[: numbers.size] + np.float32(offset)


def eight_bits(numbers: np.ndarray, scales: np.ndarray) -> np.ndarray:
    """bitsandbytes' 8 bits: w[o, i] = q[o, i] s[o] / 127, with the reciprocal of 127 (Dettmers et al. 2022).

    Args:
      numbers: q, int8 [O, I].
      scales: s [O], the greatest magnitude of each output, float32.

    Returns:
      w [O, I], float32.
    """
    whole = scaled(lambda part: numbers[part], scales.reshape(-1, 1), np.arange(len(numbers)), numbers.shape[1])
    whole *= np.float32(1 / 127)
    return whole


def mxfp4(numbers: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """MXFP4: w = e2m1(q) 2^(e - 127), a block of 32 numbers sharing e (OCP Microscaling Formats 1.0, sections 5 and 6).

    Args:
      numbers: q, two in a byte, the first in its lower half, uint8 [..., N, 16].
      exponents: e of each block, uint8 [..., N]; 255 is NaN.

    Returns:
      w [..., 32 N], float32.
    """
    table = np.concatenate([_E2M1, -_E2M1])
    pairs = np.stack([table[np.arange(256) & 15], table[np.arange(256) >> 4]], -1)
    factors = floats(exponents.view(_EIGHT_BITS[2]))
    whole = np.empty((*exponents.shape[:-1], 32 * exponents.shape[-1]), np.float32)
    for index in np.ndindex(*exponents.shape[:-1][:1]):
        blocks = pairs[numbers[index]].reshape(*exponents[index].shape, 32)
        with np.errstate(over="ignore", invalid="ignore"):
            blocks *= factors[index][..., None]
        whole[index] = blocks.reshape(whole[index].shape)
    return whole


def scaled(
    numbers: Callable[[slice], np.ndarray],
    scales: np.ndarray,
    rows: np.ndarray,
    columns: np.ndarray | int,
    zeros: np.ndarray | None = None,
) -> np.ndarray:
    """w[i, j] = s[g, h] (q[i, j] - z[g, h]) with g = rows[i], h = columns[j].

    Args:
      numbers: A slice of rows (it starts at a multiple of 32) → q there [rows, C].
      scales: s [G, H], or [1, H], [G, 1], [1, 1].
      rows: The group of each row [R].
      columns: The group of each column [C], or C where each column is a group of its own.
      zeros: z [G, H], or None for 0.

    Returns:
      w [R, C], float32.
    """
    whole = np.empty((rows.size, columns if isinstance(columns, int) else columns.size), np.float32)
    scales = floats(scales)
    zeros = None if zeros is None else floats(zeros)

    def spread(groups: np.ndarray, part: slice) -> np.ndarray:
        chosen = groups[rows[part]]
        return chosen if groups.shape[1] == 1 or isinstance(columns, int) else chosen[:, columns]

    for part in _blocks(*whole.shape):
        block = floats(numbers(part))
        if zeros is not None:
            block -= spread(zeros, part)
        with np.errstate(over="ignore", invalid="ignore"):  # what is not finite is found by who checks the weights
            np.multiply(block, spread(scales, part), out=whole[part])
    return whole


def _blocks(rows: int, columns: int) -> Iterator[slice]:
    step = max(32, _BLOCK // max(1, columns) // 32 * 32)
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))
