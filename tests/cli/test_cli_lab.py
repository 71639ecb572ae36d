"""`tdd lab`: examples that run, tables, JSON, and mistakes in one line."""

import importlib.resources
import json
import pathlib
import subprocess
import sys

import pytest

from tdd.cli import _parser, main

RECIPES = importlib.resources.files("tdd.lab") / "data" / "recipes"
EXAMPLES = {place.name.removesuffix(".toml"): place.read_text("utf-8") for place in RECIPES.iterdir()}
RECIPE = """\
seed = 1
[corpus]
generator = "examples"
[tokenizer]
vocab_size = 280
texts = 50
[model]
width = 8
layers = 1
heads = 2
max_length = 48
[plant]
design = "members"
members = 4
nonmembers = 4
calibration = 5
duplication = [1, 3]
[training]
epochs = 1
batch_size = 4
num_buckets = 1
"""


@pytest.fixture(autouse=True)
def _this_process_keeps_its_allocator(monkeypatch):
    monkeypatch.setattr("tdd.cores.keep_memory", lambda: True)


@pytest.fixture
def recipe(tmp_path):
    path = tmp_path / "recipe.toml"
    path.write_text(RECIPE)
    return path


@pytest.mark.parametrize("design", sorted(EXAMPLES))
def test_examples_are_printed(capsys, design):
    assert main(["lab", "example", design]) == 0
    assert capsys.readouterr().out == EXAMPLES[design]


def test_default_example_json_and_a_misspelled_one(capsys):
    assert main(["lab", "example"]) == 0
    assert capsys.readouterr().out == EXAMPLES["canaries"]
    assert main(["lab", "example", "blocks", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"design": "blocks", "recipe": EXAMPLES["blocks"]}
    assert main(["lab", "example", "member"]) == 2
    assert "did you mean 'members'?" in capsys.readouterr().err


@pytest.mark.slow("long")
def test_train_prints_parts_and_the_command_to_go_on_with(capsys, recipe, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["lab", "train", str(recipe), "--out", "run", "-q"]) == 0
    said = capsys.readouterr()
    assert (said.out.count("\n"), said.err) == (1, "")
    assert said.out.startswith("Laboratory run in run: tdd audit ")
    assert main(["lab", "train", str(recipe), "--out", "run"]) == 0
    printed = capsys.readouterr()
    for word in ("nonmember", "member", "calibration", "copies", "loss", "truth.csv", "run/checkpoint"):
        assert word in printed.out
    go_on = next(line for line in printed.out.splitlines() if line.startswith("Go on with: "))
    assert main(["lab", "train", str(recipe), "--out", "run", "-q", "--json"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["design"] == "members"
    assert f"Go on with: {summary['next']}" == go_on
    arguments = _parser().parse_args(summary["next"].split()[1:])
    assert all(pathlib.Path(path).exists() for path in (*arguments.model, arguments.candidates, arguments.calibration))


def test_mistakes_are_one_line(capsys, recipe, tmp_path):
    recipe.write_text(RECIPE.replace("epochs", "epohcs"))
    assert main(["lab", "train", str(recipe), "--out", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert "recipe.toml: training.epohcs = 1 is unknown; did you mean 'epochs'?" in error
    assert not (tmp_path / "run").exists()
    assert main(["lab", "train", str(tmp_path / "none.toml"), "--out", str(tmp_path / "run")]) == 2
    assert "there is no recipe" in capsys.readouterr().err


def test_an_interrupted_run_says_how_to_go_on(capsys, recipe, tmp_path, monkeypatch):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr("tdd.lab.train.train", interrupt)
    assert main(["lab", "train", str(recipe), "--out", str(tmp_path / "run"), "-q"]) == 130
    assert "run the same command again to continue" in capsys.readouterr().err


def test_help_is_light():
    code = (
        "import sys, contextlib, io; from tdd.cli import main\n"
        "for words in (['lab'], ['lab', 'train', '--help'], ['lab', 'example']):\n"
        "  try:\n    with contextlib.redirect_stdout(io.StringIO()): main(words)\n"
        "  except SystemExit: pass\n"
        "print('jax' in sys.modules, 'numpy' in sys.modules)"
    )
    out = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert out.split() == ["False", "False"]
