"""Records that are sent tell no folder of the machine that made them."""

import json
import pathlib
import shlex

import pytest

from tdd.cli import main
from tdd.runs.portable import command_of, place_name, typed_command, typed_words, without_folders


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("gpt2", "gpt2"),
        ("owner/name", "owner/name"),
        ("owner/name@step1000", "owner/name@step1000"),
        ("/data/models/llama", "llama"),
        ("/data/models/llama/", "llama"),
        ("./llama", "llama"),
        ("~/models/llama", "llama"),
        ("/cache/models--owner--name/snapshots/0123abc", "owner/name"),
        ("/data/a.jsonl + /data/b.jsonl, field 'body'", "a.jsonl + b.jsonl, field 'body'"),
        ("samples of lm-evaluation-harness", "samples of lm-evaluation-harness"),
        ("http://localhost:8000/v1", "http://localhost:8000/v1"),
        ("tdd.lab.corpus.generate(seed=1)", "tdd.lab.corpus.generate(seed=1)"),
    ],
)
def test_names_of_places(given, name):
    assert place_name(given) == name


def test_a_relative_path_is_one_if_it_is_there(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert place_name("owner/name") == "owner/name"
    pathlib.Path("owner/name").mkdir(parents=True)
    assert place_name("owner/name") == "name"
    assert place_name("owner/new, with a comma") == "new, with a comma"
    assert place_name(".") == tmp_path.name
    assert place_name("../") == tmp_path.parent.name


def test_records_without_folders():
    record = {
        "model": {"name": "/secret/m", "sha256": "0", "reference": [{"name": "/secret/r"}], "number": 1, "none": None},
        "method": "ptdi/storey",
        "warnings": ["'/secret/texts.jsonl': 3 texts (/secret/b) are cut; see a/b and 1/2", "<a/>"],
        "paraphraser": "/secret/t5",
    }
    assert without_folders(record) == {
        "model": {"name": "m", "sha256": "0", "reference": [{"name": "r"}], "number": 1, "none": None},
        "method": "ptdi/storey",
        "warnings": ["'texts.jsonl': 3 texts (b) are cut; see a/b and 1/2", "<a/>"],
        "paraphraser": "t5",
    }


def test_words_of_the_users_data_stay():
    """Ids, names of columns and parts of texts, also within sentences; what only contains one does not."""
    own = ["/books/a.txt", "/books/a", '"/usr/lib has" ...', "~/x/loss", "plain", "./b"]
    record = {
        "name": "/books/a",
        "columns": ["~/x/loss", "/books/a.txt"],
        "warnings": [
            "'/books/a.txt' of /books/a.txt.gz: \"/usr/lib has\" ..., /books/a, (/books/b/a), ./b and /c/books/a"
        ],
    }
    assert without_folders(record, own=own) == {
        "name": "/books/a",
        "columns": ["~/x/loss", "/books/a.txt"],
        "warnings": ["'/books/a.txt' of a.txt.gz: \"/usr/lib has\" ..., /books/a, (a), ./b and a"],
    }
    assert without_folders(["/books/a", "see /books/a"]) == ["a", "see a"]


def test_a_column_that_looks_like_a_path(tmp_path, capsys):
    """The report finds the column that the record names."""
    column = "/data/run 1/loss"
    rows = [f"/books/{i}.txt,{'calibration' if i < 40 else 'candidate'},{(i * 37) % 101}" for i in range(80)]
    (tmp_path / "scores.csv").write_text("\n".join([f"id,role,{column}", *rows]))
    assert main(["select", str(tmp_path / "scores.csv"), "--alpha", "0.2", "--out", str(tmp_path / "run")]) in (0, 3)
    assert f"score {column} (lower" in " ".join(capsys.readouterr().out.replace("│", " ").split())
    run = json.loads((tmp_path / "run" / "run.json").read_text("utf-8"))
    assert run["decision"]["columns"] == run["options"]["score"] == [column]
    assert (tmp_path / "run" / "items.csv").read_text().splitlines()[0].split(",")[:2] == ["id", column]


def test_the_command_line_of_a_run():
    assert typed_words() == ()
    with typed_command(["tdd", "audit", "/secret/m"]):
        assert typed_words() == ("tdd", "audit", "/secret/m")
    assert typed_words() == ()
    words = ["tdd", "audit", "/s/a b", "--reference=/s/r", "--candidates", "/s/x.jsonl,/s/y.jsonl", "--score", "loss"]
    assert command_of(words) == "tdd audit 'a b' --reference=r --candidates x.jsonl,y.jsonl --score loss"


def test_folders_of_one_name_are_told_apart(tmp_path, monkeypatch):
    for place in ("one/step/model", "two/step/model", "other"):
        (tmp_path / place).mkdir(parents=True)
    a, b, c = (str(tmp_path / place) for place in ("one/step/model", "two/step/model", "other"))
    assert command_of(["tdd", "checkpoints", a, b, c]) == "tdd checkpoints one/step/model two/step/model other"
    assert command_of(["tdd", "checkpoints", a, a, c]) == "tdd checkpoints model model other"
    monkeypatch.chdir(tmp_path / "one")
    assert command_of(["tdd", "x", "./step/model", b]) == "tdd x one/step/model two/step/model"


def test_a_run_that_is_sent_tells_no_folder(tmp_path, capsys):
    secret = tmp_path / "secret"
    secret.mkdir()
    rows = [f"{i},{'calibration' if i < 40 else 'candidate'},{(i * 37) % 101}" for i in range(80)]
    (secret / "scores.csv").write_text("\n".join(["id,role,loss", *rows]))
    words = ["select", str(secret / "scores.csv"), "--alpha", "0.2", "--out", str(secret / "run")]
    assert main(words) in (0, 3)
    capsys.readouterr()
    for name in ("run.json", "report.html", "items.csv"):
        assert str(secret) not in (secret / "run" / name).read_text("utf-8")
    run = json.loads((secret / "run" / "run.json").read_text("utf-8"))
    assert run["command"] == "tdd select scores.csv --alpha 0.2 --out run"
    assert run["inputs"]["table"]["source"] == "scores.csv"
    begun = json.loads((secret / "run" / "inputs.json").read_text("utf-8"))
    assert begun["command"] == shlex.join(["tdd", *words])
