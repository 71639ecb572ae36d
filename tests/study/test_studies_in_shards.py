"""Engines, named studies, claims and the command in shards: the same bits as in one run."""

import dataclasses
import json
import signal
import warnings

import jax
import numpy as np
import process_launcher
import pytest

import tdd
from tdd.cli import main
from tdd.study import (
    JointLabels,
    NormalShift,
    StudyResult,
    engine,
    resample,
    resample_joint,
    run,
    runner,
    simulate_joint,
)
from tdd.study.claims import Claim, measure
from tdd.study.named import load, ptdi, td4eval
from tdd.study.named.driver import run_named_study, run_shard
from tdd.study.named.record import Columns, StudyOptions
from tdd.study.store import TotalsStore

# --- the engines ------------------------------------------------------------------------------------------------------

DESIGN = NormalShift(num_calibration=19, num_tests=12)
JOINT = JointLabels(num_models=2, num_calibration=19, num_tests=12, signal=3.0)
ARRAYS = [field.name for field in dataclasses.fields(StudyResult) if field.name.split("_")[0] in
          ("fdr", "fdp", "power", "hamming", "num")]  # fmt: skip


def assert_same(a, b):
    for name in ARRAYS:
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name), err_msg=name)
    np.testing.assert_array_equal(a.repetitions, b.repetitions)


def general(**options):
    grid = {"signal": [1.0, 8.0]}
    return run(DESIGN, "ptdi/none", alphas=0.2, repetitions=1_500, grid=grid, **options)


def pool(**options):
    draws = np.random.default_rng(0)
    member = np.arange(60) < 30
    scores = draws.normal(size=60) - 2 * member
    return resample(scores, member, alphas=0.2, repetitions=5_000, key=jax.random.key(0), **options)


def joint_pool(**options):
    draws = np.random.default_rng(0)
    member = draws.random((2, 50)) < 0.3
    tables = draws.normal(size=(2, 40)) - 2, draws.normal(size=(2, 50)) - 2 * member
    return resample_joint(*tables, member, alphas=0.3, methods="jmcs/bh", repetitions=2_000, **options)


def joint_fresh(**options):
    return simulate_joint(JOINT, alphas=0.2, methods="jmcs/bh", repetitions=2_000, **options)


@pytest.fixture
def narrow(monkeypatch):
    """Few repetitions side by side, so that some hundreds of them are several pieces."""
    monkeypatch.setattr(engine, "_LANE_NUMBERS", 2_000)


@pytest.mark.usefixtures("narrow")
@pytest.mark.parametrize("study", [general, pool, joint_pool, joint_fresh])
def test_every_engine_in_shards(tmp_path, study):
    whole, counts = study(), []
    for index in (2, 0, 2, 1):
        found = study(folder=tmp_path, shard=f"{index}/3")
        assert found.provenance["shard"] == f"{index}/3"
        assert np.all((found.fdr >= 0) & (found.fdr <= 1))
        counts.append(found.repetitions)
    assert not (tmp_path / "study.json").exists()
    np.testing.assert_array_equal(counts[0] + counts[1] + counts[3], whole.repetitions)
    joint = study(folder=tmp_path)
    assert joint.provenance["shard"] is None
    assert_same(joint, whole)
    assert_same(StudyResult.load(tmp_path), whole)


@pytest.mark.usefixtures("narrow")
def test_a_shard_without_a_repetition(tmp_path):
    """A thousandth of a few repetitions: numbers that are missing, and no warning."""
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = general(folder=tmp_path, shard=(999, 1_000))
        assert found.rows()[0]["repetitions"] == 0
    assert found.repetitions.tolist() == [0, 0]
    assert all(np.isnan(getattr(found, name)).all() for name in ARRAYS)
    assert_same(general(folder=tmp_path), general())


# --- named studies ----------------------------------------------------------------------------------------------------

NAMED = StudyOptions(repetitions=2_100, alphas=(0.2,))


def test_a_named_study_in_shards(tmp_path):
    study = load("ptdi-alpha")
    told = dataclasses.replace(NAMED, folder=tmp_path / "study")
    for index in (1, 0):
        run_shard(study, dataclasses.replace(told, shard=(index, 2)))
    assert not (told.folder / "study.json").exists()
    with pytest.raises(tdd.InputError, match="holds a run of other inputs or options"):
        run_shard(study, dataclasses.replace(told, shard=(0, 2), seed=1))
    done = run_named_study(study, dataclasses.replace(told, shard=(0, 2)), command="tdd")
    assert done.computed
    assert_same(done.result, study.run(NAMED))
    content = {path: path.read_bytes() for path in told.folder.iterdir()}
    run_shard(study, dataclasses.replace(told, shard=(1, 2)))
    assert {path: path.read_bytes() for path in told.folder.iterdir()} == content


