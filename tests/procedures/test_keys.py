"""Keys of randomised rules."""

import jax
import numpy as np
import scipy.stats

from tdd.procedures import calls


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
