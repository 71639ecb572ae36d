"""Rows that are the same go through the model once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tdd.scoring.programs import Rows
from tdd.scoring.store.address import row_key

__all__ = ["DistinctRows", "distinct_rows"]

_SAME = {"lowercase": "text"}
"""Passes through the same model: a text that is in lower case already is computed once."""


class DistinctRows(NamedTuple):
    """Which rows of all passes are computed.

    Attributes:
      keys: pass -> [R], what tells each row from others.
      first: pass -> [R] bool, rows like none before them.
      copies: (pass, row) -> the rows that get its numbers too, as (pass, row); only where there are any.
    """

    keys: Mapping[str, Sequence[bytes]]
    first: Mapping[str, np.ndarray]
    copies: Mapping[tuple[str, int], list[tuple[str, int]]]


def distinct_rows(passes: Mapping[str, Rows]) -> DistinctRows:
    """Find rows of equal tokens and targets, within each pass and between those of one model.

    Args:
      passes: their rows; those of a pass that is not computed have no statistics.

    Cost: one hash a row, about 2 microseconds.
    """
    keys: dict[str, list[bytes]] = {}
    first: dict[str, np.ndarray] = {}
    copies: dict[tuple[str, int], list[tuple[str, int]]] = {}
    seen: dict[str, dict[bytes, int]] = {}
    for name, rows in passes.items():
        if not rows.statistics:
            continue
        keys[name] = [
            row_key(rows.tokens[text][window.start : window.stop], window.first_target - window.start)
            for text, window in zip(map(int, rows.text), rows.windows, strict=True)
        ]
        seen[name], first[name] = {}, np.ones(len(keys[name]), bool)
        owners = [name]
        other = _SAME.get(name)
        if other in seen and set(rows.statistics) <= set(passes[other].statistics):
            owners.append(other)
        for row, key in enumerate(keys[name]):
            owner = next((one for one in owners if key in seen[one]), None)
            if owner is None:
                seen[name][key] = row
            else:
                first[name][row] = False
                copies.setdefault((owner, seen[owner][key]), []).append((name, row))
    return DistinctRows(keys, first, copies)
