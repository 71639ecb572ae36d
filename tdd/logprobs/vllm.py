"""vLLM's `prompt_logprobs`: [null, {"15043": {"logprob": -7.6, "rank": 41, "decoded_token": " a"}, ...}, ...].

Every position maps token ids to log-probabilities: the prompt's own token and the k most likely ones, k + 1 entries
where the own token is not among those. Which of them is the prompt's token is said by `prompt_token_ids`, and
otherwise follows only where there is one entry, or one whose rank does not continue 1, 2, 3, ...
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.logprobs.openai import choices, records
from tdd.logprobs.record import Entry, check_lengths, check_list, shown
from tdd.texts.rows import Rows
from tdd.validate.errors import InputError

__all__ = ["entries"]

_logger = logging.getLogger("tdd")


class Candidate(NamedTuple):
    """One entry of a position: token id as it is written, log-probability, rank from 1 or None."""

    token: str
    log_prob: Any
    rank: int | None


def entries(rows: Rows, *, first_entry: bool, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a record, or a choice where the list is inside the choices.

    Args:
      rows: saved `RequestOutput`s, or answers of the server.
      first_entry: the file kept vLLM's order, in which the prompt's token is the first entry of every position.
      id_field: see `read_log_probs`.
      text_field: see `read_log_probs`.
    """
    templated = 0
    for place, record, identifier, positions, tokens in _lists(rows, id_field):
        check_list(rows.source, place, "prompt_logprobs", positions)
        answers = record.get("choices")
        templated += isinstance(answers, list) and any(
            "message" in answer for answer in answers if isinstance(answer, Mapping)
        )
        if tokens is not None:
            check_list(rows.source, place, "prompt_token_ids", tokens)
            check_lengths(rows.source, place, ("prompt_logprobs", len(positions)), ("prompt_token_ids", len(tokens)))
        values = _own_log_probs(rows.source, place, positions, tokens, first_entry)
        text = record.get(text_field, record.get("prompt"))
        yield Entry(place, values, identifier, text if isinstance(text, str) else None)
    if templated:
        _logger.warning(
            "%s: %d answers are of a chat: the tokens of its template are scored with the text", rows.source, templated
        )


def _lists(rows: Rows, id_field: str | None) -> Iterator[tuple[str, Mapping[str, Any], Any, Any, Any]]:
    """Place, record, identifier, prompt_logprobs and prompt_token_ids of every text."""
    outside = "prompt_logprobs" in rows.fields and any(value is not None for value in rows.column("prompt_logprobs"))
    if outside or "choices" not in rows.fields:
        for place, record, identifier in records(rows, id_field):
            yield place, record, identifier, record.get("prompt_logprobs"), record.get("prompt_token_ids")
        return
    for choice in choices(rows, id_field):
        both = {**choice.record, **{name: value for name, value in choice.value.items() if value is not None}}
        record = choice.record if choice.number == 1 else {}
        yield choice.place, record, choice.id, both.get("prompt_logprobs"), both.get("prompt_token_ids")


def _own_log_probs(
    source: str, place: str, positions: Sequence[Any], tokens: Sequence[Any] | None, first_entry: bool
) -> list[Any]:
    """The log-probability of the prompt's own token at every position."""
    candidates = [None if entry is None else _candidates(source, place, t, entry) for t, entry in enumerate(positions)]
    fewest = min((len(entry) for entry in candidates if entry is not None), default=0)
    values: list[Any] = []
    for t, entry in enumerate(candidates):
        if entry is None:
            values.append(None)
        elif tokens is not None:
            values.append(_own_entry(source, place, t, tokens[t], {c.token: c.log_prob for c in entry}))
        else:
            chosen = _odd_candidate(entry, fewest)
            if first_entry:
                if chosen not in (None, entry[0]):
                    raise InputError(
                        f"{source}: {place}: the ranks at position {t} of prompt_logprobs contradict first_entry=True: "
                        "the order of the entries is not vLLM's; write prompt_token_ids beside them"
                    )
                chosen = entry[0]
            if chosen is None:
                raise InputError(
                    f"{source}: {place}: position {t} of prompt_logprobs has {len(entry)} entries and nothing says "
                    "which is the prompt's token; write prompt_token_ids beside them (the server: "
                    "return_token_ids=true), ask with prompt_logprobs=0, or, if the file kept vLLM's order, say "
                    "first_entry=True"
                )
            values.append(chosen.log_prob)
    return values


def _odd_candidate(entry: list[Candidate], fewest: int) -> Candidate | None:
    """The entry that can only be there because it is the prompt's token; None where that cannot be told.

    `fewest` entries at some position bound the k that was asked for: one entry there means k <= 1, so that of two
    entries elsewhere the less likely one is the prompt's.
    """
    if len(entry) == 1:
        return entry[0]
    if any(candidate.rank is None for candidate in entry):
        return None
    ordered = sorted(entry, key=lambda candidate: candidate.rank or 0)
    others_are_top = [candidate.rank for candidate in ordered[:-1]] == list(range(1, len(ordered)))
    last = ordered[-1].rank or 0
    if others_are_top and (last > len(ordered) or (last == len(ordered) and fewest == 1 and len(ordered) == 2)):
        return ordered[-1]
    return None


def _candidates(source: str, place: str, position: int, entry: Any) -> list[Candidate]:
    """The entries of a position; a bare number is the prompt's token alone."""
    if not isinstance(entry, Mapping):
        return [Candidate("", entry, None)]
    if not entry:
        raise InputError(f"{source}: {place}: position {position} of prompt_logprobs is empty")
    return [
        Candidate(str(token), value.get("logprob"), _check_rank(source, place, position, value.get("rank")))
        if isinstance(value, Mapping)
        else Candidate(str(token), value, None)
        for token, value in entry.items()
    ]


_NAMED = 5


def _own_entry(source: str, place: str, position: int, token: Any, entry: Mapping[str, Any]) -> Any:
    """The entry of the prompt's own token; a bare number has no id and is it."""
    if str(token) in entry or list(entry) == [""]:
        return entry.get(str(token), entry.get(""))
    raise InputError(
        f"{source}: {place}: position {position} of prompt_logprobs has no entry for the prompt's token {token} but "
        f"for {', '.join(list(entry)[:_NAMED])}; prompt_token_ids belong to another prompt, or these are only the most "
        "likely tokens"
    )


def _check_rank(source: str, place: str, position: int, rank: Any) -> int | None:
    """A rank from 1, or none."""
    if rank is None or (isinstance(rank, int) and not isinstance(rank, bool) and rank > 0):
        return rank
    raise InputError(f"{source}: {place}: position {position} of prompt_logprobs has the rank {shown(rank)}")
