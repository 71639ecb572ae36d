"""`tdd exchange` as a user meets it: what it prints and writes, what it refuses, and that it continues."""

import argparse
import csv
import json

import gpt2_files
import numpy as np
import pytest

from tdd.cli import exchange, main
from tdd.cli.exchange import _plan, _sources
from tdd.scoring.store.namespace import Namespace
from tdd.validate import InputError

SMALL = ("--shards", 4, "--shuffles", 4)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return gpt2_files.write(tmp_path_factory.mktemp("model") / "gpt2", n_positions=64)[0]


@pytest.fixture(scope="module")
def broken(tmp_path_factory):
    """A checkpoint that overflows where the word 7 comes: log-probabilities are NaN from there on."""
    found = gpt2_files.tensors(gpt2_files.CONFIG | {"n_positions": 64, "tie_word_embeddings": False})
    found["transformer.wte.weight"][7] = 3e38
    changes = {"n_positions": 64, "tie_word_embeddings": False}
    return gpt2_files.write(tmp_path_factory.mktemp("broken") / "gpt2", stored=found, **changes)[0]


def texts(count=24, seed=0, shortest=3, longest=7):
    rng = np.random.default_rng(seed)
    return [" ".join(map(str, rng.integers(8, 48, rng.integers(shortest, longest + 1)))) for _ in range(count)]


def write(path, rows):
    rows = [row if isinstance(row, dict) else {"text": row} for row in rows]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def quiz(tmp_path):
    return write(tmp_path / "quiz.jsonl", texts())


def run(*arguments, capsys):
    status = main(["exchange", *map(str, arguments)])
    return status, capsys.readouterr()


