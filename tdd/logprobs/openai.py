"""Completions with `echo`: choices[].logprobs = {"tokens": [...], "token_logprobs": [null, -3.2, ...], ...}.

The list of an echo holds the prompt and then whatever was generated after it (`max_tokens` of some servers is at
least 1). Only the prompt is the text; generated tokens are dropped.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from typing import Any

from tdd.logprobs.record import Entry
from tdd.logprobs.responses import Choice, choices
from tdd.texts.rows import Rows
from tdd.validate import logprobs as checks
from tdd.validate.errors import InputError

__all__ = ["entries"]

_logger = logging.getLogger("tdd")


def entries(rows: Rows, *, generated: int | None, id_field: str | None, text_field: str) -> Iterator[Entry]:
    """One text a choice.

    Args:
      rows: the answers.
      generated: tokens at the end of each list that the model generated; None: by `usage.completion_tokens`.
      id_field: see `read_log_probs`.
      text_field: see `read_log_probs`.
    """
    unknown = 0
    for choice in choices(rows, id_field):
        found = checks.check_echo(rows.source, choice.place, choice.value.get("logprobs"))
        values, tokens = found["token_logprobs"], found.get("tokens")
        if isinstance(tokens, list):
            checks.check_lengths(rows.source, choice.place, ("token_logprobs", len(values)), ("tokens", len(tokens)))
        if generated is None:
            checks.check_first_null(rows.source, choice.place, values)
        usage = choice.record.get("usage")
        unknown += generated is None and not isinstance(usage, Mapping)
        count = _num_generated(rows, choice, usage) if generated is None else generated
        _check_generated(rows.source, choice.place, count, len(values))
        kept = len(values) - count
        yield Entry(choice.place, values[:kept], choice.id, _text(choice, tokens, kept, count, text_field))
    if unknown:
        _logger.warning(
            "%s: %d choices do not say how many tokens were generated (usage.completion_tokens): taken for 0; "
            "give generated= where max_tokens was not 0",
            rows.source,
            unknown,
        )


def _num_generated(rows: Rows, choice: Choice, usage: Any) -> int:
    """Generated tokens of a choice. `usage` counts those of all choices; one each is what max_tokens=1 gives."""
    total = usage.get("completion_tokens") if isinstance(usage, Mapping) else 0
    total = checks.check_count(rows.source, choice.place, "usage.completion_tokens", total or 0)
    if choice.number == 1 or total == 0:
        return total
    if total == choice.number:
        return 1
    raise _unknown_generated(rows.source, choice.place, total, choice.number)


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


def _check_generated(source: str, place: str, generated: int, length: int) -> None:
    """Tokens of the text are left."""
    if generated >= length > 0:
        raise InputError(
            f"{source}: {place}: all {length} tokens were generated ({generated}), none is of a prompt; ask with echo"
        )


def _unknown_generated(source: str, place: str, total: int, choices: int) -> InputError:
    """Generated tokens that cannot be attributed to choices."""
    return InputError(
        f"{source}: {place}: {total} tokens were generated in {choices} choices, and how many in each is not said; "
        "ask with max_tokens=0 (or 1), or give generated= if it is the same number everywhere"
    )
