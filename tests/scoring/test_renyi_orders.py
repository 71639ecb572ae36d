"""Renyi entropies of any order: against float64, at their limits, and through `tdd.score`."""

import dataclasses
import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from padded_statistics import score_rows

import tdd
from tdd.kernels import token_stats as kernel
from tdd.lab.corpus import generate
from tdd.lab.tokens import train_tokenizer
from tdd.models.decoder import init_params
from tdd.models.language_model import language_model
from tdd.models.spec import DecoderSpec
from tdd.scoring.scores.score import parse_score
from tdd.scoring.token_stats import token_stats

tile_renyi = jax.jit(kernel.tile_renyi, static_argnums=(1, 2))
ORDERS = (1e-6, 0.05, 0.3, 0.49, 0.51, 0.7, 0.99, 1 - 1e-6, 1 + 1e-6, 1.01, 1.3, 1.6, 3.0, 10.0, 1e3)
NEVER = -np.inf


def rows(vocabulary=700):
    rng = np.random.default_rng(0)
    wide, peaked = rng.normal(size=(4, vocabulary)) * np.array([[0.1], [1], [5], [20]]), np.full((3, vocabulary), -40.0)
    peaked[0, :2], peaked[1, 0], peaked[2, :2] = (0.0, -10.0), 0.0, 0.0  # the last has two maxima
    some = np.where(rng.random((1, vocabulary)) < 0.5, NEVER, rng.normal(size=(1, vocabulary)))
    far = np.where(np.arange(vocabulary) == 0, 0.0, -300.0)[None]  # underflows
    return np.concatenate([wide, peaked, some, far]).astype(np.float32)


def entropy(logits, order):
    """In long double, from the probabilities, with those of the largest logit last."""
    found = []
    for z in np.asarray(logits, np.longdouble):
        d = z[np.isfinite(z)] - z.max()
        log_p = d - np.log1p(np.exp(np.sort(d)[:-1]).sum())
        if order > 5:  # log1p of nearly -1: sum the powers instead
            found.append(np.log(np.exp(order * log_p).sum()) / (1 - order))
        else:
            found.append(np.log1p((np.exp(log_p) * np.expm1((order - 1) * log_p)).sum()) / (1 - order))
    return np.array(found, np.float64)


@pytest.mark.parametrize("block", [None, 64])
@pytest.mark.parametrize("order", ORDERS)
def test_every_order_is_that_of_float64(order, block):
    given = rows()
    found = np.asarray(tile_renyi(jnp.asarray(given), order, block), np.float64)
    expected = entropy(given, order)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-30 if order < 5 else 1e-7)


def test_the_limits():
    given = rows()
    usual = jax.jit(kernel.tile_statistics, static_argnums=2)(given, np.zeros(len(given), np.int32), None)
    near = np.stack([tile_renyi(given, order, None) for order in (1 - 1e-6, 1 + 1e-6)])
    np.testing.assert_allclose(near, np.stack([-usual.mu] * 2), rtol=3e-5)
    np.testing.assert_allclose(tile_renyi(given, 1e6, None), usual.renyi_inf, rtol=1e-5)
    for order, name in ((0.5, "renyi_half"), (2.0, "renyi_two")):
        np.testing.assert_allclose(tile_renyi(given, order, None), getattr(usual, name), rtol=1e-5)
    support = np.log(np.isfinite(given).sum(axis=1))
    np.testing.assert_allclose(tile_renyi(given, 1e-6, None)[:4], support[:4], rtol=1e-3)
    every = np.stack([tile_renyi(given, order, None) for order in ORDERS])
    assert (np.diff(every, axis=0) <= 2e-5 * (1 + every[1:])).all()  # never rises with the order
    # a broken twin, the quotient of differences near order 1, is seen
    d = given[1] - given[1].max()
    log_s = np.log(np.exp(d).sum())
    twin = (np.log(np.exp(np.float32(1 + 1e-6) * d).sum()) - np.float32(1 + 1e-6) * log_s) / -1e-6
    assert abs(float(twin + usual.mu[1])) > 1e-2