def test_prints_a_report_and_writes_a_folder(checkpoint, quiz, tmp_path, capsys):
    out = tmp_path / "run"
    status, said = run(checkpoint, quiz, *SMALL, "--out", out, "--shard-table", capsys=capsys)
    assert status == 0
    for words in (
        "Test of published order", "published order of the data set quiz", "was absent from the training data",
        "null hypothesis", "check without the model", "The tests side by side", "Shards of quiz",
        "Assumptions of the guarantee",
        "What this run does not establish", "No negative control", "figure.png",
    ):  # fmt: skip
        assert words in said.out, words
    assert {path.name for path in out.iterdir()} >= {"run.json", "shards.csv", "log_probs.npz", "figure.png"}
    stored = json.loads((out / "run.json").read_text())
    assert stored["command"].startswith("tdd exchange")
    with open(out / "shards.csv", newline="") as file:
        assert len([*csv.DictReader(file)]) == 4
    assert main(["report", str(out), "--shard-table"]) == 0
    assert capsys.readouterr().out.strip() == said.out.split("\nWritten")[0].strip()
    assert main(["report", str(out), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) | {"sha256": stored["sha256"]} == stored


@pytest.mark.slow("long")
def test_several_data_sets_with_a_control(checkpoint, quiz, tmp_path, capsys):
    other = tmp_path / "other"
    other.mkdir()
    second = write(other / "quiz.jsonl", texts(seed=1))
    out = tmp_path / "run"
    status, said = run(checkpoint, quiz, second, *SMALL, "--control", checkpoint, "--out", out, "--json", capsys=capsys)
    assert status == 0
    printed = json.loads(said.out)
    assert [one["name"] for one in printed["data"]] == [f"quiz.jsonl ({quiz.parent.name})", "quiz.jsonl (other)"]
    assert all(one["control"]["p_value"] == one["p_value"] for one in printed["data"])
    assert "the control is the model itself" in " ".join(printed["warnings"])
    assert {"figure.png", "shards.png"} <= {path.name for path in out.iterdir()}
    assert str(out / "shards.png") in printed["files"]


def test_separator_template_and_plot(checkpoint, tmp_path, capsys):
    path = write(tmp_path / "qa.jsonl", [{"q": text, "a": "9"} for text in texts()])
    plot = tmp_path / "figure.svg"
    options = ("--template", r"{q}\t{a}", "--separator", r"\n", "--bos", "never", "--plot", plot, "--json")
    status, said = run(checkpoint, path, *SMALL, *options, capsys=capsys)
    assert status == 0
    kept = json.loads(said.out)["options"]
    assert (kept["template"], kept["separator"], kept["bos"]) == ("{q}\t{a}", "\n", "never")
    assert plot.read_text().startswith("<?xml")


def test_names_of_files():
    assert _sources(["a/x.jsonl"]) == "a/x.jsonl"
    assert _sources(["a/x.jsonl", "b/y.csv.gz"]) == {"x": "a/x.jsonl", "y": "b/y.csv.gz"}
    assert [*_sources(["a/x.jsonl", "b/x.csv", "z.txt"])] == ["x.jsonl", "x.csv", "z"]
    assert [*_sources(["a/x.jsonl", "b/x.jsonl"])] == ["x.jsonl (a)", "x.jsonl (b)"]
    assert [*_sources(["c/a/x.jsonl", "b/a/x.jsonl"])] == ["c/a/x.jsonl", "b/a/x.jsonl"]
    with pytest.raises(InputError, match="given twice"):
        _sources(["a", "b", "a"])


@pytest.mark.parametrize(
    ("options", "plan"),
    [
        ((), ("none", 50)),
        (("--shuffles", 7, "--stop", "spending"), ("spending", 7)),
        (("--target-p", 0.001), ("spending", 50)),
        (("--target-p", 0.001, "--shuffles", 20), ("spending", 20)),
        (("--target-p", 0.001, "--shards", 1, "--stop", "spending"), ("spending", 4 * 6000)),
    ],
)
def test_a_wanted_p_value_chooses_rule_and_shuffles(options, plan):
    parser = argparse.ArgumentParser()
    exchange.add(parser.add_subparsers())
    assert _plan(parser.parse_args(["exchange", "model", "data", *map(str, options)])) == plan


def test_a_sequential_run(checkpoint, quiz, capsys):
    status, said = run(checkpoint, quiz, *SMALL, "--stop", "besag_clifford", capsys=capsys)
    assert status == 0
    for words in ("besag_clifford, a sequential test", "Look by look", "of at most 4; went to the end"):
        assert words in said.out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--target-p", 0.01, "--stop", "none"), "which --stop none never does; use --stop e_process"),
        (("--target-p", 0.01, "--stop", "besag_clifford"), "leave one of the two out"),
        (("--target-p", 0.0001, "--shards", 4, "--shuffles", 2), "at least 15 are needed"),
        (("--target-p", 1.5), "--target-p 1.5 must be a number between 0 and 1"),
        (("--target-p", 0.1, "--shards", 0), "--shards must be a whole number from 1"),
        (("--shards", 13), "24 examples for --shards 13"),
        (("--shards", 30), "fewer examples than shards"),
        (("--shuffles", 0, "--shards", 4), "--shuffles must be a whole number from 1"),
        (("--alpha", 1, "--shards", 4), "alpha must lie"),
        (("--max-length", 65, "--shards", 4), "exceeds the 64 positions"),
        (("--max-length", 5, "--shards", 4), "as long as the context of 5 tokens (example "),
        (("--stride", 64, "--shards", 4), "--stride 64 leaves tokens without a window"),
        (("--suffix", 0, "--shards", 4), "--suffix 0.0 must be a fraction"),
        (("--bos", "always", "--shards", 4), "needs a tokenizer with a beginning-of-sequence token"),
        (("--plot", "figure.pdf"), "must end in .png, .svg"),
        (("--plot", "nowhere/figure.png"), "does not exist"),
        (("--control", "./nowhere", "--shards", 4), "no model folder at './nowhere'"),
        (("--template", "{text} {answer}", "--shards", 4), "asks for {answer}, which is not the plain name of a field"),
        (("--text-field", "question", "--shards", 4), "no text field 'question'"),
    ],
)
def test_options_that_cannot_be(checkpoint, quiz, options, words, capsys):
    status, said = run(checkpoint, quiz, *options, "-q", capsys=capsys)
    assert (status, said.out) == (2, "")
    assert words in said.err
    assert said.err.startswith("tdd exchange: error: ")
    assert "Traceback" not in said.err


LONG = texts(12, seed=3, shortest=70, longest=80)


@pytest.mark.parametrize(
    ("rows", "words"),
    [
        (texts(3), "has 3 examples for --shards 4: fewer examples than shards"),
        ([*texts(10), ""], "the text at line 11 is empty"),
        ([*texts(10), " \n "], "the text at line 11 is empty"),
        ([{"text": None}] * 8, "line 1 has no text"),
        ([], "there is not a single row"),
        (["8 9 10"] * 12, "all 12 examples are equal ('8 9 10')"),
        (sorted(texts()), "is sorted (by text, ascending)"),
        (sorted(texts(), key=len)[::-1], "is sorted (by length, descending)"),
        (LONG, "12 of 12 examples are as long as the context of 64 tokens (example "),
    ],
)
def test_data_sets_that_cannot_be_tested(checkpoint, tmp_path, rows, words, capsys):
    status, said = run(checkpoint, write(tmp_path / "data.jsonl", rows), *SMALL, capsys=capsys)
    assert (status, said.out) == (2, "")
    assert words in said.err
    assert "Traceback" not in said.err


def test_a_row_without_a_field_of_the_template(checkpoint, tmp_path, capsys):
    rows = [{"q": text, "a": "9"} for text in texts(12)]
    del rows[5]["a"]
    status, said = run(checkpoint, write(tmp_path / "d.jsonl", rows), *SMALL, "--template", "{q} {a}", capsys=capsys)
    assert status == 2
    assert "line 6 has no field 'a'" in said.err


