import csv
import json
import math
import sys

import numpy as np
import pytest
from scipy.stats import binom
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score

from tdd.audit import blind_baseline as module
from tdd.audit.blind_baseline import blind_baseline, fold_wins, logistic_scores
from tdd.records import Texts
from tdd.validate import InputError

VOCABULARY = np.array([f"word{i}" for i in range(400)])
FREQUENCY = 1 / np.arange(1, 401) / np.sum(1 / np.arange(1, 401))


def documents(count, generator, *, length=30, frequency=FREQUENCY):
    return [" ".join(generator.choice(VOCABULARY, length, p=frequency)) for _ in range(count)]


@pytest.mark.parametrize("imbalance", [0.5, 0.1])
def test_scores_are_those_of_scikit_learn(imbalance):
    generator = np.random.default_rng(0)
    features = generator.normal(size=(120, 30)) / np.sqrt(30)
    labels = generator.random((80, 3)) < imbalance
    train, test = features[:80], features[80:]
    for penalty in (1.0, 0.25):
        scores = logistic_scores(train @ train.T, labels, test @ train.T, penalty=penalty)
        for column in range(3):
            model = LogisticRegression(C=1 / penalty, tol=1e-8).fit(train, labels[:, column])
            np.testing.assert_allclose(scores[:, column], model.decision_function(test), atol=1e-3)


def test_wins_are_aucs():
    generator = np.random.default_rng(1)
    features = generator.normal(size=(60, 5))
    labels = np.stack([generator.permutation(np.repeat([0, 1], 30)) for _ in range(4)], axis=1)
    fold = np.arange(60) % 3
    wins, pairs = fold_wins(features @ features.T, labels, fold)
    for held_out in range(3):
        test, train = fold == held_out, fold != held_out
        for column in range(4):
            model = LogisticRegression(tol=1e-8).fit(features[train], labels[train, column])
            expected = roc_auc_score(labels[test, column], model.decision_function(features[test]))
            assert wins[held_out, column] / pairs[held_out, column] == pytest.approx(expected, abs=0.02)
    ties, pairs = fold_wins(np.zeros((60, 60)), labels, fold)
    np.testing.assert_array_equal(ties * 2, pairs)


def test_gross_shift_is_caught_from_the_smallest_size_on():
    generator = np.random.default_rng(2)
    shifted = np.roll(FREQUENCY, 200)
    for count in (10, 12, 100):
        found = blind_baseline(documents(count, generator), documents(count, generator, frequency=shifted), seed=count)
        assert found.auc > 0.99
        assert found.p_value == 1 / 400
        assert found.auc > found.threshold
        assert "differ grossly even without the model" in found.warning
        assert "instead of training" in found.warning


@pytest.mark.parametrize(
    "change",
    [
        lambda text: " ".join(text.split()[:22]),
        lambda text: text.replace(" ", ", "),
        str.upper,
        lambda text: text + "\n",
        lambda text: text.replace(" ", "  ", 3),
    ],
    ids=["length", "punctuation", "case", "line end", "blanks"],
)
def test_shifts_of_form_are_caught(change):
    generator = np.random.default_rng(3)
    found = blind_baseline(documents(40, generator), [change(text) for text in documents(40, generator)], seed=0)
    assert found.warning
    assert found.auc > 0.9


@pytest.mark.parametrize("above", [3, 4])
def test_the_warning_counts_the_labelling_that_was_observed(monkeypatch, above):
    """399 shuffles and the observed roles are 400 labellings: at 1%, four of them may reach the observed AUC."""
    null = np.linspace(0.2, 0.5, 399)
    null[:above] = 0.8
    wins = np.concatenate([[0.7], null])[None]
    monkeypatch.setattr(module, "fold_wins", lambda *_: (wins, np.ones_like(wins)))
    generator = np.random.default_rng(6)
    found = blind_baseline(documents(15, generator), documents(20, generator), seed=0)
    assert found.p_value == (1 + above) / 400
    assert bool(found.warning) == (above == 3)


@pytest.mark.slow("long")
def test_false_alarms_are_rare():
    """At level 1%, more than 7 alarms in 120 comparisons of equal sources have a chance below 1e-4."""
    generator = np.random.default_rng(4)
    sizes = [(10, 10), (10, 40), (25, 15), (30, 30)]
    alarms = 0
    for repetition in range(120):
        n, m = sizes[repetition % 4]
        found = blind_baseline(documents(n, generator), documents(m, generator), seed=repetition)
        alarms += bool(found.warning)
        assert bool(found.warning) == (found.p_value <= 0.01) == (found.auc > found.threshold)
    assert binom.sf(7, 120, 0.01) < 1e-4
    assert alarms <= 7


