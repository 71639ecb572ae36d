"""Exact fractions: levels, comparisons of long products, quotients."""

import math
import random
from decimal import Decimal
from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import lattice, stepup


def test_a_decimal_level_is_the_fraction_that_it_looks_like():
    for alpha, expected in [
        (0.1, Fraction(1, 10)),
        (np.float64(0.05), Fraction(1, 20)),
        (np.float32(0.1), Fraction(1, 10)),
        (Decimal("0.15"), Fraction(3, 20)),
        (Fraction(2, 7), Fraction(2, 7)),
        (0.123456, Fraction(123456, 10**6)),
        (1 / 3, Fraction(1, 3)),
    ]:
        level = lattice.as_level(alpha)
        assert Fraction(int(level.numerator), int(level.denominator)) == expected
        assert lattice.is_exact(level)


def test_bounds_of_a_level_bracket_it_in_both_precisions():
    for alpha in np.arange(1, 100) / 100:
        level = lattice.as_level(alpha)
        below, above = np.float32(level.below32), np.float32(level.above32)
        assert float(below) <= alpha < float(above)
        assert below <= np.float32(alpha) < above
        assert np.nextafter(np.nextafter(below, np.float32(1)), np.float32(1)) >= above


def test_a_jax_level_stays_a_float():
    level = lattice.as_level(jnp.float32(0.1))
    assert not lattice.is_exact(level)
    assert lattice.as_level(level) is level
    assert jax.jit(lambda a: lattice.as_level(a).value)(0.25) == 0.25


@pytest.mark.parametrize("alpha", [0, 1, -0.5, 2, float("nan"), 1e-12])
def test_levels_out_of_range(alpha):
    with pytest.raises(ValueError, match="alpha must lie"):
        lattice.as_level(alpha)


@pytest.mark.parametrize("factors", [1, 2, 5])
def test_products_compare_as_integers_do(factors):
    rng = random.Random(factors)
    left, right = [], []
    for _ in range(3000):
        a = [rng.randrange(2 ** rng.choice([1, 8, 16, 17, 31])) for _ in range(factors)]
        b = rng.sample(a, factors)  # equal products
        if rng.random() < 0.6:
            b[0] = min(max(b[0] + rng.choice([-1, 1]), 0), 2**31 - 1)
        left.append(a)
        right.append(b)
    columns = [tuple(np.array(side, np.int32).T) for side in (left, right)]
    got = np.asarray(jax.jit(lattice.product_le)(*columns))
    expected = [math.prod(a) <= math.prod(b) for a, b in zip(left, right)]
    assert got.tolist() == expected
    assert 0 < sum(expected) < len(expected)


@pytest.mark.parametrize("seed", range(6))
def test_narrow_and_static_factors_change_no_comparison(seed):
    rng = random.Random(seed)
    for _ in range(20):
        sides = []
        for _ in ("left", "right"):
            factors = []
            for _ in range(rng.randint(1, 4)):
                most = 2 ** rng.choice([1, 4, 8, 9, 16, 17, 31]) - 1
                values = [rng.choice([0, 1, most, most // 2 + 1, rng.randint(0, most)]) for _ in range(64)]
                static = rng.random() < 0.4
                factors.append(values[0] if static else lattice.narrow(np.array(values, np.int32), most))
            sides.append(factors)
        if rng.random() < 0.4:
            sides[1] = sides[0][::-1]
        products = [np.prod([np.broadcast_to(np.array(f, object), 64) for f in side], axis=0) for side in sides]
        found = np.broadcast_to(lattice.product_le(*map(tuple, sides)), 64)
        np.testing.assert_array_equal(found, products[0] <= products[1])


def test_a_product_of_33_bits_does_not_wrap():
    third = jnp.int32(1_431_655_766)  # three times it is 2^32 + 2
    assert not lattice.product_le((3, third), (5,))
    assert lattice.product_le((5,), (3, third))


@jax.jit
@jax.vmap
def floor_and_ceil(numerator, denominator):
    """Beside the largest bound, which is static, smaller ones."""
    return {bound: [ratio(numerator, denominator, bound) for ratio in RATIOS] for bound in (1, 1000, 2**29)}


RATIOS = (lattice.floor_ratio, lattice.ceil_ratio)


@pytest.mark.parametrize("bound", [1, 1000, 2**29])
def test_quotients_are_exact(bound):
    rng = random.Random(bound)
    quotients, expected = [], []
    for _ in range(300):
        denominator = tuple(rng.randrange(1, 10 ** rng.choice([1, 3, 5])) for _ in range(3))
        numerator = [rng.randrange(int(bound * 1.2) + 1), *denominator]
        if rng.random() < 0.6:
            numerator[1] = max(0, numerator[1] + rng.choice([-1, 1]))
        a, b = math.prod(numerator), math.prod(denominator)
        quotients.append((numerator, denominator))
        expected.append((min(a // b, bound), min(-(-a // b), bound + 1)))
    terms = [tuple(np.array(side, np.int32).T) for side in zip(*quotients, strict=True)]
    found = floor_and_ceil(*terms)[bound]
    np.testing.assert_array_equal(np.transpose(found), expected)


def test_zero_denominator_allows_everything():
    floor = jax.jit(lambda *terms: lattice.floor_ratio((terms[0],), (terms[1],), 7))
    assert [int(floor(*terms)) for terms in ((3, 0), (0, 0), (0, 5))] == [7, 7, 0]


@pytest.mark.parametrize(("n", "m"), [(254, 255), (255, 256), (65_535, 256)])
def test_decisions_where_a_type_of_counts_ends(n, m):
    """BH on ranks by fractions: counts of 255, 256 and 65,536 beside their bounds."""
    decide = jax.jit(lambda rank, level: stepup.bh_ranks(rank, n, level, max_rank=n + 1).reject)
    level = jax.tree.map(jnp.asarray, lattice.as_level(0.5))
    for seed in range(8):
        rng = np.random.default_rng(seed)
        rank = rng.integers(1, 1 + [1, n // 3, n + 1, 2][seed % 4], m)
        rank[: seed * m // 8] = n + 1
        most = [k for k in range(1, m + 1) if sum(r * m * 2 <= k * (n + 1) for r in rank.tolist()) >= k]
        cut = max(most, default=0) * (n + 1)
        assert np.asarray(decide(rank.astype(np.int32), level)).tolist() == [r * m * 2 <= cut for r in rank.tolist()]


def test_a_bound_of_ranks_below_n_is_refused():
    with pytest.raises(ValueError, match=r"max_rank=10 must be at least n \+ 1 = 11"):
        stepup.bh_ranks(jnp.array([1, 2]), 10, 0.1, max_rank=10)


def test_factors_of_other_types_count_as_integers():
    for one in (True, np.True_, 1.0, np.float32(1), jnp.asarray(True), jnp.float32(1), np.int8(1)):
        assert lattice.product_le((one, jnp.int32(4)), (4,))
        assert not lattice.product_le((one, jnp.int32(5)), (4,))
