"""Near duplicates among texts, found without comparing all pairs.

Near duplicates are pairs of sets of n-grams with Jaccard similarity J = |A and B| / |A or B| of at least t. They are
found by a prefix filter (Bayardo, Ma & Srikant 2007; Wang, Li & Feng 2012): order all n-grams globally, rare ones
first. If J >= t, then A and B have at least o = ceil(t max(|A|, |B|)) n-grams in common, and for every l <= o at least
l of them are among the first |A| - ceil(t |A|) + l of A and the first |B| - ceil(t |B|) + l of B. Only pairs that pass,
with l = 4 or o if that is less, are compared.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import scipy.sparse as sp

from tdd.validate import InputError

_LONG = 60
_MAX_COMPARED = 5_000_000
_SIZE = 5
_PREFIX_MATCHES = 4
_BLOCK = 2_000_000
_MULTIPLIERS = np.array(
    [0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0xD6E8FEB86659FD93, 0xFF51AFD7ED558CCD],
    dtype=np.uint64,
)

Pairs = tuple[np.ndarray, np.ndarray, np.ndarray]
"""Row of the left, row of the right, similarity."""

NearSearch = Callable[[list[str], list[str], float], tuple[Pairs, bool]]
"""Finds near duplicates as `near_pairs` does."""


def near_pairs(left: list[str], right: list[str], near: float) -> tuple[Pairs, bool]:
    """Pairs of different texts with similarity `near` or more, best first; and False if the search stopped early."""
    if not 0 < near <= 1:
        raise InputError(f"near={near!r} must be a Jaccard similarity above 0 and at most 1")
    vocabulary: dict[str, int] = {}
    words = [
        [np.array([vocabulary.setdefault(word, len(vocabulary)) for word in text.split()]) for text in texts]
        for texts in (left, right)
    ]
    blocks: list[Pairs] = []
    num_compared = 0
    for by_words in (True, False):
        fits = [[len(row) >= _LONG if by_words else len(row) < 2 * _LONG for row in role] for role in words]
        rows = [np.flatnonzero(role) for role in fits]
        if not (rows[0].size and rows[1].size):
            continue
        first, second = (
            shingle_sets([role[i] if by_words else _letters(texts[i]) for i in chosen])
            for role, texts, chosen in zip(words, (left, right), rows, strict=True)
        )
        for a, b, similarity, work in similar_pairs(first, second, near):
            blocks.append((rows[0][a], rows[1][b], similarity))
            num_compared += work
            if num_compared > _MAX_COMPARED:
                return best_of_each(blocks, left, right), False
    return best_of_each(blocks, left, right), True


def _letters(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")


def best_of_each(blocks: list[Pairs], left: Sequence[str], right: Sequence[str]) -> Pairs:
    """Each pair once with its best similarity, best pairs first, without equal texts."""
    none = np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64), np.empty(0)
    a, b, similarity = (np.concatenate(part) for part in zip(none, *blocks, strict=True))
    order = np.lexsort((b, a, -similarity))
    a, b, similarity = a[order], b[order], similarity[order]
    _, first = np.unique(a * max(1, len(right)) + b, return_index=True)
    first = np.array([i for i in np.sort(first) if left[int(a[i])] != right[int(b[i])]], dtype=np.int64)
    return a[first], b[first], similarity[first]


@dataclasses.dataclass(frozen=True)
class Shingles:
    """Sets of n-grams."""

    row: np.ndarray  # [entries] int64 index of the set, not decreasing
    code: np.ndarray  # [entries] uint64 64-bit hash of the n-gram, no pair (row, code) twice
    sizes: np.ndarray  # [N] int64 number of elements of each set


def shingle_sets(sequences: Sequence[np.ndarray]) -> Shingles:
    """Sets of 5-grams of integer sequences; a shorter sequence, padded, is one n-gram.

    Two different 5-grams have the same code with a chance of about 2^-64 a pair.
    """
    lengths = np.array([max(len(sequence), _SIZE) for sequence in sequences], dtype=np.int64)
    starts = np.concatenate([[0], np.cumsum(lengths)])
    joined = np.zeros(starts[-1], dtype=np.uint64)
    for start, sequence in zip(starts, sequences, strict=False):
        joined[start : start + len(sequence)] = np.asarray(sequence, dtype=np.uint64) + np.uint64(1)
    row = np.repeat(np.arange(len(sequences)), lengths - _SIZE + 1)
    first = np.arange(row.size) + (_SIZE - 1) * row
    code = np.zeros(row.size, dtype=np.uint64)
    for offset in range(_SIZE):
        code = _mix((code ^ joined[first + offset]) * _MULTIPLIERS[offset])
    row, code = distinct_entries(row, code)
    return Shingles(row, code, np.bincount(row, minlength=len(sequences)).astype(np.int64))


def distinct_entries(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Each pair (first[i], second[i]) once, in ascending order."""
    order = np.lexsort((second, first))
    first, second = first[order], second[order]
    new = np.ones(first.size, dtype=bool)
    new[1:] = (first[1:] != first[:-1]) | (second[1:] != second[:-1])
    return first[new], second[new]


