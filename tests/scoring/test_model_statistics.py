"""`token_stats` of a model: alignment of targets, masks, models with and without a separate readout."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scored_models import VOCABULARY, small_model

from tdd.models.adapters import from_function
from tdd.records import LanguageModel
from tdd.scoring.gradients import grad_norms
from tdd.scoring.token_stats import Tiling, token_stats
from tdd.validate import InputError

TILE = Tiling(16, 256)
stats_fn = jax.jit(token_stats, static_argnames=("lm", "tile"))


def batch(seed=0, rows=3, length=12):
    rng = np.random.default_rng(seed)
    lengths = rng.integers(2, length + 1, rows)
    tokens = rng.integers(0, VOCABULARY, (rows, length)).astype(np.int32)
    mask = (np.arange(length) < lengths[:, None]) & (np.arange(length) > 0)
    return tokens, mask


def test_targets_are_predicted_from_what_precedes_them():
    lm, params = small_model()
    tokens, mask = batch()
    logits = np.asarray(jax.jit(lm.logits)(params, tokens), np.float64)
    log_p = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    got = jax.tree.map(np.asarray, stats_fn(lm, params, tokens, mask, tile=TILE))
    expected = np.zeros(tokens.shape)
    expected[:, 1:] = np.take_along_axis(log_p[:, :-1], tokens[:, 1:, None], -1)[..., 0]
    np.testing.assert_allclose(got.log_prob, np.where(mask, expected, 0), rtol=1e-5, atol=1e-5)
    rank = np.zeros(tokens.shape, int)
    rank[:, 1:] = (log_p[:, :-1] > expected[:, 1:, None]).sum(-1)
    np.testing.assert_array_equal(got.rank, np.where(mask, rank, 0))
    np.testing.assert_allclose(got.entropy[mask], -got.mu[mask])
    np.testing.assert_array_equal(got.mask, mask)


def test_the_first_token_is_never_a_target():
    lm, params = small_model()
    tokens, mask = batch()
    everywhere = mask.copy()
    everywhere[:, 0] = True
    got, expected = (stats_fn(lm, params, tokens, m, tile=TILE) for m in (everywhere, mask))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(a, b)


def test_padding_is_the_mask_and_no_token_id():
    """Token 0 in the text is scored; whatever stands in the padding is not."""
    lm, params = small_model()
    tokens, mask = batch(1)
    tokens[:, 1] = 0
    other = np.where(mask | (np.arange(12) == 0), tokens, 7).astype(np.int32)
    got, expected = (stats_fn(lm, params, t, mask, tile=TILE) for t in (other, tokens))
    assert (np.asarray(got.log_prob)[:, 1] < 0).all()
    np.testing.assert_array_equal(got.log_prob, expected.log_prob)


@pytest.mark.slow("long")
def test_a_model_of_logits_alone_gives_the_same():
    lm, params = small_model()
    bare = dataclasses.replace(lm, spec=("bare", lm.spec), hidden=None, readout=None)
    tokens, mask = batch(2)
    got, expected = (stats_fn(m, params, tokens, mask, tile=TILE) for m in (bare, lm))
    for a, b in zip(jax.tree.leaves(got), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_one_trace_for_equal_shapes():
    lm, params = small_model()
    traces = []
    spied = dataclasses.replace(lm, hidden=lambda p, t: traces.append(1) or lm.hidden(p, t), spec="spied")
    call = jax.jit(token_stats, static_argnames=("lm", "tile"))
    for seed in range(3):
        call(spied, params, *map(jnp.asarray, batch(seed)), tile=TILE)
    assert len(traces) == 1


def test_shapes_are_checked():
    lm, params = small_model()
    tokens, mask = batch()
    with pytest.raises(InputError, match=r"both be \[B, T\].*\(3, 12\) and \(3, 11\)"):
        token_stats(lm, params, tokens, mask[:, 1:])


@pytest.mark.parametrize("heads", [True, False])
@pytest.mark.parametrize("beyond", [VOCABULARY, -1, -100])
def test_a_target_that_is_no_id_of_the_model_has_no_number(beyond, heads):
    """Whatever stands where nothing is scored; the other targets keep theirs."""

    def trunk(table, tokens):
        return table[tokens % VOCABULARY]

    lm = LanguageModel(
        ("bigrams", heads), VOCABULARY, None,
        logits=lambda table, tokens: trunk(table, tokens) @ table.T,
        hidden=trunk if heads else None, readout=(lambda table: table) if heads else None,
    )  # fmt: skip
    params = np.random.default_rng(0).normal(size=(VOCABULARY, 4)).astype(np.float32)
    tokens, mask = batch(3)
    last = mask.sum(1)  # the last scored token of each row
    rows = np.arange(3)
    strange = tokens.copy()
    strange[rows, last] = beyond
    got, plain = (np.asarray(stats_fn(lm, params, t, mask, tile=TILE).log_prob) for t in (strange, tokens))
    assert np.isnan(got[rows, last]).all()
    assert np.isfinite(got).sum() == got.size - 3
    strange[rows, last] = tokens[rows, last]
    strange[~mask & (np.arange(12) > 0)] = beyond
    np.testing.assert_array_equal(stats_fn(lm, params, strange, mask, tile=TILE).log_prob, plain)


def test_parameters_that_are_no_arrays_keep_their_values_outside_jit():
    """A width as a Python number, which decides a shape."""

    def logits(params, tokens):
        return params["table"][: params["vocabulary"]][tokens] @ params["table"][: params["vocabulary"]].T

    lm = from_function(logits, vocab_size=20, name="cut")
    table = np.random.default_rng(0).normal(size=(30, 4)).astype(np.float32)
    tokens, mask = batch()
    given = {"table": table, "vocabulary": 20}
    found = token_stats(lm, given, tokens % 20, mask).log_prob
    whole = from_function(lambda table, tokens: table[tokens] @ table.T, vocab_size=20, name="whole")
    np.testing.assert_array_equal(found, token_stats(whole, table[:20], tokens % 20, mask).log_prob)
    assert grad_norms(lm, given, tokens % 20, mask).parts.keys() == {"table"}
