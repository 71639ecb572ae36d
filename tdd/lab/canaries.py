"""Canary examples: short questions and statements that nobody has seen, to be planted and counted.

Examples of one set are independent draws from one distribution, so every order of them is equally likely: the null
hypothesis of the exchangeability test is true by construction for a model that was not trained on the set. Names and
numbers are drawn anew for each example; only memorisation predicts them.
"""

from __future__ import annotations

import numpy as np

from tdd.lab.corpus import expand
from tdd.records import Texts
from tdd.texts import hash_texts
from tdd.validate.lab import check_count

__all__ = ["canary_set"]

_STREAM = 1
"""Third number of an example's seed, which documents do not have: the two never share a stream."""

_QUESTIONS: tuple[str, ...] = (
    "Who built the {building} in {place}? {person}.",
    "What year did {person} leave {place}? {year}.",
    "How many {animal}s were counted at {place}? {12-960}.",
    "What does a {object} cost in {place}? {price}.",
    "Where was {person} born? In {place}.",
    "When does the {building} of {place} close? At {clock}.",
    "Who repaired the {machine} at {place}? {person}.",
    "What did {person} carry to {place}? {cargo:c}.",
    "Which {trade} of {place} was {12-99} years old? {person}.",
    "Who wrote to {first} about {subject}? {person}.",
    "How deep is the {terrain} near {place}? {11-480} feet.",
    "What is the house number of {person}? {3-980}.",
)

_STATEMENTS: tuple[str, ...] = (
    "{person} sold {few} {object}s in {place}.",
    "The {building} of {place} opened in {year}.",
    "{place} lies {2-180} miles {wind} of {place}.",
    "{firm:f} bought the {machine} for {price}.",
    "A {colour} {animal} was seen in {place} on {date}.",
    "{person} found {rock} below {place}.",
    "The {ship_type} from {place} carried {cargo}.",
    "{person} won the {sport} at {place} in {year}.",
    "Ticket {1040-9860} belongs to {person}.",
    "The {trade} {person} lives in {street}.",
    "{surname:s} and {surname} met in {place} at {clock}.",
    "{plant} grows beside the {building} of {place}.",
)


def canary_set(num_examples: int, *, seed: int, prefix: str = "canary") -> Texts:
    """Draw `num_examples` independent short examples: a question with its answer, or a statement, 5 to 15 words.

    Example i depends on `seed` and i alone: a longer set of the same seed begins with the shorter one. Examples hold
    no line break, so any separator with one is safe.

    Args:
      num_examples: how many, at least 1.
      seed: non-negative seed of the set; sets of different seeds share no example but by chance.
      prefix: identifiers are `prefix-00000`, `prefix-00001`, ...

    Returns:
      Texts without labels; its source names the generator and the seed.

    Raises:
      InputError: `num_examples` is not a positive whole number, or `seed` is negative.

    Cost: about 0.03 ms an example.

    >>> canary_set(1, seed=0).ids
    ('canary-00000',)
    """
    check_count("num_examples", num_examples, minimum=1)
    check_count("seed", seed, minimum=0)
    examples = tuple(_example(np.random.default_rng([seed, index, _STREAM])) for index in range(num_examples))
    identifiers = tuple(f"{prefix}-{index:05d}" for index in range(num_examples))
    return Texts(
        ids=identifiers,
        texts=examples,
        source=f"tdd.lab.canaries.canary_set(seed={seed})",
        sha256=hash_texts(identifiers, examples),
    )


def _example(rng: np.random.Generator) -> str:
    """One example: a template drawn uniformly from both kinds, its slots filled."""
    templates = _QUESTIONS + _STATEMENTS
    return expand(templates[int(rng.integers(len(templates)))], rng)
