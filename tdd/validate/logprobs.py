"""Checks of token log-probabilities from elsewhere: layouts, units, numbers, and which scores they suffice for."""

from __future__ import annotations

import math
import numbers
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "ROUNDING",
    "ambiguous_token",
    "batch_body",
    "check_all_or_none",
    "check_choices",
    "check_count",
    "check_echo",
    "check_first_entry",
    "check_first_null",
    "check_generated",
    "check_lengths",
    "check_list",
    "check_log_probs",
    "check_numbers",
    "check_position",
    "check_rank",
    "check_reading",
    "detected",
    "list_field",
    "nats_of",
    "own_entry",
    "single_sum",
    "unknown_generated",
]

ROUNDING = 1e-6
"""Log-probabilities this far above 0 are roundings of 0."""

_NAMED = 5


# Options.


def check_reading(
    format: str, formats: Sequence[str], polarity: str, floor: float | None, generated: int | None
) -> None:
    """Layout, polarity, floor, generated tokens."""
    if format not in formats:
        raise InputError(f"format={format!r} is not known; layouts: {', '.join(formats)}")
    if polarity not in ("log_prob", "loss"):
        raise InputError(f"polarity={polarity!r} is unknown; use 'log_prob' (log p, at most 0) or 'loss' (-log p)")
    real = isinstance(floor, numbers.Real) and not isinstance(floor, bool)
    if floor is not None and not (real and -math.inf < float(floor) < 0):
        raise InputError(f"floor={floor!r} must be a negative number, or None to refuse minus infinity")
    if generated is not None and (isinstance(generated, bool) or not isinstance(generated, int) or generated < 0):
        raise InputError(f"generated={generated!r} must be a number of tokens, 0 or more")


def nats_of(base: Any) -> float:
    """Nats in one unit of a logarithm to `base`: "e", or a number above 1."""
    if base == "e":
        return 1.0
    try:
        number = float(base)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(base, bool) or not 1 < number < math.inf:
        raise InputError(f"base={base!r} is no base of a logarithm; use 'e', 2, 10 or another number above 1")
    return math.log(number)


# Layouts.


def detected(source: str, fields: Sequence[str], found: str | None) -> str:
    """The layout, if the fields tell it."""
    if found is None:
        raise InputError(
            f"{source}: no layout of token log-probabilities that is known; fields found: "
            f"{', '.join(map(str, fields)) or 'none'}. Known: a list in log_probs or token_logprobs (plain), choices "
            "with logprobs (openai), prompt_logprobs (vllm), doc_id with filtered_resps (lm-eval); name a list with "
            "field= and format='plain'"
        )
    return found


def list_field(source: str, field: str | None, fields: Sequence[str], known: Sequence[str]) -> str:
    """The field with the list: the named one, or the only one of the usual names."""
    present = [field] if field is not None else [name for name in known if name in fields]
    if len(present) != 1 or present[0] not in fields:
        wanted = f"there is no field {field!r}" if field is not None else f"the list of numbers could be {present}"
        raise InputError(f"{source}: {wanted}; fields found: {', '.join(map(str, fields))}; name one with field=")
    return present[0]


def check_list(source: str, place: str, name: str, value: Any) -> None:
    """A list, one element a token."""
    if not isinstance(value, list):
        raise InputError(f"{source}: {place}: {name} must be a list, one element a token, not {_short(value)}")


def check_lengths(source: str, place: str, one: tuple[str, int], other: tuple[str, int]) -> None:
    """Two lists over the same tokens."""
    if one[1] != other[1]:
        raise InputError(f"{source}: {place}: {one[0]} has {one[1]} elements, {other[0]} has {other[1]}")


def check_all_or_none(source: str, field: str | None, ids: Sequence[Any]) -> None:
    """Either every row has an identifier or none has."""
    missing = sum(identifier is None for identifier in ids)
    if missing != len(ids) or field is not None:
        raise InputError(f"{source}: {missing} of {len(ids)} rows have no id; give all an id, or none")


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


