"""Token statistics of every family: texts a second beside the usual torch loop, and the share of the machine's rate.

For each family a checkpoint of GPT-2-small's size with random weights is saved, and read by both. Agreement of every
score is checked before anything is timed. The share is that of one batch of 2,048 tokens through `tdd.token_stats`,
all statistics, in the rate of float32 matrix products measured in the same round.
"""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.throughput import harness, memory
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.machine import matmul_flops
from benchmarks.throughput.peers.torch_models import ONE_PASS, TorchScores
from benchmarks.throughput.random_model import SPECS, forward_flops, sample_texts, save_model, wikimia_lengths
from tdd.models import checkpoint
from tdd.scoring.score import score
from tdd.scoring.token_stats import token_stats

__all__ = ["TOLERANCE", "compare", "run"]

TOLERANCE = 1e-4
BATCHES = ((8, 256), (24, 85), (2, 1024))


def run(
    names: Sequence[str], num_texts: int, rounds: int, say: Callable[[dict[str, Any]], None] = lambda row: None
) -> list[dict[str, Any]]:
    """A row for each family.

    Args:
      names: of families, keys of `SPECS`.
      num_texts: of WikiMIA's lengths.
      rounds: interleaved.
      say: is told every row.

    Raises:
      Disagreement: a score differs from the loop's by more than 1e-4 of its size.
    """
    rows = []
    for name in names:
        rows.append(compare(name, num_texts, rounds))
        say(rows[-1])
        jax.clear_caches()
        gc.collect()
    return rows


def compare(name: str, num_texts: int, rounds: int) -> dict[str, Any]:
    """One family."""
    from transformers import PreTrainedTokenizerFast

    spec = SPECS[name]
    texts = sample_texts(num_texts, wikimia_lengths(num_texts), vocabulary=spec.vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        path = save_model(pathlib.Path(folder) / name, 0, spec)
        lm, params, _ = checkpoint.load(path)
        peer = TorchScores(path)
        # as it was saved: by the model's family, transformers may split words as that family's tokenizer does
        tokenizer = peer.tokenizer = PreTrainedTokenizerFast.from_pretrained(path)
    score_texts = functools.partial(score, (lm, params, tokenizer), texts, ONE_PASS, progress=False)
    expected, found = peer(texts, ONE_PASS), score_texts()
    errors = {key: float(np.max(np.abs(found[key] / expected[key] - 1))) for key in ONE_PASS}
    if not max(errors.values()) <= TOLERANCE:
        raise Disagreement(f"{name}: scores disagree with the reference loop: {errors}")

    statistics_of = jax.jit(token_stats, static_argnames="lm")
    rng = np.random.default_rng(1)
    batches = {
        f"{size}x{length}": jnp.asarray(rng.integers(0, spec.vocab_size, (size, length)), jnp.int32)
        for size, length in BATCHES
    }
    temporaries, steps = {}, {}
    for shape, tokens in batches.items():
        arguments = (lm, params, tokens, jnp.ones(tokens.shape, bool))
        compiled = statistics_of.lower(*arguments).compile()
        temporaries[shape] = memory.program_bytes(compiled).get("temporary_bytes")
        steps[shape] = functools.partial(compiled, *arguments[1:])
        jax.block_until_ready(steps[shape]())
    rates: list[float] = []
    seconds = harness.interleaved(
        {
            "matmul": lambda: rates.append(matmul_flops(rounds=3)),
            **steps,
            "tdd": score_texts,
            "torch": lambda: peer(texts, ONE_PASS),
        },
        rounds,
    )
    shares = {
        shape: statistics.median(
            forward_flops(spec, [tokens.shape[1]] * tokens.shape[0]) / s / rate
            for s, rate in zip(seconds[shape], rates, strict=True)
        )
        for shape, tokens in batches.items()
    }
    return {
        "family": name,
        "vocabulary": spec.vocab_size,
        "texts": len(texts),
        "tdd texts/s": len(texts) / statistics.median(seconds["tdd"]),
        "torch texts/s": len(texts) / statistics.median(seconds["torch"]),
        "ratio": harness.ratio(seconds["torch"], seconds["tdd"]),
        "tokens/s, 8x256": 2048 / statistics.median(seconds["8x256"]),
        "matmul GFLOP/s": statistics.median(rates) / 1e9,
        **{f"share of matmul, {shape}": share for shape, share in shares.items()},
        "temporaries MiB, 8x256": (temporaries["8x256"] or 0) / 2**20,
        "[B,T,V] MiB, 8x256": 4 * 2048 * spec.vocab_size / 2**20,
        "largest error": max(errors.values()),
        "errors": errors,
        "seconds": seconds,
        "load average": os.getloadavg()[0],
    }
