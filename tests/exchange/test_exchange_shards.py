"""Shards of `tdd exchange` and `tdd audit`: the decisions of one call, to the last bit."""

import json

import pytest
from process_runs import audit, exchange
from scored_models import random_texts, scored_model

import tdd
from tdd.cli import main
from tdd.scoring.engine import BatchRunner
from tdd.scoring.prefixes import PrefixSums
from tdd.validate import InputError


@pytest.fixture
def computed(monkeypatch):
    """How many batches were started."""
    counts = {"prefixes": 0, "batches": 0}

    def count(kind, name, what):
        plain = getattr(kind, name)

        def method(self, *arguments):
            counts[what] += 1
            return plain(self, *arguments)

        monkeypatch.setattr(kind, name, method)

    count(PrefixSums, "__call__", "prefixes")
    count(BatchRunner, "_dispatch", "batches")
    return counts


def test_a_small_exchange(tmp_path, computed):
    model, texts = scored_model(), random_texts(8, shortest=3, longest=9)
    options = {"num_shards": 2, "num_shuffles": 9, "token_budget": 64, "progress": False}
    expected = tdd.run_exchange(model, texts, **options).log_probs
    alone, parts = computed["batches"], []
    for shard in ("1/2", "0/2", None):
        computed["batches"] = 0
        found = tdd.run_exchange(model, texts, out=tmp_path, shard=shard, **options)
        assert (found is None) == (shard is not None)
        parts.append(computed["batches"])
    assert sum(parts) == alone
    assert min(parts[:2]) > parts[2] == 0
    for name, arrays in expected.items():
        for got, one in zip(found.log_probs[name], arrays, strict=True):
            assert got.tobytes() == one.tobytes()


@pytest.mark.slow("long")
def test_an_exchange(tmp_path, computed):
    """With shared beginnings and a control model."""
    expected = exchange(tmp_path / "alone")
    alone = dict(computed)
    parts = []
    for shard in ("2/3", "0/3", "0/3", "1/3"):
        computed.update(dict.fromkeys(computed, 0))
        assert exchange(tmp_path / "shards", shard=shard) is None
        assert not (tmp_path / "shards" / "run.json").exists()
        parts.append(dict(computed))
    assert parts[2] == dict.fromkeys(computed, 0), "a repeated shard computes nothing"
    for what, count in alone.items():
        assert sum(part[what] for part in parts) == count
    assert all(sum(part.values()) for part in (parts[0], parts[1], parts[3]))
    computed.update(dict.fromkeys(computed, 0))
    assert exchange(tmp_path / "shards") == expected
    assert computed == dict.fromkeys(computed, 0)
    runs = [json.loads((tmp_path / name / "run.json").read_text()) for name in ("alone", "shards")]
    assert runs[0]["data"] == runs[1]["data"]


@pytest.mark.slow("long")
def test_an_exchange_with_a_shard_that_never_came(tmp_path, caplog):
    expected = exchange(tmp_path / "alone")
    exchange(tmp_path / "shards", shard="1/2")
    assert exchange(tmp_path / "shards") == expected
    assert "shard 0/2 did not finish here" in caplog.text


def test_an_exchange_that_cannot_be_shared_out(tmp_path):
    texts = random_texts(8, shortest=3, longest=9)
    with pytest.raises(InputError, match='shard=0/2 and stop="spending" exclude each other: a sequential rule needs'):
        tdd.run_exchange(scored_model(), texts, stop="spending", num_shards=2, out=tmp_path, shard="0/2")
    with pytest.raises(InputError, match="shard=0/2 needs out: a folder that all shards"):
        tdd.run_exchange(scored_model(), texts, num_shards=2, shard="0/2")


@pytest.mark.slow("long")
def test_an_audit(tmp_path, computed, caplog):
    expected = audit(tmp_path / "alone")
    alone = computed["batches"]
    parts = []
    for shard in ("1/2", "0/2", "1/2"):
        computed["batches"] = 0
        assert audit(tmp_path / "shards", shard=shard) is None
        assert not (tmp_path / "shards" / "run.json").exists()
        parts.append(computed["batches"])
    assert sum(parts) == alone
    assert min(parts[:2]) > 0
    assert parts[2] == 0
    computed["batches"] = 0
    assert audit(tmp_path / "shards") == expected
    assert computed["batches"] == 0
    assert "shards" not in caplog.text
    items = [(tmp_path / name / "items.csv").read_bytes() for name in ("alone", "shards")]
    assert items[0] == items[1]


@pytest.mark.slow("long")
def test_an_audit_of_several_models(tmp_path, computed, caplog):
    models = [scored_model(seed=seed) for seed in (1, 2)]
    texts = random_texts(12, seed=1, shortest=5), random_texts(30, seed=2, shortest=5)
    options = {"alpha": 0.2, "method": "jmcs", "score": "min_k", "token_budget": 256, "progress": False}
    for shard in ("0/2", "1/2"):
        assert tdd.run_audit(models, *texts, out=tmp_path / "run", shard=shard, **options) is None
    computed["batches"] = 0
    found = tdd.run_audit(models, *texts, out=tmp_path / "run", **options)
    assert computed["batches"] == 0
    assert "did not finish" not in caplog.text
    expected = tdd.run_audit(models, *texts, **options)
    for name, column in expected.items.items():
        assert found.items[name].tolist() == column.tolist(), name


def test_an_audit_without_a_folder(tmp_path, capsys):
    with pytest.raises(InputError, match="shard=0/2 needs out: a folder that all shards"):
        tdd.run_audit(scored_model(), ["w1 w2"], ["w3 w4"], alpha=0.1, shard="0/2")
    texts = tmp_path / "texts.txt"
    texts.write_text("a b c\n")
    given = ["audit", "no-model", "--candidates", str(texts), "--calibration", str(texts), "--shard", "0/2"]
    assert main(given) == 2
    assert "--shard 0/2 needs out: a folder" in capsys.readouterr().err
