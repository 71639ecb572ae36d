"""`tdd.study.expected_power` against closed forms, slow loops and the general engine; its search; its messages."""

import csv
import dataclasses
import json
import math
from statistics import NormalDist

import jax
import numpy as np
import pytest

import tdd
from tdd.study.power import simulate as search
from tdd.study.power.read import read_labelled
from tdd.study.power.scores import ScorePool, normal_scores, smoothed

RNG = np.random.default_rng(0)
MEMBER = np.arange(240) < 120
SCORES = RNG.normal(size=240) - 2.0 * MEMBER
PAIRS = np.stack([SCORES, 0.5 * SCORES + RNG.normal(size=240)])
SIZES = {"num_calibration": 39, "num_tests": 40}


def plan(source=None, *, auc=0.9, sd_ratio=1.0, **options):
    options = {**SIZES, "member_share": 0.25, "alpha": [0.1, 0.2], "method": "bh", "search": False} | options
    return tdd.study.expected_power(tdd.study.NormalScores(auc, sd_ratio) if source is None else source, **options)


def pooled(scores=SCORES, is_member=MEMBER, draw="auto", **options):
    return plan(tdd.study.LabelledScores(scores, is_member, draw), **options)


def reference(rng, repetitions, n, m, targets, signal, alpha, spread=1.0, plus=1):
    """Benjamini and Hochberg's procedure on conformal p-values of normal scores, one audit after the other."""
    power, fdp, selected = np.zeros((3, repetitions))
    for i in range(repetitions):
        calibration, scores = np.sort(rng.normal(size=n)), rng.normal(size=m)
        scores[:targets] = spread * scores[:targets] - signal
        rank = plus + np.searchsorted(calibration, scores, "right")
        ordered = np.sort(rank)
        reached = [k for k in range(1, m + 1) if ordered[k - 1] * m * 10 <= round(10 * alpha) * k * (n + 1)]
        chosen = rank <= (ordered[reached[-1] - 1] if reached else -1)
        power[i], selected[i] = chosen[:targets].mean(), chosen.sum()
        fdp[i] = chosen[targets:].sum() / max(1, chosen.sum())
    return {"power": power, "fdp": fdp, "num_selected": selected, "any_true": power > 0}


def distances(row, values):
    """How many standard errors each number of a row lies from the mean of a slow loop."""
    own = {name: row.get(f"{name}_se", row["any_true_se"]) for name in values}
    return {
        name: (row[name] - x.mean()) / np.hypot(own[name], np.std(x, ddof=1) / np.sqrt(len(x)))
        for name, x in values.items()
    }


@pytest.mark.slow("long")
@pytest.mark.guarantee(checks=4)
def test_the_power_of_bh_on_normal_scores(false_alarm_level):
    """10,000 audits here, 10,000 in a loop; without the +1 of the p-values the loop is another procedure."""
    bound = NormalDist().inv_cdf(1 - false_alarm_level / 2)
    signal = math.sqrt(1 + 1.5**2) * NormalDist().inv_cdf(0.9)
    row = plan(sd_ratio=1.5, repetitions=10_000).rows[0]
    assert (row["num_targets"], row["num_members"], row["member_share"], row["extrapolated"]) == (10, 10, 0.25, False)
    found = reference(np.random.default_rng(1), 10_000, 39, 40, 10, signal, 0.1, 1.5)
    assert max(map(abs, distances(row, found).values())) < bound
    for name in ("power", "num_selected"):
        low, middle, high = (row[f"{name}_{q}"] for q in ("q10", "q50", "q90"))
        for q, value in ((0.1, low), (0.5, middle), (0.9, high)):
            assert (found[name] <= value + 1e-3).mean() > q - 0.02
            assert (found[name] < value - 1e-3).mean() < q + 0.02
    broken = reference(np.random.default_rng(1), 2_000, 39, 40, 10, signal, 0.1, 1.5, plus=0)
    assert max(map(abs, distances(row, broken).values())) > bound


