"""Answers of servers: completions with `echo` (OpenAI's layout), and vLLM's `prompt_logprobs`.

choices[].logprobs = {"tokens": [...], "token_logprobs": [null, -3.2, ...], ...}. The list of an echo holds the prompt
and then whatever was generated after it (`max_tokens` of some servers is at least 1). Only the prompt is the text;
generated tokens are dropped.

prompt_logprobs = [null, {"15043": {"logprob": -7.6, "rank": 41, "decoded_token": " a"}, ...}, ...]. Every position maps
token ids to log-probabilities: the prompt's own token and the k most likely ones, k + 1 entries where the own token is
not among those. `prompt_token_ids` tell which of them is the prompt's token; otherwise it follows only where there is
one entry, or one whose rank does not continue 1, 2, 3, ...
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.logprobs.record import Entry, check_lengths, check_list
from tdd.texts.rows import Rows, shown
from tdd.validate import InputError

_logger = logging.getLogger("tdd")

_NAMED = 5
_SERVER_IDS = ("cmpl-", "chatcmpl-", "batch_req_", "gen-")
"""Prefixes of identifiers that a server drew at random; they do not name texts."""


class Choice(NamedTuple):
    """One choice `value` of an answer `record` of so many choices; `place` leads a person to it."""

    place: str
    record: Mapping[str, Any]
    value: Mapping[str, Any]
    number: int
    id: Any


def records(rows: Rows, id_field: str | None) -> Iterator[tuple[str, Mapping[str, Any], Any]]:
    """Place, answer and identifier of every row; answers inside a batch file are taken out of their wrapping."""
    columns = {name: rows.column(name) for name in rows.fields}
    for index in range(rows.num_rows):
        row = {name: column[index] for name, column in columns.items() if column[index] is not None}
        identifier = row.get(id_field) if id_field else row.get("custom_id", row.get("id"))
        if id_field is None and isinstance(identifier, str) and identifier.startswith(_SERVER_IDS):
            identifier = None
        record = row
        if "response" in rows.fields and "choices" not in row:
            record = {**row, **_batch_body(rows.source, rows.place(index), row)}
        yield rows.place(index), record, identifier


def choices(rows: Rows, id_field: str | None) -> Iterator[Choice]:
    """Every choice of every answer. Several choices of one answer are called "<id>-<index>"."""
    for place, record, identifier in records(rows, id_field):
        answers = record.get("choices")
        if not isinstance(answers, list) or not answers or not all(isinstance(answer, Mapping) for answer in answers):
            raise InputError(f"{rows.source}: {place}: choices must be a list of objects, not {shown(answers)}")
        if len(answers) == 1:
            yield Choice(place, record, answers[0], 1, identifier)
            continue
        for position, value in enumerate(answers):
            index = value.get("index", position)
            name = None if identifier is None else f"{identifier}-{index}"
            yield Choice(f"{place}, choice {index}", record, value, len(answers), name)


def openai_entries(rows: Rows, *, generated: int | None, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a choice; the last `generated` tokens are the model's, None takes `usage.completion_tokens`."""
    unknown = 0
    for choice in choices(rows, id_field):
        logprobs = _check_echo(rows.source, choice.place, choice.value.get("logprobs"))
        values, tokens = logprobs["token_logprobs"], logprobs.get("tokens")
        if isinstance(tokens, list):
            check_lengths(rows.source, choice.place, ("token_logprobs", len(values)), ("tokens", len(tokens)))
        usage = choice.record.get("usage")
        echoed = values[:1] == [0] and isinstance(usage, Mapping) and usage.get("completion_tokens") == 0
        if generated is None and values and values[0] is not None and not echoed:
            raise InputError(
                f"{rows.source}: {choice.place}: the first token has a log-probability ({shown(values[0])}), so the "
                "list is not an echo of a prompt but what the model generated; ask with echo=true and max_tokens=0"
                + (", or give generated=0 if the server writes 0 for the first token" if values[0] == 0 else "")
            )
        _check_generated(rows, choice, usage, generated)
        if values and values[0] == 0:  # what some servers write in the place of null
            values = [None, *values[1:]]
        unknown += generated is None and not isinstance(usage, Mapping)
        count = _num_generated(rows, choice, usage) if generated is None else generated
        if count >= len(values) > 0:
            raise InputError(
                f"{rows.source}: {choice.place}: all {len(values)} tokens were generated ({count}), none is of a "
                "prompt; ask with echo"
            )
        kept = len(values) - count
        yield Entry(choice.place, values[:kept], choice.id, _text(choice, tokens, kept, count, text_field))
    if unknown:
        _logger.warning(
            "%s: %d choices do not say how many tokens were generated (usage.completion_tokens): taken for 0; "
            "give generated (--generated) where max_tokens was not 0",
            rows.source,
            unknown,
        )


