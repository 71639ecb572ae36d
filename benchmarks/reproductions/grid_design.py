"""The design of the power grid: sizes by scale, and what its models are trained on."""

from __future__ import annotations

import dataclasses
import math

from benchmarks.reproductions.scratch import Shape, joined, seed_of
from tdd.lab.canaries import canary_set
from tdd.lab.corpus import generate
from tdd.lab.plant_canaries import plant_canaries
from tdd.records import Texts

__all__ = ["BACKGROUND_SEED", "SEPARATOR", "Design", "Planted", "plant"]

SEPARATOR = "\n\n"
BACKGROUND_SEED = 3
_NONMEMBERS, _MEMBERS, _SETS = 10_000, 20_000, 700_000


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
            num_shards=max(4, round(12 * min(scale, math.sqrt(scale)))),
            num_shuffles=19,
            background=max(20, round(150 * scale)),
        )


@dataclasses.dataclass(frozen=True)
class Planted:
    """What the models are trained on, and what is asked about them."""

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
        *generate(design.background, seed=seed_of(seed, BACKGROUND_SEED)).texts,
        *(text for count, texts in members.items() for text in texts * count),
    ]
    found = plant_canaries(
        {name: texts for name, (_, texts) in sets.items()},
        {name: count for name, (count, _) in sets.items()},
        background,
        separator=SEPARATOR,
        seed=seed_of(seed, BACKGROUND_SEED),
    )
    nonmembers = tuple(_items(design, design.nonmembers, seed_of(seed, _NONMEMBERS)))
    return Planted(found.documents, members, nonmembers, sets)


def _items(design: Design, count: int, seed: int) -> list[str]:
    return joined(canary_set(count * design.sentences, seed=seed), design.sentences)