@pytest.mark.parametrize("ratio", [0.5, 1, 2])
@pytest.mark.parametrize("null", ["nonmember", "member"])
def test_one_against_one_has_the_power_of_the_auc(null, ratio):
    """n = m = 1 at level 1/2: the item is selected where it lies beyond the one calibration item."""
    share = 1 if null == "nonmember" else 0
    options = {"num_calibration": 1, "num_tests": 1, "member_share": share, "alpha": 0.5, "repetitions": 40_000}
    row = plan(auc=0.73, sd_ratio=ratio, method=f"bh:null={null}", **options).rows[0]
    assert abs(row["power"] - 0.73) < 4.5 * row["power_se"]
    assert row["any_true"] == pytest.approx(row["power"], abs=1e-9)
    assert row["fdp"] == 0


@pytest.mark.guarantee(checks=4)
def test_the_exact_false_discovery_rate(false_alarm_level):
    """alpha (n + 1)/m is 1 or 2 and nothing ties: the rate is alpha m0/m, of a law and of a pool."""
    bound = NormalDist().inv_cdf(1 - false_alarm_level / 2)
    sizes = {"num_calibration": 99, "num_tests": 10, "member_share": 0.2, "repetitions": 20_000}
    for row in (*plan(**sizes).rows, *pooled(**sizes).rows):
        assert abs(row["fdp"] - 0.8 * row["alpha"]) < bound * row["fdp_se"]
        assert row["power"] > 0.2


@pytest.mark.slow("long")
def test_the_fixed_pool_engine_and_the_general_one():
    """The same draws are made by two engines: PTDI's own and `tdd.study.run` on a `Pool`."""
    design = tdd.study.Pool(SCORES, MEMBER, test_members=0.25, calibration_ratio=1.0)
    n, nulls, targets = design.sizes()
    options = {"num_calibration": n, "num_tests": nulls + targets, "member_share": targets / (nulls + targets)}
    rows = pooled(method="ptdi", repetitions=20_000, **options).rows
    slow = tdd.study.run(design, "ptdi/storey", alphas=[0.1, 0.2], repetitions=4_096, seed=1)
    for i, row in enumerate(rows):
        assert (row["drawn"], row["extrapolated"]) == ("without replacement", False)
        for name, mean in (("power", slow.power), ("fdp", slow.fdr), ("num_selected", slow.num_selected)):
            error = np.hypot(row[f"{name}_se"], getattr(slow, "fdr_se" if name == "fdp" else f"{name}_se")[0, i])
            assert abs(row[name] - mean[0, i]) < 4.5 * error


@pytest.mark.slow("long")
def test_several_detectors_against_the_general_engine():
    ranks = np.stack([np.unique(row, return_inverse=True)[1] for row in PAIRS])
    design = tdd.study.Pool(ranks, MEMBER, test_members=0.5, calibration_ratio=1.0, null="member")
    n, nulls, targets = design.sizes()
    options = {"num_calibration": n, "num_tests": nulls + targets, "member_share": 0.5, "alpha": 0.2}
    row = pooled(PAIRS, method="td4eval:combine=average", repetitions=4_096, **options).rows[0]
    slow = tdd.study.run(design, "td4eval/average", alphas=[0.2], repetitions=4_096, seed=1)
    assert (row["num_members"], row["num_targets"]) == (nulls, targets)
    assert abs(row["power"] - slow.power[0, 0]) < 4.5 * np.hypot(row["power_se"], slow.power_se[0, 0])
    assert abs(row["fdp"] - slow.fdr[0, 0]) < 4.5 * np.hypot(row["fdp_se"], slow.fdr_se[0, 0])
    assert 0.1 < row["power"] < 0.95


@pytest.mark.slow("long")
def test_knockoffs_against_a_loop():
    """Every audit of the loop is `tdd.ktd` on items of its own choice."""
    copies = np.concatenate([SCORES[None], RNG.normal(size=(2, 240)) - 0.5], axis=0)
    row = pooled(copies, method="ktd", num_calibration=None, num_tests=60, member_share=0.5, alpha=0.2).rows[0]
    rng, found = np.random.default_rng(2), []
    for _ in range(250):
        items = np.concatenate([rng.permutation(120)[:30], 120 + rng.permutation(120)[:30]])
        found.append(np.asarray(tdd.ktd(copies[0, items], copies[1:, items].T, alpha=0.2).selected)[:30].mean())
    error = np.hypot(row["power_se"], np.std(found, ddof=1) / np.sqrt(250))
    assert abs(row["power"] - np.mean(found)) < 4.5 * error
    assert (row["min_selections"], row["drawn"]) == (3, "without replacement")


