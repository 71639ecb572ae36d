"""Sinks and slopes of attention, against a softmax that is written out."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

from tdd.models import attention
from tdd.models.attention import PrefixCache, attend

ROWS, LENGTH, HEADS, GROUPS, WIDTH = 2, 9, 4, 2, 3
SLOPES = (0.7, 0.25, 0.1, 0.0)


def arrays(length=LENGTH):
    rng = np.random.default_rng(0)
    query, key, value = (rng.normal(size=(ROWS, length, n, WIDTH)) for n in (HEADS, GROUPS, GROUPS))
    sinks = np.broadcast_to(2 * rng.normal(size=HEADS), (ROWS, length, HEADS))
    return tuple(np.asarray(x, np.float32) for x in (query, key, value, sinks))


def reference(query, key, value, sinks=None, window=None, slopes=(0.0,) * HEADS):
    """Row by row, head by head and token by token, in float64."""
    sinks = np.full(query.shape[:3], -np.inf) if sinks is None else sinks
    query, key, value, sinks = (np.asarray(x, np.float64) for x in (query, key, value, sinks))
    rows, length, heads, width = query.shape
    found = np.zeros((rows, length, heads, width))
    for b, t, h in np.ndindex(rows, length, heads):
        group = h // (heads // key.shape[2])
        seen = slice(0 if window is None else max(0, t - window + 1), t + 1)
        terms = np.exp(key[b, seen, group] @ query[b, t, h] - slopes[h] * (t - np.arange(t + 1)[seen]))
        found[b, t, h] = terms @ value[b, seen, group] / (terms.sum() + np.exp(sinks[b, t, h]))
    return found.reshape(rows, length, heads * width)


def close(found, expected, length=LENGTH):
    """A product of WIDTH, an exponential of it, a sum of `length` and a product of as many."""
    rounding.assert_close(found, expected, roundings=4 * WIDTH + 2 * length + 8, scale=np.abs(expected).max())


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("traced", [False, True])
def test_one_more_term_in_the_denominator(window, traced, monkeypatch):
    """In one block of queries and in several."""
    query, key, value, sinks = arrays()
    expected = reference(query, key, value, sinks, window)
    given = window if window is None or not traced else jnp.asarray(window)
    for block in (128, 4):
        monkeypatch.setattr(attention, "QUERY_BLOCK", block)
        close(jax.jit(functools.partial(attend, sinks=sinks, window=given))(query, key, value), expected)


def test_a_sink_far_below_is_none_and_one_far_above_is_all():
    query, key, value, sinks = arrays()
    run = jax.jit(attend)
    np.testing.assert_array_equal(run(query, key, value, sinks=sinks * 0 - 200), run(query, key, value))
    np.testing.assert_array_equal(run(query, key, value, sinks=sinks * 0 + 200), 0)


def test_after_a_prefix():
    """The sink counts once, not once for the prefix and once for the rest."""
    query, key, value, sinks = arrays()
    key[:, :5], value[:, :5] = key[:1, :5], value[:1, :5]
    expected = reference(query, key, value, sinks)[:, 5:]
    past = PrefixCache(jnp.asarray(key[:1, :5]), jnp.asarray(value[:1, :5]), None)
    close(jax.jit(attend)(query[:, 5:], key[:, 5:], value[:, 5:], past=past, sinks=sinks[:, 5:]), expected)


def test_sixteen_bits_take_the_form_with_sinks():
    """The kernels of accelerators have none: wherever it is compiled for, no such kernel is in the program."""
    query, key, value, sinks = arrays(8)
    low = functools.partial(attend, dtype=jnp.bfloat16)
    close(jax.jit(low)(query, key, value, sinks=sinks), reference(query, key, value, sinks))
    text = str(jax.make_jaxpr(functools.partial(low, sinks=sinks))(query, key, value))
    assert "cudnn" not in text
    assert "pallas" not in text


@pytest.mark.parametrize("window", [None, 4])
@pytest.mark.parametrize("sinks", [False, True])
def test_scores_fall_with_the_distance(window, sinks, monkeypatch):
    """By a slope of each head, in one block of queries and in several."""
    query, key, value, own = arrays()
    given = {"window": window, "sinks": own if sinks else None}
    expected = reference(query, key, value, **given, slopes=SLOPES)
    assert np.abs(expected - reference(query, key, value, **given)).max() > 0.1
    for block in (128, 4):
        monkeypatch.setattr(attention, "QUERY_BLOCK", block)
        close(jax.jit(functools.partial(attend, **given, slopes=SLOPES))(query, key, value), expected)


@pytest.mark.parametrize("padding", [0, 3])
def test_distances_are_counted_through_a_prefix(padding):
    """From its last token on, not from its padding."""
    query, key, value, _ = arrays()
    key[:, :5], value[:, :5] = key[:1, :5], value[:1, :5]
    expected = reference(query, key, value, slopes=SLOPES)[:, 5:]
    before = [jnp.pad(x[:1, :5], [(0, 0), (0, padding), (0, 0), (0, 0)], constant_values=7.0) for x in (key, value)]
    past = PrefixCache(*before, jnp.asarray(5) if padding else None)
    run = jax.jit(functools.partial(attend, slopes=SLOPES))
    close(run(query[:, 5:], key[:, 5:], value[:, 5:], past=past), expected)
