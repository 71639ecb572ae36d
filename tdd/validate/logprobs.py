"""Checks of token log-probabilities from elsewhere: layouts, units, numbers, and which scores they suffice for."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "batch_body",
    "check_choices",
    "check_count",
    "check_echo",
    "check_first_null",
    "check_lengths",
    "check_list",
    "check_numbers",
    "check_rank",
    "single_sum",
]


# Options.


# Layouts.


def check_list(source: str, place: str, name: str, value: Any) -> None:
    """A list, one element a token."""
    if not isinstance(value, list):
        raise InputError(f"{source}: {place}: {name} must be a list, one element a token, not {_short(value)}")


def check_lengths(source: str, place: str, one: tuple[str, int], other: tuple[str, int]) -> None:
    """Two lists over the same tokens."""
    if one[1] != other[1]:
        raise InputError(f"{source}: {place}: {one[0]} has {one[1]} elements, {other[0]} has {other[1]}")


def batch_body(source: str, place: str, row: Mapping[str, Any]) -> Mapping[str, Any]:
    """The answer inside a line of a batch file."""
    response = row.get("response")
    body = response.get("body") if isinstance(response, Mapping) else None
    if not isinstance(body, Mapping) or row.get("error"):
        raise InputError(f"{source}: {place}: the request failed: {_short(row.get('error') or response)}; ask it again")
    return body


def check_choices(source: str, place: str, choices: Any) -> list[Mapping[str, Any]]:
    """The choices of an answer."""
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, Mapping) for choice in choices):
        raise InputError(f"{source}: {place}: choices must be a list of objects, not {_short(choices)}")
    return choices


def check_echo(source: str, place: str, logprobs: Any) -> Mapping[str, Any]:
    """Log-probabilities of a completion."""
    if isinstance(logprobs, Mapping) and isinstance(logprobs.get("token_logprobs"), list):
        return logprobs
    if isinstance(logprobs, Mapping) and "content" in logprobs:
        raise InputError(
            f"{source}: {place}: a chat's logprobs are of the tokens that the model generated, not of a text given to "
            "it; use completions with echo=true, or vLLM's prompt_logprobs"
        )
    raise InputError(
        f"{source}: {place}: logprobs has no list token_logprobs ({_short(logprobs)}); ask with echo=true, logprobs=1 "
        "and max_tokens=0 (or 1)"
    )


def check_first_null(source: str, place: str, values: Sequence[Any]) -> None:
    """An echo begins with null."""
    if values and values[0] is not None:
        raise InputError(
            f"{source}: {place}: the first token has a log-probability ({_short(values[0])}), so the list is no echo "
            "of a prompt but what the model generated; ask with echo=true. If it is the text after all, say "
            "generated=0"
        )


def check_count(source: str, place: str, name: str, value: Any) -> int:
    """A number of tokens."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InputError(f"{source}: {place}: {name} must be a number of tokens, not {_short(value)}")
    return value


def check_rank(source: str, place: str, position: int, rank: Any) -> int | None:
    """A rank from 1, or none."""
    if rank is None or (isinstance(rank, int) and not isinstance(rank, bool) and rank > 0):
        return rank
    raise InputError(f"{source}: {place}: position {position} of prompt_logprobs has the rank {_short(rank)}")


def single_sum(source: str, place: str, name: str, value: Any) -> float:
    """The only log-likelihood of a line of lm-evaluation-harness."""
    if not isinstance(value, list) or not value:
        raise InputError(f"{source}: {place}: {name} must be a list with one log-likelihood, not {_short(value)}")
    if len(value) > 1:
        raise InputError(
            f"{source}: {place}: {name} has {len(value)} log-likelihoods (multiple choice), none of which is that of "
            "the item; use a task of type loglikelihood_rolling or loglikelihood"
        )
    found = _innermost(value)
    try:
        return float(found) if not isinstance(found, bool) else math.nan
    except (TypeError, ValueError) as error:
        raise InputError(
            f"{source}: {place}: {name} holds {_short(found)}, no log-likelihood; tasks that generate text have none"
        ) from error


# Numbers.


def check_numbers(source: str, place: str, values: Sequence[Any], offset: int) -> np.ndarray:
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
                raise InputError(f"{source}: {place}: position {position} holds {_short(value)}, no number")
    try:
        return np.array(values, np.float64)
    except OverflowError as error:
        raise InputError(f"{source}: {place}: one of the numbers has more digits than any log-probability") from error


def _innermost(value: Any) -> Any:
    return _innermost(value[0]) if isinstance(value, list) and value else value


def _short(value: Any, length: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= length else shown[: length - 3] + "..."
