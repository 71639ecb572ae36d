"""Canary sets planted 1 to 100 times in the training data of a small GPT: when does the test of canonical order see
them, how often does it see sets that were not planted, and what do numbers of shards and shuffles change?
"""

from __future__ import annotations

import dataclasses
import functools
import math
import time
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from benchmarks.reproductions.models import Base, Shape, canary_tokenizer, scratch_model, seed_of
from benchmarks.reproductions.order_tests import ORDER_TESTS, order_tests
from benchmarks.reproductions.record import Reproduction, Row, Run
from benchmarks.reproductions.summary import mean_and_error
from tdd.lab.corpus import canary_set, generate
from tdd.lab.plant import plant_canaries
from tdd.lab.recipe import TrainConfig
from tdd.records import Texts

__all__ = [
    "BY_SHARDS",
    "BY_SHUFFLES",
    "LEVELS",
    "PLANTED",
    "REPRODUCTION",
    "ROUNDING",
    "SIZES_AT_ZERO",
    "Design",
    "planted_table",
    "size_table",
    "varied_table",
]

LEVELS = (0.01, 0.05)
PLANTED = "Sets by number of copies: median p-value of each test"
SIZES_AT_ZERO = (
    "Size: share of unplanted sets with a p-value at most the level, ± the standard error at that level. "
    "All are tested under the one model, which saw none of them: independent draws of the null hypothesis"
)
ROUNDING = 1 + 1e-6
"""p-values are single precision: 1/20 is a little more than the double .05."""

BY_SHARDS = "Mean ln p over planted sets by the number of shards"
BY_SHUFFLES = "Mean ln p over planted sets by the number of shuffles"

COPIES = {1: 6, 2: 6, 4: 6, 7: 6, 10: 4, 50: 3, 100: 3}
"""Copies -> sets at scale 1."""

VARIED = (2, 4, 7, 10)
"""Copies of the sets on which shards and shuffles are varied: there the p-values are neither all large nor all tiny."""

SHARDS = (4, 6, 10, 15, 20, 30, 60)
"""Numbers of shards that are tried, as far as a shard has two examples; the paper finds most power from 10 to 20."""

SHUFFLES = (1, 2, 10, 25, 50)
"""Numbers of shuffles that are tried: the paper's."""

_SEPARATOR = "\n\n"
_BACKGROUND, _ORDER, _PLANTED, _UNPLANTED = 1, 2, 1_000, 500_000


@dataclasses.dataclass(frozen=True)
class Design:
    """Sizes of the experiment.

    Attributes:
      shape: Shape of the model.
      num_examples: Number of examples in each set.
      num_shards: r.
      num_shuffles: k.
      copies: Copies of a set in the training data -> number of such sets.
      unplanted: Number of sets of 0 copies.
      background: Number of other documents, one copy each.
      vocab_size: V of the tokenizer.
      batch_size: Windows per step.
      learning_rate: Highest learning rate.
      shards_tried: Numbers of shards for the sets of `VARIED` copies, each with `num_shuffles` shuffles.
      shuffles_tried: Numbers of shuffles for them, in `num_shards` shards.
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
    shards_tried: tuple[int, ...] = SHARDS
    shuffles_tried: tuple[int, ...] = SHUFFLES

    @classmethod
    def at(cls, scale: float) -> Design:
        """Below scale 1 sets are fewer and smaller in proportion. Above it the
        background grows with the scale; the model's width, the sets and the number of unplanted ones with its root."""
        few, some = min(scale, 1.0), min(scale, math.sqrt(scale))
        num_shards = max(6, round(24 * some))
        num_examples = 5 * num_shards
        return cls(
            shape=Shape.at(scale, width=128),
            num_examples=num_examples,
            num_shards=num_shards,
            num_shuffles=19,
            copies={n: max(1, math.ceil(few * sets)) for n, sets in COPIES.items() if n <= 100 * max(few, 0.1)},
            unplanted=max(4, round(200 * some)),
            background=max(20, round(500 * scale)),
            vocab_size=1024 if scale > 0.1 else 400,
            shards_tried=tuple(r for r in SHARDS if 2 * r <= num_examples),
            shuffles_tried=SHUFFLES if scale > 0.1 else SHUFFLES[:3],
        )


