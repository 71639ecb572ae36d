"""The pass for gradient norms: batches of whole texts, one number a text."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from tdd.records import LanguageModel
from tdd.scoring.devices import Devices
from tdd.scoring.gradients import grad_norms
from tdd.scoring.programs import Rows, lay_out

__all__ = ["GradientProgram", "GradientResults", "gradient_budget"]

_SHARE = 2
"""A batch for gradients has so many times fewer tokens: activations are kept for the way back."""


def gradient_budget(token_budget: int) -> int:
    """Tokens of a batch, where those of a batch for token statistics are given."""
    return max(1, token_budget // _SHARE)


class GradientProgram:
    """Gradient norms of the texts' summed losses under one model; one compiled program a bucket.

    Args:
      lm: the model.
      params: its parameters, where they are computed with.
      where: the devices.
    """

    def __init__(self, lm: LanguageModel, params: Any, where: Devices) -> None:
        self.lm, self.params, self.where = lm, params, where

    def start(self, pieces: Sequence[np.ndarray], size: int, length: int, rows: Rows, halvings: int) -> Any:
        """See `PassProgram`."""
        laid = [lay_out(piece, size, length, rows) for piece in pieces]
        masks = np.zeros((len(pieces), size * length), bool)
        for mask, (_, positions, _) in zip(masks, laid, strict=True):
            mask[positions + 1] = True  # a position's next token is the target
        tokens = self.where.put([tokens for tokens, _, _ in laid])
        mask = self.where.put([*masks.reshape(-1, size, length)])
        return _norms(self.lm, self.where, self.params, tokens, mask), [len(piece) for piece in pieces]

    def fetch(self, started: Any, rows: Rows) -> list[np.ndarray]:
        """See `PassProgram`: one column a row."""
        out, counts = started
        return [found[None, :count] for found, count in zip(self.where.fetch(out), counts, strict=True)]


class GradientResults:
    """Collects the pass.

    Attributes:
      values: [N] float64, norm of the gradient of each text's summed loss.
    """

    def __init__(self, rows: Rows) -> None:
        self.values = np.full(len(rows.tokens), np.nan)
        self._text = rows.text

    def add(self, row_indices: np.ndarray, parts: Sequence[np.ndarray]) -> None:
        """Take in the norms of some texts, [1, 1] each."""
        self.values[self._text[row_indices]] = np.concatenate(parts, axis=1)[0]


@functools.partial(jax.jit, static_argnames=("lm", "where"))
def _norms(lm: LanguageModel, where: Devices, params: Any, tokens: jax.Array, mask: jax.Array) -> jax.Array:
    return where.each(lambda *arrays: grad_norms(lm, *arrays).total, params, tokens, mask)
