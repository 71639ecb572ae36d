"""Which files a source means: paths in a list, the files that a pattern matches, the shards in a folder."""

from __future__ import annotations

import glob
import os
import pathlib
import re
from collections.abc import Sequence
from typing import Any

from tdd.texts.rows import shown
from tdd.validate import InputError, some
from tdd.validate.files import parse_json

COMPRESSED = {"gz": b"\x1f\x8b", "zst": b"\x28\xb5\x2f\xfd"}
"""Endings of compressed files, behind that of the format -> the first bytes."""
_SKIPPABLE = b"\x2a\x4d\x18"
"""The last three bytes of the magic number of a frame to be skipped; the first is 0x50 to 0x5f (RFC 8878, 3.1.2)."""

_SUFFIXES = {
    "txt": (".txt",), "jsonl": (".jsonl", ".ndjson"), "parquet": (".parquet", ".pq"), "arrow": (".arrow", ".feather"),
    "eval": (".eval",), "csv": (".csv",), "tsv": (".tsv",), "json": (".json",),
}  # fmt: skip
FORMAT_OF = {suffix[1:]: name for name, suffixes in _SUFFIXES.items() for suffix in suffixes}
"""Ending of a file without the dot -> its format."""
ENDINGS = {
    name: tuple(suffix + more for suffix in suffixes for more in ("", *(f".{ending}" for ending in COMPRESSED)))
    for name, suffixes in _SUFFIXES.items()
}
"""Endings of the files of each format, in the order in which a folder is searched for them."""

_FILE_NAME = re.compile(
    rf"[^\s]+(?:{'|'.join(re.escape(ending) for endings in ENDINGS.values() for ending in endings)})", re.IGNORECASE
)
_LONGEST_PATH = 4096
_SPLITS = {
    "train": "train", "training": "train", "validation": "validation", "valid": "validation", "val": "validation",
    "dev": "validation", "eval": "validation", "evaluation": "validation", "test": "test", "testing": "test",
}  # fmt: skip
"""Words for a split in the names of files and folders, as the hub's data sets have them -> the split."""
_SPLIT = re.compile(rf"(?<![A-Za-z])(?i:({'|'.join(_SPLITS)}))(?![a-z])")


def is_compressed(data: bytes) -> bool:
    """Whether a file is one of gzip or Zstandard; of the latter, frames that are to be skipped may come first."""
    start = 0
    while data[start + 1 : start + 4] == _SKIPPABLE and data[start] >> 4 == 5 and len(data) >= start + 8:
        start += 8 + int.from_bytes(data[start + 4 : start + 8], "little")
    return data.startswith(COMPRESSED["zst"], start) or data.startswith(COMPRESSED["gz"])


def paths_of_list(items: Any) -> list[str] | None:
    """The paths in a list, or None where its strings are texts.

    `pathlib` paths are paths. Strings are paths where every one of them is a file or a folder that is there, and bears
    a separator or the ending of a file that can be read.

    Raises:
      InputError: Strings that may be either: some are names of files and others are not, or the files are missing.
    """
    if not isinstance(items, (list, tuple)) or not items or not isinstance(items[0], (str, os.PathLike)):
        return None
    if all(isinstance(item, os.PathLike) for item in items):
        return [os.fspath(item) for item in items]
    strings = [item for item in items if isinstance(item, (str, os.PathLike))]
    named = [item for item in strings if isinstance(item, os.PathLike) or _is_name(item)]
    if not named or len(strings) < len(items):
        return None
    absent = [item for item in named if not os.path.exists(item) and not (glob.has_magic(os.fspath(item)))]
    if len(named) == len(items) and not absent:
        return [os.fspath(item) for item in items]
    if len(named) < len(items) and len(absent) == len(named):
        return None  # texts, one of which happens to be a name
    other = absent[0] if len(named) == len(items) else next(item for item in items if item not in named)
    raise InputError(
        f"the list holds the name of a file, {shown(os.fspath(named[0]))}, and "
        + (f"there is no file {shown(os.fspath(other))}" if absent else f"{shown(other)}, which is none")
        + ": are these paths or texts? Give paths of files that are there, all as pathlib.Path, or the texts as "
        '{"text": [...]}'
    )


def _is_name(text: str) -> bool:
    """Whether a string is the name of a file that could be read, or the path of a file or a folder that is there."""
    if len(text) > _LONGEST_PATH or "\n" in text or "\0" in text:
        return False
    return bool(_FILE_NAME.fullmatch(text)) or (os.sep in text and os.path.exists(text))


