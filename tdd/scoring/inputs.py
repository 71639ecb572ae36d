"""Texts → token rows of each pass, and which of them differ."""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import types
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import jax
import numpy as np

from tdd.records import LanguageModel, Texts
from tdd.scoring.buckets import check_max_length
from tdd.scoring.programs import Rows
from tdd.scoring.store.address import row_key
from tdd.scoring.tokenise import Encoded, check_token_ids, encode, windows
from tdd.validate import InputError

if TYPE_CHECKING:
    from tdd.scoring.tasks import Task

_logger = logging.getLogger("tdd")

OWN, OTHER = "text", "reference"
"""Names: the scored model and the pass of it over the texts; other models and their number, as "reference 2"."""


def is_gradient(name: str) -> bool:
    """Whether a pass is backward, by its name."""
    return name.split(" ")[0] == "gradient"


@dataclasses.dataclass(frozen=True)
class Deferred:
    """Parameters that are loaded when they are needed."""

    load: Callable[[], Any]
    num_parameters: int = 0


class Model(NamedTuple):
    """A model ready to score."""

    lm: LanguageModel  # the model
    params: Any  # its parameters, or `Deferred` ones
    tokenizer: Any  # its tokenizer
    name: str  # the name that reports show
    stored: Mapping[str, Any] = types.MappingProxyType({})  # how a checkpoint stores its weights, for the record

    def parameters(self) -> Any:
        """The parameters."""
        return self.params.load() if isinstance(self.params, Deferred) else self.params

    def num_parameters(self) -> int:
        """How many numbers the parameters hold, without loading them."""
        if isinstance(self.params, Deferred):
            return self.params.num_parameters
        return sum(np.size(leaf) for leaf in jax.tree.leaves(self.params))


@dataclasses.dataclass(frozen=True)
class PassInput:
    """Texts of one pass as tokens and as rows, which are their windows."""

    model: str  # name of the model that they go through
    encoded: Encoded  # the texts as tokens
    rows: Rows  # the rows
    limit: int | None  # most tokens of a row, or None
    # token ids that all rows follow, which the model reads once; None where there are none or the rows hold them
    prefix: np.ndarray | None = None

    def identity(self) -> dict[str, str]:
        """What the numbers of a row depend on beside its own tokens and the model."""
        before = self.rows.before if self.prefix is None else self.prefix
        return {"prefix": row_key(before, 0).hex()} if len(before) else {}


def encode_pass(
    task: Task,
    texts: Texts,
    model: Model,
    *,
    max_length: int | None,
    long_texts: str,
    windowed: bool = True,
    encoded: Encoded | None = None,
    reserved: int = 0,
    again: bool = False,
) -> PassInput:
    """Tokenise the texts of a pass and cut them into windows.

    A text without a scored token is an error in the passes over the texts themselves; in the others it has no rows.

    Args:
      task: The pass. One for gradients has no windows, because the norms of their gradients would not add up.
      texts: Its texts.
      model: Their model.
      max_length, long_texts: As in `tdd.score`.
      windowed: True if every requested score may be computed in windows; it decides what a message advises.
      encoded: The texts as tokens, if another pass has them already.
      reserved: Positions of the model that windows leave free: the longest prefix of any pass.
      again: True if the log has been told already which texts have no rows.
    """
    name, change, prefix = task.name, task.made_by.change, task.prefix
    limit = _room(check_max_length(max_length, model.lm.max_length), model.lm.max_length, reserved)
    if encoded is None:
        whole = texts.texts if change is None else [change(text) for text in texts.texts]
        if wrong := [type(one).__name__ for one in whole if not isinstance(one, str)]:
            raise InputError(f"the change of the {name} pass made {wrong[0]} of a text; it must return a string")
        encoded = encode(model.tokenizer, whole, max_tokens=limit if long_texts == "truncate" else None)
    what = "reference model" if task.of.startswith(OTHER) else "model"
    check_token_ids(encoded.tokens, texts.ids, model.lm.vocab_size, what, model.tokenizer)
    lengths = [len(ids) for ids in encoded.tokens]
    if long_texts == "error" or is_gradient(name):
        _check_text_lengths(texts.ids, lengths, limit, what, gradient=not windowed)
    text_of_row, all_windows, too_short = [], [], []
    for index, length in enumerate(lengths):
        if length < 2:
            if name == OWN or is_gradient(name):
                raise InputError(
                    f"text {texts.ids[index]!r} has {length} token{'' if length == 1 else 's'} under the tokenizer of "
                    f"the {what}; scoring needs at least two, because the first has no context: remove the text or "
                    "lengthen it"
                )
            too_short.append(texts.ids[index])
            continue
        for window in windows(length, limit):
            text_of_row.append(index)
            all_windows.append(window)
    if too_short and not again:
        _logger.warning("%d texts have fewer than two tokens in the %s pass: %s", len(too_short), name, too_short[:5])
    if not again:
        _say_unknown(model.tokenizer, encoded.tokens, name)
    rows = Rows(encoded.tokens, np.array(text_of_row, np.int64), tuple(all_windows), task.statistics)
    if prefix is None or model.lm.prefix is not None:
        return PassInput(task.of, encoded, rows, limit, prefix)
    longest = None if limit is None else limit + len(prefix)
    return PassInput(task.of, encoded, dataclasses.replace(rows, before=prefix), longest)


