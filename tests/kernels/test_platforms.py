"""What is computed in another way on an accelerator: the same numbers as on a CPU."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import platforms


def off_by(quotients, units):
    """The float32 some units in the last place away, as a GPU's division may leave it."""
    return (quotients.view(np.int32) + units).view(np.float32)


def twice(numerator, denominator, guess):
    return platforms.settled(numerator, denominator, platforms.settled(numerator, denominator, guess))


@pytest.mark.parametrize("units", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("largest", [50, 5_000, 2**24, 2**29])
def test_an_inexact_quotient_is_rounded_correctly(units, largest):
    """The oracle is double precision: a quotient of two float32 is never midway between two others."""
    rng = np.random.default_rng(0)
    denominator = rng.integers(1, largest, 100_000).astype(np.float32)
    numerator = np.maximum(np.floor(denominator * rng.random(100_000)).astype(np.float32), 1)
    exact = (numerator.astype(np.float64) / denominator).astype(np.float32)
    found = jax.jit(twice)(numerator, denominator, off_by(exact, units))
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("units", [-2, 2])
def test_every_quotient_of_small_numbers(units):
    """Powers of two, where the distance to the next float32 changes, and 0 and 1 are among them."""
    numerator, denominator = (
        side.ravel().astype(np.float32) for side in np.meshgrid(np.arange(600), np.arange(1, 600))
    )
    possible = numerator <= denominator
    numerator, denominator = numerator[possible], denominator[possible]
    exact = numerator / denominator
    guess = np.where(numerator > 0, off_by(exact, units), 0)
    np.testing.assert_array_equal(jax.jit(twice)(numerator, denominator, guess), exact)


def test_one_correction_is_not_enough_two_units_away():
    """The broken twin: without the second correction the test above would fail."""
    numerator, denominator = np.arange(1, 999, dtype=np.float32), np.full(998, 999, np.float32)
    exact = numerator / denominator
    once = jax.jit(platforms.settled)(numerator, denominator, off_by(exact, 2))
    assert not np.array_equal(once, exact)


def test_other_types_divide_plainly():
    with jax.enable_x64(True):
        one, three = jnp.float64(1), jnp.float64(3)
        assert platforms.quotient(one, three) == 1 / 3
    assert jax.jit(platforms.quotient)(jnp.float32(1), jnp.float32(3)) == np.float32(1) / np.float32(3)


def test_stored_values_are_the_same_and_have_their_gradient():
    x = jnp.arange(5.0)
    np.testing.assert_array_equal(jax.jit(platforms.stored)(x), x)
    np.testing.assert_array_equal(jax.grad(lambda x: (platforms.stored(x) ** 2).sum())(x), 2 * x)
