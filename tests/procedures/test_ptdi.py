"""PTDI against its definition in rational arithmetic, and its behaviour as a public call."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references as ref
from hypothesis import given, settings
from hypothesis import strategies as st

import tdd
from tdd.kernels import stepup, stepup_parts

SMALL, USUAL = (12, 12), (39, 40)
SIZES = [(1, 1), SMALL, USUAL, (60, 41)]
"""Most tests take one of these, so that the call is compiled once for each."""

bh_ranks = jax.jit(stepup.bh_ranks, static_argnames=("num_calibration", "alpha", "max_rank", "scale"))


@jax.jit
def traced(alpha, eta):
    return tdd.ptdi(jnp.arange(40.0), jnp.arange(20.0) - 10, alpha=alpha, eta=eta)


def check_against_reference(calibration, scores, alpha, proportion, eta=0.05):
    got = tdd.ptdi(calibration, scores, alpha=alpha, proportion=proportion, eta=eta)
    reject, adjusted, pi0 = ref.ptdi(calibration, scores, alpha, proportion, eta)
    assert got.selected.tolist() == reject
    np.testing.assert_allclose(got.adjusted, adjusted, rtol=5e-7)
    assert float(got.proportion) == pytest.approx(1 - float(pi0), abs=1e-6, rel=1e-6)
    assert ((np.asarray(got.adjusted) <= alpha) == np.asarray(got.selected)).all()
    return got


@pytest.mark.parametrize("proportion", ["none", "storey", "subtraction"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.2, 0.33])
@pytest.mark.slow("long")
def test_random_cases(proportion, alpha):
    selected = 0
    for seed, (n, m) in enumerate(SIZES * 6):
        rng = np.random.default_rng(seed)
        calibration = rng.integers(0, 30, n).astype(float)
        scores = np.where(rng.random(m) < 0.6, rng.integers(-6, 3, m), rng.integers(0, 30, m)).astype(float)
        selected += int(check_against_reference(calibration, scores, alpha, proportion, 0.1).num_selected)
    assert selected > 0


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(-4, 4), min_size=12, max_size=12),
    st.lists(st.integers(-6, 4), min_size=12, max_size=12),
    st.sampled_from([0.1, 0.25, 0.5, 0.9]),
    st.sampled_from(["none", "storey", "subtraction"]),
)
@pytest.mark.slow("long")
def test_any_small_integers(calibration, scores, alpha, proportion):
    check_against_reference(np.array(calibration, float), np.array(scores, float), alpha, proportion, 0.25)


@settings(max_examples=40, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(0, 1),
    st.sampled_from([0.1, 0.25, 0.5]),
    st.sampled_from(["storey", "subtraction", "moment", "moment_paper"]),
)
def test_theorem_3_scaled_p_values_select_no_less(seed, share, alpha, proportion):
    """If 0 < pi < 1 the scaled procedure selects all that BH selects, hence has no less power (PTDI, theorem 3).

    The other side: if pi < 0 it selects no more.
    """
    rng = np.random.default_rng(seed)
    calibration, scores = rng.normal(size=20), rng.normal(size=20) - 3 * (rng.random(20) < share)
    plain = np.asarray(tdd.ptdi(calibration, scores, alpha=alpha, proportion="none").selected)
    members = {"members": rng.normal(size=20) - 3} if proportion.startswith("moment") else {}
    scaled = tdd.ptdi(calibration, scores, alpha=alpha, proportion=proportion, eta=0.25, **members)
    chosen, pi = np.asarray(scaled.selected), float(scaled.proportion)
    assert pi <= 0 or chosen[plain].all()
    assert pi >= 0 or plain[chosen].all()


def test_theorem_3_has_cases():
    """Scaling adds selections where members are many, and removes some where the estimate is negative."""
    members, none = np.arange(12) - 14.0, np.full(12, 30.0)
    calibration = np.arange(12.0)
    for scores, pi_is_positive in ((np.r_[members[:11], 3.5], True), (np.r_[members[:4], none[:8]], False)):
        plain = tdd.ptdi(calibration, scores, alpha=0.25, proportion="none")
        scaled = tdd.ptdi(calibration, scores, alpha=0.25, proportion="storey", eta=0.25)
        assert (float(scaled.proportion) > 0) == pi_is_positive
        assert (int(scaled.num_selected) > int(plain.num_selected)) == pi_is_positive
        assert (int(scaled.num_selected) < int(plain.num_selected)) == (not pi_is_positive)


def test_a_twin_that_divides_by_1_minus_pi_breaks_theorem_3():
    broken = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        calibration, scores = rng.normal(size=12), rng.normal(size=12) - 3 * (rng.random(12) < 0.5)
        plain = tdd.ptdi(calibration, scores, alpha=0.25, proportion="none")
        pi = float(tdd.ptdi(calibration, scores, alpha=0.25, proportion="storey", eta=0.25).proportion)
        twin = np.asarray(tdd.bh(np.minimum(np.asarray(plain.p_values) / (1 - pi), 1), 0.25).reject)
        broken += pi > 0 and not twin[np.asarray(plain.selected)].all()
    assert broken > 3


def test_equality_is_decided_exactly_at_sizes_beyond_32_bits():
    """m·r reaches 1.6e10: k items at rank r with m·r·10 = k·(n+1), then one fewer."""
    n, m = 159_999, 160_000
    k, rank = 32_000, 3_200
    ranks = np.full(m, n + 1, np.int32)
    for count, expected in ((k, k), (k - 1, 0)):
        tried = ranks.copy()
        tried[:count] = rank
        assert bh_ranks(tried, n, 0.1, max_rank=n + 1).num_rejected == expected


def test_float64_order_survives_32_bit_jax():
    """Scores that float32 cannot tell apart keep their order."""
    calibration = 1 + np.arange(1, 40) * 1e-12
    scores = np.array([1.0, 1 + 0.5e-12, *[2.0] * 38])
    got = tdd.ptdi(calibration, scores, alpha=0.2, proportion="none")
    np.testing.assert_allclose(got.p_values, [1 / 40, 1 / 40, *[1.0] * 38])
    ties = tdd.ptdi(calibration.astype(np.float32), scores.astype(np.float32), alpha=0.2, proportion="none")
    np.testing.assert_allclose(ties.p_values, 1.0)


def test_nan_scores_are_left_out_and_counted():
    calibration, scores = np.arange(12.0), np.repeat([-1.0, 50.0], 6)
    missing = (np.arange(40) >= 2) & (np.arange(40) < 30)
    holed = np.full(40, np.nan)
    holed[~missing] = scores
    got = tdd.ptdi(np.append(calibration, np.full(27, np.nan)), holed, alpha=0.2, proportion="none")
    without = tdd.ptdi(calibration, scores, alpha=0.2, proportion="none")
    assert without.num_selected == 6
    assert got.num_tests == 12
    assert got.num_calibration == 12
    np.testing.assert_array_equal(np.asarray(got.selected)[~missing], without.selected)
    assert np.isnan(np.asarray(got.p_values)[missing]).all()
    assert np.isnan(np.asarray(got.adjusted)[missing]).all()
    assert not np.asarray(got.selected)[missing].any()


@pytest.mark.slow("long")
def test_traced_level_and_vmap_over_levels():
    calibration, scores = np.arange(39.0), np.linspace(-5, 24, 40)
    levels = [0.05, 0.1, 0.2, 0.5]
    many = jax.jit(
        jax.vmap(lambda alpha: tdd.ptdi(jnp.asarray(calibration), jnp.asarray(scores), alpha=alpha).selected)
    )(np.array(levels, np.float32))
    for alpha, row in zip(levels, np.asarray(many), strict=True):
        np.testing.assert_array_equal(row, tdd.ptdi(calibration, scores, alpha=alpha).selected)


def test_traced_level_out_of_range_selects_nothing_and_says_nan():
    for alpha in (0.0, 1.0, 1.5, -0.1, np.nan):
        got = jax.device_get(traced(alpha, 0.05))
        assert not got.selected.any()
        assert np.isnan(got.adjusted).all()


@pytest.mark.slow("long")
def test_masks_are_absence():
    rng = np.random.default_rng(0)
    calibration, scores = rng.normal(size=39), rng.normal(size=40) - 1
    members = rng.normal(size=30) - 3
    keep_c, keep_s = rng.permutation(39) < 12, rng.permutation(40) < 12
    for proportion in tdd.procedures.ptdi.PROPORTIONS:
        known = {"members": members} if proportion.startswith("moment") else {}
        masked = tdd.ptdi(
            calibration, scores, alpha=0.3, proportion=proportion, calibration_mask=keep_c, mask=keep_s, **known
        )
        cut = tdd.ptdi(calibration[keep_c], scores[keep_s], alpha=0.3, proportion=proportion, **known)
        np.testing.assert_array_equal(np.asarray(masked.selected)[keep_s], cut.selected)
        assert float(masked.proportion) == pytest.approx(float(cut.proportion), rel=1e-5)
        assert not np.asarray(masked.selected)[~keep_s].any()
        assert masked.min_selections == cut.min_selections


@pytest.mark.parametrize("name", ["moment", "moment_paper"])
def test_moment_agrees_with_its_definition(name):
    rng = np.random.default_rng(3)
    members, calibration = rng.normal(size=20) - 3, rng.normal(size=20)
    scores = np.r_[rng.normal(size=10), rng.normal(size=10) - 3]
    got = tdd.ptdi(calibration, scores, alpha=0.1, proportion=name, members=members)
    expected = 1 - ref.moment_pi0(members, calibration, scores, printed=name == "moment_paper")
    assert float(got.proportion) == pytest.approx(expected, rel=1e-4)
    assert 0.3 < float(got.proportion) < 0.7
    assert got.guarantee.kind == "asymptotic"


@pytest.mark.parametrize(("shift", "why"), [(0.5, "0 < theta < 1"), (-3.0, "raw < 0"), (-0.9, "raw < sqrt(V)")])
def test_the_moment_estimate_is_that_of_storey_where_the_moments_show_no_member(shift, why):
    normal = np.random.default_rng(0).normal(size=(3, 20))
    members, calibration, scores = (values - values.mean() for values in normal)
    samples = calibration, scores + shift
    found, other = (
        tdd.ptdi(*samples, alpha=0.1, proportion=name, **known).proportion
        for name, known in (("moment", {"members": members - 1}), ("storey", {}))
    )
    assert float(found) == pytest.approx(float(other), rel=1e-5), why


def test_the_variants_of_the_moment_estimate_differ_where_theta_is_negative():
    """raw = .1 is below its standard error: the paper's selects everything, ours takes Storey's estimate."""
    members, calibration, scores = np.r_[-2.0, 0], np.r_[-1.0, 1], np.r_[-2.0, 0.2]
    found = {
        name: tdd.ptdi(calibration, scores, alpha=0.1, proportion=name, members=members)
        for name in ("moment", "moment_paper")
    }
    storey = tdd.ptdi(calibration, scores, alpha=0.1, proportion="storey")
    assert found["moment"].proportion == pytest.approx(float(storey.proportion), rel=1e-6)
    assert found["moment_paper"].proportion == pytest.approx(1 - 1e-6)
    assert found["moment"].num_selected == 0
    assert found["moment_paper"].selected.all()
    assert "not at small sizes" in found["moment_paper"].guarantee.controls


def test_result_is_a_pytree_with_static_words():
    got = traced(0.2, 0.05)
    assert got.method == "ptdi/storey"
    assert got.null == "nonmember"
    assert "FDR" in got.guarantee.controls
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(got))


def test_one_compilation_for_all_levels():
    from tdd.procedures import ptdi as module

    before = module._ptdi._cache_size()
    for alpha in (0.06, 0.11, 0.21, 0.31):
        tdd.ptdi(np.arange(12.0), np.arange(12.0), alpha=alpha)
    assert module._ptdi._cache_size() - before <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"alpha": 0}, ("alpha", "0")),
        ({"alpha": 1.0}, ("alpha", "1.0")),
        ({"alpha": "a"}, ("alpha", "'a'")),
        ({"alpha": [0.1, 0.2]}, ("alpha", "[0.1, 0.2]")),
        ({"alpha": float("nan")}, ("alpha", "nan")),
        ({"calibration": []}, ("calibration", "empty")),
        ({"calibration": [[1.0]]}, ("calibration", "one-dimensional", "(1, 1)")),
        ({"scores": ["a"]}, ("scores", "numbers")),
        ({"scores": [1.0, np.inf]}, ("scores[1]", "inf")),
        ({"calibration": [-np.inf, 1.0]}, ("calibration[0]", "-inf")),
        ({"proportion": "magic"}, ("proportion", "'magic'", "'storey'")),
        ({"proportion": "moment"}, ("moment", "members")),
        ({"proportion": "moment_paper"}, ("moment_paper", "members")),
        ({"members": [1.0, 2.0]}, ("members", "'storey'")),
        ({"eta": 0.0}, ("eta", "0")),
        ({"mask": [True]}, ("mask", "(1,)", "(2,)")),
        ({"mask": [1, 0]}, ("mask", "boolean", "int")),
    ],
    ids=str,
)
def test_bad_input(change, words):
    arguments = {"calibration": [1.0, 2.0, 3.0], "scores": [0.0, 5.0], "alpha": 0.1} | change
    with pytest.raises(tdd.InputError) as error:
        tdd.ptdi(arguments.pop("calibration"), arguments.pop("scores"), **arguments)
    for word in words:
        assert word in str(error.value)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: tdd.bh([0.1, 1.5], 0.1), ("p_values[1]", "1.5")),
        (lambda: tdd.bh([-0.1], 0.1), ("p_values[0]", "-0.1")),
        (lambda: tdd.bh(0.1, 0.1), ("p_values", "last axis", "0.1")),
        (lambda: tdd.storey_bh([0.1], 0.1, lambda_=1.0), ("lambda_", "1.0")),
        (lambda: tdd.conformal_p_values([1.0], [1.0], null="none"), ("null", "'none'", "'member'")),
        (lambda: tdd.conformal_p_values([1.0], [1.0], null="member", tie_break="x"), ("tie_break", "'x'")),
        (lambda: tdd.conformal_p_values([1.0], [1.0], null="member", tie_break="shared"), ("key", "shared")),
    ],
)
def test_bad_input_of_the_neighbours(call, words):
    with pytest.raises(tdd.InputError) as error:
        call()
    for word in words:
        assert word in str(error.value)


def test_wide_p_values_are_decided_in_double_precision():
    """0.05 (1 + 1e-9) is above the level, though not in float32."""
    assert not tdd.bh(np.array([0.05 * (1 + 1e-9)]), 0.05).reject[0]
    assert tdd.bh(np.array([0.05]), 0.05).reject[0]
    step = tdd.bh(np.array([0.05 * (1 + 1e-9)]), 0.05)
    assert not (np.asarray(step.adjusted) <= 0.05).any()


P = [0.01, 0.02, 0.5]


@pytest.mark.parametrize("name", ["bh", "storey_bh", "by", "holm", "hochberg", "bonferroni"])
@pytest.mark.parametrize("p", [P, np.array(P), np.array(P, np.float32)], ids=["list", "float64", "float32"])
def test_procedures_inside_traces(name, p):
    """Host p-values in jit (traced level, constant level), vmap, scan, and with a traced mask."""
    procedure = getattr(tdd, name)
    expected = np.asarray(procedure(p, 0.2).reject)
    assert expected.any()
    assert not expected.all()

    @jax.jit
    def inside(level, mask):
        return [
            procedure(p, level).reject,
            procedure(p, 0.2).reject,
            jax.lax.scan(lambda c, a: (c, procedure(p, a).reject), 0, level[None])[1][0],
            procedure(p, 0.2, mask=mask).reject,
            jax.vmap(lambda a: procedure(p, a).reject)(level[None])[0],
        ]

    for got in inside(np.float32(0.2), np.ones(3, bool)):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("dtype", [jnp.float16, jnp.bfloat16])
@pytest.mark.parametrize("name", ["bh", "storey_bh", "by", "holm", "hochberg", "bonferroni"])
def test_narrow_p_values_are_widened(name, dtype):
    """70,000 tests overflow float16, and bfloat16 has three digits."""
    p = np.concatenate([np.zeros(10), np.random.default_rng(0).random(70_000)]).astype(dtype)
    narrow, single = (getattr(tdd, name)(jnp.asarray(x), 0.1) for x in (p, p.astype(np.float32)))
    assert narrow.num_rejected == single.num_rejected
    assert narrow.adjusted.dtype == jnp.float32


def test_a_float32_level_decides_double_p_values_as_its_decimal():
    p = [0.4, 0.4, 0.4, 0.4, 0.175, 0.1, 0.15]
    assert tdd.holm(p, jnp.float32(0.7)).num_rejected == tdd.holm(p, 0.7).num_rejected == 1


@pytest.mark.parametrize("alpha", [0.1, np.float64(0.1), np.float32(0.1), jnp.float32(0.1), 0.7, np.float32(0.7)])
@pytest.mark.parametrize("wide", [False, True])
def test_law_for_every_type_of_level(alpha, wide):
    """selected == (adjusted <= alpha), in both precisions, at equality above all."""
    with jax.enable_x64(wide):
        rng = np.random.default_rng(0)
        for _ in range(6):
            p = (rng.integers(1, 11, 10) / 10 * rng.choice([1, 0.5, 0.1, 0.01], 10)).astype(
                rng.choice([np.float32, np.float64])
            )
            for procedure in (tdd.bh, tdd.holm, tdd.storey_bh):
                step = procedure(p, alpha)
                assert (np.asarray(step.reject) == (np.asarray(step.adjusted) <= np.asarray(alpha))).all()
            n = 19
            selection = tdd.ptdi(np.arange(n), rng.integers(-1, n, 10), alpha=alpha, proportion="none")
            assert (np.asarray(selection.selected) == (np.asarray(selection.adjusted) <= np.asarray(alpha))).all()


@pytest.mark.slow("long")
def test_integers_of_different_types_do_not_wrap_around():
    calibration, scores = np.arange(99, dtype=np.int32), np.full(5, 3_000_000_000, np.uint32)
    assert tdd.ptdi(calibration, scores, alpha=0.1).num_selected == 0
    with pytest.raises(tdd.InputError, match=r"int32.*uint32"):
        tdd.ptdi(jnp.asarray(calibration), jnp.asarray(scores), alpha=0.1)
    big = np.array([2**53, 2**53 + 2, 2**53 + 4])
    assert tdd.ptdi(big + 1, big[:1], alpha=0.9, proportion="none").p_values[0] == pytest.approx(0.25)


def test_moment_does_not_depend_on_origin_and_unit():
    rng = np.random.default_rng(3)
    samples = rng.normal(size=20), np.r_[rng.normal(size=10), rng.normal(size=10) - 3], rng.normal(size=20) - 3
    found = []
    for shift, scale in ((0, 1), (1e7, 1), (0, 1e25), (0, 1e300), (0, 1e-300)):
        calibration, scores, members = (sample * scale + shift for sample in samples)
        found.append(float(tdd.ptdi(calibration, scores, alpha=0.1, proportion="moment", members=members).proportion))
    np.testing.assert_allclose(found, found[0], rtol=1e-5)
    assert 0.3 < found[0] < 0.7


@pytest.mark.slow("long")
def test_data_that_move_the_count_one_by_one_do_not_take_a_pass_each():
    """p_(k) just above k·alpha/m for the first 60,000, then below: plain iteration would need as many passes."""
    m = 60_000
    p = ((np.arange(1, m + 1) + 0.5) * 0.1 / m).astype(np.float32)
    assert tdd.bh(p, 0.1).num_rejected == 0
    assert tdd.hochberg(p, 0.1).num_rejected == 0
    ranks = np.arange(1, 2001, dtype=np.int32)
    assert bh_ranks(ranks, 1999, 0.999, max_rank=2000).num_rejected == 0
    assert bh_ranks(ranks, 1999, 0.1, max_rank=2000, scale=((1,), (10,))).num_rejected == 2000
    steps = (np.arange(1, 501) - 0.5) * 0.1 / (500 - np.arange(500))
    assert tdd.holm(np.where(np.arange(500) < 300, steps * 0.9 / 100, 1.0), 0.1).num_rejected >= 0


@pytest.mark.parametrize("procedure", ["bh", "holm", "hochberg"])
def test_the_direct_answer_is_the_fixed_point(monkeypatch, procedure):
    """With no passes allowed, the ordering alone decides, and decides the same."""
    rng = np.random.default_rng(7)
    p = (rng.integers(1, 100, (8, 25)) ** 2 / 10_000).astype(np.float32)

    def decide():
        call = jax.jit(lambda row: getattr(stepup, procedure)(row, 0.3).reject)  # new, as the limit is read in a trace
        return [np.asarray(call(row)) for row in p]

    expected = decide()
    monkeypatch.setattr(stepup_parts, "_MAX_PASSES", 0)
    np.testing.assert_array_equal(decide(), expected)
    assert 0 < sum(map(np.sum, expected)) < p.size


def test_the_direct_answer_on_ranks(monkeypatch):
    rng = np.random.default_rng(8)
    ranks = np.where(rng.random((8, 25)) < 0.6, rng.integers(1, 4, (8, 25)), rng.integers(1, 41, (8, 25)))
    ranks = ranks.astype(np.int32)

    def decide(row, level):
        return [stepup.bh_ranks(row, 39, alpha, max_rank=40).reject for alpha in (0.2, level)]

    before = jax.jit(decide)
    expected = [np.asarray(before(row, np.float32(0.2))[0]) for row in ranks]
    monkeypatch.setattr(stepup_parts, "_MAX_PASSES", 0)
    after = jax.jit(lambda row, level: decide(row, level))  # new, as the limit is read in a trace
    for row, want in zip(ranks, expected, strict=True):
        for got in after(row, np.float32(0.2)):
            np.testing.assert_array_equal(got, want)
    assert 0 < sum(map(np.sum, expected)) < ranks.size


@pytest.mark.parametrize(
    "call",
    [
        lambda: tdd.bh([[0.1], [0.1, 0.2]], 0.1),
        lambda: tdd.storey_bh([0.1], 0.1, lambda_=None),
        lambda: tdd.bh([0.1], b"0.1"),
        lambda: tdd.ptdi([1.0], [1.0], alpha=1e-10),
        lambda: tdd.ptdi([np.nan], [1.0], alpha=0.1),
        lambda: tdd.ptdi([1.0], [1.0], alpha=0.1, calibration_mask=[False]),
        lambda: tdd.ptdi([1.0], [1.0], alpha=0.1, proportion=np.array(["storey"])),
        lambda: tdd.ptdi([True], [1.0], alpha=0.1),
        lambda: tdd.ptdi([1.0], [1.0], alpha=0.1, proportion="moment", members=[]),
        lambda: tdd.conformal_p_values([1.0], [1.0], null="member", tie_break="shared", key=3),
    ],
)
def test_odd_arguments_are_input_errors(call):
    with pytest.raises(tdd.InputError):
        call()


def test_masked_values_are_missing():
    """NumPy's masked arrays keep their mask: a masked candidate is never selected, whatever lies beneath."""
    masked = np.ma.masked_array([0.5, 0.6, 0.7], mask=[True, False, False])
    got = tdd.ptdi(np.arange(1.0, 20.0), masked, alpha=0.5, proportion="none")
    assert got.selected.tolist() == [False, True, True]
    assert int(got.num_tests) == 2
    assert np.isnan(got.p_values[0])
    assert int(tdd.ptdi(masked, [0.1], alpha=0.5).num_calibration) == 2
    assert int(tdd.ptdi(np.ma.masked_array([3, 4, 5], mask=[1, 0, 0]), [0], alpha=0.5).num_calibration) == 2
    with pytest.raises(tdd.InputError, match=r"masked array; mask.filled\(False\) is one"):
        tdd.ptdi([1.0], [2.0], alpha=0.5, mask=np.ma.masked_array([True], mask=[False]))


def test_lists_series_and_nullable_columns_are_vectors():
    pd = pytest.importorskip("pandas")
    expected = [True, False]
    assert tdd.bh(pd.Series([0.01, 0.2]), 0.05).reject.tolist() == expected
    assert tdd.bh(pd.Series([0.01, None], dtype="Float64"), 0.05).reject.tolist() == expected
    assert tdd.bh([0.01, 0.02], 0.05, mask=pd.Series([True, False])).reject.tolist() == expected
    assert tdd.bh([0.01, 0.02], 0.05, mask=[True, False]).reject.tolist() == expected


def test_a_traced_eta_out_of_range_is_on_the_safe_side():
    for eta in (5.0, -1.0, np.nan):
        assert float(traced(0.2, eta).proportion) <= 0
    assert float(traced(0.2, 0.2).proportion) > 0
