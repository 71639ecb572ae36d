"""Which keys a function draws from: none twice, even where JAX calls a key of `split` and one of `fold_in` equal."""

import collections
import contextlib

import jax
import numpy as np

SAMPLERS = (
    "bernoulli", "beta", "binomial", "bits", "categorical", "choice", "dirichlet", "exponential", "gamma", "gumbel",
    "laplace", "loggamma", "normal", "permutation", "poisson", "randint", "t", "truncated_normal", "uniform",
)  # fmt: skip


@contextlib.contextmanager
def recorded(monkeypatch):
    """Count the uses of each key outside of traces: draws from it, and divisions of it into others.

    `jax.random.split(key, n)[i]` is `fold_in(key, i)` where `jax_threefry_partitionable` is set, as it is by default.
    """
    uses = collections.Counter()

    def counted(function):
        def called(key, *arguments, **options):
            words = jax.random.key_data(key) if jax.dtypes.issubdtype(key.dtype, jax.dtypes.prng_key) else key
            if not isinstance(words, jax.core.Tracer):
                for one in np.asarray(words).reshape(-1, words.shape[-1]):
                    uses[tuple(one.tolist())] += 1
            return function(key, *arguments, **options)

        return called

    with monkeypatch.context() as patch:
        for name in (*SAMPLERS, "split"):
            patch.setattr(jax.random, name, counted(getattr(jax.random, name)))
        yield uses
