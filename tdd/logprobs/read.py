"""Any source of token log-probabilities → `LogProbs`: layout, units, and what must not be there."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import math
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, TypedDict

import numpy as np

from tdd.logprobs import engines, plain, servers
from tdd.logprobs.record import Entry, LogProbs, check_one_layout, joined, masks_of
from tdd.logprobs.statistics import (
    STATISTICS,
    check_informative,
    check_log_probs,
    check_numbers,
    check_statistics,
    check_sums,
)
from tdd.texts import Rows, hash_texts, paths_of, read_rows
from tdd.texts import rows as text_checks
from tdd.texts.samples import identified, of_one_filter, request_parts
from tdd.texts.shards import FORMAT_OF, folder_files
from tdd.validate import InputError

_logger = logging.getLogger("tdd")
_OF_SUMS = ("lm-eval", "olmes")

FORMATS = ("auto", "plain", "openai", "vllm", "together", "sglang", "tgi", "lm-eval", "olmes", "inspect")
"""Layouts by name; "auto" tells them apart by their fields."""


class ReadingOptions(TypedDict, total=False):
    """The fields of `Reading` as keywords of a call."""

    format: str
    base: Any
    polarity: str
    floor: float | None
    field: str | None
    id_field: str | None
    text_field: str
    generated: int | None
    first_entry: bool


@dataclasses.dataclass(frozen=True)
class Reading:
    """Layout and units of a file of log-probabilities; see `tdd.score_log_probs` for the options."""

    format: str = "auto"
    base: Any = "e"
    polarity: str = "log_prob"
    floor: float | None = -9999.0
    field: str | None = None
    id_field: str | None = None
    text_field: str = "text"
    generated: int | None = None
    first_entry: bool = False

    def check(self) -> float:
        """Check all options; return the nats in one unit of the file."""
        if self.format not in FORMATS:
            raise InputError(f"format={self.format!r} is not known; layouts: {', '.join(FORMATS)}")
        if self.polarity not in ("log_prob", "loss"):
            raise InputError(
                f"polarity={self.polarity!r} is unknown; use 'log_prob' (log p, at most 0) or 'loss' (-log p)"
            )
        floor, generated = self.floor, self.generated
        if floor is not None and (isinstance(floor, str) or not -math.inf < _number(floor) < 0):
            raise InputError(f"floor={floor!r} must be a negative number, or None to refuse minus infinity")
        if generated is not None and (isinstance(generated, bool) or not isinstance(generated, int) or generated < 0):
            raise InputError(f"generated={generated!r} must be a number of tokens, 0 or more")
        base = math.e if self.base == "e" else _number(self.base)
        if not 1 < base < math.inf:
            raise InputError(
                f"base={self.base!r} is not a valid logarithm base; use 'e', 2, 10 or another number above 1"
            )
        return 1.0 if self.base == "e" else math.log(base)


def _number(value: Any) -> float:
    """A number, or its digits, as a float; NaN for anything else."""
    try:
        return math.nan if isinstance(value, bool) else text_checks.number_of(value)
    except (TypeError, ValueError, ArithmeticError):
        return math.nan


def read_log_probs(source: Any, reading: Reading = Reading()) -> LogProbs:
    """Read a dump.

    Args:
      source: a path (.jsonl, .json, .parquet, also .gz; other endings are read as JSON lines), or the records
        themselves, as a list of dicts or a table.
      reading: layout and units.

    Raises:
      InputError: unreadable source, a layout that cannot be told or does not hold log-probabilities of the texts'
        own tokens, numbers that are none or not possible; the message names file, row and value.

    Cost: linear in the file, which is held in memory once.
    """
    scale = reading.check()
    rows, name = _rows(source, reading.format)
    entries = list(_entries(rows, name, reading))
    check_one_layout(rows.source, entries)
    ids, groups = _items(rows.source, entries, reading)
    read = [_positions(rows.source, entry, reading, scale) for entry in entries]
    several = [entry._replace(values=entry.choices) for entry in entries if entry.choices]
    choices = [_log_probs(rows.source, entry, reading, scale, 0) for entry in several]
    if reading.floor is not None:
        choices = [np.maximum(values, float(reading.floor)) for values in choices]
    if all("log_prob" in one.statistics for one in read):
        of_choices = choices or [one.statistics["log_prob"].sum(keepdims=True) for one in read]
        check_sums(rows.source, [entry.place for entry in entries], of_choices)
    if len(entries) > 1 and all(_begins_with_zero(entry.values) for entry in entries):
        _logger.warning(
            "%s: all %d lists begin with 0, a token that was certain, which counts; if it stands for the first token, "
            "which has no context, write null in its place",
            *(rows.source, len(entries)),
        )
    if num_floored := sum(one.num_floored for one in read):
        _logger.warning(
            "%s: %d log-probabilities are at or below %g, which servers write for minus infinity; they count as %g",
            *(rows.source, num_floored, reading.floor, reading.floor),
        )
    choices = choices if len(choices) == len(entries) else []
    slices = joined(rows.source, [one.slices for one in read], groups)

    def of_items(arrays: Sequence[np.ndarray]) -> tuple[np.ndarray, ...]:
        return tuple(
            arrays[group[0]] if len(group) == 1 else np.concatenate([arrays[i] for i in group]) for group in groups
        )

    statistics = {key: of_items([one.statistics[key] for one in read]) for key in read[0].statistics}
    sums = [values.sum() for values in statistics["log_prob"]] if "log_prob" in statistics else [math.nan] * len(ids)
    hashed = [*statistics.values(), *([choices] if choices else []), *slices.values()]
    names = "" if [*statistics] == ["log_prob"] and not slices else repr((*statistics, *slices))
    with_ids = name not in _OF_SUMS and all(len(one.token_ids) for one in read)
    return LogProbs(
        ids,
        {} if name in _OF_SUMS else statistics,
        np.array(sums, np.float64),
        tuple(next((entries[i].text for i in group if entries[i].text is not None), None) for group in groups),
        name,
        num_floored,
        rows.source,
        sha256=hash_texts(ids, [_hash_numbers(names, arrays) for arrays in zip(*hashed, strict=True)]),
        file_sha256=_hash_files(source),
        choices=tuple(choices),
        token_ids=of_items([one.token_ids for one in read]) if with_ids else (),
        slices=slices,
        counts=np.array([entry.count for entry in entries], np.int64) if name == "olmes" else None,
    )


def _begins_with_zero(values: Any) -> bool:
    return isinstance(values, Sequence) and len(values) > 1 and values[0] == 0 and any(values)


def _items(source: str, entries: Sequence[Entry], reading: Reading) -> tuple[tuple[str, ...], list[list[int]]]:
    """Identifiers of the N items, and the entries of each: one, or one for each of its slices."""
    num_without_id = sum(entry.id is None for entry in entries)
    if num_without_id and (num_without_id < len(entries) or reading.id_field is not None):
        raise InputError(f"{source}: {num_without_id} of {len(entries)} rows have no id; give all an id, or none")
    in_parts = any(isinstance(entry.slices, str) for entry in entries)
    if num_without_id and in_parts:
        raise InputError(f"{source}: rows of one slice each belong together by their id, and have none")
    if num_without_id:
        return tuple(str(number) for number in range(1, len(entries) + 1)), [[i] for i in range(len(entries))]
    groups: dict[Any, list[int]] = {}
    for i, entry in enumerate(entries):
        groups.setdefault(str(entry.id) if in_parts else i, []).append(i)
    first = [group[0] for group in groups.values()]
    ids = text_checks.identifier_column(source, [entries[i].id for i in first], lambda k: entries[first[k]].place)
    for identifier, group in zip(ids, groups.values(), strict=True):
        seen: dict[Any, int] = {}
        for i in group:
            if (other := seen.setdefault(entries[i].slices if in_parts else i, i)) != i:
                raise InputError(
                    f"{source}: the slice {entries[i].slices!r} of {identifier!r} is at {entries[other].place} and "
                    f"{entries[i].place}; an item has each slice once"
                )
    return ids, [*groups.values()]


class _Positions(NamedTuple):
    """The scored positions of an entry: [n] of every statistic, in nats, of every slice, and of the tokens' ids."""

    statistics: dict[str, np.ndarray]
    slices: dict[str, np.ndarray]
    token_ids: np.ndarray
    num_floored: int


