"""`tdd.ktd`, the symmetry diagnostic and the bound for every cut: input, records, precision, transformations."""

import functools
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import references_knockoff as ref
from scipy import stats

from tdd.kernels import knockoff
from tdd.procedures.knockoff_bounds import knockoff_fdp_bounds
from tdd.procedures.knockoff_symmetry import knockoff_symmetry
from tdd.procedures.ktd import GUARANTEE_ROWS, GUARANTEES, KTD, PROPORTIONS, RULES, ktd
from tdd.procedures.ptdi import ptdi
from tdd.records import Evidence
from tdd.validate import InputError


def data(seed=0, n=60, k=3, members=30, shift=2.5):
    rng = np.random.default_rng(seed)
    return rng.normal(size=n) - shift * (np.arange(n) < members), rng.normal(size=(n, k))


def known(seed=1, n=80, k=3):
    return dict(zip(("calibration", "calibration_knockoffs"), data(seed, n, k, 0), strict=True))


def run(rule, original, knockoffs, alpha=0.2, **options):
    extra = known(k=knockoffs.shape[1]) if rule == "conformal" else {}
    extra = {name: jnp.asarray(x) if isinstance(original, jax.Array) else x for name, x in extra.items()}
    return ktd(original, knockoffs, alpha=alpha, rule=rule, **extra, **options)


@pytest.mark.parametrize("rule", RULES)
def test_the_decision_three_times(rule):
    """The mask, the adjusted values and the cut of the statistic say the same."""
    some = False
    for alpha in (0.1, 0.2, 0.5):
        original, knockoffs = data()
        selection = run(rule, original, knockoffs, alpha)
        np.testing.assert_array_equal(selection.selected, selection.adjusted <= alpha)
        np.testing.assert_array_equal(selection.selected, selection.statistic >= selection.cut)
        assert selection.num_selected == np.asarray(selection.selected).sum()
        assert selection.num_selected == 0 or selection.num_selected >= selection.min_selections
        assert selection.num_tests == 60
        assert selection.method == f"ktd/{rule}"
        assert selection.null == "nonmember"
        some |= bool(np.asarray(selection.selected).any())
    assert some


def test_the_paper_rule_by_definition():
    original, knockoffs = data(3)
    w = knockoffs.mean(axis=1) - original
    tau, reject, adjusted = ref.knockoff_filter(ref.kept(w), 0.2)
    selection = ktd(original, knockoffs, alpha=0.2, rule="ktd")
    assert float(selection.cut) == pytest.approx(tau, rel=1e-6)
    np.testing.assert_array_equal(selection.selected, reject)
    np.testing.assert_allclose(selection.adjusted, adjusted, rtol=1e-6)
    np.testing.assert_allclose(selection.statistic, w, rtol=1e-5)


def test_the_rule_of_several_knockoffs_by_definition():
    original, knockoffs = data(4)
    tau, reject, adjusted = ref.knockoff_filter(ref.kept(ref.multi(original, knockoffs)[2]), 0.2, losses=3)
    selection = ktd(original, knockoffs, alpha=0.2)  # the default
    assert selection.method == "ktd/multi"
    assert float(selection.cut) == pytest.approx(tau, rel=1e-6)
    np.testing.assert_array_equal(selection.selected, reject)
    np.testing.assert_allclose(selection.adjusted, adjusted, rtol=1e-6)


def test_the_derandomized_rule_by_definition():
    original, knockoffs = data(5, members=40, shift=4)
    e = ref.derandomized(knockoffs - original[:, None], 0.1)
    expected = ref.e_bh(ref.kept(e), 0.2)
    selection = ktd(original, knockoffs, alpha=0.2, rule="derandomized")
    assert expected["reject"].any()
    np.testing.assert_allclose(selection.statistic, e, rtol=1e-6)
    np.testing.assert_array_equal(selection.selected, expected["reject"])