def test_more_is_found_with_more_of_anything():
    """Common random numbers: no exception by chance."""
    rows = plan(num_calibration=[19, 39], num_tests=40, member_share=[0.1, 0.25, 0.5, 1.0], repetitions=2_048).rows
    power = np.array([row["power"] for row in rows]).reshape(2, 4, 2)
    assert (np.diff(power, axis=1) > 0).all()
    assert (np.diff(power, axis=2) > 0).all()
    assert (power[1, :, 0] >= power[0, :, 0]).all()
    stronger = plan(auc=0.97, member_share=[0.1, 0.25, 0.5, 1.0], repetitions=2_048).rows
    assert all(a["power"] > b["power"] for a, b in zip(stronger, rows[8:], strict=True))
    assert [row["min_selections"] for row in rows[:2]] == [20, 10]  # m/(alpha (n + 1))


def test_the_numbers_do_not_depend_on_what_else_is_asked():
    both = plan(num_calibration=[39], member_share=[0.25, 0.5], repetitions=600)
    again = plan(num_calibration=[39], member_share=[0.5], repetitions=600)
    assert both.rows[2:] == again.rows
    assert plan(num_calibration=[39], member_share=[0.5], repetitions=600, seed=1).rows != again.rows
    one = plan(num_calibration=[39], member_share=[0.5], repetitions=600, devices=jax.devices()[:1])
    assert one.rows == again.rows


# --- the smallest detectable share ------------------------------------------------------------------------------------


def test_the_search_on_a_known_curve():
    def curve(count):
        calls.append(count)
        return count / 1000, 0.004

    calls = []
    found = search.smallest_count(curve, [10, 100], 1000, 0.237)
    assert 237 <= found.count <= 237 * 1.01
    assert found.low == 229
    assert found.high == 245
    assert len(set(calls)) < 15
    assert search.smallest_count(curve, [], 1000, 1.5) == search.Crossing(None, None, None, 1.0, 0.004)
    assert search.smallest_count(lambda count: (1.0, 0.0), [3], 50, 0.5).count == 1
    steep = search.smallest_count(lambda count: (float(count >= 7), 0.0), [], 10, 0.5)
    assert (steep.count, steep.high) == (7, 7)


def test_the_smallest_share_lies_on_the_curve():
    found = plan(auc=0.97, member_share=[0.25], search=True, repetitions=256, power=0.6, detection=0.7)
    assert [row["criterion"] for row in found.smallest] == ["power", "power", "any_true", "any_true"]
    by_place = {(row["num_targets"], row["alpha"]): row for row in found.curve}
    for row in found.smallest:
        at = by_place[row["num_targets"], row["alpha"]]
        assert at[row["criterion"]] == row["value"] >= row["wanted"]
        assert row["target_share"] == row["member_share"] == row["num_targets"] / 40
        assert row["target_share_low"] <= row["target_share"] <= row["target_share_high"]
        below = plan(auc=0.97, member_share=[(row["num_targets"] - 1) / 40], repetitions=256).rows
        assert next(x for x in below if x["alpha"] == row["alpha"])[row["criterion"]] < row["wanted"]
        assert row["reason"] == ""


def test_the_search_asks_of_a_pool_only_what_it_gives():
    """50 to calibrate leave 50 non-members of 100: at least 50 of 100 candidates are members."""
    apart = np.concatenate([np.linspace(-9, -8, 100), np.linspace(0, 1, 100)])
    options = {"num_calibration": 50, "num_tests": 100, "member_share": [0.6], "search": True, "repetitions": 256}
    found = pooled(apart, np.arange(200) < 100, draw="without", **options)
    assert {row["num_targets"] for row in found.smallest} == {50}
    assert found.smallest[0]["reason"] == (
        "pool: without replacement it gives no fewer than 50 members among 100 candidates; fewer may do"
    )
    assert not any(row["extrapolated"] for row in found.curve)


