"""Running sums, maxima and minima: NumPy's to the bit, alone, in batches and backwards."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import running

KERNELS = {"cumsum": np.add, "cummax": np.maximum, "cummin": np.minimum}


def expected(name, values, reverse):
    turned = values[:, ::-1] if reverse else values
    found = KERNELS[name].accumulate(turned, axis=1, dtype=values.dtype)
    return found[:, ::-1] if reverse else found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", KERNELS)
@pytest.mark.parametrize("size", [0, 1, 2, 37])
def test_they_are_numpys(name, reverse, size):
    rng = np.random.default_rng(size)
    values = rng.integers(-99, 99, (3, size)).astype(np.int32)
    kernel = getattr(running, name)
    for given in (values, *([] if name == "cumsum" else [rng.normal(size=(3, size)).astype(np.float32)])):
        wanted = expected(name, given, reverse)
        one = np.stack([kernel(jnp.asarray(row), reverse=reverse) for row in given])
        batch = jax.jit(jax.vmap(lambda row: kernel(row, reverse=reverse)))(given)
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(batch, wanted)
        assert one.dtype == given.dtype


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_after_nan_all_are_nan(name):
    values = jnp.array([1.0, jnp.nan, 5.0, -3.0])
    np.testing.assert_array_equal(getattr(running, name)(values), [1, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(getattr(running, name)(values, reverse=True)[:2], [np.nan, np.nan])