def _measure(run: Run, design: Design) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Train one model on the planted sets, test them and as many as `Design.unplanted` that it never saw."""
    seed = run.options.seed
    planted = _planted(design, seed)
    unplanted = {
        f"0 copies, set {i + 1}": canary_set(design.num_examples, seed=seed_of(seed, _UNPLANTED + i))
        for i in range(design.unplanted)
    }
    copies = {name: count for name, (count, _) in planted.items()} | dict.fromkeys(unplanted, 0)
    sets = {name: texts for name, (_, texts) in planted.items()} | unplanted
    trained = functools.cache(lambda: _model(run, design, planted))
    training = run.cell("training", lambda: trained()[1])
    tests = run.cell(
        "orders",
        lambda: order_tests(
            trained()[0],
            sets,
            num_shards=design.num_shards,
            num_shuffles=design.num_shuffles,
            seed=seed_of(seed, _ORDER),
            folder=run.place("scoring"),
            separator=_SEPARATOR,
            progress=run.options.progress,
        ),
    )
    varied = {name: texts for name, texts in sets.items() if copies[name] in VARIED}
    by_shards, by_shuffles = run.cell("shards", lambda: _varied(trained()[0], varied, run, design))
    rows = [_row(name, copies[name], tests[name], test) for name in sets for test in ORDER_TESTS]
    tables = {
        PLANTED: planted_table(rows),
        BY_SHARDS: varied_table("shards", by_shards, copies),
        BY_SHUFFLES: varied_table("shuffles", by_shuffles, copies),
        SIZES_AT_ZERO: size_table(rows),
    }
    return rows, tables, {"training": training}


def _varied(model: Base, sets: Mapping[str, Texts], run: Run, design: Design) -> tuple[dict[str, Any], dict[str, Any]]:
    """Set -> test -> ln p, by number of shards and by number of shuffles (words)."""
    seed, most = seed_of(run.options.seed, _ORDER), max(design.shuffles_tried)
    told: Any = {
        "seed": seed,
        "folder": run.place("scoring"),
        "separator": _SEPARATOR,
        "progress": run.options.progress,
    }
    by_shards = {
        str(r): _log_p({name: each["tests"] for name, each in found.items()})
        for r in design.shards_tried
        for found in [order_tests(model, sets, num_shards=r, num_shuffles=design.num_shuffles, **told)]
    }
    fewer = [k for k in design.shuffles_tried if k < most]
    found = order_tests(model, sets, num_shards=design.num_shards, num_shuffles=most, fewer=fewer, **told)
    of_each = {name: each["by_shuffles"] for name, each in found.items()}
    by_shuffles = {str(k): _log_p({name: of[str(k)] for name, of in of_each.items()}) for k in design.shuffles_tried}
    return by_shards, by_shuffles


def _log_p(of_sets: Mapping[str, Any]) -> dict[str, dict[str, float]]:
    return {name: {test: tests[test]["log_p_value"] for test in ORDER_TESTS} for name, tests in of_sets.items()}


def varied_table(what: str, found: Mapping[str, Any], copies: Mapping[str, int]) -> tuple[Row, ...]:
    """A row a number of shards or shuffles: mean ln p of each test, ± the standard error over the sets.

    Args:
      what: Heading of the first column.
      found: The number, a word -> set -> test -> ln p.
      copies: Set -> its copies in the training data.
    """
    table = []
    for number, of_sets in found.items():
        line: Row = {what: int(number), "sets": len(of_sets)}
        line |= {test: mean_and_error([each[test] for each in of_sets.values()]) for test in ORDER_TESTS}
        for count in sorted({copies[name] for name in of_sets}):
            mine = [each["t"] for name, each in of_sets.items() if copies[name] == count]
            line[f"t, {count} copies"] = round(float(np.mean(mine)), 3)
        table.append(line)
    return tuple(table)


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


def _model(run: Run, design: Design, planted: Mapping[str, tuple[int, Texts]]) -> tuple[Base, dict[str, Any]]:
    """The trained model, and a record of its training."""
    seed = seed_of(run.options.seed, _BACKGROUND)
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
    began = time.perf_counter()
    model, history = scratch_model(
        run.place("model"), lm, tokenizer, documents, config=config, progress=run.options.progress
    )
    lengths = [len(ids) for ids in tokenizer([*documents])["input_ids"]]
    return model, {
        "tokens": sum(lengths),
        "planted_share": 1 - sum(len(ids) for ids in tokenizer([*background])["input_ids"]) / sum(lengths),
        "steps": history[-1]["step"],
        "loss": history[-1]["loss"],
        "parameters": model.num_parameters,
        "seconds": time.perf_counter() - began,
    }


def _row(name: str, copies: int, tested: Mapping[str, Any], test: str) -> Row:
    return {
        "set": name,
        "copies": copies,
        "test": test,
        "p_value": tested["tests"][test]["p_value"],
        "log_p_value": tested["tests"][test]["log_p_value"],
        "effect": tested["effect"],
        "loss": tested["loss"],
    }


def planted_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a number of copies: how well the sets are known, and the median p-value of each test."""
    table = []
    for count in sorted({row["copies"] for row in rows}):
        mine = [row for row in rows if row["copies"] == count]
        by_test = {test: [row["p_value"] for row in mine if row["test"] == test] for test in ORDER_TESTS}
        seen = [p <= 0.05 * ROUNDING for p in by_test["combined"]]
        table.append(
            {
                "copies": count,
                "sets": len(seen),
                "loss, nats a token": round(float(np.mean([row["loss"] for row in mine])), 3),
                "effect, sd": round(float(np.mean([row["effect"] for row in mine])), 3),
                **{f"median p, {test}": float(f"{np.median(by_test[test]):.2g}") for test in ORDER_TESTS},
                "combined p <= .05": f"{sum(seen)} of {len(seen)}",
            }
        )
    return tuple(table)


def size_table(rows: Sequence[Row]) -> tuple[Row, ...]:
    """A row a test: the share of sets of 0 copies with p at most .01 and .05, and its standard error there.

    All are tested under one model, which saw none of them: they are independent draws of the null hypothesis.
    """
    table = []
    for test in ORDER_TESTS:
        p_values = np.array([row["p_value"] for row in rows if row["copies"] == 0 and row["test"] == test])
        line: Row = {"test": test, "sets": len(p_values)}
        for level in LEVELS:
            share = float(np.mean(p_values <= level * ROUNDING))
            error = math.sqrt(level * (1 - level) / len(p_values))
            line[f"p <= {level:g}"] = f"{share:.3f} ± {error:.3f}"
            line[f"within {level:g}"] = "yes" if share - 3 * error <= level else "ABOVE"
        table.append(line)
    return tuple(table)


REPRODUCTION = Reproduction(
    "exchangeability", "When a test of canonical order sees a planted data set", Design.at, _measure
)
