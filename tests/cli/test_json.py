"""What --json prints has the fields that tdd/cli/README.md lists."""

import json
import pathlib
import re

import gpt2_files
import numpy as np
import pytest
from t5_files import write_t5

import tdd.cli

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
    rows = [f"x{i},{'calibration' if i < 60 else 'candidate'},{(i * 37) % 101},{i % 2},{i % 3}" for i in range(100)]
    (place / "scores.csv").write_text("\n".join(["id,role,loss,a,b", *rows]))
    rng = np.random.default_rng(0)
    for name in ("texts", "others"):
        texts = [" ".join(map(str, rng.integers(0, 40, 12))) for _ in range(16)]
        versions = [{"document": f"d{i // 4}", "published": int(i % 4 == 0)} for i in range(16)]
        rows = [json.dumps({"text": text, **version}) for text, version in zip(texts, versions, strict=True)]
        (place / f"{name}.jsonl").write_text("\n".join(rows))
    for name, moved in (("model", 0.0), ("copy", 1e-3)):
        stored = {key: value + moved for key, value in gpt2_files.tensors(gpt2_files.CONFIG).items()}
        gpt2_files.write(place / name, stored=stored)
    write_t5(place / "t5")
    dump = [json.dumps({"id": i, "token_logprobs": [-1.0, -2.0]}) for i in "ab"]
    (place / "dump.jsonl").write_text("\n".join(dump))
    (place / "orders.csv").write_text("canonical,shuffle_1,shuffle_2\n-1,-2,-3\n-2,-1,-4\n")
    return place


COMMANDS = {
    "select": "select scores.csv --score loss --alpha 0.5",
    "select --results": "select scores.csv --method td4eval --score loss --results a,b --alpha 0.5",
    "exchange": "exchange model texts.jsonl --shards 4 --shuffles 4",
    "exchange --log-probs": "exchange --log-probs orders.csv",
    "score": "score model texts.jsonl --score loss --out scored.csv",
    "score-logprobs": "score-logprobs dump.jsonl --score loss --out dumped.csv",
    "paraphrase": "paraphrase texts.jsonl --model t5 --max-tokens 4 --sentence-words 1000 --out written",
    "versions": "versions model texts.jsonl",
    "dataset": "dataset model --suspects texts.jsonl --heldout others.jsonl --splits 2 --score loss",
    "checkpoints": "checkpoints model copy --suspects texts.jsonl --references others.jsonl --alpha 0.1 --out watched",
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
    assert tdd.cli.main([*COMMANDS[name].split(), "--json", "--quiet"]) == 0
    told = json.loads(capsys.readouterr().out)
    for row in told if isinstance(told, list) else [told]:
        assert row.keys() == documented()[name]


def test_every_documented_command_is_run():
    assert documented().keys() == {*COMMANDS, "audit"}
    assert documented()["audit"] == documented()["select"]


def test_the_parts_that_decide(folder, capsys):
    """The last paragraph of the page."""
    assert tdd.cli.main(["select", str(folder / "scores.csv"), "--score", "loss", "--alpha", "0.5", "--json"]) == 0
    run = json.loads(capsys.readouterr().out)
    for name in ("decision", "verdict"):
        sentence = re.search(rf"In `{name}`:(.+?)\.(\s|$)", PAGE, re.DOTALL)
        assert sentence is not None
        outer = re.sub(r"`guarantee` \(.+?\)", "`guarantee`", sentence[1], flags=re.DOTALL)
        assert set(re.findall(r"`([^`]+)`", outer)) <= run[name].keys()
