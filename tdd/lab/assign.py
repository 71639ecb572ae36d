"""Several models, each trained on texts of its own: who saw what, at random, and written down."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tdd.lab.plant import take
from tdd.lab.truth import Row
from tdd.records import Texts
from tdd.validate.errors import InputError
from tdd.validate.lab import check_count, check_range, check_texts
from tdd.validate.planting import check_shares

__all__ = ["ThreeBlocks", "assign_models", "three_blocks", "training_lists"]

_ASSIGN, _ORDER, _DIVIDE = 1, 2, 3
"""Second number of a stream's seed: what is drawn from it."""


def assign_models(texts: Texts, num_models: int, *, share: float | Sequence[float] = 0.5, seed: int) -> np.ndarray:
    """Which model is trained on which text: for each model a random share of the texts, independently of the others.

    Model k gets ⌊share·N + 1/2⌋ of the N texts, every subset of that size equally likely, from a stream of its own:
    another number of models changes nothing for the first ones.

    Args:
      texts: the N texts.
      num_models: K.
      share: of the texts that a model is trained on, 0..1; one number for all models, or one for each, as
        (0.3, 0, 0, 0) for one contaminated model among four.
      seed: of the assignment.

    Returns:
      [K, N] bool, True where the model is trained on the text.

    Raises:
      InputError: no text, no model, or a share outside 0..1.
    """
    check_count("num_models", num_models, minimum=1)
    check_count("seed", seed, minimum=0)
    check_texts("texts", texts.texts)
    member = np.zeros((num_models, len(texts)), bool)
    for model, part in enumerate(check_shares("share", share, num_models)):
        order = np.random.default_rng([seed, _ASSIGN, model]).permutation(len(texts))
        member[model, order[: math.floor(part * len(texts) + 0.5)]] = True
    return member


def training_lists(
    texts: Texts, member: np.ndarray, *, background: Texts | None = None, seed: int
) -> tuple[Texts, ...]:
    """What each model is trained on: its texts and the background, in an order of its own.

    Args:
      texts: the N texts.
      member: [K, N] bool.
      background: texts that all models are trained on, with other identifiers.
      seed: of the orders.

    Returns:
      K `Texts`; empty where a model is trained on nothing.
    """
    shared = Texts(ids=(), texts=()) if background is None else background
    both = Texts(ids=texts.ids + shared.ids, texts=texts.texts + shared.texts, source=texts.source)
    later = np.arange(len(texts), len(both))
    return tuple(
        take(
            both, np.random.default_rng([seed, _ORDER, model]).permutation(np.concatenate([np.flatnonzero(row), later]))
        )
        for model, row in enumerate(member)
    )


class ThreeBlocks(NamedTuple):
    """K models and three blocks of texts.

    Attributes:
      calibration: texts that every model is trained on.
      remainder: texts of which each model is trained on a random share of its own.
      clean: texts that no model is trained on.
      member: [K, N] bool, True where the model is trained on the text; columns in the order of the input.
      training: K `Texts`, what each model is trained on, in random order.
      truth: one row a text in the order of the input: id, block, model-1 .. model-K (1 trained on, else 0).
    """

    calibration: Texts
    remainder: Texts
    clean: Texts
    member: np.ndarray
    training: tuple[Texts, ...]
    truth: tuple[Row, ...]


def three_blocks(
    texts: Texts,
    *,
    num_models: int,
    calibration: float = 0.3,
    remainder: float = 0.1,
    share: float | Sequence[float] = 0.5,
    background: Texts | None = None,
    seed: int,
) -> ThreeBlocks:
    """Divide texts at random into calibration, remainder and clean, and say what each of K models is trained on.

    ⌊calibration·N⌋ texts are trained on by all models, ⌊remainder·N⌋ by a random share of the models each (`share` of
    them by each model, `assign_models`), the rest by none. The texts to be audited are those of remainder and clean. A
    text of the remainder that model k was trained on is exchangeable with the calibration texts for model k.

    Args:
      texts: the N texts.
      num_models: K.
      calibration: share of the texts that is known to be in the training data of all models, above 0.
      remainder: share of the texts that some models are trained on.
      share: of the remainder that a model is trained on; one number, or one a model.
      background: texts that all models are trained on besides, audited by nobody; in no row of the truth.
      seed: of division and assignment.

    Raises:
      InputError: shares outside 0..1 or of a sum of 1 or more, a block without a text, no model.

    References: the experiments of the JECS paper (calibration .3, remainder .1, share .5).
    """
    check_count("num_models", num_models, minimum=1)
    check_count("seed", seed, minimum=0)
    for name, value in (("calibration", calibration), ("remainder", remainder)):
        check_range(name, value, 0.0, 1.0)
    # rounded first: .3 · 10 is 2.9999999999999996 in binary
    sizes = [math.floor(round(part * len(texts), 6)) for part in (calibration, remainder)]
    _check_blocks(len(texts), sizes, calibration, remainder)
    order = np.random.default_rng([seed, _DIVIDE]).permutation(len(texts))
    known, some, none = np.split(order, np.cumsum(sizes))
    member = np.zeros((num_models, len(texts)), bool)
    member[:, known] = True
    member[:, some] = assign_models(take(texts, some), num_models, share=share, seed=seed)
    block = dict.fromkeys(known.tolist(), "calibration") | dict.fromkeys(some.tolist(), "remainder")
    truth = tuple(
        {"id": name, "block": block.get(index, "clean")}
        | {f"model-{model + 1}": int(member[model, index]) for model in range(num_models)}
        for index, name in enumerate(texts.ids)
    )
    return ThreeBlocks(
        calibration=take(texts, known),
        remainder=take(texts, some),
        clean=take(texts, none),
        member=member,
        training=training_lists(texts, member, background=background, seed=seed),
        truth=truth,
    )


def _check_blocks(available: int, sizes: Sequence[int], calibration: float, remainder: float) -> None:
    """None of the three blocks is empty."""
    clean = available - sum(sizes)
    for name, size, share in (("calibration", sizes[0], calibration), ("remainder", sizes[1], remainder)):
        if size < 1:
            raise InputError(f"{name}={share:g} of {available} texts is none; raise it, or give more texts")
    if clean < 1:
        raise InputError(
            f"calibration={calibration:g} and remainder={remainder:g} leave no clean text of {available}; lower one"
        )