@pytest.mark.slow("long")
def test_what_is_never_detected_and_why():
    sizes = {"num_calibration": [5, 39], "num_tests": [10, 40], "member_share": [1.0], "repetitions": 256}
    few = plan(method="ptdi:proportion=none", search=True, **sizes)
    assert {row["num_targets"] for row in few.smallest if row["num_calibration"] == 5 and row["alpha"] == 0.1} == {None}
    assert few.smallest[0]["reason"] == ("resolution: 5 calibration items are too few for 10 candidates at level 0.1")
    assert few.rows[0]["min_selections"] == 11
    assert few.rows[0]["any_selected"] == 0
    members = np.arange(200) < 100
    apart = tdd.study.LabelledScores(np.random.default_rng(0).normal(size=(2, 200)) - 1000.0 * members, members)
    for method, sizes, reason in (
        (
            "td4eval:combine=split_weights",
            (38, 1, 0.04),
            "resolution: 38 calibration items are too few for 1 candidate at",
        ),
        ("combined_score", (39, 1, 0.03), "resolution: 39 calibration items are too few for 1 candidate at"),
        (
            "td4eval:combine=bonferroni",
            (39, 10, 0.1),
            "signal: the scores separate too little, or 39 calibration items are too few, even where",
        ),
    ):
        given = dict(zip(("num_calibration", "num_tests", "alpha"), sizes, strict=True))
        found = tdd.study.expected_power(apart, method=method, repetitions=16, **given)
        assert {row["reason"][: len(reason)] for row in found.smallest} == {reason}
    weak = plan(auc=0.51, search=True, repetitions=256)
    assert weak.smallest[0]["reason"] == (
        "signal: the scores separate too little, or 39 calibration items are too few, even where all candidates are "
        "members"
    )


# --- beyond the pool --------------------------------------------------------------------------------------------------


@pytest.mark.slow("long")
def test_a_pool_that_is_too_small_is_smoothed_and_says_so():
    found = pooled(num_calibration=100, num_tests=[20, 200], member_share=0.5, repetitions=512)
    assert [row["extrapolated"] for row in found.rows] == [False, False, True, True]
    assert {row["drawn"] for row in found.rows[2:]} == {"smoothed pool"}
    assert any("extrapolated" in words and "120" in words for words in found.about["warnings"])
    with pytest.raises(
        tdd.InputError, match=r"cannot give 200 non-members \(100 to calibrate, 100 among .* 120 and 120"
    ):
        pooled(num_calibration=100, num_tests=200, member_share=0.5, draw="without")
    always = pooled(num_calibration=100, num_tests=[20, 200], member_share=0.5, draw="smoothed", repetitions=512)
    assert always.rows[0]["extrapolated"]
    assert abs(always.rows[1]["power"] - found.rows[1]["power"]) < 0.15


@pytest.mark.parametrize("rows", [1, 3])
def test_smoothing_keeps_means_and_covariances(rows):
    mixed = RNG.exponential(size=(rows, 80)) * np.arange(1, rows + 1)[:, None] + RNG.normal(size=80)
    values, factor = smoothed(mixed)
    np.testing.assert_allclose(values.mean(axis=1), mixed.mean(axis=1))
    total = values.var(axis=1, ddof=1) + (factor @ factor.T).diagonal()
    np.testing.assert_allclose(total, mixed.var(axis=1, ddof=1))
    assert (factor @ factor.T).diagonal().min() > 0.01 * mixed.var(axis=1).min()
    constant = np.ones((rows, 5))
    np.testing.assert_array_equal(smoothed(constant)[0], constant)
    np.testing.assert_array_equal(smoothed(constant)[1], 0)
    np.testing.assert_array_equal(smoothed(np.ones((1, 1)))[1], 0)


