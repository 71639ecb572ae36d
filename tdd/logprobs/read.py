"""Any source of token log-probabilities → `LogProbs`: layout, units, and what must not be there."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import logging
import math
import numbers
import os
import pathlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tdd.logprobs import plain, servers
from tdd.logprobs.record import Entry, LogProbs
from tdd.texts import Rows, hash_texts, read_rows
from tdd.texts import rows as text_checks
from tdd.validate import InputError

__all__ = ["FORMATS", "Reading", "read_log_probs"]

_logger = logging.getLogger("tdd")

FORMATS = ("auto", "plain", "openai", "vllm", "lm-eval")
"""Layouts by name; "auto" tells them apart by their fields."""


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
        real = isinstance(floor, numbers.Real) and not isinstance(floor, bool)
        if floor is not None and not (real and -math.inf < float(floor) < 0):
            raise InputError(f"floor={floor!r} must be a negative number, or None to refuse minus infinity")
        if generated is not None and (isinstance(generated, bool) or not isinstance(generated, int) or generated < 0):
            raise InputError(f"generated={generated!r} must be a number of tokens, 0 or more")
        try:
            base = math.e if self.base == "e" else float(self.base)
        except (TypeError, ValueError):
            base = math.nan
        if isinstance(self.base, bool) or not 1 < base < math.inf:
            raise InputError(
                f"base={self.base!r} is not a valid logarithm base; use 'e', 2, 10 or another number above 1"
            )
        return 1.0 if self.base == "e" else math.log(base)


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
    rows = _rows(source)
    name = _detect(rows) if reading.format == "auto" else reading.format
    entries = list(_entries(rows, name, reading))
    ids = tuple(str(number) for number in range(1, len(entries) + 1))
    num_without_id = sum(entry.id is None for entry in entries)
    if num_without_id and (num_without_id < len(entries) or reading.id_field is not None):
        raise InputError(f"{rows.source}: {num_without_id} of {len(entries)} rows have no id; give all an id, or none")
    if not num_without_id:
        given = [entry.id for entry in entries]
        ids = text_checks.identifier_column(rows.source, given, lambda index: entries[index].place)
    tokens, num_floored = [_log_probs(rows.source, entry, reading, scale) for entry in entries], 0
    several = [entry._replace(values=entry.choices) for entry in entries if entry.choices]
    choices = [_log_probs(rows.source, entry, reading, scale) for entry in several]
    if reading.floor is not None:
        num_floored = sum(int(np.count_nonzero(values <= reading.floor)) for values in tokens)
        tokens, choices = ([np.maximum(values, reading.floor) for values in part] for part in (tokens, choices))
    if num_floored:
        _logger.warning(
            "%s: %d log-probabilities are at or below %g, which servers write for minus infinity; they count as %g",
            *(rows.source, num_floored, reading.floor, reading.floor),
        )
    choices = choices if len(choices) == len(entries) else []
    hashed = [np.concatenate(parts) for parts in zip(tokens, choices, strict=True)] if choices else tokens
    return LogProbs(
        ids,
        () if name == "lm-eval" else tuple(tokens),
        np.array([values.sum() for values in tokens], np.float64),
        tuple(entry.text for entry in entries),
        name,
        num_floored,
        rows.source,
        sha256=hash_texts(ids, [hashlib.sha256(values.astype("<f8").tobytes()).hexdigest() for values in hashed]),
        file_sha256=_hash_file(source),
        choices=tuple(choices),
    )


def _rows(source: Any) -> Rows:
    if not isinstance(source, (str, os.PathLike)):
        return read_rows(source)
    endings = {suffix.lower().lstrip(".") for suffix in pathlib.Path(source).suffixes[-2:]}
    known = endings & {*text_checks.FORMATS, "ndjson", "pq"}
    return read_rows(source, format=None if known else "jsonl")


def _detect(rows: Rows) -> str:
    """The layout that the fields name."""
    fields = set(rows.fields)
    if "prompt_logprobs" in fields and ("choices" not in fields or rows.column("prompt_logprobs")[0] is not None):
        return "vllm"
    if "choices" in fields or {"response", "custom_id"} <= fields:
        return _server_layout(rows.column("choices" if "choices" in fields else "response")[0])
    if "doc_id" in fields and fields & {"filtered_resps", "resps"}:
        return "lm-eval"
    if fields & set(plain.FIELDS):
        return "plain"
    raise InputError(
        f"{rows.source}: no layout of token log-probabilities that is known; fields found: "
        f"{', '.join(map(str, rows.fields)) or 'none'}. Known: a list in log_probs or token_logprobs (plain), choices "
        "with logprobs (openai), prompt_logprobs (vllm), doc_id with filtered_resps (lm-eval); name a list with "
        "field= and format='plain'"
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
        "lm-eval": plain.lm_eval_entries,
    }
    if reading.id_field is not None:
        text_checks.existing_field(rows.source, "id_field", reading.id_field, rows.fields)
    return readers[name](rows, id_field=reading.id_field, text_field=reading.text_field)


def _log_probs(source: str, entry: Entry, reading: Reading, scale: float) -> np.ndarray:
    """The scored tokens' log-probabilities in nats: [n] float64, n >= 1."""
    values: Sequence[Any] = entry.values if isinstance(entry.values, Sequence) else [entry.values]
    offset = int(len(values) > 0 and values[0] is None)  # the first token has no context
    raw = _check_numbers(source, entry.place, values[offset:], offset)
    nats = (-raw if reading.polarity == "loss" else raw) * scale
    _check_log_probs(f"{source}: {entry.place}", nats, raw, offset, reading)
    return np.minimum(nats, 0.0)


