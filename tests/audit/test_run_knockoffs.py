"""Audits with paraphrases: as columns of one table, what is found in their texts, long texts, groups."""

import csv
import io
import json

import gpt2_files
import numpy as np
import pytest
from rich.console import Console

import tdd
from tdd.cli import main
from tdd.procedures.procedure import known_procedures
from tdd.records import Texts
from tdd.report.audit import audit_report
from tdd.report.sections import to_terminal
from tdd.texts import load_text_columns

FIELDS = ["b", "c"]


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    return str(gpt2_files.write(tmp_path_factory.mktemp("model") / "gpt2")[0])


def table(seed, count, longest=14, label=None):
    """Rows of decimal words, the checkpoint's vocabulary; the paraphrases are permutations."""
    rng = np.random.default_rng(seed)
    rows = []
    for i in range(count):
        words = [str(number) for number in rng.choice(48, rng.integers(6, longest), replace=False)]
        row = {"id": f"{seed}-{i}", "text": " ".join(words), "book": f"{seed}/{i // 4}"}
        row |= {field: " ".join(rng.permutation(words[1:])) for field in FIELDS}
        rows.append(row | ({} if label is None else {"label": i % 2 if label == "both" else label}))
    return rows


CANDIDATES, CALIBRATION = table(1, 20, label="both"), table(2, 24, label=0)


def audit(checkpoint, candidates=CANDIDATES, calibration=None, **options):
    arguments = {"alpha": 0.5, "score": "loss", "method": "ktd", "knockoff_fields": FIELDS, "progress": False}
    return tdd.run_audit(checkpoint, candidates, calibration, **arguments | options)


def printed(run):
    screen = Console(file=io.StringIO(), width=200)
    screen.print(to_terminal(audit_report(run)))
    return screen.file.getvalue()


@pytest.mark.slow("long")
def test_columns_and_collections_are_the_same_audit(checkpoint):
    columns = audit(checkpoint, calibration=CALIBRATION, method="ktd:rule=conformal", label_field="label")
    texts, knockoffs, _ = load_text_columns(CANDIDATES, knockoff_fields=FIELDS, label_field="label")
    known, of_known, _ = load_text_columns(CALIBRATION, knockoff_fields=FIELDS, label_field="label")
    collections = audit(
        checkpoint,
        texts,
        known,
        method="ktd:rule=conformal",
        knockoff_fields=(),
        knockoffs=knockoffs,
        calibration_knockoffs=of_known,
    )
    assert list(columns.items) == list(collections.items)
    for name, column in columns.items.items():
        np.testing.assert_array_equal(column, collections.items[name])
    for name, column in columns.calibration.items():
        np.testing.assert_array_equal(column, collections.calibration[name])
    assert columns.run["decision"]["truth"] is not None
    assert columns.run["inputs"]["knockoff 2"]["source"] == "memory, field 'c'"


@pytest.mark.slow("long")
def test_known_nonmembers_without_the_rule_that_ranks_among_them(checkpoint):
    run = audit(checkpoint, calibration=CALIBRATION).run
    assert run["checks"]["symmetry"]["num_items"] == 24
    assert run["decision"]["num_calibration"] == 0
    assert "│ calibration items" not in printed(run)
    texts = load_text_columns(CALIBRATION).texts
    assert "symmetry" not in audit(checkpoint, calibration=texts).run["checks"]


@pytest.mark.slow("long")
@pytest.mark.parametrize(("rule", "chance"), [("multi", 8), ("conformal", 8), ("ktd", 12)])
def test_nonmembers_that_look_like_members_are_counted(checkpoint, rule, chance):
    found = audit(checkpoint, calibration=CALIBRATION, method=f"ktd:rule={rule}")
    own = found.calibration["loss"]
    copies = np.stack([found.calibration[f"loss (knockoff {j})"] for j in (1, 2)], axis=1)
    rival = copies.mean(axis=1) if rule == "ktd" else copies.min(axis=1)
    symmetry = found.run["checks"]["symmetry"]
    assert symmetry["num_leaning"] == np.sum(own < rival)
    assert symmetry["expected"] == chance
    assert f"{symmetry['num_leaning']} of them look like members (about {chance} would" in printed(found.run)


