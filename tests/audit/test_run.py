"""The road from texts and a checkpoint, or from a table of scores, to a run folder."""

import csv
import errno
import os
import pathlib
import signal
import subprocess
import sys
import textwrap

import gpt2_files
import numpy as np
import pytest

import tdd
from tdd.records import Texts
from tdd.runs import atomic
from tdd.runs.folder import read_run


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return gpt2_files.write(tmp_path_factory.mktemp("model") / "gpt2")[0]


def words(seed, count, low=6, high=30):
    rng = np.random.default_rng(seed)
    vocabulary = [f"w{i}" for i in range(40)]
    return tuple(" ".join(rng.choice(vocabulary, rng.integers(low, high))) for _ in range(count))


def some_texts(seed, count, labels=()):
    return Texts(tuple(f"{seed}-{i}" for i in range(count)), words(seed, count), labels, sha256=str(seed))


def small_audit(checkpoint, out=None, **options):
    arguments = {"alpha": 0.2, "score": "loss", "extra_scores": ("min_k",), "progress": False} | options
    return tdd.run_audit(checkpoint, some_texts(1, 24), some_texts(2, 40), out=out, **arguments)


@pytest.mark.slow("long")
def test_run_folder_holds_the_whole_story(checkpoint, tmp_path):
    audit = small_audit(checkpoint, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert sorted(run.pop("files")) == ["calibration.csv", "items.csv"]
    assert run == audit.run
    assert (tmp_path / "run" / "report.html").read_text() == audit.to_html()
    for key in ("versions", "options", "inputs", "model", "seed", "decision", "checks", "warnings", "outcome"):
        assert key in run
    assert len(run["model"]["sha256"]) == 64
    assert run["decision"]["guarantee"]["controls"] == "FDP <= alpha".replace("FDP", "FDR")
    assert run["checks"]["resolution"]["min_selections"] == run["decision"]["min_selections"]
    assert run["inputs"]["calibration"]["texts"] == 40
    with open(tmp_path / "run" / "items.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    assert [row["id"] for row in rows] == list(some_texts(1, 24).ids)
    assert list(rows[0]) == ["id", "loss", "min_k", "p_value", "adjusted", "fdp_bound", "selected"]
    np.testing.assert_array_equal([float(row["loss"]) for row in rows], audit.items["loss"])


def test_the_same_run_again_gives_the_same_files(checkpoint, tmp_path):
    first = small_audit(checkpoint, tmp_path / "run")
    items = (tmp_path / "run" / "items.csv").read_bytes()
    second = small_audit(checkpoint, tmp_path / "run")
    assert (tmp_path / "run" / "items.csv").read_bytes() == items
    assert {**first.run, "created": 0} == {**second.run, "created": 0}


@pytest.mark.slow("long")
def test_a_folder_with_another_run_is_refused(checkpoint, tmp_path):
    small_audit(checkpoint, tmp_path / "run")
    before = {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*")}
    for change in ({"alpha": 0.1}, {"seed": 3}, {"method": "ptdi:proportion=none"}, {"max_length": 8}):
        with pytest.raises(tdd.InputError, match="holds a run of other inputs"):
            small_audit(checkpoint, tmp_path / "run", **change)
    assert before == {path: path.read_bytes() for path in (tmp_path / "run").glob("*.*")}


def test_labels_and_groups_are_part_of_the_run(checkpoint, tmp_path):
    """Equal texts with other labels, or in other groups that are told as ignored, make another run; so does a seed."""
    rows = [{"text": text, "label": i % 2, "book": i // 2} for i, text in enumerate(words(1, 6))]
    known = [{"text": text, "label": 0, "book": i // 2} for i, text in enumerate(words(2, 8))]
    options = {"alpha": 0.2, "score": "loss", "label_field": "label", "group_field": "book", "method": "conditional"}

    def run(candidates, calibration=known, seed=0):
        out = tmp_path / "run"
        return tdd.run_audit(checkpoint, candidates, calibration, out=out, seed=seed, progress=False, **options).run

    first = run(rows)["inputs"]
    assert {*first["candidate"]} == {"source", "sha256", "texts", "labels", "groups"}
    assert run(rows)["inputs"] == first
    for field in ("label", "book"):
        with pytest.raises(tdd.InputError, match="holds a run of other inputs"):
            run([{**row, field: 1 - row[field] % 2} for row in rows])
    with pytest.raises(tdd.InputError, match="holds a run of other inputs"):
        run(rows, [{**row, "book": 0} for row in known])
    with pytest.raises(tdd.InputError, match="holds a run of other inputs"):
        run(rows, seed=1)


def test_a_folder_with_anything_else_is_refused(checkpoint, tmp_path):
    (tmp_path / "thesis.txt").write_text("precious")
    with pytest.raises(tdd.InputError, match="not empty"):
        small_audit(checkpoint, tmp_path)
    with pytest.raises(tdd.InputError, match="is a file"):
        small_audit(checkpoint, tmp_path / "thesis.txt")


@pytest.mark.slow("processes")
def test_a_killed_run_continues_and_ends_the_same(checkpoint, tmp_path):
    """The process is killed after some batches; the same call finishes from the store."""
    code = textwrap.dedent(
        """
        import os, pathlib, signal, sys
        sys.path.insert(0, sys.argv[3]); sys.path.insert(0, sys.argv[4])
        import test_run
        def stop(done, total):
            if sys.argv[2] == "kill" and done == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            pathlib.Path(sys.argv[1] + ".batches").write_text(f"{done} {total}")
        test_run.small_audit(sys.argv[5], sys.argv[1], token_budget=64, on_batch=stop)
        """
    )

    def run(folder, mode):
        return subprocess.run(
            [
                sys.executable,
                "-c",
                code,
                str(folder),
                mode,
                str(pathlib.Path(__file__).parent),
                str(pathlib.Path(gpt2_files.__file__).parent),
                str(checkpoint),
            ],
            capture_output=True,
            text=True,
        )

    killed = run(tmp_path / "a", "kill")
    assert killed.returncode == -signal.SIGKILL
    assert (tmp_path / "a" / "inputs.json").exists()
    assert not (tmp_path / "a" / "run.json").exists()
    with pytest.raises(tdd.InputError, match="unfinished"):
        read_run(tmp_path / "a")
    again, straight = run(tmp_path / "a", "go"), run(tmp_path / "b", "go")
    assert again.returncode == straight.returncode == 0, again.stderr
    assert (tmp_path / "a" / "items.csv").read_bytes() == (tmp_path / "b" / "items.csv").read_bytes()


def test_labels_on_the_wrong_side(checkpoint):
    with pytest.raises(tdd.InputError, match=r"labelled as member.*'2-1'"):
        tdd.run_audit(
            checkpoint, some_texts(1, 4), some_texts(2, 3, (0, 1, 1)), alpha=0.1, score="loss", progress=False
        )


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"null": "member"}, ("nonmember", "known nonmembers")),
        ({"null": "both"}, ("null", "'both'")),
        ({"method": "magic"}, ("method", "'magic'", "ptdi")),
        ({"alpha": 1.5}, ("alpha", "1.5")),
        ({"method": "ptdi:proportion=moment"}, ("members",)),
        ({"method": "ptdi:proportion=magic"}, ("proportion", "'magic'")),
        ({"proportion": "none"}, ("method='ptdi:proportion=none' or tdd.PTDI(proportion='none')",)),
        ({"score": "entropy"}, ("entropy", "min_k")),
        ({"score": "reference"}, ("reference",)),
    ],
    ids=str,
)
def test_bad_options_write_nothing(checkpoint, tmp_path, options, words):
    with pytest.raises(tdd.InputError) as error:
        small_audit(checkpoint, tmp_path / "run", **options)
    for word in words:
        assert word in str(error.value)
    assert not (tmp_path / "run" / "run.json").exists()
    assert not (tmp_path / "run" / "items.csv").exists()


@pytest.mark.slow("long")
def test_duplicates_and_low_resolution_are_said(checkpoint):
    calibration = some_texts(2, 12)
    candidates = Texts(("x", "y"), (calibration.texts[0], words(9, 1)[0]), sha256="9")
    audit = tdd.run_audit(checkpoint, candidates, calibration, alpha=0.01, score="loss", progress=False)
    text = " ".join(audit.run["warnings"])
    assert "1 candidates are copies" in text
    assert "nothing can be selected" in text
    assert audit.run["decision"]["min_selections"] == 3
    assert audit.run["checks"]["duplicates"]["num_exact_pairs"] == 1


def test_candidates_that_are_all_calibration_items_are_refused(checkpoint):
    calibration = some_texts(2, 12)
    candidates = Texts(calibration.ids[:3], calibration.texts[:3], sha256="9")
    with pytest.raises(tdd.InputError, match="candidates: each of the 3 is a calibration item too"):
        tdd.run_audit(checkpoint, candidates, calibration, alpha=0.1, score="loss", progress=False)


def test_moment_needs_and_uses_members(checkpoint):
    audit = small_audit(checkpoint, method="ptdi:proportion=moment", members=some_texts(3, 20))
    assert audit.run["decision"]["guarantee"]["kind"] == "asymptotic"
    assert any("asymptotic" in warning for warning in audit.run["warnings"])


# --- selection from a table -----------------------------------------------------------------------------------------


def table_rows(n=60, m=40):
    rng = np.random.default_rng(0)
    shift = np.where(np.arange(m) < m // 2, 3.0, 0.0)
    return [
        *({"id": f"c{i}", "role": "calibration", "loss": rng.normal(), "label": 0} for i in range(n)),
        *(
            {"id": f"t{i}", "role": "candidate", "loss": rng.normal() - shift[i], "label": int(shift[i] > 0)}
            for i in range(m)
        ),
    ]


@pytest.mark.slow("long")
def test_select_is_ptdi_on_the_columns(tmp_path):
    rows = table_rows()
    audit = tdd.select(rows, alpha=0.2, label_field="label", out=tmp_path / "run")
    loss = np.array([row["loss"] for row in rows])
    expected = tdd.ptdi(loss[:60], loss[60:], alpha=0.2)
    np.testing.assert_array_equal(audit.items["selected"], expected.selected)
    truth = read_run(tmp_path / "run")["decision"]["truth"]
    false = np.asarray(expected.selected)[20:].sum()
    assert truth["num_false"] == false
    assert truth["power"] == pytest.approx(float(np.asarray(expected.selected)[:20].mean()))


def test_select_counts_missing_scores():
    rows = table_rows()
    rows[0]["loss"] = rows[70]["loss"] = float("nan")
    audit = tdd.select(rows, alpha=0.2, label_field="label")
    assert audit.run["decision"]["num_missing"] == audit.run["decision"]["num_missing_calibration"] == 1
    assert "1 candidate has no score" in " ".join(audit.run["warnings"])
    assert not audit.items["selected"][10]


def test_select_wants_the_deciding_score():
    rows = [{**row, "other": 1.0} for row in table_rows()]
    with pytest.raises(tdd.InputError, match="score is missing"):
        tdd.select(rows, alpha=0.2, scores=["loss", "other"], label_field="label")
    with pytest.raises(tdd.InputError, match="'nope'"):
        tdd.select(rows, alpha=0.2, score="nope", label_field="label")


def test_select_refuses_calibration_on_members():
    with pytest.raises(tdd.InputError, match="labelled as member"):
        tdd.select(
            table_rows(),
            alpha=0.2,
            label_field="label",
            role_field="label",
            calibration_role="1",
            candidate_role="0",
            scores="loss",
        )


def test_a_failed_selection_leaves_no_folder(tmp_path):
    for wrong in ({"method": "ptdi:proportion=stery"}, {"method": "ptdi:eta=7"}, {"alpha": 2}, {"score": "nope"}):
        with pytest.raises(tdd.InputError):
            tdd.select(table_rows(), **({"alpha": 0.1, "label_field": "label"} | wrong), out=tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_folder_in_which_nothing_was_computed_may_be_reused(checkpoint, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    (folder / "inputs.json").write_text('{"fingerprint": "of another run", "summary": "another"}')
    (folder / ".inputs.json.1.part").write_text("")
    small_audit(checkpoint, folder)
    assert (folder / "run.json").exists()


@pytest.mark.parametrize("name", ["p_value", "selected", "label", "adjusted"])
def test_scores_may_not_be_called_like_a_column_of_the_result(name):
    rows = [{"key": row["id"], "role": row["role"], name: row["loss"]} for row in table_rows()]
    with pytest.raises(tdd.InputError, match=f"'{name}'"):
        tdd.select(rows, alpha=0.1, score=name, id_field="key")


@pytest.mark.slow("long")
def test_ties_at_the_edge_void_the_bound_of_subtraction():
    rows = table_rows()
    how = {"alpha": 0.1, "scores": "loss", "label_field": "label", "method": "ptdi:proportion=subtraction"}
    assert not any("tie at the edge" in warning for warning in tdd.select(rows, **how).run["warnings"])
    for row in rows[:10]:
        row["loss"] = 9.0
    audit = tdd.select(rows, **how)
    assert any("tie at the edge" in warning for warning in audit.run["warnings"])
    n, m = 60, 40
    assert audit.run["decision"]["bound"] == pytest.approx(0.1 * (1 + 1 / m) * (1 + 1 / n))
    assert f"at most {100 * audit.run['decision']['bound']:.3g}%" in audit.run["outcome"]


@pytest.mark.slow("long")
def test_resolution_is_said_once(tmp_path):
    """The check and its warning count from the same exact estimate."""
    for seed in range(12):
        rng = np.random.default_rng(seed)
        rows = [{"id": f"c{i}", "role": "calibration", "loss": rng.normal()} for i in range(30)]
        rows += [{"id": f"t{i}", "role": "candidate", "loss": rng.normal() - 1} for i in range(74)]
        run = tdd.select(rows, alpha=0.2).run
        fewest = run["decision"]["min_selections"]
        assert run["checks"]["resolution"]["min_selections"] == fewest
        text = run["checks"]["resolution"]["warning"]
        assert not text or f"either none or at least {fewest} of" in text or "nothing can be selected" in text


# --- writing --------------------------------------------------------------------------------------------------------


def test_a_full_disk_leaves_nothing_half_written(tmp_path, monkeypatch):
    target = tmp_path / "file.json"
    target.write_text("old")

    def full(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(atomic.os, "fsync", full)
    with pytest.raises(tdd.InputError, match="disk is full"):
        atomic.write_atomically(target, b"new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]
