"""Tables of more columns than tables of texts and scores have are refused before they fill the memory."""

import json

import pyarrow
import pyarrow.csv
import pyarrow.parquet
import pytest

import tdd
from tdd.runs.plain_csv import LARGE, MOST_FIELDS
from tdd.tables import load_score_table
from tdd.validate import InputError

MANY = MOST_FIELDS + 1


@pytest.mark.parametrize("columns", [MANY, LARGE // 8])
@pytest.mark.parametrize("read", [tdd.load_texts, load_score_table])
def test_a_csv_of_many_columns(columns, read, tmp_path, monkeypatch):
    monkeypatch.setattr(pyarrow.csv, "read_csv", None)  # not asked
    names = ",".join(f"c{i:07}" for i in range(columns))
    (tmp_path / "wide.csv").write_text(f"{names}\n{names}\n")
    with pytest.raises(InputError, match=rf"wide\.csv: {columns:,} columns, and at most 10,000 are read; keep those"):
        read(tmp_path / "wide.csv")


def test_other_formats(tmp_path):
    names = [f"c{i}" for i in range(MANY)]
    (tmp_path / "wide.jsonl").write_text(json.dumps(dict.fromkeys(names, "x")))
    (tmp_path / "wide.json").write_text(json.dumps({name: ["x"] for name in names}))
    (tmp_path / "wide.tsv").write_text("\t".join(names))
    pyarrow.parquet.write_table(pyarrow.table({name: ["x"] for name in names}), tmp_path / "wide.parquet")
    for place in sorted(tmp_path.iterdir()):
        with pytest.raises(InputError, match="10,001 columns, and at most 10,000 are read"):
            tdd.load_texts(place)
    with pytest.raises(InputError, match="memory: 10,001 columns"):
        load_score_table({name: [0.0] for name in names})


def test_as_many_columns_as_are_allowed_are_read(tmp_path):
    names = ",".join(["text", *(f"c{i}" for i in range(MOST_FIELDS - 1))])
    (tmp_path / "wide.csv").write_text(f"{names}\n{names}\n")
    assert tdd.load_texts(tmp_path / "wide.csv").texts == ("text",)


def test_many_keys_of_which_one_is_repeated(tmp_path):
    """The repeated key is found in one pass over them."""
    keys = [f'"k{i}": 0' for i in range(200_000)]
    (tmp_path / "odd.jsonl").write_text("{" + ", ".join([*keys, keys[-1]]) + "}")
    with pytest.raises(InputError, match="the key 'k199999' is there 2 times"):
        tdd.load_texts(tmp_path / "odd.jsonl")