def test_a_shard_whose_options_cannot_be_run_leaves_the_folder_to_others(tmp_path):
    study = load("ptdi-alpha")
    told = dataclasses.replace(NAMED, folder=tmp_path / "study", shard=(0, 2))
    with pytest.raises(tdd.InputError, match="alpha"):
        run_shard(study, dataclasses.replace(told, alphas=(2.0,)))
    run_shard(study, told)
    assert [*(told.folder / "unfinished" / "totals").glob("cell-*.npz")]


def test_a_shard_whose_study_is_finished_while_it_runs(tmp_path):
    """It ends well, and leaves nothing behind."""
    study = load("ptdi-alpha")
    told = dataclasses.replace(NAMED, folder=tmp_path / "study")

    def overtaken(options):
        run_named_study(study, told, command="tdd")
        study.run(dataclasses.replace(options, folder=options.folder / "cell-00"))
        raise tdd.InputError("the folder was removed")

    run_shard(dataclasses.replace(study, run=overtaken), dataclasses.replace(told, shard=(0, 2)))
    assert sorted(path.name for path in told.folder.iterdir()) == [
        "inputs.json", "report.html", "results.csv", "results.parquet", "study.json",
    ]  # fmt: skip


@pytest.mark.slow("long")
@pytest.mark.parametrize("name", ["ptdi-bias", "td4eval-baselines"])
def test_measures_belong_to_the_whole_result(tmp_path, monkeypatch, name):
    """And cells have folders of their own, in which a shard may have no repetition."""
    monkeypatch.setattr(ptdi, "FRACTIONS", (0.3, 0.5))
    monkeypatch.setattr(td4eval, "COMBINED", ("average",))
    draws = np.random.default_rng(0)
    label = np.arange(40) < 20
    table = Columns(
        "a table", "0" * 64, ("s", "t"), draws.normal(size=(2, 40)) - 2 * label, label[None], np.zeros((40, 0))
    )
    told = StudyOptions(repetitions=100, alphas=(0.2,), columns=table, folder=tmp_path / "study")
    study = load(name)
    for index in (0, 1):
        run_shard(study, dataclasses.replace(told, shard=(index, 2)))
    done, whole = run_named_study(study, told, command="tdd").result, study.run(dataclasses.replace(told, folder=None))
    assert_same(done, whole)
    assert whole.measures
    for measured, values in whole.measures.items():
        np.testing.assert_array_equal(done.measures[measured], values)


# --- the command line -------------------------------------------------------------------------------------------------

COMMAND = ["study", "ptdi-alpha", "--repetitions", "3000", "--alpha", "0.2"]


