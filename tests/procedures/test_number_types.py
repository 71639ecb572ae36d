"""The same numbers in any type give the same result: unsigned, 16 and 8 bits, objects; what are no numbers is named."""

from fractions import Fraction

import jax
import jax.numpy as jnp
import numpy as np
import pandas as pd
import pytest

import tdd
from tdd.kernels import lattice

KEY = jax.random.key(0)
UNSIGNED = [np.dtype(f"uint{bits}").type for bits in (8, 16, 32, 64)]
SMALL = np.array([1, 2, 3, 7, 0, 5])
PANEL = np.array([[0, 5, 4], [1, 6, 7], [2, 1, 3], [0, 2, 9], [3, 8, 4]])

CALLS = {
    "version_test": lambda to: tdd.version_test(to(PANEL[:, 0]), to(PANEL[:, 1:])),
    "dataset_inference": lambda to: tdd.dataset_inference(
        to(np.arange(9)[None] // 4), to(np.arange(9)[None] + 1), key=KEY, num_draws=99
    ),
    "knockoff_fdp_bounds": lambda to: tdd.knockoff_fdp_bounds(to(SMALL)),
    "conformal_p_values": lambda to: tdd.conformal_p_values(to(SMALL), to(PANEL[0]), null="nonmember"),
    "ptdi": lambda to: tdd.ptdi(to(SMALL), to(PANEL[0]), alpha=0.5),
    "best_score": lambda to: tdd.best_score(to(np.stack([SMALL] * 2)), to(PANEL[:2]), alpha=0.5),
    "jmcs": lambda to: tdd.jmcs(to(np.tile(SMALL, (2, 5))), to(np.tile(PANEL[:2], 5)), alpha=0.5),
}


def leaves(result):
    return [np.asarray(leaf) for leaf in jax.tree.leaves(result) if not isinstance(leaf, str)]


WIDER = [pytest.param(name, UNSIGNED[1:], marks=pytest.mark.slow("grid")) for name in CALLS if name != "version_test"]


@pytest.mark.parametrize(
    ("name", "kinds"), [*((name, UNSIGNED[:1]) for name in CALLS), ("version_test", UNSIGNED[1:]), *WIDER]
)
def test_unsigned_scores_are_the_numbers_that_they_are(name, kinds):
    """Negated in their own type 0 stays the least of them, and 1 becomes the largest."""
    expected = leaves(CALLS[name](lambda values: values.astype(np.float32)))
    given = [lambda values, kind=kind: values.astype(kind) for kind in kinds]
    given += [lambda values, kind=kind: jax.device_put(values.astype(kind)) for kind in kinds if kind in UNSIGNED[:2]]
    for to in given:
        for ours, theirs in zip(leaves(CALLS[name](to)), expected, strict=True):
            np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("name", CALLS)
def test_jaxs_unsigned_numbers_without_a_signed_type_are_named(name):
    with pytest.raises(tdd.InputError, match="is a JAX array of uint32, for which JAX has no signed type here; give"):
        CALLS[name](lambda values: jnp.asarray(values, jnp.uint32))


def test_the_smallest_integer_of_a_type_has_a_negative():
    published, private = [-128, -128, -128, -5], [[1, 2], [2, 3], [3, 4], [5, 6]]
    narrow = tdd.version_test(np.array(published, np.int8), np.array(private, np.int8))
    assert narrow.p_value == tdd.version_test(published, private).p_value < 0.02


@pytest.mark.parametrize("kind", UNSIGNED[2:])
def test_the_largest_integers_of_a_type_are_told_apart(kind):
    most = np.iinfo(kind).max
    p = tdd.conformal_p_values(np.array([1, 2, most - 1], kind), np.array([1, most], kind), null="nonmember")
    assert p.tolist() == [0.5, 1.0]


def test_what_is_no_number_is_named():
    seconds = np.array([1, 2, "NaT"], "m8[s]")
    with pytest.raises(tdd.InputError, match=r"calibration must hold numbers, got dtype timedelta64\[s\]"):
        tdd.conformal_p_values(seconds, [1.0], null="member")
    for odd, held in ((np.array([True, 0.5], object), "True"), (pd.Series(["1_5", "0.2"], dtype=object), "'1_5'")):
        with pytest.raises(tdd.InputError, match=f"p_values must be an array of numbers.* it holds {held}"):
            tdd.bh(odd, 0.1)
    with pytest.raises(tdd.InputError, match="grid must be a sequence of numbers"):
        tdd.jecs(PANEL.T, PANEL.T, alpha=0.1, grid=(jnp.bfloat16(0.1),))
    with pytest.raises(tdd.InputError, match="null_proportion must be one number"):
        tdd.local_fdr([0.1, 0.2], null_proportion="0.1")
    assert tdd.bh(np.array([None, 0.01], object), 0.1).reject.tolist() == [False, True]


@pytest.mark.parametrize(
    "mask", [[True, False], (True, False), pd.Series([True, False], index=[7, 3])], ids=["list", "tuple", "series"]
)
def test_a_mask_beside_a_key_may_be_anything_that_a_mask_is(mask):
    options = {"null": "nonmember", "tie_break": "randomized", "key": KEY}
    expected = tdd.conformal_p_values([1.0, 2, 3], [0.5, 2], mask=np.array([True, False]), **options)
    np.testing.assert_array_equal(tdd.conformal_p_values([1.0, 2, 3], [0.5, 2], mask=mask, **options), expected)
    assert tdd.e_bh([40.0, 1], 0.1, key=KEY, mask=mask).reject.tolist() == [True, False]
    with pytest.raises(tdd.InputError, match=r"mask has shape \(2,\), but what it masks has shape \(3,\)"):
        tdd.e_bh([40.0, 1, 1], 0.1, key=KEY, mask=mask)


@pytest.mark.parametrize("level", ["1/10", "3/10", "7/10", "1/20", "3/20", "19/20", "1/100", "1/1000"])
def test_a_level_of_16_bits_is_the_simplest_fraction_that_rounds_to_it(level):
    exact = Fraction(level)
    for kind in (np.float16, jnp.bfloat16.dtype.type, np.float32, np.float64):
        found = lattice.as_level(kind(float(exact)))
        assert (found.numerator, found.denominator) == (exact.numerator, exact.denominator), kind
    assert tdd.bonferroni([float(exact)], np.float16(float(exact))).reject.tolist() == [True]


def test_numbers_of_8_bits_are_computed_in_32():
    assert tdd.bh(jnp.asarray([0.01, 0.5], jnp.float8_e4m3fn), 0.1).reject.tolist() == [True, False]


def test_lambda_may_be_a_fraction():
    p = np.array([1, 2, 5, 6]) / 6
    assert (
        tdd.storey_bh(p, 0.9, lambda_=Fraction(1, 3)).reject.tolist()
        == tdd.storey_bh(p, 0.9, lambda_=2 / 6).reject.tolist()
    )


TYPES = {
    "int64": np.int64,
    "float64": np.float64,
    "float32": np.float32,
    "uint8": np.uint8,
    "jax int32": jnp.int32,
    "jax float32": jnp.float32,
    "jax bfloat16": jnp.bfloat16,
}
PAIRS = [
    ("int64", "float32"),
    ("float64", "int64"),
    ("uint8", "int64"),
    ("jax int32", "float64"),
    ("int64", "jax float32"),
    ("jax int32", "jax float32"),
    ("jax bfloat16", "int64"),
]


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_samples_of_two_types_are_compared_as_numbers(pair):
    """-x of one type and ~x of another do not compare, nor integers with the bits of floats."""
    two_sided = [name for name in CALLS if name != "knockoff_fdp_bounds"]
    for name in two_sided:
        kinds = iter(pair)

        def to(values, kinds=kinds):
            kind = next(kinds)
            return (jnp if kind.startswith("jax") else np).asarray(values, TYPES[kind])

        for found, wanted in zip(leaves(CALLS[name](to)), leaves(CALLS[name](np.float64)), strict=True):
            if wanted.dtype.kind in "bi":
                np.testing.assert_array_equal(found, wanted, err_msg=name)
            elif wanted.dtype.kind == "f":
                np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_published_scores_of_another_type_do_not_undercut():
    """The two sides were turned round apart: 2.5 beside twenty 2 was found at p = 2e-5."""
    assert float(tdd.version_test([2.5] * 10, [[2, 2]] * 10).p_value) == 1
    assert float(tdd.version_test([2] * 3, [[2.5, 2.6]] * 3).p_value) == pytest.approx(1 / 27)
    assert float(tdd.version_test(np.uint8([2]), np.int64([[3]])).p_value) == 0.5


def test_integers_of_64_bits_beside_jaxs_arrays_keep_their_size():
    calibration = jnp.array([0, 1, 2], jnp.int32)
    large = np.array([2**32 - 5])
    for of_type in (jnp.int32, jnp.float32):
        found = tdd.conformal_p_values(calibration.astype(of_type), large, null="nonmember")
        assert found.tolist() == [1.0]
    w = tdd.ktd(jnp.array([5, 6, 7], jnp.int32), np.full((3, 1), 2**32 + 1), alpha=0.5, rule="ktd").statistic
    assert np.asarray(w).tolist() == [2**32] * 3  # in single precision
    found = tdd.conformal_p_values(jnp.array([2**24 + 1]), jnp.array([2.0**24]), null="nonmember")
    assert found.tolist() == [0.5]
    with pytest.raises(tdd.InputError, match="beside traced ones do not fit into int32; give floats, or switch"):
        jax.jit(lambda s: tdd.conformal_p_values(large, s, null="nonmember"))(jnp.array([5.0]))


def test_means_of_clusters_are_formed_in_double_precision():
    scores = np.array([2**24, 1, 1, 2**24, 1, 0])
    for kind in (np.float32, np.float64, jnp.int32):
        sides = (jnp if kind is jnp.int32 else np).asarray(scores, kind)
        found = tdd.cluster_ptdi(sides[:3], scores[3:], [*"aaa"], [*"bbb"], alpha=0.9, proportion="none")
        assert np.asarray(found.adjusted).tolist() == [0.5] * 3
