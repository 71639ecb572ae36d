"""What a command prints: one line with --quiet, JSON alone with --json, and nothing that an encoding lacks."""

import io
import json
import os
import subprocess
import sys
from unittest import mock

import pytest

from tdd.cli import main
from tdd.cli.common import any_encoding
from tdd.validate import InputError


@pytest.fixture
def scores(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"x{i} é→日,{'calibration' if i < 60 else 'candidate'},{i if i < 60 else -i}" for i in range(100)]
    (tmp_path / "scores.csv").write_text("\n".join(["id,role,loss", *rows]), "utf-8")
    return tmp_path


def test_quiet_is_one_line(scores, capsys):
    assert main(["select", "scores.csv", "--alpha", "0.2", "--out", "run", "--quiet"]) == 0
    said = capsys.readouterr()
    outcome = json.loads((scores / "run" / "run.json").read_text("utf-8"))["outcome"]
    assert (said.out, said.err) == (f"{outcome}\n", "")
    assert main(["report", "run", "-q"]) == 0
    assert capsys.readouterr().out == f"{outcome}\n"
    assert main(["study", "ptdi-alpha", "--repetitions", "64", "--alpha", "0.2", "--out", "study", "-q"]) == 0
    assert capsys.readouterr().out.count("\n") == 1
    assert main(["study", "ptdi-alpha", "--repetitions", "64", "--alpha", "0.2", "--out", "study", "-q"]) == 0
    assert capsys.readouterr().out.count("\n") == 1, "read from its folder"


def test_quiet_lists_are_whole(capsys):
    assert main(["guarantees", "ktd", "-q"]) == 0
    assert "ktd" in capsys.readouterr().out


@pytest.mark.parametrize("options", [[], ["--out", "run"], ["--verbose"]])
def test_json_is_pure(scores, options, capsys):
    assert main(["select", "scores.csv", "--alpha", "0.2", "--json", *options]) == 0
    told = json.loads(capsys.readouterr().out)
    assert "x61 é→日" in told["selected"]


def child(scores, *command, encoding="ascii"):
    code = "import sys, tdd.cli; sys.exit(tdd.cli.main(sys.argv[1:]))"
    environment = {
        **{name: value for name, value in os.environ.items() if name.startswith(("JAX_", "XLA_"))},
        "PATH": "", "PYTHONPATH": ":".join(sys.path), "JAX_PLATFORMS": "cpu", "LC_ALL": "C", "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0", **({"PYTHONIOENCODING": encoding} if encoding else {}),
    }  # fmt: skip
    return subprocess.run([sys.executable, "-c", code, *command], capture_output=True, env=environment, check=False)


@pytest.mark.parametrize("encoding", ["ascii", None])
def test_what_the_encoding_lacks_is_replaced(scores, encoding):
    assert main(["select", "scores.csv", "--alpha", "0.2", "--out", "run", "--quiet"]) == 0
    done = child(scores, "report", "run", encoding=encoding)
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"x99 ?->?" in done.stdout
    assert b"Selected items" in done.stdout
    assert done.stdout.isascii()


def test_json_is_the_same_in_any_encoding(scores, capsys):
    done = child(scores, "select", "scores.csv", "--alpha", "0.2", "--json")
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.isascii()
    assert main(["select", "scores.csv", "--alpha", "0.2", "--json"]) == 0
    one, other = json.loads(done.stdout), json.loads(capsys.readouterr().out)
    assert one["selected"] == other["selected"]


def test_help_is_printed_in_any_encoding(scores):
    done = child(scores, "select", "--help")
    assert (done.returncode, done.stderr) == (0, b"")
    assert b"a table of scores -> selected members" in done.stdout.lower()


def test_streams_are_as_they_were_afterwards(monkeypatch):
    buffer = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(buffer, encoding="latin-1"))
    with any_encoding():
        print("é → 日 \udcff …")
    assert sys.stdout.errors == "strict"
    sys.stdout.flush()
    assert buffer.getvalue() == "é -> ? ? ...\n".encode("latin-1")
    with pytest.raises(UnicodeEncodeError):
        print("日", flush=True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("selct scores.csv", "; did you mean select?"),
        ("select scores.csv --rolefield x", ": error: unrecognized arguments: --rolefield x; did you mean --role-f"),
        ("select scores.csv --zzz 3", "tdd select: error: unrecognized arguments: --zzz 3\n"),
        ("select scores.csv --alpha 10%", "invalid float value: '10%'; 0.1 stands for 10%\n"),
        ("select scores.csv --alpha 10", "tdd select: error: --alpha must lie strictly between"),
        ("select scores.csv --id-field x", "there is no field --id-field 'x';"),
        ("select none.csv", "tdd select: error: no such file or folder: 'none.csv'\n"),
        ("power runs/seed=3/nope.csv", "there is no file or folder runs/seed=3/nope.csv\n"),
        ("select seed=3/none.csv", "tdd select: error: no such file or folder: 'seed=3/none.csv'\n"),
        ("power --auc 0.8 --n 5%", "--n must be whole numbers, got 5%\n"),
        ("select scores.csv --method ptdi:eta=2", "error: eta must lie strictly"),  # no option, a field of the method
        ("study ptdi-alpha --alpha 5 --repetitions 9", "tdd study: error: --alpha must lie strictly between"),
        ("study ptdi-alpha --repetition 0", "tdd study: error: --repetitions must lie from 1"),
        ("lab trian r.toml", "(choose from 'train', 'example'); did you mean train?"),
        ("dataset m --suspects scores.csv --heldout scores.csv --text-field id", "error: --suspects: each of the "),
        ("score m scores.csv --out a.csv", "fields found: id, role, loss; name it with --text-field\n"),
    ],
)  # fmt: skip
def test_errors_speak_of_what_was_typed(scores, words, said, capsys):
    try:
        status = main(words.split())
    except SystemExit as end:
        status = end.code
    assert status == 2
    assert said in capsys.readouterr().err


def test_words_that_only_look_like_arguments_stay(scores, capsys, monkeypatch):
    from tdd.audit import select

    for said in ("out of memory in a batch of 3", "score column 'x' holds alpha"):
        monkeypatch.setattr(select, "select", mock.Mock(side_effect=InputError(said)))
        assert main(["select", "scores.csv"]) == 2
        assert capsys.readouterr().err == f"tdd select: error: {said}\n"


def test_open_shows_the_page(scores, monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("webbrowser.open", lambda place: shown.append(place) or len(shown) < 3)
    command = ["select", "scores.csv", "--alpha", "0.2", "--open"]
    assert main(command) == 2
    assert "--open shows report.html of the run's folder; add --out DIR" in capsys.readouterr().err
    assert main([*command, "--out", "run", "--json"]) == 0
    json.loads(capsys.readouterr().out)
    (scores / "run" / "report.html").unlink()
    assert main(["report", "run", "--open"]) == 0
    page = (scores / "run" / "report.html").as_uri()
    assert shown == [page, page]
    assert main(["report", "run", "--open"]) == 0
    assert capsys.readouterr().err == "no browser was found; open run/report.html\n"
