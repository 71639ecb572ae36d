"""What --json prints has the fields that tdd/cli/README.md lists."""

import json
import pathlib
import re
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from t5_files import write_t5

import tdd.cli
from tdd.demo.data import demo_files

PAGE = pathlib.Path(tdd.cli.__file__).with_name("README.md").read_text("utf-8")


def documented():
    """Command -> its fields."""
    table = PAGE.split("<!-- json: begin -->")[1].split("<!-- json: end -->")[0]
    found = {}
    for line in table.strip().splitlines()[2:]:
        commands, fields = (re.findall(r"`([^`]+)`", cell) for cell in line.strip("|").split("|"))
        found |= {command: set(fields) for command in commands}
    return found


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("json")
    rows = [f"x{i},{'calibration' if i < 60 else 'candidate'},{(i * 37) % 101}" for i in range(100)]
    (place / "scores.csv").write_text("\n".join(["id,role,loss", *rows]))
    texts = [json.loads(line) for line in demo_files().candidates.read_text("utf-8").splitlines()[:40]]
    (place / "texts.jsonl").write_text("".join(json.dumps({"text": text["text"]}) + "\n" for text in texts))
    others = demo_files().calibration.read_text("utf-8").splitlines()[:40]
    (place / "others.jsonl").write_text("\n".join(others))
    versions = [
        {"text": t["text"], "document": f"d{i // 4}", "published": int(i % 4 == 0)} for i, t in enumerate(texts)
    ]
    (place / "versions.jsonl").write_text("".join(json.dumps(row) + "\n" for row in versions))
    another_checkpoint(place / "copy")
    write_t5(place / "t5")
    (place / "dump.jsonl").write_text(
        "".join(json.dumps({"id": i, "token_logprobs": [-1.0, -2.0]}) + "\n" for i in "ab")
    )
    return place


def another_checkpoint(place):
    """The packaged checkpoint with one number changed."""
    shutil.copytree(demo_files().checkpoint, place)
    weights = load_file(place / "model.safetensors")
    name = min(weights)
    save_file({**weights, name: weights[name] + np.float32(1e-3)}, place / "model.safetensors", {"format": "pt"})


COMMANDS = {
    "select": "select scores.csv --alpha 0.5",
    "exchange": "exchange {model} texts.jsonl --shards 4 --shuffles 4",
    "score": "score {model} texts.jsonl --score loss --out scored.csv",
    "score-logprobs": "score-logprobs dump.jsonl --score loss --out dumped.csv",
    "paraphrase": "paraphrase texts.jsonl --model t5 --max-tokens 4 --sentence-words 1000 --out written",
    "versions": "versions {model} versions.jsonl",
    "dataset": "dataset {model} --suspects texts.jsonl --heldout others.jsonl --splits 2",
    "checkpoints": "checkpoints {model} copy --suspects texts.jsonl --references others.jsonl --out watched",
    "power": "power --auc 0.8 --n 20 --m 20 --fraction 0.5 --no-search --repetitions 64",
    "power --effect": "power --effect 1 --repetitions 64 --no-search --shards 10 --shuffles 5",
    "study": "study",
    "study NAME": "study ptdi-alpha --repetitions 64 --alpha 0.2",
    "guarantees": "guarantees ktd",
    "lab example": "lab example",
    "info": "info",
}


@pytest.mark.parametrize("name", COMMANDS)
def test_the_fields(name, folder, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    assert tdd.cli.main([*COMMANDS[name].format(model=demo_files().checkpoint).split(), "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    for row in told if isinstance(told, list) else [told]:
        assert row.keys() == documented()[name]


def test_every_documented_command_is_run():
    assert documented().keys() == {*COMMANDS, "audit"}
    assert documented()["audit"] == documented()["select"]


@pytest.mark.parametrize("name", ["decision", "verdict"])
def test_the_parts_that_decide(name, folder, capsys):
    """The last paragraph of the page."""
    assert tdd.cli.main(["select", str(folder / "scores.csv"), "--alpha", "0.5", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    sentence = re.search(rf"In `{name}`:(.+?)\.(\s|$)", PAGE, re.DOTALL)
    assert sentence is not None
    outer = re.sub(r"`guarantee` \(.+?\)", "`guarantee`", sentence[1], flags=re.DOTALL)
    assert set(re.findall(r"`([^`]+)`", outer)) <= run[name].keys()
