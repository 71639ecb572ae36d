"""Several files as one source: lists of paths, patterns, folders of shards, saved data sets; compressed and MIMIR's."""

import json
import os
import pathlib

import pyarrow
import pyarrow.feather
import pyarrow.parquet
import pytest

from tdd.tables import load_score_table
from tdd.texts import load_text_columns, load_texts
from tdd.validate import InputError

TEXTS = ("one text", "two texts", "three texts", "four texts")


def message(source, **options):
    with pytest.raises(InputError) as raised:
        load_texts(source, **options)
    return str(raised.value)


@pytest.fixture
def shards(tmp_path):
    for number in range(2):
        table = pyarrow.table({"text": TEXTS[2 * number : 2 * number + 2]})
        pyarrow.parquet.write_table(table, tmp_path / f"a-0000{number}.parquet")
    return tmp_path


@pytest.mark.parametrize("kind", ["strings", "paths", "tuple", "pattern", "folder", "folder in a list"])
def test_every_way_to_name_shards_gives_all_texts_in_order(shards, kind):
    files = sorted(map(str, shards.iterdir()))
    sources = {
        "strings": files,
        "paths": [pathlib.Path(file) for file in files],
        "tuple": tuple(files),
        "pattern": str(shards / "a-*.parquet"),
        "folder": shards,
        "folder in a list": [shards],
    }
    texts = load_texts(sources[kind])
    assert texts.texts == TEXTS
    assert texts.ids == ("1", "2", "3", "4")
    assert load_text_columns(sources[kind]).texts.sha256 == texts.sha256


def test_names_of_files_are_never_taken_for_texts(shards, monkeypatch):
    monkeypatch.chdir(shards)
    assert load_texts(["a-00000.parquet", "a-00001.parquet"]).texts == TEXTS
    assert "there is no file 'b.parquet': are these paths or texts?" in message(["a-00000.parquet", "b.parquet"])
    assert "there is no file" in message(["x.jsonl", "y.jsonl"])
    assert "'A text.', which is none: are these paths or texts?" in message(["a-00000.parquet", "A text."])
    assert load_texts(["README.md", "a sentence about x.json", "y.csv"]).texts[2] == "y.csv"
    assert load_texts({"text": ["x.jsonl", "y.jsonl"]}).texts == ("x.jsonl", "y.jsonl")
    assert "no file matches the pattern 'b-*.parquet'" in message("b-*.parquet")


def test_score_tables_and_dumps_are_read_from_lists_too(tmp_path):
    from tdd import score_log_probs

    for number in range(2):
        rows = [{"id": f"{number}-{k}", "s": k, "log_probs": [None, -1.0 - k, -2.0]} for k in range(2)]
        (tmp_path / f"{number}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    files = sorted(map(str, tmp_path.iterdir()))
    assert load_score_table(files, scores="s", calibrated=False).ids == ("0-0", "0-1", "1-0", "1-1")
    for source in (files, str(tmp_path / "*.jsonl"), tmp_path):
        assert score_log_probs(source, "loss")["loss"].tolist() == [1.5, 2.0, 1.5, 2.0]


def test_a_list_of_paths_is_several_data_sets_of_exchange(shards):
    from tdd.exchange.data import load_sets

    files = sorted(shards.iterdir())
    assert [one.examples for one in load_sets(files)] == [TEXTS[:2], TEXTS[2:]]
    assert load_sets([*map(str, files)]) == load_sets(files)
    assert [one.examples for one in load_sets([*TEXTS])] == [TEXTS]


def test_a_repeated_id_names_both_files(tmp_path):
    for name in ("a", "b"):
        (tmp_path / f"{name}.jsonl").write_text('{"id": "x", "text": "some text"}\n')
    found = message(tmp_path)
    assert f"'x' at {tmp_path}/a.jsonl, line 1 and {tmp_path}/b.jsonl, line 1" in found


def test_a_folder_of_several_formats_asks(shards):
    (shards / "notes.txt").write_text("not a shard")
    assert "files of several formats (1 .txt, 2 .parquet): which are meant?" in message(shards)
    assert load_texts(shards, format="parquet").texts == TEXTS
    (shards / "notes.txt").unlink()
    (shards / "info.json").write_text("{}")
    assert load_texts(shards).texts == TEXTS


@pytest.mark.parametrize(
    ("names", "splits"),
    [
        (("train-00000-of-00002.jsonl", "train-00001-of-00002.jsonl", "test-00000-of-00001.jsonl"), "test and train"),
        (("data/Train.jsonl", "data/validation.jsonl", "readme.jsonl"), "train and validation"),
        (("trainData.jsonl", "testData.jsonl"), "test and train"),
        (("train/pos/1.txt", "test/pos/1.txt"), "test and train"),
    ],
)
def test_a_folder_of_several_splits_asks(tmp_path, names, splits):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "a"}')
    assert f"the splits {splits} of a data set" in message(tmp_path)
    if not names[0].endswith(".txt"):
        assert len(load_texts(str(tmp_path / "**" / "*.jsonl"))) == len(names)


