"""JECS on fine-tuned models: subsets of the blocks, and a tiny run from beginning to end."""

from __future__ import annotations

import dataclasses

import jax
import numpy as np
import pytest

from benchmarks.reproductions import jecs
from benchmarks.reproductions.figures.jecs import draw
from benchmarks.reproductions.record import Options
from tdd.lab.corpus import generate
from tdd.lab.plant import three_blocks

SIZES = dataclasses.replace(jecs.Sizes.at(0.01), documents=120, max_length=32, alphas=(0.1,), repetitions=64)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("jecs")


@pytest.fixture(scope="module")
def outcome(folder):
    return jecs.REPRODUCTION.run(Options(folder, scale=0.01), SIZES)


@pytest.mark.slow("long")
def test_subsets_keep_items_whole_and_know_which_are_clean():
    own, bad, good = (np.arange(n) + np.array([[0], [1000]]) + 10 * i for i, n in enumerate((10, 6, 30)))
    own, bad, good = own.astype(float), bad + 100.0, good + 200.0
    for even, sizes in ((False, (8, 4, 24)), (True, (8, 4, 4))):
        design, counts = jecs.Subsets(own, bad, good, *sizes, even), []
        for seed in range(40):
            sample = design.draw(jax.random.key(seed))
            assert sample.calibration.shape == (2, 8)
            assert sample.scores.shape == (2, sizes[1] + sizes[2])
            for table in (sample.calibration, sample.scores):  # both models' scores of the same item
                np.testing.assert_array_equal(table[1] - table[0], 1000)
                assert len(set(table[0].tolist())) == table.shape[1]
            assert np.isin(sample.calibration[0], own[0]).all()
            np.testing.assert_array_equal(sample.target, np.isin(sample.scores[0], good[0]))
            counts.append(int((~sample.target).sum()))
        assert (set(counts) == {4}) == even
        assert abs(np.mean(counts) - (4 if even else 28 / 6)) < 1


@pytest.mark.slow("training")
def test_rows_of_a_tiny_run(outcome):
    assert len(outcome.rows) == len(jecs.SCORES) * len(jecs.MIXES) * len(jecs.METHODS)
    assert all(0 <= row[name] <= 1 for row in outcome.rows for name in ("gcr", "power"))
    models = outcome.tables["Models"]
    assert {row["trained on"] for row in models} == {36 + 6}  # 30% and half of 10% of 120
    assert {row["of them candidates"] for row in models} == {6}
    shares = {row["mix"]: row["contaminated"] for row in outcome.rows}
    assert shares["even"] == 0.5
    assert 6 / 84 <= shares["blocks"] <= 12 / 84


@pytest.mark.slow("training")
def test_what_the_table_promises(outcome):
    (table,) = (rows for title, rows in outcome.tables.items() if "As many" in title)
    promised = {row["rule"]: row["GCR <= level promised"] for row in table}
    assert promised["JMCS"] == promised["JMCS, Storey"] == "for independent models"
    assert promised["JECS"].endswith("in the limit of many items")
    assert promised["union (invalid)"] == promised["intersection (invalid)"] == "no"


@pytest.mark.slow("training")
def test_a_union_breaks_the_level_where_joint_selections_keep_it(outcome):
    blocks = three_blocks(generate(SIZES.documents, seed=0), num_models=SIZES.models, seed=jecs._BLOCKS)
    shared = np.array([row["block"] == "calibration" for row in blocks.truth])  # the shapes of the run: compiled once
    rng, gcr, power = np.random.default_rng(1), {}, {}
    for _ in range(20):  # a rate over the subsets of one pool is not the rate over pools
        scores = rng.normal(size=blocks.member.shape) - 5 * blocks.member
        for row in jecs._selected(scores, blocks.member, shared, "even", 0, SIZES):
            gcr.setdefault(row["rule"], []).append(row["gcr"])
            power.setdefault(row["rule"], []).append(row["power"])
    assert np.mean(gcr["union (invalid)"]) > 0.25
    assert np.mean(gcr["JMCS"]) < 0.1
    assert np.mean(gcr["JMCS, Storey"]) < 0.1
    assert min(np.mean(values) for values in power.values()) > 0.5


@pytest.mark.slow("long")
def test_a_date_is_a_seed():
    """Seeds of parts exceed the 32 bits of a study's: 20261121 * 1,000 did, after all models were trained."""
    blocks = three_blocks(generate(SIZES.documents, seed=0), num_models=SIZES.models, seed=jecs._BLOCKS)
    shared = np.array([row["block"] == "calibration" for row in blocks.truth])
    scores = np.random.default_rng(1).normal(size=blocks.member.shape)
    one, two = (jecs._selected(scores, blocks.member, shared, "even", s, SIZES) for s in (20261121_000, 20261121_001))
    assert one != two


@pytest.mark.slow("training")
def test_the_figure(outcome):
    assert [len(row) for row in draw(outcome).panels] == [2] * 4
