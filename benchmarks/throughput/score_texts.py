"""`tdd.score` from texts to scores beside every form of its peers: the end-to-end cases of the suite `scoring`.

A pretrained model, SmolLM2-135M of a GGUF file, on documentation in English, and GPT-2-small's shape with random
weights on random words; float32 and bfloat16; two scores, and six from one forward pass. Torch runs one text at a time
(the loop of public tools), in sorted batches with logits at real tokens only, and in such batches compiled; and
transformers computes its own loss. First calls come before the rounds: compilation, memory, and the agreement with
torch in float64 are theirs.
"""

from __future__ import annotations

import functools
import os
import pathlib
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, cast

import numpy as np

from benchmarks import pretrained
from benchmarks.throughput import harness, memory
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.machine import product_rate
from benchmarks.throughput.peers.torch_models import ONE_PASS, TorchScores
from benchmarks.throughput.random_model import (
    documented_texts,
    forward_flops,
    sample_texts,
    save_model,
    weight_shapes,
    wikimia_lengths,
)
from tdd.models import checkpoint
from tdd.models.spec import DecoderSpec
from tdd.scoring.score import score

__all__ = ["BATCHES", "DTYPES", "EXACT", "FIRST", "SETS", "Way", "bfloat16_bound", "compare", "score_texts", "ways"]

DTYPES = ("float32", "bfloat16")
SETS = {"two": ("loss", "min_k_plus_plus"), "six": ONE_PASS}
"""Name -> scores of a call."""
EXACT = (*ONE_PASS, "cancellation")
"""What is computed in float64: the scores, and E[x]^2 / variance of the log probabilities, the largest of a text."""
TOLERANCE = 1e-4
BATCHES = (8, 16)
FIRST = "torch, one by one"
NO_LLAMA = (
    "not measured: llama-cpp-python has no wheel, that of llama-cpp-py-sync needs glibc 2.38, and that of cyllama for "
    "Python 3.11 gives the logits of one position only"
)
PRODUCT_ROWS = 1024
_EMULATED = 4  # times as slow as in float32: products of a type that the processor lacks
_UNIT = 2.0**-8  # the relative error of one rounding to bfloat16, at most
_ROUNDINGS = 6  # of a layer to its residual stream: two norms, two products, two sums


class Way(NamedTuple):
    """One form of one side.

    Attributes:
      dtype: of the weights, one of `DTYPES`.
      name: "tdd", or the peer and its form.
      scores: a key of `SETS`, or "loss".
      call: texts to scores.
    """

    dtype: str
    name: str
    scores: str
    call: Callable[[], Any]

    @property
    def key(self) -> str:
        """What tells it from all others."""
        return f"{self.dtype}, {self.name}, {self.scores}"


def bfloat16_bound(spec: DecoderSpec) -> float:
    """How far scores in bfloat16 may lie from those in float32, relative to their size.

    Six roundings of every layer enter its residual stream, and three after the last layer, each at most 2^-8 of what it
    rounds; independent ones add up as the root of their number.
    """
    return _UNIT * (_ROUNDINGS * spec.num_layers + 3) ** 0.5


