"""Largest difference of logits between the decoder and torch's class, from saved files.

Every parameter is moved by 0.08 times a normal number before saving: fresh weights have zero biases and hide mistakes.

    python benchmarks/parity.py
"""

from __future__ import annotations

import pathlib
import tempfile
from typing import Any

import harness
import jax
import jax.numpy as jnp
import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, models, pre_tokenizers

import tdd

CONFIGURATIONS = {
    "gpt2": {},
    "gpt2, inverse_layer_idx": {"scale_attn_by_inverse_layer_idx": True},
    "gpt2, no attention scale": {"scale_attn_weights": False},
}
VOCABULARY, LENGTH = 96, 40


def save_perturbed(folder: pathlib.Path, **changes: Any) -> torch.nn.Module:
    """A small random torch model with a word tokenizer, saved in Hugging Face's format."""
    torch.manual_seed(0)
    config = transformers.GPT2Config(
        vocab_size=VOCABULARY, n_positions=LENGTH, n_embd=48, n_layer=3, n_head=4, bos_token_id=None, eos_token_id=None,
        **changes,
    )  # fmt: skip
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    words = Tokenizer(models.WordLevel({f"w{i}": i for i in range(VOCABULARY)}, unk_token="w0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)
    return model


def main() -> None:
    tokens = np.random.default_rng(0).integers(0, VOCABULARY, (3, LENGTH)).astype(np.int32)
    rows = []
    for name, changes in CONFIGURATIONS.items():
        with tempfile.TemporaryDirectory() as folder:
            model = save_perturbed(pathlib.Path(folder), **changes)
            lm, params, _ = tdd.load(folder)
        with jax.default_matmul_precision("highest"):
            ours = np.asarray(lm.logits(params, jnp.asarray(tokens)))
        with torch.no_grad():
            theirs = model(torch.tensor(tokens, dtype=torch.long)).logits.numpy()
        rows.append(
            {
                "configuration": name,
                "max_abs_logit": float(np.abs(theirs).max()),
                "max_abs_difference": float(np.abs(ours - theirs).max()),
            }
        )
    harness.write("parity", {"rows": rows})
    print(harness.table(rows))


if __name__ == "__main__":
    main()
