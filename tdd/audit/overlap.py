"""Texts that the two roles share: long runs of words in common, and whether there are more than chance would make.

Jaccard similarity does not see that a calibration text is the first half of a candidate. A run does: `RUN` words in a
row, or the whole of a text that has fewer (but `LEAST`, below which runs are common phrases). Copies and common
passages also occur among texts that are drawn alike: quotations, templates, repeated questions. They speak against
exchangeability where they stand across the roles more often than within them, which `sharing` tests.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from tdd.audit.duplicates import identifiers, strings
from tdd.audit.sampling import units_of
from tdd.records import Guarantee, Texts
from tdd.texts.near import NearSearch, distinct_entries, near_pairs
from tdd.texts.words import normalise

RUN, LEAST = 30, 8
_COMMON, _COMMON_FRACTION = 2, 0.05
_BASE = np.uint64(0x9E3779B97F4A7C15)
_DRAWS = 999

GUARANTEE_ROWS = [
    (
        "tdd.audit.overlap.sharing",
        "",
        Guarantee(
            "P(p <= t) <= t",
            ("calibration texts and candidates are exchangeable (groups of them, where groups are named)",),
            "finite-sample",
            "Phipson & Smyth (2010) for the observed division as one of the draws",
        ),
    )
]


@dataclasses.dataclass(frozen=True)
class Overlap:
    """The texts of each role that share a run of words with the other role."""

    num_candidates: int  # candidates that share a run of words with a calibration item
    num_calibration: int  # calibration items that share one with a candidate
    total_candidates: int  # candidates that were compared
    total_calibration: int  # calibration items that were compared
    example: tuple[str, ...]  # ids of a calibration item and a candidate, or an empty tuple
    warning: str = ""  # empty where nothing was found


def overlap(calibration: Texts | Sequence[str], candidates: Texts | Sequence[str]) -> Overlap:
    """Find calibration items and candidates that share 30 words in a row, or all of a shorter text of 8 words or more.

    Texts are compared after Unicode composition, case folding and reduction of white space. A run that stands in more
    than 5% of the texts of one role, and in more than two, is a template or a licence, and does not count. The search
    is complete but for these, and exact but for 64-bit hash collisions.

    Cost: linear in the words; those of the longer texts are looked at once for each length of a shorter one, at most
    22 times. A second for 4,000 texts of 500 words.
    """
    roles, n = (calibration, candidates), len(calibration)
    shares = [np.zeros(len(role), bool) for role in roles]
    example: tuple[str, ...] = ()
    for code, text in _shared_runs([*strings(calibration), *strings(candidates)]):
        known = text < n
        codes = [_rare(code[known], text[known], n), _rare(code[~known], text[~known] - n, len(candidates))]
        shared, first, second = np.intersect1d(codes[0][0], codes[1][0], return_indices=True)
        for (code, text), hit in zip(codes, shares, strict=True):
            hit[text[np.isin(code, shared)]] = True
        if shared.size and not example:
            rows = int(codes[0][1][first[0]]), int(codes[1][1][second[0]])
            example = tuple(str(identifiers(role)[row]) for role, row in zip(roles, rows, strict=True))
    result = Overlap(int(shares[1].sum()), int(shares[0].sum()), shares[1].size, shares[0].size, example)
    return dataclasses.replace(result, warning=_warning(result))


def _shared_runs(texts: Sequence[str]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Codes of the runs of each length that counts and the texts they stand in; one may stand in a text repeatedly."""
    known: dict[str, int] = {}
    words = [[known.setdefault(word, len(known)) for word in normalise(text).split()] for text in texts]
    stream, lengths = _stream(words), np.array([len(text) for text in words], dtype=np.int64)
    short = np.unique(lengths[(lengths >= LEAST) & (lengths < RUN)])
    for size in [*short.tolist(), RUN]:
        code, text = _runs(stream, size)
        if size < RUN:  # a whole text of this length on one side at least
            keep = np.isin(code, code[lengths[text] == size])
            code, text = code[keep], text[keep]
        yield code, text


def _stream(texts: list[list[int]]) -> tuple[np.ndarray, np.ndarray]:
    """Words of all texts one after another as mixed codes, and the text of each."""
    number = np.array([word for text in texts for word in text], dtype=np.uint64)
    with np.errstate(over="ignore"):
        mixed = (number + np.uint64(1)) * np.uint64(0xD6E8FEB86659FD93)
        mixed ^= mixed >> np.uint64(32)
        mixed *= np.uint64(0xC2B2AE3D27D4EB4F)
        mixed ^= mixed >> np.uint64(29)
    return mixed, np.repeat(np.arange(len(texts)), [len(text) for text in texts])


def _runs(stream: tuple[np.ndarray, np.ndarray], size: int) -> tuple[np.ndarray, np.ndarray]:
    """Codes of all runs of `size` words within a text, and their texts."""
    mixed, text = stream
    count = mixed.size - size + 1
    if count < 1:
        return np.zeros(0, np.uint64), np.zeros(0, np.int64)
    code = np.zeros(count, np.uint64)
    with np.errstate(over="ignore"):
        for offset in range(size):
            code = code * _BASE + mixed[offset : offset + count]
            code ^= code >> np.uint64(31)
    inside = text[:count] == text[size - 1 :]
    return code[inside], text[:count][inside]


