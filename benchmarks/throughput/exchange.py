"""Orders of a canary set through a model of GPT-2-small's size: sequences a second beside the reference way.

Ours are timed through what `tdd.run_exchange` computes log-probabilities with (`tdd.exchange.passes.run_sets`:
tokenising, rows, batches, the model); fixed costs of a run, which a sample would overstate, are measured apart. The
peer scores one sequence at a time. Sums of log-probabilities are compared before anything is timed.
"""

from __future__ import annotations

import gc
import os
import pathlib
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np

from benchmarks.throughput import harness
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.machine import matmul_flops
from benchmarks.throughput.peers.torch_models import TorchOrders, overlapping
from benchmarks.throughput.random_model import GPT2_SMALL, sample_texts, save_model
from tdd.exchange.data import Options, Shards, load_examples
from tdd.exchange.passes import context_windows, run_sets
from tdd.exchange.run import run_exchange
from tdd.models import checkpoint
from tdd.models.spec import DecoderSpec
from tdd.scoring.devices import find_devices
from tdd.scoring.how import Run
from tdd.scoring.inputs import Model

__all__ = ["TOLERANCE", "Sample", "canaries", "compare", "run"]

TOLERANCE = 1e-4
"""Largest relative difference of a sum of log-probabilities from the peer's; beyond it nothing is timed."""

SHARES = (1.0, 0.5, 0.25)
_BUDGET, _BUDGET_ELSEWHERE = 2048, 16_384


class Sample(NamedTuple):
    """How much of the whole is timed.

    Attributes:
      examples: of a shard; the whole set has 1,000 examples in 50 shards.
      orders: timed of a shard whose whole length is permuted, the canonical one among them.
      orders_shared: of a shard of which a part is permuted: all 51, because the shared part is computed once for them.
      peer_orders: that the peer scores a round; its time is proportional to their number.
      long_examples: of a shard that is longer than the context.
      long_orders: of it.
      long_peer_orders: of it, by the peer.
    """

    examples: int = 20
    orders: int = 15
    orders_shared: int = 51
    peer_orders: int = 5
    long_examples: int = 60
    long_orders: int = 3
    long_peer_orders: int = 1


def canaries(count: int, vocabulary: int, seed: int = 5) -> list[str]:
    """Examples of 15 to 40 random words, one token each."""
    lengths = np.random.default_rng(seed).integers(15, 41, count)
    return sample_texts(count, lengths, seed=seed + 1, vocabulary=vocabulary)


def run(
    *,
    rounds: int = 3,
    sample: Sample | None = None,
    spec: DecoderSpec = GPT2_SMALL,
    say: Callable[[dict[str, Any]], None] = lambda row: None,
) -> dict[str, Any]:
    """A row for each way of laying out the orders, and the fixed cost of a run.

    Args:
      rounds: interleaved.
      sample: what is timed; by default what `Sample` says.
      spec: of the model, with random weights.
      say: is told every row.

    Raises:
      Disagreement: a sum of log-probabilities differs from the peer's by more than 1e-4 of its size.
    """
    sample = sample or Sample()
    with tempfile.TemporaryDirectory() as folder:
        path = save_model(pathlib.Path(folder) / "model", 0, spec)
        model = Model(*checkpoint.load(path), "model")
        result = compare(model, TorchOrders(path, model.tokenizer), sample, rounds)
        for row in result["rows"]:
            say(row)
        result["seconds beside the passes"] = _fixed_seconds(model, sample)
    jax.clear_caches()
    gc.collect()
    return result