@pytest.mark.parametrize(("order", "same"), [(0.5, False), (0.25, False), (2.0, True), (3.0, True)])
def test_the_papers_form_is_the_entropy_times_order_minus_one(order, same):
    """PTDI's eq. 3 is -log sum p^gamma: below 1 it ranks the texts the other way round."""
    given = rows()[:4].astype(np.float64)
    log_p = given - np.log(np.exp(given).sum(axis=1, keepdims=True))
    theirs = -np.log(np.exp(order * log_p).sum(axis=1))
    ours = entropy(given, order)
    np.testing.assert_allclose(theirs, (order - 1) * ours, rtol=1e-9)
    assert (np.argsort(theirs) == np.argsort(ours)).all() == same
    assert (np.argsort(-theirs) == np.argsort(ours)).all() != same


@pytest.fixture(scope="module")
def small():
    texts = generate(20, seed=3).texts
    tokenizer = train_tokenizer(texts, vocab_size=300)
    lm = language_model(DecoderSpec.gpt2(vocab_size=300, width=16, num_layers=1, num_heads=2, max_length=256))
    return (
        lm,
        jax.jit(init_params, static_argnums=0)(lm.spec, jax.random.key(0)),
        tokenizer,
        [text[:90] for text in texts[:6]],
    )


@pytest.mark.parametrize("form", ["hidden", "logits"])
def test_scores_of_a_model(small, form):
    """max_renyi by its definition from all logits, beside scores that read other statistics."""
    lm, params, tokenizer, texts = small
    given = lm if form == "hidden" else dataclasses.replace(lm, hidden=None, readout=None)
    names = ["max_renyi:gamma=0.7,k=0.3", "loss", "max_renyi:gamma=3,k=0"]
    found = tdd.score(given, texts, names, params=params, tokenizer=tokenizer, progress=False).values
    alone = tdd.score(given, texts, names[0], params=params, tokenizer=tokenizer, progress=False).values
    tokens = [np.array(tokenizer(text)["input_ids"]) for text in texts]
    padded = np.stack([np.pad(ids, (0, 100 - len(ids))) for ids in tokens])
    every = np.asarray(jax.jit(lm.logits)(params, padded))
    for i, ids in enumerate(tokens):
        logits = every[i, : len(ids) - 1]
        ordered = np.sort(entropy(logits, 0.7))[::-1]
        count = max(1, (3 * len(ordered)) // 10)
        assert found[names[0]][i] == pytest.approx(ordered[:count].mean(), rel=1e-5)
        assert alone[names[0]][i] == pytest.approx(found[names[0]][i], rel=1e-6)
        assert found[names[2]][i] == pytest.approx(entropy(logits, 3.0).max(), rel=1e-5)


def test_statistics_by_name(small):
    lm, params, tokenizer, texts = small
    ids = np.array(tokenizer(texts[0])["input_ids"])[None]
    mask = np.ones(ids.shape, bool)
    score = parse_score("max_renyi:gamma=0.25,k=1")
    assert score.reads == score.computed == ("renyi_0.25",)
    assert parse_score("max_renyi:gamma=2").computed == ("mu", "renyi_half", "renyi_two", "renyi_inf")
    one_order = jax.jit(functools.partial(token_stats, lm, orders={"renyi_0.25": 0.25}))
    stats = jax.tree.map(np.asarray, one_order(params, ids, mask))
    mean = entropy(np.asarray(jax.jit(lm.logits)(params, ids))[0, :-1], 0.25).mean()
    assert float(score_rows(stats, score)[0]) == pytest.approx(mean, rel=1e-5)
    with pytest.raises(tdd.InputError, match=r"order 0\.25: set TokenStats\.renyi\['renyi_0\.25'\]"):
        score_rows(jax.jit(token_stats, static_argnums=0)(lm, params, ids, mask), score)
