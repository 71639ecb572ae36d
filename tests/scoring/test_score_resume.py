"""`tdd.score` with a store: nothing is scored twice, and no kill, damage or company changes the table."""

import contextlib
import json
import logging
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import textwrap

import numpy as np
import pytest
from failing_disk import FailingDisk, Killed
from scored_models import Stopped, assert_same, random_texts, rows_computed, scored_model, stop_after

import tdd
from tdd.records import Scores
from tdd.scoring.score import score
from tdd.scoring.store import address, namespace
from tdd.scoring.store.shards import ShardIndex
from tdd.scoring.table import store_beside, write_scores
from tdd.tables import load_score_table
from tdd.validate import InputError

SUPPORT = pathlib.Path(__file__).resolve().parents[1] / "support"
TEXTS = random_texts(24)
SCORES = ("loss", "lowercase", "min_k_plus_plus")


@pytest.fixture(scope="module")
def model():
    return scored_model()


@pytest.fixture(scope="module")
def plain(model):
    return run(model, TEXTS)


@pytest.fixture
def rows(monkeypatch):
    return rows_computed(monkeypatch)


def run(model, texts, scores=SCORES, **options):
    return score(model, texts, scores, **{"token_budget": 256, "progress": False, **options})


def test_nothing_is_scored_twice(model, plain, tmp_path, rows):
    alone = {}
    for scores in (("loss",), ("min_k_plus_plus",)):
        rows.clear()
        run(model, TEXTS, scores)
        alone[scores] = sum(rows)
    rows.clear()
    run(model, TEXTS[:16], "loss", store=tmp_path)
    first = sum(rows)
    assert first >= 16
    rows.clear()
    found = run(model, TEXTS[8:], "loss", store=tmp_path)
    assert sum(rows) == alone[("loss",)] - first  # the new ones alone
    assert found.provenance["num_stored_before"] > 0
    assert_same(found, run(model, TEXTS[8:], "loss"), 1e-5)
    rows.clear()
    for scores in ("loss", ("zlib", "min_k"), "min_k:k=0.1"):
        run(model, TEXTS[::-1], scores, store=tmp_path, token_budget=128)
        assert not rows
    run(model, TEXTS, "lowercase", store=tmp_path)
    rows.clear()
    run(model, TEXTS, "min_k_plus_plus", store=tmp_path)
    assert sum(rows) == alone[("min_k_plus_plus",)]  # two more statistics
    rows.clear()
    assert_same(run(model, TEXTS, store=tmp_path), plain, 1e-5)
    assert not rows


@pytest.mark.slow("long")
def test_other_models_and_versions_have_namespaces_of_their_own(model, tmp_path, rows, monkeypatch):
    expected = run(model, TEXTS, "loss", store=tmp_path)
    for change in ("model", "tdd", "jax", "precision"):
        rows.clear()
        other = scored_model(3) if change == "model" else model
        with monkeypatch.context() as patch:
            if change == "tdd":
                patch.setattr(tdd, "__version__", "99.0")
            if change == "jax":
                patch.setattr(address.jax, "__version__", "99.0")
            with address.jax.default_matmul_precision("highest" if change == "precision" else "default"):
                found = run(other, TEXTS, "loss", store=tmp_path)
        assert rows, change
        assert (change == "model") == (not np.allclose(found["loss"], expected["loss"]))
    namespaces = list(tmp_path.glob("*/namespace.json"))
    assert len(namespaces) >= 4
    versions = {json.loads(path.read_text())["tdd"] for path in namespaces}
    assert versions == {tdd.__version__, "99.0"}


def test_equal_rows_are_computed_once_to_the_bit(model, plain, rows):
    rows.clear()
    twice = run(model, [*TEXTS, *TEXTS[::-1]], [name for name in SCORES if name != "lowercase"])
    once = sum(rows)
    for name in twice.values:
        np.testing.assert_array_equal(twice[name][:24], twice[name][24:][::-1])
    rows.clear()
    run(model, TEXTS, [name for name in SCORES if name != "lowercase"])
    assert once == sum(rows)
    assert_same(run(model, [*TEXTS, *TEXTS]), run(model, [*TEXTS, *TEXTS]))
    lower = [text.lower() for text in TEXTS]
    rows.clear()
    found = run(model, lower, ("loss", "lowercase"))
    both = sum(rows)
    rows.clear()
    run(model, lower, "loss")
    assert both == sum(rows)
    np.testing.assert_array_equal(found["lowercase"], run(model, lower, "lowercase")["lowercase"])