def test_the_selected_are_listed_with_the_statistic_that_decided(checkpoint):
    found = audit(checkpoint, alpha=0.9, method="ktd:rule=ktd")
    assert found.items["selected"].sum() > 2
    screen = Console(file=io.StringIO(), width=200)
    screen.print(to_terminal(audit_report(found.run, found.items)))
    report = screen.file.getvalue()
    largest = found.items["statistic"].max()
    listed = report[report.index("Selected items") :]
    first = next(line for line in listed.splitlines() if "│" in line)
    assert f"{largest:.4g}" in first
    assert "statistic" in listed
    assert "W = mean score of its knockoffs" in report


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"knockoffs": [Texts(("a",), ("1 2",))]}, "not both"),
        ({"knockoff_fields": ["b", "z"]}, "no knockoff field 'z'; fields found: id, text, book, b, c, label"),
        ({"knockoff_fields": ()}, "knockoffs are missing"),
        ({"method": "ptdi", "calibration": CALIBRATION}, "belongs to method 'ktd'"),
        ({"method": "ktd:rule=conformal"}, "calibration is missing"),
        (
            {"method": "ktd:rule=conformal", "calibration": load_text_columns(CALIBRATION).texts},
            "knockoffs of the calibration texts",
        ),
        (
            {"calibration": [{**CALIBRATION[0], "c": None}, *CALIBRATION[1:]]},
            "'c' has none for 1 of 24 rows: ids '2-0'",
        ),
        ({"candidates": load_text_columns(CANDIDATES).texts}, "names columns of a table"),
        ({"method": "ktd:unit=item", "group_field": "book"}, "unit belongs to ptdi"),
    ],
    ids=str,
)
def test_bad_input_is_refused_before_anything_is_scored(checkpoint, tmp_path, options, words):
    with pytest.raises(tdd.InputError, match=words):
        audit(checkpoint, out=tmp_path / "run", **options)
    assert not (tmp_path / "run").exists()


def test_knockoffs_that_are_no_paraphrases_are_found_and_said(checkpoint):
    rows = [dict(row) for row in CANDIDATES]
    rows[3]["b"] = rows[3]["text"]
    rows[4]["c"] = rows[4]["b"]
    rows[5]["c"] = rows[4]["text"]
    run = audit(checkpoint, rows).run
    found = run["checks"]["knockoff_texts"]
    assert [found[f"num_{name}"] for name in ("items", "unchanged", "repeated", "foreign")] == [20, 1, 1, 1]
    assert found["warning"] in run["warnings"]
    for name, words in (("1-3", "text itself"), ("1-4", "the same text"), ("1-5", "another item")):
        assert any(name in part and words in part for part in found["warning"].split(";"))
    report = printed(run)
    assert "knockoffs as texts" in report
    clean = audit(checkpoint).run
    assert clean["checks"]["knockoff_texts"]["warning"] == ""


@pytest.mark.parametrize("rule", ["multi", "ktd"])
def test_an_unchanged_text_is_never_selected(checkpoint, rule):
    rows = [{**row, "b": row["text"]} if i % 2 else row for i, row in enumerate(CANDIDATES)]
    found = audit(checkpoint, rows, knockoff_fields="b", method=f"ktd:rule={rule}", alpha=0.9)
    assert not found.items["selected"][1::2].any()
    np.testing.assert_array_equal(found.items["statistic"][1::2], 0)
    assert found.items["statistic"][::2].all()


def test_equal_texts_have_equal_scores_wherever_they_stand(checkpoint):
    """To the last bit, whatever batch they would be in: one text stands in three roles."""
    lengths = [CANDIDATES[i]["text"].split()[: 4 + i % 9] for i in range(20)]
    rows = [{**row, "text": " ".join(words)} for row, words in zip(CANDIDATES, lengths)]
    known = [{**row, "c": rows[i % 20]["text"]} for i, row in enumerate(CALIBRATION)]
    found = audit(checkpoint, rows, known, token_budget=16, score=None)
    assert found.run["model"]["scoring"]["num_windows"] < 60 + 72
    copies = found.calibration["grad_norm (knockoff 2)"]
    np.testing.assert_array_equal(copies, found.items["grad_norm"][np.arange(24) % 20])


@pytest.mark.slow("long")
def test_texts_are_cut_alike_where_the_context_ends(checkpoint):
    """Beyond the fifth token nothing counts, neither of a text nor of its knockoffs."""
    rows = [{**row, "b": row["text"] + " 1 2", "c": row["text"] + " 3"} for row in CANDIDATES]
    cut = audit(checkpoint, rows, max_length=5)
    for j in (1, 2):
        np.testing.assert_array_equal(cut.items["loss"], cut.items[f"loss (knockoff {j})"])
    found = cut.run["checks"]["long_texts"]
    assert found["num_texts"] == found["num_cut"] == 60
    assert found["warning"] in cut.run["warnings"]
    assert "60 of 60 texts" in printed(cut.run)
    assert cut.run["options"]["long_texts"] == "truncate"
    whole = audit(checkpoint).run["checks"]["long_texts"]
    assert (whole["num_texts"], whole["num_cut"], whole["warning"]) == (60, 0, "")
    with pytest.raises(tdd.InputError, match="1-0"):
        audit(checkpoint, rows, max_length=5, long_texts="error")


