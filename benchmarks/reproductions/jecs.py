"""JECS on K fine-tuned models: one clean set for all of them, from shared calibration items.

The documents are split in three blocks: 30% calibrate and are in the training data of every model; 10% are the
remainder, of which each model is trained on a half of its own; the others no model is trained on. Selections are made
from the last two blocks, over and over, each time with a random share of the calibration items and of the candidates.

With these blocks about one candidate in eight is contaminated, so that at levels above that nothing can go wrong. So
the same models are examined a second time with as many clean candidates as contaminated ones ("even").
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.reproductions.models import fine_tune, score_table
from benchmarks.reproductions.record import Reproduction, Row, Run
from benchmarks.reproductions.summary import by_level
from tdd.lab.corpus import generate
from tdd.lab.plant import ThreeBlocks, three_blocks
from tdd.records import Null, Texts, pytree
from tdd.study import method
from tdd.study import run as study
from tdd.study.designs import Sample

__all__ = ["METHODS", "MIXES", "PROMISES", "REPRODUCTION", "Sizes", "Subsets"]

SCORES = ("loss", "min_k_plus_plus")
MIXES = ("blocks", "even")
METHODS = {
    "JECS": "jecs",
    "JMCS": "jmcs/bh",
    "JMCS, Storey": "jmcs/storey",
    "intersection (invalid)": "intersection",
    "union (invalid)": "union",
}
"""Name in the tables -> method of `tdd.study`."""

PROMISES = {
    "JECS": "for independent models, in the limit of many items",
    "JMCS": "for independent models",
    "JMCS, Storey": "for independent models",
    "intersection (invalid)": "no",
    "union (invalid)": "no",
}
"""Conditions under which GCR <= level is guaranteed. Models that share a base are not independent."""

_POOL, _BLOCKS = 900_000, 910_000
_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Sizes of the experiment.

    Attributes:
      models: K.
      replicates: Number of replicates, each with its own documents, blocks and K models.
      documents: N of a replicate, in all three blocks.
      calibration: Fraction of them that every model is trained on.
      remainder: Fraction of them that some models are trained on.
      trained: Fraction of the remainder that a model is trained on.
      max_length: Tokens of a text.
      epochs, learning_rate: Options of fine-tuning.
      alphas: Levels.
      repetitions: Number of random subsets.
    """

    models: int = 4
    replicates: int = 3
    documents: int = 700
    calibration: float = 0.3
    remainder: float = 0.1
    trained: float = 0.5
    max_length: int = 96
    epochs: int = 4
    learning_rate: float = 1e-3
    alphas: tuple[float, ...] = (0.1, 0.2, 0.3)
    repetitions: int = 2000

    @classmethod
    def at(cls, scale: float) -> Sizes:
        """Documents grow with the scale."""
        small = scale < 0.1
        return cls(
            models=2 if small else 4,
            replicates=1 if small else max(2, round(3 * scale**0.5)),
            documents=max(120, round(700 * scale)),
            max_length=48 if small else 96,
            epochs=2 if small else 4,
            repetitions=128 if small else 2000,
        )


@pytree("num_calibration", "num_contaminated", "num_clean", "even")
class Subsets:
    """Random subsets of the calibration items and of the candidates.

    Attributes:
      calibration: [K, n] scores of all calibration items.
      contaminated: [K, a] scores of the candidates that a model was trained on.
      clean: [K, b] scores of the others.
      num_calibration: Calibration items of a repetition.
      num_contaminated: Contaminated candidates of a repetition; unless `even`, their number is random.
      num_clean: Clean candidates, likewise.
      even: Whether both numbers are fixed, or only their sum.
    """

    null: ClassVar[Null] = "member"

    calibration: Any
    contaminated: Any
    clean: Any
    num_calibration: int = 1
    num_contaminated: int = 1
    num_clean: int = 1
    even: bool = False

    def draw(self, key: jax.Array) -> Sample:
        """One subset."""
        dtype = jnp.result_type(float)
        parts = (self.calibration, self.contaminated, self.clean)
        calibration, contaminated, clean = (jnp.asarray(part, dtype) for part in parts)
        one, two, three = jax.random.split(key, 3)
        calibration = jax.random.permutation(one, calibration, axis=1)[:, : self.num_calibration]
        if self.even:
            contaminated = jax.random.permutation(two, contaminated, axis=1)[:, : self.num_contaminated]
            clean = jax.random.permutation(three, clean, axis=1)[:, : self.num_clean]
        tested = jnp.concatenate([contaminated, clean], axis=1)
        target = jnp.arange(tested.shape[1]) >= contaminated.shape[1]
        if not self.even:
            chosen = jax.random.permutation(two, tested.shape[1])[: self.num_contaminated + self.num_clean]
            tested, target = tested[:, chosen], target[chosen]
        return Sample(calibration, tested, target)