@pytest.mark.parametrize("law", [lambda x: x, lambda x: np.exp(0.5 * x)], ids=["normal", "lognormal"])
@pytest.mark.slow("long")
def test_smoothed_draws_err_less_than_plain_ones(law, monkeypatch):
    """Small pools of a known law: beyond them, plain draws with replacement promise too much."""
    sizes = {"num_calibration": 400, "num_tests": 400, "member_share": 0.05, "alpha": 0.1, "repetitions": 256}
    true = plan(auc=NormalDist().cdf(2.5 / math.sqrt(2)), **(sizes | {"repetitions": 4_096})).rows[0]
    is_member = np.arange(120) < 60
    rng = np.random.default_rng(3)
    pools = [law(rng.normal(size=120) - 2.5 * is_member) for _ in range(16)]
    smooth = np.array([pooled(pool, is_member, **sizes).rows[0]["power"] for pool in pools])
    monkeypatch.setattr("tdd.study.power.scores.smoothed", lambda values: (values, np.zeros((len(values),) * 2)))
    plain = [pooled(pool, is_member, **sizes).rows[0] for pool in pools]
    values = np.array([row["power"] for row in plain])
    bias = values.mean() - true["power"]
    assert bias > 0.1
    assert abs(smooth.mean() - true["power"]) < 0.7 * bias
    assert np.square(smooth - true["power"]).mean() < 0.7 * np.square(values - true["power"]).mean()
    assert np.mean([row["fdp"] for row in plain]) < 0.5 * true["fdp"]  # equal scores hide false discoveries


def test_without_replacement_no_item_comes_twice():
    """Knockoffs set nothing aside to calibrate: five candidates may be all five items under the null."""
    scores = np.arange(20.0).reshape(2, 10)
    pool = ScorePool(tdd.study.LabelledScores(scores, np.arange(10) >= 5), "knockoffs", "nonmember")
    assert pool.without_replacement(1, 6, 1)
    design = pool.design((1, 6), "nonmember", exact=True)
    few = dataclasses.replace(design, num_calibration=1, num_tests=6, num_targets=1)
    sample = jax.jit(few.draw)(jax.random.key(0))
    assert len(np.unique(np.asarray(sample.scores))) == 6


def test_higher_scores_of_the_only_column_are_turned():
    table = [{"id": str(i), "log_prob": float(i), "label": int(i < 2)} for i in range(4)]
    np.testing.assert_array_equal(read_labelled(table, higher_is_member=True).scores, [[0, -1, -2, -3]])


def test_normal_scores():
    values = np.array([[5.0, -1.0, 5.0, 100.0], [4.0, 3.0, 2.0, 1.0]])
    q = NormalDist().inv_cdf
    expected = [[q(0.5), q(0.125), q(0.5), q(0.875)], [q(0.875), q(0.625), q(0.375), q(0.125)]]
    np.testing.assert_allclose(normal_scores(values), expected, atol=1e-5)


@pytest.mark.slow("long")
def test_a_pool_of_ties_is_decided_as_its_ranks_are():
    """Without replacement nothing but the order matters, in every engine."""
    tied = np.round(SCORES, 1)
    own = pooled(tied, repetitions=2_000).rows
    assert own == pooled(np.exp(tied), repetitions=2_000).rows
    assert own != pooled(repetitions=2_000).rows
    told = pooled(np.round(SCORES), num_calibration=100, num_tests=[20, 200], repetitions=256).about["warnings"]
    assert any("equal to others" in words for words in told)
    turned = pooled(-SCORES, repetitions=256).about["warnings"]
    assert any("HIGHER" in words for words in turned)


def test_defaults_fit_the_pool():
    source = tdd.study.LabelledScores(SCORES, MEMBER)
    found = tdd.study.expected_power(source, alpha=[0.1, 0.2], repetitions=500)
    assert {(row["num_calibration"], row["num_tests"]) for row in found.rows} == {(60, 60)}
    assert [row["num_targets"] for row in found.rows[::2]] == [1, 3, 6, 12, 30, 60]
    assert not any(row["extrapolated"] for row in found.curve)
    assert found.about["method"] == "ptdi/storey"
    auc = (SCORES[MEMBER][:, None] < SCORES[~MEMBER]).mean()
    assert f"120 members, 120 non-members, AUC {auc:.3f}" in found.about["source"]
    rounded = ScorePool(tdd.study.LabelledScores(np.round(SCORES), MEMBER), "one", "nonmember")
    assert rounded.aucs()[0] == pytest.approx(auc, abs=0.02)