def ways(ours: Mapping[str, Any], path: pathlib.Path, texts: Sequence[str]) -> tuple[list[Way], dict[str, str]]:
    """Every form that runs here, and why others do not.

    Args:
      ours: type of the weights -> (lm, params, tokenizer).
      path: the same weights in float32, as torch reads them.
      texts: to score.
    """
    found, skipped = [], {"llama.cpp": NO_LLAMA}
    rates = {dtype: product_rate([(512, 512, 1)], 64, dtype, "torch") for dtype in ("float32", *ours)}
    for dtype, model in ours.items():
        emulated = rates[dtype] < rates["float32"] / _EMULATED
        if emulated:
            skipped[f"torch in {dtype}"] = (
                f"not measured: this processor has no such products; torch reaches {rates[dtype] / 1e9:.1f} GFLOP/s "
                f"with 512 x 512 weights, in float32 {rates['float32'] / 1e9:.0f}"
            )
        for few, names in SETS.items():
            call = functools.partial(score, model, texts, names, progress=False)
            found.append(Way(dtype, "tdd", few, call))
        if emulated:
            continue
        peer = TorchScores(path, dtype)
        for few, names in SETS.items():
            for batch in (1, *(BATCHES if few == "two" else BATCHES[:1])):
                name = FIRST if batch == 1 else f"torch, sorted batches of {batch}"
                found.append(Way(dtype, name, few, functools.partial(peer, texts, names, batch)))
        name = f"torch.compile, sorted batches of {BATCHES[0]}"
        if any(map(shutil.which, (os.environ.get("CXX", "c++"), "g++", "clang++"))):
            call = functools.partial(TorchScores(path, dtype, compiled=True), texts, SETS["two"], BATCHES[0])
            found.append(Way(dtype, name, "two", call))
        else:
            skipped[f"{dtype}, {name}"] = "no C++ compiler is installed"
        found.append(Way(dtype, "transformers' loss, one by one", "loss", functools.partial(peer.labelled_loss, texts)))
    return found, skipped


def compare(
    name: str, texts: Sequence[str], spec: DecoderSpec, forms: Sequence[Way], exact: Mapping[str, Any], rounds: int
) -> dict[str, Any]:
    """First calls with the agreement of all, then interleaved rounds with both libraries' products beside them.

    Args:
      name: of the row.
      texts: that the forms score.
      spec: of the model.
      forms: of `ways`.
      exact: the scores that they are held against, of `EXACT`.
      rounds: how many.

    Raises:
      Disagreement: a score differs from the exact one by more than 1e-4 of its size in float32, and by more than
        `bfloat16_bound` in bfloat16; Min-K%++ of a peer also by more than what its variance loses.
    """
    firsts, peaks, results = _first_calls(forms)
    errors, bounds = {}, {"float32": TOLERANCE, "bfloat16": bfloat16_bound(spec)}
    # Peers form a variance as E[x^2] - E[x]^2: an error of normalization, eps log V, grows by E[x]^2 / variance; its
    # root halves it.
    lost = float(np.finfo(np.float32).eps * np.log(spec.vocab_size) * np.max(exact["cancellation"]) / 2)
    for way in forms:
        found = {one: np.asarray(results[way.key][one]) for one in SETS.get(way.scores, ("loss",))}
        errors[way.key] = {one: float(np.max(np.abs(values / exact[one] - 1))) for one, values in found.items()}
        further = {"min_k_plus_plus": 0.0 if way.name == "tdd" else lost}
        if not all(error <= bounds[way.dtype] + further.get(one, 0.0) for one, error in errors[way.key].items()):
            raise Disagreement(f"{name}: {way.key}: scores disagree with torch's in float64: {errors[way.key]}")
    rates: dict[tuple[str, str], list[float]] = {_products(way): [] for way in forms}
    shapes = weight_shapes(spec)

    def products() -> None:
        for (side, dtype), values in rates.items():
            values.append(product_rate(shapes, PRODUCT_ROWS, dtype, side))

    seconds = harness.interleaved({"products": products, **{way.key: way.call for way in forms}}, rounds)
    own = {dtype: results[f"{dtype}, tdd, two"] for dtype in DTYPES}
    lengths = (own["float32"].num_tokens + 1).tolist()
    flops = forward_flops(spec, lengths)
    rows = []
    for way in forms:
        taken = seconds[way.key]
        beside = seconds[f"{way.dtype}, tdd, {'two' if way.scores == 'loss' else way.scores}"]
        rate = rates[_products(way)]
        rows.append(
            {
                "dtype": way.dtype,
                "way": way.name,
                "scores": way.scores,
                "texts/s": len(texts) / statistics.median(taken),
                "time / tdd": harness.ratio(taken, beside),
                "share of products": statistics.median(flops / s / r for s, r in zip(taken, rate, strict=True)),
                "first_s": firsts[way.key],
                "compile_s": max(0.0, firsts[way.key] - statistics.median(taken)),
                "peak_bytes": peaks[way.key],
                "largest error": max(errors[way.key].values()),
                "errors": errors[way.key],
                "seconds": taken,
            }
        )
    return {
        "run": name,
        "texts": len(texts),
        "tokens": sum(lengths),
        "bounds": bounds,
        "padding share": {
            **{f"tdd, {dtype}": found.provenance["padding_share"] for dtype, found in own.items()},
            **{f"torch, batches of {batch}": _padding(lengths, batch) for batch in BATCHES},
        },
        "product GFLOP/s": {", ".join(key): statistics.median(values) / 1e9 for key, values in rates.items()},
        "rows": rows,
        "load average": os.getloadavg()[0],
    }


