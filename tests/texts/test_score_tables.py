import decimal
import json

import numpy as np
import pytest

import tdd
from tdd.tables import load_score_table
from tdd.validate import InputError

NAN = float("nan")


def frame(**changes):
    columns = {
        "id": ["a", "b", "c", "d"],
        "role": ["calibration", "candidate", "candidate", "calibration"],
        "loss": [1.5, 2.5, -3.0, 4.0],
        "label": [0, 1, None, 0],
        "book": ["x", "y", "x", "z"],
    }
    return {name: values for name, values in {**columns, **changes}.items() if values is not None}


def message(source, **options):
    with pytest.raises(InputError) as raised:
        load_score_table(source, **options)
    return str(raised.value)


def test_one_table():
    table = load_score_table(frame(), scores="loss", label_field="label", group_field="book")
    assert table.ids == ("a", "b", "c", "d")
    assert len(table) == 4
    np.testing.assert_array_equal(table.rows("calibration"), [0, 3])
    np.testing.assert_array_equal(table.values("loss", "calibration"), [1.5, 4.0])
    np.testing.assert_array_equal(table.values("loss", "candidate"), [2.5, -3.0])
    assert table.values("loss", "member").size == 0
    assert table.scores["loss"].dtype == np.float64
    np.testing.assert_array_equal(table.labels, [0, 1, -1, 0])
    assert table.groups == ("x", "y", "x", "z")
    assert table.source == "memory"


def test_two_roles_whose_words_differ_in_capitals_only():
    roles = ["c", "C", "other", "c"]
    table = load_score_table(
        frame(role=roles), scores="loss", calibration_role="c", member_role="C", candidate_role=None
    )
    assert table.roles.tolist() == ["calibration", "member", "candidate", "calibration"]


def test_files_agree_with_memory(tmp_path):
    data = frame(label=None, book=None, loss=["1.5", "2.5", "", "4e0"])
    expected = load_score_table(frame(label=None, book=None, loss=[1.5, 2.5, NAN, 4.0]))
    rows = [dict(zip(data, row, strict=True)) for row in zip(*data.values(), strict=True)]
    lines = [",".join(data), *(",".join(row.values()) for row in rows)]
    (tmp_path / "t.csv").write_text("\n".join(lines))
    (tmp_path / "t.jsonl").write_text("\n".join(json.dumps(row) for row in rows))
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pytest.importorskip("pyarrow").table(data), tmp_path / "t.parquet")
    for name in ("t.csv", "t.jsonl", "t.parquet"):
        table = load_score_table(tmp_path / name)
        assert table.sha256 == expected.sha256
        assert table.source == str(tmp_path / name)
        assert table.num_missing("loss", "candidate") == 1
        assert table.num_missing("loss", "calibration") == 0


def test_known_labels_give_the_roles():
    data = {"label": ["0", "", "1", "0"], "loss": [1, 2, 3, 4]}
    roles = {"role_field": "label", "calibration_role": "0"}
    table = load_score_table(data, **roles, candidate_role=None)
    np.testing.assert_array_equal(table.rows("candidate"), [1, 2])
    assert table.ids == ("1", "2", "3", "4")
    table = load_score_table(data, **roles, candidate_role="", member_role="1")
    np.testing.assert_array_equal(table.rows("candidate"), [1])
    np.testing.assert_array_equal(table.rows("member"), [2])
    found = message(data, **roles, candidate_role="1")
    assert "role column 'label' holds '' at index 1; expected '0' for calibration, '1' for candidate" in found
    assert "found: '0' (2 rows), '' (1 rows), '1' (1 rows)" in found
    same = message(data, **roles, candidate_role="0")
    assert "two roles have the same word" in same


def test_words_for_every_other_row_are_looked_at(caplog):
    roles = {"calibration_role": "calibration", "candidate_role": None}
    data = {"role": ["calibration", "Calibration", "suspect"], "loss": [1, 2, 3]}
    found = message(data, **roles)
    assert "holds 'Calibration' at index 1 where 'calibration' is the word for calibration" in found
    data["role"][1] = ""
    assert len(load_score_table(data, **roles).rows("candidate")) == 2
    assert "1 rows have no role in column 'role' and are taken as candidates" in caplog.text


def test_separate_tables():
    candidates, known = {"loss": [1, 2]}, {"loss": [3, 4, 5], "more": [0, 0, 0]}
    table = load_score_table(candidates, calibration=known, members={"loss": [0]})
    assert table.ids == ("1", "2", "calibration-1", "calibration-2", "calibration-3", "member-1")
    np.testing.assert_array_equal(table.values("loss", "candidate"), [1, 2])
    np.testing.assert_array_equal(table.values("loss", "calibration"), [3, 4, 5])
    np.testing.assert_array_equal(table.values("loss", "member"), [0])
    assert table.source == "memory + memory + memory"
    assert "there is no score column 'loss'; columns found: nll" in message(candidates, calibration={"nll": [1]})
    assert "role_field='role' and calibration=..." in message(candidates, calibration=known, role_field="role")
    assert "members=... needs calibration=..." in message(candidates, members=known)
    shared = message({"id": ["a", "b"], "loss": [1, 2]}, calibration={"id": ["c", "b"], "loss": [1, 2]})
    assert "1 ids of calibration items are also ids of candidate items ('b')" in shared


def test_polarity_is_converted_once():
    table = load_score_table(
        frame(logp=[1, 2, NAN, 4]), scores=["loss", "logp"], higher_is_member="logp", label_field="label"
    )
    np.testing.assert_array_equal(table.scores["logp"], [-1, -2, NAN, -4])
    np.testing.assert_array_equal(table.scores["loss"], [1.5, 2.5, -3.0, 4.0])
    assert table.flipped == ("logp",)
    assert "names 'zlib', which is not among the scores: loss" in message(
        frame(), scores="loss", higher_is_member=["zlib"]
    )


