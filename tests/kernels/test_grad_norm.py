"""Probed operations beyond their contract: shared probes, scans, weights' own cotangents, low precision."""

import chex
import jax
import jax.numpy as jnp
import numpy as np
import pytest
import rounding

from tdd.kernels import grad_norm

B, T = 3, 5


def normal(seed, *shape):
    return jnp.asarray(np.random.default_rng(seed).normal(size=shape), jnp.float32)


def whole(seed, *shape):
    """Whole numbers, whose products and sums are exact in any order."""
    return np.random.default_rng(seed).integers(-4, 5, shape).astype(np.float32)


PLAIN = {
    "dense": lambda x, w: x @ w,
    "add_bias": lambda x, w: x + w,
    "scale": lambda x, w: x * w,
    "add_rows": lambda x, w: x + w,
}
SHAPES = {"dense": (4, 3), "add_bias": (4,), "scale": (4,), "add_rows": (T, 4)}


@pytest.mark.parametrize("name", PLAIN)
def test_value_and_cotangents_are_those_of_the_plain_operation(name):
    inputs, weight = whole(0, B, T, 4), whole(1, *SHAPES[name])
    cotangent = whole(2, *PLAIN[name](inputs, weight).shape)

    @jax.jit
    def both(inputs, weight, cotangent):
        value, pull = jax.vjp(getattr(grad_norm, name), inputs, weight, jnp.zeros(B))
        expected, plain_pull = jax.vjp(PLAIN[name], inputs, weight)
        return (value, *pull(cotangent)[:2]), (expected, *plain_pull(cotangent))

    chex.assert_trees_all_equal(*both(inputs, weight, cotangent))


def test_the_probe_changes_no_value():
    inputs, kernel = normal(0, B, T, 4), normal(1, 4, 3)
    np.testing.assert_array_equal(
        grad_norm.dense(inputs, kernel, jnp.zeros(B)), grad_norm.dense(inputs, kernel, jnp.full(B, 7.0))
    )


def test_a_factor_shared_by_heads_is_summed_over_them_before_squaring():
    inputs, factor, cotangent = whole(0, B, T, 2, 4), whole(1, 4), whole(2, B, T, 2, 4)
    _, pull = jax.vjp(grad_norm.scale, inputs, factor, jnp.zeros(B))
    each = np.einsum("bthd,bthd->bd", inputs, cotangent)
    np.testing.assert_array_equal(pull(cotangent)[2], np.square(each).sum(-1))


def layers(stream, weights, probe, *, probed=True):
    """tanh(x W + b) in a scan; `probe` is one for all layers [B], or one a layer [L, B]."""
    each = probe if probe.ndim == 2 else None

    def layer(x, of_layer):
        kernel, bias, own = of_layer
        given = probe if own is None else own
        if probed:
            return jnp.tanh(grad_norm.add_bias(grad_norm.dense(x, kernel, given), bias, given)), None
        return jnp.tanh(x @ kernel + bias), None

    return jax.lax.scan(layer, stream, (*weights, each))[0]


def exact_layers(stream, weights):
    """[L, B] squared norms from one gradient an example."""
    loss = lambda weights, x: jnp.sin(layers(x[None], weights, jnp.zeros(1), probed=False)).sum()  # noqa: E731
    found = jax.vmap(jax.grad(loss), (None, 0))(weights, stream)
    return sum(jnp.square(x).reshape(*x.shape[:2], -1).sum(-1) for x in found).T


@pytest.mark.slow("long")
def test_one_probe_sums_over_operations_and_steps_and_one_a_step_keeps_them_apart():
    stream, weights = normal(0, B, T, 4), (normal(1, 3, 4, 4), normal(2, 3, 4))
    expected = exact_layers(stream, weights)
    for probe, wanted in ((jnp.zeros(B), expected.sum(0)), (jnp.zeros((3, B)), expected)):
        found = jax.grad(lambda probe: jnp.sin(layers(stream, weights, probe)).sum())(probe)
        np.testing.assert_allclose(found, wanted, rtol=2e-6)
        recomputed = jax.checkpoint(lambda probe: layers(stream, weights, probe))
        again = jax.grad(lambda probe, f=recomputed: jnp.sin(f(probe)).sum())(probe)
        np.testing.assert_allclose(again, wanted, rtol=2e-6)


@pytest.mark.parametrize("length", [2, 40])
def test_low_precision_keeps_dtypes_and_sums_in_float32(length):
    inputs, kernel = normal(0, B, length, 24), normal(1, 24, 18).astype(jnp.bfloat16)
    value, pull = jax.vjp(grad_norm.dense, inputs, kernel, jnp.zeros(B))
    assert value.dtype == jnp.float32
    cotangent = normal(2, B, length, 18)
    of_inputs, of_kernel, norms = pull(cotangent)
    assert (of_inputs.dtype, of_kernel.dtype, norms.dtype) == (jnp.float32, jnp.bfloat16, jnp.float32)
    rounded = [np.asarray(x.astype(jnp.bfloat16), np.float64) for x in (inputs, cotangent)]
    exact = np.square(np.einsum("bti,bto->bio", *rounded)).sum((1, 2))
    terms = np.square(np.einsum("bti,bto->bio", *map(abs, rounded))).sum((1, 2))
    rounding.assert_close(norms, exact, roundings=2 * length + 24 + 18, scale=terms)


def test_the_cheaper_form_is_taken(monkeypatch):
    def formed(rows, columns, length, platform="cpu"):
        """Whether matrices of these sizes are formed for all examples at once, with weights [24, 18]."""
        arrays = normal(0, B, length, 24), normal(1, 24, 18), jnp.zeros(B), normal(2, B, length, 18)
        backward = jax.jit(lambda x, w, p, g: jax.vjp(lambda x, p: grad_norm.dense(x, w, p), x, p)[1](g))
        text = backward.trace(*arrays).lower(lowering_platforms=(platform,)).as_text()
        return f"tensor<{B}x{rows}x{columns}xf32>" in text

    assert formed(4, 4, length=4)  # T (I + O) = 168 < I O = 432
    assert not formed(20, 20, length=20)  # 840 > 432
    assert not formed(24, 18, length=20)  # and then one example at a time
    assert formed(24, 18, length=20, platform="cuda")  # or all, where a step of a loop is several launches
    monkeypatch.setattr(grad_norm, "_SIDE_BY_SIDE", B * 24 * 18 - 1)
    assert not formed(24, 18, length=20, platform="cuda")


def test_the_forms_give_the_same_norms():
    inputs, cotangent = normal(0, B, 20, 24), normal(1, B, 20, 18)
    wide = [np.asarray(x, np.float64) for x in (inputs, cotangent)]
    exact, terms = (np.square(np.einsum("bti,bto->bio", *x)).sum((1, 2)) for x in (wide, map(abs, wide)))
    for form in (grad_norm._one_by_one, grad_norm._side_by_side):
        rounding.assert_close(form(inputs, cotangent), exact, roundings=2 * 20 + 24 + 18, scale=terms)
