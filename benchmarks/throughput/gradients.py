"""Per-example gradient norms beside four peers: error, time and memory at GPT-2-small's size.

Three runs: a batch under a tied head (against `vmap` of `grad`); texts of WikiMIA's 64-word length, of which every peer
but torch's loop would need padding (against one backward pass a text in torch); a batch under a head of its own, where
Opacus and jax_privacy can follow. Agreement is checked before anything is timed.
"""

from __future__ import annotations

import functools
import gc
import os
import pathlib
import statistics
import tempfile
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.throughput import harness, memory
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.machine import matmul_flops
from benchmarks.throughput.peers.gradients import JAX_PEERS, Opacus, TorchBackward
from benchmarks.throughput.peers.torch_models import torch_model
from benchmarks.throughput.random_model import SPECS, TOKENS_PER_WORD, sample_texts, save_model
from tdd.models import checkpoint
from tdd.scoring.gradients import grad_norms
from tdd.scoring.score import score

__all__ = ["TOLERANCE", "batch_run", "run", "texts_run"]

TOLERANCE = 1e-5
"""Largest relative difference from a peer; beyond it nothing is timed."""

GATE = 8
"""About so many texts are compared with torch's loop."""

TIED, UNTIED = "gpt2", "gpt_neox"


def run(
    *,
    rounds: int = 3,
    num_texts: int = 64,
    batch: int = 8,
    length: int = 256,
    say: Callable[[dict[str, Any]], None] = lambda row: None,
) -> list[dict[str, Any]]:
    """All three runs, a row for each way in each of them.

    Args:
      rounds: interleaved.
      num_texts: of WikiMIA's 64-word length.
      batch, length: of the batches.
      say: is told every row.

    Raises:
      Disagreement: a norm differs from a peer's by more than 1e-5 of its size.
    """
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, peers in ((TIED, ("vmap(grad)",)), (UNTIED, ("vmap(grad)", "jax_privacy", "opacus"))):
            path = save_model(pathlib.Path(folder) / name, 0, SPECS[name])
            found = batch_run(name, path, peers, rounds=rounds, batch=batch, length=length)
            if name == TIED:
                found += texts_run(path, rounds=rounds, num_texts=num_texts)
            for row in found:
                say(row)
            rows += found
            jax.clear_caches()
            gc.collect()
    return rows


def batch_run(
    name: str, path: pathlib.Path, peers: tuple[str, ...], *, rounds: int, batch: int, length: int
) -> list[dict[str, Any]]:
    """One batch [B, T] of random tokens; a peer that is absent is said to be."""
    lm, params, _ = checkpoint.load(path)
    rng = np.random.default_rng(1)
    tokens = jnp.asarray(rng.integers(0, lm.vocab_size, (batch, length)), jnp.int32)
    builders = {"tdd": lambda lm: lambda p, t: grad_norms(lm, p, t, jnp.ones(t.shape, bool)).total, **JAX_PEERS}
    calls: dict[str, Callable[[], Any]] = {}
    temporary: dict[str, int | None] = {}
    absent: dict[str, str] = {}
    for way in ("tdd", *peers):
        try:
            if way == "opacus":
                calls[way], temporary[way] = functools.partial(Opacus(path).norms, np.asarray(tokens)), None
            else:
                compiled = jax.jit(builders[way](lm)).lower(params, tokens).compile()
                calls[way] = functools.partial(compiled, params, tokens)
                temporary[way] = memory.program_bytes(compiled).get("temporary_bytes")
        except ImportError as error:
            absent[way] = f"{error.name} is not installed"
    rows = _timed(f"{name} {batch}x{length}", calls, rounds, batch, temporary)
    return rows + [{"run": f"{name} {batch}x{length}", "way": way, "absent": why} for way, why in absent.items()]


def texts_run(path: pathlib.Path, *, rounds: int, num_texts: int) -> list[dict[str, Any]]:
    """Texts of 64 words through `tdd.score`, beside torch one text at a time; both tokenise the texts."""
    model = checkpoint.load(path)
    mean, spread = TOKENS_PER_WORD[64]
    lengths = np.round(64 * np.random.default_rng(0).normal(mean, spread, num_texts)).astype(int)
    texts = sample_texts(num_texts, lengths)
    calls: dict[str, Callable[[], Any]] = {
        "tdd": lambda: score(model, texts, ("grad_norm",), progress=False)["grad_norm"]
    }
    absent, errors = {}, {}
    try:
        loop = TorchBackward(torch_model(path))
    except ImportError as error:
        absent["torch"] = f"{error.name} is not installed"
    else:
        step = max(1, num_texts // GATE)
        exact = np.array([loop.exact(np.asarray(ids)) for ids in model[2](texts[::step])["input_ids"]])
        errors["torch"] = float(np.max(np.abs(calls["tdd"]()[::step] / exact - 1)))
        calls["torch"] = lambda: loop.norms([np.asarray(ids) for ids in model[2](texts)["input_ids"]])
    rows = _timed(f"{num_texts} texts", calls, rounds, num_texts, {}, errors)
    return rows + [{"run": f"{num_texts} texts", "way": way, "absent": why} for way, why in absent.items()]


def _timed(
    name: str,
    calls: Mapping[str, Callable[[], Any]],
    rounds: int,
    count: int,
    temporary: Mapping[str, int | None],
    known: Mapping[str, float] | None = None,
) -> list[dict[str, Any]]:
    """Agreement, where it is not `known`, then interleaved rounds: one row a way."""
    ours = np.asarray(calls["tdd"](), np.float64)
    errors = {"tdd": 0.0, **(known or {})}
    for way in calls.keys() - errors.keys():
        errors[way] = float(np.max(np.abs(np.asarray(calls[way](), np.float64) / ours - 1)))
    if not max(errors.values()) <= TOLERANCE:
        raise Disagreement(f"{name}: gradient norms disagree: {errors}")
    rates: list[float] = []
    seconds = harness.interleaved({"matmul": lambda: rates.append(matmul_flops(rounds=2)), **calls}, rounds)
    mine = temporary.get("tdd")
    rows = []
    for way in calls:
        theirs = temporary.get(way)
        rows.append(
            {
                "run": name,
                "way": way,
                "texts/s": count / statistics.median(seconds[way]),
                "time / tdd": harness.ratio(seconds[way], seconds["tdd"]),
                "temporary MiB": None if theirs is None else theirs / 2**20,
                "memory / tdd": None if theirs is None or not mine else theirs / mine,
                "difference": errors[way],
                "matmul GFLOP/s": statistics.median(rates) / 1e9,
                "seconds": seconds[way],
                "load average": os.getloadavg()[0],
            }
        )
    return rows
