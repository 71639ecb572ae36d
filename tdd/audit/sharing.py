"""Do texts of the two roles share more with one another than a random division of the same texts would make them?

Copies and common passages also occur among texts that are drawn alike: quotations, templates, repeated questions. They
speak against exchangeability where they stand across the roles more often than within them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Hashable, Sequence

import numpy as np

from tdd.audit.duplicates import near_pairs
from tdd.audit.overlap import rare, shared_runs
from tdd.audit.words import normalise
from tdd.records import Guarantee, Texts

__all__ = ["GUARANTEE_ROWS", "Sharing", "sharing"]

_DRAWS = 999
_NEAR = 0.8

GUARANTEE_ROWS = [
    (
        "tdd.audit.sharing.sharing",
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
class Sharing:
    """What was found.

    Attributes:
      p_value: of the null that roles were given to the texts (or groups) at random.
      num_shared: texts of both roles that share something with the other role.
      expected: how many would in a random division, on average.
      num_draws: random divisions.
      warning: empty; the searches for copies and common passages warn of what they find.
    """

    p_value: float
    num_shared: int
    expected: float
    num_draws: int
    warning: str = ""


def sharing(
    calibration: Texts | Sequence[str],
    candidates: Texts | Sequence[str],
    *,
    seed: int,
    groups: tuple[Sequence[Hashable], Sequence[Hashable]] | None = None,
) -> Sharing:
    """Test the number of texts that share something with the other role against random divisions of the same texts.

    Two texts share something where they are equal, nearly equal (Jaccard similarity .8; see `tdd.audit.duplicates`), or
    have a run of words in common (see `tdd.audit.overlap`; runs in more than 5 % of all texts are templates).

    Guarantee: P(p_value <= t) <= t if texts (groups, where they are named) of both roles are exchangeable;
    finite-sample. The observed division counts as one of the draws.

    Args:
      calibration: calibration texts.
      candidates: candidate texts.
      seed: of the divisions.
      groups: group of every calibration text and of every candidate; a group goes to one role as a whole, and the parts
        of a group with both roles count as two.

    Returns:
      `Sharing`.

    Cost: the two searches over all texts, and 999 passes over what they found.
    """
    texts = [*_strings(calibration), *_strings(candidates)]
    own = np.arange(len(texts)) < len(calibration)
    group: Sequence[Hashable] = range(len(texts)) if groups is None else [*groups[0], *groups[1]]
    numbers: dict[Hashable, int] = {}
    unit = np.array([numbers.setdefault(key, len(numbers)) for key in zip(own.tolist(), group, strict=True)], np.int64)
    role = np.zeros(len(numbers), bool)
    role[unit] = own
    link, text = _links(texts)
    observed = _num_across(link, text, own)
    if not observed:
        return Sharing(1.0, 0, 0.0, 0)
    rng = np.random.default_rng((seed, 0x5A4E))
    drawn = np.array([_num_across(link, text, rng.permutation(role)[unit]) for _ in range(_DRAWS)])
    p_value = (1 + int((drawn >= observed).sum())) / (1 + _DRAWS)
    return Sharing(p_value, observed, float(drawn.mean()), _DRAWS)


def _links(texts: Sequence[str]) -> tuple[np.ndarray, np.ndarray]:
    """What is shared, as a number, and each text that has it; in at least two texts."""
    normal = [normalise(text) for text in texts]
    place: dict[str, int] = {}
    first = np.array([place.setdefault(text, row) for row, text in enumerate(normal)], np.int64)
    order, unique = np.argsort(first, kind="stable"), np.unique(first)
    copies = np.split(order, np.flatnonzero(np.diff(first[order])) + 1) if len(texts) else []
    distinct = [normal[row] for row in unique]
    (left, right, _), complete = near_pairs(distinct, distinct, _NEAR)
    parts = [(first, np.arange(len(texts)))]
    if complete and left.size:  # an early end depends on the order of the texts
        alike = [np.concatenate([copies[a], copies[b]]) for a, b in zip(left, right, strict=True)]
        parts.append((np.repeat(np.arange(left.size), [rows.size for rows in alike]), np.concatenate(alike)))
    parts += [rare(code, text, len(texts)) for code, text in shared_runs(texts)]
    links, rows, offset = [], [], 0
    for code, text in parts:
        _, number, times = np.unique(code, return_inverse=True, return_counts=True)
        keep = times[number] > 1
        links.append(number[keep] + offset)
        rows.append(text[keep])
        offset += times.size
    link, row = np.concatenate(links), np.concatenate(rows)
    return link, row


def _num_across(link: np.ndarray, text: np.ndarray, own: np.ndarray) -> int:
    """Texts with a link to a text of the other role."""
    if not link.size:
        return 0
    mine = own[text]
    size = int(link.max()) + 1
    count = np.stack([np.bincount(link[~mine], minlength=size), np.bincount(link[mine], minlength=size)])
    across = count[1 - mine.astype(int), link] > 0
    return int(np.unique(text[across]).size)


def _strings(texts: Texts | Sequence[str]) -> Sequence[str]:
    return texts.texts if isinstance(texts, Texts) else texts
