"""What is computed in another way on an accelerator: the same numbers as on a CPU."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.kernels import platforms


def off_by(quotients, units):
    """The float32 some units in the last place away, as a GPU's division may leave it."""
    return (quotients.view(np.int32) + units).view(np.float32)


@pytest.mark.parametrize("units", [-2, -1, 0, 1, 2])
@pytest.mark.parametrize("largest", [50, 5_000, 2**24, 2**28])
def test_an_inexact_quotient_is_rounded_correctly(units, largest):
    """The oracle is double precision: a quotient of two float32 is never midway between two others."""
    rng = np.random.default_rng(0)
    denominator = rng.integers(1, largest, 100_000).astype(np.float32)
    numerator = np.maximum(np.floor(denominator * rng.random(100_000)).astype(np.float32), 1)
    exact = (numerator.astype(np.float64) / denominator).astype(np.float32)
    found = jax.jit(platforms.rounded)(numerator, denominator, off_by(exact, units))
    np.testing.assert_array_equal(found, exact)


@pytest.mark.parametrize("units", [-4, -2, 2, 4])
def test_every_quotient_of_small_numbers(units):
    """Powers of two, where the distance to the next float32 changes, and 0 and 1 are among them."""
    numerator, denominator = (
        side.ravel().astype(np.float32) for side in np.meshgrid(np.arange(600), np.arange(1, 600))
    )
    possible = numerator <= denominator
    numerator, denominator = numerator[possible], denominator[possible]
    exact = numerator / denominator
    guess = np.where(numerator > 0, off_by(exact, units), 0)
    np.testing.assert_array_equal(jax.jit(platforms.rounded)(numerator, denominator, guess), exact)


@pytest.mark.parametrize("exponent", [0, -3])
def test_below_a_power_of_two_the_next_number_is_half_as_far(exponent):
    """1 - 2^-24 lies midway between 1 and the number that would follow at the distance of those above 1."""
    numerator, denominator = np.float32(2**24 - 1), np.float32(2.0 ** (24 - exponent))
    exact = numerator / denominator
    found = jax.jit(platforms.rounded)(numerator, denominator, np.float32(2.0**exponent))
    assert found == exact


def test_one_correction_is_not_enough_two_units_away():
    """The broken twin: without the second correction the test above would fail."""
    numerator, denominator = np.arange(1, 999, dtype=np.float32), np.full(998, 999, np.float32)
    exact = numerator / denominator
    once = jax.jit(platforms.settled)(numerator, denominator, off_by(exact, 2))
    assert not np.array_equal(once, exact)


@pytest.mark.parametrize("wide", [False, True])
def test_a_divisor_that_is_known_while_compiling(wide):
    """The compiler multiplies by its rounded reciprocal, which is another number for 30 of 100."""
    with jax.enable_x64(wide):
        dtype = np.float64 if wide else np.float32
        numerator, whole = np.arange(100, dtype=dtype), np.full(100, 100, dtype)
        found = jax.jit(lambda numerator: platforms.quotient(numerator, jnp.asarray(whole)))(numerator)
        np.testing.assert_array_equal(found, numerator / whole)


def test_other_types_divide_plainly():
    with jax.enable_x64(True):
        one, three = jnp.float64(1), jnp.float64(3)
        assert platforms.quotient(one, three) == 1 / 3
    assert jax.jit(platforms.quotient)(jnp.float32(1), jnp.float32(3)) == np.float32(1) / np.float32(3)


def test_stored_values_are_the_same_and_have_their_gradient():
    x = jnp.arange(5.0)
    np.testing.assert_array_equal(jax.jit(platforms.stored)(x), x)
    np.testing.assert_array_equal(jax.grad(lambda x: (platforms.stored(x) ** 2).sum())(x), 2 * x)


def in_parts(left, right, terms):
    """A product as the sum of products of bfloat16 parts in float32: what `product` asks of a GPU."""
    split = []
    for values in (left, right):
        parts, rest = [], values
        for _ in range(3):
            parts.append(rest.astype(jnp.bfloat16).astype(jnp.float32))
            rest = rest - parts[-1]
        split.append(parts)
    pairs = sorted(((i, j) for i in range(3) for j in range(3)), key=sum)[:terms]
    return sum(jnp.matmul(split[0][i], split[1][j].T, precision="highest") for i, j in reversed(pairs))


@pytest.mark.parametrize(("terms", "accurate"), [(6, True), (3, False), (1, False)])
def test_six_products_of_parts_are_as_accurate_as_float32(terms, accurate):
    """One and three are the broken twins: bfloat16, and what is dropped of three parts is not yet small enough."""
    rng = np.random.default_rng(0)
    left, right = (jnp.asarray(rng.normal(size=(100, 768)), jnp.float32) for _ in range(2))
    exact = np.asarray(left, float) @ np.asarray(right, float).T
    plain = np.abs(platforms.product("nd,vd->nv", left, right) - exact).max()
    assert (np.abs(in_parts(left, right, terms) - exact).max() < 2 * plain) == accurate


