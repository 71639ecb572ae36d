"""The commands as a user meets them."""

import argparse
import csv
import gc
import json
import logging
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time
import typing

import gpt2_files
import numpy as np
import pytest

from benchmarks import front_page
from tdd.cli import _COMMANDS, _ends_in_order, main
from tdd.cli.common import logging_on_stderr, names
from tdd.cli.options import _METHODS
from tdd.procedures.procedure import known_procedures
from tdd.report.audit import audit_report


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(gpt2_files.write(tmp_path_factory.mktemp("model") / "gpt2")[0])


@pytest.fixture
def files(tmp_path):
    rng = np.random.default_rng(0)
    paths = {}
    for name, count in (("candidates", 14), ("calibration", 30)):
        paths[name] = tmp_path / f"{name}.jsonl"
        rows = [
            {"id": f"{name}-{i}", "text": " ".join(f"w{k}" for k in rng.integers(0, 40, rng.integers(5, 20)))}
            for i in range(count)
        ]
        paths[name].write_text("".join(json.dumps(row) + "\n" for row in rows))
    return paths


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(1)
    path = tmp_path / "table.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "role", "loss", "zlib"])
        for i in range(60):
            writer.writerow([f"c{i}", "calibration", rng.normal(), rng.normal()])
        for i in range(40):
            writer.writerow([f"t{i}", "candidate", rng.normal() - 4 * (i < 20), rng.normal()])
    return path


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """The folder of a finished run."""
    folder = tmp_path_factory.mktemp("finished")
    (folder / "t.csv").write_text("role,loss\n" + "".join(f"calibration,{i}\n" for i in range(30)) + "candidate,-1\n")
    assert main(["select", str(folder / "t.csv"), "--out", str(folder / "run")]) == 0
    return folder / "run"


def run(*arguments, capsys=None):
    status = main([str(argument) for argument in arguments])
    captured = capsys.readouterr() if capsys else None
    return status, captured


def logging_state():
    loggers = [logging.getLogger(name) for name in ("", "tdd", "tdd.findings", "tdd.audit", "tdd.logprobs")]
    return [(logger.level, list(logger.handlers), logger.propagate, logger.disabled) for logger in loggers]


@pytest.mark.parametrize(("options", "refused"), [(["-q"], True), (["-v"], False), ([], True)])
def test_a_command_leaves_logging_as_it_was(options, refused, table, monkeypatch, capsys):
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a program that set nothing up
    before = logging_state()
    score = "absent" if refused else "loss"
    assert run("select", table, "--score", score, "--alpha", 0.2, *options)[0] == (2 if refused else 0)
    assert logging_state() == before


def test_a_command_uses_the_handlers_of_its_program(capsys):
    """A handler of the caller gets the messages, and none is added beside it."""
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger().addHandler(handler)
    try:
        with logging_on_stderr(argparse.Namespace(quiet=False, verbose=True)):
            logging.getLogger("tdd").info("as asked")
    finally:
        logging.getLogger().removeHandler(handler)
    assert [record.getMessage() for record in records] == ["as asked"]
    assert capsys.readouterr().err == ""


@pytest.mark.slow("long")
def test_select_prints_a_report(table, tmp_path, capsys):
    status, out = run("select", table, "--score", "loss", "--alpha", 0.2, "--out", tmp_path / "run", capsys=capsys)
    assert status == 0
    for words in ("at level 20%", "Assumptions", "does not establish", "ptdi/storey", "exchangeable"):
        assert words in out.out
    assert (tmp_path / "run" / "run.json").exists()
    status, again = run("report", tmp_path / "run", capsys=capsys)
    assert status == 0
    assert again.out.strip() == out.out.split("\nWritten")[0].strip()


@pytest.mark.parametrize("word", ["Calibration", ""])
def test_select_refuses_an_unexpected_role(tmp_path, capsys, word):
    """A misspelt or blank role must not turn a calibration item into a candidate."""
    rows = [f"calibration,{i}" for i in range(9)] + [f"{word},9", "candidate,0"]
    (tmp_path / "t.csv").write_text("role,loss\n" + "\n".join(rows) + "\n")
    assert main(["select", str(tmp_path / "t.csv")]) == 2
    assert f"holds {word!r} at line 11; expected 'calibration' for calibration" in capsys.readouterr().err
    assert main(["select", str(tmp_path / "t.csv"), "--calibration-role", "calibration"]) == (2 if word else 0)


