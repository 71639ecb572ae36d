"""JAX reads NumPy arrays where they lie, while the caller goes on: what callers may overwrite is copied first."""

import array

import jax
import numpy as np
import pandas as pd
import pytest

import tdd
from tdd.validate import arrays


@pytest.mark.parametrize("of", [np.asarray, pd.Series, lambda x: array.array("d", x), memoryview])
def test_checked_arrays_share_no_memory_with_those_given(of):
    own = np.arange(6.0)
    given = of(own)
    checked = arrays.as_vector(given, "scores")
    own[:] = np.nan
    if isinstance(given, array.array):
        given[:] = array.array("d", own)
    np.testing.assert_array_equal(checked, np.arange(6.0))
    matrix, mask = np.ones((2, 3), np.float32), np.ones(3, bool)
    for check in (lambda x: arrays.as_matrix(x, "scores", "[K, n]"), lambda x: arrays.as_rows(x, "p_values")):
        assert not np.shares_memory(check(matrix), matrix)
    assert not np.shares_memory(arrays.as_mask(mask, mask, "mask"), mask)


def aligned(values):
    """A copy that JAX's CPU client would use as it lies."""
    memory = np.empty(values.nbytes + 64, np.uint8)
    first = -memory.ctypes.data % 64
    found = memory[first : first + values.nbytes].view(values.dtype).reshape(values.shape)
    found[...] = values
    return found


RNG = np.random.default_rng(0)
SIZE = 2**16  # a common size: nothing is lengthened, and so copied
SCORES, OTHERS = RNG.normal(size=SIZE).astype(np.float32), RNG.normal(size=(SIZE, 3)).astype(np.float32)
MASK = RNG.random(SIZE) < 0.9


@pytest.mark.parametrize(
    ("call", "given"),
    [
        (lambda p, mask: tdd.e_bh(p, 0.1, mask=mask), (np.exp(SCORES), MASK)),
        (lambda s, k, mask: tdd.ktd(s, k, alpha=0.1, mask=mask), (SCORES, OTHERS, MASK)),
        (lambda p, mask: tdd.shiryaev_roberts(p, 1_000, mask=mask), (RNG.random(SIZE).astype(np.float32), MASK)),
        (lambda c, s, mask: tdd.ptdi(c, s, alpha=0.1, mask=mask), (SCORES[::-1].copy(), SCORES, MASK)),
        (lambda p: tdd.bh(p, 0.1), (RNG.random(SIZE),)),
    ],
    ids=["e_bh", "ktd", "shiryaev_roberts", "ptdi", "bh"],
)
def test_results_are_those_of_the_call(call, given):
    expected = jax.device_get(call(*given))
    for _ in range(5):
        own = [aligned(values) for values in given]
        found = call(*own)
        for values in own:
            values[...] = 0
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(found), expected)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize(
    "of", [lambda x: x.astype(x.dtype.newbyteorder(">")), lambda x: pytest.importorskip("torch").from_numpy(x)]
)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_other_byte_orders_and_tensors_give_the_same(of, dtype):
    """At a common size, and after the program is there: JAX would read the bytes as they lie."""
    p, other = RNG.random((2, 64)).astype(dtype) ** 3
    ranks = np.arange(1, 65, dtype=np.int32)
    for call, *given in (
        (lambda p: tdd.bh(p, 0.2), p),
        (lambda p: tdd.lond(p, 0.2), p),
        (lambda p: tdd.local_fdr(p), p),
        (lambda p: tdd.combine_p_values(p, method="fisher"), p),
        (lambda c, s: tdd.conformal_p_values(c, s, null="nonmember"), p, other),
        (lambda c, s: tdd.ptdi(c, s, alpha=0.4, proportion="subtraction"), p, other),
        (lambda s, k: tdd.ktd(s, np.asarray(k)[:, None], alpha=0.4), p, other),
        (lambda r: tdd.fdp_bounds_of_ranks(r, 64, null="nonmember", key=jax.random.key(0), num_draws=99), ranks),
    ):
        expected = jax.device_get(call(*given))
        jax.tree.map(np.testing.assert_array_equal, jax.device_get(call(*map(of, given))), expected)