@pytest.mark.slow("long")
def test_the_conformal_rule_is_ptdi_on_the_statistic():
    original, knockoffs = data(6)
    own = known()
    w, calibration = knockoffs.mean(1) - original, own["calibration_knockoffs"].mean(1) - own["calibration"]
    seen, copies = data(8)
    members, copies = seen[:15], copies[:15]
    for proportion in PROPORTIONS:
        moment = proportion in ("moment", "moment_paper")
        values = {"members": members - copies.mean(1)} if moment else {}
        more = {"members": members, "members_knockoffs": copies} if moment else {}
        expected = ptdi(-calibration, -w, alpha=0.2, proportion=proportion, **values)
        selection = ktd(original, knockoffs, alpha=0.2, rule="conformal", proportion=proportion, **own, **more)
        np.testing.assert_array_equal(selection.selected, expected.selected)
        np.testing.assert_allclose(selection.p_values, expected.p_values)
        # These estimates are sums of m terms in single precision, over arrays of another length or origin.
        rounding = len(w) * 2**-23 if moment else 1e-7
        np.testing.assert_allclose(selection.adjusted, expected.adjusted, rtol=rounding)
        assert float(selection.proportion) == pytest.approx(float(expected.proportion), rel=1e-6, abs=1e-6)
        assert selection.num_calibration == 80
        assert selection.min_selections == expected.min_selections


def test_one_knockoff_makes_the_rules_one():
    original, knockoffs = data(7, k=1)
    first = ktd(original, knockoffs, alpha=0.3, rule="ktd")
    assert first.selected.any()
    for rule in ("multi", "derandomized"):
        np.testing.assert_array_equal(ktd(original, knockoffs, alpha=0.3, rule=rule).selected, first.selected)


@pytest.mark.parametrize(
    ("rule", "k", "offset", "least"),
    [
        ("ktd", 1, 1, 10),
        ("ktd", 5, 1, 10),
        ("multi", 5, 1, 2),
        ("multi", 3, 1, 4),
        ("multi", 5, 0, 1),
        ("derandomized", 3, 1, 10),
    ],
)
def test_the_fewest_selections(rule, k, offset, least):
    """1/alpha for knockoff+, 1/(k alpha) for several knockoffs: so many perfect items are selected, not fewer."""
    for count, expected in ((least, least), (least - 1, 0)):
        original = np.append(np.zeros(count), np.full(13 - count, 5.0))
        knockoffs = np.tile(np.append(np.ones(count), np.full(13 - count, 5.0))[:, None], (1, k))
        selection = ktd(original, knockoffs, alpha=0.1, rule=rule, offset=offset)
        assert selection.min_selections == least
        if rule != "derandomized":  # which places its cut at half the level
            assert selection.num_selected == expected


def test_guarantees_say_what_holds():
    def said(k, **options):
        """The guarantee, which does not need the result."""
        original, knockoffs = (x.astype(np.float32) for x in data(k=k))
        return jax.eval_shape(lambda s, z: ktd(s, z, alpha=0.1, **options), original, knockoffs).guarantee

    assert said(1, rule="ktd").kind == "finite-sample"
    several = said(3, rule="ktd")
    assert several.kind == "none"
    assert any("symmetric" in line for line in several.assumes)
    assert said(3) == GUARANTEES["multi"]
    assert "not the FDR" in said(3, offset=0).controls
    assert "not the FDR" in said(1, rule="ktd", offset=0).controls
    assert said(3, rule="ktd", offset=0).kind == "none"
    assert {row[2] for row in GUARANTEE_ROWS} >= set(GUARANTEES.values())
    assert len({row[:2] for row in GUARANTEE_ROWS}) == len(GUARANTEE_ROWS)


@pytest.mark.parametrize("rule", RULES)
def test_missing_scores_are_masked_and_counted(rule):
    original, knockoffs = data(8)
    clean = run(rule, original, knockoffs)
    more, others = np.append(original, [np.nan, -9.0, -9.0]), np.vstack([knockoffs, knockoffs[:3]])
    others[-2, 1] = np.nan
    selection = run(rule, more, others, mask=np.append(np.ones(62, bool), False))
    assert selection.num_tests == 60
    np.testing.assert_array_equal(np.asarray(selection.selected)[:60], clean.selected)
    assert not np.asarray(selection.selected)[60:].any()
    assert np.isnan(np.asarray(selection.adjusted)[60:]).all()
    assert np.isnan(np.asarray(selection.statistic)[60:]).all()


@functools.partial(jax.jit, static_argnames="rule")
def mapped(original, knockoffs, level, rule):
    return jax.vmap(lambda s, z: run(rule, s, z, level))(original, knockoffs)


def twice(seed):
    return [np.stack([x, x]).astype(np.float32) for x in data(seed)]


