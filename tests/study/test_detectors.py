"""Single detectors as methods of a study, and the weights of many items."""

import jax
import numpy as np
import pytest
from scipy.special import ndtr

import tdd
from tdd.kernels import lattice
from tdd.report.plots import studies as plots
from tdd.study import CorrelatedDetectors, NormalShift, method, run
from tdd.study.named import detectors, load, td4eval, weights
from tdd.study.named.driver import verdict_rows
from tdd.study.named.record import Columns, StudyOptions

KEY = jax.random.key(0)
TOLD = StudyOptions(repetitions=64, alphas=(0.15,))


def test_p_values_of_one_detector_of_several():
    rule = method("bh", detector=1)
    assert rule.panel is True
    sample = jax.jit(CorrelatedDetectors(num_detectors=2, signal=(0.0, 3.0)).draw)(KEY)
    level = lattice.as_level(0.2)
    p = tdd.conformal_p_values(sample.calibration[1], sample.scores[1], null="member")
    wanted = np.asarray(tdd.bh(p, 0.2).reject)
    assert wanted.any()
    assert np.array_equal(rule.select(KEY, sample, level, null="member"), wanted)
    with pytest.raises(tdd.InputError, match="needs the scores of several detectors"):
        run(NormalShift(null="member"), rule, alphas=0.2, repetitions=8)
    assert method("bh").panel is False


def test_each_detector_stands_beside_its_combinations():
    names = [*detectors._with_combinations(TOLD)]
    assert names[:2] == ["BH, detector 2.5 sd", "BH, detector 1.5 sd"]
    assert names[5:] == [*detectors.TOGETHER]
    rng = np.random.default_rng(0)
    table = Columns("t", "0" * 64, ("a", "b"), rng.normal(size=(2, 9)), rng.random((1, 9)) < 0.5, np.zeros((9, 0)))
    given = StudyOptions(64, (0.15,), columns=table)
    assert [*detectors._alone(given)] == ["BH, detector a", "BH, detector b"]
    bound = load("td4eval-single").bound
    assert [bound(TOLD, {}, name).kind for name in (names[0], "td4eval/pooled_rank")] == ["finite-sample"] * 2
    assert [bound(TOLD, {}, name).kind for name in detectors.TOGETHER[:4]] == ["none"] * 4
    with pytest.raises(tdd.InputError, match="leave table out"):
        load("td4eval-weights").run(given)


def test_thresholds_stand_beside_combinations_under_noise():
    names = [*td4eval._under_noise(TOLD)]
    assert names[:4] == [*td4eval.NOISY]
    assert [name for name in names[4:] if not name.endswith("threshold")] == []
    assert len(names) == 4 + len(td4eval.SIGNALS)


def test_clean_items_of_many_are_shifted_or_have_bounded_p_values():
    draw = jax.jit(weights.MoreItems.draw)
    shifted, bounded = (draw(weights.MoreItems(law, 200), KEY) for law in (0, 1))
    for sample in (shifted, bounded):
        assert int(sample.mask.sum()) == int(sample.calibration_mask.sum()) == 200
    clean = np.asarray(shifted.target)
    means = np.asarray(shifted.scores)[:, clean].mean(axis=1)
    assert np.abs(means - td4eval.SIGNALS).max() < 5 / np.sqrt(clean.sum())
    p = ndtr(-np.asarray(bounded.scores, np.float64))
    largest = np.array(weights.LARGEST)
    assert (p[:, clean].max(axis=1) < largest * (1 + 1e-3)).all()  # ndtri in single precision: 4 eps/(p dz/dp)
    assert np.abs(p[:, clean].mean(axis=1) / largest - 0.5).max() < 5 * np.sqrt(1 / 12 / clean.sum())
    assert np.array_equal(np.asarray(shifted.scores)[:, ~clean], np.asarray(bounded.scores)[:, ~clean])


@pytest.mark.slow("long")
def test_weights_settle_and_the_bound_starts_at_the_smallest_n():
    """Lemma 2: the spread of each weight falls. Theorem 2: its bound is met where its assumption holds, there alone."""
    study = load("td4eval-weights")
    result = study.run(TOLD)
    weight, spread, least = (result.measures[name][..., 0] for name in ("weight", "spread", "power_bound"))
    np.testing.assert_allclose(weight[:, :-1].sum(axis=1), 1, rtol=0, atol=5 * 2**-23)
    assert np.isnan(weight[:, -1]).all()
    count = len(weights.SIZES)
    for law in range(2):
        first, last = spread[law * count, :-1], spread[(law + 1) * count - 1, :-1]
        assert (last <= first).all()  # a detector without a signal may never reject anything
        assert (last[:3] < first[:3]).all()
    power = result.power[:, -1, 0]
    first = np.arange(0, 2 * count, count)
    np.testing.assert_allclose(least[first, -1], power[first])
    assert (power[count:] >= least[count:, -1] - 1e-12).all()
    assert power[count - 1] < least[count - 1, -1]
    assert "ABOVE" not in {row["verdict"] for row in verdict_rows(study, TOLD, result)}
    panels = plots.draw(result, study.figure, title="t").panels
    assert [axes.get_title("left") for axes in panels[0]] == ["weight, shifted", "weight, bounded"]
    assert len(panels) == 3
