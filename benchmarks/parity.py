"""Largest difference of logits between the decoder and torch's class, from saved files, for every family.

Every parameter is moved by 0.08 times a normal number before saving: fresh weights have zero biases and hide mistakes.
The configurations are those of the tests (tests/support/family_configs.py): every window is shorter than the texts.

    python -m benchmarks.parity
"""

from __future__ import annotations

import json
import pathlib
import sys
import tempfile

import jax
import numpy as np
import transformers

import tdd
from benchmarks import harness

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "support"))
from family_configs import CONFIGURATIONS, LENGTH, VOCABULARY  # pyright: ignore[reportMissingImports]
from gpt2_files import word_tokenizer  # pyright: ignore[reportMissingImports]
from torch_models import perturbed, torch_logits  # pyright: ignore[reportMissingImports]

SEEDS = range(3)


def difference(name: str, seed: int) -> tuple[float, float]:
    """(largest difference, largest logit) of one perturbed model."""
    model = perturbed(CONFIGURATIONS[name], seed=seed)
    tokens = np.random.default_rng(seed).integers(0, VOCABULARY, (3, LENGTH)).astype(np.int32)
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(CONFIGURATIONS[name]))
        word_tokenizer(VOCABULARY - 8).save_pretrained(folder)
        lm, params, _ = tdd.load(folder)
    with jax.default_matmul_precision("highest"):
        ours = np.asarray(jax.jit(lm.logits)(params, tokens))
    theirs = torch_logits(model, tokens)
    return float(np.abs(ours - theirs).max()), float(np.abs(theirs).max())


def main() -> None:
    transformers.logging.set_verbosity_error()
    rows = []
    for name in CONFIGURATIONS:
        found = [difference(name, seed) for seed in SEEDS]
        rows.append(
            {
                "configuration": name,
                "max_abs_logit": max(largest for _, largest in found),
                "max_abs_difference": max(apart for apart, _ in found),
            }
        )
    harness.write("parity", {"models": len(SEEDS), "tokens": [3, LENGTH], "rows": rows})
    print(harness.table(rows))


if __name__ == "__main__":
    main()