def test_names_with_an_equals_sign(tmp_path, capsys):
    """Checkpoint folders are often called epoch=1; an option of a score has no colon behind its sign."""
    assert names("epoch=1:loss,epoch=2:min_k:k=0.1,zlib") == ["epoch=1:loss", "epoch=2:min_k:k=0.1", "zlib"]
    assert names("max_renyi:gamma=1,k=1 image,loss;min_k") == ["max_renyi:gamma=1,k=1 image", "loss,min_k"]
    (tmp_path / "s.csv").write_text(
        "id,role,x=1,e=1:loss,e=2:loss\n"
        + "".join(f"i{i},{('calibration', 'candidate')[i % 2]},{i},{i},{-i}\n" for i in range(40))
    )
    for chosen in (["--score", "e=1:loss,e=2:loss"], ["--score", "x=1", "--score", "e=2:loss"]):
        assert main(["select", str(tmp_path / "s.csv"), "--method", "jmcs", "--json", *chosen]) == 0
        assert len(json.loads(capsys.readouterr().out)["decision"]["columns"]) == 2


def test_select_json_is_the_run(table, capsys):
    status, out = run("select", table, "--score", "loss", "--alpha", 0.2, "--json", capsys=capsys)
    assert status == 0
    run_json = json.loads(out.out)
    assert len(run_json["selected"]) == run_json["decision"]["num_selected"] > 10
    assert run_json["decision"]["alpha"] == 0.2


def test_higher_is_member_turns_the_sign(table, tmp_path, capsys):
    turned = tmp_path / "turned.csv"
    with open(table, newline="") as file, open(turned, "w", newline="") as other:
        rows = list(csv.DictReader(file))
        writer = csv.DictWriter(other, rows[0].keys())
        writer.writeheader()
        writer.writerows({**row, "loss": -float(row["loss"])} for row in rows)
    plain = json.loads(run("select", table, "--score", "loss", "--json", capsys=capsys)[1].out)
    flipped = json.loads(run("select", turned, "--score", "loss", "--higher-is-member", "--json", capsys=capsys)[1].out)
    assert plain["selected"] == flipped["selected"] != []


@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
@pytest.mark.slow("long")
def test_score_writes_a_table_that_select_reads(checkpoint, files, tmp_path, capsys, ending):
    out = tmp_path / f"scores.{ending}"
    status, said = run(
        "score", checkpoint, files["calibration"], "--score", "loss,min_k:k=0.5", "--out", out, "-q", capsys=capsys
    )
    assert status == 0, said.err
    assert "30 texts" in said.out
    provenance = json.loads((tmp_path / f"scores.{ending}.provenance.json").read_text())
    assert provenance["versions"]["tdd"]
    assert not (tmp_path / f".scores.{ending}.scoring").exists()
    scored = tmp_path / f"scored-candidates.{ending}"
    run("score", checkpoint, files["candidates"], "--score", "loss", "--out", scored, "-q", capsys=capsys)
    status, said = run("select", scored, "--calibration", out, "--score", "loss", "--json", capsys=capsys)
    assert status == 0, said.err
    assert json.loads(said.out)["decision"]["num_tests"] == 14


