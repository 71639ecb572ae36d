"""Token rows of one kind for probes, and probes of a small model that differ in what a test says."""

import numpy as np
from adapted_models import VOCABULARY, reference_hidden, reference_logits, reference_readout

import tdd

SMALL = tdd.from_function(
    reference_logits, vocab_size=VOCABULARY, hidden=reference_hidden, readout=reference_readout, name="small"
)
"""A model that compiles fast; its parameters are `weights()`."""


def token_rows(count, seed=0, shortest=24, longest=24, vocabulary=VOCABULARY):
    rng = np.random.default_rng(seed)
    return [rng.integers(0, vocabulary, rng.integers(shortest, longest + 1)) for _ in range(count)]


def small_probe(lm=SMALL, *, suspects=20, references=24, **options):
    rows = token_rows(suspects + references)
    given = {"num_draws": 199, "every": 10, "num_steps": 100, **options}
    return tdd.Probe(lm, rows[:suspects], rows[suspects:], **given)