def _measure(run: Run, sizes: Sizes) -> tuple[list[Row], dict[str, Any], dict[str, Any]]:
    """Fine-tune K models, score, select; see the module."""
    rows: list[Row] = []
    models: list[Row] = []
    for index in range(sizes.replicates):
        seed = run.options.seed * 1_000 + index
        texts = generate(sizes.documents, seed=_POOL + seed)
        blocks = three_blocks(
            texts,
            num_models=sizes.models,
            calibration=sizes.calibration,
            remainder=sizes.remainder,
            share=sizes.trained,
            seed=_BLOCKS + seed,
        )
        tables = [
            run.cell(f"model-{index}-{k}", functools.partial(_scored, run, k, texts, blocks, seed, sizes))
            for k in range(sizes.models)
        ]
        shared = np.array([row["block"] == "calibration" for row in blocks.truth])
        for name in SCORES:
            scores = np.array([table[name] for table in tables])
            models += _separation(index, name, scores, blocks.member, shared)
            for mix in MIXES:
                compute = functools.partial(_selected, scores, blocks.member, shared, mix, seed, sizes)
                selections = run.cell(f"selections-{index}-{name}-{mix}", compute)
                rows += [{"replicate": index, "score": name, "mix": mix, **row} for row in selections]
    return rows, {"Models": tuple(models), **_tables(rows)}, {}


def _scored(run: Run, k: int, texts: Texts, blocks: ThreeBlocks, seed: int, sizes: Sizes) -> Any:
    """Scores of all documents under model k."""
    model = fine_tune(
        run.base,
        blocks.training[k].texts,
        epochs=sizes.epochs,
        learning_rate=sizes.learning_rate,
        seed=seed * 100 + k,
        max_length=sizes.max_length,
    )
    return score_table(model, texts.texts, SCORES, max_length=sizes.max_length)


def _selected(
    scores: np.ndarray, member: np.ndarray, shared: np.ndarray, mix: str, seed: int, sizes: Sizes
) -> list[Row]:
    """Contamination rate and power of every rule over random subsets of scores [K, N]."""
    trained = member.any(axis=0)
    calibration, contaminated, clean = (scores[:, items] for items in (shared, trained & ~shared, ~trained))
    num_contaminated, num_clean = contaminated.shape[1], clean.shape[1]
    even = mix == "even"

    def subset_size(num_items: int) -> int:
        return max(1, int(_SHARE * num_items))

    result = study(
        Subsets(
            calibration,
            contaminated,
            clean,
            num_calibration=subset_size(calibration.shape[1]),
            num_contaminated=subset_size(num_contaminated),
            num_clean=subset_size(num_contaminated if even else num_clean),
            even=even,
        ),
        [method(rule, label=label) for label, rule in METHODS.items()],
        alphas=sizes.alphas,
        repetitions=sizes.repetitions,
        seed=seed % 2**32,
    )
    return [
        {
            "rule": row["method"],
            "alpha": row["alpha"],
            "contaminated": 0.5 if even else num_contaminated / (num_contaminated + num_clean),
            "gcr": row["fdr"],
            "gcr_se_subsets": row["fdr_se"],
            "power": row["power"],
            "power_se_subsets": row["power_se"],
            "selected": row["num_selected"],
        }
        for row in result.rows()
    ]


def _separation(index: int, name: str, scores: np.ndarray, member: np.ndarray, shared: np.ndarray) -> list[Row]:
    """How well each model's score tells its members from the others among the candidates."""
    lines = []
    for k, row in enumerate(member):
        inside, outside = scores[k, row & ~shared], scores[k, ~row & ~shared]
        lines.append(
            {
                "replicate": index + 1,
                "model": k + 1,
                "trained on": int(row.sum()),
                "of them candidates": len(inside),
                "score": name,
                "AUC": float(np.mean(inside[:, None] < outside[None])),
            }
        )
    return lines


def _tables(rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    """Means over replicates, with standard errors over them; those of the subsets are smaller by far."""
    tables = {}
    for mix in MIXES:
        lines = []
        for name, rule in itertools.product(SCORES, METHODS):
            mine = [row for row in rows if (row["score"], row["mix"], row["rule"]) == (name, mix, rule)]
            rates = by_level(mine, {"gcr": "GCR", "power": "power"})
            lines.append({"score": name, "rule": rule, **rates, "GCR <= level promised": PROMISES[rule]})
        share = np.mean([row["contaminated"] for row in rows if row["mix"] == mix])
        tables[f"{_MIX_WORDS[mix]}: {share:.1%} of the candidates contaminated"] = tuple(lines)
    return tables


_MIX_WORDS = {"blocks": "The paper's blocks", "even": "As many clean candidates as contaminated ones"}

REPRODUCTION = Reproduction(
    "jecs", "One clean set for several models: contamination rate and power", Sizes.at, _measure
)
