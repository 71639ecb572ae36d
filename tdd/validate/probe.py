"""Checks of what a probe in a training loop takes: texts, options, steps, and what a model returns."""

from __future__ import annotations

import math
import operator
import pathlib
from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "check_apart",
    "check_arrays",
    "check_canaries",
    "check_every",
    "check_first_look",
    "check_forward",
    "check_largest_id",
    "check_lengths",
    "check_logits",
    "check_model",
    "check_num_steps",
    "check_probe_score",
    "check_reachable",
    "check_same_probe",
    "check_step",
    "check_token_rows",
    "check_vocabulary",
    "no_saved_probe",
    "no_tokenizer",
]

_NAMED = 3
MOST_ITEMS = 2**18
"""Suspects and references together stay below this, so that sums of their ranks are exact."""


MOST_LABELS = 2**32
"""Bytes of the table of relabellings."""


# Options.


def check_model(lm: Any) -> None:
    """A `LanguageModel`, or a function of parameters and tokens."""
    if any(kind.__name__ == "Module" and kind.__module__.startswith("flax.") for kind in type(lm).__mro__):
        raise InputError(
            f"lm is the flax module {type(lm).__name__} itself; pass tdd.from_linen(module, vocab_size=V), or the "
            "first of what tdd.from_nnx(module, vocab_size=V) returns"
        )
    if not callable(getattr(lm, "logits", None)) and not callable(lm):
        raise InputError(
            f"lm is {type(lm).__name__}; pass a LanguageModel (tdd.load, tdd.from_linen, tdd.from_nnx, ...) or a "
            "function logits(params, tokens) -> [B, T, V]"
        )


def check_every(every: Any) -> int:
    """Steps between two looks."""
    if isinstance(every, bool) or not isinstance(every, (int, np.integer)) or every < 1:
        raise InputError(f"every={every!r} must be a whole number of steps, at least 1")
    return int(every)


def check_num_steps(num_steps: Any) -> int | None:
    """Steps of the whole training run, or None where that is not known."""
    if num_steps is None:
        return None
    if isinstance(num_steps, bool) or not isinstance(num_steps, (int, np.integer)) or num_steps < 1:
        raise InputError(
            f"num_steps={num_steps!r} must be the number of steps of the whole training run, at least 1, or None where "
            "it is not known"
        )
    return int(num_steps)


def check_probe_score(score: Any, name: str, computed: Sequence[str]) -> None:
    """A score that comes from the token statistics of the text alone."""
    if name not in computed:
        raise InputError(
            f"score={score!r} needs more than the model's statistics of the text's own tokens, which is all that a "
            f"probe computes; choose one of {', '.join(computed)}, or use tdd.score on a saved checkpoint"
        )


# Texts.


def no_tokenizer(role: str) -> InputError:
    """Strings, and nothing that makes tokens of them."""
    return InputError(
        f"{role} holds strings but no tokenizer is given; pass tokenizer=, or rows of token ids instead of strings"
    )


def check_token_rows(role: str, rows: Sequence[Any]) -> tuple[np.ndarray, ...]:
    """Rows of token ids as int32 arrays."""
    found = []
    for index, row in enumerate(rows):
        try:
            ids = np.asarray(row)
        except ValueError:
            ids = np.zeros((0, 0))
        if ids.ndim != 1 or not (ids.size == 0 or np.issubdtype(ids.dtype, np.integer)):
            raise InputError(
                f"{role}: row {index} is no row of token ids (shape {ids.shape}, type {ids.dtype}); give strings, "
                "Texts, or one sequence of whole numbers a text"
            )
        if ids.size and not -(2**31) <= ids.min() <= ids.max() < 2**31:
            raise InputError(f"{role}: row {index} holds a token id beyond 32 bits; token ids are rows of a vocabulary")
        if ids.size and ids.min() < 0:
            raise InputError(
                f"{role}: row {index} holds the token id {ids.min()}; token ids are not negative: give each row "
                "without its padding"
            )
        found.append(ids.astype(np.int32))
    if not found:
        raise InputError(f"{role} is empty; it needs at least one text")
    return tuple(found)


