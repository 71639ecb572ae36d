"""How far rounding can move a result: bounds from arithmetic, the same on every processor.

A chain of k roundings changes a result by a factor within 1 ± gamma(k) (Higham, Accuracy and Stability of Numerical
Algorithms, 2002, lemma 3.1), in whatever order and with or without fused operations. Sums of terms of both signs have
this bound relative to the sum of their magnitudes.
"""

import numpy as np


def gamma(roundings, dtype=np.float32):
    """k u / (1 - k u), with u half the distance from 1 to the next number of the type."""
    k_u = roundings * float(np.finfo(dtype).eps) / 2
    assert k_u < 1, f"{roundings} roundings of {np.dtype(dtype)} leave no digit"
    return k_u / (1 - k_u)


def assert_close(found, exact, *, roundings, dtype=np.float32, scale=None):
    """Assert that found values are the exact ones but for a number of roundings.

    Args:
      found: Array.
      exact: The same in wider arithmetic, or recorded from it; NaN and infinities must stand at the same places.
      roundings: The longest chain of operations from an input to a value. An elementary function counts as the units
        in the last place that its library states, at most 4; a product of width n as n, a network of depth d as d n.
      dtype: The narrower arithmetic.
      scale: Magnitude of what is summed, a number or an array, where terms can cancel; by default every value's own.
    """
    found, exact = np.asarray(found, np.float64), np.asarray(exact, np.float64)
    assert found.shape == exact.shape, f"shapes {found.shape} and {exact.shape}"
    np.testing.assert_array_equal(np.isnan(found), np.isnan(exact))
    infinite = np.isinf(exact) | np.isinf(found)
    np.testing.assert_array_equal(found[infinite], exact[infinite])
    allowed = gamma(roundings, dtype) * np.broadcast_to(np.abs(exact) if scale is None else scale, exact.shape)
    finite = np.isfinite(exact)
    off = np.abs(np.subtract(found, exact, where=finite, out=np.zeros_like(exact)))
    excess = np.where(finite, off - allowed, 0)
    worst = np.unravel_index(np.argmax(excess), excess.shape) if excess.size else ()
    assert not (excess > 0).any(), (
        f"at {tuple(map(int, worst))} found {found[worst]!r} for {exact[worst]!r}, off by "
        f"{off[worst]:.2e} where {roundings} roundings allow {allowed[worst]:.2e}"
    )