@pytest.mark.parametrize("rule", RULES)
def test_inside_jit_and_vmap(rule):
    samples = data(9)
    alone = run(rule, *samples)
    level = np.float32(0.2)
    many = mapped(*twice(9), level, rule)
    np.testing.assert_array_equal(np.asarray(many.selected)[1], alone.selected)
    np.testing.assert_array_equal(many.selected, np.asarray(many.adjusted) <= level)
    outside = run(rule, *(jax.device_put(x.astype(np.float32)) for x in samples), jnp.float32(0.5))
    np.testing.assert_array_equal(outside.selected, run(rule, *samples, 0.5).selected)
    assert outside.guarantee == alone.guarantee


def test_a_traced_level_out_of_range_selects_nothing():
    for rule in RULES:
        for level in (0.0, 1.0, 1.5, math.nan):
            selection = mapped(*twice(9), np.float32(level), rule)
            assert not np.asarray(selection.selected).any()
            assert np.isnan(np.asarray(selection.adjusted)).all()


def test_double_precision_scores_keep_their_gaps():
    """Gaps far below single precision decide: JAX's default type would see ties."""
    rng = np.random.default_rng(10)
    original = 1e6 + rng.normal(size=60) * 1e-6
    knockoffs = original[:, None] + np.where(np.arange(60) < 45, 1e-4, -1e-4)[:, None] * rng.random((60, 1))
    w = (knockoffs - original[:, None])[:, 0]
    _, reject, _ = ref.knockoff_filter(ref.kept(w), 0.5)
    selection = ktd(original, knockoffs, alpha=0.5, rule="ktd")
    assert reject.sum() == selection.num_selected > 0
    np.testing.assert_array_equal(selection.selected, reject)
    assert selection.statistic.dtype == jnp.float32
    assert not ktd(original.astype(np.float32), knockoffs.astype(np.float32), alpha=0.5, rule="ktd").selected.any()


def test_rounding_to_single_precision_crosses_no_cut():
    w = np.append(np.full(5, 1.0), 1.0 - 1e-12)  # one float32, two float64
    original = np.zeros(7)
    knockoffs = np.append(w, -1.0 + 1e-13)[:, None]
    selection = ktd(original, knockoffs, alpha=0.2, rule="ktd")
    assert selection.selected.tolist() == [True] * 5 + [False] * 2
    np.testing.assert_array_equal(selection.selected, selection.statistic >= selection.cut)
    np.testing.assert_array_equal(selection.selected, selection.adjusted <= 0.2)


