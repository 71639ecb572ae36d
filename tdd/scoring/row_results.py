"""Statistics of rows → scores of texts, as soon as all windows of a text are there."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tdd.records import TokenStats
from tdd.scoring.programs import Rows
from tdd.scoring.scores import ScoreRequest

__all__ = ["RowResults"]

_PAD = 64
"""Texts whose numbers of tokens round up to the same multiple of this are scored together."""


class RowResults:
    """Collects one pass. Holds statistics only of texts whose windows are not complete yet.

    Attributes:
      values: label -> [N] float64, the tokens' part of each score; NaN for texts without rows.
      num_tokens: [N] int64, scored tokens.
    """

    def __init__(self, rows: Rows, requests: Sequence[ScoreRequest]) -> None:
        num_texts = len(rows.tokens)
        self.values = {request.label: np.full(num_texts, np.nan) for request in requests}
        self.num_tokens = np.zeros(num_texts, np.int64)
        self._rows, self._requests = rows, requests
        self._missing = np.bincount(rows.text, minlength=num_texts)
        self._parts: dict[int, list[tuple[int, np.ndarray]]] = {}

    def add(self, row_indices: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Take in the statistics of some rows, [fields, targets] each."""
        complete: list[int] = []
        for row, part in zip(row_indices, parts, strict=True):
            text = int(self._rows.text[row])
            self._parts.setdefault(text, []).append((int(row), part))
            self._missing[text] -= 1
            if self._missing[text] == 0:
                complete.append(text)
        wide: dict[int, list[tuple[int, np.ndarray]]] = {}
        for text in complete:
            parts = [part for _, part in sorted(self._parts.pop(text), key=lambda p: p[0])]
            column = np.concatenate(parts, axis=1) if len(parts) > 1 else parts[0]
            wide.setdefault(-(-column.shape[1] // _PAD) * _PAD, []).append((text, column))
        for width, found in wide.items():
            self._reduce([text for text, _ in found], [column for _, column in found], width)

    def _reduce(self, texts: list[int], columns: list[np.ndarray], width: int) -> None:
        """Score complete texts together. What they are padded to depends on each alone: so do the bits of sums."""
        counts = np.array([column.shape[1] for column in columns])
        padded = np.zeros((len(self._rows.statistics), len(texts), width))
        for i, column in enumerate(columns):
            padded[:, i, : column.shape[1]] = column
        found = dict(zip(self._rows.statistics, padded, strict=True))
        absent = np.zeros(padded.shape[1:])
        mask = np.arange(width) < counts[:, None]
        names = [name for name in TokenStats.__dataclass_fields__ if name != "mask"]
        stats = TokenStats(**{name: found.get(name, absent) for name in names}, mask=mask)  # type: ignore[arg-type]
        self.num_tokens[texts] = counts
        for request in self._requests:
            self.values[request.label][texts] = request.rows(stats)
