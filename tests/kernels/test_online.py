"""Online procedures against their definitions, and the laws of a stream."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_bounds as ref

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


def stream(seed, size=60):
    rng = np.random.default_rng(seed)
    p = rng.random(size) ** rng.choice([1, 9], size)
    p[rng.random(size) < 0.1] = np.nan
    return p.astype(np.float32)


@every_procedure
@pytest.mark.parametrize("seed", range(3))
def test_definition(name, seed):
    kernel, reference = COMPILED[name], PROCEDURES[name][1]
    p = stream(seed)
    got = jax.tree.map(np.asarray, kernel(p, jnp.float32(0.2)))
    levels = reference(p.astype(float), 0.2)
    np.testing.assert_allclose(got.levels, levels, rtol=2e-5)
    np.testing.assert_array_equal(got.reject, p <= levels)
    assert got.num_rejected == got.reject.sum() > 0
    assert got.num_tests == np.isfinite(p).sum()


@every_procedure
def test_masked_hypotheses_take_no_place(name):
    kernel, alpha = COMPILED[name], jnp.float32(0.2)
    p = stream(7)
    mask = np.random.default_rng(0).random(60) < 0.7
    kept = np.flatnonzero(mask & ~np.isnan(p))
    got, alone = jax.tree.map(np.asarray, (kernel(p, alpha, mask=mask), kernel(p[kept], alpha)))
    np.testing.assert_array_equal(got.reject[kept], alone.reject)
    np.testing.assert_allclose(got.levels[kept], alone.levels, rtol=1e-5)
    assert got.num_rejected == alone.num_rejected


@every_procedure
def test_decisions_do_not_depend_on_the_future(name):
    kernel, alpha = COMPILED[name], jnp.float32(0.2)
    p = stream(5)
    np.testing.assert_array_equal(np.asarray(kernel(p, alpha).reject)[:30], kernel(p[:30], alpha).reject)


@every_procedure
def test_batches_and_small_streams(name):
    kernel, alpha = COMPILED[name], jnp.float32(0.2)
    many = np.stack([stream(seed) for seed in range(4)])
    batched = np.asarray(jax.vmap(lambda p: kernel(p, alpha))(many).reject)
    for i, p in enumerate(many):
        np.testing.assert_array_equal(batched[i], kernel(p, alpha).reject)
    assert int(kernel(np.zeros(0, np.float32), alpha).num_tests) == 0
    assert kernel(np.zeros(1, np.float32), alpha).reject.tolist() == [True]
    assert int(kernel(np.full(3, np.nan, np.float32), alpha).num_rejected) == 0


@every_procedure
@pytest.mark.parametrize("alpha", [0.0, 1.0, jnp.nan])
def test_traced_level_out_of_range(name, alpha):
    got = COMPILED[name](np.zeros(4, np.float32), jnp.float32(alpha))
    assert not np.asarray(got.reject).any()
    assert np.isnan(got.levels).all()


@every_procedure
def test_static_level_out_of_range(name):
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


def test_bad_options():
    for call in (
        lambda: online.gamma(3, "flat"),
        lambda: online.lond(jnp.zeros(2), 0.1, dependence="negative"),
        lambda: online.saffron(jnp.zeros(2), 0.1, lambda_=1.0),
        lambda: online.lord_plus_plus(jnp.zeros(2), 0.1, initial_wealth=1.0),
    ):
        with pytest.raises(ValueError, match="must"):
            call()
