"""Every family's token statistics beside the usual torch loop, and their share of the machine's matrix-product rate.

python -m benchmarks.families [--families gpt2 llama] [--texts 16] [--rounds 5]
"""

from __future__ import annotations

import argparse

from benchmarks import harness
from benchmarks.throughput import families
from benchmarks.throughput.random_model import SPECS


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--families", nargs="+", default=list(SPECS), choices=list(SPECS))
    parser.add_argument("--texts", type=int, default=16)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    rows: list[dict] = []

    def say(row: dict) -> None:
        rows.append(row)
        print(harness.table([row]), flush=True)
        harness.write("families", {"tolerance": families.TOLERANCE, "rounds": options.rounds, "rows": rows})

    families.run(options.families, options.texts, options.rounds, say)
    print(harness.table(rows))


if __name__ == "__main__":
    main()
