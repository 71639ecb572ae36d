"""What an audit sees, over the size of the model, the number of copies in the training data, and the passes over it.

Two kinds of question about the same models: which items (PTDI on the loss), and whether a data set (the test of
canonical order).
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.lab.canaries import canary_set
from tdd.lab.config import TrainConfig
from tdd.lab.corpus import generate
from tdd.lab.plant_canaries import plant_canaries
from tdd.lab.reproduce.order_tests import order_tests
from tdd.lab.reproduce.record import Options, Outcome, Reproduction, Row, cell, cell_seconds, provenance
from tdd.lab.reproduce.scratch import Shape, canary_tokenizer, joined, scratch_model, seed_of
from tdd.records import Texts

__all__ = ["REPRODUCTION", "Design"]

ALPHA = 0.1
ITEMS, SETS = "Items: power of PTDI at level .1", "Data sets: p-value of the test of canonical order"
_SEPARATOR = "\n\n"
_BACKGROUND, _SPLITS, _NONMEMBERS, _MEMBERS, _SETS = 3, 4, 10_000, 20_000, 700_000


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes of the experiment.

    Attributes:
      shapes: of the models.
      epochs: passes over the training data; every model of every number is trained anew.
      copies: how often a group of items, and a group of data sets, is in the training data.
      items: members of a group.
      nonmembers: items that no model saw.
      sentences: canary sentences an item.
      sets: data sets of a group.
      num_shards: r.
      num_shuffles: k.
      background: other documents, one copy each.
      repetitions: random divisions of a group's members and the non-members.
      vocab_size: of the tokenizer.
      batch_size: sequences a step.
      learning_rate: highest.
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
        """Scale 1 takes minutes on two cores. Models, groups and sets grow above; grid and groups shrink below .1."""
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
            num_shards=max(4, round(12 * scale)),
            num_shuffles=19,
            background=max(20, round(150 * scale)),
        )


@dataclasses.dataclass(frozen=True)
class _Planted:
    """What the models are trained on, and what is asked about them."""

    documents: tuple[str, ...]
    members: dict[int, tuple[str, ...]]
    nonmembers: tuple[str, ...]
    sets: dict[str, tuple[int, Texts]]


def run(options: Options) -> Outcome:
    """Train a model a shape and number of epochs; ask each about every group of items and sets."""
    design = Design.at(options.scale)
    settings = {"seed": options.seed, "scale": options.scale, "design": dataclasses.asdict(design)}
    planted = _plant(design, options.seed)
    tokenizer: list[Any] = []
    rows: list[Row] = []
    for shape, epochs in itertools.product(design.shapes, design.epochs):
        key = f"width-{shape.width}-epochs-{epochs}"

        def compute(shape: Shape = shape, epochs: int = epochs, key: str = key) -> list[Row]:
            tokenizer.extend([] if tokenizer else [canary_tokenizer(design.vocab_size)])
            folder = None if options.folder is None else options.folder / "models" / key
            return _measure(options, design, planted, shape, tokenizer[0], epochs, folder)

        rows += cell(options.folder, key, compute, settings)
    found = tuple(rows)
    return Outcome(
        name=REPRODUCTION.name,
        title=REPRODUCTION.title,
        rows=found,
        tables={ITEMS: items_table(found), SETS: sets_table(found)},
        seconds=sum(cell_seconds(options.folder).values()),
        provenance=provenance(options, settings["design"]),
    )


def _plant(design: Design, seed: int) -> _Planted:
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
    found = plant_canaries(
        {name: texts for name, (_, texts) in sets.items()},
        {name: count for name, (count, _) in sets.items()},
        background,
        separator=_SEPARATOR,
        seed=seed_of(seed, _BACKGROUND),
    )
    nonmembers = tuple(_items(design, design.nonmembers, seed_of(seed, _NONMEMBERS)))
    return _Planted(found.documents, members, nonmembers, sets)


def _items(design: Design, count: int, seed: int) -> list[str]:
    return joined(canary_set(count * design.sentences, seed=seed), design.sentences)


def _measure(
    options: Options,
    design: Design,
    planted: _Planted,
    shape: Shape,
    tokenizer: Any,
    epochs: int,
    folder: pathlib.Path | None,
) -> list[Row]:
    """One model: the rows of all its groups."""
    from tdd.lab.reproduce.models import score_table

    config = TrainConfig(
        epochs=epochs,
        batch_size=design.batch_size,
        learning_rate=design.learning_rate,
        max_length=shape.context,
        num_buckets=2,
        seed=seed_of(options.seed, _BACKGROUND),
    )
    model, history = scratch_model(
        folder, shape.language_model(len(tokenizer)), tokenizer, planted.documents, config=config,
        progress=options.progress,
    )  # fmt: skip
    texts = [*planted.nonmembers, *(text for count in design.copies for text in planted.members[count])]
    losses = score_table(model, texts, ["loss"], max_length=shape.context)["loss"]
    unseen, by_group = losses[: design.nonmembers], np.split(losses[design.nonmembers :], len(design.copies))
    tested = order_tests(
        model,
        {name: one for name, (_, one) in planted.sets.items()},
        num_shards=design.num_shards,
        num_shuffles=design.num_shuffles,
        seed=seed_of(options.seed, _SPLITS),
        separator=_SEPARATOR,
    )
    common = {"width": shape.width, "parameters": _size(model.params), "epochs": epochs}
    common |= {"training_loss": history[-1]["loss"]}
    rows = [
        {**common, "question": "items", "copies": count, "set": "", **_power(unseen, scores, design, options.seed)}
        for count, scores in zip(design.copies, by_group, strict=True)
    ]
    nothing = dict.fromkeys(("power", "power_se", "fdp", "fdp_se", "fdp_95", "auc"))
    for name, (count, _) in planted.sets.items():
        found = tested[name]
        rows.append(
            {
                **common, "question": "data set", "copies": count, "set": name, **nothing,
                "p_value": found["tests"]["combined"]["p_value"],
                "log_p_value": found["tests"]["combined"]["log_p_value"],
                "effect": found["effect"],
            }
        )  # fmt: skip
    return rows


def _power(unseen: np.ndarray, members: np.ndarray, design: Design, seed: int) -> Row:
    """PTDI over random divisions of a group's members and the non-members into halves."""
    import jax

    from tdd.study import resample

    scores = np.concatenate([members, unseen])
    is_member = np.arange(len(scores)) < len(members)
    found = resample(
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
        "power": float(found.power[0, 0]),
        "power_se": float(found.power_se[0, 0]),
        "fdp": float(found.fdr[0, 0]),
        "fdp_se": float(found.fdr_se[0, 0]),
        "fdp_95": float(found.fdp_quantiles[0, 0, -1]),
        "auc": float(below),
        "p_value": None,
        "log_p_value": None,
        "effect": None,
    }


def _size(params: Any) -> int:
    import jax

    return int(sum(np.size(leaf) for leaf in jax.tree_util.tree_leaves(params)))


def items_table(rows: Sequence[Row]) -> tuple[Row, ...]:
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


def sets_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a model and number of epochs, a column a number of copies: median p-value, and how many are at most .05."""
    table = []
    for mine in _by_model(rows):
        line = _named(mine)
        for count in sorted({row["copies"] for row in mine if row["question"] == "data set"}):
            found = [row["p_value"] for row in mine if row["question"] == "data set" and row["copies"] == count]
            seen = sum(p <= 0.05 for p in found)
            line[f"p, {_copies(count)}"] = f"{np.median(found):.2g} ({seen} of {len(found)})"
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


REPRODUCTION = Reproduction(
    name="power-grid",
    title="What an audit sees, over model size, copies and epochs",
    paper="all five",
    run=run,
    minutes=5,
)
