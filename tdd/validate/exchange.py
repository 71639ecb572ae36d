"""Checks of the test of canonical order: examples, templates, shards, context, options."""

from __future__ import annotations

import logging
import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from tdd.validate.errors import InputError

__all__ = [
    "STOPS",
    "check_bos",
    "check_context",
    "check_count",
    "check_examples",
    "check_fixed_for_shard",
    "check_names",
    "check_no_sorted_order",
    "check_num_shards",
    "check_separator",
    "check_stop",
    "check_stride",
    "check_suffix",
    "check_target",
    "check_window",
    "existing_bos",
    "prefix_depends_on_order",
    "template_fields",
    "warn_of_special_separator",
]

STOPS = ("none", "e_process", "spending", "besag_clifford")
_SHOWN = 60
_logger = logging.getLogger("tdd")


def check_count(name: str, value: Any, minimum: int = 1) -> int:
    """A whole number of at least `minimum`."""
    if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < minimum:
        raise InputError(f"{name}={value!r} must be a whole number, at least {minimum}")
    return int(value)


def check_names(names: Sequence[str]) -> None:
    """At least one data set, each with a name of its own."""
    if not names:
        raise InputError("data names no data set; give at least one")
    twice = [name for name in names if list(names).count(name) > 1]
    if twice:
        raise InputError(f"two data sets are called {twice[0]!r}; give data as a dict with a name for each")


def warn_of_special_separator(separator: str, special: Sequence[str]) -> None:
    """A separator with a special token in it, which is tokenised as text."""
    for token in special:
        if token and token in separator:
            _logger.warning("separator holds %r, which is tokenised as text and not as the special token", token)


def check_separator(separator: Any) -> str:
    """What stands between two examples."""
    if not isinstance(separator, str):
        raise InputError(f"separator must be a string, got {separator!r}")
    return separator


def template_fields(template: Any, existing: Sequence[str], source: str) -> tuple[str, ...]:
    """The fields that a template such as "Q: {question} A: {answer}" names; plain names only, all of them existing."""
    if not isinstance(template, str):
        raise InputError(f"template must be a string such as '{{question}} {{answer}}', got {template!r}")
    try:
        parts = [*string.Formatter().parse(template)]
    except ValueError as error:
        raise InputError(f"template {template!r} cannot be read: {error}; write {{{{ and }}}} for braces") from error
    fields = []
    for _, field, spec, conversion in parts:
        if field is None:
            continue
        if spec or conversion or field not in existing:
            listed = ", ".join(map(repr, existing)) or "none: its rows are bare texts"
            raise InputError(
                f"template {template!r} asks for {{{field}{'!' + conversion if conversion else ''}"
                f"{':' + spec if spec else ''}}}, which is not the plain name of a field of {source}; its fields: "
                f"{listed}"
            )
        fields.append(field)
    if not fields:
        raise InputError(f"template {template!r} names no field, so all examples would be equal; add {{field}}")
    return tuple(dict.fromkeys(fields))


def check_examples(name: str, examples: Sequence[str]) -> None:
    """Examples that are not blank, and not all the same."""
    for index, example in enumerate(examples):
        if not example.strip():
            count = sum(not one.strip() for one in examples)
            raise InputError(
                f"data set {name!r}: example {index + 1} is empty ({count} of {len(examples)} are); remove them, or "
                "name the field or template that holds the text"
            )
    if len(set(examples)) == 1 and len(examples) > 1:
        raise InputError(
            f"data set {name!r}: all {len(examples)} examples are equal ({_short(examples[0])}), so every order is the "
            "same text and there is nothing to test; name the field or template that tells them apart"
        )


def check_num_shards(name: str, num_shards: int, num_examples: int) -> None:
    """At least two examples a shard: one has a single order."""
    if num_shards * 2 > num_examples:
        most = num_examples // 2
        fix = f"use num_shards={most} or fewer" if most else "a data set needs two examples at least"
        fewer = "fewer examples than shards" if num_examples < num_shards else "shards of a single example"
        raise InputError(
            f"data set {name!r} has {num_examples} examples for num_shards={num_shards}: {fewer}, and a shard of one "
            f"has no other order; {fix}"
        )


