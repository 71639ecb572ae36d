"""Rankings of models by their results on selected items, against scipy and plain counting."""

import fractions

import numpy as np
import pytest
from scipy import stats

import tdd
from tdd.audit.rankings import CLEAN, rankings, spearman
from tdd.cli import main

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
    audit = tdd.select(columns, alpha=ALPHA, score=DETECTORS, method="td4eval", label_field="label", results=MODELS)
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


@pytest.fixture(scope="module")
def with_clean(columns):
    """The same table with 40 known clean items, one of which lacks a score."""
    rng = np.random.default_rng(3)
    more = {"id": [f"c{i}" for i in range(40)], "role": ["clean"] * 40, "label": [0] * 40}
    more |= {name: np.round(rng.normal(size=40), 1).tolist() for name in DETECTORS}
    more |= {name: [""] * 40 for name in MODELS}
    more["zlib"][7] = ""
    return {name: [*values, *more[name]] for name, values in columns.items()}


def kept_by_accuracy(members, clean, tested):
    """Every score of a known item is tried as t: clean from it on; of equally good ones the largest."""
    known = np.concatenate([members, clean])
    gains = {t: int((clean >= t).sum()) - int((members >= t).sum()) for t in np.unique(known[~np.isnan(known)])}
    return tested >= max(t for t, gain in gains.items() if gain == max(gains.values()))


THRESHOLD = "{}, threshold (no guarantee)"


def test_thresholds_of_the_highest_accuracy_are_rows_too(with_clean):
    """The detectors of the paper's table 2, against a search of all thresholds."""
    told = {"alpha": ALPHA, "method": "td4eval", "score": DETECTORS, "label_field": "label", "results": MODELS}
    audit = tdd.select(with_clean, nonmember_role="clean", **told)
    rows = {row["items"]: row for row in audit.run["rankings"]["rows"]}
    assert len(rows) == 2 * len(DETECTORS) + 3
    values = np.array([with_clean[name][N : N + M] for name in MODELS], float)
    member = np.array(with_clean["label"][N : N + M]) == 1
    true = values[:, ~member].mean(axis=1)
    for name in DETECTORS:
        scores = np.array([np.nan if value == "" else value for value in with_clean[name]], float)
        chosen = kept_by_accuracy(scores[:N], scores[N + M :], scores[N : N + M])
        means, row = values[:, chosen].mean(axis=1), rows[THRESHOLD.format(name)]
        assert row["count"] == chosen.sum() > 0
        assert row["fdp"] == pytest.approx(member[chosen].mean())
        np.testing.assert_array_equal(row["ranks"], stats.rankdata(-means))
        assert row["srcc"] == pytest.approx(stats.spearmanr(means, true).statistic)
    assert len({rows[THRESHOLD.format(name)]["fdp"] for name in DETECTORS}) > 3
    without = tdd.select({k: v[: N + M] for k, v in with_clean.items()}, **told)
    np.testing.assert_array_equal(audit.items["selected"], without.items["selected"])
    others = [row for name, row in rows.items() if "threshold" not in name]
    assert others == without.run["rankings"]["rows"]


def test_unusable_known_clean_items_are_refused(with_clean):
    told = {"alpha": ALPHA, "method": "td4eval", "score": DETECTORS, "nonmember_role": "clean"}
    with pytest.raises(tdd.InputError, match="there are 40 such rows and no results"):
        tdd.select(with_clean, **told)
    apart = [
        {name: [v for v, role in zip(values, with_clean["role"], strict=True) if role == kept] for name, values in
         with_clean.items() if name != "role"} for kept in ("candidate", "calibration")
    ]  # fmt: skip
    with pytest.raises(tdd.InputError, match="there are 0 such rows"):
        tdd.select(apart[0], calibration=apart[1], results=MODELS, **told)
    labelled = {**with_clean, "label": [1] * (N + M + 40)}
    with pytest.raises(tdd.InputError, match="40 of 40 items with the role 'clean' are labelled as members"):
        tdd.select(labelled, results=MODELS, label_field="label", **told)
    unscored = {**with_clean, "loss": [*with_clean["loss"][: N + M], *[""] * 40]}
    with pytest.raises(tdd.InputError, match="score column 'loss' has no value for any item with the role 'clean'"):
        tdd.select(unscored, results=MODELS, **told)
    del told["nonmember_role"]  # a table that was read before has the role
    columns = {"scores": [*DETECTORS, *MODELS], "optional": MODELS}
    read = tdd.load_score_table(labelled, label_field="label", nonmember_role="clean", **columns)
    with pytest.raises(tdd.InputError, match="40 of 40 items with the role 'nonmember' are labelled as members"):
        tdd.select(read, results=MODELS, **told)


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


def test_the_command_prints_the_table(with_clean, tmp_path, capsys):
    place = tmp_path / "scores.csv"
    names = [*with_clean]
    lines = [",".join(names), *(",".join(map(str, row)) for row in zip(*with_clean.values(), strict=True))]
    place.write_text("\n".join(lines))
    words = ["select", place, "--method", "td4eval", "--score", ",".join(DETECTORS), "--label-field", "label"]
    words += ["--results", ",".join(MODELS), "--alpha", "0.2", "--nonmember-role", "clean"]
    assert main([*map(str, words)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Ranks of the models" in shown
    assert "min_k_plus_plus alone" in shown
    assert THRESHOLD.format("min_k_plus_plus") in shown
    assert "no error rate of the items that it keeps is controlled" in shown


def test_unusable_results_are_refused(columns):
    told = {"alpha": ALPHA, "score": DETECTORS, "label_field": "label"}
    for results in (["m1"], ["m1", "m1"], ["m1", "loss"]):
        with pytest.raises(tdd.InputError, match="results must name two or more columns"):
            tdd.select(columns, method="td4eval", results=results, **told)
    with pytest.raises(tdd.InputError, match="each once and none with another use"):
        tdd.select(columns, method="td4eval", results=MODELS, higher_is_member=MODELS[:1], **told)
    with pytest.raises(tdd.InputError, match="results ranks models on clean items, and ptdi finds members"):
        tdd.select(columns, method="ptdi", results=MODELS, **{**told, "score": "loss"})
