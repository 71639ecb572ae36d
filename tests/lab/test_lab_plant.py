"""Planting: a partition by one random permutation, written down."""

import csv
import io
import itertools

import numpy as np
import pytest

from tdd import InputError
from tdd.lab.corpus import canary_set
from tdd.lab.plant import csv_bytes, plant, plant_canaries
from tdd.records import Texts

POOL = Texts(ids=tuple(f"t{i}" for i in range(40)), texts=tuple(f"text {i}" for i in range(40)))
SETS = {"a": canary_set(7, seed=1), "b": canary_set(5, seed=2)}
BACKGROUND = tuple(f"background {index}" for index in range(20))
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


def test_truth_says_the_same_and_is_written_as_csv():
    planted = plant(POOL, **PARTS, seed=2)
    rows = list(csv.DictReader(io.StringIO(csv_bytes(planted.truth).decode(), newline="")))
    assert [row["id"] for row in rows] == [name for name in POOL.ids if name in {r["id"] for r in rows}]
    table = {row["id"]: (row["role"], int(row["label"])) for row in rows}
    assert len(table) == 33
    labels = dict(zip(planted.candidates.ids, planted.candidates.labels, strict=True))
    for name, (role, label) in table.items():
        assert (role == "candidate") == (name in labels)
        assert label == (name in planted.training.ids)


def test_same_seed_same_split_and_every_text_gets_every_part():
    assert plant(POOL, **PARTS, seed=2) == plant(POOL, **PARTS, seed=2)
    roles = [plant(POOL, **PARTS, seed=seed).truth[0]["role"] for seed in range(300)]
    share = roles.count("calibration") / len(roles)
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
        ({"duplication": 0}, "duplication"),
        ({"duplication": ()}, "duplication is empty"),
        ({"duplication": (1, 2.5)}, r"duplication\[1\]"),
    ],
)
def test_bad_arguments_are_named(change, named):
    with pytest.raises(InputError, match=named):
        plant(POOL, **({**PARTS, "seed": 0} | change))


class TestDuplication:
    """Copies are dealt out in turn, counted in the truth, and leave the parts as they are."""

    def test_parts_do_not_depend_on_it_and_counts_are_dealt_out_in_turn(self):
        once, often = plant(POOL, **PARTS, seed=2), plant(POOL, **PARTS, duplication=(1, 3, 100), seed=2)
        assert (once.calibration, once.candidates) == (often.calibration, often.candidates)
        assert [{**row, "copies": 0} for row in once.truth] == [{**row, "copies": 0} for row in often.truth]
        members = [row["copies"] for row in often.truth if row["role"] == "candidate" and row["label"]]
        assert sorted(members) == [1, 1, 1, 3, 3, 3, 100, 100]

    def test_training_holds_each_text_as_often_as_the_truth_says(self):
        planted = plant(POOL, **PARTS, duplication=(2, 5), seed=2)
        text_of = dict(zip(POOL.ids, POOL.texts, strict=True))
        for row in planted.truth:
            assert planted.training.texts.count(text_of[row["id"]]) == row["copies"]
            assert (row["copies"] > 1) <= (row["role"] == "candidate")
        copies = sum(row["copies"] for row in planted.truth)
        assert len(set(planted.training.ids)) == len(planted.training) == copies == 4 * 2 + 4 * 5 + 6
        positions = [i for i, text in enumerate(planted.training.texts) if planted.training.texts.count(text) > 1]
        assert positions != list(range(len(positions)))


class TestPlantedSets:
    """Whole sets in canonical order among other documents."""

    def test_a_set_is_one_document_in_its_order_as_often_as_asked(self):
        planted = plant_canaries(SETS, {"a": 3, "b": 0}, BACKGROUND, separator="\n", seed=0)
        whole = "\n".join(SETS["a"].texts)
        assert sorted(planted.documents) == sorted([*BACKGROUND, whole, whole, whole])
        assert planted.truth == (
            {"set": "a", "num_examples": 7, "copies": 3},
            {"set": "b", "num_examples": 5, "copies": 0},
        )
        assert planted == plant_canaries(SETS, {"a": 3, "b": 0}, BACKGROUND, separator="\n", seed=0)

    def test_copies_are_mixed_among_the_background(self):
        places = np.array(
            [
                [document.startswith("background") for document in planted.documents].index(False)
                for planted in (plant_canaries(SETS, {"a": 1, "b": 0}, BACKGROUND, seed=s) for s in range(400))
            ]
        )
        assert set(places) == set(range(21))
        assert abs(places.mean() - 10) < 4 * np.sqrt((21**2 - 1) / 12 / 400)

    def test_smaller_documents_keep_every_example_once(self):
        planted = plant_canaries(SETS, {"a": 2, "b": 1}, [], examples_per_document=3, seed=0)
        parts = [document.split("\n\n") for document in planted.documents]
        assert sorted(map(len, parts)) == [1, 1, 2, 3, 3, 3, 3, 3]
        assert sorted(itertools.chain(*parts)) == sorted(SETS["a"].texts * 2 + SETS["b"].texts)
        order = {text: index for index, text in enumerate(SETS["a"].texts + SETS["b"].texts)}
        assert all([order[text] for text in part] == sorted(order[text] for text in part) for part in parts)

    @pytest.mark.parametrize(
        ("change", "named"),
        [
            ({"sets": {}}, "sets is empty"),
            ({"duplication": {"a": 1}}, "sets names 'b', but duplication does not"),
            ({"duplication": {"a": 1, "b": 1, "c": 1}}, "duplication names 'c', but sets does not"),
            ({"duplication": {"a": 1, "b": -1}}, r"duplication\['b'\]"),
            ({"separator": ""}, "separator"),
            ({"examples_per_document": 0}, "examples_per_document"),
            ({"duplication": {"a": 0, "b": 0}, "background": []}, "number of training documents"),
            ({"sets": {"a": Texts(("1",), ("",)), "b": Texts(("1",), ("x",))}}, r"sets\['a'\]\[0\]"),
        ],
    )
    def test_bad_arguments_are_named(self, change, named):
        given = {"sets": SETS, "duplication": {"a": 1, "b": 1}, "background": BACKGROUND, "seed": 0} | change
        with pytest.raises(InputError, match=named):
            plant_canaries(**given)