def check_no_sorted_order(name: str, how: str | None, allowed: bool) -> None:
    """The published order must not be a sorted one, unless the caller insists."""
    if how is not None and not allowed:
        raise InputError(
            f"data set {name!r} is sorted ({how}): its order is no random one, and a model that never saw it may "
            "prefer sorted texts, so the test would prove nothing. Test a data set that was published in random order; "
            "or set allow_sorted=True (--allow-sorted) together with a negative control and read the result with that "
            "caveat"
        )


def check_bos(value: Any) -> str:
    """When a window begins with the token for the beginning of a sequence."""
    if value not in ("auto", "always", "never"):
        raise InputError(f'bos must be "auto", "always" or "never", got {value!r}')
    return value


def check_stop(value: Any) -> str:
    """The rule of a sequential run."""
    if value not in STOPS:
        raise InputError(f"stop must be one of {', '.join(STOPS)}, got {value!r}")
    return value


def check_fixed_for_shard(stop: str, shard: Any) -> None:
    """Shards compute a number of shuffles that is known beforehand."""
    if shard is not None and stop != "none":
        raise InputError(
            f'shard={shard} and stop="{stop}" exclude each other: a sequential rule needs all log-probabilities so far '
            'to know whether to go on, and a shard has its own; use stop="none" and no target_p, or leave shard out'
        )


def check_suffix(value: Any) -> float:
    """A share of each shard, above 0."""
    number = isinstance(value, (int, float, np.integer, np.floating)) and not isinstance(value, bool)
    if not number or not 0 < value <= 1:
        raise InputError(f"suffix={value!r} must be a share of each shard's examples, above 0 and at most 1")
    return float(value)


def check_target(value: Any, stop: str | None = None) -> None:
    """A level at which a sequential run stops; with `stop`, by a rule that stops for evidence."""
    if value is not None and not (isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < 1):
        raise InputError(f"target_p={value!r} must be a number between 0 and 1")
    if value is not None and stop in ("none", "besag_clifford"):
        raise InputError(
            f'target_p={value!r} asks to stop for evidence, which stop="{stop}" never does; use stop="spending" or '
            'stop="e_process", or leave target_p out'
        )


def check_stride(stride: Any, window: int | None) -> int | None:
    """Tokens that a window adds to the one before it."""
    if stride is None:
        return None
    stride = check_count("stride", stride)
    if window is not None and stride > window - 1:
        raise InputError(
            f"stride={stride} leaves tokens without a window: a window of {window} tokens scores at most {window - 1}; "
            f"use at most {window - 1}"
        )
    return stride


def check_window(window: int | None, num_bos: int) -> None:
    """A context that has room for something beside the beginning-of-sequence token."""
    if window is not None and window < 2 + num_bos:
        raise InputError(
            f"max_length={window} leaves no room beside the beginning-of-sequence token; use at least {2 + num_bos}"
        )


def check_context(name: str, lengths: Sequence[int], window: int) -> int:
    """How many examples are as long as the context; an error where it is more than half of them."""
    long = [index for index, length in enumerate(lengths) if length >= window]
    if 2 * len(long) > len(lengths):
        worst = max(long, key=lambda index: lengths[index])
        raise InputError(
            f"data set {name!r}: {len(long)} of {len(lengths)} examples are as long as the context of {window} tokens "
            f"(example {worst + 1}: {lengths[worst]} tokens), so the model never sees them together with a neighbour "
            "and their order cannot show. Use a larger max_length if the model allows it, a shorter template, or a "
            "data set of shorter examples"
        )
    return len(long)


def prefix_depends_on_order(name: str, shard: int) -> InputError:
    """The tokens before the permuted part changed with the order."""
    return InputError(
        f"data set {name!r}, shard {shard + 1}: the tokens of the part that is kept depend on the order of the rest; "
        "use suffix=1, or a separator that the tokenizer does not join with its neighbours, such as a line end"
    )


def existing_bos(tokenizer: Any) -> int:
    """The tokenizer's beginning-of-sequence token."""
    found = getattr(tokenizer, "bos_token_id", None)
    if found is None:
        raise InputError('bos="always" needs a tokenizer with a beginning-of-sequence token, and this one has none')
    return int(found)


def _short(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else text[:_SHOWN] + "…")