@pytest.mark.parametrize("stops", [(1,), (4,), (2, 3)])
def test_an_interrupted_run_on_a_filled_store_ends_with_the_same_bits(model, tmp_path, stops):
    """Part of the rows are of another run: the batches are those of the rows that were missing at first."""
    filled, cut = tmp_path / "filled", tmp_path / "cut"
    run(model, TEXTS[3:11], ("loss",), store=filled)
    run(model, TEXTS[6:14], store=filled, token_budget=128)
    shutil.copytree(filled, cut)
    whole = run(model, TEXTS, store=filled)
    for stop in stops:
        with pytest.raises(Stopped):
            run(model, TEXTS, store=cut, on_batch=stop_after(stop))
    resumed = run(model, TEXTS, store=cut)
    assert_same(resumed, whole)
    assert dict(resumed.provenance) == dict(whole.provenance)


@pytest.mark.parametrize("how", ["flip", "cut", "delete"])
def test_a_damaged_shard_is_scored_again_alone(model, plain, tmp_path, rows, monkeypatch, caplog, how):
    monkeypatch.setattr(namespace, "_MOST_SECONDS", 0.0)  # every batch is a shard
    run(model, TEXTS, store=tmp_path)
    paths = sorted(tmp_path.rglob("*.parquet"))
    assert len(paths) > 5
    for path in paths[::4]:
        data = path.read_bytes()
        if how == "delete":
            path.unlink()
        else:
            path.write_bytes(data[:-30] if how == "cut" else data[:99] + bytes([data[99] ^ 8]) + data[100:])
        rows.clear()
        caplog.clear()
        with caplog.at_level(logging.WARNING, "tdd"):
            assert_same(run(model, TEXTS, store=tmp_path), plain)
        assert (path.name in caplog.text) == (how != "delete")
        assert len(rows) == 1


def table(model, out, store=None, **options):
    """What `tdd score` does, into a file."""
    write_scores(run(model, TEXTS, store=store or store_beside(out), **options), out, keep_store=store is not None)


def files_of(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file() and path.name[0] != "."}


@pytest.mark.parametrize("when", ["before", "half", "after"])
@pytest.mark.slow("long")
def test_a_kill_at_a_call_to_the_disk_changes_no_byte_of_the_table(model, tmp_path, monkeypatch, when):
    """In steps of seven; `test_score_store` takes every call."""
    monkeypatch.setattr(namespace, "_MOST_SECONDS", 0.0)
    (tmp_path / "expected").mkdir()
    table(model, tmp_path / "expected" / "s.csv")
    expected = files_of(tmp_path / "expected")
    at, killed = {"before": 1, "half": 3, "after": 5}[when], True
    while killed:
        out = tmp_path / f"{at}" / "s.csv"
        out.parent.mkdir()
        with monkeypatch.context() as patch:
            disk = FailingDisk(patch, at, when)
            with contextlib.suppress(Killed):
                table(model, out)
            killed = disk.dead
        table(model, out)
        assert files_of(out.parent) == expected, at
        assert not store_beside(out).exists()
        at += 7
    assert at > 60


PROGRAM = """
import sys, pathlib, time
sys.path.insert(0, sys.argv[1])
from scored_models import random_texts, scored_model
from tdd.scoring.score import score
from tdd.scoring.store import namespace
namespace._MOST_SECONDS = 0.0

def on_batch(done, total):
    print(done, total, flush=True)
    time.sleep(float(sys.argv[5]))

first, last = map(int, sys.argv[3].split("-"))
pathlib.Path(sys.argv[2] + f"-ready-{first}").touch()
while len(list(pathlib.Path(sys.argv[2]).parent.glob("store-ready-*"))) < int(sys.argv[4]):
    time.sleep(0.01)
table = score(scored_model(), random_texts(24)[first:last], ("loss", "lowercase", "min_k_plus_plus"),
              store=sys.argv[2], token_budget=256, on_batch=on_batch, progress=False)
print([table[name].tolist() for name in table.values], flush=True)
"""


