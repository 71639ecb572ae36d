"""Checks that decide: what speaks against exchangeability withdraws the verdict, and nothing else does."""

import json
import math
import types
import warnings

import gpt2_files
import numpy as np
import pytest
import scipy.stats

import tdd
from tdd.audit.assemble import failures
from tdd.audit.decide import simultaneous_bounds
from tdd.audit.overlap import LEAST, RUN, overlap
from tdd.audit.select import select
from tdd.cli import main
from tdd.records import Texts

VOCABULARY = [f"word{i}" for i in range(2_000)]


def text(rng, length):
    return " ".join(rng.choice(VOCABULARY, length))


def by_hand(calibration, candidates):
    """Which texts share a run, by comparing every pair; runs are rare here."""

    def runs(words, size):
        return {tuple(words[i : i + size]) for i in range(len(words) - size + 1)}

    hits = set(), set()
    for i, a in enumerate(calibration):
        for j, b in enumerate(candidates):
            a_words, b_words = a.lower().split(), b.lower().split()
            size = min(RUN, len(a_words), len(b_words))
            if size >= LEAST and runs(a_words, size) & runs(b_words, size):
                hits[0].add(i)
                hits[1].add(j)
    return len(hits[0]), len(hits[1])


@pytest.mark.parametrize("seed", range(3))
def test_overlap_is_that_of_all_pairs(seed):
    rng = np.random.default_rng(seed)
    calibration = [text(rng, size) for size in rng.integers(3, 70, 25)]
    candidates = [text(rng, size) for size in rng.integers(3, 70, 25)]
    for i in range(0, 25, 3):  # a part of one text, in other letters, somewhere in a text of the other role
        own, other = (calibration, candidates) if i % 2 else (candidates, calibration)
        words = own[i].upper().split()
        part = words[rng.integers(0, 3) : rng.integers(5, 60)]
        other[i] = " ".join([*text(rng, 4).split(), *part, *text(rng, 3).split()])
    found = overlap(calibration, candidates)
    assert (found.num_calibration, found.num_candidates) == by_hand(calibration, candidates)
    assert found.num_calibration > 0
    assert bool(found.warning)


def test_first_parts_of_candidates_are_seen():
    """What Jaccard similarity misses: each calibration text is the first 60% of a candidate."""
    rng = np.random.default_rng(0)
    candidates = [text(rng, 100) for _ in range(20)]
    known = Texts(tuple(f"c{i}" for i in range(20)), tuple(" ".join(one.split()[:60]) for one in candidates))
    found = overlap(known, candidates)
    assert (found.num_calibration, found.num_candidates) == (20, 20)
    assert found.example[0][1:] == str(int(found.example[1]) - 1)


def test_a_leak_that_is_repeated_is_no_template():
    rng = np.random.default_rng(2)
    known = [text(rng, 80) for _ in range(100)]
    halves = [" ".join(one.split()[:40]) for one in known]
    found = overlap(known, [f"{half} {text(rng, 40)}" for half in halves for _ in range(3)] + [text(rng, 80)] * 2)
    assert (found.num_calibration, found.num_candidates) == (100, 300)


def test_templates_and_phrases_do_not_count():
    rng = np.random.default_rng(1)
    prompt = " ".join(f"please{i}" for i in range(40))
    texts = [[f"{prompt} {text(rng, 50)}" for _ in range(5)] for _ in range(2)]
    assert overlap(*texts).warning == ""
    assert overlap(["a b c d e f g"], ["x a b c d e f g y"]).warning == ""  # seven words are a phrase
    assert overlap([], ["a"]).num_candidates == 0


def check(**fields):
    return types.SimpleNamespace(warning="w", **fields)


def found(p=0.5, copies=(0, 0), parts=(0, 0), sizes=(200, 200), shared=0.0025, prepared=1.0):
    total = {"total_calibration": sizes[0], "total_candidates": sizes[1]}
    return {
        "sharing": check(p_value=shared),
        "blind_baseline": check(p_value=p, auc=0.9),
        "preparation": check(p_value=prepared, finding="w"),
        "duplicates": check(num_calibration=copies[0], num_candidates=copies[1], **total),
        "overlap": check(num_calibration=parts[0], num_candidates=parts[1], **total),
    }


