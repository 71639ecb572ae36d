"""What an audit sees, over the size of the model, the number of copies in the training data, and the passes over it.

Two kinds of question about the same models: which items (PTDI on the loss), and whether a data set (the test of
canonical order).
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np

from benchmarks.reproductions.models import (
    Shape,
    canary_tokenizer,
    joined,
    score_table,
    scratch_model,
    seed_of,
)
from benchmarks.reproductions.order_tests import order_tests
from benchmarks.reproductions.record import Reproduction, Row, Run
from tdd.lab.corpus import canary_set, generate
from tdd.lab.plant import plant_canaries
from tdd.lab.recipe import TrainConfig
from tdd.records import Texts
from tdd.study import resample

__all__ = ["ALPHA", "REPRODUCTION", "Design"]

ALPHA = 0.1
ITEMS = "Items: power of PTDI at level .1 (± over random divisions of one model's scores)"
SETS = "Data sets: median p-value of the combined test of canonical order"
_SEPARATOR = "\n\n"
_BACKGROUND, _SPLITS, _NONMEMBERS, _MEMBERS, _SETS = 3, 4, 10_000, 20_000, 700_000


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes of the experiment.

    Attributes:
      shapes: Shapes of the models.
      epochs: Passes over the training data; each number has its own models.
      copies: Copies in the training data of a group of items, and of a group of data sets.
      items: Members in a group.
      nonmembers: Items that no model is trained on.
      sentences: Canary sentences per item.
      sets: Data sets in a group.
      num_shards: r.
      num_shuffles: k.
      background: Number of other documents, one copy each.
      repetitions: Random divisions of a group's members and the non-members.
      vocab_size: V of the tokenizer.
      batch_size: Sequences per step.
      learning_rate: Highest learning rate.
    """

    shapes: tuple[Shape, ...]
    epochs: tuple[int, ...]
    copies: tuple[int, ...]
    items: int
    nonmembers: int
    sets: int
    num_shards: int
    num_shuffles: int
    background: int
    sentences: int = 3
    repetitions: int = 2_000
    vocab_size: int = 1024
    batch_size: int = 8
    learning_rate: float = 3e-3

    @classmethod
    def at(cls, scale: float) -> Design:
        """Models, groups and sets grow above; grid and groups shrink below .1."""
        if scale < 0.1:
            return cls(
                shapes=(Shape(32, 1, 128),), epochs=(1, 2), copies=(1, 8), items=12, nonmembers=60,
                sets=1, num_shards=6, num_shuffles=19, background=8, repetitions=200, vocab_size=400, batch_size=4,
            )  # fmt: skip
        return cls(
            shapes=tuple(Shape.at(scale, width=width) for width in (32, 64, 96)),
            epochs=(1, 3, 9),
            copies=(1, 4, 16),
            items=max(20, round(60 * scale)),
            nonmembers=max(100, round(300 * scale)),
            sets=max(1, round(3 * min(scale, 4))),
            num_shards=max(4, round(12 * min(scale, math.sqrt(scale)))),
            num_shuffles=19,
            background=max(20, round(150 * scale)),
        )


@dataclasses.dataclass(frozen=True)
class Planted:
    """Training documents of the models, and the items and sets that are tested."""

    documents: tuple[str, ...]
    members: dict[int, tuple[str, ...]]
    nonmembers: tuple[str, ...]
    sets: dict[str, tuple[int, Texts]]


def plant(design: Design, seed: int) -> Planted:
    """Groups of items and of sets, each a number of copies in the training documents; sets of 0 copies besides."""
    members = {count: tuple(_items(design, design.items, seed_of(seed, _MEMBERS + count))) for count in design.copies}
    sets = {
        f"{count} copies, set {i + 1}": (
            count,
            canary_set(5 * design.num_shards, seed=seed_of(seed, _SETS + 1_000 * count + i)),
        )
        for count in (0, *design.copies)
        for i in range(design.sets)
    }
    background = [
        *generate(design.background, seed=seed_of(seed, _BACKGROUND)).texts,
        *(text for count, texts in members.items() for text in texts * count),
    ]
    planted = plant_canaries(
        {name: texts for name, (_, texts) in sets.items()},
        {name: count for name, (count, _) in sets.items()},
        background,
        separator=_SEPARATOR,
        seed=seed_of(seed, _BACKGROUND),
    )
    nonmembers = tuple(_items(design, design.nonmembers, seed_of(seed, _NONMEMBERS)))
    return Planted(planted.documents, members, nonmembers, sets)


def _items(design: Design, count: int, seed: int) -> list[str]:
    return joined(canary_set(count * design.sentences, seed=seed), design.sentences)