def test_audit_leaves_a_run_folder(checkpoint, files, tmp_path, capsys):
    status, out = run(
        "audit",
        checkpoint,
        "--candidates",
        files["candidates"],
        "--calibration",
        files["calibration"],
        "--score",
        "loss",
        "--extra-scores",
        "zlib,lowercase",
        "--out",
        tmp_path / "run",
        capsys=capsys,
    )
    assert status == 0, out.err
    assert "blind baseline" in out.out
    header = (tmp_path / "run" / "items.csv").read_text().splitlines()[0]
    assert header == "id,loss,zlib,lowercase,p_value,adjusted,fdp_bound,selected"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["select", "missing.csv", "--score", "loss"], ["missing.csv"]),
        (["select", "{table}"], ["score"]),
        (["select", "{table}", "--score", "nope"], ["nope", "loss"]),
        (["select", "{table}", "--score", "loss", "--alpha", "1.5"], ["alpha", "1.5"]),
        (["select", "{table}", "--score", "loss", "--method", "magic"], ["magic", "ptdi"]),
        (["select", "{table}", "--score", "loss", "--null", "member"], ["nonmember"]),
        (["select", "{table}", "--score", "loss", "--role-field", "part"], ["part", "role"]),
        (["select", "{table}", "--higher-is-member"], ["--score"]),
        (["audit", "{checkpoint}", "--candidates", "no.jsonl", "--calibration", "{calibration}"], ["no.jsonl"]),
        (["audit", "./nowhere", "--candidates", "{candidates}", "--calibration", "{calibration}"], ["nowhere"]),
        (["score", "{checkpoint}", "{candidates}", "--out", "x.xlsx"], [".xlsx", ".csv"]),
        (["score", "{checkpoint}", "{candidates}", "--out", "no/where/x.csv"], ["no/where"]),
        (["score", "{checkpoint}", "{candidates}", "--out", "{table}.csv", "--score", "magic"], ["magic", "min_k"]),
        (["score", "{checkpoint}", "{candidates}", "--out", "{candidates}"], ["candidates.jsonl", "another name"]),
        (["score-logprobs", "{candidates}", "--out", "{candidates}"], ["candidates.jsonl", "another name"]),
        (["score-logprobs", "{table}", "--texts", "{candidates}", "--out", "{candidates}"], ["would be lost"]),
        (["report", "nowhere"], ["nowhere"]),
    ],
    ids=lambda value: " ".join(value)[:60] if isinstance(value, list) else None,
)
def test_errors_are_one_line_without_a_traceback(arguments, words, checkpoint, files, table, tmp_path, capsys):
    names = {"table": table, "checkpoint": checkpoint, **files}
    before = sorted(os.listdir(tmp_path))
    status, out = run(*(argument.format(**names) for argument in arguments), capsys=capsys)
    assert status == 2
    assert out.out == ""
    assert out.err.startswith(f"tdd {arguments[0]}: error: ")
    for word in words:
        assert word in out.err
    assert sorted(os.listdir(tmp_path)) == before


@pytest.mark.parametrize("command", [[], ["demo"], ["score"], ["audit"], ["select"], ["report"]])
def test_help(command):
    done = subprocess.run([sys.executable, "-m", "tdd", *command, "--help"], capture_output=True, text=True, check=True)
    assert "usage: tdd" in done.stdout
    assert "--help" in done.stdout


@pytest.mark.usefixtures("computed_bounds")
@pytest.mark.slow("training")
def test_demo_reports_against_the_truth(capsys, tmp_path):
    status, out = run("demo", "--json", "-q", "--out", str(tmp_path / "demo"), capsys=capsys)
    assert status == 0
    page = (tmp_path / "demo" / "report.html").read_bytes()
    assert b"Decisions against the known truth" in page
    assert run("report", str(tmp_path / "demo"), "--html", capsys=capsys)[0] == 0
    assert (tmp_path / "demo" / "report.html").read_bytes() == page
    demo = json.loads(out.out)
    rows = {(row["score"], row["alpha"]): row for row in demo["table"]}
    assert {alpha for _, alpha in rows} == {0.05, 0.1, 0.2}
    assert len({score for score, _ in rows}) >= 5
    for row in demo["table"]:  # 1,000 divisions: the mean FDP within five standard errors of its bound
        assert row["mean_fdp"] <= row["alpha"] + 5 * row["se_fdp"]
    assert rows["loss", 0.1]["mean_power"] > 0.6
    assert rows["loss", 0.1]["num_selected"] == demo["run"]["decision"]["num_selected"]
    assert front_page.words_of(audit_report(demo["run"])) == front_page.texts_in(front_page.PICTURE)[0]


@pytest.mark.slow("long")
def test_report_prints_hostile_names_as_they_are(tmp_path, capsys):
    rows = [{"id": f"c{i}", "role": "calibration", "loss": float(i)} for i in range(40)]
    names = ["[bold]x[/bold]", ":warning: :cat:", "back\\slash\\", "red\x1b[31m\x1b]0;title\x07", "=1+1", "a,b\nc"]
    rows += [{"id": name, "role": "candidate", "loss": -1.0 - place} for place, name in enumerate(names)]
    path = tmp_path / "t.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    status, out = run("select", path, "--alpha", 0.2, "--out", tmp_path / "run", capsys=capsys)
    assert status == 0
    assert "\x1b" not in out.out
    for shown in ("[bold]x[/bold]", ":warning: :cat:", "'back\\\\slash\\\\'", "red\\x1b[31m", "a,b\\nc"):
        assert shown in out.out
    with open(tmp_path / "run" / "items.csv", newline="") as file:
        assert [row["id"] for row in csv.DictReader(file)] == names


