"""The table of all scores, with models and corpora that are smaller still."""

import dataclasses
import json

import numpy as np
import pytest

from benchmarks import audit_tables, scores


@pytest.fixture
def small(monkeypatch):
    parts = {name: min(count, 12) for name, count in scores.PARTS.items()}
    monkeypatch.setattr(scores, "PARTS", parts | {"member": 12, "nonmember": 24})
    for name, value in {"DOCUMENTS": 4, "PRIVATE": 3, "OWNED": (1, 4), "DRAWS": 20, "WIDTH": 32, "LAYERS": 1}.items():
        monkeypatch.setattr(scores, name, value)
    return dataclasses.replace(scores.CONFIG, epochs=1)


@pytest.mark.slow("training")
def test_one_seed(small):
    names = ("loss", "dc_pdd", "reference", "con_recall")
    found = json.loads(json.dumps(scores.measure(3, names, small)))
    joined = scores.joined([found, found])
    assert [row["score"] for row in joined["rows"]] == list(names)
    assert joined["rows"][0]["auc_se"] == 0
    assert joined["rows"][0]["auc"] == found["scores"][0]["auc"]
    assert joined["rows"][3]["beside"] == ["prefix", "member_prefix"]
    assert [row["documents"] for row in joined["owner"]] == [1, 4]
    page = audit_tables.scores({**joined, "command": "x"})
    assert page.count("\n| con_recall | prefix, member_prefix |") == 1


def test_the_owners_test_by_its_own_function():
    """p-values of sets of documents are those of `tdd.version_test`, one by one."""
    import tdd

    losses = np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32)
    chosen = np.array([[0, 1, 2], [5, 3, 1]])
    found = scores._p_values(losses, chosen)
    for rows, value in zip(chosen, found, strict=True):
        assert float(value) == pytest.approx(float(tdd.version_test(losses[rows, 0], losses[rows, 1:]).p_value))
