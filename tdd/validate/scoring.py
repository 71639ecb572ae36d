"""Checks of what `tdd.score` takes: score names, options, tokenizers, lengths, budgets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_budget",
    "check_max_length",
    "check_reference",
    "check_score_names",
    "is_memory_error",
    "score_syntax",
]

_OUT_OF_MEMORY = ("resource_exhausted", "out of memory", "out_of_memory", "failed to allocate")
"""Words of JAX's backends when memory does not suffice, in lower case."""


def score_syntax(text: Any) -> InputError:
    """A score written in another form than name or name:parameter=value,..."""
    return InputError(
        f"cannot read the score {text!r}; write a name such as 'min_k', or 'min_k:k=0.1', or 'max_renyi:gamma=2,k=0.1'"
    )


def check_score_names(scores: Any) -> tuple[str, ...]:
    """One or more score names, none twice."""
    if not isinstance(scores, Iterable):
        raise InputError(
            f"scores={scores!r} is neither a name nor a sequence of names; give for example scores=('loss',)"
        )
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    if not names:
        raise InputError("scores is empty; name at least one score, for example scores=('loss',)")
    for name in names:
        if not isinstance(name, str):
            raise score_syntax(name)
        if names.count(name) > 1:
            raise InputError(f"scores names {name!r} more than once; remove the repetition")
    return names


def is_memory_error(error: BaseException) -> bool:
    """Whether a device or the host ran out of memory, by the words of JAX's backends."""
    return isinstance(error, MemoryError) or any(words in str(error).lower() for words in _OUT_OF_MEMORY)


def check_budget(value: Any) -> int:
    """Tokens a batch."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
        raise InputError(f"token_budget={value!r} must be a whole number of tokens, at least 1")
    return int(value)


def check_max_length(value: Any, of_model: int | None) -> int | None:
    """Longest window: the model's own limit, or a shorter one that the user sets."""
    if value is None:
        return of_model
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 2:
        raise InputError(f"max_length={value!r} must be a whole number of tokens, at least 2")
    if of_model is not None and value > of_model:
        raise InputError(f"max_length={value} exceeds the {of_model} positions of the model; use at most that")
    return int(value)


def check_reference(passes: Iterable[str], reference: Any) -> None:
    """A reference score needs a reference model, and nothing else does."""
    if "reference" in passes and reference is None:
        raise InputError(
            "the score 'reference' needs a second model: pass reference=<folder or hub id>, or leave the score out"
        )
    if "reference" not in passes and reference is not None:
        raise InputError("reference is given but no score uses it; add 'reference' to scores or leave it out")