def test_missing_scores_are_nan():
    values = [None, "NA", " nan ", "", NAN, np.float32(2), decimal.Decimal("0.5"), 7, " 8 ", "-1e-3"]
    table = load_score_table({"s": values}, calibration={"s": [1]})
    np.testing.assert_array_equal(table.values("s", "candidate"), [NAN] * 5 + [2, 0.5, 7, 8, -0.001])
    assert table.num_missing("s", "candidate") == 5
    rows = [{"role": "calibration", "s": 1}, {"role": "candidate"}, {"role": "candidate", "s": 2}]
    assert load_score_table(rows).num_missing("s", "candidate") == 1


@pytest.mark.parametrize("bad", ["x", "1,5", "1_0", "٣", "１.５", True, [1], {}, 1j, "0x10"])
def test_scores_that_are_no_numbers(bad):
    found = message(frame(loss=[1, 2, bad, 3]), scores="loss")
    assert f"score column 'loss' holds {bad!r} at index 2, no number" in found


@pytest.mark.parametrize("bad", ["inf", float("-inf"), "1e999", 10**400, "Infinity"])
def test_infinite_scores(bad):
    found = message(frame(loss=[1, 2, bad, bad]), scores="loss")
    assert "score column 'loss' is infinite at index 2 (2 such rows)" in found


def test_score_names():
    assert "(--score); columns left: loss, label, book" in message(frame())
    assert "no score column 'los'; columns found: id, role, loss" in message(frame(), scores=["loss", "los"])
    assert "'role' is used for ids, roles, labels or groups" in message(frame(), scores="role")
    assert "'loss' is named twice" in message(frame(), scores=["loss", "loss"])
    assert "no score column is named" in message(frame(), scores=())


def test_roles_and_fields():
    only = frame(role=["candidate"] * 4)
    assert "no calibration items: role column 'role' holds 'candidate' (4 rows)" in message(only, scores="loss")
    only = frame(role=["calibration"] * 4)
    assert "no candidates" in message(only, scores="loss")
    assert "role_field='role'; fields found: loss" in message({"loss": [1.0]})
    assert "group_field='chapter'" in message(frame(), scores="loss", group_field="chapter")
    assert "group column 'book' is empty at index 1" in message(
        frame(book=["x", None, "x", "x"]), scores="loss", group_field="book"
    )
    assert "label at index 0 must be 1 (member) or 0" in message(
        frame(label=["yes"] * 4), scores="loss", label_field="label"
    )
    assert "repeated: 'a' at index 0 and index 1" in message(frame(id=list("aabc")), scores="loss")
    assert "rows are bare values" in message(["a", "b"])
    assert "has no value for any candidate" in message(frame(loss=[1, NAN, NAN, 2]), scores="loss")
    assert "has no value for any calibration item" in message(frame(loss=[NAN, 1, 2, NAN]), scores="loss")
    assert "empty" in message({"loss": [1.0]}, calibration={"loss": []})


def test_csv_errors_name_the_line(tmp_path):
    path = tmp_path / "t.csv"
    path.write_text("role,loss\ncalibration,1\ncandidate,oops\n")
    assert f"{path}: score column 'loss' holds 'oops' at line 3" in message(path)


def test_table_libraries():
    data = frame(loss=[1.5, NAN, -3.0, 4.0])
    expected = load_score_table(data, scores="loss", label_field="label", group_field="book")
    for library in ("pandas", "polars"):
        table = pytest.importorskip(library).DataFrame(data)
        loaded = load_score_table(table, scores="loss", label_field="label", group_field="book")
        assert loaded.sha256 == expected.sha256


def test_hash_depends_on_every_part():
    options = {"scores": "loss", "label_field": "label", "group_field": "book"}
    changes = [
        {},
        {"loss": [1.5, 2.5, -3.0, 4.5]},
        {"role": ["candidate", "calibration", "candidate", "calibration"]},
        {"label": [0, 1, 0, 0]},
        {"book": ["x", "y", "x", "x"]},
        {"id": ["a", "b", "c", "e"]},
    ]
    assert len({load_score_table(frame(**change), **options).sha256 for change in changes}) == len(changes)


@pytest.mark.shared_data
def test_real_table(shared_data):
    path = shared_data / "booktection" / "scores.csv"
    options = {
        "scores": ("GPT3_Perplexity", "LLaMA2-13B_Zlib"),
        "role_field": "label",
        "calibration_role": "0",
        "candidate_role": "1",
        "label_field": "label",
        "group_field": "book",
    }
    table = load_score_table(path, **options)
    assert len(table) == 5502
    assert len(set(table.groups)) == 165
    assert table.rows("calibration").size + table.rows("candidate").size == 5502
    np.testing.assert_array_equal(table.labels == 0, table.roles == "calibration")
    assert "'a95d3531f871' at line 234 and line 252" in message(path, id_field="sha1", **options)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda table: tdd.select(table, alpha=0.1, score=3), "score must be a name or a sequence of names, got 3"),
        (lambda table: tdd.select(table, alpha=0.1, method="ktd", knockoffs=3), "knockoffs must be a name"),
        (lambda table: tdd.select(table, alpha=0.1, higher_is_member=3), "higher_is_member must be a name"),
        (lambda table: tdd.load(3), "path must be a checkpoint folder or a hub id, got 3"),
    ],
)
def test_names_of_another_kind(call, words):
    table = {"role": ["calibration", "candidate"], "loss": [1.0, 2.0]}
    with pytest.raises(tdd.InputError, match=words):
        call(table)
