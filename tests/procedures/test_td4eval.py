"""td4eval against its definition in rational arithmetic, its options, and its behaviour as a public call."""

import functools
import math

import jax
import numpy as np
import pytest
import references as exact
import references_combine as ref

from tdd.procedures import td4eval as module
from tdd.procedures.combining import METHODS, combine_p_values
from tdd.procedures.td4eval import COMBINATIONS, td4eval
from tdd.validate import InputError

every = pytest.mark.parametrize("combine", COMBINATIONS)
SLOW = pytest.mark.slow("long")
KEY = jax.random.key(3)


def options(combine):
    return {"key": KEY} if combine in ("random", "split_weights") else {}


def panels(seed=0, n=400, m=30, k=3, shift=2.0, values=None):
    """Of one size wherever the size does not matter: each combination is compiled once for each size."""
    rng = np.random.default_rng(seed)
    calibration, scores = rng.normal(size=(k, n)), rng.normal(size=(k, m))
    scores[:, m // 2 :] += shift
    if values:
        calibration, scores = np.round(calibration * values), np.round(scores * values)
    return calibration, scores


def ranks_alone(calibration, scores):
    return np.array([exact.conformal_ranks(c, s, "member")[0] for c, s in zip(calibration, scores)])


def rejected_alone(calibration, scores, alpha):
    n = calibration.shape[1]
    return [
        sum(exact.bh([exact.Fraction(int(r), n + 1) for r in row], alpha)[0])
        for row in ranks_alone(calibration, scores)
    ]


@pytest.mark.parametrize("rule", ["sum", "cauchy"])
@pytest.mark.parametrize("alpha", [0.05, 0.1, 0.25])
@pytest.mark.parametrize("values", [None, 1.5])
@pytest.mark.slow("long")
def test_pooled_rank_is_bh_on_the_exact_ranks(rule, alpha, values):
    for seed in range(4):
        calibration, scores = panels(seed, values=values)
        weights = [1.0, 0.25, 0.7] if rule == "cauchy" else None
        got = td4eval(calibration, scores, alpha=alpha, rule=rule, weights=weights)
        rank, n, _ = ref.pooled(calibration.T, scores.T, "member", rule, weights and np.float32(weights))
        reject, adjusted = exact.bh([exact.Fraction(int(r), n + 1) for r in rank], alpha)
        assert got.selected.tolist() == reject
        np.testing.assert_allclose(got.p_values, rank / (n + 1), rtol=1e-6)
        np.testing.assert_allclose(got.adjusted, adjusted, rtol=1e-6)
        assert got.num_rejected_alone.tolist() == rejected_alone(calibration, scores, alpha)


@pytest.mark.parametrize("alpha", [0.1, 0.2])
def test_the_paper(alpha):
    calibration, scores = panels(1, shift=3.0)
    scores[0, 0] = scores[1, -1] = -9.0  # p = 1 for one detector
    got = td4eval(calibration, scores, alpha=alpha, combine="cauchy")
    rejected = rejected_alone(calibration, scores, alpha)
    assert sum(rejected) > 0
    weights = np.array(rejected) / sum(rejected)
    np.testing.assert_allclose(got.weights, weights, rtol=1e-6)
    p = ranks_alone(calibration, scores) / 401
    assert (p == 1).sum() == 2
    p[p == 1] = 1 - 1 / 802
    combined = np.array([ref.cauchy(column, weights) for column in p.T])
    np.testing.assert_allclose(got.p_values, combined, rtol=1e-5)
    order = np.sort(combined)
    count = max((k for k in range(1, 31) if order[k - 1] <= alpha * k / 30), default=0)
    assert int(got.num_selected) == count > 0


def test_no_rejection_gives_equal_weights():
    calibration, scores = panels(2, shift=0.0)
    got = td4eval(calibration, scores, alpha=0.01, combine="cauchy")
    assert got.num_rejected_alone.tolist() == [0, 0, 0]
    np.testing.assert_allclose(got.weights, 1 / 3, rtol=1e-6)
    average = td4eval(calibration, scores, alpha=0.01, combine="average")
    np.testing.assert_allclose(got.p_values, average.p_values, rtol=1e-6)


def test_max_is_the_detector_with_most_rejections():
    calibration, scores = panels(3)
    scores[0] -= 1
    scores[2, 15:] += 2
    got = td4eval(calibration, scores, alpha=0.1, combine="max")
    best = int(np.argmax(rejected_alone(calibration, scores, 0.1)))
    assert got.weights.tolist() == [float(k == best) for k in range(3)]
    np.testing.assert_allclose(got.p_values, ranks_alone(calibration, scores)[best] / 401, rtol=1e-6)
    assert int(got.num_selected) == max(got.num_rejected_alone.tolist()) > 0


@pytest.mark.parametrize(("combine", "fold"), [("bh_average", lambda ps: sum(ps) / 3), ("bh_max", min)])
@pytest.mark.parametrize("values", [None, 1.5])
def test_the_mean_and_the_smallest_of_the_p_values(combine, fold, values):
    """BH-Average and BH-Max as the paper writes them, in rational arithmetic; each with levels of equality."""
    calibration, scores = panels(5, shift=3.0, values=values)
    ranks = ranks_alone(calibration, scores)
    p = [fold([exact.Fraction(int(r), 401) for r in column]) for column in ranks.T]
    some = 0
    for alpha in (0.02, 0.1, 0.25):
        got = td4eval(calibration, scores, alpha=alpha, combine=combine)
        reject, adjusted = exact.bh(p, alpha)
        assert got.selected.tolist() == reject
        np.testing.assert_allclose(got.p_values, [float(x) for x in p], rtol=1e-6)
        np.testing.assert_allclose(got.adjusted, adjusted, rtol=1e-6)
        np.testing.assert_allclose(got.weights, 1 / 3, rtol=1e-6)
        assert got.guarantee.kind == "none"
        some += sum(reject)
    assert some > 0


@pytest.mark.slow("long")
def test_random_weights_follow_the_key():
    calibration, scores = panels(4)
    first, again, other = (
        td4eval(calibration, scores, alpha=0.1, combine="random", key=jax.random.key(seed)) for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first.p_values, again.p_values)
    assert not np.allclose(first.weights, other.weights)
    fixed = td4eval(calibration, scores, alpha=0.1, combine="average", weights=np.asarray(first.weights))
    np.testing.assert_allclose(fixed.p_values, first.p_values, rtol=1e-5)


@pytest.mark.parametrize("combine", ["bonferroni", "hommel", "twice_mean", "geometric", "harmonic"])
def test_merges_are_by_on_the_merged_p_values(combine):
    calibration, scores = panels(5, shift=3.5)
    got = td4eval(calibration, scores, alpha=0.2, combine=combine)
    p = ranks_alone(calibration, scores) / 401
    merged = np.array([ref.merged(combine)(column) for column in p.T])
    np.testing.assert_allclose(got.p_values, merged, rtol=1e-5)
    harmonic = sum(1 / k for k in range(1, 31))
    order = np.sort(merged)
    count = max((k for k in range(1, 31) if order[k - 1] * 30 * harmonic <= 0.2 * k), default=0)
    assert int(got.num_selected) == count > 0
    # the least p-value decides how few can be selected: k >= least·m·H_m/alpha
    least = ref.merged(combine)(np.full(3, 1 / 401))
    assert int(got.min_selections) == math.ceil(least * 30 * harmonic / 0.2)


def test_e_values_are_averaged():
    calibration, scores = panels(6, shift=3.0)
    got = td4eval(calibration, scores, alpha=0.2, combine="e_values")
    e = np.zeros(30)
    for c, s, ranks in zip(calibration, scores, ranks_alone(calibration, scores)):
        reject, _ = exact.bh([exact.Fraction(int(r), 401) for r in ranks], 0.1)
        chosen = np.array(reject)
        if chosen.any():
            # s* lies below the least extreme selected score, as far as the calibration scores allow the same count
            counts = [
                (c >= cut).sum() for cut in np.r_[c, s] if 10 * 30 * (1 + (c >= cut).sum()) <= 401 * (s >= cut).sum()
            ]
            e += chosen * 401 / (1 + max(counts)) / 3
    np.testing.assert_allclose(got.p_values, np.minimum(1, 1 / np.maximum(e, 1e-30)), rtol=1e-5)
    order = np.sort(e)[::-1]
    count = max((k for k in range(1, 31) if order[k - 1] * 0.2 * k >= 30 * (1 - 1e-6)), default=0)
    assert int(got.num_selected) == count > 0


@pytest.mark.slow("long")
def test_split_weights_with_a_given_split():
    calibration, scores = panels(7)
    calibration[1], scores[1] = calibration[1][::-1], np.random.default_rng(0).normal(size=30)
    split = np.arange(400) % 2 == 0
    got = td4eval(calibration, scores, alpha=0.2, combine="split_weights", split=split)
    second = calibration[:, ~split]
    weights = np.array(rejected_alone(calibration[:, split], np.concatenate([second, scores], axis=1), 0.2))
    assert weights.max() > 0
    np.testing.assert_allclose(got.weights, weights / weights.sum(), rtol=1e-6)
    direct = td4eval(second, scores, alpha=0.2, weights=weights)
    np.testing.assert_array_equal(got.p_values, direct.p_values)
    np.testing.assert_array_equal(got.selected, direct.selected)
    assert got.num_calibration == 200


@pytest.mark.slow("long")
def test_split_by_key_halves_the_real_items():
    calibration, scores = panels(8)
    mask = np.arange(400) < 21
    got = td4eval(calibration, scores, alpha=0.2, combine="split_weights", key=KEY, calibration_mask=mask)
    assert got.num_calibration == 11


@every
def test_the_decision_is_the_adjusted_value(combine):
    some = 0
    for seed, alpha in ((0, 0.05), (1, 0.1), (2, 0.25), (3, 0.5)):
        got = td4eval(*panels(seed, shift=3.0), alpha=alpha, combine=combine, **options(combine))
        np.testing.assert_array_equal(np.asarray(got.adjusted) <= np.float32(alpha), got.selected)
        assert int(got.num_selected) == int(got.selected.sum())
        assert int(got.num_selected) == 0 or got.num_selected >= got.min_selections
        largest = np.max(np.where(got.selected, got.p_values, 0))
        assert float(got.threshold) == pytest.approx(float(largest), rel=1e-6)
        assert float(got.weights.sum()) == pytest.approx(1, rel=1e-6)
        some += int(got.num_selected)
    assert some > 0
    assert got.method == f"td4eval/{combine}"
    assert got.null == "member"


@every
@pytest.mark.parametrize(("k", "n", "m"), [(1, 1, 3), (2, 5, 0)])
@pytest.mark.slow("long")
def test_smallest_sizes(combine, k, n, m):
    calibration, scores = panels(9, n, m, k)
    got = td4eval(calibration, scores, alpha=0.3, combine=combine, **options(combine))
    assert got.selected.shape == (m,)
    assert got.num_tests == m
    assert got.weights.shape == got.num_rejected_alone.shape == (k,)


@pytest.mark.parametrize("combine", ["pooled_rank", "cauchy", "average", "max", "random", "bh_average", "bh_max"])
@pytest.mark.slow("long")
def test_one_detector_is_bh(combine):
    for seed in range(3):
        calibration, scores = panels(seed, n=39, k=1)
        got = td4eval(calibration, scores, alpha=0.2, combine=combine, **options(combine))
        rank = ranks_alone(calibration, scores)[0]
        assert got.selected.tolist() == exact.bh([exact.Fraction(int(r), 40) for r in rank], 0.2)[0]


@every
@pytest.mark.slow("long")
def test_masks_and_nan_are_absence(combine):
    calibration, scores = panels(10, shift=3.0)
    keep_c, keep_s = np.arange(400) % 7 > 0, np.arange(30) % 5 > 0
    if combine == "split_weights":
        split = np.arange(400) % 2 == 0
        more, cut_more = {"split": split}, {"split": split[keep_c]}
    else:
        more = cut_more = options(combine)
    cut = td4eval(calibration[:, keep_c], scores[:, keep_s], alpha=0.2, combine=combine, **cut_more)
    masked = td4eval(calibration, scores, alpha=0.2, combine=combine, calibration_mask=keep_c, mask=keep_s, **more)
    holed_c, holed_s = calibration.copy(), scores.copy()
    holed_c[1, ~keep_c] = np.nan
    holed_s[2, ~keep_s] = np.nan
    holed = td4eval(holed_c, holed_s, alpha=0.2, combine=combine, **more)
    for got in (masked, holed):
        np.testing.assert_array_equal(np.asarray(got.selected)[keep_s], cut.selected)
        np.testing.assert_allclose(np.asarray(got.adjusted)[keep_s], cut.adjusted, rtol=1e-6)
        assert np.isnan(np.asarray(got.p_values)[~keep_s]).all()
        assert np.isnan(np.asarray(got.adjusted)[~keep_s]).all()
        assert not np.asarray(got.selected)[~keep_s].any()
        assert (got.num_tests, got.num_calibration) == (cut.num_tests, cut.num_calibration)
        assert got.min_selections == cut.min_selections


@functools.partial(jax.jit, static_argnums=3)
def over_panels(calibration, scores, alpha, combine):
    def call(calibration, scores):
        return td4eval(calibration, scores, alpha=alpha, combine=combine, **options(combine))

    return jax.vmap(call)(calibration, scores)


def several_panels():
    many = [panels(seed) for seed in range(3)]
    return [np.stack(parts).astype(np.float32) for parts in zip(*many, strict=True)]


@every
@pytest.mark.slow("long")
def test_vmap_equals_loop(combine):
    c, s = several_panels()
    batched = jax.tree.map(np.asarray, over_panels(c, s, np.float32(0.2), combine))
    for i in range(3):
        alone = td4eval(c[i].astype(float), s[i].astype(float), alpha=0.2, combine=combine, **options(combine))
        np.testing.assert_array_equal(batched.selected[i], alone.selected)
        np.testing.assert_allclose(batched.p_values[i], alone.p_values, rtol=1e-6)


@pytest.mark.parametrize(
    "combine", ["pooled_rank", *(pytest.param(name, marks=SLOW) for name in ("cauchy", "hommel", "e_values"))]
)
def test_traced_level_out_of_range_selects_nothing_and_says_nan(combine):
    for alpha in (0.0, 1.0, -0.5, np.nan):
        out = over_panels(*several_panels(), np.float32(alpha), combine)
        assert not np.asarray(out.selected).any()
        assert np.isnan(np.asarray(out.adjusted)).all()


@pytest.mark.slow("long")
def test_float64_order_survives_32_bit_jax():
    calibration = 1 + np.arange(20).reshape(1, 20) * 1e-12
    scores = np.array([[1 + 30e-12, 1 - 1e-12]])
    got = td4eval(calibration, scores, alpha=0.3)
    np.testing.assert_allclose(got.p_values, [1 / 21, 1.0], rtol=1e-6)


def test_one_compilation_for_all_levels():
    before = module._td4eval._cache_size()
    calibration, scores = panels(11)
    for alpha in (0.06, 0.11, 0.31):
        td4eval(calibration, scores, alpha=alpha)
    assert module._td4eval._cache_size() - before <= 1


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"combine": "fisher"}, ("combine", "pooled_rank", "'fisher'")),
        ({"rule": "mean"}, ("rule", "'mean'")),
        ({"rule": "sum", "combine": "cauchy"}, ("rule", "pooled_rank", "cauchy")),
        ({"weights": [1, 1, 1], "combine": "cauchy"}, ("weights", "average", "cauchy")),
        ({"weights": [1, 1]}, ("weights", "2", "3")),
        ({"weights": [1, -1, 1]}, ("weights[1]", "-1")),
        ({"weights": [0, 0, 0]}, ("weights", "zero")),
        ({"weights": [1, np.nan, 1]}, ("weights[1]", "nan")),
        ({"key": KEY, "combine": "hommel"}, ("key", "hommel")),
        ({"combine": "random"}, ("key", "random")),
        ({"combine": "split_weights"}, ("key", "split_weights")),
        ({"split": np.ones(400, bool)}, ("split", "split_weights")),
        ({"combine": "split_weights", "split": np.ones(400, bool)}, ("split", "final ranks")),
        ({"combine": "split_weights", "split": np.zeros(400, bool)}, ("split", "weights")),
        ({"combine": "split_weights", "split": np.ones(399, bool)}, ("split", "399")),
        ({"alpha": 1.5}, ("alpha", "1.5")),
        ({"calibration": np.zeros((2, 40))}, ("2 detectors", "3")),
        ({"calibration": np.zeros((3, 0))}, ("calibration", "empty")),
        ({"calibration": np.full((3, 40), np.nan)}, ("calibration", "NaN")),
        ({"scores": np.zeros(30)}, ("scores", "two-dimensional")),
        ({"scores": np.full((3, 30), np.inf)}, ("scores[0, 0]", "inf")),
        ({"mask": np.ones(29, bool)}, ("mask", "29")),
    ],
)
def test_bad_input_is_named(change, words):
    calibration, scores = panels(12)
    arguments = {"calibration": calibration, "scores": scores, "alpha": 0.1} | change
    with pytest.raises(InputError) as caught:
        td4eval(**arguments)
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([0.1, 1.2], "hommel"), ("p_values[1]", "1.2")),
        (([[0.1, -0.5]], "hommel"), ("p_values[0, 1]", "-0.5")),
        (([0.1, 0.2], "mean"), ("method", "'mean'")),
        ((0.3, "hommel"), ("p_values", "0.3")),
        ((["a", "b"], "hommel"), ("p_values",)),
        ((np.zeros((2, 0)), "hommel"), ("(2, 0)",)),
        (([0.1, 0.2], "hommel", [1, 1]), ("weights", "hommel")),
        (([0.1, 0.2], "cauchy", [1, -1]), ("weights[1]", "-1")),
        (([0.1, 0.2], "cauchy", [0, 0]), ("weights", "zero")),
        (([0.1, 0.2], "stouffer", [1, 1, 1]), ("weights", "(3,)", "(2,)")),
        (([0.1, 0.2], "cauchy", None, 1), ("axis", "1")),
    ],
)
def test_bad_p_values_are_named(arguments, words):
    names = ("p_values", "method", "weights", "axis")
    with pytest.raises(InputError) as caught:
        combine_p_values(**dict(zip(names, arguments, strict=False)))
    assert all(word in str(caught.value) for word in words), str(caught.value)


@pytest.mark.parametrize("method", METHODS)
def test_combine_p_values_in_every_kind_of_array(method):
    p = np.random.default_rng(0).random((4, 3)) ** 3
    p[1, 1] = np.nan
    wide = combine_p_values(p, method=method)
    assert isinstance(wide.p_value, np.ndarray)
    assert wide.p_value.dtype == np.float64
    single = p.astype(np.float32)
    narrow = combine_p_values(jax.device_put(single.T), method=method, axis=0)
    assert narrow.p_value.dtype == np.float32
    traced = jax.jit(jax.vmap(lambda row: combine_p_values(row, method=method).p_value))(single)
    np.testing.assert_allclose(narrow.p_value, wide.p_value, rtol=2e-5)
    np.testing.assert_allclose(traced, narrow.p_value, rtol=1e-6)
    assert np.isnan(wide.p_value).tolist() == [False, True, False, False]


def test_combine_p_values_reaches_far_below_single_precision():
    assert float(combine_p_values([1e-300, 0.2], method="cauchy").p_value) == pytest.approx(2e-300, abs=0)
    assert float(combine_p_values([0, 1], method="maximum").p_value) == 1