def _positions(source: str, entry: Entry, reading: Reading, scale: float) -> _Positions:
    """Check the numbers of an entry, and leave out positions without context and, with slices, those in none."""
    own = {"log_probs": entry.values} if isinstance(entry.values, Sequence) else {}
    lists = {**own, **entry.statistics}
    first = {name: len(values) > 0 and values[0] is None for name, values in lists.items()}
    offset = int(any(first.values()))  # the first token has no context
    if offset and not all(first.values()):
        absent, given = (next(name for name in first if first[name] is null) for null in (True, False))
        raise InputError(
            f"{source}: {entry.place}: position 0 is null in {absent} and not in {given}; the first token counts in "
            "all lists or in none"
        )
    found = {} if entry.values is None else {"log_prob": _log_probs(source, entry, reading, scale, offset)}
    for name in (name for name in STATISTICS if name in lists):
        with np.errstate(over="ignore"):  # what becomes infinite is refused
            found[name] = check_numbers(source, entry.place, lists[name][offset:], offset, name) * scale
    if "log_prob" in found:
        check_informative(f"{source}: {entry.place}", found["log_prob"])
    check_statistics(f"{source}: {entry.place}", found, scale, offset)
    length = len(next(iter(found.values())))
    masks, ids = masks_of(source, entry, offset, length), np.array(entry.token_ids[offset:], np.int64)
    if masks and not (kept := np.logical_or.reduce([*masks.values()])).all():
        found = {name: values[kept] for name, values in found.items()}
        masks, ids = {name: mask[kept] for name, mask in masks.items()}, ids[kept] if len(ids) else ids
    num_floored = 0
    if reading.floor is not None and "log_prob" in found:
        floor = float(reading.floor)
        num_floored = int(np.count_nonzero(found["log_prob"] <= floor))
        found["log_prob"] = np.maximum(found["log_prob"], floor)
    return _Positions(found, masks, ids, num_floored)