def check_lengths(role: str, ids: Sequence[str], rows: Sequence[np.ndarray], limit: int | None, cut: bool) -> None:
    """Every text has a scored token, and none is longer than what the model takes unless it is to be cut."""
    for name, row in zip(ids, rows, strict=True):
        if len(row) < 2:
            raise InputError(
                f"{role}: text {name!r} has {len(row)} token{'' if len(row) == 1 else 's'}; scoring needs at least two,"
                " because the first has no context: remove the text or lengthen it"
            )
    long = [(name, len(row)) for name, row in zip(ids, rows, strict=True) if limit is not None and len(row) > limit]
    if long and not cut:
        more = f" ({len(long) - 1} further texts of {role} are too long as well)" if len(long) > 1 else ""
        raise InputError(
            f"{role}: text {long[0][0]!r} has {long[0][1]} tokens, more than the limit of {limit}{more}; pass "
            f"long_texts='truncate', which scores the first {limit} tokens of each text, or split the texts"
        )


def check_vocabulary(role: str, ids: Sequence[str], rows: Sequence[np.ndarray], vocab_size: int) -> None:
    """Every token id has a row in the readout."""
    for name, row in zip(ids, rows, strict=True):
        if not 0 <= row.min() <= row.max() < vocab_size:
            worst = row.max() if row.max() >= vocab_size else row.min()
            raise InputError(
                f"{role}: text {name!r} has token id {worst}, but the model has a vocabulary of {vocab_size}; pass the "
                "tokenizer, or the token ids, that the model is trained with"
            )


def check_apart(roles: Mapping[str, tuple[Sequence[str], Sequence[np.ndarray]]]) -> None:
    """No two texts have the same tokens.

    In two roles it would stand on both sides of a comparison. Twice in one role it moves the whole set as if two texts
    had moved, and the random labellings, which part the two, do not: the alarm would have no level.
    """
    seen: dict[bytes, tuple[str, str]] = {}
    shared: list[str] = []
    again: list[str] = []
    for role, (ids, rows) in roles.items():
        for name, row in zip(ids, rows, strict=True):
            other = seen.setdefault(row.tobytes(), (role, name))
            if other[0] != role:
                shared.append(f"{name!r} of {role} is {other[1]!r} of {other[0]}")
            elif other[1] != name:
                again.append(f"{name!r} of {role} is {other[1]!r} again")
    for found, where, fix in (
        (shared, "stand in two roles", "every text may have one role, so remove it from one of them"),
        (again, "stand in one role twice", "copies score alike, which would void the level: keep one of each"),
    ):
        if found:
            more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
            raise InputError(f"the same tokens {where}: {'; '.join(found[:_NAMED])}{more}; {fix}")


def check_canaries(canaries: Any, references: Any) -> None:
    """Canaries and sequences to rank them among, or neither."""
    if (canaries is None) != (references is None):
        names = ("canaries", "canary_reference") if references is None else ("canary_reference", "canaries")
        raise InputError(
            f"{names[0]} is given without {names[1]}: the rank of a canary is its place among sequences of the same "
            "kind that are never trained on; pass both or neither"
        )


def check_reachable(num_suspect: int, num_reference: int, num_draws: int, alpha: float, *, known_end: bool) -> None:
    """An alarm and a flagged item are possible at all; where the end is not known, the level is never spent whole."""
    level = Fraction(str(float(alpha)))
    if num_suspect + num_reference >= MOST_ITEMS:
        raise InputError(
            f"{num_suspect} suspects and {num_reference} references are too many to rank exactly; give fewer than "
            f"{MOST_ITEMS} in all"
        )
    if isinstance(num_draws, bool) or not isinstance(num_draws, (int, np.integer)) or num_draws < 1:
        raise InputError(f"num_draws={num_draws!r} must be a whole number of relabellings, at least 1")
    if (num_draws + 1) * (num_suspect + num_reference) > MOST_LABELS:
        raise InputError(
            f"num_draws={num_draws} relabellings of {num_suspect + num_reference} texts take "
            f"{(num_draws + 1) * (num_suspect + num_reference) / 2**30:.1f} GiB; at most "
            f"{MOST_LABELS // (num_suspect + num_reference) - 1} fit in {MOST_LABELS // 2**30} GiB"
        )
    fewest = math.ceil(1 / level) - 1 if known_end else math.floor(1 / level)
    if num_draws < fewest:
        raise InputError(
            f"num_draws={num_draws} relabellings cannot give a p-value of alpha={alpha:g} or less; use at least "
            f"{fewest}, and better {math.ceil(20 / level) - 1}, so that early looks can raise an alarm"
        )
    if (num_reference + 1) * level < 1:
        raise InputError(
            f"reference has {num_reference} texts, so that no item's p-value can be {alpha:g} or less; give at least "
            f"{math.ceil(1 / level) - 1} references, or a larger alpha"
        )
    if math.comb(num_suspect + num_reference, num_suspect) * level < 1:
        raise InputError(
            f"{num_suspect} suspects and {num_reference} references can be told apart in only "
            f"{math.comb(num_suspect + num_reference, num_suspect)} ways, too few for a p-value of alpha={alpha:g}; "
            "give more texts, or a larger alpha"
        )


