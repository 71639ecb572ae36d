"""TD4Eval's application: divisions, ranks, and a tiny run from beginning to end."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

import tdd
from benchmarks.reproductions import td4eval
from benchmarks.reproductions.figures.td4eval import draw
from benchmarks.reproductions.record import Options

SIZES = dataclasses.replace(td4eval.Sizes.at(0.01), items=200, epochs=1, splits=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("td4eval")


@pytest.fixture(scope="module")
def outcome(folder):
    return td4eval.REPRODUCTION.run(Options(folder, scale=0.01), SIZES)


def test_contaminated_items_of_the_validation_set_calibrate_and_are_not_tested():
    member = np.arange(100) % 4 == 0
    splits = td4eval._splits(member, 30, np.random.default_rng(0))
    own, tested = splits.calibration[:, splits.real], splits.tested[:, splits.mask]
    assert own.shape == (30, 8)
    assert tested.shape == (30, 17 + 53)  # of 25 contaminated items round(.3 * 25) validate; of 75 clean ones 22
    assert member[own].all()
    assert (member[tested].sum(axis=1) == 17).all()
    for one, two in zip(own, tested, strict=True):
        assert len({*one, *two}) == len(one) + len(two)
    assert len({tuple(sorted(row)) for row in own}) > 20


@pytest.mark.slow("long")
def test_padding_changes_no_selection():
    rng = np.random.default_rng(2)
    member = np.arange(200) % 10 == 0
    scores = rng.normal(size=(6, 200)) - 3 * member
    splits = td4eval._splits(member, SIZES.splits, rng)
    assert not splits.real.all()
    for how in ({"combine": "cauchy"}, {"combine": "pooled_rank", "rule": "sum"}):
        found = td4eval._selected("any", how, scores, splits)
        assert not found[:, ~splits.mask].any()
        for row, own, tested in zip(found, splits.calibration, splits.tested, strict=True):
            own, tested = own[splits.real], tested[splits.mask]
            wanted = tdd.td4eval(scores[:, own], scores[:, tested], alpha=td4eval.ALPHA, **how).selected
            np.testing.assert_array_equal(row[splits.mask], wanted)
    alone = td4eval._selected("lowercase alone", None, scores, splits)
    p = tdd.conformal_p_values(
        scores[1, splits.calibration[0][splits.real]], scores[1, splits.tested[0][splits.mask]], null="member"
    )
    np.testing.assert_array_equal(alone[0][splits.mask], tdd.bh(p, td4eval.ALPHA).reject)


def test_thresholds_have_the_highest_accuracy_on_the_validation_set():
    """Every score of a validation item is tried, by plain counting; padding is none of them."""
    rng = np.random.default_rng(4)
    member = np.arange(120) % 5 == 0
    scores = rng.normal(size=(6, 120)) - 1.5 * member
    splits = td4eval._splits(member, 4, rng)
    assert not (splits.real.all() and splits.clean_real.all())
    for number, name in enumerate(td4eval.DETECTORS):
        found = td4eval._selected(f"{name}, threshold", None, scores, splits)
        for row, own, clean, tested in zip(found, splits.calibration, splits.clean, splits.tested, strict=True):
            own, clean, tested = own[splits.real], clean[splits.clean_real], tested[splits.mask]
            assert not member[clean].any()
            assert not {*clean} & {*tested}
            contaminated, pure = scores[number, own], scores[number, clean]
            gains = {t: int((pure >= t).sum()) - int((contaminated >= t).sum()) for t in (*contaminated, *pure)}
            best = max(gains.values())
            cut = max(t for t, gain in gains.items() if gain == best)
            np.testing.assert_array_equal(row[splits.mask], scores[number, tested] >= cut)
            assert not row[~splits.mask].any()


@pytest.mark.slow("long")
def test_cleaning_restores_the_ranking_where_detection_is_easy():
    rng = np.random.default_rng(0)
    member = np.arange(200) < 100
    skill = np.array([0.3, 0.4, 0.5, 0.6, 0.7])
    right = (rng.random((5, 200)) < skill[:, None]).astype(float)
    right[0, member] = 1.0  # the weakest model knows the contaminated items by heart
    scores = rng.normal(size=(6, 200)) - 6 * member
    splits = td4eval._splits(member, SIZES.splits, rng)
    rows = {row["rule"]: row for row in td4eval._cleaned(scores, member, {"accuracy": right}, splits, 0)}
    before, after = rows["nothing removed"], rows["TD4Eval, pooled ranks, sum"]
    assert before["fdp"] == 0.5
    assert before["power"] == 1.0
    assert before["rank"] < 3
    assert after["power"] > 0.9
    assert after["fdp"] < 0.15
    assert after["srcc"] > 0.95 > before["srcc"]
    assert after["rank"] == pytest.approx(after["true_rank"], abs=0.2)
    assert after["true_rank"] > 4.5


@pytest.mark.slow("training")
def test_rows_of_a_tiny_run(outcome):
    assert len(outcome.rows) == len(td4eval.SHARES) * SIZES.sets * len(td4eval.RULES) * len(td4eval.METRICS)
    for row in outcome.rows:
        if row["rule"] == "nothing removed":
            assert row["fdp"] == pytest.approx(row["share"], abs=0.03)
            assert row["empty"] == 0
    models = outcome.tables["The models before contamination"]
    assert [row["epochs"] for row in models] == [1, 2, 3]
    assert [row["trained on items later"] for row in models] == [False, True, False]


@pytest.mark.slow("training")
def test_the_figure(outcome):
    assert [len(row) for row in draw(outcome).panels] == [2, 2]