def matched(pattern: str) -> list[str]:
    """The files that a pattern such as "data/*.parquet" matches, sorted; none if it is no pattern.

    Raises:
      InputError: a pattern that matches nothing.
    """
    if not glob.has_magic(pattern):
        return []
    if found := sorted(glob.glob(pattern, recursive=True)):
        return found
    raise InputError(f"no file matches the pattern {shown(pattern)}")


def folder_files(path: pathlib.Path, format: str | None) -> list[pathlib.Path]:
    """The files of a folder that are read, of one format: those that `datasets` lists, else all of it, by their names.

    Raises:
      InputError: none, files of several formats or several splits, or a link that leads out of the folder.
    """
    if (path / "dataset_dict.json").is_file():
        splits = sorted(entry.name for entry in path.iterdir() if (entry / "state.json").is_file())
        raise InputError(
            f"{path} holds the splits {', '.join(splits)} of a data set; give the folder of one, such as "
            f"{path / (splits or ['train'])[0]}"
        )
    if (path / "state.json").is_file() and (path / "dataset_info.json").is_file():
        return _inside(path, _saved_files(path))
    try:
        entries = sorted(entry for entry in path.rglob("*") if entry.is_file())
    except OSError as error:
        raise InputError(f"{path}: {error.filename} cannot be looked at ({error.strerror})") from None
    found = {name: [entry for entry in entries if entry.name.lower().endswith(ends)] for name, ends in ENDINGS.items()}
    kinds = [name for name, files in found.items() if files and format in (None, name)]
    if len(kinds) > 1 and kinds[-1] == "json":
        kinds.pop()  # beside data of another format, what describes them
    if len(kinds) > 1:
        counts = ", ".join(f"{len(found[name])} .{name}" for name in kinds)
        raise InputError(
            f"{path}: the folder holds files of several formats ({counts}): which are meant? Say format=... "
            f"(--input-format), or give a pattern such as {path / '**' / ('*.' + kinds[-1])}"
        )
    if not kinds:
        names = some(sorted(entry.name for entry in path.iterdir()))
        what = f"it holds {names}" if names != "none" else "it is empty"
        raise InputError(f"{path}: the folder holds no .txt file and no shard (.jsonl, .parquet, ...); {what}")
    _check_one_split(path, found[kinds[0]], kinds[0])
    return _inside(path, found[kinds[0]])


def _check_one_split(path: pathlib.Path, files: Sequence[pathlib.Path], kind: str) -> None:
    """Refuse files whose names differ in the word for a split alone, as train.jsonl and test.jsonl, beside numbers.

    The name of a .txt file is that of a text, where the topmost folder tells the split; that of a log is a task's.
    """
    found: dict[str, dict[str, pathlib.Path]] = {}
    for file in files if kind != "eval" else ():
        place = file.relative_to(path)
        name = place.parts[0] if kind == "txt" and len(place.parts) > 1 else place.as_posix()
        words = _SPLIT.findall(name)
        if len(words) == 1 and (kind != "txt" or words[0] == name):
            rest = re.sub(r"\d+", "", _SPLIT.sub("", name))
            found.setdefault(rest, {}).setdefault(_SPLITS[words[0].lower()], place)
    for places in found.values():
        if len(places) > 1:
            raise InputError(
                f"{path} holds the splits {' and '.join(places)} of a data set "
                f"({', '.join(map(str, places.values()))}): which is meant? Give its files or a pattern; "
                f"{path / '**' / ('*' + files[0].suffix)} means all"
            )


def _saved_files(path: pathlib.Path) -> list[pathlib.Path]:
    """The files of a folder that `Dataset.save_to_disk` wrote, in their order, by its state.json."""
    try:
        state = parse_json((path / "state.json").read_text("utf-8"))
        names = [entry["filename"] for entry in state["_data_files"]]
    except (ValueError, KeyError, TypeError, OSError) as error:
        raise InputError(f"{path / 'state.json'} does not list the files of a saved data set: {error}") from error
    if state.get("_indices_data_files") or state.get("_indices_files"):
        raise InputError(
            f"{path} holds a selection of rows beside the rows; save it again with datasets: "
            "load_from_disk(folder).flatten_indices().save_to_disk(new_folder)"
        )
    missing = [name for name in names if not isinstance(name, str) or not (path / name).is_file()]
    if missing or not names:
        raise InputError(
            f"{path / 'state.json'} lists files that are not there: {some(missing)}; copy the whole folder"
        )
    return [path / name for name in names]


def _inside(path: pathlib.Path, files: Sequence[pathlib.Path]) -> list[pathlib.Path]:
    home = path.resolve()
    for file in files:
        if not (place := file.resolve()).is_relative_to(home):
            raise InputError(
                f"{file} is a link out of the folder, to {place}; copy the file into the folder, or remove the link"
            )
    return [*files]
