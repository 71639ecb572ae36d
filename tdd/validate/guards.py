"""Checks of the guards of a training run: watched texts, batches of tokens, numbers in their order of arrival."""

from __future__ import annotations

import collections
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "as_batch",
    "as_mask",
    "as_step",
    "as_values",
    "check_no_options",
    "check_num_items",
    "check_num_orders",
    "check_orders",
    "check_watched_lengths",
    "no_tokenizer",
    "nothing_to_watch",
    "rows_of_ids",
    "shards_too_long",
    "some_texts",
    "wrong_state",
]


def some_texts(name: str, texts: Any, *, may_be_empty: bool) -> list[Any]:
    """Strings alone or rows of token ids alone, as a list."""
    if isinstance(texts, (str, bytes)) or not hasattr(texts, "__len__") or not hasattr(texts, "__iter__"):
        raise InputError(f"{name} must be a list of texts or of rows of token ids, got {_short(texts)}")
    found = list(texts)
    if not found and not may_be_empty:
        raise InputError(f"{name} is empty; give at least one text")
    strings = [isinstance(text, str) for text in found]
    if any(strings) and not all(strings):
        odd = strings.index(not strings[0])
        raise InputError(
            f"{name} mixes strings and rows of token ids: {name}[{odd}] is {_short(found[odd])}; give one kind"
        )
    return found


def rows_of_ids(name: str, rows: Sequence[Any]) -> list[np.ndarray]:
    """Token ids of each text: one axis of non-negative whole numbers, not empty."""
    arrays = []
    for index, row in enumerate(rows):
        array = np.asarray(row)
        whole = array.ndim == 1 and array.size > 0 and np.issubdtype(array.dtype, np.integer)
        if not whole or array.min() < 0 or array.max() >= 2**31:
            raise InputError(
                f"{name}[{index}] must be a row of one or more token ids (whole numbers from 0), got {_short(row)}"
            )
        arrays.append(array.astype(np.int32))
    return arrays


def no_tokenizer(name: str) -> InputError:
    """Strings without the tokenizer that makes tokens of them."""
    return InputError(f"{name} holds strings; pass tokenizer=, that of the training stream, or rows of token ids")


def check_watched_lengths(names: Sequence[str], lengths: Sequence[int], ngram: int) -> None:
    """Every watched text has an n-gram."""
    short = [index for index, length in enumerate(lengths) if length < ngram]
    if short:
        first, more = short[0], f" (and {len(short) - 1} more)" if len(short) > 1 else ""
        raise InputError(
            f"watched text {names[first]!r}{more} has {lengths[first]} tokens, fewer than ngram={ngram}: it could "
            f"never be found; leave it out or pass ngram={min(lengths)}"
        )


def nothing_to_watch(ngram: int) -> InputError:
    """No watched text has an n-gram of its own."""
    return InputError(
        f"every n-gram of {ngram} tokens of the watched texts is shared by another watched text or by reference: none "
        "would tell a text; raise ngram, or leave out what they share (a prompt, for instance)"
    )


def as_batch(tokens: Any, ngram: int) -> np.ndarray:
    """A batch of token ids [B, T] with T >= ngram, on the host."""
    array = np.asarray(tokens)
    if array.ndim != 2 or not np.issubdtype(array.dtype, np.integer):
        raise InputError(
            f"tokens must be a batch [B, T] of whole token ids, got shape {array.shape} of type {array.dtype}"
        )
    if array.shape[1] < ngram:
        raise InputError(
            f"tokens has rows of {array.shape[1]} tokens, shorter than ngram={ngram}: no n-gram fits; make the guard "
            "with a smaller ngram"
        )
    if array.dtype.itemsize > 4 and array.size and not -(2**31) <= array.min() <= array.max() < 2**31:
        raise InputError(
            f"tokens holds {array.max() if array.max() >= 2**31 else array.min()}, beyond 32 bits; token ids are rows "
            "of a vocabulary"
        )
    return array.astype(np.int32)