@pytest.mark.parametrize("platform", ["cpu", "cuda", "rocm", "tpu"])
def test_only_nvidia_multiplies_in_parts(platform):
    arguments = (jnp.ones((4, 8)), jnp.ones((3, 8)))
    traced = jax.jit(lambda *given: platforms.product("nd,vd->nv", *given)).trace(*arguments)
    text = traced.lower(lowering_platforms=(platform,)).as_text()
    assert ("algorithm" in text) == (platform == "cuda")


@pytest.mark.parametrize("subscripts", ["nd,vd->nv", "bnd,bvd->bnv", "nd,bvd->bnv"])
@pytest.mark.parametrize("rows", [1, 2])
def test_a_vector_is_not_multiplied_in_parts(subscripts, rows):
    """Of such a product XLA's compiler for NVIDIA rounds each product of two parts to bfloat16."""
    shapes = {"n": rows, "d": 8, "v": 3, "b": 2}
    arguments = [jnp.ones([shapes[axis] for axis in factor]) for factor in subscripts.partition("->")[0].split(",")]
    for order in (slice(None), slice(None, None, -1)):
        given = ",".join(subscripts.partition("->")[0].split(",")[order]) + "->" + subscripts.partition("->")[2]
        traced = jax.jit(functools.partial(platforms.product, given)).trace(*arguments[order])
        text = traced.lower(lowering_platforms=("cuda",)).as_text()
        assert ("algorithm" in text) == (rows > 1)
        assert "algorithm" in text or "HIGHEST" in text


@pytest.mark.parametrize(
    ("capabilities", "since"),
    [(["9.0"], True), (["9.0", "7.5"], False), ([None], True), (["gfx942"], True), (["12.1"], True)],
)
def test_old_gpus_are_known(capabilities, since, monkeypatch):
    devices = [type("Device", (), {"compute_capability": capability}) for capability in capabilities]
    monkeypatch.setattr(jax, "local_devices", lambda: devices)
    assert platforms.all_gpus_since_ampere.__wrapped__() == since


# Running sums, maxima and minima: NumPy's to the bit, alone, in batches and backwards


RUNNING = {"cumsum": np.add, "cummax": np.maximum, "cummin": np.minimum}


def accumulated(name, values, reverse):
    turned = values[:, ::-1] if reverse else values
    found = RUNNING[name].accumulate(turned, axis=1, dtype=values.dtype)
    return found[:, ::-1] if reverse else found


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("name", RUNNING)
@pytest.mark.parametrize("size", [0, 1, 2, 37])
def test_they_are_numpys(name, reverse, size):
    rng = np.random.default_rng(size)
    values = rng.integers(-99, 99, (3, size)).astype(np.int32)
    kernel = getattr(platforms, name)
    for given in (values, *([] if name == "cumsum" else [rng.normal(size=(3, size)).astype(np.float32)])):
        wanted = accumulated(name, given, reverse)
        one = np.stack([kernel(jnp.asarray(row), reverse=reverse) for row in given])
        batch = jax.jit(jax.vmap(lambda row: kernel(row, reverse=reverse)))(given)
        np.testing.assert_array_equal(one, wanted)
        np.testing.assert_array_equal(batch, wanted)
        assert one.dtype == given.dtype


@pytest.mark.parametrize("name", ["cummax", "cummin"])
def test_after_nan_all_are_nan(name):
    values = jnp.array([1.0, jnp.nan, 5.0, -3.0])
    np.testing.assert_array_equal(getattr(platforms, name)(values), [1, np.nan, np.nan, np.nan])
    np.testing.assert_array_equal(getattr(platforms, name)(values, reverse=True)[:2], [np.nan, np.nan])


@pytest.mark.parametrize("rows", [1, 2, 5, 64, 65, 130])
def test_rows_are_joined_from_the_first_to_the_last(rows):
    """In this order the sums have the bits of NumPy, which adds rows so, and those of more than 64 rows in groups
    of 64; one row holds a NaN."""
    values = np.random.default_rng(0).standard_cauchy((rows, 70)).astype(np.float32)
    values[rows // 2, 3] = np.nan
    joins = {jnp.sum: np.add, jnp.prod: np.multiply, jnp.max: np.maximum, jnp.min: np.minimum}

    @jax.jit
    def alone_and_in_a_batch(values):
        calls = [functools.partial(platforms.over_rows, reduce) for reduce in joins]
        return [(call(values), jax.vmap(call)(values[None])[0]) for call in calls]

    with jax.default_device(jax.devices("cpu")[0]):  # an accelerator adds in its own order
        found = alone_and_in_a_batch(values)
    for (reduce, join), both in zip(joins.items(), found, strict=True):
        groups = np.split(values, range(64, rows, 64)) if reduce is jnp.sum else [values]
        expected = functools.reduce(join, [functools.reduce(join, group) for group in groups])
        for each in both:
            np.testing.assert_array_equal(each, expected)
