"""The architecture description: hashable, and impossible values refused."""

import dataclasses

import pytest

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
    RotaryPositions,
)
from tdd.validate import InputError

SPEC = DecoderSpec(10, 8, 2, LayerNorm(), LearnedPositions(6), Attention(2, 4, (0.5, 0.5)), Mlp(16, "relu"))

TURNED = dataclasses.replace(SPEC, positions=RotaryPositions(6, 4))


def test_equal_specs_are_one_key():
    same = DecoderSpec(10, 8, 2, LayerNorm(1e-5), LearnedPositions(6), Attention(2, 4, (0.5, 0.5)), Mlp(16, "relu"))
    assert same == SPEC
    assert hash(same) == hash(SPEC)
    assert dataclasses.replace(SPEC, tied_head=False) != SPEC
    assert SPEC.max_length == 6


def test_a_norm_without_a_scale_has_no_bias():
    assert LayerNorm(affine=False) == LayerNorm(affine=False, bias=False)
    assert LayerNorm() != LayerNorm(bias=False)


def test_layers_with_the_same_positions_are_no_exception():
    assert dataclasses.replace(TURNED, layer_positions=(TURNED.positions,) * 2) == TURNED
    assert dataclasses.replace(TURNED, layer_positions=(TURNED.positions, None)) != TURNED


def test_layers_of_several_kinds():
    """Each run of equal layers has a stack of its own; one kind alone is no exception."""
    relu, tanh = SPEC.mlp, Mlp(12, "tanh")
    four = dataclasses.replace(SPEC, num_layers=4, attention=Attention(2, 4, (0.5,) * 4))
    assert dataclasses.replace(four, layer_mlps=(relu,) * 4) == four
    assert four.runs == (("layers", range(4), relu),)
    mixed = dataclasses.replace(four, layer_mlps=(tanh, relu, relu, tanh))
    assert mixed.mlps == (tanh, relu, relu, tanh)
    ends = ("layers", range(1), tanh), ("layers_from_3", range(3, 4), tanh)
    assert mixed.runs == (ends[0], ("layers_from_1", range(1, 3), relu), ends[1])


@pytest.mark.parametrize(
    ("num_heads", "exponents"),
    [
        (1, [8]),
        (2, [4, 8]),
        (3, [4, 8, 2]),
        (8, range(1, 9)),
        (12, [*range(1, 9), 0.5, 1.5, 2.5, 3.5]),
    ],
)
def test_slopes(num_heads, exponents):
    """Powers of 1/2 as the paper has them; between powers of two every other one of twice as many heads."""
    assert AlibiPositions(6).slopes(num_heads) == tuple(2.0**-exponent for exponent in exponents)


def test_frozen():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SPEC.width = 9


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: dataclasses.replace(SPEC, width=0), "width must be a positive number, got 0"),
        (lambda: dataclasses.replace(SPEC, num_layers=3), r"scales must hold one value a layer \(3\), got 2"),
        (
            lambda: dataclasses.replace(TURNED, layer_positions=(TURNED.positions,)),
            r"layer_positions must hold one value a layer \(2\), got 1",
        ),
        (
            lambda: dataclasses.replace(TURNED, layer_positions=(None, RotaryPositions(6, 2))),
            "layer_positions must turn the same pairs as positions, as far",
        ),
        (
            lambda: dataclasses.replace(TURNED, layer_positions=(None, RotaryPositions(6, 4, interleaved=True))),
            "layer_positions must turn the same pairs as positions, as far",
        ),
        (
            lambda: dataclasses.replace(TURNED, layer_positions=(None, RotaryPositions(5, 4))),
            "layer_positions must turn the same pairs as positions, as far",
        ),
        (
            lambda: dataclasses.replace(SPEC, layer_positions=(None, RotaryPositions(6, 4))),
            "layer_positions must turn the same pairs as positions, as far",
        ),
        (
            lambda: dataclasses.replace(SPEC, layer_mlps=(SPEC.mlp,)),
            r"layer_mlps must hold one value a layer \(2\), got 1",
        ),
        (
            lambda: dataclasses.replace(SPEC, layer_mlps=(Mlp(12, "tanh"),) * 2),
            r"layer_mlps must contain mlp, Mlp\(width=16, .*; got Mlp\(width=12, [^;]*\)$",
        ),
        (lambda: dataclasses.replace(SPEC, residual_scale=0.0), "residual_scale must be a positive number, got 0.0"),
        (lambda: dataclasses.replace(SPEC, logit_scale=-1.0), "logit_scale must be a positive number, got -1.0"),
        (
            lambda: dataclasses.replace(SPEC, attention=Attention(2, 4, (0.5, 0.5), latent=Latent(6, 5))),
            "latent needs rotary positions on a part of each head, got LearnedPositions",
        ),
        (
            lambda: Attention(2, 4, (0.5,), num_kv_heads=1, latent=Latent(6, 5)),
            "latent needs num_kv_heads equal to num_heads, and neither qk_norm nor qkv_clip",
        ),
        (lambda: Latent(6, 0), "value_dim must be a positive number, got 0"),
        (lambda: dataclasses.replace(SPEC, head_bias=True), "head_bias=True needs tied_head=False"),
        (lambda: LayerNorm(-1.0), "eps must be a positive number, got -1.0"),
        (lambda: LearnedPositions("6"), "count must be a positive number, got '6'"),
        (lambda: AlibiPositions(0), "max_length must be a positive number, got 0"),
        (lambda: Attention(0, 4, ()), "num_heads must be a positive number, got 0"),
        (lambda: Mlp(16, "gelu_new"), "activation='gelu_new' is not supported; supported: gelu, gelu_tanh"),
        (lambda: Experts(4, 5, 16, "silu"), "top_k=5 exceeds num_experts=4; use at most that"),
        (lambda: Experts(6, 2, 16, "silu", groups=4), "num_experts=6 must be a multiple of groups=4"),
        (
            lambda: Experts(6, 3, 16, "silu", groups=3, kept_groups=1),
            "top_k=3 exceeds the 2 experts of kept_groups=1",
        ),
        (lambda: ClampedGate(1.7, 0.0), "limit must be a positive number, got 0.0"),
        (lambda: ClampedGate(-1.7, 7.0), "alpha must be a positive number, got -1.7"),
        (lambda: Experts(0, 1, 16, "silu"), "num_experts must be a positive number, got 0"),
        (lambda: Experts(4, 2, 16, "swish"), "activation='swish' is not supported"),
        (lambda: Mlp(True, "relu"), "width must be a positive number, got True"),
        (
            lambda: DecoderSpec.gpt2(vocab_size=10, width=10, num_layers=1, num_heads=4, max_length=6),
            "width=10 must be a multiple of num_heads=4",
        ),
    ],
)
def test_impossible_values(build, message):
    with pytest.raises(InputError, match=message):
        build()
