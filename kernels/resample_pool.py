"""A labelled pool in order, and the sizes of the splits drawn from it: what `resample` needs, prepared on the host."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from tdd.kernels import lattice

__all__ = ["Pool", "Split", "fixed_split", "half_split", "prepare", "tails"]


class Pool(NamedTuple):
    """A labelled pool in order; a place is a number of its N0 non-members, counted from the lowest score."""

    below: Any  # [N0 + 1] int32, members strictly below each non-member; N1 at the end
    up_to: Any  # [N0 + 1] int32, members not above it; N1 at the end
    group: Any  # [N0 + 1] int32, the first non-member of its tie group; N0 at the end
    behind: Any  # [N0 + 1] int32, the first non-member above its tie group; N0 at the end
    nonmembers: Any  # [N0] float32 scores in order, centred and scaled, for the moment estimate
    members: Any  # [N1] float32, likewise


class Split(NamedTuple):
    """The law of the sizes of a split."""

    least: Any  # [] int32, the smallest number of calibration items n
    steps: Any  # [c] uint32, 2^32 P(n <= least + i), so that n = least + #{steps <= a 32-bit draw}
    num_tests: Any  # [] int32, m
    # [] int32, how many of them are members; -1 where everything that does not lie in the calibration half is tested
    test_members: Any


def prepare(scores: np.ndarray, is_member: np.ndarray) -> Pool:
    """Sort a pool once.

    Args:
      scores: [N] loss-like scores without NaN, any real dtype; ties are kept as they are.
      is_member: [N] bool.
    """
    low, high = np.sort(scores[~is_member]), np.sort(scores[is_member])
    counted = [
        (among, count)
        for among in (high, low)
        for count in (np.searchsorted(among, low, "left"), np.searchsorted(among, low, "right"))
    ]
    counts = [np.append(count, len(among)).astype(np.int32) for among, count in counted]
    wide = scores.astype(np.float64) / 4  # a quarter: the range of the largest floats overflows
    unit = float(np.ptp(wide)) or 1.0
    values = ((part.astype(np.float64) / 4 - wide.mean()) / unit for part in (low, high))
    return Pool(*counts, *(np.asarray(part, np.float32) for part in values))


def half_split(num_nonmembers: int, num_members: int) -> Split:
    """Halves: floor(N/2) items drawn at random calibrate (the non-members among them), the others are tested.

    n is hypergeometric; its distribution is rounded to multiples of 2^-32.

    References: PTDI, section 4.1.
    """
    size = num_nonmembers + num_members
    half = size // 2
    least, most = max(0, half - num_members), min(half, num_nonmembers)
    n = np.arange(least, most, dtype=np.float64)
    # log P(n + 1) - log P(n), summed from the left and centred: relative errors of 1e-12 at most.
    steps = np.log((num_nonmembers - n) * (half - n)) - np.log((n + 1) * (num_members - half + n + 1))
    logs = np.concatenate([[0.0], np.cumsum(steps)])
    weights = np.exp(logs - logs.max())
    reached = np.minimum(np.floor(np.cumsum(weights) / weights.sum() * 2.0**32), 2.0**32 - 1).astype(np.uint32)[:-1]
    # Values of n with less than one 32-bit draw are never met: leave them out.
    first = int((reached == 0).sum())
    last = int((reached < 2**32 - 1).sum())
    return Split(np.int32(least + first), reached[first : last + 1], np.int32(size - half), np.int32(-1))


def fixed_split(num_calibration: int, num_tests: int, test_members: int) -> Split:
    """Fixed sizes: n non-members calibrate; m items, `test_members` of them members, are tested; the rest is idle."""
    return Split(np.int32(num_calibration), np.zeros(0, np.uint32), np.int32(num_tests), np.int32(test_members))


def tails(num_nonmembers: int, eta: Any) -> np.ndarray:
    """[N0 + 1] int32: max(1, floor(eta·n)) for n = 0..N0, exact for a number, as `proportion.tail_size`.

    Raises ValueError: eta outside (0, 1).
    """
    level = lattice.as_level(eta)
    a, b = int(level.numerator), int(level.denominator)
    return np.asarray([max(1, n * a // b) for n in range(num_nonmembers + 1)], np.int32)