def _measure(run: Run, design: Design) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Train a model for each shape and number of epochs; ask each about every group of items and sets."""
    planted = plant(design, run.options.seed)
    tokenizer = functools.cache(lambda: canary_tokenizer(design.vocab_size))
    rows: list[Row] = []
    for shape, epochs in itertools.product(design.shapes, design.epochs):
        key = f"width-{shape.width}-epochs-{epochs}"
        rows += run.cell(key, functools.partial(_one_model, run, design, planted, shape, tokenizer, epochs, key))
    return rows, {ITEMS: _items_table(rows), SETS: _sets_table(rows)}, {}


def _one_model(
    run: Run, design: Design, planted: Planted, shape: Shape, tokenizer: Any, epochs: int, key: str
) -> list[Row]:
    """The rows of all groups of one model."""
    seed = run.options.seed
    config = TrainConfig(
        epochs=epochs,
        batch_size=design.batch_size,
        learning_rate=design.learning_rate,
        max_length=shape.context,
        num_buckets=2,
        seed=seed_of(seed, _BACKGROUND),
    )
    model, history = scratch_model(
        run.place(f"models/{key}"), shape.language_model(len(tokenizer())), tokenizer(), planted.documents,
        config=config, progress=run.options.progress,
    )  # fmt: skip
    texts = [*planted.nonmembers, *(text for count in design.copies for text in planted.members[count])]
    losses = score_table(model, texts, ["loss"], max_length=shape.context)["loss"]
    unseen, by_group = losses[: design.nonmembers], np.split(losses[design.nonmembers :], len(design.copies))
    tests = order_tests(
        model,
        {name: texts for name, (_, texts) in planted.sets.items()},
        num_shards=design.num_shards,
        num_shuffles=design.num_shuffles,
        seed=seed_of(seed, _SPLITS),
        separator=_SEPARATOR,
    )
    common = {"width": shape.width, "parameters": model.num_parameters, "epochs": epochs}
    common |= {"training_loss": history[-1]["loss"]}
    rows = [
        {**common, "question": "items", "copies": count, "set": "", **_power(unseen, scores, design, seed)}
        for count, scores in zip(design.copies, by_group, strict=True)
    ]
    no_power = dict.fromkeys(("power", "power_se", "fdp", "fdp_se", "fdp_95", "auc"))
    for name, (count, _) in planted.sets.items():
        combined = tests[name]["tests"]["combined"]
        rows.append(
            {
                **common, "question": "data set", "copies": count, "set": name, **no_power,
                "p_value": combined["p_value"], "log_p_value": combined["log_p_value"],
                "effect": tests[name]["effect"],
            }
        )  # fmt: skip
    return rows


def _power(unseen: np.ndarray, members: np.ndarray, design: Design, seed: int) -> Row:
    """PTDI over random divisions of a group's members and the non-members into halves."""
    scores = np.concatenate([members, unseen])
    is_member = np.arange(len(scores)) < len(members)
    result = resample(
        scores,
        is_member,
        alphas=[ALPHA],
        methods=["storey"],
        repetitions=design.repetitions,
        key=jax.random.key(seed_of(seed, _SPLITS)),
        devices=jax.devices()[:1],
    )
    below = (members[:, None] < unseen).mean() + (members[:, None] == unseen).mean() / 2
    return {
        "power": float(result.power[0, 0]),
        "power_se": float(result.power_se[0, 0]),
        "fdp": float(result.fdr[0, 0]),
        "fdp_se": float(result.fdr_se[0, 0]),
        "fdp_95": float(result.fdp_quantiles[0, 0, -1]),
        "auc": float(below),
        "p_value": None,
        "log_p_value": None,
        "effect": None,
    }


def _items_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a model and number of epochs, a column a number of copies: power, and FDP beside it."""
    return tuple(
        {
            **_named(mine),
            **{
                heading: words
                for row in mine
                if row["question"] == "items"
                for heading, words in (
                    (f"power, {_copies(row['copies'])}", f"{row['power']:.3f} ± {row['power_se']:.3f}"),
                    (f"FDP, {_copies(row['copies'])}", f"{row['fdp']:.3f} ± {row['fdp_se']:.3f}"),
                )
            },
        }
        for mine in _by_model(rows)
    )


def _sets_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a model and number of epochs, a column a number of copies: median p-value, and how many are at most .05."""
    table = []
    for mine in _by_model(rows):
        line = _named(mine)
        for count in sorted({row["copies"] for row in mine if row["question"] == "data set"}):
            p_values = [row["p_value"] for row in mine if row["question"] == "data set" and row["copies"] == count]
            seen = sum(p <= 0.05 for p in p_values)
            line[f"p, {_copies(count)}"] = f"{np.median(p_values):.2g} ({seen} of {len(p_values)})"
        table.append(line)
    return tuple(table)


def _by_model(rows: Sequence[Row]) -> list[list[Row]]:
    keys = dict.fromkeys((row["width"], row["epochs"]) for row in rows)
    return [[row for row in rows if (row["width"], row["epochs"]) == key] for key in keys]


def _named(mine: Sequence[Row]) -> Row:
    first = mine[0]
    return {
        "width": first["width"],
        "parameters": first["parameters"],
        "epochs": first["epochs"],
        "training loss": round(first["training_loss"], 3),
    }


def _copies(count: int) -> str:
    return "1 copy" if count == 1 else f"{count} copies"


REPRODUCTION = Reproduction("power-grid", "What an audit sees, over model size, copies and epochs", Design.at, _measure)