def test_whole_numbers_and_lists():
    selection = ktd([1, 1, 1, 5], [[2], [3], [4], [4]], alpha=0.5)
    assert selection.selected.tolist() == [False, True, True, False]  # 1/2 at W >= 2, 2/3 at W >= 1
    big = 2**40
    assert ktd(np.full(5, big), np.full((5, 1), big + 1), alpha=0.2).num_selected == 5


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"knockoffs": np.zeros(4)}, "knockoffs must be two-dimensional, .*; got shape"),
        ({"knockoffs": np.zeros((4, 0))}, "every item needs at least one knockoff"),
        ({"knockoffs": np.zeros((3, 2))}, "knockoffs has 3 rows and original has 4 items"),
        ({"knockoffs": np.zeros((2, 4))}, "it looks transposed"),
        ({"knockoffs": np.full((4, 2), np.inf)}, r"knockoffs\[0, 0\] is inf"),
        ({"original": np.zeros((4, 1))}, "original must be one-dimensional"),
        ({"original": np.array([0, 0, 0, -np.inf])}, r"original\[3\] is -inf"),
        ({"alpha": 0.0}, "alpha must lie strictly between 0 and 1"),
        ({"alpha": "a"}, "alpha must be one number"),
        ({"rule": "averaged"}, "rule must be one of 'multi', 'derandomized', 'conformal', 'ktd'"),
        ({"rule": "closed"}, "rule='closed' was withdrawn: its false discovery rate can exceed the level; use"),
        ({"offset": 2}, "offset must be 1 .* or 0 .*, got 2"),
        ({"offset": 0, "rule": "derandomized"}, 'offset=0 is used by rule="ktd" and rule="multi" only'),
        ({"mask": np.ones(3, bool)}, r"mask has shape \(3,\)"),
        ({"mask": np.ones(4)}, "mask must be boolean"),
        ({"rule": "conformal"}, 'rule="conformal" needs calibration'),
        ({"rule": "conformal", "calibration": np.zeros(3)}, "needs calibration_knockoffs"),
        ({"calibration": np.zeros(3)}, 'calibration is used by rule="conformal" only'),
        ({"proportion": "none"}, 'proportion is used by rule="conformal" only'),
        (
            {"rule": "conformal", "calibration": np.zeros(3), "calibration_knockoffs": np.zeros((3, 1))},
            "calibration_knockoffs has 1 knockoffs an item and knockoffs has 2",
        ),
        (
            {"rule": "conformal", "calibration": np.zeros(0), "calibration_knockoffs": np.zeros((0, 2))},
            "calibration is empty",
        ),
        (
            {"rule": "conformal", "calibration": np.zeros(3), "calibration_knockoffs": np.full((3, 2), np.nan)},
            "calibration with its knockoffs has no real item",
        ),
        (
            {
                "rule": "conformal",
                "calibration": np.zeros(3),
                "calibration_knockoffs": np.zeros((3, 2)),
                "proportion": "moment",
            },
            "proportion='moment' needs members: scores of known members",
        ),
        ({"members": np.zeros(3)}, 'members is used by proportion="moment" and "moment_paper" only'),
        (
            {
                "rule": "conformal",
                "calibration": np.zeros(3),
                "calibration_knockoffs": np.zeros((3, 2)),
                "proportion": "subtract",
            },
            "proportion must be one of 'none', 'subtraction', 'storey', 'moment', 'moment_paper'; got 'subtract'",
        ),
    ],
    ids=str,
)
def test_bad_input(change, message):
    given = {"original": np.zeros(4), "knockoffs": np.ones((4, 2)), "alpha": 0.2} | change
    with pytest.raises(InputError, match=message):
        ktd(**given)


def test_no_candidate_at_all():
    selection = ktd(np.zeros(0), np.zeros((0, 2)), alpha=0.2)
    assert selection.selected.shape == (0,)
    assert selection.num_tests == 0
    assert selection.cut == math.inf


# --- symmetry ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("alternative", ["two-sided", "greater"])
def test_sign_test_by_scipy(alternative):
    original, knockoffs = data(11, k=1, members=20)
    w = knockoffs[:, 0] - original
    result = knockoff_symmetry(original, knockoffs, test="sign", alternative=alternative)
    greater = stats.binomtest(int((w > 0).sum()), 60, alternative=alternative).pvalue
    assert float(result.p_value) == pytest.approx(greater, rel=1e-5)
    assert float(result.log_p_value) == pytest.approx(math.log(greater), rel=1e-5)
    assert float(result.statistic) == pytest.approx((w > 0).mean())


def test_tail_test_by_scipy():
    original, knockoffs = data(12, n=60, k=1, members=25)
    w = knockoffs[:, 0] - original
    largest = w[np.argsort(-np.abs(w))[:12]]
    result = knockoff_symmetry(original, knockoffs, test="tail", tail=0.2)
    assert float(result.p_value) == pytest.approx(stats.binomtest(int((largest > 0).sum()), 12).pvalue, rel=1e-5)
    both = knockoff_symmetry(original, knockoffs, tail=0.2)
    sign = knockoff_symmetry(original, knockoffs, test="sign")
    assert float(both.p_value) == pytest.approx(min(1, 2 * min(float(result.p_value), float(sign.p_value))), rel=1e-6)


def test_signed_rank_test_by_scipy():
    rng = np.random.default_rng(13)
    original, knockoffs = rng.integers(0, 9, 60), rng.integers(1, 10, (60, 1))
    w = knockoffs[:, 0] - original
    expected = stats.wilcoxon(w[w != 0], method="asymptotic", correction=False).pvalue
    assert float(knockoff_symmetry(original, knockoffs, test="signed_rank").p_value) == pytest.approx(
        expected, rel=1e-4
    )


def test_wins_among_several_copies_by_scipy():
    original, knockoffs = data(14, n=90, k=4, members=15)
    wins = int((original < knockoffs.min(axis=1)).sum())
    result = knockoff_symmetry(original, knockoffs, rule="multi", test="sign", alternative="greater")
    assert float(result.p_value) == pytest.approx(
        stats.binomtest(wins, 90, 0.2, alternative="greater").pvalue, rel=1e-5
    )


