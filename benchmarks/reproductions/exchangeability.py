"""Canary sets planted 1 to 100 times in the training data of a small GPT: when does the test of canonical order see
them, and how often does it see sets that were not planted?
"""

from __future__ import annotations

import dataclasses
import math
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from benchmarks.reproductions.canary_tables import PLANTED, SIZES_AT_ZERO, planted_table, size_table
from benchmarks.reproductions.order_tests import ORDER_TESTS, order_tests
from benchmarks.reproductions.record import Options, Outcome, Reproduction, Row, cell, cell_seconds, provenance
from benchmarks.reproductions.scratch import Shape, canary_tokenizer, scratch_model, seed_of
from tdd.lab.canaries import canary_set
from tdd.lab.config import TrainConfig
from tdd.lab.corpus import generate
from tdd.lab.plant_canaries import plant_canaries
from tdd.records import Texts

__all__ = ["REPRODUCTION", "Design"]

_SEPARATOR = "\n\n"
_BACKGROUND, _ORDER, _PLANTED, _UNPLANTED = 1, 2, 1_000, 500_000


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes of the experiment.

    Attributes:
      shape: of the model.
      num_examples: of each set.
      num_shards: r.
      num_shuffles: k.
      copies: how often a set is in the training data -> how many such sets; more where a set costs little.
      unplanted: sets of 0 copies.
      background: other documents, one copy each.
      vocab_size: of the tokenizer.
      batch_size: windows a step.
      learning_rate: highest.
    """

    shape: Shape
    num_examples: int
    num_shards: int
    num_shuffles: int
    copies: Mapping[int, int]
    unplanted: int
    background: int
    vocab_size: int = 1024
    batch_size: int = 4
    learning_rate: float = 2e-3

    @classmethod
    def at(cls, scale: float) -> Design:
        """Scale 1 takes minutes on two cores. Below it sets are fewer and smaller in proportion. Above it the
        background grows with the scale; the model's width, the sets and the number of unplanted ones with its root."""
        few, some = min(scale, 1.0), min(scale, math.sqrt(scale))
        num_shards = max(6, round(24 * some))
        return cls(
            shape=Shape.at(scale, width=128),
            num_examples=5 * num_shards,
            num_shards=num_shards,
            num_shuffles=19,
            copies={n: max(1, math.ceil(few * sets)) for n, sets in COPIES.items() if n <= 100 * max(few, 0.1)},
            unplanted=max(4, round(200 * some)),
            background=max(20, round(500 * scale)),
            vocab_size=1024 if scale > 0.1 else 400,
        )


COPIES = {1: 6, 2: 6, 4: 6, 10: 4, 50: 3, 100: 3}
"""Copies -> sets at scale 1."""


def run(options: Options) -> Outcome:
    """Train one model on the planted sets, test them and as many as `Design.unplanted` that it never saw."""
    design = Design.at(options.scale)
    settings = {"seed": options.seed, "scale": options.scale, "design": dataclasses.asdict(design)}
    planted = _planted(design, options.seed)
    unplanted = {
        f"0 copies, set {i + 1}": canary_set(design.num_examples, seed=seed_of(options.seed, _UNPLANTED + i))
        for i in range(design.unplanted)
    }
    copies = {name: count for name, (count, _) in planted.items()} | dict.fromkeys(unplanted, 0)
    sets = {name: texts for name, (_, texts) in planted.items()} | unplanted

    state: dict[str, Any] = {}

    def model() -> tuple[Any, dict[str, Any]]:
        if not state:
            state["model"], state["training"] = _model(options, design, planted)
        return state["model"], state["training"]

    training = cell(options.folder, "training", lambda: model()[1], settings)
    found = cell(
        options.folder,
        "orders",
        lambda: order_tests(
            model()[0],
            sets,
            num_shards=design.num_shards,
            num_shuffles=design.num_shuffles,
            seed=seed_of(options.seed, _ORDER),
            folder=None if options.folder is None else options.folder / "scoring",
            separator=_SEPARATOR,
            progress=options.progress,
        ),
        settings,
    )
    rows = tuple(_row(name, copies[name], found[name], test) for name in sets for test in ORDER_TESTS)
    return Outcome(
        name=REPRODUCTION.name,
        title=REPRODUCTION.title,
        rows=rows,
        tables={PLANTED: planted_table(rows), SIZES_AT_ZERO: size_table(rows)},
        seconds=sum(cell_seconds(options.folder).values()),
        provenance={**provenance(options, settings["design"]), "training": training},
    )


def _planted(design: Design, seed: int) -> dict[str, tuple[int, Texts]]:
    """Name -> (copies, examples)."""
    numbered = [(count, i) for count, sets in design.copies.items() for i in range(sets)]
    return {
        f"{count} {'copy' if count == 1 else 'copies'}, set {i + 1}": (
            count,
            canary_set(design.num_examples, seed=seed_of(seed, _PLANTED + number)),
        )
        for number, (count, i) in enumerate(numbered)
    }


def _model(options: Options, design: Design, planted: Mapping[str, tuple[int, Texts]]) -> tuple[Any, dict[str, Any]]:
    """The trained model, and what it was trained on."""
    seed = seed_of(options.seed, _BACKGROUND)
    background = generate(design.background, seed=seed).texts
    sets = {name: texts for name, (_, texts) in planted.items()}
    counts = {name: count for name, (count, _) in planted.items()}
    documents = plant_canaries(sets, counts, background, separator=_SEPARATOR, seed=seed).documents
    tokenizer = canary_tokenizer(design.vocab_size)
    lm = design.shape.language_model(len(tokenizer))
    config = TrainConfig(
        epochs=1,
        batch_size=design.batch_size,
        learning_rate=design.learning_rate,
        max_length=design.shape.context,
        num_buckets=2,
        seed=seed,
    )
    folder = None if options.folder is None else options.folder / "model"
    began = time.perf_counter()
    model, history = scratch_model(folder, lm, tokenizer, documents, config=config, progress=options.progress)
    lengths = [len(ids) for ids in tokenizer([*documents])["input_ids"]]
    return model, {
        "tokens": sum(lengths),
        "planted_share": 1 - sum(len(ids) for ids in tokenizer([*background])["input_ids"]) / sum(lengths),
        "steps": history[-1]["step"],
        "loss": history[-1]["loss"],
        "parameters": int(sum(np.size(leaf) for leaf in _leaves(model.params))),
        "seconds": time.perf_counter() - began,
    }


def _leaves(params: Any) -> list[Any]:
    import jax

    return jax.tree_util.tree_leaves(params)


def _row(name: str, copies: int, found: Mapping[str, Any], test: str) -> Row:
    return {
        "set": name,
        "copies": copies,
        "test": test,
        "p_value": found["tests"][test]["p_value"],
        "log_p_value": found["tests"][test]["log_p_value"],
        "effect": found["effect"],
        "loss": found["loss"],
    }


REPRODUCTION = Reproduction(
    name="exchangeability",
    title="When a test of canonical order sees a planted data set",
    paper="the sharded exchangeability test, figure 2 and table 1",
    run=run,
    minutes=3,
)
