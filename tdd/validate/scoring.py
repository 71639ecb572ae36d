"""Checks of what `tdd.score` takes: score names, options, tokenizers, lengths, budgets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tdd.records import LanguageModel
from tdd.validate.errors import InputError

__all__ = [
    "check_budget",
    "check_encoded",
    "check_fraction",
    "check_language_model",
    "check_long_texts",
    "check_max_length",
    "check_model_parts",
    "check_order",
    "check_reference",
    "check_score_names",
    "check_text_lengths",
    "check_token_batch",
    "check_token_ids",
    "check_triple",
    "is_memory_error",
    "score_syntax",
    "text_too_short",
    "unknown_parameter",
    "unknown_score",
]

LONG_TEXTS = ("window", "truncate", "error")

_OUT_OF_MEMORY = ("resource_exhausted", "out of memory", "out_of_memory", "failed to allocate")
"""What JAX's backends write where memory does not suffice, in lower case."""


def unknown_score(name: str, existing: Mapping[str, Any]) -> InputError:
    """A name that is not in the registry."""
    listing = "; ".join(f"{known}: {score.meaning}" for known, score in existing.items())
    return InputError(f"there is no score {name!r}; existing scores are {listing}")


def unknown_parameter(score: str, name: str, existing: Sequence[str]) -> InputError:
    """An option that the score does not have."""
    known = f"it has {', '.join(existing)}" if existing else "it has none"
    return InputError(f"score {score!r} has no parameter {name!r}; {known}")


def score_syntax(text: Any) -> InputError:
    """A score written in another form than name or name:parameter=value,..."""
    return InputError(
        f"cannot read the score {text!r}; write a name such as 'min_k', or 'min_k:k=0.1', or 'max_renyi:gamma=2,k=0.1'"
    )


def check_score_names(scores: Any) -> tuple[str, ...]:
    """One or more score names, none twice."""
    if not isinstance(scores, Iterable):
        raise InputError(f"scores={scores!r} is no name and no sequence of names; give for example scores=('loss',)")
    names = (scores,) if isinstance(scores, str) else tuple(scores)
    if not names:
        raise InputError("scores is empty; name at least one score, for example scores=('loss',)")
    for name in names:
        if not isinstance(name, str):
            raise score_syntax(name)
        if names.count(name) > 1:
            raise InputError(f"scores names {name!r} more than once; remove the repetition")
    return names


def check_fraction(parameter: str, value: Any, *, allow_zero: bool) -> Fraction:
    """A share of the tokens, kept as the exact decimal that was written."""
    try:
        share = Fraction(str(value))
    except (ValueError, ZeroDivisionError):
        share = None
    if share is None or not (0 <= share <= 1) or (share == 0 and not allow_zero):
        interval = "[0, 1]" if allow_zero else "(0, 1]"
        raise InputError(f"{parameter}={value!s} is not a share of the tokens; give a number in {interval}")
    if share.denominator > 10_000:
        raise InputError(f"{parameter}={value!s} has too many digits; give at most four decimals")
    return share


def check_order(value: Any) -> float:
    """An order of Renyi entropy that is computed."""
    orders = {"0.5": 0.5, "1/2": 0.5, "1": 1.0, "1.0": 1.0, "2": 2.0, "2.0": 2.0, "inf": float("inf")}
    if str(value) not in orders:
        raise InputError(f"gamma={value!s} is not available; the orders are 0.5, 1, 2 and inf")
    return orders[str(value)]


def check_long_texts(value: Any) -> str:
    """A policy for texts longer than the model's context."""
    if value not in LONG_TEXTS:
        raise InputError(
            f"long_texts={value!r} is unknown; use 'window' (score every token once), 'truncate' or 'error'"
        )
    return value


