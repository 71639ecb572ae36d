"""Shards of `tdd score`: the table of one call, whatever the order of the shards and whoever dies."""

import hashlib
import json
import os
import signal

import gpt2_files
import numpy as np
import pytest
from process_launcher import Launcher, until
from scored_models import random_texts, rows_computed, scored_model

import tdd
from tdd.cli import main
from tdd.scoring import programs
from tdd.scoring.engine import BatchRunner
from tdd.scoring.store import namespace
from tdd.validate import InputError

TEXTS = random_texts(24)
SCORES = ("loss", "lowercase", "min_k")

WORKER = """
import sys, time
import tdd
from tdd.scoring.engine import BatchRunner
from tdd.scoring.store import namespace
from scored_models import random_texts, scored_model
folder, shard, pause = sys.argv[1:]
namespace._SECONDS = namespace._FRACTION = 0.0  # a file a batch
plain = BatchRunner.run
def counted(self, *arguments):
    for done, found in enumerate(plain(self, *arguments), start=1):
        print("computed", found[0], flush=True)
        yield found
        if done == 2:
            time.sleep(float(pause))
BatchRunner.run = counted
tdd.score(
    scored_model(), random_texts(60), ("loss", "min_k"), store=folder, shard=shard, token_budget=256, progress=False
)
"""


@pytest.fixture(scope="module")
def model():
    return scored_model()


@pytest.fixture(scope="module")
def plain(model):
    return score(model)


@pytest.fixture
def rows(monkeypatch):
    return rows_computed(monkeypatch)


def score(model, texts=TEXTS, scores=SCORES, **options):
    return tdd.score(model, texts, scores, **{"token_budget": 140, "progress": False, **options})


def bits(scores):
    return hashlib.sha256(b"".join(column.tobytes() for column in scores.values.values())).hexdigest()


def test_any_order_and_one_twice(model, plain, tmp_path, rows, caplog):
    score(model)
    alone = sum(rows)
    rows.clear()
    computed, told = [], []
    for shard in ("2/4", (0, 4), "2/4", "3/4", (1, 4)):
        assert score(model, store=tmp_path, shard=shard, on_batch=lambda *at: told.append(at)) is None
        assert told == [(i + 1, len(told)) for i in range(len(told))]
        assert len(rows) == (0 if len(computed) == 2 else len(told)), "a repeated shard computes nothing"
        computed.append(sum(rows))
        rows.clear()
        told.clear()
    assert sum(computed) == alone
    assert sorted(computed)[1] > 0
    found = score(model, store=tmp_path)
    assert not rows
    assert bits(found) == bits(plain)
    np.testing.assert_array_equal(found.num_tokens, plain.num_tokens)
    assert not caplog.records


def test_what_no_shard_has_computed_is_computed_at_last(model, plain, tmp_path, rows, caplog):
    for shard in ("3/4", "1/4"):
        score(model, store=tmp_path, shard=shard)
    assert bits(score(model, store=tmp_path)) == bits(plain)
    assert "shards 0/4, 2/4 did not finish here" in caplog.text
    assert "what is missing is computed now" in caplog.text
    caplog.clear()
    rows.clear()
    score(model, store=tmp_path, shard="0/4")
    score(model, store=tmp_path)
    assert not rows
    assert not caplog.records


def test_a_shard_that_was_interrupted_goes_on(model, plain, tmp_path, rows, monkeypatch):
    monkeypatch.setattr(namespace, "_SECONDS", 0.0)
    monkeypatch.setattr(namespace, "_FRACTION", 0.0)

    def stop(done, total):
        if done == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        score(model, store=tmp_path, shard="0/2", on_batch=stop)
    note = tmp_path / "shards" / "0-of-2.json"
    assert not json.loads(note.read_text())["finished"]
    finished = {path.name for path in tmp_path.rglob("*.parquet")}
    assert len(finished) >= 2
    for shard in ("1/2", "0/2"):
        score(model, store=tmp_path, shard=shard)
    assert json.loads(note.read_text())["finished"]
    assert finished < {path.name for path in tmp_path.rglob("*.parquet")}
    rows.clear()
    assert bits(score(model, store=tmp_path)) == bits(plain)
    assert not rows


def test_another_number_of_shards_on_the_same_store(model, plain, tmp_path, rows):
    score(model)
    alone = sum(rows)
    rows.clear()
    for shard in ("0/2", "1/3", "2/3", "0/3"):
        score(model, store=tmp_path, shard=shard)
    assert sum(rows) == alone
    assert bits(score(model, store=tmp_path)) == bits(plain)


def test_shards_after_another_call_with_the_store(model, tmp_path, rows):
    """Rows that are stored before the first shard begins are no shard's."""
    stores = [tmp_path / name for name in ("shards", "alone")]
    for store in stores:
        score(model, TEXTS[:9], store=store, token_budget=128)
    for shard in ("1/2", "0/2"):
        score(model, store=stores[0], shard=shard)
    rows.clear()
    found = score(model, store=stores[0])
    assert not rows
    assert bits(found) == bits(score(model, store=stores[1]))


