"""`tdd power` as a user meets it: a table, a laboratory run, a finished test of canonical order, no scores at all."""

import csv
import json
import shutil
import subprocess
import sys

import numpy as np
import pytest

from tdd.cli import main
from tdd.demo.data import demo_files

FAST = ("--repetitions", "256", "--alpha", "0.2", "--no-search")


def run(capsys, *arguments):
    status = main(["power", *map(str, arguments)])
    return status, capsys.readouterr()


def fails(capsys, *arguments):
    status, said = run(capsys, *arguments)
    assert status == 2
    assert said.err.startswith("tdd power: error: ")
    return said.err


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table of scores with labels, and one of labels alone."""
    place = tmp_path_factory.mktemp("power")
    rng = np.random.default_rng(0)
    with open(place / "scores.csv", "w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "role", "loss", "zlib", "log_prob", "label"])
        for i in range(120):
            x = rng.normal() - 2 * (i < 60)
            writer.writerow([f"t{i}", "held-out" if i % 2 else "any", x, x + rng.normal(), -x, int(i < 60)])
    with open(place / "truth.csv", "w", newline="") as file:
        csv.writer(file).writerows([["id", "member"], *([f"t{i}", int(i < 60)] for i in range(0, 120, 3))])
    return place


@pytest.fixture(scope="module")
def lab_run(tmp_path_factory):
    """What a laboratory run leaves: the packaged checkpoint with a few of its texts and their truth."""
    place = tmp_path_factory.mktemp("lab")
    files = demo_files()
    shutil.copytree(files.checkpoint, place / "checkpoint")
    shutil.copy(files.truth, place / "truth.csv")
    for path, count in ((files.candidates, 60), (files.calibration, 20)):
        lines = path.read_text("utf-8").splitlines()[:count]
        (place / path.name).write_text("\n".join(lines), "utf-8")
    return place


@pytest.mark.slow("long")
def test_a_table(folder, tmp_path, capsys):
    asked = (
        "--score",
        "loss",
        "--n",
        "20,30",
        "--m",
        20,
        "--fraction",
        0.25,
        "--repetitions",
        500,
        "--alpha",
        "0.1,0.3",
    )
    out = tmp_path / "plan"
    status, said = run(capsys, folder / "scores.csv", *asked, "--out", out)
    assert status == 0, said.err
    for words in (
        "What an audit with ptdi/storey may expect",
        "scores.csv (loss): 60 members, 60 non-members",
        "5 (25%)",
        "Smallest detectable fraction of members",
        "expected power ≥ 0.5",
        "P(a right selection) ≥ 0.8",
        "500 simulated audits a row",
    ):
        assert words in said.out
    assert {path.name for path in out.iterdir()} == {"power.json", "power.csv", "figure.png", "report.html"}
    whole = json.loads((out / "power.json").read_text())
    assert [(row["num_calibration"], row["alpha"]) for row in whole["rows"]] == [
        (20, 0.1), (20, 0.3), (30, 0.1), (30, 0.3),
    ]  # fmt: skip
    figure = (out / "figure.png").read_bytes()
    status, again = run(capsys, folder / "scores.csv", *asked, "--out", out, "--json")
    told = json.loads(again.out)
    assert told["rows"] == whole["rows"]
    assert told["files"] == [str(out / name) for name in ("power.json", "power.csv", "figure.png", "report.html")]
    assert (out / "figure.png").read_bytes() == figure
    page = (out / "report.html").read_bytes()
    assert main(["report", str(out), "--html"]) == 0
    assert "5 (25%)" in capsys.readouterr().out
    assert (out / "report.html").read_bytes() == page


def test_the_sign_of_the_scores_and_labels_of_another_table(folder, capsys):
    sizes = ("--n", 10, "--m", 10, "--fraction", 0.5, "--json", *FAST)
    _, own = run(capsys, folder / "scores.csv", "--score", "loss", *sizes)
    _, turned = run(capsys, folder / "scores.csv", "--score", "log_prob", "--higher-is-member", *sizes)
    assert json.loads(own.out)["rows"] == json.loads(turned.out)["rows"]
    _, joined = run(
        capsys, folder / "scores.csv", "--score", "loss", "--truth", folder / "truth.csv", "--label-field", "member",
        *sizes,
    )  # fmt: skip
    assert "20 members, 20 non-members" in json.loads(joined.out)["source"]
    assert "80 of 120 rows" in json.loads(joined.out)["source"]


@pytest.mark.slow("long")
def test_a_laboratory_run(lab_run, tmp_path, capsys):
    """Its texts are scored where nobody did, the scores kept in the folder of the plan and read from there on."""
    before = {path.name for path in lab_run.iterdir()}
    asked = ("--score", "loss", "--n", 15, "--m", 12, "--fraction", 0.5, "--json", "--quiet", *FAST)
    status, said = run(capsys, lab_run, *asked, "--out", tmp_path / "plan")
    assert status == 0, said.err
    told = json.loads(said.out)
    assert "loss" in told["source"]
    assert told["rows"][0]["drawn"] == "without replacement"
    with open(tmp_path / "plan" / "scores.csv", newline="") as file:
        assert len(list(csv.DictReader(file))) == 80
    assert {path.name for path in lab_run.iterdir()} == before
    shutil.copy(tmp_path / "plan" / "scores.csv", lab_run / "scores.csv")
    shutil.rmtree(lab_run / "checkpoint")
    _, again = run(capsys, lab_run, *asked)
    assert json.loads(again.out)["rows"] == told["rows"]


def test_one_of_several_models(folder, tmp_path, capsys):
    """Each with scores and a column of the truth of its own."""
    for name in ("model-1", "model-2"):
        (tmp_path / name / "checkpoint").mkdir(parents=True)
    shutil.copy(folder / "scores.csv", tmp_path / "model-2")
    rows = [["id", "role", "model-1", "model-2"], *([f"t{i}", "candidate", 1, int(i < 60)] for i in range(120))]
    with open(tmp_path / "truth.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    asked = ("--score", "loss", "--n", 10, "--m", 10, "--fraction", 0.5, "--json", *FAST)
    status, said = run(capsys, tmp_path, "--model-number", 2, *asked)
    assert status == 0, said.err
    assert "60 members, 60 non-members" in json.loads(said.out)["source"]
    assert "2 models, model-1, model-2: say which" in fails(capsys, tmp_path, *asked)
    assert "no model 3" in fails(capsys, tmp_path, "--model-number", 3, *asked)
    assert "--model-number is of a laboratory run" in fails(capsys, folder / "scores.csv", "--model-number", 1, *asked)
    assert "leave the number 1 out" in fails(capsys, folder, "--model-number", 1, *asked)
    (tmp_path / "other" / "canaries").mkdir(parents=True)
    assert "a run of planted sets" in fails(capsys, tmp_path / "other")


def test_no_scores_at_all(capsys):
    method = "ptdi:proportion=none,eta=0.1"
    status, said = run(capsys, "--auc", 0.9, "--n", 20, "--m", 10, "--method", method, "--fraction", "0.5", *FAST)
    assert status == 0, said.err
    assert "What an audit with ptdi/none, eta=0.1 may expect" in said.out
    assert "normal scores of AUC 0.9" in said.out
    assert "!  Normal scores are an assumption" in said.out
    assert "Smallest" not in said.out


@pytest.mark.slow("long")
def test_canonical_order(tmp_path, capsys):
    place, out = tmp_path / "exchange", tmp_path / "plan"
    place.mkdir()
    rng = np.random.default_rng(0)
    orders = rng.normal(size=(8, 7))
    orders[:, 0] += 2
    arrays = {"canonical_0": orders[:, 0], "shuffled_0": orders[:, 1:], "names": np.array(["quiz"])}
    np.savez(place / "log_probs.npz", **arrays)
    (place / "run.json").write_text(json.dumps({"kind": "exchange", "data": [{"name": "quiz", "num_tokens": 800}]}))
    asked = ("--shards", "4,8", "--shuffles", "5", "--test", "rank_sum", "--repetitions", 200, "--out", out)
    status, said = run(capsys, place, *asked)
    assert status == 0, said.err
    for words in (
        "exchange, quiz: 8 shards with 6 shuffles",
        "rank_sum",
        "Measured effect",
        "the test 'rank_sum' at α = 0.05",
    ):
        assert words in said.out
    rows = json.loads((out / "power.json").read_text())["rows"]
    assert [(row["calls"], row["tokens"]) for row in rows] == [(24, 2400), (48, 4800)]
    assert (out / "figure.png").stat().st_size > 10_000
    assert "no data set 'other'; it has quiz" in fails(capsys, place, "--data", "other")
    (place / "run.json").write_text("{")
    assert "no readable test of canonical order" in fails(capsys, place)


def test_an_effect(capsys):
    asked = ("--shards", 8, "--shuffles", 5, "--test", "rank_sum", "--no-search", "--repetitions", 200, "--json")
    status, said = run(capsys, "--effect", 1, "--shifted-fraction", 0.5, "--law", "lognormal", *asked)
    assert status == 0, said.err
    told = json.loads(said.out)
    assert told["kind"] == "exchange-power"
    assert told["source"] == "an effect of 1 sd in 50% of the shards, lognormal log-probabilities"


def test_messages(folder, tmp_path, capsys):
    table = folder / "scores.csv"
    assert "give one of" in fails(capsys)
    assert "give one of" in fails(capsys, table, "--auc", 0.8)
    assert "there is no file or folder" in fails(capsys, tmp_path / "nothing.csv")
    assert "neither a finished test of canonical order" in fails(capsys, tmp_path)
    assert "no score column 'los'" in fails(capsys, table, "--score", "los")
    assert "score" in fails(capsys, table)
    assert "there is no field --label-field 'known'" in fails(
        capsys, table, "--score", "loss", "--label-field", "known"
    )
    assert "--n must be whole numbers, got ten" in fails(capsys, table, "--score", "loss", "--n", "ten")
    assert "--fraction must be numbers" in fails(capsys, table, "--score", "loss", "--fraction", "half")
    assert "from 0 to 1, got 5.0" in fails(capsys, table, "--score", "loss", "--fraction", "5")
    assert "--sd-ratio is of --auc" in fails(capsys, table, "--score", "loss", "--sd-ratio", 2)
    assert "--higher-is-member needs --score" in fails(capsys, table, "--higher-is-member")
    assert "read by --method ktd" in fails(capsys, table, "--score", "loss", "--knockoffs", "zlib")
    assert "strictly between 0.5" in fails(capsys, "--auc", 0.4)
    assert "--sd-ratio must be a positive number" in fails(capsys, "--auc", 0.8, "--sd-ratio", 0)
    assert "method 'magic' is not known; choose one of bh, ptdi" in fails(
        capsys, table, "--score", "loss", "--method", "magic"
    )
    (tmp_path / "truth.csv").write_text("id,label\nother,1\n")
    assert "no label of any of the 120 items" in fails(
        capsys, table, "--score", "loss", "--truth", tmp_path / "truth.csv"
    )
    (tmp_path / "one.csv").write_text("id,loss,label\na,1,0\nb,2,0\n")
    assert "no member among the 2 labelled items" in fails(capsys, tmp_path / "one.csv", "--score", "loss")
    full = ("--score", "loss", "--n", 500, "--m", 10, "--fraction", 0.5, "--draw", "without", *FAST)
    assert "without replacement the pool cannot give 505" in fails(capsys, table, *full)


def test_help_needs_no_jax():
    code = (
        "import sys; from tdd.cli import main\n"
        "try: main(['power', '--help'])\n"
        "finally: assert 'jax' not in sys.modules and 'numpy' not in sys.modules"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "--shuffles" in done.stdout