@pytest.mark.parametrize(("options", "message"), [
    (["--shard", "2/2", "--out", "study"], "--shard 2/2 does not exist"),
    (["--shard", "0/2"], "--shard 0/2 needs --out"),
    (["--shard", "0/2", "--out", "study", "--target-se", "0.1"], "--target-se 0.1 does not go with --shard 0/2"),
])  # fmt: skip
def test_the_command_refuses(tmp_path, monkeypatch, capsys, options, message):
    monkeypatch.chdir(tmp_path)
    assert main([*COMMAND, *options]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line
    assert not [*tmp_path.iterdir()]


@pytest.fixture
def launcher(tmp_path):
    (tmp_path / "output").mkdir()
    found = process_launcher.Launcher(tmp_path / "output")
    yield found
    found.stop()


def test_a_study_of_the_command_line_in_two_shards(launcher, tmp_path):
    started = [launcher.tdd(*COMMAND, "--out", tmp_path / "two", "--shard", f"{i}/2") for i in range(2)]
    assert main([*COMMAND, "-q", "--out", str(tmp_path / "one")]) == 0
    for i, end in enumerate(launcher.all(started, timeout=300)):
        assert (end.code, end.out) == (0, ""), end.err[-3_000:]
        assert f"tdd study: shard {i}/2 is done, in {tmp_path / 'two'}; the command without --shard joins" in end.err
    assert {path.name for path in (tmp_path / "two").iterdir()} == {"inputs.json", "unfinished"}
    assert main([*COMMAND, "-q", "--out", str(tmp_path / "two")]) == 0
    for name in ("results.csv", "results.parquet"):
        assert (tmp_path / "two" / name).read_bytes() == (tmp_path / "one" / name).read_bytes(), name
    assert {path.name for path in (tmp_path / "two").iterdir()} >= {"figure.png", "study.json", "staircase.png"}
    assert not (tmp_path / "two" / "unfinished").exists()


KILLED = """
import os, pathlib, signal, sys
from tdd.study import NormalShift, engine, run, runner
from tdd.study.store import TotalsStore

engine._LANE_NUMBERS, runner._PATIENCE = 2_000, 0.0
write, written = TotalsStore.write, []
def last(self, cell, part):
    write(self, cell, part)
    written.append(part.repetitions)
    if cell == 1 and len(written) == 5:
        os.kill(os.getpid(), signal.SIGKILL)
TotalsStore.write = last
run(NormalShift(num_calibration=19, num_tests=12), "ptdi/none", alphas=0.2, repetitions=1_500,
    grid={"signal": [1.0, 8.0]}, folder=pathlib.Path(sys.argv[1]), shard="1/4")
"""


@pytest.mark.usefixtures("narrow")
def test_shards_of_four_one_of_which_is_killed(launcher, tmp_path, monkeypatch):
    """Killed in the middle of its second grid point and started again; another one runs twice."""
    monkeypatch.setattr(runner, "_PATIENCE", 0.0)  # every piece is saved
    folder = tmp_path / "study"
    (end,) = launcher.all([launcher.python(KILLED, folder)], timeout=300)
    assert end.code == -signal.SIGKILL, end.err[-3_000:]
    written, write = [], TotalsStore.write

    def noting(self, cell, part):
        written.append((cell, part.repetitions))
        write(self, cell, part)

    monkeypatch.setattr(TotalsStore, "write", noting)
    again = general(folder=folder, shard="1/4")
    assert again.repetitions.tolist() == [384, 384]
    assert written == [(1, 384)], "what was saved before the signal is not run again"
    for index in (3, 0, 3, 2):
        general(folder=folder, shard=(index, 4))
    written.clear()
    joint = general(folder=folder)
    assert not written
    assert_same(joint, general())


# --- claims -----------------------------------------------------------------------------------------------------------


def coin(rate):
    return Claim(f"coin/{rate}", "a coin", "none", "FDR", rate, True, lambda key: 1.0 * jax.random.bernoulli(key, rate))


COINS = [coin(rate) for rate in (0.1, 0.2, 0.3)]


def test_claims_in_shards(tmp_path, caplog):
    whole = [row[:-1] for row in measure(COINS, repetitions=200)]
    folder, done = tmp_path / "claims.rows", []
    options = {"repetitions": 200, "folder": folder}
    assert [row[:-1] for row in measure(COINS, **options)] == whole
    assert not folder.exists()
    assert [row[:-1] for row in measure(COINS, shard="0/2", **options)] == whole[::2]
    assert sorted(path.name for path in folder.iterdir()) == ["coin--0.1.json", "coin--0.3.json"]
    rows = [measure(COINS, on_done=done.append, **options) for _ in range(2)]
    assert rows[0] == rows[1] == done[:3], "seconds included: the second time nothing was measured"
    assert [row[:-1] for row in rows[0]] == whole
    assert caplog.messages == [f"{folder}: the shards have left 1 of 3 claims, measured now"]
    assert measure(COINS, shard=(1, 2), **options) == rows[0][1:2]


def test_rows_of_other_options_and_damaged_ones_are_refused(tmp_path):
    measure(COINS, repetitions=200, folder=tmp_path, shard="0/2")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with pytest.raises(tdd.InputError, match=r"holds another study .repetitions: 200 there, 300 now"):
        measure(COINS, repetitions=300, folder=tmp_path, shard="1/2")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before
    with pytest.raises(tdd.InputError, match="shard=2/2 does not exist"):
        measure(COINS, repetitions=200, folder=tmp_path, shard="2/2")
    with pytest.raises(tdd.InputError, match="shard=0/2 needs folder="):
        measure(COINS, repetitions=200, shard="0/2")
    row = json.dumps({"row": json.loads(before[tmp_path / "coin--0.1.json"])["row"]})
    for content in ("", "[]", '{"row": {}}', row):
        (tmp_path / "coin--0.1.json").write_text(content)
        with pytest.raises(tdd.InputError, match=r"coin--0.1.json is damaged .*; delete it to measure its claim again"):
            measure(COINS, repetitions=200, folder=tmp_path)


def test_the_command_measures_claims_in_shards(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tdd.study.claims.all_claims", lambda: tuple(COINS))
    command = ["study", "validity", "--repetitions", "200"]

    def rows(name, *options):
        assert main([*command, "--out", str(tmp_path / name), *options]) == 0
        return json.loads((tmp_path / name).read_text())["claims"] if (tmp_path / name).exists() else None

    for index in (1, 0):
        assert rows("two.json", "--shard", f"{index}/2") is None
        told = capsys.readouterr()
        assert told.out == ""
        assert f"tdd study: shard {index}/2 is done, in {tmp_path / 'two.rows'}" in told.err
    monkeypatch.setattr("tdd.study.claims._measure_claim", lambda *_, **__: pytest.fail("measured again"))
    two = rows("two.json", "-q")
    assert not (tmp_path / "two.rows").exists(), "what is joined is not kept twice"
    monkeypatch.undo()
    monkeypatch.setattr("tdd.study.claims.all_claims", lambda: tuple(COINS))
    one = rows("one.json", "-q")
    assert [{**row, "seconds": 0} for row in one] == [{**row, "seconds": 0} for row in two]
    assert main([*command, "--shard", "0/2"]) == 2
    assert "--shard 0/2 needs --out" in capsys.readouterr().err
