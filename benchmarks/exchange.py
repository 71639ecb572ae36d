"""The test of canonical order: sequences a second beside the reference way, and model calls until a case is clear.

python -m benchmarks.exchange [--rounds 3] [--part all|throughput|calls] [--quick]

Only a whole run that is not quick writes results/exchange.json.
"""

from __future__ import annotations

import argparse
import logging
import time
from typing import Any

from benchmarks import harness
from benchmarks.throughput import exchange, exchange_calls
from tdd.models.spec import DecoderSpec

NOTE = (
    "Throughput: GPT-2-small's size, random weights; both sides in one process, in interleaved rounds. Calls: a small "
    "model trained on a set planted 50 times. Power: shards of sets planted a few times, drawn into small designs; the "
    "shards come from one model, so the figures compare ways of testing and are not the power for other models. Sizes "
    "were settled on the third try: with 400 examples and a context shorter than a shard p-values were larger, and the "
    "order of the ways was the same."
)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--part", default="all", choices=("all", "throughput", "calls"))
    parser.add_argument("--quick", action="store_true", help="tiny models and samples: does it work at all?")
    options = parser.parse_args()
    logging.getLogger("tdd.findings").setLevel(logging.ERROR)  # what a single run says of its data is beside the point
    result: dict[str, Any] = {"note": NOTE, "rounds": options.rounds}
    began = time.perf_counter()

    def keep() -> None:
        result["seconds"] = time.perf_counter() - began
        if options.part == "all" and not options.quick:
            harness.write("exchange", result)

    if options.part in ("all", "throughput"):
        given: dict[str, Any] = {}
        if options.quick:
            given["spec"] = DecoderSpec.gpt2(vocab_size=500, width=32, num_layers=2, num_heads=2, max_length=256)
            given["sample"] = exchange.Sample(8, 4, 6, 2, 16, 2, 1)
        result["throughput"] = exchange.run(rounds=options.rounds, say=show, **given)
        keep()
    if options.part in ("all", "calls"):
        design = exchange_calls.Design.quick() if options.quick else exchange_calls.Design()
        model, result["training"] = exchange_calls.planted_model(design)
        print(result["training"], flush=True)
        result["calls"] = exchange_calls.calls_to_reject(model, design, show)
        keep()
        result["power"] = exchange_calls.power_by_share(model, design, show)
        result["conclusions"] = exchange_calls.conclusions(result["calls"], result["power"])
        keep()
        print("\n".join(result["conclusions"]))
    print(f"{result['seconds']:.0f} s")


def show(row: dict[str, Any]) -> None:
    print(harness.table([row]), flush=True)


if __name__ == "__main__":
    main()