def _check_generated(rows: Rows, choice: Choice, usage: Any, generated: int | None) -> None:
    """What a user says of the generated tokens, and what the answer says, agree."""
    told = usage.get("completion_tokens") if isinstance(usage, Mapping) and choice.number == 1 else None
    if generated is not None and type(told) is int and told != generated:
        raise InputError(
            f"{rows.source}: {choice.place}: generated={generated}, and the answer says that {told} tokens were "
            "generated (usage.completion_tokens); leave generated (--generated) out"
        )


def _num_generated(rows: Rows, choice: Choice, usage: Any) -> int:
    """Generated tokens of a choice. `usage` counts those of all choices; one each is what max_tokens=1 gives."""
    total = (usage.get("completion_tokens") if isinstance(usage, Mapping) else 0) or 0
    if isinstance(total, bool) or not isinstance(total, int) or total < 0:
        raise InputError(
            f"{rows.source}: {choice.place}: usage.completion_tokens must be a number of tokens, not {shown(total)}"
        )
    if choice.number == 1 or total == 0:
        return total
    if total == choice.number:
        return 1
    raise InputError(
        f"{rows.source}: {choice.place}: {total} tokens were generated in {choice.number} choices, and how many in "
        "each is not said; ask with max_tokens=0 (or 1), or give generated (--generated) if it is the "
        "same number everywhere"
    )


def _text(choice: Choice, tokens: Any, kept: int, generated: int, text_field: str) -> str | None:
    """The echoed prompt, where it can be told."""
    given = choice.record.get(text_field)
    if choice.number == 1 and isinstance(given, str):
        return given
    whole = choice.value.get("text")
    if not isinstance(whole, str) or not generated:
        return whole if isinstance(whole, str) else None
    if isinstance(tokens, list) and all(isinstance(token, str) for token in tokens):
        prompt = "".join(tokens[:kept])
        return prompt if whole.startswith(prompt) else None
    return None


