"""The models of the main programs, as configurations that this project and transformers read alike."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from tdd.kernels.platforms import one_device
from tdd.models.families.gpt import GPT2
from tdd.models.families.llama import LLAMA
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel

__all__ = ["CONFIGS", "SMALL", "gradient_norms", "model", "spec", "token_statistics"]

CONFIGS: dict[str, dict[str, Any]] = {
    "gpt2": {
        "n_embd": 768,
        "n_head": 12,
        "n_layer": 12,
        "n_positions": 1024,
        "vocab_size": 50257,
        "n_inner": None,
        "layer_norm_epsilon": 1e-5,
        "scale_attn_weights": True,
        "scale_attn_by_inverse_layer_idx": False,
        "activation_function": "gelu_new",
        "tie_word_embeddings": True,
    },
    "llama": {
        "vocab_size": 32000,
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 32,
        "max_position_embeddings": 4096,
        "rms_norm_eps": 1e-5,
        "hidden_act": "silu",
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "rope_theta": 10000.0,
        "rope_scaling": None,
        "head_dim": 128,
        "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
    },
}
"""By transformers' `model_type`: GPT-2-small, and LLaMA's 7B shape."""

SMALL: dict[str, dict[str, Any]] = {
    "gpt2": {**CONFIGS["gpt2"], "n_embd": 256, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 211},
    "llama": {
        **CONFIGS["llama"],
        "vocab_size": 211,
        "hidden_size": 256,
        "intermediate_size": 384,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 128,
    },
}
"""The same architectures at a size that takes no time."""

_THREE = ("log_prob", "mu", "sigma")


def spec(name: str, configs: dict[str, dict[str, Any]] = CONFIGS) -> DecoderSpec:
    """The architecture of a configuration."""
    return {"gpt2": GPT2, "llama": LLAMA}[name].to_spec(configs[name])


@functools.cache
def model(name: str) -> LanguageModel:
    """The model of `CONFIGS`."""
    return language_model(spec(name))


def token_statistics(lm: LanguageModel) -> Callable[..., dict[str, jax.Array]]:
    """(params, tokens [B, T], mask [B, T]) -> log p of the next token, and mean and standard deviation of log p over
    the vocabulary, at every position [B * T]; after the last token of a text, of its first."""
    from tdd.scoring.token_stats import trunk_rows, wanted_statistics

    @one_device()
    def statistics(params: Any, tokens: jax.Array, mask: jax.Array) -> dict[str, jax.Array]:
        hidden = trunk_rows(lm, params, tokens, jnp.arange(tokens.size))
        targets, scored = (jnp.roll(x, -1, axis=1).reshape(-1) for x in (tokens, mask))
        return wanted_statistics(lm, params, hidden, targets, scored, None, _THREE)

    return statistics


def gradient_norms(lm: LanguageModel) -> Callable[..., Any]:
    """(params, tokens [B, T], mask [B, T]) -> `GradNorms` of [B]."""
    from tdd.scoring.gradients import grad_norms

    return one_device()(functools.partial(grad_norms, lm))
