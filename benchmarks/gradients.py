"""Per-example gradient norms beside `vmap` of `grad`, torch's backward, Opacus and jax_privacy, at GPT-2-small's size.

python -m benchmarks.gradients [--rounds 3] [--texts 64] [--batch 8] [--length 256]
"""

from __future__ import annotations

import argparse

from benchmarks import harness
from benchmarks.throughput import gradients


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--texts", type=int, default=64)
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--length", type=int, default=256)
    options = parser.parse_args()
    rows = gradients.run(
        rounds=options.rounds,
        num_texts=options.texts,
        batch=options.batch,
        length=options.length,
        say=lambda row: print(harness.table([_shown(row)]), flush=True),
    )
    harness.write("gradients", {"tolerance": gradients.TOLERANCE, "rounds": options.rounds, "rows": rows})
    print(harness.table([_shown(row) for row in rows]))


def _shown(row: dict) -> dict:
    columns = ("run", "way", "texts/s", "time / tdd", "temporary MiB", "memory / tdd", "difference", "absent")
    return {name: row.get(name) for name in columns}


if __name__ == "__main__":
    main()