def _batch_body(source: str, place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer inside a line of a batch file."""
    response = row.get("response")
    body = response.get("body") if isinstance(response, Mapping) else None
    if not isinstance(body, Mapping) or row.get("error"):
        raise InputError(f"{source}: {place}: the request failed: {shown(row.get('error') or response)}; ask it again")
    return body


def _check_echo(source: str, place: str, logprobs: Any) -> Mapping[str, Any]:
    """Log-probabilities of a completion."""
    if isinstance(logprobs, Mapping) and isinstance(logprobs.get("token_logprobs"), list):
        return logprobs
    if isinstance(logprobs, Mapping) and "content" in logprobs:
        raise InputError(
            f"{source}: {place}: a chat's logprobs are of the tokens that the model generated, not of a text given to "
            "it; use completions with echo=true, or vLLM's prompt_logprobs"
        )
    raise InputError(
        f"{source}: {place}: logprobs has no list token_logprobs ({shown(logprobs)}); ask with echo=true, logprobs=1 "
        "and max_tokens=0 (or 1)"
    )


class Candidate(NamedTuple):
    """One entry of a position: token id as it is written, log-probability, rank from 1 or None."""

    token: str
    log_prob: Any
    rank: int | None


def vllm_entries(rows: Rows, *, first_entry: bool, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a saved `RequestOutput` or answer, or a choice where the list is inside the choices.

    With `first_entry` the file kept vLLM's order, in which the prompt's token is the first entry of every position.
    """
    templated = 0
    order = _Order()
    for place, record, identifier, found, tokens in _lists(rows, id_field):
        if isinstance(found, Mapping) and "start_indices" in found:
            found = _flat(rows.source, place, found)
        check_list(rows.source, place, "prompt_logprobs", found)
        positions: Any = found
        answers = record.get("choices")
        templated += isinstance(answers, list) and any(
            "message" in answer for answer in answers if isinstance(answer, Mapping)
        )
        if tokens is not None:
            check_list(rows.source, place, "prompt_token_ids", tokens)
            check_lengths(rows.source, place, ("prompt_logprobs", len(positions)), ("prompt_token_ids", len(tokens)))
        values = _own_log_probs(rows.source, place, positions, tokens, first_entry)
        if first_entry and tokens is None:
            order.see(positions)
        text = record.get(text_field, record.get("prompt"))
        yield Entry(place, values, identifier, text if isinstance(text, str) else None)
    order.check(rows.source)
    if templated:
        _logger.warning(
            "%s: %d answers are of a chat: the tokens of its template are scored with the text", rows.source, templated
        )


def _flat(source: str, place: str, flat: Mapping[str, Any]) -> list[Any]:
    """vLLM's `FlatLogprobs`: the entries of position i are start_indices[i] to end_indices[i], the prompt's own first.

    Source: vllm-project/vllm, vllm/logprobs.py. A position without entries is that of the first token.
    """
    names = ("start_indices", "end_indices", "token_ids", "logprobs")
    for name in names:
        check_list(source, place, f"prompt_logprobs.{name}", flat.get(name))
    starts, ends, ids, numbers = (flat[name] for name in names)
    check_lengths(source, place, ("start_indices", len(starts)), ("end_indices", len(ends)))
    check_lengths(source, place, ("token_ids", len(ids)), ("logprobs", len(numbers)))
    for start, end in zip(starts, ends, strict=True):
        if type(start) is not int or type(end) is not int or not 0 <= start <= end <= len(ids):
            raise InputError(
                f"{source}: {place}: prompt_logprobs has a position of the entries {shown(start)} to {shown(end)}, of "
                f"{len(ids)}"
            )
    return [
        None if start == end else {str(ids[start]): {"logprob": numbers[start]}}
        for start, end in zip(starts, ends, strict=True)
    ]


_SORTED = 16
"""So many positions of several entries, all of them in the order of ids or of ranks, were sorted by somebody."""


class _Order:
    """Whether a file's positions may be in vLLM's order, in which the prompt's token goes before the likely ones."""

    def __init__(self) -> None:
        self.several, self.by_id, self.by_rank = 0, 0, 0

    def see(self, positions: Sequence[Any]) -> None:
        """Count the positions of one text."""
        for entry in positions:
            if not isinstance(entry, Mapping) or len(entry) < 2:
                continue
            self.several += 1
            ids = [int(token) if str(token).isascii() and str(token).isdigit() else -1 for token in entry]
            values = [one.get("logprob") if isinstance(one, Mapping) else one for one in entry.values()]
            numbers = [one if isinstance(one, (int, float)) else -math.inf for one in values]
            self.by_id += ids == sorted(ids)
            self.by_rank += numbers == sorted(numbers, reverse=True)

    def check(self, source: str) -> None:
        """Refuse an order that was made afterwards: the first entry is then some token, not the prompt's."""
        if self.several >= _SORTED and self.several in (self.by_id, self.by_rank):
            how = "token id" if self.several == self.by_id else "likelihood"
            raise InputError(
                f"{source}: the entries of all {self.several} positions of prompt_logprobs are sorted by {how}, so "
                "they are not in vLLM's order and first_entry=True would take another token than the prompt's; write "
                "prompt_token_ids beside them (the server: return_token_ids=true)"
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
