"""Keys of randomised rules."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import scipy.stats

import tdd
from tdd.procedures import calls
from tdd.validate.arrays import key_of_seed


def test_a_key_with_the_hash_of_the_evidence():
    """The same in any order of the items, in both precisions, under jit and with masked items; another for others."""
    rng = np.random.default_rng(0)
    values, real = rng.normal(size=(2, 7)), np.arange(7) != 3
    order = rng.permutation(7)
    key = jax.random.key(0)
    same = [
        calls.key_of(key, (values, real)),
        calls.key_of(key, (values[:, order], real[order])),
        calls.key_of(key, (values[:, real].astype(np.float32), None)),
        calls.key_of(key, (np.where(real, values, np.nan), None)),
        calls.key_of(key, (np.where(real | [[True], [False]], values, np.nan), None)),
        calls.key_of(key, (values, real), (np.zeros(0), None)),
        jax.jit(lambda values: calls.key_of(key, (values, real)))(values),
    ]
    assert len({jax.random.key_data(one).tobytes() for one in same}) == 1
    others = [(values, None), (values[::-1], real), (-values, real), (values[:1], real)]
    found = {jax.random.key_data(calls.key_of(key, one)).tobytes() for one in others}
    assert len(found | {jax.random.key_data(same[0]).tobytes()}) == 5
    drawn = [float(jax.random.uniform(calls.key_of(key, (rng.normal(size=3), None)))) for _ in range(400)]
    assert scipy.stats.kstest(drawn, "uniform").pvalue > 1e-3


@pytest.mark.parametrize("generator", ["threefry2x32", "rbg", "unsafe_rbg"])
def test_keys_of_the_old_kind_have_the_words_of_the_generator(generator):
    scores = np.arange(9.0)
    with jax.default_prng_impl(generator):
        options = {"null": "nonmember", "tie_break": "shared"}
        assert tdd.conformal_p_values(scores, scores - 3, key=jax.random.PRNGKey(0), **options).shape == (9,)
        words = jnp.zeros(4 if generator == "threefry2x32" else 2, jnp.uint32)
        with pytest.raises(tdd.InputError, match=r"must be a PRNG key .* array of uint32"):
            tdd.conformal_p_values(scores, scores - 3, key=words, **options)


def test_a_seed_means_one_key_whatever_the_generator():
    """Audits, studies and guards draw from it; the twin is JAX's own key, which follows the setting."""
    expected = jax.random.uniform(key_of_seed(7), (3,))
    with jax.default_prng_impl("rbg"):
        np.testing.assert_array_equal(jax.random.uniform(key_of_seed(7), (3,)), expected)
        assert (np.asarray(jax.random.uniform(jax.random.key(7), (3,))) != expected).any()


def test_keys_may_be_mapped_over_beside_numpys_arrays():
    calibration, scores = np.linspace(0, 3, 12), np.linspace(-2, 3, 8)

    def drawn(key, own, test):
        clusters = np.arange(12) // 2, 100 + np.arange(8) // 2
        return tdd.cluster_ptdi(own, test, *clusters, alpha=0.4, unit="drawn", key=key).selected

    keys = jax.random.split(jax.random.key(0), 3)
    found = jax.vmap(lambda key: drawn(key, calibration, scores))(keys)
    each = [drawn(key, jnp.asarray(calibration), jnp.asarray(scores)) for key in keys]
    np.testing.assert_array_equal(found, each)