def start(store, texts="0-24", together=1, pause=0.0):
    command = [
        sys.executable,
        "-c",
        textwrap.dedent(PROGRAM),
        str(SUPPORT),
        str(store),
        texts,
        str(together),
        str(pause),
    ]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "JAX_PLATFORMS": "cpu"})


@pytest.mark.slow("processes")
def test_killed_processes_are_continued_without_losing_a_shard(model, plain, tmp_path, rows):
    """SIGKILL, twice; what was finished is neither lost nor scored again, and the table is that of a quiet run."""
    store, finished = tmp_path / "store", 0
    for batches in (1, 2):
        process = start(store, pause=0.05)
        try:
            while True:
                done, total = map(int, process.stdout.readline().split())
                if done == finished + batches:
                    process.send_signal(signal.SIGKILL)
                    break
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
        shards = list(store.rglob("*.parquet"))
        assert len(shards) >= done
        finished = len(shards)
    rows.clear()
    assert_same(run(model, TEXTS, store=store), plain)
    assert len(rows) == total - finished
    assert set(shards) <= set(store.rglob("*.parquet"))


@pytest.mark.slow("long")
def test_two_processes_at_once_on_texts_that_overlap(model, tmp_path):
    store = tmp_path / "store"
    processes = [start(store, texts, together=2, pause=0.02) for texts in ("0-16", "8-24")]
    for process, part in zip(processes, (TEXTS[:16], TEXTS[8:]), strict=True):
        out = process.communicate(timeout=120)[0]
        assert process.returncode == 0
        found = json.loads(out.splitlines()[-1].replace("nan", "NaN"))
        expected = run(model, part)
        for got, name in zip(found, expected.values, strict=True):
            np.testing.assert_allclose(got, expected[name], rtol=1e-5)
    assert_same(run(model, TEXTS, store=store), run(model, TEXTS), 1e-5)


@pytest.mark.slow("long")
def test_an_audit_takes_what_a_score_has_computed(model, tmp_path, rows):
    words = [" ".join(text.split()[:30]) for text in random_texts(40, 5, 12, 30)]
    expected = run(model, words, "loss", store=tmp_path / "store")
    rows.clear()
    options = {"score": "loss", "alpha": 0.2, "progress": False}
    found = tdd.run_audit(model, words[:15], words[15:], store=tmp_path / "store", out=tmp_path / "run", **options)
    assert not rows
    assert not (tmp_path / "run" / "scoring").exists()
    np.testing.assert_array_equal(found.items["loss"], expected["loss"][:15])
    np.testing.assert_array_equal(found.calibration["loss"], expected["loss"][15:])


def test_bad_texts_leave_no_folder(model, tmp_path):
    with pytest.raises(InputError, match="has 1 token"):
        run(model, ["w1"], "loss", store=tmp_path / "store")
    assert not (tmp_path / "store").exists()


def test_a_million_tokens_come_back_in_pieces(tmp_path, monkeypatch):
    """Stored rows are taken in a group at a time, shard by shard."""
    from tdd.scoring import plan as score_plan

    monkeypatch.setattr(score_plan, "_READ", 5)
    monkeypatch.setattr(namespace, "_MOST_SECONDS", 0.0)
    model = scored_model()
    expected = run(model, TEXTS, "loss", store=tmp_path)
    loads, original = [], ShardIndex._load

    def spy(self, number):
        loads.append(number)
        return original(self, number)

    monkeypatch.setattr(ShardIndex, "_load", spy)
    sizes = []
    found = run(model, TEXTS[::-1], "loss", store=tmp_path, on_batch=lambda done, total: sizes.append(total))
    np.testing.assert_array_equal(found["loss"], expected["loss"][::-1])
    assert loads == sorted(loads)
    assert sizes[0] >= 5


def test_a_score_that_is_missing_is_an_empty_cell(tmp_path):
    write_scores(Scores(("a", "b"), {"loss": np.array([1.5, np.nan])}, np.array([3, 0])), tmp_path / "s.csv")
    assert (tmp_path / "s.csv").read_text().splitlines()[1:] == ["a,3,1.5", "b,0,"]
    table = load_score_table(tmp_path / "s.csv", scores="loss", calibrated=False)
    assert table.num_missing("loss", "candidate") == 1