def _rare(code: np.ndarray, text: np.ndarray, total: int) -> tuple[np.ndarray, np.ndarray]:
    """Each (code, text) once, without codes of many of the `total` texts."""
    code, text = distinct_entries(code, text)
    _, inverse, times = np.unique(code, return_inverse=True, return_counts=True)
    few = times[inverse] <= max(_COMMON, _COMMON_FRACTION * total)
    return code[few], text[few]


def _warning(result: Overlap) -> str:
    if not result.num_calibration:
        return ""
    return (
        f"{result.num_calibration} of {result.total_calibration} calibration items and {result.num_candidates} of "
        f"{result.total_candidates} candidates share {RUN} words in a row, or all of a shorter text (calibration item "
        f"{result.example[0]!r} and candidate {result.example[1]!r}, for one): parts of one text are not independent "
        "draws; remove them from one role"
    )


@dataclasses.dataclass(frozen=True)
class Sharing:
    """The texts that share something with the other role, against random divisions."""

    p_value: float  # p-value of the null that roles were given to the texts (or groups) at random
    num_shared: int  # texts of both roles that share something with the other role
    expected: float  # their mean number in a random division
    num_draws: int  # random divisions
    warning: str = ""  # empty; the searches for copies and common passages warn of what they find


def sharing(
    calibration: Texts | Sequence[str],
    candidates: Texts | Sequence[str],
    *,
    seed: int,
    groups: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
    near: float = 0.8,
    search: NearSearch | None = None,
) -> Sharing:
    """Test the number of texts that share something with the other role against random divisions of the same texts.

    Two texts share something where they are equal, nearly equal (Jaccard similarity .8; see `tdd.texts.near`), or
    have a run of words in common (see `tdd.audit.overlap`; runs in more than 5% of all texts are templates).

    Guarantee: P(p_value <= t) <= t if texts (groups, where they are named) of both roles are exchangeable;
    finite-sample. The observed division counts as one of the draws.

    Args:
      seed: seed of the divisions.
      groups: as in `blind_baseline`; a group goes to one role as a whole.
      near, search: as in `duplicates`, for items that are no texts.

    Cost: the two searches over all texts, and 999 passes over what they found.
    """
    texts = [*strings(calibration), *strings(candidates)]
    known = np.arange(len(texts)) < len(calibration)
    unit, role = units_of(known, range(len(texts)) if groups is None else [*groups[0], *groups[1]])
    link, text = _links(texts, near, search or near_pairs)
    observed = _num_across(link, text, known)
    if not observed:
        return Sharing(1.0, 0, 0.0, 0)
    rng = np.random.default_rng((seed, 0x5A4E))
    drawn = np.array([_num_across(link, text, rng.permutation(role)[unit]) for _ in range(_DRAWS)])
    p_value = (1 + int((drawn >= observed).sum())) / (1 + _DRAWS)
    return Sharing(p_value, observed, float(drawn.mean()), _DRAWS)


def _links(texts: Sequence[str], near: float, search: NearSearch) -> tuple[np.ndarray, np.ndarray]:
    """Numbers of what at least two texts share, and the text of each entry."""
    normal = [normalise(text) for text in texts]
    place: dict[str, int] = {}
    first = np.array([place.setdefault(text, row) for row, text in enumerate(normal)], np.int64)
    order, unique = np.argsort(first, kind="stable"), np.unique(first)
    copies = np.split(order, np.flatnonzero(np.diff(first[order])) + 1) if len(texts) else []
    distinct = [normal[row] for row in unique]
    (left, right, _), complete = search(distinct, distinct, near)
    parts = [(first, np.arange(len(texts)))]
    if complete and left.size:  # an early end depends on the order of the texts
        alike = [np.concatenate([copies[a], copies[b]]) for a, b in zip(left, right, strict=True)]
        parts.append((np.repeat(np.arange(left.size), [rows.size for rows in alike]), np.concatenate(alike)))
    parts += [_rare(code, text, len(texts)) for code, text in _shared_runs(texts)]
    links, rows, offset = [], [], 0
    for code, text in parts:
        _, number, times = np.unique(code, return_inverse=True, return_counts=True)
        keep = times[number] > 1
        links.append(number[keep] + offset)
        rows.append(text[keep])
        offset += times.size
    return np.concatenate(links), np.concatenate(rows)


def _num_across(link: np.ndarray, text: np.ndarray, known: np.ndarray) -> int:
    """Texts with a link to a text of the other role."""
    if not link.size:
        return 0
    role = known[text].astype(int)
    size = int(link.max()) + 1
    count = np.stack([np.bincount(link[role == value], minlength=size) for value in (0, 1)])
    across = count[1 - role, link] > 0
    return int(np.unique(text[across]).size)
