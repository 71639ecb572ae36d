"""Dropout of LoRA's inputs and of the residual stream: against NumPy, and the same bits after an interruption."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from decoder_specs import perturbed_params

from tdd import InputError
from tdd.lab.corpus import generate
from tdd.lab.lora import Lora, init_factors, low_rank_paths, merge
from tdd.lab.step import Weights, token_losses
from tdd.lab.tokens import train_tokenizer
from tdd.lab.train import TrainConfig, evaluation_loss, train
from tdd.models import decoder
from tdd.models.decoder import Noise, hidden
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.records import LanguageModel

TEXTS = generate(12, seed=5).texts
SPEC = DecoderSpec.gpt2(vocab_size=300, width=16, num_layers=2, num_heads=2, max_length=64)
LM = language_model(SPEC)
CONFIG = TrainConfig(epochs=2, batch_size=4, learning_rate=1e-2, num_buckets=1, save_every=2, seed=7, max_length=32)
LORA = Lora(rank=2, alpha=4.0, dropout=0.3)
TOKENS = jnp.asarray(np.random.default_rng(1).integers(0, 300, (3, 9)), jnp.int32)


@pytest.fixture(scope="module")
def start():
    return perturbed_params(SPEC, spread=0.02)


@pytest.fixture(scope="module")
def factors(start):
    made = init_factors(LORA, start, seed=3)
    normal = np.random.default_rng(2).normal
    return {name: {**pair, "b": jnp.asarray(normal(size=pair["b"].shape), jnp.float32)} for name, pair in made.items()}


@pytest.fixture(scope="module")
def tokenizer():
    return train_tokenizer(TEXTS, vocab_size=300)


def dense(inputs, kernel, a, b, rate, key):
    variables = {"params": {"kernel": kernel}, decoder._LOW_RANK: {"a": a, "b": b}}
    module = decoder._Dense(kernel.shape[1], jnp.float32, bias=False, dropout=rate)
    return np.asarray(module.apply(variables, inputs, None, rngs={"dropout": key}), np.float64)


def test_one_product_is_that_of_numpy():
    """The mask is read from a product of which only the low-rank path is left, and then used in float64."""
    rng = np.random.default_rng(0)
    x, w = rng.normal(size=(4, 50, 6)).astype(np.float32), rng.normal(size=(6, 5)).astype(np.float32)
    a, b = rng.normal(size=(6, 3)).astype(np.float32), rng.normal(size=(3, 5)).astype(np.float32)
    key, rate = jax.random.key(4), 0.3
    dropped = dense(
        x, np.zeros((6, 6), np.float32), np.eye(6, dtype=np.float32), np.eye(6, dtype=np.float32), rate, key
    )
    kept = dropped != 0
    np.testing.assert_allclose(dropped, np.where(kept, x / 0.7, 0), rtol=1e-6)
    assert abs(kept.mean() - 0.7) < 4 * np.sqrt(0.21 / kept.size)
    wanted = x.astype(float) @ w + np.where(kept, x.astype(float) / 0.7, 0) @ a.astype(float) @ b
    np.testing.assert_allclose(dense(x, w, a, b, rate, key), wanted, rtol=1e-4, atol=1e-4)
    # a broken twin that scales nothing is seen
    assert np.abs(dense(x, w, a, b, rate, key) - (x @ w + np.where(kept, x, 0) @ a @ b)).max() > 0.1


def test_the_low_rank_path_is_unbiased_and_its_mask_differs_by_token_and_key():
    x = np.ones((1, 40, 8), np.float32)
    zero, one = np.zeros((8, 8), np.float32), np.eye(8, dtype=np.float32)
    draws = np.stack([dense(x, zero, one, one, 0.25, jax.random.key(i)) for i in range(50)])
    error = np.sqrt(0.25 / 0.75 / draws.size)
    assert abs(draws.mean() - 1) < 4 * error
    assert not (draws[0] == draws[1]).all()
    assert len({row.tobytes() for row in draws[0, 0]}) > 20


def test_without_dropout_the_path_is_the_merged_model(start, factors):
    """Also the scale alpha / rank, the layers and the names of operations."""

    @jax.jit
    def states(start, factors):
        paths = Noise(jax.random.key(0), factors=low_rank_paths(LORA, factors))
        merged = merge(LORA, start, factors)
        return hidden(SPEC, start, TOKENS, noise=paths), hidden(SPEC, merged, TOKENS), hidden(SPEC, start, TOKENS)

    apart, merged, without = states(start, factors)
    np.testing.assert_allclose(apart, merged, rtol=2e-4, atol=2e-4)
    assert np.abs(np.asarray(merged - without)).max() > 0.1


def commonest(row):
    """The value of the dropped entries of a row after its norm: they are all equal."""
    values, counts = np.unique(row, return_counts=True)
    return values[np.argmax(counts)]


def test_the_stream_drops_embedded_tokens(start):
    """Without layers' contributions, what is normed is the embedded tokens with some entries 0, the others larger."""
    silent = jax.tree.map(jnp.zeros_like, start["layers"])
    params = {**start, "layers": silent, "final_norm": {"scale": np.ones(16), "bias": np.zeros(16)}}
    states = jax.jit(lambda params, key: hidden(SPEC, params, TOKENS, noise=Noise(key, stream=0.5)))
    seen = np.asarray(states(params, jax.random.key(8)), np.float64)
    table = start["embedding"]
    stream = (
        np.asarray(table["tokens"], np.float64)[np.asarray(TOKENS)] + np.asarray(table["positions"])[: TOKENS.shape[1]]
    )

    def normed(rows):
        centred = rows - rows.mean(-1, keepdims=True)
        return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)

    kept = np.array([row != commonest(row) for row in seen.reshape(-1, 16).round(4)]).reshape(seen.shape)
    np.testing.assert_allclose(seen, normed(np.where(kept, stream / 0.5, 0)), rtol=2e-3, atol=2e-3)
    assert 0.3 < kept.mean() < 0.7


