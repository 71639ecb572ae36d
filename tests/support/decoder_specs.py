"""One small spec for each way in which a decoder can differ, by the family that it is like."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import rounding

from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.rotary import RotaryPositions
from tdd.models.spec import (
    AlibiPositions,
    Attention,
    ClampedGate,
    DecoderSpec,
    Experts,
    Latent,
    LayerNorm,
    LearnedPositions,
    Mlp,
    RmsNorm,
)

VOCABULARY = 90
REQUIRED = 1e-5  # the difference of logits from torch's that is allowed at most
POSITIONS = 48


def _spec(norm, positions, attention, mlp, **rest):
    return DecoderSpec(
        vocab_size=VOCABULARY,
        width=16,
        num_layers=2,
        norm=norm,
        positions=positions,
        attention=Attention(4, 4, **{"scales": (0.5, 0.4), **attention}),
        mlp=mlp,
        **rest,
    )


_LEARNED = LearnedPositions(POSITIONS)
_PLAIN = {"qkv_bias": False, "out_bias": False}
_GATED = Mlp(24, "silu", gated=True, bias=False)

SPECS = {
    "gpt2": _spec(LayerNorm(), _LEARNED, {}, Mlp(48, "gelu_tanh")),
    "gpt_neo": _spec(
        LayerNorm(), _LEARNED, {"scales": (1.0, 1.0), "windows": (None, 5), "qkv_bias": False}, Mlp(48, "gelu_tanh")
    ),
    "gpt_neox": _spec(
        LayerNorm(), RotaryPositions(POSITIONS, dim=2), {}, Mlp(48, "gelu"), tied_head=False, layout="parallel"
    ),
    "gptj": _spec(
        LayerNorm(),
        RotaryPositions(POSITIONS, dim=2, interleaved=True),
        _PLAIN,
        Mlp(48, "gelu_tanh"),
        tied_head=False,
        layout="shared",
        head_bias=True,
    ),
    "phi": _spec(
        LayerNorm(),
        RotaryPositions(POSITIONS, dim=2),
        {"num_kv_heads": 2, "qk_norm": "head"},
        Mlp(48, "gelu_tanh"),
        tied_head=False,
        layout="shared",
        head_bias=True,
    ),
    "mpt": _spec(
        LayerNorm(bias=False), AlibiPositions(POSITIONS), {"qkv_clip": 0.5, **_PLAIN}, Mlp(48, "gelu", bias=False)
    ),
    "bloom": _spec(LayerNorm(), AlibiPositions(POSITIONS), {}, Mlp(48, "gelu_tanh"), embedding_norm=True),
    "slopes with groups, windows and sinks": _spec(  # no published family
        RmsNorm(),
        AlibiPositions(POSITIONS),
        {"num_kv_heads": 2, "windows": (6, None), "soft_cap": 2.0, "sinks": True, **_PLAIN},
        _GATED,
    ),
    "opt": _spec(
        LayerNorm(),
        LearnedPositions(POSITIONS, offset=2),
        {},
        Mlp(48, "relu"),
        layout="post",
        final_norm=False,
        embedding_width=8,
    ),
    "llama": _spec(
        RmsNorm(1e-5), RotaryPositions(POSITIONS, dim=4), {"num_kv_heads": 2, **_PLAIN}, _GATED, tied_head=False
    ),
    "qwen3": _spec(
        RmsNorm(), RotaryPositions(POSITIONS, dim=4), {"qk_norm": "head", "windows": (7, 7), **_PLAIN}, _GATED
    ),
    "gemma2": _spec(
        RmsNorm(plus_one=True),
        RotaryPositions(POSITIONS, dim=4),
        {"num_kv_heads": 2, "windows": (6, None), "soft_cap": 2.0, **_PLAIN},
        Mlp(24, "gelu_tanh", gated=True, bias=False),
        layout="sandwich",
        embedding_scale=4.0,
        soft_cap=3.0,
    ),
    "stablelm": _spec(
        LayerNorm(),
        RotaryPositions(POSITIONS, dim=2),
        {"num_kv_heads": 2, "qk_norm": "each", **_PLAIN},
        _GATED,
        layout="shared",
        tied_head=False,
    ),
    "cohere2": _spec(
        LayerNorm(bias=False),
        RotaryPositions(POSITIONS, dim=4, interleaved=True),
        {"num_kv_heads": 2, "windows": (6, None), **_PLAIN},
        _GATED,
        layout="shared",
        layer_positions=(RotaryPositions(POSITIONS, dim=4, interleaved=True), None),
        logit_scale=2.5,
    ),
    "glm4": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=2, interleaved=True),
        {"num_kv_heads": 2, "out_bias": False},
        _GATED,
        layout="sandwich",
    ),
    "granite": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=4),
        {"num_kv_heads": 2, **_PLAIN},
        _GATED,
        embedding_scale=3.0,
        residual_scale=0.6,
        logit_scale=2.5,
    ),
    "olmo3": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=4),
        {"num_kv_heads": 2, "qk_norm": "full", "windows": (None, 6), **_PLAIN},
        _GATED,
        layout="branch",
        layer_positions=(RotaryPositions(POSITIONS, dim=4), RotaryPositions(POSITIONS, dim=4, theta=50.0)),
        tied_head=False,
    ),
    "olmo": _spec(LayerNorm(affine=False), RotaryPositions(POSITIONS, dim=4), {"qkv_clip": 0.3, **_PLAIN}, _GATED),
    "smollm3": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=4),
        _PLAIN,
        _GATED,
        layer_positions=(RotaryPositions(POSITIONS, dim=4), None),
    ),
    "mixtral": _spec(
        RmsNorm(1e-5), RotaryPositions(POSITIONS, dim=4), {"num_kv_heads": 2, **_PLAIN}, Experts(3, 2, 24, "silu")
    ),
    "qwen3_moe": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=4),
        {"qk_norm": "head", **_PLAIN},
        Experts(7, 3, 10, "gelu", renormalised=False),
        tied_head=False,
    ),
    "olmoe": _spec(
        RmsNorm(1e-5),
        RotaryPositions(POSITIONS, dim=4),
        {"num_kv_heads": 2, "qk_norm": "full", "qkv_clip": 0.5, **_PLAIN},
        Experts(5, 2, 10, "silu", renormalised=False),
        tied_head=False,
    ),
    "deepseek": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=2, interleaved=True),
        {"latent": Latent(rank=6, value_dim=5, query_rank=7), **_PLAIN},
        Experts(6, 2, 10, "silu", renormalised=False, groups=3, kept_groups=2, scale=1.5, shared_width=9),
        tied_head=False,
        layer_mlps=(_GATED, Experts(6, 2, 10, "silu", False, groups=3, kept_groups=2, scale=1.5, shared_width=9)),
    ),
    "deepseek, corrected": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=2),
        {"latent": Latent(rank=6, value_dim=5), **_PLAIN},
        Experts(6, 2, 10, "silu", groups=3, kept_groups=2, scale=1.5, shared_width=9, corrected=True),
    ),
    "gpt_oss": _spec(
        RmsNorm(1e-5),
        RotaryPositions(POSITIONS, dim=4),
        {"num_kv_heads": 2, "windows": (6, None), "sinks": True},
        Experts(5, 2, 10, "silu", bias=True, clamped=ClampedGate(1.7, 0.4)),
        tied_head=False,
    ),
    "deepseek with sinks and biases": _spec(  # no published family
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=2),
        {"latent": Latent(rank=6, value_dim=5), "windows": (6, None), "sinks": True},
        Experts(
            *(6, 2, 10, "silu"),
            groups=3,
            kept_groups=2,
            shared_width=9,
            corrected=True,
            bias=True,
            clamped=ClampedGate(1.7, 0.4),
        ),
        tied_head=False,
        head_bias=True,
        logit_scale=2.5,
    ),
    "qwen3_moe, a dense layer": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=4),
        {"qk_norm": "head", "windows": (None, 7), **_PLAIN},
        Experts(3, 2, 10, "silu"),
        layer_mlps=(_GATED, Experts(3, 2, 10, "silu")),
    ),
}


@functools.cache
def perturbed_model(name, seed=0):
    """(lm, params) of a spec."""
    return language_model(SPECS[name]), perturbed_params(SPECS[name], seed)


def perturbed_params(spec, seed=0, *, spread=0.2, dtype=jnp.float32):
    """Random parameters; no bias is 0 and no norm's factor 1, which would hide that it is left out.

    NumPy draws them: a program that does would be compiled for every spec.
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(jax.eval_shape(lambda: init_params(spec, jax.random.key(0))))
    rng = np.random.default_rng(seed)
    factor = 1 - getattr(spec.norm, "plus_one", False)
    drawn = [factor * (path[-1].key == "scale") + spread * rng.normal(size=leaf.shape) for path, leaf in leaves]
    return jax.tree.unflatten(tree, [jnp.asarray(leaf, dtype) for leaf in drawn])


def roundings(spec, length):
    """The longest chain of roundings up to a logit: in each layer its longest sum, then that of the readout."""
    mlps = spec.layer_mlps or (spec.mlp,)
    sums = spec.width, length, spec.attention.num_heads * spec.attention.head_dim, *(mlp.width for mlp in mlps)
    return spec.num_layers * max(sums) + spec.width


def assert_logits(found, exact, chain):
    """Logits that a chain of float32 roundings may have moved, by what the largest of them allows and REQUIRED."""
    scale = min(np.abs(exact).max(), REQUIRED / rounding.gamma(chain))
    rounding.assert_close(found, exact, roundings=chain, scale=scale)
