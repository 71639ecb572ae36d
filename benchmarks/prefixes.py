"""ReCaLL with a prefix that the model reads once, beside whole rows of prefix and text; GPT-2-small's size.

    python -m benchmarks.prefixes [--rounds 3] [--texts 60]

Both make the same table, which is checked before anything is timed, in interleaved rounds.
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import pathlib
import statistics
import tempfile
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.throughput.random_model import sample_texts, save_model, wikimia_lengths
from tdd.models import checkpoint
from tdd.scoring.score import score
from tdd.scoring.scores import ReCall

TOLERANCE = 1e-5
SHOTS = (1, 4, 12)


def compare(model: Any, texts: list[str], prefix: list[str], rounds: int) -> dict[str, Any]:
    """One prefix: agreement, then both ways and the loss alone."""
    whole = (dataclasses.replace(model[0], prefix=None, hidden_after=None), *model[1:])
    ways = {
        "shared prefix": lambda: score(model, texts, ReCall(prefix), progress=False),
        "whole rows": lambda: score(whole, texts, ReCall(prefix), progress=False),
        "loss alone": lambda: score(model, texts, "loss", progress=False),
    }
    tables = {name: way() for name, way in ways.items()}  # compiles
    error = np.abs(tables["shared prefix"]["recall"] / tables["whole rows"]["recall"] - 1).max()
    if not error <= TOLERANCE:
        raise SystemExit(f"the two ways disagree by {error:.2g}")
    seconds = harness.interleaved(ways, rounds)
    return {
        "shots": len(prefix),
        "prefix tokens": tables["whole rows"].provenance["prefix"]["tokens"],
        **{f"{name} s": statistics.median(times) for name, times in seconds.items()},
        "times as fast": harness.ratio(seconds["whole rows"], seconds["shared prefix"]),
        "largest relative difference": float(error),
        "load average": os.getloadavg()[0],
        "seconds": seconds,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--texts", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    texts = sample_texts(options.texts, wikimia_lengths(options.texts))
    shots = sample_texts(options.texts + max(SHOTS), np.full(options.texts + max(SHOTS), 32))[-max(SHOTS) :]
    with tempfile.TemporaryDirectory() as folder:
        model = checkpoint.load(save_model(pathlib.Path(folder) / "model", 0))
        rows = [compare(model, texts, [f"{shot} " for shot in shots[:count]], options.rounds) for count in SHOTS]
    path = harness.write("prefixes", {"texts": options.texts, "rounds": options.rounds, "rows": rows})
    print(harness.table(rows))
    print(f"written: {path.name}")


if __name__ == "__main__":
    main()
