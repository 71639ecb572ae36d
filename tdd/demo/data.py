"""The packaged checkpoint, texts and truth."""

from __future__ import annotations

import os
import pathlib
from importlib import resources
from typing import NamedTuple

from tdd.records import Texts
from tdd.texts import load_texts


class DemoFiles(NamedTuple):
    """Paths of a demonstration."""

    checkpoint: pathlib.Path  # folder in Hugging Face's format
    calibration: pathlib.Path  # JSON lines with id, text and label 0: texts that the model was not trained on
    candidates: pathlib.Path  # JSON lines with id, text and label: 1 where the model was trained on the text, else 0
    # CSV with id, role and label of these texts and of everything else that the model was trained on
    truth: pathlib.Path


def demo_files(folder: str | os.PathLike[str] | None = None) -> DemoFiles:
    """The files of the packaged demonstration, or of one that `tdd.demo.retrain.retrain` wrote to `folder`.

    >>> demo_files().candidates.name
    'candidates.jsonl'
    """
    base = pathlib.Path(str(resources.files("tdd.demo")) if folder is None else folder)
    corpus = base / "corpus"
    return DemoFiles(
        checkpoint=base / "checkpoint",
        calibration=corpus / "calibration.jsonl",
        candidates=corpus / "candidates.jsonl",
        truth=corpus / "truth.csv",
    )


def load_calibration(files: DemoFiles | None = None) -> Texts:
    """The calibration texts, all of label 0."""
    return load_texts((files or demo_files()).calibration, label_field="label")


def load_candidates(files: DemoFiles | None = None) -> Texts:
    """The candidates with their labels, in random order."""
    return load_texts((files or demo_files()).candidates, label_field="label")
