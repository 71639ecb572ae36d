"""The packaged demonstration: complete, small, honest about who was trained on."""

import csv

import numpy as np
import pytest
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold, cross_val_predict

from tdd.demo.data import demo_files, load_calibration, load_candidates
from tdd.demo.retrain import CALIBRATION, CONFIG, MEMBERS, NONMEMBERS, VOCABULARY, planted_corpus
from tdd.lab.train import evaluation_loss
from tdd.models import checkpoint


@pytest.fixture(scope="module")
def loaded():
    return checkpoint.load(demo_files().checkpoint)


def read_truth():
    """Identifier -> (role, label)."""
    with open(demo_files().truth, newline="", encoding="utf-8") as file:
        return {row["id"]: (row["role"], int(row["label"])) for row in csv.DictReader(file)}


def test_files_are_small_and_hold_nothing_else():
    files = demo_files()
    paths = [*files.checkpoint.iterdir(), *files.truth.parent.iterdir()]
    assert sum(path.stat().st_size for path in paths) < 4 << 20
    assert {path.suffix for path in paths} == {".json", ".jsonl", ".csv", ".safetensors"}


def test_texts_are_those_that_retraining_generates():
    planted = planted_corpus()
    for kept, made in ((load_calibration(), planted.calibration), (load_candidates(), planted.candidates)):
        assert (kept.ids, kept.texts, kept.labels) == (made.ids, made.texts, made.labels)
    assert read_truth() == {row["id"]: (row["role"], row["label"]) for row in planted.truth}


def test_roles_and_labels_agree_with_the_truth():
    truth, candidates, calibration = read_truth(), load_candidates(), load_calibration()
    assert len(calibration) == CALIBRATION
    assert sum(candidates.labels) == MEMBERS
    assert len(candidates) == MEMBERS + NONMEMBERS
    for texts, role in ((candidates, "candidate"), (calibration, "calibration")):
        for name, label in zip(texts.ids, texts.labels, strict=True):
            assert truth[name] == (role, label)
    trained_on = {name for name, (_, label) in truth.items() if label == 1}
    assert not trained_on & set(calibration.ids)


@pytest.mark.parametrize("against", ["nonmembers", "calibration"])
def test_words_alone_do_not_tell_members_from_others(against):
    candidates = load_candidates()
    labels = np.array(candidates.labels)
    texts = list(candidates.texts)
    if against == "calibration":
        texts = [text for text, label in zip(texts, labels, strict=True) if label] + list(load_calibration().texts)
        labels = np.repeat([1, 0], [MEMBERS, CALIBRATION])
    folds = StratifiedKFold(5, shuffle=True, random_state=0)
    words = CountVectorizer(binary=True).fit_transform(texts)
    blind = cross_val_predict(LogisticRegression(C=0.1), words, labels, cv=folds, method="decision_function")
    # Under exchangeability the AUC has mean 1/2 and standard error below .035.
    assert abs(roc_auc_score(labels, blind) - 0.5) < 0.1


@pytest.mark.slow("long")
def test_checkpoint_knows_its_members_and_no_others(loaded):
    lm, params, tokenizer = loaded
    assert lm.vocab_size == len(tokenizer) == VOCABULARY
    candidates = load_candidates()

    def mean_loss(label):
        texts = [text for text, mine in zip(candidates.texts, candidates.labels, strict=True) if mine == label]
        return evaluation_loss(lm, params, tokenizer, texts, config=CONFIG)

    members, others = mean_loss(1), mean_loss(0)
    calibration = evaluation_loss(lm, params, tokenizer, load_calibration().texts, config=CONFIG)
    assert members < others - 0.4
    assert abs(others - calibration) < 0.1