@pytest.mark.parametrize(
    "content",
    ['{"schema": 1}', "[]", "{", '{"schema": 2}', "\x00"],
)
def test_report_on_a_damaged_run(tmp_path, capsys, content):
    (tmp_path / "run.json").write_text(content)
    status, out = run("report", tmp_path, capsys=capsys)
    assert status == 2
    assert "run.json" in out.err


@pytest.mark.parametrize("sealed", [True, False])
@pytest.mark.parametrize(
    ("name", "value"),
    [("decision", 3), ("outcome", None), ("decision", {"null": []}), ("inputs", "x"), ("warnings", 2.5)],
)
def test_report_on_a_run_with_a_wrong_type(finished, tmp_path, capsys, name, value, sealed):
    content = {**json.loads((finished / "run.json").read_text()), name: value}
    if not sealed:
        del content["sha256"]
    (tmp_path / "run.json").write_text(json.dumps(content))
    status, out = run("report", tmp_path, capsys=capsys)
    assert status == 2
    assert out.err.count("\n") == 1
    assert "SHA-256" in out.err


@pytest.mark.parametrize("content", ["", "id\n1,2\n", "id,p_value,adjusted\n", "id,p_value,adjusted,selected\n1\n"])
def test_report_on_damaged_items(finished, tmp_path, capsys, content):
    shutil.copytree(finished, tmp_path / "run")
    (tmp_path / "run" / "items.csv").write_text(content)
    status, out = run("report", tmp_path / "run", capsys=capsys)
    assert status == 2
    assert "items.csv" in out.err


@pytest.mark.slow("long")
def test_a_hub_id_without_a_network_is_one_line(files, tmp_path):
    """In a fresh process: nothing else has imported the hub's client."""
    done = subprocess.run(
        [sys.executable, "-m", "tdd", "score", "nomodel-of-this-name", str(files["candidates"]), "--out",
         str(tmp_path / "s.csv")],
        capture_output=True, text=True, env=os.environ | {"HF_HUB_OFFLINE": "1", "HF_HOME": str(tmp_path / "hub")},
    )  # fmt: skip
    assert done.returncode == 2
    assert "nomodel-of-this-name" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_store_that_cannot_be_made(checkpoint, files, tmp_path, capsys):
    status, out = run(
        "score", checkpoint, files["candidates"], "--score", "loss", "--out", tmp_path / "s.csv", "--store",
        "/proc/nothing", "-q", capsys=capsys,
    )  # fmt: skip
    assert status == 2
    assert "/proc/nothing" in out.err


@pytest.mark.slow("long")
def test_one_store_serves_several_commands(checkpoint, files, tmp_path, capsys, monkeypatch):
    """What one command has computed, no other computes again; the folder is kept, and nothing is left beside."""
    store = tmp_path / "store"
    options = ("--store", store, "-q")
    for name in ("candidates", "calibration"):
        assert run("score", checkpoint, files[name], "--out", tmp_path / f"{name}.csv", *options, capsys=capsys)[0] == 0
    monkeypatch.setattr("tdd.scoring.run.TokenProgram", None)
    status, said = run(
        "audit", checkpoint, "--candidates", files["candidates"], "--calibration", files["calibration"], "--score",
        "loss", "--out", tmp_path / "run", *options, capsys=capsys,
    )  # fmt: skip
    assert status == 0, said.err
    status, _ = run(
        "score", checkpoint, files["candidates"], "--score", "zlib", "--out", tmp_path / "zlib.csv", "--store",
        store, "-q", capsys=capsys,
    )  # fmt: skip
    assert status == 0
    assert (store / "store.json").exists()
    assert not list(tmp_path.glob(".*.scoring*"))
    (store / "store.json").write_text('{"format": 2, "tdd": "9"}')
    status, said = run("score", checkpoint, files["candidates"], "--out", tmp_path / "s.csv", *options, capsys=capsys)
    assert status == 2
    assert "store.json names format 2, written by tdd 9" in said.err
    assert not (tmp_path / "s.csv").exists()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_an_end_that_a_callback_drops_is_asked_for_again(number):
    """Python ignores what is raised inside a callback of the garbage collector, where JAX has one too."""
    raised, cleaned = [], []

    def callback(phase, info):
        if phase == "start" and not raised:
            raised.append(number)
            os.kill(os.getpid(), number)

    @_ends_in_order()
    def work():
        gc.callbacks.append(callback)  # not before: the signal is for the handlers that work under
        try:
            gc.collect()
            time.sleep(5)
            raise AssertionError("the signal got lost")
        finally:
            time.sleep(0.3)  # cleaning up is left alone
            cleaned.append(True)

    before = signal.getsignal(number)
    try:
        with pytest.raises(KeyboardInterrupt, match=number.name):
            work()
    finally:
        gc.callbacks.remove(callback)
    assert cleaned == [True]
    assert signal.getsignal(number) is before


