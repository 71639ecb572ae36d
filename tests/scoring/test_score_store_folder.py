"""The folder of the score store: foreign, moved, full, read-only."""

import errno
import json
import os
import pathlib
import shutil

import numpy as np
import pytest
from score_stores import ABOUT, fill, key, opened, row, shards

import tdd
from tdd.scoring.store import ScoreStore
from tdd.validate import InputError


def test_folders_that_are_no_store_of_this_version(tmp_path):
    header = tmp_path / "new" / "store.json"
    header.parent.mkdir()
    header.write_text(json.dumps({"format": 9, "tdd": "7.1"}))
    with pytest.raises(InputError, match=rf"format 9, written by tdd 7.1; tdd {tdd.__version__} reads format 1: use"):
        ScoreStore(header.parent)
    for text in ("", "[]", "{}", "{"):
        header.write_text(text)
        with pytest.raises(InputError, match=r"store.json is damaged .* choose another folder, or remove"):
            ScoreStore(header.parent)
    other = tmp_path / "other"
    other.mkdir()
    for name in ("b.txt", "a.txt", ".hidden"):
        (other / name).write_text("x")
    with pytest.raises(InputError, match=r"is not a score store: it holds a.txt and 1 more, but no store.json"):
        ScoreStore(other)
    assert sorted(path.name for path in other.iterdir()) == [".hidden", "a.txt", "b.txt"]
    with pytest.raises(InputError, match=r"store='.*a.txt' is a file; a score store is a folder"):
        ScoreStore(other / "a.txt")
    with pytest.raises(InputError, match=r"cannot write .*; choose a folder"):
        ScoreStore(other / "a.txt" / "below")


def test_a_folder_under_the_name_of_another_is_never_read(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(3))
    rows.flush()
    assert json.loads((rows.folder / "namespace.json").read_text()) == ABOUT
    other = ScoreStore(tmp_path).namespace({"model": "b"}).folder
    shutil.rmtree(other)
    rows.folder.rename(other)
    assert len(ScoreStore(tmp_path).namespace({"model": "b"})) == 0


@pytest.mark.parametrize(("owner", "call"), [(pathlib.Path, "write_bytes"), (os, "fsync")])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS])
def test_a_full_or_read_only_disk(tmp_path, monkeypatch, owner, call, code):
    rows = opened(tmp_path)
    fill(rows, range(3))
    rows.flush()
    files_before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    original = getattr(owner, call)

    def failing(*arguments):
        if call == "write_bytes":
            original(arguments[0], arguments[1][:5])
        raise OSError(code, os.strerror(code))

    fill(rows, range(3, 6))
    with monkeypatch.context() as patch:
        patch.setattr(owner, call, failing)
        with pytest.raises(InputError, match="disk is full" if code == errno.ENOSPC else "Read-only file system"):
            rows.flush()
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == files_before
    rows.flush()  # the rows are still in memory
    assert len(opened(tmp_path)) == 6


def test_old_temporary_files_are_removed(tmp_path):
    rows = opened(tmp_path)
    fill(rows, range(3))
    rows.flush()
    folder = shards(tmp_path)[0].parent
    old, young = folder / ".a.part", folder / ".b.part"
    for path in (old, young):
        path.write_bytes(b"half a shard")
    os.utime(old, (0, 0))
    assert len(opened(tmp_path)) == 3
    assert not old.exists()
    assert young.exists()


def test_only_few_shards_are_held_in_memory(tmp_path):
    rows = opened(tmp_path)
    for number in range(9):
        fill(rows, [number])
        rows.flush()
    for number in [*range(9), *range(9)]:
        np.testing.assert_array_equal(rows.read(key(number)), row(number))
        assert len(rows._shards._held) <= 4
    assert sorted(range(9), key=lambda i: rows.place(key(i))) == [*range(9)]


def test_hidden_files_do_not_make_a_folder_foreign(tmp_path):
    (tmp_path / ".gitkeep").touch()
    assert len(opened(pathlib.Path(str(tmp_path)))) == 0