# What the model returns, while tracing.


def check_logits(name: str, found: Any, tokens: Sequence[int], vocab_size: int | None) -> int:
    """Logits [B, T, V] of a floating type; returns V."""
    import jax.numpy as jnp

    wanted = f"floating logits [B, T, V] = ({tokens[0]}, {tokens[1]}, {vocab_size or 'V'})"
    if not hasattr(found, "shape") or not hasattr(found, "dtype"):
        raise InputError(f"{name} returned {type(found).__name__}; expected one array of {wanted}")
    shape = tuple(found.shape)
    right = len(shape) == 3 and shape[:2] == tuple(tokens) and vocab_size in (None, shape[2])
    if not right or not jnp.issubdtype(found.dtype, jnp.floating):
        raise InputError(f"{name} returned {found.dtype} of shape {shape}; expected {wanted}")
    return shape[2]


def check_largest_id(largest: int, vocab_size: int) -> None:
    """Every token id has a logit."""
    if largest >= vocab_size:
        raise InputError(
            f"the texts hold token id {largest}, but the logits are those of a vocabulary of {vocab_size}; pass the "
            "tokenizer, or the token ids, that the model is trained with"
        )


# Looks.


def check_step(step: Any) -> int:
    """The number of a training step."""
    try:
        number = operator.index(step)
    except TypeError:
        number = -1
    if isinstance(step, (bool, np.bool_)) or number < 0:
        raise InputError(
            f"step={step!r} must be the number of the training step: a whole number, at least 0; "
            "inside a compiled function use probe.evaluate and probe.observe"
        )
    return number


def check_forward(step: int, last: int) -> None:
    """Training goes on; evidence cannot be taken back."""
    if step < last:
        raise InputError(
            f"step={step} comes after a look at step {last}: evidence over a run is not taken back. Where training "
            "restarts from a checkpoint, restore the probe as it was saved with that checkpoint (probe.restore, "
            "probe.load_state_dict); for another run, make a new Probe"
        )


def check_first_look(num_not_finite: int, num_texts: int) -> None:
    """At the first look some scores are numbers."""
    if num_not_finite == num_texts:
        raise InputError(
            f"none of the {num_texts} scores at the first look is finite: the parameters hold NaN, or the logits "
            "function returns it; nothing was recorded"
        )


# Folders.


def no_saved_probe(folder: pathlib.Path, detail: str) -> InputError:
    """A folder from which nothing can be restored."""
    return InputError(f"{folder} holds no saved probe that can be read: {detail}")


def check_arrays(held: Mapping[str, Any], names: Sequence[str]) -> None:
    """What `Probe.state_dict` returns, whole."""
    missing = [name for name in names if name not in held]
    if missing:
        raise InputError(
            f"the state holds no array {missing[0]!r}: give back what Probe.state_dict returned, unchanged"
        )


def check_same_probe(place: str, found: Any, expected: str) -> None:
    """What is there is of the same texts and options."""
    if found != expected:
        raise InputError(
            f"{place} is of another probe: its texts or options differ (fingerprint {str(found)[:12]}, this probe has "
            f"{expected[:12]}); choose another folder, or build the probe with the same texts and options"
        )