def check_generated(source: str, place: str, generated: int, length: int) -> None:
    """Tokens of the text are left."""
    if generated >= length > 0:
        raise InputError(
            f"{source}: {place}: all {length} tokens were generated ({generated}), none is of a prompt; ask with echo"
        )


def unknown_generated(source: str, place: str, total: int, choices: int) -> InputError:
    """Generated tokens that cannot be attributed to choices."""
    return InputError(
        f"{source}: {place}: {total} tokens were generated in {choices} choices, and how many in each is not said; "
        "ask with max_tokens=0 (or 1), or give generated= if it is the same number everywhere"
    )


def check_position(source: str, place: str, position: int, entry: Mapping[str, Any]) -> None:
    """At least one candidate."""
    if not entry:
        raise InputError(f"{source}: {place}: position {position} of prompt_logprobs is empty")


def check_rank(source: str, place: str, position: int, rank: Any) -> int | None:
    """A rank from 1, or none."""
    if rank is None or (isinstance(rank, int) and not isinstance(rank, bool) and rank > 0):
        return rank
    raise InputError(f"{source}: {place}: position {position} of prompt_logprobs has the rank {_short(rank)}")


def own_entry(source: str, place: str, position: int, token: Any, entry: Mapping[str, Any]) -> Any:
    """The entry of the prompt's own token; a bare number has no id and is it."""
    if str(token) in entry or list(entry) == [""]:
        return entry.get(str(token), entry.get(""))
    raise InputError(
        f"{source}: {place}: position {position} of prompt_logprobs has no entry for the prompt's token {token} but "
        f"for {', '.join(list(entry)[:_NAMED])}; prompt_token_ids belong to another prompt, or these are only the most "
        "likely tokens"
    )


def ambiguous_token(source: str, place: str, position: int, number: int) -> InputError:
    """Several candidates, and nothing says which is the prompt's."""
    return InputError(
        f"{source}: {place}: position {position} of prompt_logprobs has {number} entries and nothing says which is the "
        "prompt's token; write prompt_token_ids beside them (the server: return_token_ids=true), ask with "
        "prompt_logprobs=0, or, if the file kept vLLM's order, say first_entry=True"
    )


def check_first_entry(source: str, place: str, position: int, fits: bool) -> None:
    """The order is vLLM's, as far as ranks can show."""
    if not fits:
        raise InputError(
            f"{source}: {place}: the ranks at position {position} of prompt_logprobs contradict first_entry=True: the "
            "order of the entries is not vLLM's; write prompt_token_ids beside them"
        )


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


def check_log_probs(
    source: str, place: str, nats: np.ndarray, raw: np.ndarray, offset: int, polarity: str, floor: float | None
) -> None:
    """Neither NaN nor above 0; minus infinity only where a floor takes it."""

    def first(wrong: np.ndarray) -> tuple[int, float]:
        index = int(np.argmax(wrong))
        return index + offset, float(raw[index])

    if (missing := np.isnan(nats)).any():
        raise InputError(
            f"{source}: {place}: position {first(missing)[0]} holds NaN; leave the row out or score it again"
        )
    if (above := nats > ROUNDING).any():
        position, value = first(above)
        if polarity == "loss":
            raise InputError(f"{source}: {place}: position {position} holds {value:g}; -log p is never below 0")
        hint = "; if the numbers are -log p, say polarity='loss'" if (raw >= 0).all() else ""
        raise InputError(
            f"{source}: {place}: position {position} holds {value:g}; a log-probability is never above 0{hint}"
        )
    if floor is None and (below := np.isinf(nats)).any():
        raise InputError(
            f"{source}: {place}: position {first(below)[0]} holds minus infinity, which makes the score infinite; give "
            "floor=, a smallest log-probability"
        )


def _innermost(value: Any) -> Any:
    return _innermost(value[0]) if isinstance(value, list) and value else value


def _short(value: Any, length: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= length else shown[: length - 3] + "..."
