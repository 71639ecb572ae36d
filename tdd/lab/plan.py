"""What a recipe decides before training, and the texts that it begins with."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.lab.canaries import canary_set
from tdd.lab.corpus import generate
from tdd.lab.designs import CanariesDesign
from tdd.lab.plant import take
from tdd.lab.recipe import Recipe
from tdd.lab.truth import Row
from tdd.records import Texts
from tdd.texts import load_texts
from tdd.validate.errors import InputError

__all__ = ["Part", "Plan", "pool_of", "rows_of", "tokenizer_texts_of"]


@dataclasses.dataclass(frozen=True)
class Part:
    """Texts whose loss is measured after training.

    Attributes:
      name: of the part, as "member" or a set's name.
      copies: of each text in the training data of the model.
      texts: the texts; whole documents for canary sets.
    """

    name: str
    copies: int
    texts: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Plan:
    """Everything that is decided before training.

    Attributes:
      training: one tuple of documents a model.
      truth: rows of the ground truth.
      audited: path of a file within the run's folder -> its rows (id, text and what is known).
      held_out: texts that no model is trained on, for the evaluation loss; may be empty.
      parts: one tuple of `Part` a model.
      tokenizer_texts: what a tokenizer is trained on.
      hashes: SHA-256 of the texts that the plan was made of, by name.
    """

    training: tuple[tuple[str, ...], ...]
    truth: tuple[Row, ...]
    audited: Mapping[str, tuple[Row, ...]]
    held_out: tuple[str, ...]
    parts: tuple[tuple[Part, ...], ...]
    tokenizer_texts: tuple[str, ...]
    hashes: Mapping[str, str]


def pool_of(recipe: Recipe, count: int) -> Texts:
    """The first texts of the corpus, as many as the design needs; of a file that members are drawn from, none twice."""
    corpus = recipe.corpus
    if corpus.file is not None:
        texts = load_texts(recipe.place(corpus.file), text_field=corpus.text_field, id_field=corpus.id_field)
        _check_enough(corpus.file, len(texts), count, "texts")
        chosen = take(texts, np.arange(count))
        if not isinstance(recipe.plant, CanariesDesign):  # there the corpus is background alone
            _check_different(corpus.file, chosen.ids, chosen.texts)
        return chosen
    make = generate if corpus.generator == "documents" else canary_set
    return make(count, seed=recipe.seed_of("corpus"))


def tokenizer_texts_of(
    recipe: Recipe, own: tuple[str, ...], *, also_examples: bool = False, files: bool = False
) -> tuple[str, ...]:
    """Texts of the same kinds as the recipe's that are in no part of it; with texts from files, all texts alike."""
    if recipe.corpus.file is not None or files:
        return tuple(own)
    seed, count = recipe.seed_of("tokenizer"), recipe.tokenizer.texts
    if recipe.corpus.generator == "examples":
        return canary_set(count, seed=seed).texts
    if not also_examples:
        return generate(count, seed=seed).texts
    return generate(count - count // 2, seed=seed).texts + canary_set(max(1, count // 2), seed=seed).texts


def rows_of(texts: Texts, truth: Any = ()) -> tuple[Row, ...]:
    """Rows of a file of texts: id, text, and what is known: label, and a column for each model where there are any."""
    known = {row["id"]: {key: row[key] for key in row if key.startswith("model-")} for row in truth}
    rows = []
    for index, (name, text) in enumerate(zip(texts.ids, texts.texts, strict=True)):
        label = {"label": texts.labels[index]} if texts.labels else {}
        models = known.get(name, {})
        if models:
            label = {"label": max(models.values())}
        rows.append({"id": name, "text": text} | label | models)
    return tuple(rows)


def _check_enough(file: str, available: int, needed: int, what: str) -> None:
    """A file of texts holds as many as the design needs."""
    if available < needed:
        raise InputError(f"{file}: [plant] needs {needed} {what}, but corpus.file holds {available}")


def _check_different(file: str, ids: Sequence[str], texts: Sequence[str]) -> None:
    """No text is there twice: one copy could be trained on and the other be a non-member."""
    first: dict[str, str] = {}
    for name, text in zip(ids, texts, strict=True):
        if text in first:
            raise InputError(
                f"{file}: {first[text]!r} and {name!r} are the same text, of which one could be planted and the other "
                "not; remove the duplicates"
            )
        first[text] = name