@pytest.mark.slow("long")
def test_groups_are_the_units_of_the_test():
    """Passages of one source share a vocabulary: apart from the source there is nothing to find."""
    alarms = {True: 0, False: 0}
    for seed in range(20):
        generator = np.random.default_rng(seed)
        texts = []
        for _ in range(24):
            topic = np.where(np.arange(400) % 24 == generator.integers(24), 10, 0.1) * FREQUENCY
            texts.extend(documents(4, generator, frequency=topic / topic.sum()))
        known, unknown = texts[:48], texts[48:]
        pair = [index // 4 for index in range(48)], [index // 4 for index in range(48, 96)]
        alarms[True] += bool(blind_baseline(known, unknown, seed=seed, groups=pair).warning)
        alarms[False] += bool(blind_baseline(known, unknown, seed=seed).warning)
    assert alarms[True] <= 2
    assert alarms[False] >= 15


def test_a_group_is_never_split_over_folds():
    generator = np.random.default_rng(0)
    role = generator.integers(0, 2, 200)
    group = generator.integers(0, 40, 200).tolist()
    unit, unit_role, unit_fold = module._units(role, group, generator)
    folds_of_group = {name: {unit_fold[unit[i]] for i in range(200) if group[i] == name} for name in group}
    assert all(len(folds) == 1 for folds in folds_of_group.values())
    np.testing.assert_array_equal(unit_role[unit], role)
    assert {(f, r) for f, r in zip(unit_fold, unit_role, strict=True)} == {(f, r) for f in range(5) for r in (0, 1)}


def test_same_seed_same_result_and_records_are_accepted():
    generator = np.random.default_rng(5)
    known, unknown = documents(15, generator), documents(20, generator)
    first = blind_baseline(known, unknown, seed=7)
    records = [Texts(tuple(map(str, range(len(part)))), tuple(part)) for part in (known, unknown)]
    assert blind_baseline(*records, seed=7) == first
    assert blind_baseline(known, unknown, seed=8).fold_aucs != first.fold_aucs
    assert (first.num_calibration, first.num_candidates, first.num_permutations) == (15, 20, 399)
    assert len(first.fold_aucs) == 5
    assert first.note == ""


def test_too_little_to_test():
    generator = np.random.default_rng(6)
    for known, unknown in ((9, 50), (50, 9), (0, 0), (0, 20)):
        found = blind_baseline(documents(known, generator), documents(unknown, generator), seed=0)
        assert math.isnan(found.auc)
        assert found.p_value == 1.0
        assert "at least 10 texts with words are needed in each role" in found.unchecked
        assert found.warning == f"not tested: {found.unchecked}"
        assert f"the smaller has {min(known, unknown)}" in found.warning
    texts = documents(20, generator)
    grouped = blind_baseline(texts, texts, seed=0, groups=([0] * 20, list(range(20))))
    assert "at least 10 groups" in grouped.unchecked
    assert blind_baseline([""] * 20, [""] * 20, seed=0).unchecked


def test_group_lengths_are_checked():
    with pytest.raises(InputError, match=r"expected lengths \(2, 1\), got \(2, 2\)"):
        blind_baseline(["a", "b"], ["c"], seed=0, groups=([1, 2], [3, 4]))


def test_large_input_is_sampled(monkeypatch):
    monkeypatch.setattr(module, "_MAX_TEXTS", 60)
    monkeypatch.setattr(module, "_MAX_CHARACTERS", 200)
    generator = np.random.default_rng(7)
    found = blind_baseline(documents(12, generator), documents(100, generator), seed=0)
    assert (found.num_calibration, found.num_candidates) == (12, 48)
    assert "a random sample was used: 12 of 12 calibration items and 48 of 100 candidates" in found.note
    assert "texts only the first 200 characters were read for words" in found.note


@pytest.mark.shared_data
def test_wikimia_differs_between_labels_and_not_within(shared_data):
    with (shared_data / "wikimia" / "wikimia.jsonl").open() as lines:
        rows = [row for row in map(json.loads, lines) if row["length"] == 32]
    texts = [[row["input"] for row in rows if row["label"] == label] for label in (0, 1)]
    found = blind_baseline(texts[0], texts[1], seed=0)
    assert 0.975 < found.auc < 0.995
    assert "grossly" in found.warning
    for part in texts:
        order = np.random.default_rng(0).permutation(len(part))
        halves = [[part[i] for i in indices] for indices in (order[::2], order[1::2])]
        assert blind_baseline(halves[0], halves[1], seed=0).warning == ""


@pytest.mark.shared_data
def test_arxivtection_differs_between_labels_and_not_within(shared_data):
    limit = csv.field_size_limit(sys.maxsize)
    with (shared_data / "arxivtection" / "arxivtection.csv").open(encoding="utf-8-sig", newline="") as lines:
        rows = list(csv.DictReader(lines))
    csv.field_size_limit(limit)

    def compare(known, unknown):
        texts = [[row["Example_A"] for row in part] for part in (known, unknown)]
        groups = [[row["ID"] for row in part] for part in (known, unknown)]
        return blind_baseline(texts[0], texts[1], seed=0, groups=(groups[0], groups[1]))

    later, earlier = ([row for row in rows if row["Label"] == label] for label in "01")
    found = compare(later, earlier)
    assert found.auc > 0.9
    assert "grossly" in found.warning
    papers = np.random.default_rng(0).permutation(sorted({row["ID"] for row in later}))
    half = set(papers[: len(papers) // 2])
    assert compare(*([row for row in later if (row["ID"] in half) == side] for side in (True, False))).warning == ""
