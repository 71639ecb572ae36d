"""A text and its paraphrases as columns of one table."""

import csv
import json

import pandas as pd
import pytest

from tdd.records import Texts
from tdd.texts import load_text_columns, load_texts
from tdd.validate import InputError

ROWS = [
    {
        "id": f"t{i}",
        "text": f"text number {i}",
        "b": f"number {i} of texts",
        "c": f"text {i}",
        "label": i % 2,
        "book": f"B{i // 2}",
    }
    for i in range(8)
]
BOTH = ["b", "c"]


def write(path, rows):
    if path.suffix == ".csv":
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pd.DataFrame(rows).to_parquet(path)
    else:
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def changed(*changes):
    """ROWS with (row, field, value) put in; the value ... takes the field away."""
    rows = [dict(row) for row in ROWS]
    for index, field, value in changes:
        if value is ...:
            del rows[index][field]
        else:
            rows[index][field] = value
    return rows


@pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", None])
def test_all_sources_give_the_same(tmp_path, ending):
    source = ROWS if ending is None else write(tmp_path / f"table.{ending}", ROWS)
    found = load_text_columns(source, knockoff_fields=BOTH, label_field="label", group_field="book")
    assert found.texts == load_texts(source, label_field="label")
    assert [texts.texts for texts in found.knockoffs] == [tuple(row[field] for row in ROWS) for field in BOTH]
    assert {texts.ids for texts in found.knockoffs} == {tuple(row["id"] for row in ROWS)}
    assert found.groups == tuple(row["book"] for row in ROWS)
    assert len({texts.sha256 for texts in (found.texts, *found.knockoffs)}) == 3
    assert "'b'" in found.knockoffs[0].source


def test_one_field_by_its_name_alone():
    assert load_text_columns(ROWS, knockoff_fields="b") == load_text_columns(ROWS, knockoff_fields=["b"])
    assert load_text_columns(ROWS).knockoffs == ()
    assert load_text_columns(ROWS).groups == ()


@pytest.mark.parametrize("value", [..., None, "", " \n", float("nan"), pd.NA], ids=str)
def test_a_missing_knockoff_names_its_row(value):
    with pytest.raises(
        InputError, match=r"field 'b' has none for 2 of 8 rows: ids 't3' \(index 3\), 't5' \(index 5\)\."
    ):
        load_text_columns(changed((3, "b", value), (5, "b", value)), knockoff_fields=BOTH)


def test_missing_knockoffs_of_all_fields_are_listed_at_once(tmp_path):
    rows = changed(*((i, "b", "") for i in range(7)), (2, "c", ""))
    path = write(tmp_path / "table.csv", rows)
    with pytest.raises(InputError) as error:
        load_text_columns(path, knockoff_fields=BOTH)
    message = str(error.value)
    assert message.startswith(f"{path}: knockoffs are missing")
    assert "'b' has none for 7 of 8 rows: ids 't0' (line 2)" in message
    assert "'t4' (line 6) and 2 more" in message
    assert "'t5'" not in message
    assert "'c' has none for 1 of 8 rows: ids 't2' (line 4)" in message


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["b", "d", "e"], r"no knockoff field 'd', 'e'; fields found: id, text, b, c, label, book"),
        (["b", "b"], "'b' twice"),
        (["text"], "'text', the field of the texts themselves"),
        (["label"], "field 'label': the text at index 0 is a value of type int"),
    ],
    ids=str,
)
def test_fields_that_cannot_be_knockoffs(fields, words):
    with pytest.raises(InputError, match=words):
        load_text_columns(ROWS, knockoff_fields=fields)


def test_the_text_is_no_knockoff_of_its_own_under_a_common_name():
    rows = [{"input": row["text"], "b": row["b"]} for row in ROWS]
    with pytest.raises(InputError, match="'input', the field of the texts themselves"):
        load_text_columns(rows, knockoff_fields=["input"])


def test_rows_without_fields_have_no_knockoffs():
    with pytest.raises(InputError, match="the rows have no named fields"):
        load_text_columns(["one", "two"], knockoff_fields=["b"])


def test_groups_must_be_there_and_filled():
    with pytest.raises(InputError, match="no field group_field='author'; fields found"):
        load_text_columns(ROWS, group_field="author")
    with pytest.raises(InputError, match="'book' is empty at index 1"):
        load_text_columns(changed((1, "book", None)), group_field="book")


def test_texts_have_no_columns():
    texts = Texts(("a",), ("a text",))
    assert load_text_columns(texts).texts is texts
    for options in ({"knockoff_fields": ["b"]}, {"group_field": "book"}):
        with pytest.raises(InputError, match="names columns of a table"):
            load_text_columns(texts, **options)
