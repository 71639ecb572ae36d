"""All eight scores of `tdd.score` beside the usual torch loop: the end-to-end case of the suite `scoring`.

Both read the same checkpoint files and make the same three forward passes (text, lowercased text, reference model).
Agreement is checked before anything is timed, and the machine's matrix product is measured in every round.
"""

from __future__ import annotations

import gc
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.throughput import harness, memory
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.machine import matmul_flops
from benchmarks.throughput.peers.torch_models import SCORES, TorchLoop
from benchmarks.throughput.random_model import sample_texts, save_model, three_pass_flops, wikimia_lengths
from tdd.models import checkpoint
from tdd.scoring.score import score
from tdd.scoring.scores import Reference

__all__ = ["compare", "run", "score_texts"]

TOLERANCE = 1e-4


def compare(name: str, texts: list[str], ours: Any, peer: TorchLoop, rounds: int, gate: int = 20) -> dict[str, Any]:
    """Agreement first, then both in interleaved rounds with the machine's matrix product beside them.

    Args:
      name: of the row.
      texts: to score.
      ours: (model, reference model), each as `checkpoint.load` returns it.
      peer: the loop on the same checkpoints.
      rounds: how many.
      gate: about so many texts are compared.

    Raises:
      Disagreement: a score differs by more than 1e-4 of its size.
    """
    counter = harness.TraceCounter()
    start = time.perf_counter()
    found = _ours(ours, texts)
    first = time.perf_counter() - start
    compiles = counter.stop()
    step = max(1, len(texts) // gate)
    expected = peer.scores(texts[::step])
    errors = {}
    for score_name in SCORES:
        got = found[score_name][::step]
        # the reference score is a difference near 0: its error is relative to the losses that are subtracted
        scale = expected["loss" if score_name == "reference" else score_name]
        errors[score_name] = float(np.max(np.abs(got - expected[score_name]) / np.abs(scale)))
    if max(errors.values()) > TOLERANCE:
        raise Disagreement(f"{name}: scores disagree with the reference loop: {errors}")
    rates: list[float] = []
    calls = {
        "matmul": lambda: rates.append(matmul_flops(rounds=3)),
        "tdd": lambda: _ours(ours, texts),
        "torch": lambda: peer.scores(texts),
    }
    seconds = harness.interleaved(calls, rounds)
    flops = three_pass_flops(texts)
    shares = [flops / s / rate for s, rate in zip(seconds["tdd"], rates, strict=True)]
    return {
        "run": name,
        "texts": len(texts),
        "tokens": sum(len(text.split()) for text in texts),
        "tdd texts/s": len(texts) / statistics.median(seconds["tdd"]),
        "torch texts/s": len(texts) / statistics.median(seconds["torch"]),
        "ratio": harness.ratio(seconds["torch"], seconds["tdd"]),
        "tdd GFLOP/s": flops / statistics.median(seconds["tdd"]) / 1e9,
        "torch GFLOP/s": flops / statistics.median(seconds["torch"]) / 1e9,
        "matmul GFLOP/s": statistics.median(rates) / 1e9,
        "share of matmul": statistics.median(shares),
        "first call s": first,
        "compiles": compiles,
        "buckets": len(found.provenance["batch_shapes"]),
        "padding share": found.provenance["padding_share"],
        "largest error": max(errors.values()),
        "errors": errors,
        "seconds": seconds,
        "load average": os.getloadavg()[0],
    }


def _ours(models: Any, texts: list[str]) -> Any:
    scores = {name: Reference(models[1]) if name == "reference" else name for name in SCORES}
    return score(models[0], texts, scores, progress=False)


def _memory_by_texts(models: Any, texts: list[str]) -> dict[str, float]:
    """Resident memory after scoring 50 texts and after scoring all of them, in MiB above the models."""
    before = memory.resident_bytes()
    found = {}
    for count in (50, len(texts)):
        _ours(models, sorted(texts, key=len, reverse=True)[:count])
        found[f"resident MiB after {count} texts"] = (memory.resident_bytes() - before) / 2**20
        found[f"peak MiB of the process after {count} texts"] = memory.peak_bytes() / 2**20
    return found


def run(num_texts: int, rounds: int, gate: int = 20, say: Callable[[dict[str, Any]], None] = lambda row: None) -> Any:
    """Texts of WikiMIA's mix of lengths, texts of 32 tokens, and memory.

    Args:
      num_texts: of each kind.
      rounds: interleaved.
      gate: about so many texts are compared before.
      say: is told every row.
    """
    with tempfile.TemporaryDirectory() as folder:
        paths = [save_model(pathlib.Path(folder) / name, seed) for seed, name in enumerate(("a", "b"))]
        mix = sample_texts(num_texts, wikimia_lengths(num_texts))
        short = sample_texts(num_texts, np.full(num_texts, 32))
        ours = tuple(checkpoint.load(path) for path in paths)
        peer = TorchLoop(*paths)
        result: dict[str, Any] = {
            "scores": SCORES,
            "model": "GPT-2-small-sized, random weights",
            "tolerance": TOLERANCE,
            "runs": [],
        }
        for name, texts in (("WikiMIA length mix", mix), ("32 tokens", short)):
            result["runs"].append(compare(name, texts, ours, peer, rounds, gate))
            say(result["runs"][-1])
        del peer
        gc.collect()
        result["memory"] = _memory_by_texts(ours, mix)
    return result


def score_texts(num_texts: int, rounds: int) -> dict[str, Any]:
    """The row of `python -m benchmarks throughput scoring`: WikiMIA's mix of lengths."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [save_model(pathlib.Path(folder) / name, seed) for seed, name in enumerate(("a", "b"))]
        texts = sample_texts(num_texts, wikimia_lengths(num_texts))
        found = compare("score", texts, tuple(checkpoint.load(path) for path in paths), TorchLoop(*paths), rounds)
    steady = {name: statistics.median(found["seconds"][name]) for name in ("tdd", "torch")}
    return {
        "items": num_texts,
        "batch": None,
        "unit": "texts",
        "compile_s": max(0.0, found["first call s"] - steady["tdd"]),
        "first_s": found["first call s"],
        "steady_s": steady["tdd"],
        "per_s": found["tdd texts/s"],
        "resident_peak_bytes": memory.peak_bytes(),
        "bandwidth_share": None,
        "matmul_share": found["share of matmul"],
        "peers": {"torch": {"steady_s": steady["torch"], "ratio": found["ratio"], "share_run": 1.0}},
        "bars": {},
        "skipped": {},
        "details": found,
    }
