"""`tdd score` in several real processes: the bytes of one, whoever dies."""

import hashlib
import json
import os
import signal

import gpt2_files
import pytest
from process_launcher import until
from scored_models import random_texts, scored_model

import tdd
from tdd.audit.passes import BatchRunner
from tdd.audit.store import space
from tdd.cli import main
from tdd.processes import Processes, identity
from tdd.validate.errors import InputError

SLURM_JOB = os.getpid()

SCORES = "loss,min_k,lowercase"

WORKER = """
import hashlib, sys, time
from tdd.processes import initialize, meeting
meeting.BEAT, meeting.SILENCE = 0.1, 2.0
folder, count, index, number, pause = sys.argv[1:]
initialize(num_processes=int(count), process_id=int(index), connect=False)
import tdd
from tdd.audit.passes import BatchRunner
from tdd.audit.store import space
from scored_models import random_texts, scored_model
space._SECONDS = space._SHARE = 0.0  # a shard a batch
plain, computed = BatchRunner.run, 0
def counted(self, *arguments):
    global computed
    for found in plain(self, *arguments):
        computed += 1
        print("computed", *found[1].rows, flush=True)
        time.sleep(float(pause))
        yield found
BatchRunner.run = counted
scores = tdd.score(
    scored_model(seed=int(number)), random_texts(60), ("loss", "min_k"), store=folder, token_budget=256, progress=False
)
print("bits", hashlib.sha256(b"".join(column.tobytes() for column in scores.values.values())).hexdigest())
"""


def bits(end):
    assert end.code == 0, end.err
    return end.out.splitlines()[-1].split()[1]


def batches(*ends):
    """The rows of the batches that went through the model."""
    return [tuple(line.split()[1:]) for end in ends for line in end.out.splitlines() if line.startswith("computed")]


@pytest.fixture(scope="module")
def alone():
    """What one process finds, and in how many batches."""
    batches = []
    scores = tdd.score(
        scored_model(), random_texts(60), ("loss", "min_k"), token_budget=256, on_batch=lambda *at: batches.append(at)
    )
    return hashlib.sha256(b"".join(column.tobytes() for column in scores.values.values())).hexdigest(), len(batches)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    texts = folder / "texts.jsonl"
    made = [text.lower().replace("w", "") for text in random_texts(60, longest=30)]  # words that the tokenizer knows
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in made))
    return gpt2_files.write(folder / "gpt2")[0], texts


def command(files, out, *more):
    model, texts = files
    return ["score", model, texts, "--out", out, "--scores", SCORES, "--token-budget", 128, *more]


def as_slurm(count, index):
    """The environment of a task; JAX takes the port from the job's number."""
    task = {"JOB_ID": SLURM_JOB, "NTASKS": count, "PROCID": index, "LOCALID": index, "STEP_NUM_NODES": 1}
    return {"SLURM_STEP_NODELIST": "localhost", **{f"SLURM_{name}": str(value) for name, value in task.items()}}


def test_four_processes_write_the_bytes_of_one(launcher, tmp_path, files):
    assert main([*map(str, command(files, tmp_path / "one.csv", "--quiet"))]) == 0
    ends = launcher.all(
        [launcher.tdd(*command(files, tmp_path / "four.csv", "--distributed"), **as_slurm(4, i)) for i in range(4)]
    )
    assert [end.code for end in ends] == [0] * 4, ends[0].err
    assert (tmp_path / "four.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    one, four = (json.loads((tmp_path / f"{name}.csv.provenance.json").read_text()) for name in ("one", "four"))
    assert {name for name in {*one, *four} if one.get(name) != four.get(name)} == {"num_processes"}
    for index, end in enumerate(ends):
        if index:
            assert f"process {index} of 4 is done; process 0 writes the results" in end.err
            assert end.out == ""
        assert "taken over" not in end.err
    shards = [*(tmp_path / ".four.csv.scoring").rglob("*.parquet")]
    assert len({path.name.rpartition("-")[0].rpartition("-")[0] for path in shards}) == 4, "each has written shards"


def test_a_scheduler_ends_a_run_in_order(tmp_path, files, monkeypatch, capsys):
    """SIGTERM while rows are in memory: they are on the disk afterwards."""
    out, store, plain = tmp_path / "one.csv", tmp_path / "store", BatchRunner.run

    def ended(self, *arguments):
        for number, found in enumerate(plain(self, *arguments)):
            yield found
            if number == 1:
                os.kill(os.getpid(), signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(space, "_SECONDS", 1000.0)
    monkeypatch.setattr(BatchRunner, "run", ended)
    assert main([*map(str, command(files, out, "--store", store))]) == 143
    assert "interrupted; run the same command again to continue" in capsys.readouterr().err
    assert len([*store.rglob("*.parquet")]) == 1
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_killed_process_loses_nothing_that_was_finished(launcher, tmp_path, alone):
    """All three die, two come back: they end with the bits of one, and score nothing again."""
    started = [launcher.python(WORKER, tmp_path / "store", 3, index, 0, 0.5) for index in range(3)]
    until(lambda: started[1].text(0).count("computed") >= 2, what="a finished batch of process 1")
    for one in started:
        one.kill()
    finished = {path.name for path in (tmp_path / "store").rglob("*.parquet")}
    before = [line for one in started for line in one.text(0).splitlines()]
    again = [launcher.python(WORKER, tmp_path / "store", 3, index, 0, 0) for index in (0, 2)]
    ends = launcher.all(again)
    assert "process 1 has given no sign of life" in ends[0].err
    assert "missing batches are taken over" in ends[0].err
    assert {bits(end) for end in ends} == {alone[0]}
    assert finished <= {path.name for path in (tmp_path / "store").rglob("*.parquet")}
    assert len(before) >= len(finished) >= 2
    assert len({*batches(*ends)}) == alone[1] - len(finished), "a shard is a batch, and none is scored again"


def test_another_model_is_refused_by_name(launcher, tmp_path, alone):
    """Who comes first stands, who comes with another model is refused; the first one finishes alone."""
    folder = tmp_path / "store"
    ends = launcher.all([launcher.python(WORKER, folder, 2, index, index, 1.0) for index in range(2)])
    assert sorted(end.code for end in ends) == [0, 1], ends
    refused = 0 if ends[0].code else 1
    message = ends[refused].err.splitlines()[-1]
    assert f"InputError: process {refused} was given other inputs than process {1 - refused} (process id" in message
    assert "model: " in message
    assert "texts" not in message.partition("All processes")[0]
    assert (bits(ends[1 - refused]) == alone[0]) == (refused == 1)
    assert "missing batches are taken over" in ends[1 - refused].err


def test_several_processes_need_a_store(monkeypatch):
    monkeypatch.setattr(identity, "_given", Processes(0, 2))
    needed = "2 processes share this run out and need store, a folder that all of them can read and write"
    with pytest.raises(InputError, match=needed) as error:
        tdd.score(scored_model(), random_texts(3))
    advice = "initialize(num_processes=1, process_id=0, connect=False)"
    assert advice in str(error.value)
    monkeypatch.setattr(identity, "_given", None)
    exec(advice, {"initialize": identity.initialize})
    assert len(tdd.score(scored_model(), random_texts(3), progress=False)) == 3
