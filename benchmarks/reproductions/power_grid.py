"""What an audit sees, over the size of the model, the number of copies in the training data, and the passes over it.

Two kinds of question about the same models: which items (PTDI on the loss), and whether a data set (the test of
canonical order).
"""

from __future__ import annotations

import dataclasses
import itertools
import pathlib
from typing import Any

import numpy as np

from benchmarks.reproductions.grid_design import BACKGROUND_SEED, SEPARATOR, Design, Planted, plant
from benchmarks.reproductions.grid_tables import items_table, sets_table
from benchmarks.reproductions.order_tests import order_tests
from benchmarks.reproductions.record import Options, Outcome, Reproduction, Row, cell, cell_seconds, provenance
from benchmarks.reproductions.scratch import Shape, canary_tokenizer, scratch_model, seed_of
from tdd.lab.config import TrainConfig

__all__ = ["ALPHA", "REPRODUCTION"]

ALPHA = 0.1
ITEMS = "Items: power of PTDI at level .1 (± over random divisions of one model's scores)"
SETS = "Data sets: median p-value of the combined test of canonical order"
_SPLITS = 4


def run(options: Options) -> Outcome:
    """Train a model a shape and number of epochs; ask each about every group of items and sets."""
    design = Design.at(options.scale)
    settings = {"seed": options.seed, "scale": options.scale, "design": dataclasses.asdict(design)}
    planted = plant(design, options.seed)
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


def _measure(
    options: Options,
    design: Design,
    planted: Planted,
    shape: Shape,
    tokenizer: Any,
    epochs: int,
    folder: pathlib.Path | None,
) -> list[Row]:
    """One model: the rows of all its groups."""
    from benchmarks.reproductions.models import score_table

    config = TrainConfig(
        epochs=epochs,
        batch_size=design.batch_size,
        learning_rate=design.learning_rate,
        max_length=shape.context,
        num_buckets=2,
        seed=seed_of(options.seed, BACKGROUND_SEED),
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
        separator=SEPARATOR,
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


REPRODUCTION = Reproduction(
    name="power-grid",
    title="What an audit sees, over model size, copies and epochs",
    paper="PTDI; the sharded exchangeability test",
    run=run,
    minutes=5,
)
