"""Laws of randomised and shared tie-breaking that one draw can show."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import tdd
from tdd.kernels import conformal, ranks

CALIBRATION = np.array([1.0, 2.0, 2.0, 3.0, 5.0, 5.0, 5.0, 8.0], np.float32)
SCORES = np.array([0.0, 2.0, 5.0, 9.0, 4.0, 8.0, np.nan], np.float32)


@pytest.mark.parametrize("null", conformal.NULLS)
def test_randomised_lies_between_strict_and_conservative(null):
    conservative = np.asarray(tdd.conformal_p_values(CALIBRATION, SCORES, null=null))
    flipped = "member" if null == "nonmember" else "nonmember"
    strict = 1 + 1 / 9 - np.asarray(tdd.conformal_p_values(CALIBRATION, SCORES, null=flipped))
    strict = strict - 1 / 9  # #{strictly more extreme}/(n + 1)
    for seed in range(50):
        p = np.asarray(
            tdd.conformal_p_values(CALIBRATION, SCORES, null=null, tie_break="randomized", key=jax.random.key(seed))
        )
        assert np.isnan(p[-1])
        assert (p[:-1] > 0).all()
        assert (p[:-1] > strict[:-1] - 1e-6).all()
        assert (p[:-1] <= conservative[:-1] + 1e-6).all()


@pytest.mark.parametrize("null", conformal.NULLS)
@pytest.mark.slow("long")
def test_shared_order_refines_the_scores(null):
    conservative = conformal.rank(CALIBRATION, SCORES, null=null).rank
    seen = set()
    for seed in range(60):
        ranked = conformal.rank(CALIBRATION, SCORES, null=null, tie_break="shared", key=jax.random.key(seed))
        assert (ranked.rank <= conservative)[:-1].all()
        assert ranked.rank[-1] == len(CALIBRATION) + 2
        assert ranked.rank[0] == conservative[0]  # no tie, no choice
        assert ranked.rank[4] == conservative[4]
        seen.add(int(ranked.rank[2]))
    less = int((CALIBRATION < 5).sum() if null == "nonmember" else (CALIBRATION > 5).sum())
    assert seen == {less + 1, less + 2, less + 3, less + 4}


def test_shared_order_of_two_tied_items_is_one_order():
    """Both test items and the calibration item share one order: never may both stand before it twice as often."""
    counts = np.zeros(3)
    call = jax.jit(
        lambda key: (
            conformal.rank(
                np.zeros(1, np.float32), np.zeros(2, np.float32), null="nonmember", tie_break="shared", key=key
            ).rank
        )
    )
    for seed in range(600):
        counts[int((call(jax.random.key(seed)) == 1).sum())] += 1
    assert (np.abs(counts / 600 - 1 / 3) < 0.09).all()  # 4.7 standard errors


def test_unknown_options():
    with pytest.raises(ValueError, match="null"):
        conformal.rank(CALIBRATION, SCORES, null="both")
    with pytest.raises(ValueError, match="key"):
        conformal.rank(CALIBRATION, SCORES, null="member", tie_break="shared")


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int32, np.int8, np.uint8])
def test_keys_keep_the_order_and_the_ties(dtype):
    values = [0, 1, 2, 100, 127, 3, 3] if np.dtype(dtype).kind == "u" else [0, -1, 100, -100, 3, 3, -2, 127, -128]
    if np.dtype(dtype).kind == "f":
        values = [*values, -0.0, 0.5, -0.5, np.inf, -np.inf, 6e-5, -6e-5]
    values = np.array(values, dtype)
    keys, real = ranks.order_keys(jnp.asarray(values))
    assert real.all()
    assert jnp.issubdtype(keys.dtype, jnp.integer)
    np.testing.assert_array_equal(np.argsort(keys, kind="stable"), np.argsort(values, kind="stable"))
    np.testing.assert_array_equal(np.equal.outer(keys, keys), np.equal.outer(values, values))


def test_keys_of_what_does_not_count_are_the_largest():
    keys, real = ranks.order_keys(jnp.array([1.0, jnp.nan, 5.0, -jnp.inf]), jnp.array([True, True, False, True]))
    assert real.tolist() == [True, False, False, True]
    assert (np.asarray(keys)[[1, 2]] == np.iinfo(np.int32).max).all()


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 9, 100])
def test_the_search_of_a_gpu_is_that_of_numpy(size):
    """With ties, and with what does not count at the end."""
    rng = np.random.default_rng(size)
    ordered = np.sort(np.append(rng.integers(-3, 9, size - 1), np.iinfo(np.int32).max)).astype(np.int32)
    queries = np.arange(-5, 12, dtype=np.int32)
    for goes_on, side in ((jnp.less, "left"), (jnp.less_equal, "right")):
        found = jax.jit(ranks._search, static_argnums=2)(ordered, queries, goes_on)
        np.testing.assert_array_equal(found, np.searchsorted(ordered, queries, side))
        assert found.dtype == jnp.int32


@pytest.mark.parametrize("spec", [P("d"), P()])
def test_ranks_and_selections_inside_shard_map(spec):
    """JAX follows which values differ between devices, in the branches for other platforms too."""
    mesh = jax.sharding.Mesh(jax.devices()[:1], "d")
    shared = functools.partial(jax.shard_map, mesh=mesh, in_specs=(P("d"), spec), out_specs=P("d"))
    calibration, scores = np.arange(12.0), np.arange(7.0) - 3
    for function in (
        lambda c, s: ranks.counts(c, s).less,
        lambda c, s: tdd.ptdi(c, s, alpha=0.5, proportion="storey").selected,
    ):
        inside = jax.jit(shared(lambda c, s, function=function: function(c[0], s[0])[None]))
        np.testing.assert_array_equal(inside(calibration[None], scores[None])[0], function(calibration, scores))


@pytest.mark.parametrize("name", ["bh", "hommel", "e_bh", "lord_plus_plus"])
def test_procedures_inside_shard_map(name):
    """The page of procedures says check_vma=False: with JAX's default their loops are refused."""
    p_values = np.linspace(0.001, 0.3, 9)
    values = 1 / p_values if name == "e_bh" else p_values
    mesh = jax.sharding.Mesh(jax.devices()[:1], "d")

    def one(values):
        return getattr(tdd, name)(values[0], alpha=0.2).reject[None]

    shared = jax.shard_map(one, mesh=mesh, in_specs=P("d"), out_specs=P("d"), check_vma=False)
    np.testing.assert_array_equal(jax.jit(shared)(values[None]), one(values[None]))


def test_subnormal_numbers_are_told_apart():
    """A processor that takes them for 0 in floating-point comparisons does not in those of their keys."""
    calibration, scores = (np.float32(1.4e-45) * np.array(x, np.float32) for x in ([2, 6], [-8, 0, 4, 8]))
    ranked = conformal.rank(jnp.asarray(calibration), jnp.asarray(scores), null="nonmember")
    assert ranked.rank.tolist() == [1, 1, 2, 3]