@pytest.mark.parametrize(
    "names",
    [
        ("training manual.txt", "test plan.txt"),
        ("src/dev/a.txt", "src/test/a.txt"),
        ("trainer.jsonl", "latest.jsonl"),
        ("wiki-test.jsonl", "driver-training.jsonl"),
        ("eval.jsonl", "validation.jsonl"),
        ("train_test.jsonl", "test.jsonl"),
    ],
)
def test_other_names_are_those_of_texts_and_of_shards(tmp_path, names):
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text('{"text": "a"}')
    assert len(load_texts(tmp_path)) == 2


def test_shards_of_bare_texts_and_of_records_do_not_mix(tmp_path):
    (tmp_path / "a.jsonl").write_text('"one text"\n')
    (tmp_path / "b.jsonl").write_text('{"text": "two texts"}\n')
    assert "a.jsonl holds bare texts" in message(tmp_path)


def test_what_datasets_saves(tmp_path):
    datasets = pytest.importorskip("datasets")
    data = datasets.Dataset.from_dict({"text": [*TEXTS], "label": [0, 1, 0, 1]})
    data.save_to_disk(tmp_path / "saved", num_shards=2)
    texts = load_texts(tmp_path / "saved", label_field="label")
    assert (texts.texts, texts.labels) == (TEXTS, (0, 1, 0, 1))
    assert load_texts(str(tmp_path / "saved" / "*.arrow")).texts == TEXTS
    datasets.DatasetDict({"train": data, "test": data}).save_to_disk(tmp_path / "splits")
    assert "holds the splits test, train of a data set" in message(tmp_path / "splits")
    os.remove(tmp_path / "saved" / "data-00001-of-00002.arrow")
    assert "lists files that are not there: data-00001" in message(tmp_path / "saved")


def test_arrow_files(tmp_path, monkeypatch):
    table = pyarrow.table({"text": TEXTS})
    pyarrow.feather.write_feather(table, str(tmp_path / "a.arrow"))
    assert load_texts(tmp_path / "a.arrow").texts == TEXTS
    (tmp_path / "b.arrow").write_bytes(b"no Arrow")
    assert "b.arrow: not a readable Arrow file" in message(tmp_path / "b.arrow")
    monkeypatch.setattr("tdd.texts.compressed.LARGEST_DECOMPRESSED", 10_000)
    pyarrow.feather.write_feather(pyarrow.table({"text": ["a" * 9_000_000]}), str(tmp_path / "c.arrow"), "zstd")
    assert "as no text does" in message(tmp_path / "c.arrow")


def test_zstandard(tmp_path, monkeypatch):
    path = tmp_path / "a.jsonl.zst"
    lines = [json.dumps({"text": text}).encode() + b"\n" for text in TEXTS]
    frames = [pyarrow.compress(b"".join(half), codec="zstd", asbytes=True) for half in (lines[:2], lines[2:])]
    path.write_bytes(b"".join(frames))
    assert load_texts(path).texts == TEXTS
    skipped = b"\x5a\x2a\x4d\x18\x03\x00\x00\x00abc"  # a frame of the user's own, which readers pass over
    path.write_bytes(skipped * 2 + skipped.join(frames) + skipped)
    assert load_texts(path).texts == TEXTS
    path.write_bytes(b"".join(frames)[:-4])
    assert "a.jsonl.zst: cannot be read: Truncated compressed stream" in message(path)
    monkeypatch.setattr("tdd.texts.compressed.LARGEST_DECOMPRESSED", 10_000)
    path.write_bytes(pyarrow.compress(b"[" * 10_000_000, codec="zstd", asbytes=True))
    assert "as no text does" in message(path)


def test_mimirs_files(tmp_path):
    lines = tmp_path / "member.jsonl"
    lines.write_text("".join(json.dumps(text) + "\n" for text in TEXTS))
    assert load_texts(lines).texts == TEXTS
    both = tmp_path / "both.json"
    both.write_text(json.dumps({"member": TEXTS[:2], "nonmember": TEXTS[2:]}))
    assert "fields found: member, nonmember; name it with text_field (--text-field)" in message(both)
    assert load_texts(both, text_field="nonmember").texts == TEXTS[2:]
    both.write_text(json.dumps({"member": TEXTS[:3], "nonmember": TEXTS[3:]}))
    assert "the lists member (3), nonmember (1) have different lengths" in message(both)
    lines.write_text('"one text"\n{"text": "two texts"}\n')
    assert "line 1 is not an object with named fields" in message(lines)