def _rows(source: Any, format: str) -> tuple[Rows, str]:
    """The rows of a dump, and its layout; files whose ending says nothing are JSON lines.

    Samples of lm-evaluation-harness get their identifiers, the task and the number of the item.
    """
    parts = []
    for file in (one for path in paths_of(source) for one in _samples_of(path) or [path]):
        endings = {suffix.lower().lstrip(".") for suffix in pathlib.Path(file).suffixes[-2:]}
        known = endings & FORMAT_OF.keys() or os.path.isdir(file)
        parts.append(read_rows(file, format=None if known else "jsonl"))
    rows = text_checks.joined(parts) if parts else read_rows(source)
    name = _detect(rows) if format == "auto" else format
    if name != "lm-eval":
        return rows, name
    asked = request_parts(rows.column("arguments")[0]) if "arguments" in rows.fields else []
    generated = any(isinstance(part, Mapping) for parts in asked for part in parts)  # refused when answers are read
    same = ("doc", "arguments", *(() if generated else ("filtered_resps",)))
    return identified(parts, same) if parts else of_one_filter(rows, same), name


def _samples_of(path: Any) -> list[pathlib.Path]:
    """The samples of lm-evaluation-harness in a folder, a task each, whose names their items need."""
    return sorted(pathlib.Path(path).glob("samples_*.jsonl*")) if os.path.isdir(path) else []


