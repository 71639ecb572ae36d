"""Several models, each trained on a random fraction of the texts: the assignment and its record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from tdd.lab.checks import check_count, check_range, check_texts
from tdd.lab.plant import Row, take
from tdd.records import Texts
from tdd.validate.errors import InputError

__all__ = ["ThreeBlocks", "assign_models", "check_shares", "three_blocks", "training_lists"]

_ASSIGN, _ORDER, _DIVIDE = 1, 2, 3
"""Second number of a random stream's seed, by its use."""


def assign_models(texts: Texts, num_models: int, *, share: float | Sequence[float] = 0.5, seed: int) -> np.ndarray:
    """Draw for each model, independently of the others, a random fraction of the texts to be trained on.

    Model k gets ⌊share·N + 1/2⌋ of the N texts, every subset of that size equally likely, from a stream of its own:
    another number of models changes nothing for the first ones.

    Args:
      texts: The N texts.
      num_models: K.
      share: Fraction of the texts that a model is trained on, 0..1; one number for all models, or one for each, as
        (0.3, 0, 0, 0) for one contaminated model among four.
      seed: Random seed of the assignment.

    Returns:
      [K, N] bool, True where the model is trained on the text.

    Raises:
      InputError: No text, no model, or a fraction outside 0..1.
    """
    check_count("num_models", num_models, minimum=1)
    check_count("seed", seed, minimum=0)
    check_texts("texts", texts.texts)
    member = np.zeros((num_models, len(texts)), bool)
    for model, fraction in enumerate(check_shares("share", share, num_models)):
        order = np.random.default_rng([seed, _ASSIGN, model]).permutation(len(texts))
        member[model, order[: math.floor(fraction * len(texts) + 0.5)]] = True
    return member


def training_lists(
    texts: Texts, member: np.ndarray, *, background: Texts | None = None, seed: int
) -> tuple[Texts, ...]:
    """The training texts of each model: those assigned to it and the background, each model's in its own random order.

    Args:
      texts: The N texts.
      member: [K, N] bool.
      background: Texts that all models are trained on, with other identifiers.
      seed: Random seed of the orders.

    Returns:
      K `Texts`; empty for a model that is trained on nothing.
    """
    shared = Texts(ids=(), texts=()) if background is None else background
    pool = Texts(ids=texts.ids + shared.ids, texts=texts.texts + shared.texts, source=texts.source)
    in_background = np.arange(len(texts), len(pool))
    lists = []
    for model, row in enumerate(member):
        trained = np.concatenate([np.flatnonzero(row), in_background])
        lists.append(take(pool, np.random.default_rng([seed, _ORDER, model]).permutation(trained)))
    return tuple(lists)


class ThreeBlocks(NamedTuple):
    """K models and three blocks of texts.

    Attributes:
      calibration: Texts that every model is trained on.
      remainder: Texts of which each model is trained on its own random fraction.
      clean: Texts that no model is trained on.
      member: [K, N] bool, True where the model is trained on the text; columns in the order of the input.
      training: K `Texts`, the training texts of each model in random order.
      truth: One row per text in the order of the input: id, block, model-1 .. model-K (1 trained on, else 0).
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
    """Divide texts at random into calibration, remainder and clean, and assign training texts to each of K models.

    All models are trained on ⌊calibration·N⌋ texts, each model on its own random fraction `share` of ⌊remainder·N⌋
    others (`assign_models`), and none on the rest. The texts to be audited are those of remainder and clean. A text of
    the remainder that model k was trained on is exchangeable with the calibration texts for model k.

    Args:
      texts: The N texts.
      num_models: K.
      calibration: Fraction of the texts known to be in the training data of all models, above 0.
      remainder: Fraction of the texts that some models are trained on.
      share: Fraction of the remainder that a model is trained on; one number, or one for each model.
      background: Further texts that all models are trained on; not audited, and in no row of the truth.
      seed: Random seed of division and assignment.

    Raises:
      InputError: Fractions outside 0..1 or with a sum of 1 or more, a block without a text, no model.

    References: the experiments of the JECS paper (calibration .3, remainder .1, share .5).
    """
    check_count("num_models", num_models, minimum=1)
    check_count("seed", seed, minimum=0)
    for name, value in (("calibration", calibration), ("remainder", remainder)):
        check_range(name, value, 0.0, 1.0)
    # rounded first: .3 · 10 is 2.9999999999999996 in binary
    sizes = [math.floor(round(fraction * len(texts), 6)) for fraction in (calibration, remainder)]
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


def check_shares(name: str, value: object, count: int) -> tuple[float, ...]:
    """A fraction in 0..1 for each of `count` models: one number for all, or one for each."""
    shares = tuple(value) if isinstance(value, Sequence) and not isinstance(value, (str, bytes)) else (value,) * count
    if len(shares) != count:
        raise InputError(f"{name} holds {len(shares)} numbers for {count} models; give one number, or one a model")
    for index, share in enumerate(shares):
        check_range(f"{name}[{index}]" if isinstance(value, Sequence) else name, share, 0.0, 1.0)
    return tuple(float(share) for share in shares)  # type: ignore[arg-type]


def _check_blocks(available: int, sizes: Sequence[int], calibration: float, remainder: float) -> None:
    """None of the three blocks is empty."""
    clean = available - sum(sizes)
    for name, size, fraction in (("calibration", sizes[0], calibration), ("remainder", sizes[1], remainder)):
        if size < 1:
            raise InputError(f"{name}={fraction:g} of {available} texts is none; raise it, or give more texts")
    if clean < 1:
        raise InputError(
            f"calibration={calibration:g} and remainder={remainder:g} leave no clean text of {available}; lower one"
        )