def similar_pairs(
    left: Shingles, right: Shingles, near: float
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, int]]:
    """All pairs with Jaccard similarity `near` or more, in blocks.

    A block is (row of `left`, row of `right`, similarity, number of pairs compared for it).

    Cost: linear in the n-grams, plus the compared pairs times their shared n-grams; memory is that of the n-grams
    and of one block of at most about two million pairs (more only where one text alone has more).
    """
    codes, inverse = np.unique(np.concatenate([left.code, right.code]), return_inverse=True)
    in_left, in_right = inverse[: left.code.size], inverse[left.code.size :]
    count_left = np.bincount(in_left, minlength=codes.size)
    count_right = np.bincount(in_right, minlength=codes.size)
    shared = (count_left > 0) & (count_right > 0)
    order = np.lexsort((count_left + count_right, ~shared))
    position = np.empty(codes.size, dtype=np.int64)
    position[order] = np.arange(codes.size)
    width = max(1, int(np.count_nonzero(shared)))
    sets = []
    for shingles, element in ((left, in_left), (right, in_right)):
        kept = shared[element]
        sets.append(_matrix(shingles.row[kept], position[element[kept]], (shingles.sizes.size, width)))
    prefixes = [_prefix(matrix, s.sizes, width, near) for matrix, s in zip(sets, (left, right), strict=True)]
    frequency = np.bincount(prefixes[1].indices, minlength=width)
    work = np.add.reduceat(np.append(frequency[prefixes[0].indices], 0), prefixes[0].indptr[:-1])
    work[np.diff(prefixes[0].indptr) == 0] = 0
    transposed = prefixes[1].T.tocsr()
    for start, stop in _blocks(work):
        candidates = (prefixes[0][start:stop] @ transposed).tocoo()
        rows, columns = candidates.row.astype(np.int64) + start, candidates.col.astype(np.int64)
        required = np.maximum(_overlap(left.sizes[rows], near), _overlap(right.sizes[columns], near))
        possible = np.minimum(left.sizes[rows], right.sizes[columns])
        fits = (possible >= required) & (candidates.data >= np.minimum(_PREFIX_MATCHES, required))
        rows, columns = rows[fits], columns[fits]
        common = _intersections(sets[0], sets[1], rows, columns)
        similarity = common / (left.sizes[rows] + right.sizes[columns] - common)
        similar = similarity >= near
        yield rows[similar], columns[similar], similarity[similar], rows.size


def _mix(values: np.ndarray) -> np.ndarray:
    """A bijection of 64-bit words in which every input bit moves every output bit (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _matrix(row: np.ndarray, column: np.ndarray, shape: tuple[int, int]) -> sp.csr_array:
    matrix = sp.csr_array((np.ones(row.size, dtype=np.int32), (row, column)), shape=shape)
    matrix.sort_indices()
    return matrix


def _overlap(sizes: np.ndarray, near: float) -> np.ndarray:
    """Fewest common elements that a set of each size needs for a similarity of `near`."""
    return np.ceil(near * sizes - 1e-9).astype(np.int64)


def _prefix(matrix: sp.csr_array, sizes: np.ndarray, width: int, near: float) -> sp.csr_array:
    """The n-grams of each set's prefix that both sides have; in the order, those of one side come first."""
    num_shared = np.diff(matrix.indptr)
    required = _overlap(sizes, near)
    length = np.where(num_shared < required, 0, num_shared - required + _PREFIX_MATCHES)
    place = np.arange(matrix.indices.size) - np.repeat(matrix.indptr[:-1], num_shared)
    kept = place < np.repeat(length, num_shared)
    row = np.repeat(np.arange(sizes.size), num_shared)
    return _matrix(row[kept], matrix.indices[kept], (sizes.size, width))


def _blocks(work: np.ndarray) -> Iterator[tuple[int, int]]:
    """Ranges of rows with at most about `_BLOCK` units of work together; rows without work at the ends are left."""
    total = np.cumsum(work)
    start = 0
    while start < work.size:
        done = total[start - 1] if start else 0
        stop = max(start + 1, int(np.searchsorted(total, done + _BLOCK, side="right")))
        if total[stop - 1] > done:
            yield start, stop
        start = stop


def _intersections(left: sp.csr_array, right: sp.csr_array, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Sizes of the intersections of set `rows[i]` of the left with set `columns[i]` of the right: [pairs] int64."""
    entries = np.diff(left.indptr)[rows] + np.diff(right.indptr)[columns]
    common = np.zeros(rows.size, dtype=np.int64)
    for start, stop in _blocks(entries):
        product = left[rows[start:stop]].multiply(right[columns[start:stop]])
        common[start:stop] = product.sum(axis=1)
    return common
