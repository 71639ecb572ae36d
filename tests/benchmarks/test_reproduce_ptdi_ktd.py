"""PTDI against KTD: the designs, the divisions, and a tiny run from beginning to end."""

from __future__ import annotations

import dataclasses
import math

import jax
import numpy as np
import pytest

from benchmarks.reproductions import ptdi_ktd
from benchmarks.reproductions.figures.ptdi_ktd import draw
from benchmarks.reproductions.record import Options
from tdd.lab.corpus import generate

SIZES = dataclasses.replace(
    ptdi_ktd.Sizes.at(0.01), models=2, widths=(16, 32), members=24, nonmembers=40, knockoffs=(1, 3), max_length=32,
    epochs=8, alphas=(0.2, 0.35, 0.5), repetitions=64,
)  # fmt: skip
CURVES = len(ptdi_ktd.CURVES)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("ptdi-ktd")


@pytest.fixture(scope="module")
def outcome(folder):
    return ptdi_ktd.REPRODUCTION.run(Options(folder, scale=0.01), SIZES)


@pytest.mark.slow("long")
def test_the_originals_are_the_documents_and_drawn_texts_are_any_version():
    sizes = dataclasses.replace(SIZES, members=100, nonmembers=100)
    documents = np.array(generate(200, seed=ptdi_ktd._POOL + 5).texts, object)
    original, drawn = (ptdi_ktd.versions_of(design, 5, sizes) for design in ptdi_ktd.DESIGNS)
    assert original.shape == (200, 4)
    assert np.array_equal(original[:, 0], documents)
    assert all(sorted(one) == sorted(two) for one, two in zip(original, drawn, strict=True))
    first = np.mean(drawn[:, 0] == documents)
    assert abs(first - 0.25) < 4 * math.sqrt(0.25 * 0.75 / 200)


def test_a_division_audits_all_members_and_the_non_members_that_do_not_calibrate():
    members, others = np.arange(20.0).reshape(5, 4), 100 + np.arange(40.0).reshape(10, 4)
    design = ptdi_ktd.Divisions(members, others, 5)
    seen = set()
    for seed in range(20):
        sample = design.draw(jax.random.key(seed))
        assert sample.calibration.shape == (5,)
        assert sample.target.tolist() == [True] * 5 + [False] * 5
        assert sorted([*sample.calibration, *sample.scores[5:]]) == others[:, 0].tolist()
        tables = (sample.calibration, "calibration_knockoffs"), (sample.scores, "knockoffs")
        for own, name in tables:  # a text's paraphrases stay with it
            np.testing.assert_array_equal(sample.extra[name] - own[:, None], np.tile([1.0, 2.0, 3.0], (len(own), 1)))
        seen.add(tuple(sorted(sample.calibration.tolist())))
    assert len(seen) > 10


@pytest.mark.slow("training")
def test_rows_of_a_tiny_run(outcome):
    rules = 2 * len(ptdi_ktd.METHODS) + CURVES  # both scores, and KTD's with one knockoff too
    assert len(outcome.rows) == 2 * len(SIZES.alphas) * (rules + CURVES)
    assert all(0 <= row[name] <= 1 for row in outcome.rows for name in ("fdp", "power"))
    assert np.mean([row["AUC"] for table in outcome.tables.values() for row in table]) > 0.5  # members score lower
    by_knockoffs, by_size, *by_design = outcome.tables.values()
    assert {(row["k"], row["text"]) for row in by_knockoffs} == {(k, text) for k in (1, 3) for text in ptdi_ktd.DESIGNS}
    assert {row["width"] for row in by_size} == {16, 32}
    for row in by_knockoffs:
        exchangeable = row["text"] == "drawn" and (row["rule"], row["k"]) != ("KTD (the paper)", 3)
        assert (row["FDR <= q promised"] == "yes") == (exchangeable or row["rule"] == "PTDI on W")
    for table in by_design:
        assert [row["rule"] for row in table] == 2 * list(ptdi_ktd.METHODS)


@pytest.mark.slow("training")
def test_the_figures(outcome):
    drawn = draw(outcome)
    assert {name: [len(row) for row in each.panels] for name, each in drawn.items()} == {
        "figure": [2] * 4,
        "figure-knockoffs": [CURVES] * 4,
        "figure-sizes": [CURVES] * 4,
    }
    wanted = [
        (row["alpha"], row["fdp"], row["power"])
        for row in outcome.rows
        if (row["design"], row["width"], row["score"], row["rule"], row["knockoffs"])
        == ("drawn", 32, "grad_norm", "KTD multi", 1)
    ]
    alphas, fdp, power = zip(*wanted, strict=True)
    above, below = (drawn["figure-knockoffs"].panels[row][1].get_lines()[0] for row in (2, 3))
    np.testing.assert_array_equal(above.get_xydata().T, (alphas, fdp))
    np.testing.assert_array_equal(below.get_xydata().T, (fdp, power))
    assert [alphas[i] for i in below.get_markevery()] == [0.2, 0.5]


def test_levels_that_an_error_exceeds_are_counted():
    """Means .3 and .6 exceed .2 and .5 by t = 1 and 100; one degree of freedom asks for 12.7."""
    fdp = {0.2: (0.2, 0.4), 0.5: (0.599, 0.601), 0.9: (0.7, 0.9)}
    rows = [{"alpha": alpha, "fdp": value} for alpha, values in fdp.items() for value in values]
    assert ptdi_ktd._exceeded(rows) == "2 (1)"


@pytest.mark.slow("long")
def test_versions_that_are_not_exchangeable_break_what_trusts_them_and_nothing_else():
    rng = np.random.default_rng(0)
    copies = rng.normal(size=(SIZES.members + SIZES.nonmembers, 4))
    copies[: SIZES.members, 0] -= 4
    fair = _rules(copies)
    copies[:, 1:] += 1.0  # paraphrases are less probable, of members and non-members alike
    worse = _rules(copies)
    assert max(fair.values()) < 0.3
    for rule in ("KTD (the paper)", "KTD multi", "KTD derandomized"):
        assert worse[rule] > fair[rule] + 0.05
    assert worse["KTD (the paper)"] > 0.35
    for rule in ("PTDI on W", "PTDI, Storey", "PTDI, subtraction"):
        assert worse[rule] == pytest.approx(fair[rule], abs=1e-9)


def _rules(copies):
    """FDP of each rule at the level .2."""
    rows = ptdi_ktd._rules("loss", copies, list(ptdi_ktd.METHODS), 0, SIZES)
    return {row["rule"]: row["fdp"] for row in rows if row["alpha"] == 0.2}