def _detect(rows: Rows) -> str:
    """The layout that the fields name."""
    fields = set(rows.fields)
    if {"prompt", "choices"} <= fields and engines.is_together(rows.column("prompt")[0]):
        return "together"
    if "meta_info" in fields:
        return "sglang"
    if "details" in fields:
        return "tgi"
    if "model_output" in fields:
        return "olmes"
    if {"epoch", "output"} <= fields:
        return "inspect"
    if "prompt_logprobs" in fields and ("choices" not in fields or rows.column("prompt_logprobs")[0] is not None):
        return "vllm"
    if "choices" in fields or {"response", "custom_id"} <= fields:
        return _server_layout(rows.column("choices" if "choices" in fields else "response")[0])
    if "doc_id" in fields and fields & {"filtered_resps", "resps"}:
        return "lm-eval"
    if fields & {*plain.FIELDS, *STATISTICS}:
        return "plain"
    raise InputError(
        f"{rows.source}: no layout of token log-probabilities that is known; fields found: "
        f"{', '.join(map(str, rows.fields)) or 'none'}. Known: a list in log_probs or token_logprobs (plain), choices "
        "with logprobs (openai), prompt_logprobs (vllm), prompt with logprobs (together), meta_info with "
        "input_token_logprobs (sglang), details with prefill (tgi), doc_id with filtered_resps (lm-eval), model_output "
        "with sum_logits (olmes), output with prompt_logprobs (inspect); name a list with field (--log-prob-field), "
        "and the layout plain"
    )


def _server_layout(answer: Any) -> str:
    """Which of the two lists the first choice of an answer has; an echo says for itself which tokens are the text's."""
    body = answer.get("body") if isinstance(answer, Mapping) else {"choices": answer}
    body = body if isinstance(body, Mapping) else {}
    answers = body.get("choices")
    choice = answers[0] if isinstance(answers, list) and answers else None
    lists = [part.get("prompt_logprobs") for part in (body, choice) if isinstance(part, Mapping)]
    logprobs = choice.get("logprobs") if isinstance(choice, Mapping) else None
    echo = logprobs.get("token_logprobs") if isinstance(logprobs, Mapping) else None
    echoed = isinstance(echo, list) and echo[:1] == [None]
    return "vllm" if not echoed and any(isinstance(value, list) for value in lists) else "openai"


def _entries(rows: Rows, name: str, reading: Reading) -> Iterator[Entry]:
    readers: dict[str, Callable[..., Iterator[Entry]]] = {
        "plain": functools.partial(plain.plain_entries, field=reading.field),
        "openai": functools.partial(servers.openai_entries, generated=reading.generated),
        "vllm": functools.partial(servers.vllm_entries, first_entry=reading.first_entry),
        "together": engines.together_entries,
        "sglang": engines.sglang_entries,
        "tgi": engines.tgi_entries,
        "lm-eval": plain.lm_eval_entries,
        "olmes": engines.olmes_entries,
        "inspect": engines.inspect_entries,
    }
    if reading.id_field is not None:
        text_checks.existing_field(rows.source, "id_field", reading.id_field, rows.fields)
    return readers[name](rows, id_field=reading.id_field, text_field=reading.text_field)


def _log_probs(source: str, entry: Entry, reading: Reading, scale: float, offset: int) -> np.ndarray:
    """The log-probabilities behind the first `offset` positions in nats: [n] float64, n >= 1."""
    values: Sequence[Any] = entry.values if isinstance(entry.values, Sequence) else [entry.values]
    raw = check_numbers(source, entry.place, values[offset:], offset)
    nats = (-raw if reading.polarity == "loss" else raw) * scale
    check_log_probs(f"{source}: {entry.place}", nats, raw, offset, reading.polarity, reading.floor)
    return np.minimum(nats, 0.0)


def _hash_numbers(names: str, arrays: Sequence[np.ndarray]) -> str:
    """SHA-256 of the arrays of a text, and of their names where there is more than log-probabilities."""
    data = b"".join([names.encode(), *(values.astype("<f8").tobytes() for values in arrays)])
    return hashlib.sha256(data).hexdigest()


def _hash_files(source: Any) -> str:
    """SHA-256 of a file, or of the hashes of several, hexadecimal; "" for records in memory."""
    named = [pathlib.Path(path) for path in paths_of(source)]
    files = [
        file for path in named for file in (_samples_of(path) or folder_files(path, None) if path.is_dir() else [path])
    ]
    hashes = []
    for path in files:
        with open(path, "rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("\n".join(hashes).encode()).hexdigest() if hashes else ""