def _say_unknown(tokenizer: Any, tokens: Sequence[Any], name: str) -> None:
    """Log it if the tokenizer does not know a tenth of the tokens: it may be that of another model."""
    special: dict[str, Any] = {}
    for other in ("unk", "eos", "bos"):
        with contextlib.suppress(Exception):  # attributes of a user's own tokenizer may be properties that fail
            special[other] = np.ravel(getattr(tokenizer, f"{other}_token_id")).tolist()
    unknown = special.pop("unk", [None])[0]
    if not isinstance(unknown, int) or any(unknown in ids for ids in special.values()):
        return
    counts = [np.count_nonzero(np.asarray(ids) == unknown) for ids in tokens]
    if 10 * sum(counts) >= (total := sum(map(len, tokens))) > 0:
        _logger.warning(
            "%.0f%% of the tokens in the %s pass are the unknown token, in %d of %d texts: is this the "
            "model's tokenizer?",
            100 * sum(counts) / total,
            name,
            np.count_nonzero(counts),
            len(counts),
        )


def _room(limit: int | None, of_model: int | None, reserved: int) -> int | None:
    """Longest window behind a prefix of `reserved` tokens."""
    if of_model is None or not reserved:
        return limit
    if of_model - reserved < 2:
        raise InputError(
            f"the prefix has {reserved} tokens, which leaves no room for a text in the {of_model} positions of the "
            "model; give fewer or shorter texts as prefix"
        )
    return min(limit or of_model, of_model - reserved)


class DistinctRows(NamedTuple):
    """The rows that are computed, each once."""

    keys: Mapping[str, Sequence[bytes]]  # pass -> [R], what tells each row from others
    first: Mapping[str, np.ndarray]  # pass -> [R] bool, rows unlike all before them
    # (pass, row) -> the rows that get its numbers too, as (pass, row)
    copies: Mapping[tuple[str, int], list[tuple[str, int]]]


def distinct_rows(passes: Mapping[str, Rows], like: Mapping[str, str]) -> DistinctRows:
    """Find rows of equal tokens and targets, within each pass and between it and an earlier one that it is `like`.

    The rows of a pass that is not computed have no statistics. Cost: one hash a row.
    """
    keys: dict[str, list[bytes]] = {}
    first: dict[str, np.ndarray] = {}
    copies: dict[tuple[str, int], list[tuple[str, int]]] = {}
    seen: dict[str, dict[bytes, int]] = {}
    for name, rows in passes.items():
        if not rows.statistics:
            continue
        keys[name] = [
            row_key(rows.tokens[text][window.start : window.stop], window.first_target - window.start)
            for text, window in zip(map(int, rows.text), rows.windows, strict=True)
        ]
        seen[name], first[name] = {}, np.ones(len(keys[name]), bool)
        owners = [name]
        other = like.get(name)
        if other in seen and set(rows.statistics) <= set(passes[other].statistics):
            owners.append(other)
        for row, key in enumerate(keys[name]):
            owner = next((owner for owner in owners if key in seen[owner]), None)
            if owner is None:
                seen[name][key] = row
            else:
                first[name][row] = False
                copies.setdefault((owner, seen[owner][key]), []).append((name, row))
    return DistinctRows(keys, first, copies)


def _check_text_lengths(
    identifiers: Sequence[str], lengths: Sequence[int], limit: int | None, what: str, *, gradient: bool = False
) -> None:
    """Check that no text exceeds the model's context, where `gradient` rules windows out or the user does."""
    too_long = [] if limit is None else [index for index, length in enumerate(lengths) if length > limit]
    if not too_long:
        return
    first, more = too_long[0], len(too_long) - 1
    others = "" if not more else f" ({more} further text{' is' if more == 1 else 's are'} too long as well)"
    advice = "shorten it, or pass long_texts='window' (--long-texts window: every token is scored once) or 'truncate'"
    if gradient:
        advice = (
            "the norm of a gradient is not a sum over windows, so long texts have none for the score grad_norm: pass "
            "long_texts='truncate' (--long-texts truncate), or shorten the text"
        )
    raise InputError(
        f"text {identifiers[first]!r} has {lengths[first]} tokens under the tokenizer of the {what}, more than the "
        f"limit of {limit}{others}; {advice}"
    )