def check_text_lengths(
    identifiers: Sequence[str], lengths: Sequence[int], limit: int | None, what: str, *, gradient: bool = False
) -> None:
    """No text is longer than the model's context.

    Args:
      identifiers: of the texts.
      lengths: their tokens.
      limit: most tokens; None is no limit.
      what: "model" or "reference model".
      gradient: whether windows are out of the question, because gradient norms of windows do not add up.
    """
    too_long = [] if limit is None else [index for index, length in enumerate(lengths) if length > limit]
    if not too_long:
        return
    first, more = too_long[0], len(too_long) - 1
    others = "" if not more else f" ({more} further text{' is' if more == 1 else 's are'} too long as well)"
    advice = "shorten it, or pass long_texts='window' (--long window: every token is scored once) or 'truncate'"
    if gradient:
        advice = (
            "the norm of a gradient is not a sum over windows, so long texts have none for the score grad_norm: pass "
            "long_texts='truncate' (--long truncate), or shorten the text"
        )
    raise InputError(
        f"text {identifiers[first]!r} has {lengths[first]} tokens under the tokenizer of the {what}, more than the "
        f"limit of {limit}{others}; {advice}"
    )


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


def check_encoded(encoded: Any, num_texts: int) -> list[Sequence[int]]:
    """What a tokenizer returned for a list of texts."""
    try:
        ids = list(encoded["input_ids"])
    except (TypeError, KeyError, IndexError) as error:
        raise InputError(
            "tokenizer(texts, add_special_tokens=True) must return a mapping with 'input_ids', one list of token "
            f"ids a text; it returned {type(encoded).__name__}"
        ) from error
    if len(ids) != num_texts:
        raise InputError(f"the tokenizer returned {len(ids)} token lists for {num_texts} texts")
    return ids


def text_too_short(identifier: str, num_tokens: int, what: str) -> InputError:
    """A text without a single scored token."""
    return InputError(
        f"text {identifier!r} has {num_tokens} token{'' if num_tokens == 1 else 's'} under the tokenizer of the "
        f"{what}; scoring needs at least two, because the first has no context: remove the text or lengthen it"
    )


def check_token_ids(tokens: Iterable[np.ndarray], identifiers: Sequence[str], vocab_size: int, what: str) -> None:
    """Every token id has a row in the readout."""
    for identifier, ids in zip(identifiers, tokens, strict=True):
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
            worst = ids.max() if ids.max() >= vocab_size else ids.min()
            raise InputError(
                f"text {identifier!r} has token id {worst}, but the {what} has a vocabulary of {vocab_size}: the "
                "tokenizer belongs to another model; pass the tokenizer that the model was trained with"
            )


def check_token_batch(tokens_shape: tuple[int, ...], mask_shape: tuple[int, ...]) -> None:
    """Tokens [B, T] with a mask of the same shape."""
    if len(tokens_shape) != 2 or tokens_shape != mask_shape:
        raise InputError(f"tokens and mask must both be [B, T]; their shapes are {tokens_shape} and {mask_shape}")


def check_reference(passes: Iterable[str], reference: Any) -> None:
    """A reference score needs a reference model, and nothing else does."""
    if "reference" in passes and reference is None:
        raise InputError(
            "the score 'reference' needs a second model: pass reference=<folder or hub id>, or leave the score out"
        )
    if "reference" not in passes and reference is not None:
        raise InputError("reference is given but no score uses it; add 'reference' to scores or leave it out")


def check_language_model(name: str, model: Any) -> LanguageModel:
    """Something that can be scored."""
    if not isinstance(model, LanguageModel):
        raise InputError(
            f"{name} is {type(model).__name__}; pass the folder or hub id of a checkpoint, a LanguageModel, or the "
            "triple (lm, params, tokenizer)"
        )
    return model


def check_triple(name: str, model: tuple[Any, ...]) -> tuple[Any, Any, Any]:
    """(lm, params, tokenizer), as `tdd.load` returns it."""
    if len(model) != 3:
        raise InputError(f"{name} is a tuple of {len(model)}; it must be the triple (lm, params, tokenizer)")
    return model


def check_model_parts(name: str, params: Any, tokenizer: Any) -> None:
    """A LanguageModel comes with its parameters and its tokenizer."""
    for part, value in (("params", params), ("tokenizer", tokenizer)):
        if value is None:
            raise InputError(
                f"{name} is a LanguageModel without {part}; pass {part}=..., or the triple (lm, params, tokenizer), "
                "or the path of a checkpoint"
            )