def as_mask(mask: Any, shape: tuple[int, ...]) -> np.ndarray:
    """A mask of the batch's own shape; all True where there is none."""
    if mask is None:
        return np.ones(shape, bool)
    array = np.asarray(mask)
    if array.shape != shape or array.dtype != bool:
        raise InputError(
            f"mask must be bool of the batch's shape {shape} (True = real token), got {array.dtype} {array.shape}"
        )
    return array


def as_step(step: Any, last: int | None) -> int:
    """A step from 0 that does not go back."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or not 0 <= number < 2**31:
        raise InputError(f"step must be a whole number from 0 to 2^31 - 1, got {step!r}")
    if last is not None and number < last:
        raise InputError(
            f"step={number} comes after step {last}: what it holds would be counted twice; after a restart give the "
            "guard the state that was saved with the checkpoint (load_state_dict)"
        )
    return number


def as_values(values: Any) -> np.ndarray:
    """One number an example, in order of arrival: [B] float32, B >= 1; NaN is left out later."""
    array = np.asarray(values)
    if array.ndim != 1 or not array.size or array.dtype.kind not in "fiub":
        raise InputError(
            f"values must be one number an example [B] in order of arrival, got {array.dtype} of shape {array.shape}"
        )
    return array.astype(np.float32)


def check_no_options(**options: Any) -> None:
    """Nothing is said of the order of a benchmark that is compared with a reference."""
    for name, value in options.items():
        if value is not None:
            raise InputError(
                f"{name}={value!r} is for a benchmark whose order is its own reference: leave it out, or leave out "
                "reference"
            )


def check_num_items(count: int, num_shards: Any) -> None:
    """Items that can be cut into so many shards of two or more."""
    if num_shards is not None:
        whole = isinstance(num_shards, (int, np.integer)) and not isinstance(num_shards, bool)
        if not whole or num_shards < 1 or 2 * num_shards > count:
            raise InputError(
                f"num_shards={num_shards!r} must be a whole number from 1 to {count // 2}: a shard has two items or "
                f"more, and the benchmark has {count}"
            )
    if count < 2:
        raise InputError(f"benchmark has {count} item; the order of two or more can be tested, or give a reference")


def shards_too_long(longest: int, limit: Any, num_shards: int | None) -> InputError:
    """Shards that do not fit the context."""
    advice = "use more shards" if num_shards else "shorten the items, or give a reference"
    return InputError(
        f"num_shards={num_shards}: a shard of the benchmark has {longest} tokens, more than the limit of {limit}; "
        f"{advice}"
    )


def check_num_orders(first: int, items: Sequence[bytes], num_shuffles: int) -> None:
    """A shard has so many orders that read otherwise."""
    orders = math.factorial(len(items))
    for repeats in collections.Counter(items).values():
        orders //= math.factorial(repeats)
    if orders - 1 < num_shuffles:
        raise InputError(
            f"the shard that begins at item {first + 1} of the benchmark has {len(items)} items and {orders - 1} other "
            f"orders that read differently, fewer than num_shuffles={num_shuffles}; use fewer shards or shuffles, or "
            "remove repeated items"
        )


def check_orders(num_shards: int, num_shuffles: int, alpha: float) -> None:
    """An alarm is possible at all."""
    if (num_shuffles + 1) ** num_shards * float(alpha) < 1:
        raise InputError(
            f"{num_shards} shards in {num_shuffles + 1} orders each can be relabelled in only "
            f"{(num_shuffles + 1) ** num_shards} ways, too few for a p-value of alpha={alpha:g}; raise num_shuffles"
        )


def wrong_state(what: str, expected: Any, found: Any) -> InputError:
    """A saved state of a guard that watches something else."""
    return InputError(
        f"state is of another guard: its {what} is {found!r}, this guard's is {expected!r}; make the guard with the "
        "arguments of the run that saved the state"
    )


def _short(value: object, length: int = 60) -> str:
    shown = repr(value)
    return shown if len(shown) <= length else shown[: length - 3] + "..."
