"""The schedule, the decay mask and one step of AdamW by hand."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.lab.step import adamw_direction, decay_mask, learning_rates
from tdd.models.decoder import init_params
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp

SPEC = DecoderSpec(
    vocab_size=11,
    width=4,
    num_layers=2,
    norm=LayerNorm(),
    positions=LearnedPositions(6),
    attention=Attention(2, 2, (0.7, 0.7)),
    mlp=Mlp(8, "gelu_tanh"),
)


def test_schedule_by_hand():
    rates = learning_rates(6, peak=2.0, warmup=1 / 3, final=0.5)
    half_cosine = [1 + np.cos(np.pi * q) for q in (0.25, 0.5, 0.75, 1.0)]
    expected = [1.0, 2.0] + [2 * (0.5 + 0.25 * value) for value in half_cosine]
    np.testing.assert_allclose(rates, expected, rtol=1e-6)


@pytest.mark.parametrize("total", [1, 2, 3, 50])
@pytest.mark.parametrize("warmup", [0.0, 0.1, 1.0])
def test_schedule_rises_then_falls_and_is_never_zero(total, warmup):
    rates = learning_rates(total, peak=1.0, warmup=warmup, final=0.1)
    rise = int(np.ceil(warmup * total))
    assert rates.shape == (total,)
    assert rates.dtype == np.float32
    assert np.all(rates > 0)
    assert np.all(rates <= 1)
    assert np.all(np.diff(rates[:rise]) > 0)
    assert np.all(np.diff(rates[max(0, rise - 1) :]) <= 0)
    if rise < total:
        assert rates[-1] == pytest.approx(0.1)


def test_decay_leaves_biases_and_norms_alone():
    mask = decay_mask(jax.eval_shape(lambda key: init_params(SPEC, key), jax.random.key(0)))
    decayed = {
        "/".join(str(entry.key) for entry in path)
        for path, kept in jax.tree_util.tree_flatten_with_path(mask)[0]
        if kept
    }
    assert decayed == {
        "embedding/tokens",
        "embedding/positions",
        "layers/qkv/kernel",
        "layers/attention_out/kernel",
        "layers/mlp_in/kernel",
        "layers/mlp_out/kernel",
    }


def test_two_steps_by_hand():
    optimizer = adamw_direction(beta1=0.9, beta2=0.99, eps=1e-8, weight_decay=0.1, clip_norm=1.0)
    params = {"kernel": jnp.asarray([2.0, -1.0]), "bias": jnp.asarray([3.0])}
    state, update = optimizer.init(params), jax.jit(optimizer.update)
    first = np.zeros(3)
    second = np.zeros(3)
    for step, gradient in enumerate([np.array([3.0, 0.0, 4.0]), np.array([0.1, 0.2, -0.2])], start=1):
        clipped = gradient / max(1.0, np.linalg.norm(gradient))
        first = 0.9 * first + 0.1 * clipped
        second = 0.99 * second + 0.01 * clipped**2
        adam = first / (1 - 0.9**step) / (np.sqrt(second / (1 - 0.99**step)) + 1e-8)
        given = {
            "kernel": jnp.asarray(gradient[:2], jnp.float32),
            "bias": jnp.asarray(gradient[2:], jnp.float32),
        }
        direction, state = update(given, state, params)
        np.testing.assert_allclose(direction["kernel"], adam[:2] + 0.1 * np.array([2.0, -1.0]), rtol=2e-5)
        np.testing.assert_allclose(direction["bias"], adam[2:], rtol=2e-5)
