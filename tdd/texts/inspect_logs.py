"""Logs of inspect_ai, `.eval` and `.json` → a row a sample: "id" (task and sample), "text" (the item) and `output`.

A `.json` log is one object with `eval` and `samples`. An `.eval` log is a ZIP archive with `header.json` (of a run that
goes on `_journal/start.json`) and one `samples/ID_epoch_N.json` a sample, compressed with DEFLATE or Zstandard
(UKGovernmentBEIS/inspect_ai, log/_recorders/eval.py).
"""

from __future__ import annotations

import pathlib
import struct
import zipfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tdd.texts.compressed import check_decompressed, decompressed
from tdd.texts.rows import Rows, shown
from tdd.validate import InputError
from tdd.validate.files import check_fetched, parse_json

_HEADERS = ("header.json", "_journal/start.json")
_ZSTANDARD = 93
"""The method of Zstandard in ZIP archives."""


def read_eval(path: pathlib.Path) -> Rows:
    """The samples of an `.eval` file.

    Raises:
      InputError: no archive, a damaged one, or one that decompresses to far more than texts do.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            members = {info.filename: info for info in archive.infolist()}  # the last of a name replaces those before
            header = next((members[name] for name in _HEADERS if name in members), None)
            if header is None:
                raise InputError(f"{path}: no log of inspect_ai: the archive has neither {' nor '.join(_HEADERS)}")
            named = (info for name, info in members.items() if name.startswith("samples/") and name.endswith(".json"))
            kept = [header, *named]
            check_decompressed(str(path), sum(info.file_size for info in kept), path.stat().st_size)
            head, *samples = [parse_json(_content(path, archive, info)) for info in kept]
    except InputError:
        raise
    except (OSError, EOFError, ValueError, RuntimeError, zipfile.BadZipFile, zlib.error, struct.error) as error:
        check_fetched(path)
        raise InputError(f"{path}: not a readable log of inspect_ai: {error}") from error
    return rows_of_log(str(path), {"eval": head.get("eval") if isinstance(head, Mapping) else None, "samples": samples})


def _content(path: pathlib.Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> bytes:
    if info.compress_type != _ZSTANDARD:
        return archive.read(info)
    if info.flag_bits & 1:
        raise zipfile.BadZipFile(f"{info.filename} is encrypted")
    with path.open("rb") as file:
        file.seek(info.header_offset + 26)
        name, extra = struct.unpack("<HH", file.read(4))
        file.seek(name + extra, 1)
        content = decompressed(f"{path} ({info.filename})", file.read(info.compress_size), info.file_size)
    if len(content) != info.file_size or zlib.crc32(content) != info.CRC:
        raise zipfile.BadZipFile(f"{info.filename} is damaged: its size or CRC-32 is not the stated one")
    return content


def rows_of_log(source: str, log: Mapping[str, Any]) -> Rows:
    """The samples of a log; of those that were run in several epochs the first.

    Raises:
      InputError: no samples, an `id` that is no number or text, or two samples of one id and epoch.
    """
    samples = log.get("samples")
    if not isinstance(samples, list) or not samples or not all(isinstance(one, Mapping) for one in samples):
        raise InputError(f"{source}: the log of inspect_ai holds no samples ({shown(samples)})")
    task = log["eval"].get("task") if isinstance(log.get("eval"), Mapping) else None
    first: dict[str, Mapping[str, Any]] = {}
    seen: set[tuple[str, int]] = set()
    for place, sample in enumerate(samples, 1):
        given = sample.get("id")
        if type(given) not in (int, str) or given == "":
            raise InputError(f"{source}: sample {place}: id must be a number or a text, not {shown(given)}")
        number, epoch = str(given), _epoch(sample)
        if (number, epoch) in seen:
            raise InputError(f"{source}: sample {place}: id {shown(given)} occurs twice in epoch {epoch}")
        seen.add((number, epoch))
        if number not in first or epoch < _epoch(first[number]):
            first[number] = sample
    names = sorted(first, key=_numbers_first)
    records = [
        {
            **{field: first[name][field] for field in ("target", "epoch", "output") if field in first[name]},
            "id": f"{task}/{name}" if task else name,
            "text": "\n".join(part for part in _parts(source, first[name]) if part.strip()),
        }
        for name in names
    ]
    return Rows.of_records(source, records, lambda index: f"sample {names[index]}")


def _numbers_first(name: str) -> tuple[bool, int, str]:
    return not name.isdecimal(), len(name.lstrip("0")) if name.isdecimal() else 0, name


def _epoch(sample: Mapping[str, Any]) -> int:
    epoch = sample.get("epoch")
    return epoch if type(epoch) is int else 1


def _parts(source: str, sample: Mapping[str, Any]) -> Iterator[str]:
    """The texts of the input's messages, and the choices; long ones are kept apart, as attachments."""
    kept = sample.get("attachments")
    for text in (*_strings(sample.get("input")), *_strings(sample.get("choices"))):
        name = text.removeprefix("attachment://")
        if name == text:
            yield text
            continue
        content = kept.get(name) if isinstance(kept, Mapping) else None
        if not isinstance(content, str):
            raise InputError(f"{source}: the sample with id {shown(sample.get('id'))} has no text for {shown(text)}")
        yield content


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):  # a message, or a part of its content
        yield from _strings(value.get("content", value.get("text")))
    elif isinstance(value, Sequence):
        for part in value:
            yield from _strings(part)
