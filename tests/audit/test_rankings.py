"""Rankings of models by their results on selected items, against scipy and plain counting."""

import fractions

import numpy as np
import pytest
from scipy import stats

import tdd
from tdd.audit.rankings import CLEAN, rankings, spearman
from tdd.cli import main
from tdd.study.baselines import threshold

ALPHA, N, M = 0.2, 60, 90
DETECTORS = ("loss", "lowercase", "zlib", "grad_norm", "min_k", "min_k_plus_plus")
MODELS = ("m1", "m2", "m3", "m4", "m5")
SKILL = (0.35, 0.45, 0.55, 0.65, 0.75)


@pytest.fixture(scope="module")
def columns():
    """Half of the candidates are contaminated; the weakest model knows those by heart."""
    rng = np.random.default_rng(0)
    role = np.repeat(["calibration", "candidate"], [N, M])
    member = np.concatenate([np.ones(N, bool), np.arange(M) < M // 2])
    table = {"id": [f"i{i}" for i in range(N + M)], "role": role.tolist(), "label": member.astype(int).tolist()}
    table |= {name: (rng.normal(size=N + M) - (2.0 + k) * member).tolist() for k, name in enumerate(DETECTORS)}
    for k, name in enumerate(MODELS):
        right = (rng.random(N + M) < SKILL[k]).astype(float)
        right[member] = np.where(k == 0, 1.0, right[member])
        table[name] = ["" if r == "calibration" else value for r, value in zip(role, right, strict=True)]
    return table


def selected_alone(own, tested, alpha):
    """BH on (1 + #{calibration >= score}) / (n + 1), in fractions."""
    level = fractions.Fraction(str(alpha))
    p = [fractions.Fraction(1 + int((own >= score).sum()), len(own) + 1) for score in tested]
    last = max((k for k, value in enumerate(sorted(p), 1) if value <= level * k / len(p)), default=0)
    return np.array([value <= level * last / len(p) for value in p])


def test_the_six_detectors_and_the_selection_rank_the_models(columns):
    audit = tdd.select(
        columns, alpha=ALPHA, score=DETECTORS, method="td4eval:combine=cauchy", label_field="label", results=MODELS
    )
    found = audit.run["rankings"]
    rows = {row["items"]: row for row in found["rows"]}
    assert [*rows] == ["all items", *(f"{name} alone" for name in DETECTORS), "the selection", "truly clean items"]
    values = np.array([columns[name][N:] for name in MODELS], float)
    contaminated = np.array(columns["label"][N:]) == 1
    sets = {"all items": np.ones(M, bool), "the selection": np.asarray(audit.items["selected"]), CLEAN: ~contaminated}
    for name in DETECTORS:
        scores = np.array(columns[name])
        sets[f"{name} alone"] = selected_alone(scores[:N], scores[N:], ALPHA)
    true = values[:, ~contaminated].mean(axis=1)
    for name, chosen in sets.items():
        means = values[:, chosen].mean(axis=1)
        assert rows[name]["count"] == chosen.sum() > 0
        np.testing.assert_allclose(rows[name]["means"], means, rtol=1e-12)
        np.testing.assert_array_equal(rows[name]["ranks"], stats.rankdata(-means))
        assert rows[name]["fdp"] == pytest.approx((chosen & contaminated).sum() / chosen.sum())
        assert rows[name]["srcc"] == pytest.approx(stats.spearmanr(means, true).statistic)
    assert rows["the selection"]["fdp"] == pytest.approx(audit.run["decision"]["truth"]["fdp"])
    # the contaminated model is near the top on all items, and last on the selected ones
    assert (rows["all items"]["ranks"][0], rows["the selection"]["ranks"][0], rows[CLEAN]["ranks"][0]) == (2, 5, 5)
    assert rows["all items"]["srcc"] < rows["the selection"]["srcc"]


def test_thresholds_of_the_highest_accuracy_are_rows_too(columns):
    """The detectors of the paper's table 2, from validation items of both kinds, against a search of all thresholds."""
    rng = np.random.default_rng(3)
    values = np.array([columns[name][N:] for name in MODELS], float)
    member = np.array(columns["label"][N:]) == 1
    sets, plain = {}, {}
    for name in DETECTORS:
        scores = np.array(columns[name])
        own = np.concatenate([scores[:N], rng.normal(size=40)])  # clean ones are not shifted
        clean = np.arange(N + 40) >= N
        sets[f"{name}, threshold"] = np.asarray(threshold(own, clean, scores[N:], null="member").selected)
        gains = {t: int((clean & (own >= t)).sum() - (~clean & (own >= t)).sum()) for t in own}
        best = max(t for t in own if gains[t] == max(gains.values()))
        plain[f"{name}, threshold"] = scores[N:] >= best
    found = {row.items: row for row in rankings(dict(zip(MODELS, values, strict=True)), sets, member.astype(int)).rows}
    assert len(found) == len(DETECTORS) + 2
    for name, chosen in plain.items():
        means = values[:, chosen].mean(axis=1)
        assert found[name].fdp == pytest.approx(member[chosen].mean())
        assert found[name].srcc == pytest.approx(stats.spearmanr(means, values[:, ~member].mean(axis=1)).statistic)
    assert len({row.fdp for row in found.values()}) > 3


def test_without_labels_the_reference_is_all_items():
    results = {"a": np.array([1.0, 0.0, np.nan, 1.0]), "b": np.array([0.0, 0.0, 1.0, 1.0])}
    found = rankings(results, {"some": np.array([True, False, True, False]), "none": np.zeros(4, bool)})
    every, some, none = found.rows
    assert found.reference == every.items == "all items"
    assert (every.count, some.count, none.count) == (3, 1, 0)  # the third item has no result of a
    assert every.means == (pytest.approx(2 / 3), pytest.approx(1 / 3))
    assert (every.fdp, every.srcc, some.srcc, none.srcc) == (None, 1.0, 1.0, None)
    assert np.isnan(none.ranks).all()
    assert spearman([1.0, 1.0], [0.0, 1.0]) is None


@pytest.mark.parametrize("labels", [np.array([1, 0, -1, 0]), np.array([], int)])
def test_labels_count_only_where_all_are_known(labels):
    found = rankings({"a": np.arange(4.0), "b": np.arange(4.0)[::-1]}, {}, labels)
    assert [row.items for row in found.rows] == ["all items"]
    assert found.rows[0].fdp is None


def test_the_command_prints_the_table(columns, tmp_path, capsys):
    place = tmp_path / "scores.csv"
    names = [*columns]
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*columns.values(), strict=True))]
    place.write_text("\n".join(lines))
    words = ["select", place, "--method", "td4eval", "--score", ",".join(DETECTORS), "--label-field", "label"]
    assert main([*map(str, words), "--results", ",".join(MODELS), "--alpha", "0.2"]) == 0
    shown = capsys.readouterr().out
    assert "Ranks of the models" in shown
    assert "min_k_plus_plus alone" in shown


def test_unusable_results_are_refused(columns):
    told = {"alpha": ALPHA, "score": DETECTORS, "label_field": "label"}
    for results in (["m1"], ["m1", "m1"], ["m1", "loss"]):
        with pytest.raises(tdd.InputError, match="results must name two or more columns"):
            tdd.select(columns, method="td4eval", results=results, **told)
    with pytest.raises(tdd.InputError, match="each once and none with another use"):
        tdd.select(columns, method="td4eval", results=MODELS, higher_is_member=MODELS[:1], **told)
    with pytest.raises(tdd.InputError, match="results ranks models on clean items, and ptdi finds members"):
        tdd.select(columns, method="ptdi", results=MODELS, **{**told, "score": "loss"})