def test_another_run_is_refused_by_what_differs(model, plain, tmp_path):
    score(model, store=tmp_path, shard="0/2")
    others = {
        "model": (scored_model(seed=1), TEXTS, {}),
        "texts": (model, TEXTS[1:], {}),
        "token_budget": (model, TEXTS, {"token_budget": 128}),
        "scores": (model, TEXTS, {"scores": ("loss",)}),
        "max_length": (model, TEXTS, {"max_length": 20}),
    }
    for name, (other, texts, options) in others.items():
        with pytest.raises(InputError, match=r"shard 1/2: .* holds shards of another run \(0-of-2\)") as error:
            score(other, texts, **{"store": tmp_path, "shard": "1/2", **options})
        assert f"{name} " in str(error.value).partition("(0-of-2): ")[2].partition(". Give all shards")[0]
        assert "\n" not in str(error.value)
    score(scored_model(seed=1), store=tmp_path, shard="1/2", job="other")
    score(model, store=tmp_path, shard="1/2")
    assert bits(score(model, store=tmp_path)) == bits(plain)


def test_a_shard_needs_a_store(model):
    with pytest.raises(InputError, match="shard=0/2 needs store: a folder that all shards"):
        score(model, shard="0/2")


@pytest.mark.slow("processes")
def test_a_killed_shard_loses_nothing_that_was_finished(tmp_path):
    """Four processes at once; one is killed with SIGKILL, and repeated."""
    launcher, store = Launcher(tmp_path), tmp_path / "store"
    try:
        started = [launcher.python(WORKER, store, f"{i}/4", 600 if i == 1 else 0) for i in range(4)]
        until(lambda: started[1].text(0).count("computed") >= 2, timeout=300, what="a few batches of shard 1/4")
        started[1].kill()
        ends = launcher.all([started[i] for i in (0, 2, 3)])
        assert [end.code for end in ends] == [0] * 3, ends[0].err
        before = {path.name for path in store.rglob("*.parquet")}
        (again,) = launcher.all([launcher.python(WORKER, store, "1/4", 0)])
    finally:
        launcher.stop()
    assert again.code == 0, again.err
    done = [{int(line.split()[1]) for line in out.splitlines()} for out in (*(end.out for end in ends), again.out)]
    killed = {int(line.split()[1]) for line in started[1].text(0).splitlines()}
    parts = [done[0], done[3] | killed, done[1], done[2]]
    assert [number for part in parts for number in sorted(part)] == [*range(1 + max(parts[-1]))], "consecutive batches"
    assert len(before) == sum(map(len, done[:3])) + len(killed - done[3])
    assert len(killed & done[3]) <= 1, "what was not yet on the disk"
    assert before <= {path.name for path in store.rglob("*.parquet")}
    total = []
    given = scored_model(), random_texts(60), ("loss", "min_k")
    alone = score(*given, on_batch=lambda *at: total.append(at), token_budget=256)
    assert set().union(*done, killed) == set(range(len(total)))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(programs.TokenProgram, "start", None)  # nothing is left to compute
        assert bits(score(*given, store=store, token_budget=256)) == bits(alone)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    texts = folder / "texts.jsonl"
    made = [text.lower().replace("w", "") for text in random_texts(20, longest=30)]  # words that the tokenizer knows
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in made))
    return gpt2_files.write(folder / "gpt2")[0], texts


def command(files, out, *more):
    model, texts = files
    return [*map(str, ["score", model, texts, "--out", out, "--score", "loss,min_k", "--token-budget", 128, *more])]


@pytest.mark.slow("long")
def test_the_command(tmp_path, files, capsys, rows):
    one, two = tmp_path / "one.csv", tmp_path / "two.csv"
    assert main(command(files, one, "--quiet")) == 0
    assert not (tmp_path / ".one.csv.scoring").exists()
    capsys.readouterr()
    for shard in ("1/2", "0/2"):
        assert main(command(files, two, "--shard", shard)) == 0
        out, err = capsys.readouterr()
        assert out == ""
        assert f"tdd score: shard {shard} is done, in {tmp_path / '.two.csv.scoring'}; the command without" in err
        assert not two.exists()
    rows.clear()
    assert main(command(files, two, "--quiet")) == 0
    assert not rows
    assert two.read_bytes() == one.read_bytes()
    assert main(command(files, two, "--shard", "0/2", "--quiet")) == 0, "a shard that comes late finds the store"
    assert not rows
    assert main(command(files, two, "--shard", "0/2", "--max-length", "9")) == 2
    assert "shard 0/2: " in (err := capsys.readouterr().err)
    assert "max_length 9 here, nothing there" in err


@pytest.mark.slow("long")
def test_a_scheduler_ends_a_shard_in_order(tmp_path, files, monkeypatch, capsys):
    """SIGTERM while rows are in memory: they are on the disk afterwards."""
    store, plain = tmp_path / "store", BatchRunner.run

    def ended(self, *arguments):
        for number, found in enumerate(plain(self, *arguments)):
            yield found
            if number == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(namespace, "_SECONDS", 1000.0)
    monkeypatch.setattr(BatchRunner, "run", ended)
    assert main(command(files, tmp_path / "one.csv", "--store", store, "--shard", "0/2")) == 143
    assert "interrupted; run the same command again to continue" in capsys.readouterr().err
    assert len([*store.rglob("*.parquet")]) == 1
    assert not json.loads((store / "shards" / "one%2Ecsv" / "0-of-2.json").read_text())["finished"]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize("shard", ["4/4", "x", "1", "-1/4"])
def test_the_command_refuses_what_is_no_shard(tmp_path, shard, capsys):
    (tmp_path / "texts.txt").write_text("a b c\n")
    out = str(tmp_path / "scores.csv")
    assert main(["score", "no-model", str(tmp_path / "texts.txt"), "--out", out, f"--shard={shard}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert shard in error
    assert "0/4" in error
