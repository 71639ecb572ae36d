"""Planting: a partition by one random permutation, written down."""

import csv

import numpy as np
import pytest

from tdd import InputError
from tdd.lab.plant import plant, save_truth
from tdd.records import Texts

POOL = Texts(ids=tuple(f"t{i}" for i in range(40)), texts=tuple(f"text {i}" for i in range(40)))
PARTS = {"members": 8, "nonmembers": 9, "calibration": 10, "background": 6}


def test_parts_are_a_partition_with_labels():
    planted = plant(POOL, **PARTS, seed=2)
    training, calibration = set(planted.training.ids), set(planted.calibration.ids)
    members = {i for i, label in zip(planted.candidates.ids, planted.candidates.labels, strict=True) if label}
    others = set(planted.candidates.ids) - members
    assert (len(members), len(others), len(calibration), len(training)) == (8, 9, 10, 14)
    assert members < training
    assert not training & (calibration | others)
    assert not calibration & others
    assert set(planted.calibration.labels) == {0}
    assert planted.candidates.texts[0] == POOL.texts[POOL.ids.index(planted.candidates.ids[0])]


def test_truth_says_the_same_and_is_written_as_csv(tmp_path):
    planted = plant(POOL, **PARTS, seed=2)
    save_truth(tmp_path / "truth.csv", planted)
    with open(tmp_path / "truth.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == [name for name in POOL.ids if name in {r["id"] for r in rows}]
    table = {row["id"]: (row["role"], int(row["label"])) for row in rows}
    assert len(table) == 33
    labels = dict(zip(planted.candidates.ids, planted.candidates.labels, strict=True))
    for name, (role, label) in table.items():
        assert (role == "candidate") == (name in labels)
        assert label == (name in planted.training.ids)
    assert [path.name for path in tmp_path.iterdir()] == ["truth.csv"]


def test_same_seed_same_split_and_every_text_gets_every_part():
    assert plant(POOL, **PARTS, seed=2) == plant(POOL, **PARTS, seed=2)
    first = np.array([plant(POOL, **PARTS, seed=seed).truth[0] for seed in range(300)])
    share = np.mean(first[:, 1] == "calibration")
    # A kept text lands in calibration with probability 10/33.
    assert abs(share - 10 / 33) < 4 * np.sqrt(10 / 33 * 23 / 33 / 300)


def test_candidates_are_mixed():
    order = np.array(plant(POOL, **PARTS, seed=2).candidates.labels)
    assert 0 < np.sum(order[:8]) < 8


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"members": 0}, "members"),
        ({"calibration": -1}, "calibration"),
        ({"background": 20}, "asks for 47 texts, but texts holds 40"),
        ({"seed": 1.5}, "seed"),
    ],
)
def test_bad_arguments_are_named(change, named):
    with pytest.raises(InputError, match=named):
        plant(POOL, **({**PARTS, "seed": 0} | change))