def test_files(tmp_path):
    found = pooled(search=True, repetitions=256)
    assert [path.name for path in found.save(tmp_path / "plan")] == ["power.json", "power.csv"]
    whole = json.loads((tmp_path / "plan" / "power.json").read_text())
    assert (whole["kind"], whole["schema"], whole["null"]) == ("power", 1, "nonmember")
    assert whole["rows"][0]["power"] == found.rows[0]["power"]
    assert len(whole["smallest"]) == 4
    with open(tmp_path / "plan" / "power.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [float(row["alpha"]) for row in rows] == [0.1, 0.2]
    assert float(rows[0]["power"]) == found.rows[0]["power"]
    (tmp_path / "file").write_text("")
    with pytest.raises(tdd.InputError, match="cannot write"):
        found.save(tmp_path / "file")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (
            {"source": SCORES},
            r"tdd.study.LabelledScores\(scores, is_member\) or tdd.study.NormalScores\(auc\), got ndarray",
        ),
        ({"auc": 0.5}, "strictly between 0.5"),
        ({"auc": 1.0}, "strictly between 0.5"),
        ({"sd_ratio": 0}, "sd_ratio must be a positive number"),
        ({"member_share": 1.2}, "from 0 to 1, got 1.2; 0.1 stands for 10%"),
        ({"member_share": -0.1}, "from 0 to 1"),
        ({"member_share": 0.001}, "0.001 of 40 candidates leaves no members to be found"),
        ({"member_share": 1.0, "method": "bh:null=member"}, "leaves no clean items to be found"),
        ({"member_share": []}, r"member_share \(--fraction\) is empty"),
        ({"num_calibration": 0}, "num_calibration must be whole numbers of at least 1, got 0"),
        ({"num_tests": [10, 2.5]}, "num_tests must be whole numbers of at least 1, got 2.5"),
        ({"num_tests": []}, "num_tests is empty"),
        ({"num_tests": 2**24}, "num_tests must be below"),
        ({"alpha": 1.5}, "alpha"),
        ({"method": "lr"}, "method 'lr' is not known; choose one of bh, ptdi, "),
        ({"method": "bh:null=any"}, "bh has one option, null=nonmember or null=member; got 'bh:null=any'"),
        ({"method": "ptdi:proportion=moment"}, "needs members, which a power plan does not draw"),
        ({"method": "ptdi:null=member"}, "'ptdi' has no option 'null'"),
        ({"method": "td4eval"}, "needs those of several detectors"),
        ({"method": "ktd"}, "needs those of its knockoffs"),
        ({"power": 0}, "power must lie strictly between 0 and 1"),
        ({"detection": 1}, "detection must lie strictly between 0 and 1"),
        ({"repetitions": 0}, "repetitions must lie from 1"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_messages(options, words):
    with pytest.raises(tdd.InputError, match=words):
        plan(**options)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"is_member": MEMBER & False}, "no member among the 240 labelled items"),
        ({"is_member": MEMBER | True}, "no non-member among the 240"),
        ({"scores": np.where(MEMBER, np.nan, SCORES)}, "120 of 240 items"),
        ({"is_member": MEMBER[1:]}, r"shape \(240,\); got \(239,\)"),
        ({"is_member": MEMBER * 2}, r"True and False \(or 1 and 0\), got \[0, 2\]"),
        ({"scores": ["a"], "is_member": [1]}, "scores must be numbers"),
        ({"draw": "with"}, "draw must be one of 'auto', 'without', 'smoothed'"),
        ({"scores": PAIRS}, "scores has 2 rows"),
        ({"method": "ktd"}, "knockoffs are missing"),
        ({"scores": PAIRS, "method": "ktd"}, "ktd/multi has no calibration items"),
    ],
)
def test_messages_on_labelled_scores(options, words):
    with pytest.raises(tdd.InputError, match=words):
        pooled(**options)
