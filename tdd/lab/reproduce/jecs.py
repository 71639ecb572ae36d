"""JECS on K fine-tuned models: one clean set for all of them, from shared calibration items.

The documents are split in three blocks: 30 % calibrate and are in the training data of every model; 10 % are the
remainder, of which each model is trained on a half of its own; the others no model is trained on. Selections are made
from the last two blocks, over and over, each time with a random share of the calibration items and of the candidates.

With these blocks about one candidate in eight is contaminated, so that at levels above that nothing can go wrong. So
the same models are examined a second time with as many clean candidates as contaminated ones ("even").
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np

from tdd.lab.corpus import generate
from tdd.lab.reproduce.models import Base, base_model, fine_tune, score_table
from tdd.lab.reproduce.record import Options, Outcome, Reproduction, Row, cell, provenance
from tdd.lab.reproduce.summary import seconds_of
from tdd.records import Null, pytree
from tdd.study import method
from tdd.study import run as study
from tdd.study.sample import Sample

__all__ = ["METHODS", "MIXES", "REPRODUCTION", "Blocks", "Sizes", "Subsets", "run", "three_blocks"]

NAME = "jecs"
TITLE = "One clean set for several models: contamination rate and power"
ALPHAS = (0.1, 0.2, 0.3)
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

_POOL, _BLOCKS = 900_000, 910_000
_SHARE = 0.8


@dataclasses.dataclass(frozen=True)
class Sizes:
    """Numbers of one run.

    Attributes:
      models: K.
      documents: N, in all three blocks.
      calibration: share of them that every model is trained on.
      remainder: share of them that some models are trained on.
      trained: share of the remainder that a model is trained on.
      max_length: tokens of a text.
      epochs: of fine-tuning.
      learning_rate: of fine-tuning.
      repetitions: random subsets.
    """

    models: int = 4
    documents: int = 1200
    calibration: float = 0.3
    remainder: float = 0.1
    trained: float = 0.5
    max_length: int = 96
    epochs: int = 4
    learning_rate: float = 1e-3
    repetitions: int = 2000

    @classmethod
    def at(cls, scale: float) -> Sizes:
        """Documents grow with the scale."""
        small = scale < 0.1
        return cls(
            models=2 if small else 4,
            documents=max(120, round(1200 * scale)),
            max_length=48 if small else 96,
            epochs=2 if small else 4,
            repetitions=128 if small else 2000,
        )


class Blocks:
    """Who was trained on what: the first items calibrate, the next are the remainder, the others are clean.

    Attributes:
      member: [K, N] bool.
      num_calibration: items of the first block.
      num_remainder: items of the second.
    """

    def __init__(self, member: np.ndarray, num_calibration: int, num_remainder: int) -> None:
        self.member, self.num_calibration, self.num_remainder = member, num_calibration, num_remainder


def three_blocks(sizes: Sizes, seed: int) -> Blocks:
    """The blocks of floor(.3 N), floor(.1 N) and all other documents, which are drawn independently of one another.

    Each model's half of the remainder is drawn by itself.
    """
    first, second = (int(share * sizes.documents + 1e-9) for share in (sizes.calibration, sizes.remainder))
    rng = np.random.default_rng(_BLOCKS + seed)
    member = np.zeros((sizes.models, sizes.documents), bool)
    member[:, :first] = True
    for row in member:
        row[first + rng.permutation(second)[: round(sizes.trained * second)]] = True
    return Blocks(member, first, second)


@pytree("num_calibration", "num_contaminated", "num_clean", "even")
class Subsets:
    """Random subsets of the calibration items and of the candidates.

    Attributes:
      calibration: [K, n] scores of all calibration items.
      contaminated: [K, a] scores of the candidates that a model was trained on.
      clean: [K, b] scores of the others.
      num_calibration: items a repetition calibrates with.
      num_contaminated: of the candidates; where not `even`, how many come out contaminated is random.
      num_clean: likewise.
      even: whether both numbers are kept to, or only their sum.
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
        own, bad, good = (jnp.asarray(part, dtype) for part in (self.calibration, self.contaminated, self.clean))
        one, two, three = jax.random.split(key, 3)
        own = jax.random.permutation(one, own, axis=1)[:, : self.num_calibration]
        if self.even:
            bad = jax.random.permutation(two, bad, axis=1)[:, : self.num_contaminated]
            good = jax.random.permutation(three, good, axis=1)[:, : self.num_clean]
        tested = jnp.concatenate([bad, good], axis=1)
        target = jnp.arange(tested.shape[1]) >= bad.shape[1]
        if not self.even:
            chosen = jax.random.permutation(two, tested.shape[1])[: self.num_contaminated + self.num_clean]
            tested, target = tested[:, chosen], target[chosen]
        return Sample(own, tested, target)


