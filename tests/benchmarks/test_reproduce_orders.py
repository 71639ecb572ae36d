"""Planted canary sets and the power grid, at a size that takes seconds."""

import math
import shutil

import numpy as np
import pytest
from scipy import stats

import tdd
from benchmarks.reproductions import exchangeability, power_grid
from benchmarks.reproductions import run as running
from benchmarks.reproductions.figures.exchangeability import draw
from benchmarks.reproductions.models import seed_of
from benchmarks.reproductions.order_tests import ORDER_TESTS
from benchmarks.reproductions.record import Options
from tdd.lab.corpus import canary_set


@pytest.fixture(scope="module")
def planted(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce") / "exchangeability"
    return folder, running.run_reproduction("exchangeability", Options(folder, seed=3, scale=0.01))


@pytest.fixture(scope="module")
def grid(tmp_path_factory):
    folder = tmp_path_factory.mktemp("reproduce") / "grid"
    return folder, running.run_reproduction("power-grid", Options(folder, seed=3, scale=0.01))


@pytest.mark.slow("training")
def test_every_set_has_a_row_for_each_test(planted):
    _, outcome = planted
    design = exchangeability.Design.at(0.01)
    number = sum(design.copies.values()) + design.unplanted
    assert len(outcome.rows) == number * len(ORDER_TESTS)
    assert {(row["set"], row["test"]) for row in outcome.rows} == {
        (row["set"], test) for row in outcome.rows for test in ORDER_TESTS
    }
    assert {row["copies"] for row in outcome.rows} == {0, *design.copies}
    assert all(0 < row["p_value"] <= 1 for row in outcome.rows)
    assert all(row["p_value"] == pytest.approx(math.exp(row["log_p_value"]), rel=1e-5) for row in outcome.rows)
    by_copies = {row["copies"]: row["loss, nats a token"] for row in outcome.tables[exchangeability.PLANTED]}
    assert by_copies[max(by_copies)] < by_copies[0]


@pytest.mark.slow("training")
def test_an_interrupted_run_of_planted_sets_ends_the_same(planted, tmp_path):
    """Killed after the training and before it was noted; and a shard of the scores is damaged."""
    folder, outcome = planted
    there = tmp_path / "cut"
    shutil.copytree(folder, there)
    for name in (
        "cells/training.json",
        "cells/orders.json",
        "cells/shards.json",
        "results.json",
        "results.csv",
        "tables.md",
        "figure.png",
        "figure-shards-and-shuffles.png",
    ):
        (there / name).unlink()
    shards = sorted((there / "scoring").rglob("*.parquet"))
    whole = shards[0].read_bytes()
    shards[0].write_bytes(whole[: len(whole) // 2])
    again = running.run_reproduction("exchangeability", Options(there, seed=3, scale=0.01))
    assert again.rows == outcome.rows
    assert not shards[0].exists()
    assert shards[0].with_name(shards[0].name + ".damaged").exists()
    for name in ("results.csv", "tables.md"):
        assert (there / name).read_bytes() == (folder / name).read_bytes()


@pytest.mark.slow("training")
def test_the_tests_are_those_of_the_command(planted):
    """The same sets, model and seed through `tdd.run_exchange`."""
    folder, outcome = planted
    design = exchangeability.Design.at(0.01)
    sets = {
        name: canary_set(design.num_examples, seed=seed_of(3, exchangeability._UNPLANTED + i))
        for i, name in enumerate(dict.fromkeys(row["set"] for row in outcome.rows if row["copies"] == 0))
    }
    sets = {name: texts for name, (_, texts) in exchangeability._planted(design, 3).items()} | sets
    found = tdd.run_exchange(
        folder / "model" / "checkpoint", sets, num_shards=design.num_shards, num_shuffles=design.num_shuffles,
        token_budget=4096, seed=seed_of(3, exchangeability._ORDER), progress=False,
    )  # fmt: skip
    theirs = {one["name"]: one for one in found.run["data"]}
    assert list(theirs) == list(dict.fromkeys(row["set"] for row in outcome.rows))
    for mine in outcome.rows:
        one = theirs[mine["set"]]
        assert mine["p_value"] == one["tests"][mine["test"]]["p_value"]
        canonical, shuffled = found.log_probs[mine["set"]]
        assert mine["loss"] == pytest.approx(-canonical.sum() / one["num_tokens"], rel=1e-9)
        spread = math.sqrt(np.mean([np.var(row, ddof=1) for row in shuffled]))
        assert mine["effect"] == pytest.approx((canonical - shuffled.mean(axis=1)).mean() / spread, rel=1e-9)


def row(copies, test, p_value, name="set"):
    return {
        "set": name, "copies": copies, "test": test, "p_value": p_value, "log_p_value": math.log(p_value),
        "effect": 1.0, "loss": 2.0,
    }  # fmt: skip


def test_the_tables_of_shards_and_shuffles():
    """Means of ln p over sets, with their standard errors, and the paper's test by number of copies."""
    copies = {"a": 2, "b": 2, "c": 7}
    log_p = {"a": -1.0, "b": -3.0, "c": -8.0}
    found = {"10": {name: dict.fromkeys(ORDER_TESTS, value) for name, value in log_p.items()}}
    (line,) = exchangeability.varied_table("shards", found, copies)
    error = np.std([*log_p.values()], ddof=1) / math.sqrt(3)
    assert (line["shards"], line["sets"], line["combined"]) == (10, 3, f"-4.000 ± {error:.3f}")
    assert (line["t, 2 copies"], line["t, 7 copies"]) == (-2.0, -8.0)
    design = exchangeability.Design.at(1)
    assert {1, 2, 4, 7} <= {*design.copies}
    assert {10, 15, 20} <= {*design.shards_tried}  # where the paper finds most power
    assert design.shuffles_tried == (1, 2, 10, 25, 50)


@pytest.mark.slow("training")
def test_the_first_shuffles_are_tested_alone(planted):
    """ln p of the paper's test over shards, from the log-probabilities of `tdd.run_exchange`, by scipy."""
    folder, outcome = planted
    design = exchangeability.Design.at(0.01)
    chosen = {name: texts for name, (count, texts) in exchangeability._planted(design, 3).items()
              if count in exchangeability.VARIED}  # fmt: skip
    r = design.shards_tried[0]
    run = tdd.run_exchange(
        folder / "model" / "checkpoint", chosen, num_shards=r, num_shuffles=design.num_shuffles, token_budget=4096,
        seed=seed_of(3, exchangeability._ORDER), progress=False,
    )  # fmt: skip
    log_p = []
    for canonical, shuffled in run.log_probs.values():
        log_p.append(math.log(stats.ttest_1samp(canonical - shuffled.mean(axis=1), 0, alternative="greater").pvalue))
    line = outcome.tables[exchangeability.BY_SHARDS][0]
    assert (line["shards"], line["sets"]) == (r, len(chosen))
    assert float(line["t"].split(" ")[0]) == pytest.approx(np.mean(log_p), abs=2e-3)


def test_the_tables_count_what_the_rows_say():
    nulls = [0.005, np.float32(0.05), 0.3, 0.7]
    rows = [row(0, test, p, f"{i}") for test in ORDER_TESTS for i, p in enumerate(nulls)]
    rows += [row(8, test, p, f"planted {i}") for test in ORDER_TESTS for i, p in enumerate([1e-6, 1e-4, 0.2])]
    sizes = exchangeability.size_table(rows)
    assert [line["p <= 0.05"] for line in sizes] == ["0.500 ± 0.109"] * len(ORDER_TESTS)
    assert [line["within 0.05"] for line in sizes] == ["ABOVE"] * len(ORDER_TESTS)
    assert [line["p <= 0.01"] for line in sizes] == ["0.250 ± 0.050"] * len(ORDER_TESTS)
    unplanted, eight = exchangeability.planted_table(rows)
    assert (unplanted["copies"], unplanted["combined p <= .05"]) == (0, "2 of 4")
    assert (eight["copies"], eight["combined p <= .05"], eight["median p, t"]) == (8, "2 of 3", 1e-4)


@pytest.mark.slow("training")
def test_the_grid_is_complete(grid):
    _, outcome = grid
    design = power_grid.Design.at(0.01)
    models = len(design.shapes) * len(design.epochs)
    questions = [row["question"] for row in outcome.rows]
    assert questions.count("items") == models * len(design.copies)
    assert questions.count("data set") == models * design.sets * (1 + len(design.copies))
    assert len({tuple(row) for row in outcome.rows}) == 1  # the same columns in the same order
    for found in outcome.rows:
        if found["question"] == "items":
            assert 0 <= found["power"] <= 1
            assert found["fdp"] <= 0.1 + 5 * found["fdp_se"]
            assert found["p_value"] is None
        else:
            assert 0 < found["p_value"] <= 1
            assert found["power"] is None
    losses = {found["epochs"]: found["training_loss"] for found in outcome.rows}
    assert losses[2] < losses[1]


def test_power_of_items_that_are_known_by_heart():
    design = power_grid.Design.at(0.01)
    rng = np.random.default_rng(0)
    unseen = rng.normal(size=300)
    known = power_grid._power(unseen, rng.normal(size=60) - 10, design, seed=0)
    strange = power_grid._power(unseen, rng.normal(size=60), design, seed=0)
    assert known["auc"] == 1
    assert known["power"] > 0.9
    assert known["fdp"] <= 0.1 + 5 * known["fdp_se"]
    assert 0.3 < strange["auc"] < 0.7
    assert strange["power"] < 0.2


@pytest.mark.slow("training")
def test_the_figures_name_powers_of_ten_and_every_number_that_was_tried(planted):
    sheets = draw(planted[1])
    labels = [label.get_text() for label in sheets["figure"].panels[0][0].get_yticklabels()]
    assert labels[0] == "1"
    assert "10⁻¹" in labels
    design, (by_shards, by_shuffles) = exchangeability.Design.at(0.01), sheets["figure-shards-and-shuffles"].panels[0]
    for axes, tried in ((by_shards, design.shards_tried), (by_shuffles, design.shuffles_tried)):
        assert [label.get_text() for label in axes.get_xticklabels()] == [str(number) for number in tried]
