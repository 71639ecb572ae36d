"""All eight scores of `tdd.score` against the usual torch loop, on a GPT-2-small-sized model with random weights.

The measurement of `python -m benchmarks throughput scoring`, with as many texts as its table.

    python -m benchmarks.scoring [--rounds 3] [--texts 200]
"""

from __future__ import annotations

import argparse
import json

from benchmarks import harness
from benchmarks.throughput import score_texts


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--texts", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--gate", type=int, default=20, help="texts compared with the loop before timing")
    options = parser.parse_args()
    result = score_texts.run(
        options.texts, options.rounds, options.gate, say=lambda row: print(json.dumps(row, indent=2), flush=True)
    )
    path = harness.write("scoring", result)
    print(harness.table(result["runs"]))
    print(f"written: {path.name}")


if __name__ == "__main__":
    main()