def run(options: Options, sizes: Sizes | None = None) -> Outcome:
    """Fine-tune K models, score, select; see the module.

    Args:
      options: of the run.
      sizes: other numbers than those of the scale.
    """
    sizes = Sizes.at(options.scale) if sizes is None else sizes
    settings = {"scale": options.scale, "seed": options.seed, **dataclasses.asdict(sizes)}
    texts = generate(sizes.documents, seed=_POOL + options.seed).texts
    blocks = three_blocks(sizes, options.seed)
    base = functools.cache(lambda: base_model(options.folder, scale=options.scale, seed=options.seed))
    found = [
        cell(
            options.folder,
            f"model-{k}",
            functools.partial(_scored, k, texts, blocks.member[k], options.seed, sizes, base),
            settings,
        )
        for k in range(sizes.models)
    ]
    scores = {name: np.array([model[name] for model in found]) for name in SCORES}
    rows: list[Row] = []
    for name in SCORES:
        for mix in MIXES:
            compute = functools.partial(_selected, scores[name], blocks, mix, options.seed, sizes)
            kept = cell(options.folder, f"selections-{name}-{mix}", compute, settings)
            rows += [{"score": name, "mix": mix, **row} for row in kept]
    return Outcome(
        name=NAME,
        title=TITLE,
        rows=tuple(rows),
        tables={"Models": _models(scores, blocks), **_tables(rows)},
        seconds=seconds_of(options.folder),
        provenance=provenance(options, settings),
    )


def _scored(k: int, texts: Sequence[str], member: np.ndarray, seed: int, sizes: Sizes, base: Any) -> dict[str, Any]:
    """Scores of all documents under model k."""
    model: Base = fine_tune(
        base(),
        [text for text, own in zip(texts, member, strict=True) if own],
        epochs=sizes.epochs,
        learning_rate=sizes.learning_rate,
        seed=seed * 1_000 + k,
        max_length=sizes.max_length,
    )
    return score_table(model, texts, SCORES, max_length=sizes.max_length)


def _selected(scores: np.ndarray, blocks: Blocks, mix: str, seed: int, sizes: Sizes) -> list[Row]:
    """Contamination rate and power of every rule over random subsets."""
    candidates = np.arange(scores.shape[1]) >= blocks.num_calibration
    contaminated = blocks.member.any(axis=0) & candidates
    bad, good = scores[:, contaminated], scores[:, candidates & ~contaminated]
    counts = [int(_SHARE * part) for part in (blocks.num_calibration, bad.shape[1], good.shape[1])]
    if mix == "even":
        counts[2] = counts[1]
    design = Subsets(scores[:, : blocks.num_calibration], bad, good, *counts, mix == "even")
    found = study(
        design,
        [method(rule, label=label) for label, rule in METHODS.items()],
        alphas=ALPHAS,
        repetitions=sizes.repetitions,
        seed=seed,
    )
    share = counts[1] / (counts[1] + counts[2])
    return [
        {
            "rule": row["method"],
            "alpha": row["alpha"],
            "contaminated": share,
            "gcr": row["fdr"],
            "gcr_se": row["fdr_se"],
            "power": row["power"],
            "power_se": row["power_se"],
            "selected": row["num_selected"],
        }
        for row in found.rows()
    ]


def _models(scores: dict[str, np.ndarray], blocks: Blocks) -> tuple[Row, ...]:
    """How well each model's scores tell its members from the others among the candidates."""
    lines = []
    for k, member in enumerate(blocks.member):
        own = np.arange(len(member)) >= blocks.num_calibration
        line: Row = {"model": k + 1, "trained on": int(member.sum()), "of them candidates": int(member[own].sum())}
        for name, table in scores.items():
            inside, outside = table[k, own & member], table[k, own & ~member]
            line[f"AUC, {name}"] = float(np.mean(inside[:, None] < outside[None]))
        lines.append(line)
    return tuple(lines)


def _tables(rows: Sequence[Row]) -> dict[str, tuple[Row, ...]]:
    tables = {}
    for mix in MIXES:
        lines = []
        for name in SCORES:
            for rule in METHODS:
                mine = [row for row in rows if (row["score"], row["mix"], row["rule"]) == (name, mix, rule)]
                line: Row = {"score": name, "rule": rule}
                for row in mine:
                    line[f"GCR at {row['alpha']:g}"] = f"{row['gcr']:.3f} ± {row['gcr_se']:.3f}"
                    line[f"power at {row['alpha']:g}"] = f"{row['power']:.3f} ± {row['power_se']:.3f}"
                lines.append(line)
        share = next(row["contaminated"] for row in rows if row["mix"] == mix)
        tables[f"{_MIX_WORDS[mix]}: {share:.1%} of the candidates contaminated"] = tuple(lines)
    return tables


_MIX_WORDS = {"blocks": "The paper's blocks", "even": "As many clean candidates as contaminated ones"}

REPRODUCTION = Reproduction(name=NAME, title=TITLE, paper="JECS, section 4 and appendix D", run=run, minutes=3.0)