def _hash_file(source: Any) -> str:
    if not isinstance(source, (str, os.PathLike)):
        return ""
    with open(source, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


_ROUNDING = 1e-6
"""Log-probabilities this far above 0 are roundings of 0."""


def _check_log_probs(where: str, nats: np.ndarray, raw: np.ndarray, offset: int, reading: Reading) -> None:
    """Neither NaN nor above 0; minus infinity only where a floor takes it."""

    def first(wrong: np.ndarray) -> tuple[int, float]:
        index = int(np.argmax(wrong))
        return index + offset, float(raw[index])

    if (missing := np.isnan(nats)).any():
        raise InputError(f"{where}: position {first(missing)[0]} holds NaN; leave the row out or score it again")
    if (above := nats > _ROUNDING).any():
        position, value = first(above)
        if reading.polarity == "loss":
            raise InputError(f"{where}: position {position} holds {value:g}; -log p is never below 0")
        hint = "; if the numbers are -log p, say polarity='loss'" if (raw >= 0).all() else ""
        raise InputError(f"{where}: position {position} holds {value:g}; a log-probability is never above 0{hint}")
    if reading.floor is None and (below := np.isinf(nats)).any():
        raise InputError(
            f"{where}: position {first(below)[0]} holds minus infinity, which makes the score infinite; give "
            "floor=, a smallest log-probability"
        )


def _check_numbers(source: str, place: str, values: Sequence[Any], offset: int) -> np.ndarray:
    """Scored tokens as numbers: [n] float64, n >= 1. `offset` positions stand before them."""
    if not values:
        raise InputError(f"{source}: {place} has no scored token; the first of a text is never scored, so give two")
    kinds = {type(value) for value in values}
    if not kinds <= {float, int}:
        for position, value in enumerate(values, start=offset):
            if value is None:
                raise InputError(
                    f"{source}: {place}: position {position} has no log-probability (null); only the first token may "
                    "lack one. Servers leave out what they had cached: switch prefix caching off and ask again"
                )
            if isinstance(value, bool) or not isinstance(value, numbers.Real):
                raise InputError(f"{source}: {place}: position {position} holds {text_checks.shown(value)}, no number")
    try:
        return np.array(values, np.float64)
    except OverflowError as error:
        raise InputError(f"{source}: {place}: one of the numbers has more digits than any log-probability") from error