def compare(model: Model, peer: TorchOrders, sample: Sample, rounds: int) -> dict[str, Any]:
    """Agreement first, then every layout and the peer in interleaved rounds."""
    texts = canaries(sample.long_examples, model.lm.vocab_size)
    short = {share: _cut(texts[: sample.examples], share) for share in SHARES}
    long = _cut(texts, 1.0)
    plans: dict[str, tuple[Shards, int]] = {
        f"{share:g} permuted": (shards, sample.orders if share == 1 else sample.orders_shared)
        for share, shards in short.items()
    }
    plans["longer than the context"] = (long, sample.long_orders)
    first: dict[str, float] = {}
    found: dict[str, Any] = {}
    for name, (shards, orders) in plans.items():
        start = time.perf_counter()
        found[name] = _ours(model, shards, orders)
        first[name] = time.perf_counter() - start
    errors = _errors(model, peer, plans, found, sample)
    if not max(errors.values()) <= TOLERANCE:
        raise Disagreement(f"sums of log-probabilities disagree with torch's: {errors}")

    rates: list[float] = []
    peers = {
        "torch": (_texts(short[1.0], sample.peer_orders), sample.peer_orders),
        "torch, longer than the context": (_texts(long, sample.long_peer_orders), sample.long_peer_orders),
    }
    calls: dict[str, Callable[[], Any]] = {"matmul": lambda: rates.append(matmul_flops(rounds=2))}
    calls |= {name: lambda plan=plan: _ours(model, *plan) for name, plan in plans.items()}
    calls |= {name: lambda given=given: peer.log_probs(given[0]) for name, given in peers.items()}
    seconds = harness.interleaved(calls, rounds)
    theirs = {name: [s / count for s in seconds[name]] for name, (_, count) in peers.items()}
    rows = []
    for name, (shards, orders) in plans.items():
        ours = [s / orders for s in seconds[name]]
        of_peer = theirs["torch, longer than the context" if shards is long else "torch"]
        passed = found[name]
        num_tokens = int(passed.rows.num_tokens[0])
        spans = overlapping(num_tokens, peer.context)
        rows.append(
            {
                "run": name,
                "orders": orders,
                "tokens of the shard": num_tokens,
                "tdd sequences/s": 1 / statistics.median(ours),
                "torch sequences/s": 1 / statistics.median(of_peer),
                "ratio": harness.ratio(of_peer, ours),
                "tdd tokens a sequence": passed.calls.tokens / orders,
                "torch tokens a sequence": sum(stop - start for start, _, stop in spans),
                "largest error": errors[name],
                "first call s": first[name],
                "matmul GFLOP/s": statistics.median(rates) / 1e9,
                "seconds": {"tdd": ours, "torch": of_peer},
                "load average": os.getloadavg()[0],
            }
        )
    return {"sample": sample._asdict(), "rows": rows}


def _cut(texts: Sequence[str], share: float) -> Shards:
    """One shard: the orders of each shard of a set are computed alike."""
    return Shards.cut(load_examples([*texts], name="canaries"), num_shards=1, suffix=share, seed=0)


def _ours(model: Model, shards: Shards, orders: int) -> Any:
    where = find_devices()
    options = Options(how=Run(token_budget=_BUDGET if where.platform == "cpu" else _BUDGET_ELSEWHERE))
    return run_sets(model, where, [shards], [orders - 1], options, sequences=[None], store=None)[0]


def _texts(shards: Shards, orders: int) -> list[str]:
    return [shards.text(0, number, "\n\n") for number in range(orders)]


def _errors(
    model: Model, peer: TorchOrders, plans: dict[str, tuple[Shards, int]], found: dict[str, Any], sample: Sample
) -> dict[str, float]:
    """Largest relative difference from torch's sums, over the same tokens in the same windows."""
    errors = {}
    for name, (shards, orders) in plans.items():
        expected, passed = [], found[name]
        few = min(orders, 3 if len(shards.data) == sample.examples else 2)
        for number in range(few):
            tokens = model.tokenizer(shards.text(0, number, "\n\n"))["input_ids"]
            scored = passed.rows.orders([number])[0][0].first_target
            first, *rest = context_windows(len(tokens), peer.context, None, first=1)
            expected.append(peer.log_prob(tokens, [(first.start, scored, first.stop), *rest]))
        ours = passed.log_probs[0, :few]
        errors[name] = float(np.max(np.abs(ours / np.array(expected) - 1)))
    return errors


def _fixed_seconds(model: Model, sample: Sample) -> float:
    """What a run costs beside its passes: hashes of the model, looks at the order, tests."""
    texts = canaries(4 * max(2, sample.examples // 4), model.lm.vocab_size)
    given = (model.lm, model.params, model.tokenizer)
    run_exchange(given, texts, num_shards=4, num_shuffles=2, progress=False)
    shards = Shards.cut(load_examples(texts, name="data"), num_shards=4, suffix=1.0, seed=0)
    seconds = harness.interleaved(
        {
            "all": lambda: run_exchange(given, texts, num_shards=4, num_shuffles=2, progress=False),
            "passes": lambda: _ours(model, shards, 3),
        },
        2,
    )
    return statistics.median(a - b for a, b in zip(seconds["all"], seconds["passes"], strict=True))