@pytest.mark.slow("long")
def test_averages_of_skewed_scores_are_found_out():
    """Exchangeable copies with a long tail: the rule of the paper is refuted, the rule of several knockoffs is not."""
    draw = -np.random.default_rng(15).exponential(size=(400, 21))
    assert knockoff_symmetry(draw[:, 0], draw[:, 1:], rule="ktd").p_value < 1e-6
    assert knockoff_symmetry(draw[:, 0], draw[:, 1:], rule="ktd", alternative="greater", test="tail").p_value < 1e-6
    assert knockoff_symmetry(draw[:, 0], draw[:, 1:], rule="multi").p_value > 0.01


def test_far_below_the_smallest_float():
    result = knockoff_symmetry(np.zeros(1000), np.ones((1000, 1)), test="sign")
    assert result.p_value == 0
    assert float(result.log_p_value) == pytest.approx(-999 * math.log(2), rel=1e-5)


def test_all_ties_are_no_evidence():
    for test in ("combined", "sign", "tail", "signed_rank"):
        assert knockoff_symmetry(np.ones(60), np.ones((60, 1)), test=test).p_value == 1


def test_symmetry_says_what_it_does_not_prove():
    guarantee = knockoff_symmetry(np.zeros(60), np.ones((60, 1))).guarantee
    assert "not rejecting shows neither symmetry" in " ".join(guarantee.assumes)
    assert knockoff_symmetry(np.zeros(60), np.ones((60, 1)), test="signed_rank").guarantee.kind == "asymptotic"


def test_symmetry_inside_jit_and_vmap():
    original, knockoffs = data(16, k=1)
    alone = knockoff_symmetry(original, knockoffs)
    many = jax.jit(jax.vmap(knockoff_symmetry))(*(x[None].astype(np.float32) for x in (original, knockoffs)))
    assert float(np.asarray(many.p_value)[0]) == pytest.approx(float(alone.p_value), rel=1e-5)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"original": np.zeros(0), "knockoffs": np.zeros((0, 1))}, "original is empty"),
        ({"knockoffs": np.full((4, 2), np.nan)}, "original with its knockoffs has no real item"),
        ({"rule": "derandomized"}, "rule must be one of"),
        ({"test": "t"}, "test must be one of"),
        ({"alternative": "less"}, "alternative must be one of"),
        ({"tail": 0}, "tail must lie strictly between 0 and 1"),
        ({"rule": "multi", "test": "signed_rank"}, 'use it with rule="ktd"'),
    ],
    ids=str,
)
def test_bad_input_of_the_symmetry_test(change, message):
    with pytest.raises(InputError, match=message):
        knockoff_symmetry(**({"original": np.zeros(4), "knockoffs": np.ones((4, 2))} | change))


# --- e-values ---------------------------------------------------------------------------------------------------------


def test_the_statistic_of_the_paper_rule_feeds_the_bound():
    original, knockoffs = data(18, k=1)
    selection = ktd(original, knockoffs, alpha=0.3, rule="ktd")
    bound = knockoff_fdp_bounds(selection.statistic, delta=0.1)
    at_cut = np.asarray(bound.num_selected)[np.asarray(selection.statistic) == float(selection.cut)]
    assert at_cut.tolist() == [int(selection.num_selected)]
    assert jax.jit(lambda w: knockoff.threshold(w, 0.3))(selection.statistic) == selection.cut


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_bounds_rank_what_the_selection_ranks(dtype):
    """Tenths, three knockoffs: a mean of differences and a difference of means have other ties."""
    rng, members = np.random.default_rng(0), 1.5 * (np.arange(60) < 30)
    calibration, scores, copies, others = (rng.integers(0, 30, size) / 10 for size in (60, 60, (60, 3), (60, 3)))
    given = {"calibration": calibration, "calibration_knockoffs": copies, "scores": scores - members}
    evidence = Evidence(**{name: array.astype(dtype) for name, array in (given | {"knockoffs": others}).items()})
    procedure = KTD("conformal", proportion="none")
    selection = procedure.select(evidence, 0.2)
    bounds = procedure.bounds(evidence, selection, delta=0.1, key=jax.random.key(0), num_draws=99)
    np.testing.assert_array_equal(bounds.rank, np.rint(61 * np.asarray(selection.p_values)))
