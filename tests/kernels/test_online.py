"""Online procedures against their definitions, and the laws of a stream."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_bounds as ref
import rounding
from scipy import special

from tdd.kernels import online

PROCEDURES = {
    "lond": (online.lond, ref.lond),
    "lond/any": (
        lambda p, a, **k: online.lond(p, a, dependence="any", **k),
        lambda p, a: ref.lond(p, a, harmonic=True),
    ),
    "lord_plus_plus": (online.lord_plus_plus, ref.lord_plus_plus),
    "lord_plus_plus/half": (
        lambda p, a, **k: online.lord_plus_plus(p, a, initial_wealth=0.5, **k),
        lambda p, a: ref.lord_plus_plus(p, a, 0.5),
    ),
    "saffron": (online.saffron, ref.saffron),
    "saffron/0.3": (lambda p, a, **k: online.saffron(p, a, lambda_=0.3, **k), lambda p, a: ref.saffron(p, a, 0.5, 0.3)),
}
COMPILED = {name: jax.jit(kernel) for name, (kernel, _) in PROCEDURES.items()}
E_LOND = jax.jit(online.e_lond, static_argnames="alpha")
LOND = jax.jit(online.lond, static_argnames="alpha")
every_procedure = pytest.mark.parametrize("name", PROCEDURES)


SIZE, ALPHA = 60, np.float32(0.2)


def stream(seed, size=SIZE):
    rng = np.random.default_rng(seed)
    p = rng.random(size) ** rng.choice([1, 9], size)
    p[rng.random(size) < 0.1] = np.nan
    return p.astype(np.float32)


def padded(p):
    """NaN behind it: one program for all lengths."""
    return np.append(p, np.full(SIZE - len(p), np.nan)).astype(np.float32)


@every_procedure
def test_definition(name):
    """A level is a sum of positive terms, one a discovery, each of a few factors."""
    kernel, reference = COMPILED[name], PROCEDURES[name][1]
    for seed in range(3):
        p = stream(seed)
        got = jax.tree.map(np.asarray, kernel(p, ALPHA))
        levels = reference(p.astype(float), 0.2)
        rounding.assert_close(got.levels, levels, roundings=SIZE + 6)
        np.testing.assert_array_equal(got.reject, p <= levels)
        assert got.num_rejected == got.reject.sum() > 0
        assert got.num_tests == np.isfinite(p).sum()


@every_procedure
def test_masked_hypotheses_take_no_place(name):
    """Nor do those to come."""
    kernel, p = COMPILED[name], stream(7)
    mask = np.random.default_rng(0).random(SIZE) < 0.7
    kept = np.flatnonzero(mask & ~np.isnan(p))
    got, alone = jax.tree.map(np.asarray, (kernel(p, ALPHA, mask=mask), kernel(padded(p[kept]), ALPHA)))
    np.testing.assert_array_equal(got.reject[kept], alone.reject[: len(kept)])
    rounding.assert_close(got.levels[kept], alone.levels[: len(kept)], roundings=2 * (SIZE + 6))
    assert got.num_rejected == alone.num_rejected
    past = kernel(padded(p[:30]), ALPHA)
    np.testing.assert_array_equal(np.asarray(kernel(p, ALPHA).reject)[:30], past.reject[:30])


@every_procedure
def test_batches_and_small_streams(name):
    kernel = COMPILED[name]
    many = np.stack([*(stream(seed) for seed in range(3)), padded([0.0]), padded([])])
    batched = np.asarray(jax.jit(jax.vmap(lambda p: PROCEDURES[name][0](p, ALPHA)))(many).reject)
    for row, p in zip(batched, many, strict=True):
        np.testing.assert_array_equal(row, kernel(p, ALPHA).reject)
    assert batched[3:].sum(axis=1).tolist() == [1, 0]
    assert int(kernel(np.zeros(0, np.float32), ALPHA).num_tests) == 0


@every_procedure
def test_level_out_of_range(name):
    for alpha in (0.0, 1.0, jnp.nan):
        got = COMPILED[name](padded(np.zeros(4)), jnp.float32(alpha))
        assert not np.asarray(got.reject).any()
        assert np.isnan(got.levels).all()
    with pytest.raises(ValueError, match="alpha"):
        PROCEDURES[name][0](np.zeros(4, np.float32), 1.0)


def test_e_lond_is_lond_on_the_inverse():
    p = stream(1)
    got = E_LOND(1 / p, 0.2)
    np.testing.assert_array_equal(got.reject, LOND(1 / (1 / p), 0.2).reject)
    assert E_LOND(np.array([np.inf, 0.0, np.inf], np.float32), 0.2).reject.tolist() == [True, False, True]


@pytest.mark.parametrize(("kind", "reference"), [("log", ref.log_series), ("power", ref.power_series)])
def test_series(kind, reference):
    series = online.gamma(10_000, kind)
    np.testing.assert_allclose(series[:50], [reference(t) for t in range(1, 51)], rtol=1e-13)
    assert (np.diff(series[1:]) < 0).all()
    assert 0.3 < series.sum() <= 1
    if kind == "power":
        assert 1 - 1e-10 < series[0] * special.zeta(1.6) <= 1  # over all of time


def test_bad_options():
    for call in (
        lambda: online.gamma(3, "flat"),
        lambda: online.lond(jnp.zeros(2), 0.1, dependence="negative"),
        lambda: online.saffron(jnp.zeros(2), 0.1, lambda_=1.0),
        lambda: online.lord_plus_plus(jnp.zeros(2), 0.1, initial_wealth=1.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