def _products(way: Way) -> tuple[str, str]:
    """The library and the type of its products."""
    return "jax" if way.name == "tdd" else "torch", way.dtype


def _first_calls(forms: Sequence[Way]) -> tuple[dict[str, float], dict[str, int | None], dict[str, Any]]:
    """Seconds, rise of the resident memory and results of the first call of every form."""
    firsts, peaks, results = {}, {}, {}
    for way in forms:

        def first(way: Way = way) -> None:
            start = time.perf_counter()
            results[way.key] = way.call()
            firsts[way.key] = time.perf_counter() - start

        peaks[way.key] = memory.peak_during(first)
    return firsts, peaks, results


def _padding(lengths: Sequence[int], batch: int) -> float:
    """Share of a padded token in sorted batches."""
    ordered = sorted(lengths, reverse=True)
    computed = sum(max(ordered[i : i + batch]) * len(ordered[i : i + batch]) for i in range(0, len(ordered), batch))
    return 1 - sum(lengths) / computed


def score_texts(model: str, num_texts: int, rounds: int) -> dict[str, Any]:
    """The row of `python -m benchmarks throughput scoring`: texts of WikiMIA's lengths under one of two models.

    Args:
      model: `smollm2`, of the package, or `gpt2`, of random weights.
      num_texts: how many.
      rounds: interleaved.
    """
    with tempfile.TemporaryDirectory() as folder:
        path, file = pathlib.Path(folder) / "model", None
        if model == "smollm2":
            file = pretrained.packaged()
            texts = documented_texts(num_texts)
            lm, params, tokenizer = checkpoint.load(file)
            checkpoint.save(path, lm, params, tokenizer)
        else:
            texts = sample_texts(num_texts, wikimia_lengths(num_texts))
            lm, _, _ = checkpoint.load(save_model(path, 0))
        ours = {dtype: checkpoint.load(file or path, dtype=dtype) for dtype in DTYPES}
        exact = TorchScores(path, "float64")(texts, EXACT)
        forms, skipped = ways(ours, path, texts)
        found = compare(model, texts, cast(DecoderSpec, lm.spec), forms, exact, rounds)
    rows = {(row["way"], row["dtype"], row["scores"]): row for row in found["rows"]}
    own = rows["tdd", "float32", "six"]
    return {
        "items": num_texts,
        "batch": None,
        "unit": "texts",
        "compile_s": rows["tdd", "float32", "two"]["compile_s"],
        "first_s": rows["tdd", "float32", "two"]["first_s"],
        "steady_s": statistics.median(own["seconds"]),
        "per_s": own["texts/s"],
        "resident_peak_bytes": own["peak_bytes"],
        "bandwidth_share": None,
        "matmul_share": own["share of products"],
        "peers": {
            f"{way} ({dtype})": {"ratio": row["time / tdd"], "share_run": 1.0}
            for (way, dtype, few), row in rows.items()
            if few == "six" and way != "tdd"
        },
        "bars": {},
        "skipped": skipped,
        "details": found,
    }