CALIBRATED, KNOCKOFFS = types.SimpleNamespace(num_calibration=200), types.SimpleNamespace(num_calibration=0)


@pytest.mark.parametrize(
    ("checks", "decision", "words"),
    [
        (found(), CALIBRATED, []),
        (found(p=0.0025), CALIBRATED, ["a classifier that does not use the model"]),
        (found(p=0.0026), CALIBRATED, []),
        (found(prepared=0.0025), CALIBRATED, ["w"]),
        (found(prepared=0.0026), CALIBRATED, []),
        (found(prepared=0.0025), KNOCKOFFS, []),
        (found() | {"cluster_sizes": check(p_value=0.0025)}, CALIBRATED, ["w"]),
        (found() | {"cluster_sizes": check(p_value=0.0026)}, CALIBRATED, []),
        (found(copies=(9, 9), parts=(9, 9), shared=0.0026), CALIBRATED, []),
        (found(copies=(2, 2)), CALIBRATED, []),
        (found(copies=(3, 2)), CALIBRATED, ["3 of 200 calibration items and 2 of 200 candidates are copies"]),
        (found(parts=(0, 3)), CALIBRATED, ["are parts of texts"]),
        (found(p=0.001, parts=(9, 9)), CALIBRATED, ["told apart", "parts"]),
        (found(p=0.001, parts=(9, 9)), KNOCKOFFS, []),
        ({"symmetry": check(p_value=0.01)}, KNOCKOFFS, ["tells known non-members from their knockoffs"]),
        ({"symmetry": check(p_value=0.02)}, KNOCKOFFS, []),
        ({"symmetry": check(p_value=0.001)}, CALIBRATED, []),
        ({"flags": check(num_calibration_flagged=None, independent=False)}, CALIBRATED, ["w"]),
        ({"flags": check(num_calibration_flagged=None, independent=True)}, CALIBRATED, []),
        ({"flags": check(num_calibration_flagged=9, independent=False)}, CALIBRATED, []),
        ({"flags": check(num_calibration_flagged=None, independent=False)}, KNOCKOFFS, []),
        ({}, CALIBRATED, []),
    ],
)
def test_the_rule(checks, decision, words):
    said = failures(checks, decision)
    assert len(said) == len(words)
    assert all(word in sentence for word, sentence in zip(words, said, strict=True))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A model, 40 candidates and calibration texts of the same kind, of another kind, and cut from the candidates."""
    place = tmp_path_factory.mktemp("verdict")
    gpt2_files.write(place / "model")
    rng = np.random.default_rng(0)

    def draw(low, high, size):
        return [" ".join(f"w{k}" for k in rng.integers(low, high, rng.integers(12, 20))) for _ in range(size)]

    candidates = draw(0, 40, 40)
    parts = [" ".join(one.split()[:10]) for one in candidates]
    for name, texts in {
        "candidates": candidates,
        "same": draw(0, 40, 60),
        "other": draw(30, 60, 60),
        "parts": parts,
    }.items():
        (place / f"{name}.jsonl").write_text("".join(json.dumps({"text": one}) + "\n" for one in texts))
    return place


def audit(folder, calibration, *options):
    files = ["--candidates", folder / "candidates.jsonl", "--calibration", folder / f"{calibration}.jsonl"]
    return main([str(x) for x in ("audit", folder / "model", *files, "--score", "loss", *options)])


@pytest.mark.parametrize("calibration", ["other", "parts"])
def test_a_failed_check_withdraws_guarantee_counts_and_exit_status(folder, calibration, tmp_path, capsys):
    assert audit(folder, calibration, "--alpha", 0.9, "--out", tmp_path / "run", "--fail-on-detection") == 3
    shown = capsys.readouterr().out
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    assert not run["verdict"]["stands"]
    assert run["outcome"].startswith("No verdict: ")
    assert run["decision"]["guarantee"]["kind"] == "none"
    assert not run["certificate"]["applies"]
    assert "expected share" not in shown
    assert "FDR <=" not in shown
    assert "with confidence" not in shown.lower()
    assert "Selected items" not in shown
    assert shown.index("No verdict") < shown.index("Method and counts")
    check = {"other": "blind_baseline", "parts": "overlap"}[calibration]
    example = run["examples"][check]
    assert [one["role"] for one in example] == ["calibration", "candidate"]
    for one in example:
        table = folder / f"{calibration if one['role'] == 'calibration' else 'candidates'}.jsonl"
        texts = [json.loads(line)["text"] for line in table.read_text().splitlines()]
        assert one["text"] == texts[int(one["id"]) - 1]
    if calibration == "parts":
        assert example[0]["text"] in example[1]["text"]
    assert example[0]["text"] in (tmp_path / "run" / "report.html").read_text("utf-8")
    assert "excerpts" not in run


def test_ids_that_look_like_paths(folder, tmp_path, capsys):
    """Ids in the record are those of the tables, and their texts are found."""
    for name in ("candidates", "parts"):
        texts = [json.loads(line)["text"] for line in (folder / f"{name}.jsonl").read_text().splitlines()]
        more = " /usr/lib/x." if name == "candidates" else ""
        rows = [{"id": f"/books/{name}/{i}.txt", "text": one + more} for i, one in enumerate(texts)]
        (tmp_path / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--candidates", tmp_path / "candidates.jsonl", "--calibration", tmp_path / "parts.jsonl"]
    words = ["audit", folder / "model", *options, "--score", "loss", "--out", tmp_path / "run"]
    assert main(list(map(str, words))) == 3
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    example = run["checks"]["overlap"]["example"]
    assert all(f"'{name}'" in run["checks"]["overlap"]["warning"] for name in example)
    assert [one["id"] for one in run["examples"]["overlap"]] == example
    assert all(one["text"] for one in run["examples"]["overlap"])
    assert run["examples"]["overlap"][1]["text"].endswith(" /usr/lib/x.")
    assert " /usr/lib/x." in run["checks"]["preparation"]["warning"]
    assert {name for mark in run["checks"]["preparation"]["found"] for name, _ in mark[5]} <= {
        f"/books/candidates/{i}.txt" for i in range(40)
    }
    assert str(tmp_path) not in json.dumps(run)


def test_a_verdict_stands_where_nothing_speaks_against_it(folder, capsys):
    assert audit(folder, "same", "--alpha", 0.1, "--json") == 0
    run = json.loads(capsys.readouterr().out)
    assert run["verdict"]["stands"]
    assert run["decision"]["guarantee"]["controls"] == "FDR <= alpha"
    assert "No verdict" not in run["outcome"]


def test_fail_on_detection(tmp_path, capsys):
    rows = (
        [f"calibration,{i}" for i in range(1, 60)] + ["candidate,-1"] * 20 + [f"candidate,{3 * i}.5" for i in range(20)]
    )
    (tmp_path / "t.csv").write_text("role,loss\n" + "\n".join(rows) + "\n")
    for options, status in ([], 0), (["--fail-on-detection"], 1), (["--fail-on-detection", "--alpha", "0.0001"], 0):
        assert main(["select", str(tmp_path / "t.csv"), *options]) == status
    shown = " ".join(capsys.readouterr().out.split())
    assert "If the assumptions hold, at least" in shown
    assert "This does not say which. Separately, " in shown


@pytest.mark.slow("long")
def test_large_p_values_among_the_selected_are_explained(tmp_path, capsys):
    rows = [f"calibration,{i}" for i in range(100)] + [f"candidate,{-1 - i}" for i in range(99)] + ["candidate,50.5"]
    (tmp_path / "t.csv").write_text("role,loss\n" + "\n".join(rows) + "\n")
    assert main(["select", str(tmp_path / "t.csv"), "--alpha", "0.2"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Some selected candidates have p-values above the level, up to 0.5" in shown
    assert main(["select", str(tmp_path / "t.csv"), "--alpha", "0.2", "--method", "ptdi:proportion=none"]) == 0
    assert "have p-values above the level" not in " ".join(capsys.readouterr().out.split())


@pytest.mark.slow("long")
def test_a_folder_that_was_changed_is_refused(tmp_path, capsys):
    rows = [f"calibration,{i}" for i in range(30)] + [f"candidate,{-1 - i}" for i in range(10)]
    (tmp_path / "t.csv").write_text("role,loss\n" + "\n".join(rows) + "\n")
    assert main(["select", str(tmp_path / "t.csv"), "--out", str(tmp_path / "run")]) == 0
    assert main(["report", str(tmp_path / "run")]) == 0
    for name, words in ("items.csv", "does not fit the SHA-256 in run.json"), ("run.json", "does not fit its SHA-256"):
        place = tmp_path / "run" / name
        data = place.read_text()
        assert "-1.0" in data or '"num_tests": 10' in data
        place.write_text(data.replace("-1.0", "-2.0", 1).replace('"num_tests": 10', '"num_tests": 11'))
        capsys.readouterr()
        assert main(["report", str(tmp_path / "run")]) == 2
        assert words in capsys.readouterr().err
        place.write_text(data)


def test_warnings_of_a_withheld_verdict_say_nothing_of_the_selection():
    from tdd.audit.assemble import warnings_of

    decision = types.SimpleNamespace(
        num_missing=0, num_missing_calibration=0, min_selections=1, num_tests=9, proportion=0.5,
        statistic=np.zeros(0), num_selected=4, threshold=0.3, alpha=0.1, method="ptdi/storey", warnings=(),
        null="nonmember", unit="item", guarantee=types.SimpleNamespace(kind="finite-sample"),
    )  # fmt: skip
    said = warnings_of({}, decision, (), stands=True)[0]
    assert "that 50% of the candidates are members, which is no lower bound, and multiplies" in said
    assert said.endswith("that its candidate is a member. With ptdi:proportion=none no such candidate is selected")
    assert warnings_of({}, decision, (), stands=False) == []
    decision.unit = "cluster"
    said = warnings_of({}, decision, (), stands=True)[0]
    assert "that 50% of the clusters have a member, which" in said
    assert said.endswith("that its cluster has a member. With ptdi:proportion=none no such cluster is selected")


def test_a_large_p_value_of_a_selected_clean_item_is_not_called_that_of_a_member():
    rng = np.random.default_rng(0)
    clean = np.arange(100) < 90
    known, scores = rng.normal(size=(2, 60)), rng.normal(size=(2, 100)) + 6 * clean
    columns = {
        "id": [f"i{i}" for i in range(160)],
        "role": ["calibration"] * 60 + ["candidate"] * 100,
        **{f"m{k}": [*known[k], *scores[k]] for k in range(2)},
    }
    audit = select(columns, alpha=0.2, score=("m0", "m1"), method="jmcs:rule=storey")
    assert audit.run["decision"]["threshold"] > 0.2
    said = next(text for text in audit.run["warnings"] if "multiplies all p-values" in text)
    assert "of the candidates are clean, which is no lower bound, and multiplies" in said
    assert said.endswith("that its candidate is clean")


def test_a_deprecation_in_a_library_is_no_warning_for_the_reader(monkeypatch):
    original = tdd.PTDI.select

    def noisy(self, *arguments):
        warnings.warn("an old name", DeprecationWarning)
        return original(self, *arguments)

    monkeypatch.setattr(tdd.PTDI, "select", noisy)
    columns = {"role": ["calibration"] * 30 + ["candidate"] * 5, "loss": [*range(30), *range(5)]}
    assert "an old name" not in select(columns, alpha=0.2).run["warnings"]


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.1, 0.3])
def test_a_fixed_seed_moves_the_level_of_the_bounds_by_half_a_percent(delta):
    """The probability that some bound fails, given the draws, is Beta(p, B + 1 - p), p the place of the threshold."""
    asked = []

    def bounds(*_, num_draws, **__):
        asked.append(num_draws)
        return "no bounds"

    choices = types.SimpleNamespace(delta=delta, seed=0, procedure=types.SimpleNamespace(bounds=bounds))
    decision = types.SimpleNamespace(num_tests=5_000, num_calibration=5_000, selection=None)
    simultaneous_bounds(None, choices, decision)
    (draws,) = asked
    place = math.floor(delta * (draws + 1) + 1e-9)
    assert place / (draws + 1) == pytest.approx(delta, rel=1e-3)
    assert scipy.stats.beta(place, draws + 1 - place).std() <= 0.005
