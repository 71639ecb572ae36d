"""The seed of a randomised rule: a draw from the operating system for each run, kept with the run."""

import json

import numpy as np
import pytest

import tdd
from tdd.cli import main
from tdd.validate import InputError

RANDOMISED = "best_score:rule=randomized"


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    roles = ["calibration"] * 60 + ["candidate"] * 30
    return [{"id": str(i), "role": role, "a": rng.normal(), "b": rng.normal()} for i, role in enumerate(roles)]


def select(rows, out=None, method=RANDOMISED, **options):
    return tdd.select(rows, role_field="role", score=("a", "b"), method=method, alpha=0.1, out=out, **options)


def test_every_run_draws_anew(rows):
    assert len({select(rows).run["seed"] for _ in range(3)}) == 3


def test_the_folder_keeps_the_draw(rows, tmp_path):
    first, again = (select(rows, tmp_path / "run") for _ in range(2))
    assert first.run["seed"] == again.run["seed"]
    assert json.loads((tmp_path / "run" / "inputs.json").read_text())["drawn_seed"] == first.run["seed"]
    assert select(rows, seed=first.run["seed"]).run["decision"] == first.run["decision"]
    with pytest.raises(InputError, match="holds a run of other inputs or options"):
        select(rows, tmp_path / "run", seed=first.run["seed"] ^ 1)


@pytest.mark.parametrize(("method", "options"), [("best_score", {}), (RANDOMISED, {"seed": 0})])
def test_seeds_that_are_known(method, options, rows, tmp_path):
    assert select(rows, tmp_path, method, **options).run["seed"] == 0
    assert "drawn_seed" not in json.loads((tmp_path / "inputs.json").read_text())


def test_the_command_prints_it(rows, tmp_path, capsys):
    table = tmp_path / "rows.jsonl"
    table.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--role-field", "role", "--score", "a", "--score", "b", "--method", RANDOMISED, "--alpha", "0.1"]
    assert main(["select", str(table), *options, "--out", str(tmp_path / "run")]) in (0, 3)
    shown, seed = capsys.readouterr().out, json.loads((tmp_path / "run" / "run.json").read_text())["seed"]
    assert str(seed) in shown
