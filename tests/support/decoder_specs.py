"""One small spec for each way in which a decoder can differ, by the family that it is like."""

import jax
import numpy as np

from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.rotary import RotaryPositions
from tdd.models.spec import Attention, DecoderSpec, Experts, LayerNorm, LearnedPositions, Mlp, RmsNorm

VOCABULARY = 90
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
    "qwen3_moe, a dense layer": _spec(
        RmsNorm(),
        RotaryPositions(POSITIONS, dim=4),
        {"qk_norm": "head", "windows": (None, 7), **_PLAIN},
        Experts(3, 2, 10, "silu"),
        layer_mlps=(_GATED, Experts(3, 2, 10, "silu")),
    ),
}


def perturbed_model(name, seed=0):
    """(lm, params) of a spec; no bias is 0 and no norm's factor 1, which would hide that it is left out."""
    spec = SPECS[name]
    leaves, tree = jax.tree.flatten(init_params(spec, jax.random.key(seed)))
    rng = np.random.default_rng(seed)
    moved = [leaf + 0.2 * rng.normal(size=leaf.shape).astype(np.float32) for leaf in leaves]
    return language_model(spec), jax.tree.unflatten(tree, moved)
