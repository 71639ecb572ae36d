"""`tdd score --shard-params` in two processes, each with a part of the model: the bytes of one."""

import json
import os

import gpt2_files
from scored_models import random_texts

from tdd.cli import main

SLURM_JOB = os.getpid()


def as_slurm(count, index):
    """The environment of a task; JAX takes the port from the job's number."""
    task = {"JOB_ID": SLURM_JOB, "NTASKS": count, "PROCID": index, "LOCALID": index, "STEP_NUM_NODES": 1}
    return {"SLURM_STEP_NODELIST": "localhost", **{f"SLURM_{name}": str(value) for name, value in task.items()}}


def test_two_processes_write_the_bytes_of_one(launcher, tmp_path):
    model, texts = gpt2_files.write(tmp_path / "gpt2")[0], tmp_path / "texts.jsonl"
    made = [text.lower().replace("w", "") for text in random_texts(20, longest=30)]  # words that the tokenizer knows
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in made))
    command = ["score", model, texts, "--score", "loss,min_k", "--token-budget", 128, "--out"]
    assert main([*map(str, command), str(tmp_path / "one.csv"), "--quiet"]) == 0
    two = [*command, tmp_path / "two.csv", "--shard-params", "--distributed"]
    ends = launcher.all([launcher.tdd(*two, **as_slurm(2, i)) for i in range(2)], 200)
    assert [end.code for end in ends] == [0, 0], ends[0].err
    assert (tmp_path / "two.csv").read_bytes() == (tmp_path / "one.csv").read_bytes()
    one, both = (json.loads((tmp_path / f"{name}.csv.provenance.json").read_text()) for name in ("one", "two"))
    differing = {name for name in {*one, *both} if one.get(name) != both.get(name)}
    assert differing == {"num_processes", "num_devices", "shard_params", "device"}
    assert "process 1 of 2 is done; process 0 writes the results" in ends[1].err
    assert "texts, loss" not in ends[1].out