MASK = np.arange(TOKENS.shape[1]) > np.zeros((TOKENS.shape[0], 1))


@pytest.fixture(scope="module")
def undropped(start, factors):
    """Losses without dropout: those of the merged model."""

    @jax.jit
    def losses(start, factors):
        plain = Weights(dataclasses.replace(LORA, dropout=0.0)).losses(LM, start, factors, TOKENS, MASK, None)
        return plain, token_losses(LM, merge(LORA, start, factors), TOKENS, MASK)

    plain, merged = losses(start, factors)
    np.testing.assert_array_equal(plain, merged)
    return plain


@pytest.mark.parametrize("remat", [pytest.param(False, marks=pytest.mark.slow("grid")), True])
def test_gradients_reach_the_factors(start, factors, undropped, remat):
    weights = Weights(LORA, remat=remat, dropout=0.1)

    @jax.jit
    def differentiated(trained, key):
        def loss(trained):
            losses = weights.losses(LM, start, trained, TOKENS, MASK, key)
            return losses.sum(), losses

        return jax.value_and_grad(loss, has_aux=True)(trained)

    key = jax.random.key(6)
    (_, losses), gradient = differentiated(factors, key)
    assert all(np.abs(leaf).max() > 0 for leaf in jax.tree.leaves(gradient))
    name, step = "layers/qkv", 1e-2
    at = (0, 3, 1)
    moved = [jax.tree.map(np.array, factors) for _ in range(2)]
    moved[0][name]["a"][at] += step
    moved[1][name]["a"][at] -= step
    higher, lower = (differentiated(one, key)[0][0] for one in moved)
    slope = (higher - lower) / (2 * step)
    assert float(gradient[name]["a"][at]) == pytest.approx(float(slope), rel=0.05, abs=0.02)
    assert np.abs(losses - undropped).max() > 1e-3


MODES = {"lora": ({}, LORA), "both": ({"dropout": 0.2, "accumulate": 2}, LORA), "all": ({"dropout": 0.2}, None)}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.slow("training")
def test_a_run_follows_from_its_seed_and_continues_with_the_same_bits(tokenizer, start, tmp_path, mode):
    change, lora = MODES[mode]
    config = dataclasses.replace(CONFIG, **change)
    options = {"lora": lora, "eval_texts": TEXTS[:4]}
    whole = train(LM, start, tokenizer, TEXTS, config=config, **options)
    held_out = evaluation_loss(LM, whole.params, tokenizer, TEXTS[:4], config=config)
    assert whole.history[-1]["eval_loss"] == held_out  # nothing is dropped there

    def interrupt(step, params):
        if step == 3:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(LM, start, tokenizer, TEXTS, config=config, **options, out=tmp_path / "run", on_step=interrupt)
    again = train(LM, start, tokenizer, TEXTS, config=config, **options, out=tmp_path / "run")
    jax.tree.map(np.testing.assert_array_equal, again.params, whole.params)
    assert again.history == whole.history
    other = train(LM, start, tokenizer, TEXTS, config=dataclasses.replace(config, dropout=0.0),
                  lora=lora and dataclasses.replace(lora, dropout=0.0))  # fmt: skip
    assert other.history[0]["loss"] != whole.history[0]["loss"]


def test_steps_differ(tokenizer, start):
    """With a learning rate of 0 and one text only what is dropped changes from one step to the next."""
    config = dataclasses.replace(CONFIG, learning_rate=0.0, batch_size=1, epochs=3, dropout=0.4)
    dropped = train(LM, start, tokenizer, TEXTS[:1], config=config)
    assert len({line["loss"] for line in dropped.history}) == 3
    jax.tree.map(np.testing.assert_array_equal, dropped.params, start)


def test_what_cannot_be_dropped_is_refused(tokenizer, start):
    for kind in (Lora, TrainConfig):
        for rate in (1, -0.1, 1.5):
            with pytest.raises(InputError, match="dropout must be"):
                kind(dropout=rate)
    other = LanguageModel("own", 300, None, LM.logits)
    with pytest.raises(InputError, match="dropout needs a model whose layers tdd knows"):
        train(other, start, tokenizer, TEXTS, config=dataclasses.replace(CONFIG, dropout=0.1))
    experts = {"layers/experts_in": {"a": jnp.zeros((2, 4, 16, 2)), "b": jnp.zeros((2, 4, 2, 16))}}
    with pytest.raises(InputError, match="not possible on layers/experts_in"):
        low_rank_paths(LORA, experts)
