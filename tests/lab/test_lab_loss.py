"""The training loss against its definition, in one tile and in many."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.special import log_softmax

from tdd.lab import step
from tdd.records import LanguageModel

BATCH, LENGTH, WIDTH, VOCAB = 3, 7, 5, 13


def model(soft_cap=None):
    def hidden(params, tokens):
        return jnp.tanh(params["table"][tokens])

    def logits(params, tokens):
        raw = hidden(params, tokens) @ params["readout"].T
        return raw if soft_cap is None else soft_cap * jnp.tanh(raw / soft_cap)

    def readout(params):
        return params["readout"]

    return LanguageModel("toy", VOCAB, None, logits, hidden, readout, soft_cap)


@pytest.fixture
def inputs():
    rng = np.random.default_rng(0)
    params = {
        "table": jnp.asarray(rng.normal(size=(VOCAB, WIDTH)), jnp.float32),
        "readout": jnp.asarray(rng.normal(size=(VOCAB, WIDTH)), jnp.float32),
    }
    tokens = jnp.asarray(rng.integers(0, VOCAB, (BATCH, LENGTH)), jnp.int32)
    mask = np.ones((BATCH, LENGTH), bool)
    mask[:, 0] = False
    mask[1, 4:] = False
    return params, tokens, jnp.asarray(mask)


@pytest.mark.parametrize(
    ("soft_cap", "tile", "dense"),
    [
        (None, 1 << 27, False),
        (1.5, 1 << 27, False),
        (None, VOCAB, False),
        (None, 4 * VOCAB, False),
        (1.5, 5 * VOCAB, False),
        (1.5, 1 << 27, True),
    ],
)
def test_definition_and_gradient(inputs, monkeypatch, soft_cap, tile, dense):
    monkeypatch.setattr(step, "TILE_ELEMENTS", tile)
    params, tokens, mask = inputs
    lm = model(soft_cap)
    if dense:
        lm = dataclasses.replace(lm, hidden=None, readout=None)

    def plain(params):
        logits = lm.logits(params, tokens)
        chosen = jnp.take_along_axis(jax.nn.log_softmax(logits[:, :-1]), tokens[:, 1:, None], axis=-1)[..., 0]
        return -jnp.sum(jnp.where(mask[:, 1:], chosen, 0)), logits

    def tiled(params):
        losses = step.token_losses(lm, params, tokens, mask)
        return jnp.sum(losses), losses

    (wanted, logits), (gradient, values) = (jax.jit(jax.grad(one, has_aux=True))(params) for one in (plain, tiled))
    log_probs = log_softmax(np.asarray(logits, np.float64), axis=-1)
    expected = np.zeros((BATCH, LENGTH))
    for row in range(BATCH):
        for position in range(1, LENGTH):
            if mask[row, position]:
                expected[row, position] = -log_probs[row, position - 1, tokens[row, position]]
    np.testing.assert_allclose(values, expected, rtol=1e-5, atol=1e-6)
    for name in params:
        np.testing.assert_allclose(gradient[name], wanted[name], rtol=1e-4, atol=1e-5)