def test_a_timer_that_runs_out_while_it_is_stopped(monkeypatch):
    """No signal is left for what comes after the command."""
    plain = signal.setitimer

    def late(which, seconds):
        plain(which, seconds)
        if not seconds:
            os.kill(os.getpid(), signal.SIGALRM)

    @_ends_in_order()
    def work():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(1)

    with monkeypatch.context() as patch:
        patch.setattr(signal, "setitimer", late)
        with pytest.raises(KeyboardInterrupt, match="SIGTERM"):
            work()
    assert plain(signal.ITIMER_REAL, 0) == (0.0, 0.0)


def test_control_characters_are_spelled_out(tmp_path, monkeypatch, capsys):
    """Names come from outside: none moves the cursor or fakes a line."""
    monkeypatch.chdir(tmp_path)
    status, out = run("select", "b\x1b[31m\n.csv", capsys=capsys)
    assert status == 2
    assert "\x1b" not in out.err
    assert len(out.err.splitlines()) == 1
    assert "b\\x1b[31m\\n.csv" in out.err
    (tmp_path / "t.jsonl").write_text(json.dumps({"pass\x1b[2Jage": "a"}) + "\n")
    status, out = run("score", "model", "t.jsonl", "--out", "x.csv", capsys=capsys)
    assert status == 2
    assert "\x1b" not in out.err


def test_higher_is_member_turns_knockoffs_too(tmp_path, capsys):
    """Members have higher values than their knockoffs here; with the sign of one column alone nothing would be left."""
    rng = np.random.default_rng(0)
    rows = [(f"i{i}", 3.0 * (i < 20) + rng.normal(), rng.normal()) for i in range(40)]
    selected = []
    for sign in (1, -1):
        lines = [f"{name},{sign * own},{sign * other}" for name, own, other in rows]
        (tmp_path / "t.csv").write_text("id,own,other\n" + "\n".join(lines) + "\n")
        options = ["--higher-is-member"] if sign == 1 else []
        knockoffs = ("--method", "ktd", "--score", "own", "--knockoffs", "other")
        status, out = run("select", tmp_path / "t.csv", *knockoffs, "--alpha", 0.2, "--json", *options, capsys=capsys)
        assert status == 0
        selected.append(json.loads(out.out)["selected"])
    assert len(selected[0]) > 10
    assert selected[0] == selected[1]


@pytest.mark.parametrize("command", ["score", "audit", "exchange"])
def test_help_says_who_is_to_be_trusted(command, capsys):
    """Where a shared folder and an open port are named."""
    with pytest.raises(SystemExit):
        main([command, "--help-all"])
    words = " ".join(capsys.readouterr().out.split())
    for said in ("share it with people whom you trust", "that folder must be trusted", "it has no authentication"):
        assert said in words


@pytest.mark.usefixtures("pictures")
def test_the_report_as_a_page(tmp_path, monkeypatch, capsys):
    """`tdd select --out` leaves one; `tdd report --html` makes the same bytes again."""
    monkeypatch.chdir(tmp_path)
    rows = [f"<b>x{i}</b>,{'calibration' if i < 60 else 'candidate'},{(i * 37) % 101}" for i in range(100)]
    pathlib.Path("scores.csv").write_text("\n".join(["id,role,loss", *rows]))
    assert main(["select", "scores.csv", "--role-field", "role", "--alpha", "0.5", "--out", "run"]) == 0
    assert "Report: run/report.html" in capsys.readouterr().out
    page = pathlib.Path("run/report.html").read_text()
    assert page.count("<img ") == 3
    assert "<b>x" not in page
    assert len(page) < 300_000
    assert main(["report", "run", "--html"]) == 0
    assert pathlib.Path("run/report.html").read_text() == page
    assert main(["report", "run", "--html", "elsewhere.html"]) == 0
    assert pathlib.Path("elsewhere.html").read_text() == page
    assert main(["report", "run", "--html", "page.pdf"]) == 2
    assert ".html" in capsys.readouterr().err


