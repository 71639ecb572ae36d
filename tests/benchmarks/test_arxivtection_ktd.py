"""The benchmark of KTD on arXivTection, on made passages and made scores: what it reads, plants and counts."""

import csv
import importlib.util
import pathlib
import sys

import numpy as np
import pytest

import tdd

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def script():
    sys.path.insert(0, str(FOLDER))
    try:
        spec = importlib.util.spec_from_file_location("arxivtection_ktd", FOLDER / "arxivtection_ktd.py")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # dataclasses look their module up
        spec.loader.exec_module(module)
        yield module
    finally:
        sys.path.remove(str(FOLDER))


@pytest.fixture(scope="module")
def passages(script, tmp_path_factory):
    """Eight papers of six passages, one of them without its text."""
    path = tmp_path_factory.mktemp("data") / "arxivtection.csv"
    with open(path, "w", newline="", encoding="utf-8-sig") as file:
        writer = csv.writer(file)
        writer.writerow([*script.VERSIONS, "ID"])
        for i in range(48):
            texts = [f"passage {i} version {version[-1]}" for version in script.VERSIONS]
            writer.writerow([" " if i == 7 else texts[0], *texts[1:], f"paper {i % 8}"])
    return path


def test_passages_are_shared_out_by_paper(script, passages):
    base, pool, dropped = script.read_passages(passages, script.SCALES["tiny"])
    assert dropped == 1
    assert len(set(pool.papers)) == 6
    assert len(base) + 4 * len(pool.ids) == 4 * 47
    assert not set(base) & {text for row in pool.versions for text in row}
    for name, row in zip(pool.ids, pool.versions):
        assert row == [f"passage {int(name) - 1} version {letter}" for letter in "ABCD"]


@pytest.mark.parametrize("design", ["verbatim", "drawn"])
@pytest.mark.parametrize("by", ["passage", "paper"])
def test_half_is_planted(script, passages, design, by):
    _, pool, _ = script.read_passages(passages, script.SCALES["tiny"])
    member, order = script.planted(pool, design, by, 0)
    units = pool.papers if by == "paper" else pool.ids
    planted = {unit for unit, one in zip(units, member) if one}
    assert len(planted) == len(set(units)) // 2
    assert all((unit in planted) == one for unit, one in zip(units, member))
    assert np.array_equal(np.sort(order, axis=1), np.tile(np.arange(4), (len(pool.ids), 1)))
    for column in order.T:  # a knockoff that is mostly the verbatim passage would be no exchangeable copy
        assert len(set(column)) == (1 if design == "verbatim" else 4)
    again = script.planted(pool, design, by, 1)[0]
    assert not np.array_equal(member, again)


@pytest.fixture(scope="module")
def run(script, tmp_path_factory):
    """A run folder with made scores: 20 members, 41 non-members of which 20 calibrate."""
    folder = tmp_path_factory.mktemp("run")
    rng = np.random.default_rng(3)
    columns = [f"{name}{end}" for name in script.SCORES for end in ("", *(f" (knockoff {j})" for j in (1, 2, 3)))]
    for name, labels in (("items", [1] * 20 + [0] * 21), ("calibration", [None] * 20)):
        with open(folder / f"{name}.csv", "w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(["id", *columns, *(["label"] if name == "items" else [])])
            for i, label in enumerate(labels):
                scores = rng.normal(size=len(columns))
                scores[[0, 4]] -= 2 * (label == 1)
                writer.writerow([i, *scores, *([label] if name == "items" else [])])
    return folder


@pytest.mark.slow("long")
def test_figures_are_those_of_a_plain_loop(script, run, monkeypatch):
    """FDP and power of `tdd.ktd`, one division after the other."""
    monkeypatch.setattr(script, "KNOCKOFFS", (3,))
    monkeypatch.setattr(script, "ALPHAS", (0.2,))
    rows = script.evaluate(run, "verbatim", 5, 6)
    member, scores = script.read_scores(run)
    assert member.sum() == 20
    assert len(member) == 61
    rng = np.random.default_rng(5)
    others, members = np.flatnonzero(~member), np.flatnonzero(member)
    drawn = [rng.permutation(others) for _ in range(6)]
    planted = [rng.permutation(members)[:21] for _ in range(6)]
    found = {(row["score"], row["knockoffs"], row["rule"], row["alpha"]): row for row in rows}
    assert len(found) == len(rows) == len(script.SCORES) * len(script.RULES)
    for (name, k, rule, alpha), row in found.items():
        rule, _, proportion = rule.partition(", ")
        copies = scores[name]
        for division, (order, some) in enumerate(zip(drawn, planted)):
            known, tested = order[:20], np.concatenate([some, order[20:]])
            how = {"calibration": copies[known, 0], "calibration_knockoffs": copies[known, 1 : k + 1]}
            how = {**how, "proportion": proportion} if rule == "conformal" else {}
            selected = np.asarray(
                tdd.ktd(copies[tested, 0], copies[tested, 1 : k + 1], alpha=alpha, rule=rule, **how).selected
            )
            false = np.sum(selected & ~member[tested])
            assert row["fdp"][division] == pytest.approx(false / max(1, selected.sum()))
            assert row["power"][division] == pytest.approx(np.sum(selected & member[tested]) / len(some))
    assert any(row["power"].any() for row in rows)


def test_summary_separates_models_from_divisions(script):
    common = {"design": "drawn", "score": "loss", "knockoffs": 1, "rule": "multi", "alpha": 0.1, "selected": np.ones(2)}
    common |= {"positive": 1.0, "symmetry_p": 0.5}
    rows = [
        {**common, "repetition": i, "fdp": np.array(fdp), "power": np.array([0.5, 0.5])}
        for i, fdp in enumerate([(0.0, 0.2), (0.3, 0.5)])
    ]
    (line,) = script.summarise(rows)
    assert line["fdp"] == 0.25
    assert line["fdp_by_model"] == [0.1, 0.4]
    assert line["fdp_se"] == pytest.approx(0.15)
    assert line["fdp_se_divisions"] == pytest.approx(np.sqrt(0.01 / 2), abs=1e-4)
    assert line["power_se"] == line["power_se_divisions"] == 0
    assert line["promised"] == 0.1