@pytest.mark.slow("long")
def test_a_sorted_data_set_can_be_insisted_on_and_is_warned_of(checkpoint, tmp_path, capsys):
    path = write(tmp_path / "sorted.jsonl", sorted(texts()))
    status, said = run(checkpoint, path, *SMALL, "--allow-sorted", "--json", capsys=capsys)
    assert status == 3  # the verdict is withheld
    found = json.loads(said.out)
    assert "sorted (by text, ascending)" in " ".join(found["data"][0]["warnings"])
    assert "does not look random" in " ".join(found["warnings"])


@pytest.mark.slow("long")
def test_a_long_example_among_short_ones_is_warned_of(checkpoint, tmp_path, capsys):
    status, said = run(checkpoint, write(tmp_path / "d.jsonl", [*texts(12), LONG[0]]), *SMALL, capsys=capsys)
    assert status == 0
    assert "neighbours: 1 of 13" in " ".join(said.out.split())


def test_words_that_the_tokenizer_does_not_know(checkpoint, tmp_path, capsys):
    path = write(tmp_path / "d.jsonl", [f"word{i} other{i}" for i in np.random.default_rng(0).permutation(24)])
    status, said = run(checkpoint, path, *SMALL, capsys=capsys)
    assert status == 0
    assert "its tokenizer does not know their words" in " ".join(said.out.split())


@pytest.mark.slow("long")
def test_missing_log_probabilities(broken, tmp_path, capsys):
    """A shard with a NaN is left out and counted; a data set of nothing else has no p-value, and says so."""
    rows = texts(24)
    rows[2] += " 7 8"
    status, said = run(broken, write(tmp_path / "some.jsonl", rows), *SMALL, "--json", capsys=capsys)
    assert status == 0
    one = json.loads(said.out)["data"][0]
    assert one["num_masked"] == 1
    assert "1 of 4 shards have no log-probability" in " ".join(one["warnings"])
    all_bad = write(tmp_path / "all.jsonl", [f"{text} 7 8" for text in texts(24)])
    status, said = run(broken, all_bad, *SMALL, capsys=capsys)
    assert status == 0
    assert "cannot be said: no p-value" in said.out


@pytest.mark.slow("long")
def test_an_interrupted_run_continues(checkpoint, quiz, tmp_path, capsys, monkeypatch):
    options = (checkpoint, quiz, *SMALL, "--token-budget", 64)
    assert run(*options, "--out", tmp_path / "whole", capsys=capsys)[0] == 0
    append, count = Namespace.append, 0

    def dying(self, *arguments):
        nonlocal count
        kept = append(self, *arguments)
        count += 1
        if count == 3:
            raise KeyboardInterrupt
        return kept

    monkeypatch.setattr(Namespace, "append", dying)
    status, said = run(*options, "--out", tmp_path / "cut", capsys=capsys)
    assert status == 130
    assert "run the same command again to continue" in said.err
    assert main(["report", str(tmp_path / "cut")]) == 2
    assert "an unfinished run; run the same command again" in capsys.readouterr().err
    status, said = run(*options, "--out", tmp_path / "cut", "--seed", 1, capsys=capsys)
    assert status == 2
    monkeypatch.setattr(Namespace, "append", append)
    for again in range(2):  # the second time everything is there
        assert run(*options, "--out", tmp_path / "cut", capsys=capsys)[0] == 0, again
        for name in ("shards.csv", "log_probs.npz", "figure.png"):
            assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes(), name
        data = [json.loads((tmp_path / folder / "run.json").read_text())["data"] for folder in ("cut", "whole")]
        assert data[0] == data[1]


def test_damaged_folders(checkpoint, quiz, tmp_path, capsys):
    out = tmp_path / "run"
    assert run(checkpoint, quiz, *SMALL, "--out", out, capsys=capsys)[0] == 0
    table = (out / "shards.csv").read_text()
    for bad in (table.replace("canonical", "else", 1), table.replace("\nquiz,0,", "\nquiz,x,"), table[:-20]):
        (out / "shards.csv").write_text(bad)
        assert main(["report", str(out), "--shard-table"]) == 2
        assert "shards.csv is damaged" in capsys.readouterr().err
    (out / "shards.csv").write_text(table.replace("\nquiz,0,0,", "\nquiz,0,1,"))  # still a number, and another one
    assert main(["report", str(out), "--shard-table"]) == 2
    assert "it does not fit the SHA-256 in run.json" in capsys.readouterr().err
    stored = json.loads((out / "run.json").read_text())
    (out / "run.json").write_text(json.dumps({**stored, "seed": 7}))
    assert main(["report", str(out)]) == 2
    assert "its content does not fit its SHA-256" in capsys.readouterr().err
    del stored["sha256"]
    (out / "run.json").write_text(json.dumps(stored))
    assert main(["report", str(out)]) == 2
    assert "has no SHA-256" in capsys.readouterr().err