@pytest.mark.usefixtures("pictures")
def test_pages_without_calibration_and_with_odd_names(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    rows = [f"x{i},{i % 7},{(i * 3) % 11},{(i * 5) % 13}" for i in range(40)]
    pathlib.Path("knockoffs.csv").write_text("\n".join(["id,a,b,c", *rows]))
    command = ["select", "knockoffs.csv", "--method", "ktd", "--score", "a", "--knockoffs", "b,c", "--alpha", "0.2"]
    assert main([*command, "--out", "ktd"]) == 0
    assert "<h2" in pathlib.Path("ktd/report.html").read_text()
    name = "p$x_$"
    rows = [f"x{i},{'calibration' if i < 60 else 'candidate'},{(i * 37) % 101}" for i in range(100)]
    pathlib.Path("odd.csv").write_text("\n".join([f"id,role,{name}", *rows]))
    command = ["select", "odd.csv", "--role-field", "role", "--score", name, "--alpha", "0.5", "--json"]
    assert main([*command, "--out", "odd"]) == 0
    assert pathlib.Path("odd/report.html").read_text().count("<img ") == 3
    capsys.readouterr()


def test_help_names_every_rule_and_no_other():
    entries = re.findall(r"^  ([a-z_0-9]+)(.*(?:\n {15}.*)*)", _METHODS, re.MULTILINE)
    told = {name: " ".join(words.split()).partition("rule=")[2] for name, words in entries}
    for name, own in known_procedures().items():
        rules = {*typing.get_args(typing.get_type_hints(own).get("rule"))} - {""}
        if own.__module__.startswith("tdd."):
            assert {*re.findall("[a-z_]+", re.split("[;(]", told[name])[0])} - {"or"} == rules, name


@pytest.mark.parametrize("name", [None, *_COMMANDS])
def test_help_fits_80_columns(name, monkeypatch, capsys):
    monkeypatch.setenv("COLUMNS", "80")
    for option in ("--help", "--help-all"):
        with pytest.raises(SystemExit) as stopped:
            main([name, option] if name else [option])
        said = capsys.readouterr()
        if option == "--help-all" and stopped.value.code == 2:  # a command with few options does not have it
            continue
        assert [line for line in said.out.splitlines() if len(line) > 80] == []
        assert "usage: tdd" in said.out


def test_a_corpus_is_counted_recorded_and_kept_apart(checkpoint, files, tmp_path, capsys):
    """The corpus of dc_pdd: in the provenance, in the identity of an audit, and without the audited texts."""
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text("".join(json.dumps({"text": f"w{i} w{i + 1} w3"}) + "\n" for i in range(30)))
    scored = ("score", checkpoint, files["candidates"], "--out", tmp_path / "s.csv")
    given = f"dc_pdd:corpus={corpus}"
    status, out = run(*scored, "--score", f"{given},acmia", "--quiet", "--json", capsys=capsys)
    assert status == 0, out.err
    recorded = json.loads(out.out)["provenance"]["corpus"]
    assert (recorded["texts"], recorded["source"]) == (30, str(corpus))

    audited = ("audit", checkpoint, "--candidates", files["candidates"], "--calibration", files["calibration"])
    audited = (*audited, "--alpha", "0.2", "--quiet")
    status, out = run(*audited, "--out", tmp_path / "run", "--score", given, capsys=capsys)
    assert status == 3, out.err  # beside 30 texts most items have one value
    options = json.loads((tmp_path / "run" / "run.json").read_text())["options"]
    assert options["corpus"] == recorded["sha256"]
    corpus.write_text(corpus.read_text() + json.dumps({"text": "one more"}) + "\n")
    status, out = run(*audited, "--out", tmp_path / "run", "--score", given, capsys=capsys)
    assert status == 2
    assert "a run of other inputs or options" in out.err

    leaking = tmp_path / "leaking.jsonl"
    known = json.loads(files["calibration"].read_text().splitlines()[4])["text"]
    leaking.write_text(corpus.read_text() + json.dumps({"text": known}) + "\n")
    status, out = run(*audited, "--out", tmp_path / "new", "--score", f"dc_pdd:corpus={leaking}", capsys=capsys)
    assert status == 2
    assert "calibration-4" in out.err
    assert not (tmp_path / "new" / "run.json").exists()


def test_a_prefix_is_recorded_and_kept_apart(checkpoint, files, tmp_path, capsys):
    """The prefixes of recall and con_recall: in the provenance, in the identity of an audit, and without its texts."""
    prefix, members = tmp_path / "unseen.jsonl", tmp_path / "seen.jsonl"
    prefix.write_text('{"text": "w1 w2 w3"}\n{"text": "w4 w5"}\n')
    members.write_text('{"text": "w6 w7 w8"}\n')
    scored = ("score", checkpoint, files["candidates"], "--out", tmp_path / "s.csv")
    given = f"recall:prefix={prefix},con_recall:prefix={prefix};member_prefix={members}"
    status, out = run(*scored, "--score", given, "--quiet", "--json", capsys=capsys)
    assert status == 0, out.err
    recorded = json.loads(out.out)["provenance"]
    assert (recorded["prefix"]["texts"], recorded["member_prefix"]["source"]) == (2, str(members))

    audited = ("audit", checkpoint, "--candidates", files["candidates"], "--calibration", files["calibration"])
    audited = (*audited, "--alpha", "0.2", "--quiet", "--out", tmp_path / "run")
    status, out = run(*audited, "--score", f"recall:prefix={prefix}", capsys=capsys)
    assert status == 0, out.err
    options = json.loads((tmp_path / "run" / "run.json").read_text())["options"]
    assert options["prefix"] == recorded["prefix"]["sha256"]
    status, out = run(*audited, "--score", f"recall:prefix={members}", capsys=capsys)
    assert status == 2
    assert "a run of other inputs or options" in out.err

    known = json.loads(files["calibration"].read_text().splitlines()[4])["text"]
    prefix.write_text(json.dumps({"text": known}) + "\n")
    status, out = run(*audited[:-1], tmp_path / "new", "--score", f"recall:prefix={prefix}", capsys=capsys)
    assert status == 2
    assert "calibration-4" in out.err
    assert "in prefix" in out.err


def test_further_models_and_texts_have_options(checkpoint, files, tmp_path, capsys):
    """Reference models, a population and texts to tune on: in the provenance; a leak is refused by an audit."""
    unseen, other = tmp_path / "unseen.jsonl", tmp_path / "other"
    unseen.write_text("".join(json.dumps({"text": f"w{i} w{i + 1} w3 w4"}) + "\n" for i in range(8)))
    more = tmp_path / "more"
    for folder, moved in ((other, 0.1), (more, 0.2)):
        stored = {name: value + moved for name, value in gpt2_files.tensors(gpt2_files.CONFIG).items()}
        gpt2_files.write(folder, stored=stored)
    models = f"references={other};references={more}"
    given = f"lira:{models},rmia:{models};population={unseen},fsd:of=min_k;k=0.5;rank=2;epochs=1;tune_on={unseen}"
    status, out = run(
        "score",
        checkpoint,
        files["candidates"],
        "--score",
        given,
        "--out",
        tmp_path / "s.csv",
        "--quiet",
        "--json",
        capsys=capsys,
    )
    assert status == 0, out.err
    recorded = json.loads(out.out)["provenance"]
    assert recorded["reference"] == [str(other), str(more)]
    assert (recorded["population"]["texts"], recorded["tune_on"]["source"]) == (8, str(unseen))
    assert (recorded["tune_on"]["lora"]["rank"], recorded["tune_on"]["steps"]) == (2, 1)
    known = json.loads(files["calibration"].read_text().splitlines()[4])["text"]
    unseen.write_text(unseen.read_text() + json.dumps({"text": f"{known} "}) + "\n")
    audited = ("audit", checkpoint, "--candidates", files["candidates"], "--calibration", files["calibration"])
    status, out = run(*audited, "--score", f"fsd:rank=2;tune_on={unseen}", "--quiet", capsys=capsys)
    assert status == 2
    assert "calibration-4" in out.err
    assert "in tune_on" in out.err
    with pytest.raises(SystemExit):
        main([*map(str, audited), "--tune-on", str(unseen)])
    assert "tune_on belongs to the scores that need it: write --score 'fsd:tune_on=...'" in capsys.readouterr().err