@pytest.mark.slow("long")
def test_groups_are_clusters_for_ptdi_and_a_warning_for_ktd(checkpoint):
    run = audit(checkpoint, group_field="book").run
    assert any("20 items come from 5 groups" in warning for warning in run["warnings"])
    ptdi = {"method": "ptdi", "knockoff_fields": (), "group_field": "book"}
    clusters = audit(checkpoint, calibration=CALIBRATION, **ptdi)
    direct = tdd.cluster_ptdi(
        clusters.calibration["loss"],
        clusters.items["loss"],
        [row["book"] for row in CALIBRATION],
        [row["book"] for row in CANDIDATES],
        alpha=0.5,
    )
    np.testing.assert_array_equal(clusters.items["p_value"], direct.p_values)
    assert clusters.run["decision"]["unit"] == "cluster"
    assert not any("takes items as exchangeable" in warning for warning in clusters.run["warnings"])


def test_other_groups_are_another_run(checkpoint, tmp_path):
    options = {"method": "ptdi", "knockoff_fields": (), "group_field": "book", "out": tmp_path / "run"}
    audit(checkpoint, calibration=CALIBRATION, **options)
    moved = [{**row, "book": f"{row['book']}{i % 2}"} for i, row in enumerate(CANDIDATES)]
    with pytest.raises(tdd.InputError, match="another folder"):
        audit(checkpoint, moved, CALIBRATION, **options)


def test_ktd_decides_on_gradient_norms_unless_told(checkpoint):
    own = {name: cls for name, cls in known_procedures().items() if cls.__module__.startswith("tdd.")}
    assert {name: procedure.score for name, procedure in own.items() if name != "ktd"} == dict.fromkeys(
        ("ptdi", "best_score", "combined_score", "conditional", "weighted", "td4eval", "jmcs", "jecs"),
        "min_k_plus_plus",
    )
    found = audit(checkpoint, token_budget=16, score=None)
    assert found.run["decision"]["columns"] == ["grad_norm"]
    asked = audit(checkpoint, token_budget=16, score="grad_norm")
    np.testing.assert_array_equal(found.items["statistic"], asked.items["statistic"])
    columns = np.stack([found.items[f"grad_norm (knockoff {j})"] for j in (1, 2)], axis=1)
    np.testing.assert_array_equal(
        tdd.ktd(found.items["grad_norm"], columns, alpha=0.5).selected, found.items["selected"]
    )


@pytest.fixture
def paths(tmp_path):
    found = {}
    for name, rows in (("candidates", CANDIDATES), ("calibration", CALIBRATION)):
        found[name] = tmp_path / f"{name}.csv"
        with open(found[name], "w", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    return found


@pytest.mark.slow("long")
def test_command_line(checkpoint, paths, tmp_path, capsys):
    options = [
        "audit",
        checkpoint,
        "--candidates",
        str(paths["candidates"]),
        "--calibration",
        str(paths["calibration"]),
    ]
    how = "--method ktd:rule=conformal --knockoffs b,c --label-field label --score loss --alpha 0.5"
    options += how.split()
    assert main([*options, "--out", str(tmp_path / "run")]) == 0
    report = capsys.readouterr().out
    for words in ("ktd/conformal", "knockoff symmetry", "knockoffs as texts", "texts cut", "field 'b'", "known truth"):
        assert words in report
    run = json.loads((tmp_path / "run" / "run.json").read_text())
    direct = audit(checkpoint, calibration=CALIBRATION, method="ktd:rule=conformal", label_field="label")
    assert run["decision"]["num_selected"] == direct.run["decision"]["num_selected"]
    with open(tmp_path / "run" / "calibration.csv", newline="") as file:
        assert next(csv.reader(file)) == ["id", "loss", "loss (knockoff 1)", "loss (knockoff 2)"]


def test_command_line_names_what_is_missing(checkpoint, paths, capsys):
    options = ["audit", checkpoint, "--candidates", str(paths["candidates"]), "--method", "ktd", "--quiet"]
    assert main([*options, "--knockoffs", "b,missing"]) != 0
    assert "no knockoff field 'missing'; fields found: id, text, book, b, c, label" in capsys.readouterr().err
    assert main([*options, "--knockoffs", "b", "--knockoffs", "text"]) != 0
    assert "the field of the texts themselves" in capsys.readouterr().err
