"""The recipes of tdd/runs/README.md, run with stand-ins for the engines that set their variables."""

import os
import pathlib
import re
import subprocess
import sys

import pytest
import yaml
from child_process import ROOT, environment
from scored_models import random_texts

from tdd.cli import main
from tdd.demo.data import demo_files

PAGE = (ROOT / "tdd" / "runs" / "README.md").read_text("utf-8")
SHARDS = 2


def recipe(name, language):
    found = re.search(rf"<!-- {name}: begin -->\n```{language}\n(.*?)```", PAGE, re.DOTALL)
    assert found, name
    return found[1]


def stand_in(folder, name, text):
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


@pytest.mark.slow("processes")
def test_the_job_array_of_slurm(tmp_path):
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(random_texts(40, seed=6, shortest=5)))
    script = recipe("slurm", "bash").replace("SHARDS=64", f"SHARDS={SHARDS}")
    for path, place in (("/shared/model", demo_files().checkpoint), ("/shared/texts.jsonl", texts)):
        assert path in script
        script = script.replace(path, str(place))
    script = script.replace("/shared/", f"{tmp_path}/")
    stand_in(tmp_path / "bin", "srun", 'SLURM_PROCID=0 exec "$@"')
    stand_in(tmp_path / "bin", "tdd", f'exec {sys.executable} -m tdd "$@" --no-compilation-cache')
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])

    def task(index, count):
        done = subprocess.run(
            ["bash", "-euc", script],
            env=environment(PATH=path, SLURM_ARRAY_TASK_ID=str(index), SLURM_ARRAY_TASK_COUNT=str(count)),
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert f"shard {index}/{SHARDS} is done" in done.stderr

    task(1, SHARDS)
    task(0, 1)  # submitted again by itself: SLURM counts one task
    command = ["score", str(demo_files().checkpoint), str(texts), "--quiet"]
    assert main([*command, "--out", str(tmp_path / "scores.parquet"), "--store", str(tmp_path / "store")]) == 0
    assert main([*command, "--out", str(tmp_path / "one.parquet")]) == 0
    assert (tmp_path / "scores.parquet").read_bytes() == (tmp_path / "one.parquet").read_bytes()


@pytest.mark.parametrize(("name", "variable"), [("kubernetes", "JOB_COMPLETION_INDEX"), ("jobset", "SHARD")])
def test_the_jobs_of_kubernetes(tmp_path, name, variable):
    job = yaml.safe_load(recipe(name, "yaml"))["spec"]
    if name == "jobset":
        (group,) = job["replicatedJobs"]
        count, pod = group["replicas"], group["template"]["spec"]["template"]["spec"]
        assert pod["containers"][0]["env"][0]["name"] == variable
    else:
        assert job["completionMode"] == "Indexed"
        count, pod = job["completions"], job["template"]["spec"]
        assert job["backoffLimitPerIndex"] > 0
    assert pod["restartPolicy"] == "Never"
    (container,) = pod["containers"]
    stand_in(tmp_path / "bin", "tdd", 'echo "$@"')
    path = os.pathsep.join([str(tmp_path / "bin"), os.environ["PATH"]])
    said = subprocess.run(
        [*container["command"], *container["args"]],
        env={"PATH": path, variable: "17"}, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    assert said[said.index("--shard") + 1] == f"17/{count}"
    assert said[said.index("--store") + 1].startswith(container["volumeMounts"][0]["mountPath"])


def test_every_command_of_the_page_is_one():
    from tdd.cli import _parser

    commands = re.findall(r"^(tdd (?:score|study|select) .*)$", PAGE, re.MULTILINE)
    assert len(commands) >= 3
    for line in commands:
        _parser().parse_args(line.partition("#")[0].split()[1:])


def test_paths_of_the_page_exist():
    for name in re.findall(r"`((?:benchmarks|tdd|tests)/[\w/.]+)`", PAGE):
        assert pathlib.Path(ROOT, name).exists(), name
