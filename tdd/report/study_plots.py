"""The figures of a named study: its result, and where there is one, a close look at one repetition."""

from __future__ import annotations

import pathlib
from typing import Any

import numpy as np

from tdd.report.plots import levels, parameter, sheet, single_repetition
from tdd.report.plots.sheet import FORMATS
from tdd.study.named.record import Example, Figure

__all__ = ["FORMATS", "draw", "draw_example", "write"]

_LEVELS = {"levels": levels.levels, "bands": levels.bands, "bars": levels.bars, "tradeoff": levels.tradeoff}


def draw(result: Any, figure: Figure, *, title: str, caption: str = "") -> sheet.Sheet:
    """The figure of a study.

    Args:
      result: `StudyResult`.
      figure: how it is laid out.
      title: the procedure and the design in a few words.
      caption: the design in full; the number of repetitions is added to it.
    """
    said = " ".join(part for part in (_sentence(caption), _repetitions(result)) if part)
    if figure.kind == "parameter":
        place = int(np.argmin(np.abs(np.asarray(result.alphas) - figure.level)))
        if len(result.alphas) > 1:
            said = f"{said} The tables have every level."
        return parameter.parameter(result, figure, title=title, caption=said, alpha=place)
    return _LEVELS[figure.kind](result, figure, title=title, caption=said)


def draw_example(example: Example) -> sheet.Sheet:
    """The close look at one repetition."""
    drawing = {"staircase": single_repetition.staircase, "envelope": single_repetition.envelope}[example.kind]
    return drawing(example.arrays, title=example.title, caption=_sentence(example.caption))


def write(drawn: sheet.Sheet, path: pathlib.Path) -> pathlib.Path:
    """Write a figure whole or not at all, .png or .svg; the same figure gives the same bytes."""
    sheet.save(drawn, path)
    return path


def _sentence(words: str) -> str:
    return words and words[0].upper() + words[1:].rstrip(".") + "."


def _repetitions(result: Any) -> str:
    counts = np.unique(np.atleast_1d(result.repetitions))
    where = " in each cell" if len(result.cells) > 1 else ""
    if len(counts) == 1:
        return f"{counts[0]:,} repetitions{where}."
    return f"{counts[0]:,} to {counts[-1]:,} repetitions{where}."
