"""`tdd study` as a user meets it."""

import csv
import dataclasses
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tdd.cli import main
from tdd.report.study import _measured
from tdd.study.named import STUDIES, ktd


@pytest.fixture
def table(tmp_path, monkeypatch):
    """Texts with one paraphrase each, and a program that compiles fast."""
    few = {"ktd-draws": ("ktd/ktd", "ktd/multi")}
    studies = [
        dataclasses.replace(study, run=dataclasses.replace(study.run, methods=few.get(study.name, study.run.methods)))
        for study in ktd.STUDIES
    ]
    monkeypatch.setattr(ktd, "STUDIES", studies)
    rng = np.random.default_rng(0)
    path = tmp_path / "scores.csv"
    with open(path, "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "original", "paraphrase", "label"])
        for i in range(60):
            writer.writerow([i, rng.normal() - 5 * (i < 30), rng.normal(), int(i < 30)])
    return path


def run(*arguments, capsys):
    status = main([str(argument) for argument in arguments])
    return status, capsys.readouterr()


def columns(table):
    return ("--table", table, "--score", "original", "--knockoffs", "paraphrase", "--label-field", "label")


def test_study_alone_lists_the_studies(capsys):
    status, out = run("study", capsys=capsys)
    assert status == 0
    for name, title in STUDIES.items():
        assert name in out.out
        assert title.figure in out.out
    status, out = run("study", "--json", capsys=capsys)
    rows = json.loads(out.out)
    assert [row["study"] for row in rows] == [*STUDIES, "validity"]


@pytest.mark.slow("long")
def test_a_study_writes_its_folder_and_prints_its_table(table, tmp_path, capsys):
    folder = tmp_path / "out"
    asked = ("study", "ktd-draws", *columns(table), "--repetitions", 64, "--alpha", "0.2,0.4", "--out", folder)
    status, out = run(*asked, capsys=capsys)
    assert status == 0, out.err
    for words in (
        "averaged W (the paper)",
        "FDR ± s.e.",
        "no guarantee",
        "64 repetitions in all",
        "a second",
        "random halves",
    ):
        assert words in out.out
    names = {"inputs.json", "results.parquet", "results.csv", "study.json", "figure.png", "report.html"}
    assert set(os.listdir(folder)) == names
    with open(folder / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(row["method"], row["alpha"]) for row in rows] == [
        ("ktd/ktd", "0.2"), ("ktd/ktd", "0.4"), ("ktd/multi", "0.2"), ("ktd/multi", "0.4"),
    ]  # fmt: skip
    told = json.loads((folder / "study.json").read_text())["provenance"]
    assert told["command"].startswith(f"tdd study ktd-draws --table {table.name}")
    assert told["regenerates"] == "KTD figure 3"
    picture = (folder / "figure.png").read_bytes()
    status, again = run(*asked, capsys=capsys)
    assert status == 0
    assert "Read from an earlier run" in again.out
    assert (folder / "figure.png").read_bytes() == picture
    page = (folder / "report.html").read_bytes()
    assert run("report", folder, "--html", capsys=capsys)[0] == 0
    assert (folder / "report.html").read_bytes() == page
    status, other = run(*asked, "--seed", 1, capsys=capsys)
    assert status == 2
    assert "holds a run of other inputs or options" in other.err


@pytest.mark.parametrize(
    ("mean", "error", "words"),
    [
        (0.05, 0.01, "0.0500 ± 0.0100"),
        (0.0299366, 0.0000213, "0.029937 ± 0.000021"),
        (0.1, 0.0, "0.1000 ± 0.0000"),
        (0.1, float("nan"), "0.1000"),
    ],
)
def test_measured_values_show_their_error(mean, error, words):
    assert _measured(mean, error) == words


def test_json_holds_rows_with_verdicts(table, capsys):
    status, out = run(
        "study", "ktd-draws", *columns(table), "--repetitions", 64, "--alpha", 0.2, "--json", "-q", capsys=capsys
    )
    assert status == 0
    found = json.loads(out.out)
    assert found["study"] == "ktd-draws"
    assert {row["verdict"] for row in found["rows"]} <= {"no guarantee", "no guarantee, above"}
    assert {row["repetitions"] for row in found["rows"]} == {64}
    assert found["files"] == []
    assert out.err == ""


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--alpha", "much"), "--alpha must be numbers"),
        (("--alpha", "1.5"), "1.5"),
        (("--repetitions", "0"), "repetitions"),
        (("--devices", "99"), "devices must be 1 to"),
        (("--devices", "0"), "--devices must be at least 1"),
        (("--target-se", "-1"), "--target-se"),
        (("--seed", "-1"), "seed must be a whole number"),
        (("--table", "{table}", "--score", "original", "--knockoffs", "paraphrase"), "--label-field must name"),
        (("--score", "original"), "--table FILE"),
        (("--table", "{table}", "--score", "original", "--label-field", "label"), "knockoffs must name"),
        (
            ("--table", "/nonexistent.csv", "--score", "a", "--label-field", "b", "--knockoffs", "c"),
            "/nonexistent.csv",
        ),
    ],
)
def test_what_cannot_be_run(table, arguments, words, capsys):
    status, out = run("study", "ktd-draws", "-q", *(a.format(table=table) for a in arguments), capsys=capsys)
    assert status == 2
    assert out.err.startswith("tdd study: error: ")
    assert words in out.err


def test_help_of_a_study_needs_no_jax():
    script = (
        "import sys; from tdd.cli import main\n"
        "try: main(['study', 'ktd-draws', '--help'])\n"
        "finally: print('jax' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0
    assert done.stdout.rstrip().endswith("False")
    assert "usage: tdd study ktd-draws" in done.stdout
