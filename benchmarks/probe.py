"""What a probe costs in the demonstration's training loop, and beside scoring its texts once.

python -m benchmarks.probe [--rounds 5] [--segment 25] [--quick]

Rounds interleave, in one process, a segment of training with a probe that looks once in it, one without, a look with
gradient norms, an evaluation, and `tdd.score` of the same texts. Then compilations are counted over 1,000 steps.
--quick writes nothing.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Iterator
from typing import Any

import jax

import tdd
from benchmarks import harness
from benchmarks.throughput.memory import program_bytes
from tdd.demo import retrain
from tdd.demo.data import demo_files
from tdd.lab.step import Stepper
from tdd.lab.tokens import Batch, Batches, encode
from tdd.models.decoder import init_params

CADENCES = (50, 500)
WATCHED = {
    "100 + 200 texts": (100, 200, False),
    "100 + 200 texts, with gradient norms": (100, 200, True),
    "350 + 500 texts": (350, 500, False),
}
"""Suspects, references, gradient norms of the suspects. The last watches every candidate of the demonstration."""

COUNTED, COUNTED_ROWS = 1_000, 2
"""Steps over which compilations are counted, and their batch: small, so that they take a minute."""


class Loop:
    """The demonstration's training loop: its texts, model, optimizer and batches, from random parameters."""

    def __init__(self, lm: Any, tokenizer: Any, planted: Any, rows: int) -> None:
        config = retrain.CONFIG
        tokens = encode(
            "texts", tokenizer, planted.training.texts, max_length=config.max_length, vocab_size=lm.vocab_size
        )
        self.batches = Batches(
            tokens, batch_size=rows, num_buckets=config.num_buckets, max_length=config.max_length, seed=config.seed
        )
        self.stepper = Stepper(lm, config, None, init_params(lm.spec, jax.random.key(retrain.PARAMETER_SEED)))
        self._stream = self._endless()
        shapes = {batch.tokens.shape: batch for batch in self.batches.epoch(0)}
        for batch in shapes.values():  # what the loop itself compiles is no cost of a probe
            self.stepper.step([batch], 0.0, 0)

    @property
    def params(self) -> Any:
        return self.stepper.params

    def train(self, steps: int, probe: tdd.Probe | None) -> None:
        """So many steps, the probe called after each of them where there is one; finished on return."""
        first = probe.history[-1].step if probe is not None else 0
        for number in range(1, steps + 1):
            self.stepper.step([next(self._stream)], retrain.CONFIG.learning_rate, number)
            if probe is not None:
                probe(first + number, self.params)

    def _endless(self) -> Iterator[Batch]:
        epoch = 0
        while True:
            yield from self.batches.epoch(epoch)
            epoch += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--segment", type=int, default=25)
    parser.add_argument("--quick", action="store_true", help="one short round: does it work at all?")
    options = parser.parse_args()
    rounds, segment = (1, 5) if options.quick else (options.rounds, options.segment)
    began = time.perf_counter()
    lm, _, tokenizer = tdd.load(str(demo_files().checkpoint))
    planted = retrain.planted_corpus()
    loop = Loop(lm, tokenizer, planted, retrain.CONFIG.batch_size)
    suspects, references = list(planted.candidates.texts), list(planted.calibration.texts)
    probes = {
        name: tdd.Probe(lm, suspects[:m], references[:n], tokenizer=tokenizer, every=segment, grad_norms=norms)
        for name, (m, n, norms) in WATCHED.items()
    }
    largest = [*WATCHED][-1]
    plain = probes[largest]

    def score() -> Any:
        given = {"params": loop.params, "tokenizer": tokenizer, "progress": False}
        return tdd.score(lm, [*suspects, *references], "loss", **given)

    score()
    for probe in probes.values():
        probe(0, loop.params)
    times: dict[str, list[float]] = {name: [] for name in ("with", "without", "evaluate", "score", *probes)}
    for number in range(1, rounds + 1):
        for kind in ("with", "without") if number % 2 else ("without", "with"):
            times[kind].append(seconds(lambda kind=kind: loop.train(segment, plain if kind == "with" else None)))
        times[largest].append(plain.history[-1].seconds)
        for name in [*probes][:-1]:
            times[name].append(seconds(lambda at=number * segment, one=probes[name]: one(at, loop.params)))
        times["evaluate"].append(seconds(lambda: plain.evaluate(loop.params)))
        times["score"].append(seconds(score))
        print({name: f"{values[-1]:.3g} s" for name, values in times.items()}, flush=True)
    used = program_bytes(jax.jit(plain.evaluate).lower(loop.params).compile())
    rows = [row(name, times, segment) for name in probes]
    result = {
        "command": "python -m benchmarks.probe",
        "rounds": rounds,
        "segment": segment,
        "batch": retrain.CONFIG.batch_size,
        "with / without": harness.ratio(times["with"], times["without"]),
        "evaluate / score": harness.ratio(times["evaluate"], times["score"]),
        "not due, share of a step": not_due(plain, loop.params) * segment / statistics.median(times["without"]),
        "temporaries": used.get("temporary_bytes"),
        "parameters": sum(leaf.nbytes for leaf in jax.tree.leaves(loop.params)),
        "rows": rows,
        "counted": compilations(plain, Loop(lm, tokenizer, planted, COUNTED_ROWS), 20 if options.quick else COUNTED),
        "seconds": time.perf_counter() - began,
    }
    print(harness.table(rows))
    print({name: value for name, value in result.items() if name != "rows"})
    if not options.quick:
        harness.write("probe", result)


def row(name: str, times: dict[str, list[float]], segment: int) -> dict[str, Any]:
    """A look in steps of the same round's training, and its share of training at each cadence."""
    in_steps = harness.ratio(times[name], times["without"]) * segment
    return {"probe": name, "look, in steps": in_steps} | {
        f"share, every {every}": in_steps / (in_steps + every) for every in CADENCES
    }


def not_due(probe: tdd.Probe, params: Any, calls: int = 2_000) -> float:
    """Seconds of a call at a step that is not looked at."""
    step = probe.history[-1].step + 1
    return seconds(lambda: [probe(step, params) for _ in range(calls)]) / calls


def compilations(probe: tdd.Probe, loop: Loop, steps: int) -> dict[str, int]:
    """Programs compiled by so many steps of training and the looks of a probe that has looked before."""
    counter, before = harness.TraceCounter(), len(probe.history)
    loop.train(steps, probe)
    return {"steps": steps, "looks": len(probe.history) - before, "compilations": counter.stop()}


def seconds(call: Any) -> float:
    """Seconds of one call, its results ready."""
    start = time.perf_counter()
    jax.block_until_ready(call())
    return time.perf_counter() - start


if __name__ == "__main__":
    main()
