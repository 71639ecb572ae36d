"""Texts → token ids, the same way for every pass, and windows over texts longer than the model's context."""

from __future__ import annotations

import dataclasses
import reprlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.validate import InputError
from tdd.validate.files import panics

_NO_SPANS = (
    "the tokenizer does not tell which characters a token stands for: give it a method decode(ids, "
    "skip_special_tokens=True), or let it return 'offset_mapping'"
)

_BLOCK = 250_000
"""Characters that are tokenised at a time: a tokenizer takes some hundred bytes for each token, an array four."""


_FEWEST_CUT = 8
"""Texts of fewer tokens are not looked at for a cut: where a word is one token, twice a text may be one word too."""


@dataclasses.dataclass(frozen=True)
class Encoded:
    """Tokenised texts of one pass.

    The tokenizer's own special tokens are kept. The first token has no context and is never scored; where the
    tokenizer prepends a beginning-of-sequence token, that is the one, and every token of the text is scored.
    """

    tokens: tuple[np.ndarray, ...]  # one int32 array a text
    kept: tuple[str, ...]  # the texts, cut exactly where the tokens were cut
    scored_bytes: np.ndarray  # UTF-8 bytes of the part of each text that is scored; -1 where that cannot be told
    prepends_bos: bool  # whether the tokenizer puts a special token before the text

    def check_scored_bytes(self) -> None:
        """Check that the bytes are known.

        Raises:
          InputError: the tokenizer does not tell which characters its tokens stand for.
        """
        if (self.scored_bytes < 0).any():
            raise InputError(f"models with different tokenizers are compared per byte of text, and {_NO_SPANS}")


class Window(NamedTuple):
    """Tokens start..stop-1 of a text go through the model; those from `first_target` on are scored."""

    start: int
    first_target: int
    stop: int


def encode(tokenizer: Any, texts: Sequence[str], *, max_tokens: int | None = None) -> Encoded:
    """Tokenise texts; longer ones than `max_tokens` are cut. A special token that is written in a text is text.

    Args:
      tokenizer: A transformers tokenizer, or any callable `(texts, add_special_tokens=True)` that returns
        {"input_ids": [...]}, perhaps with "offset_mapping" (character spans), and with "attention_mask" where it pads.
      max_tokens: Longest text, or None.

    Raises:
      InputError: the tokenizer returns something else, gives up, cuts texts, or pads them without saying where; a text
        is cut here and it does not tell where.
    """
    bos = prepends_bos(tokenizer)
    tokens, kept, scored_bytes = [], [], np.zeros(len(texts), np.int64)
    for i, (text, (row, span)) in enumerate(zip(texts, _rows(tokenizer, texts, spans=True), strict=True)):
        cut = len(row) if max_tokens is None else min(len(row), max_tokens)
        tokens.append(row[:cut])
        end = len(text) if cut == len(row) else _end_of(tokenizer, text, row[:cut], span)
        start = 0 if bos or cut == 0 else _end_of(tokenizer, text, row[:1], span)
        if end is None:
            raise InputError(f"text {text[:40]!r} has {len(row)} tokens and is cut after {cut}, but {_NO_SPANS}")
        kept.append(text[:end])
        scored_bytes[i] = -1 if start is None else len(text[start:end].encode())
    return Encoded(tuple(tokens), tuple(kept), scored_bytes, bos)


def token_ids(tokenizer: Any, texts: Sequence[str], *, add_special_tokens: bool) -> list[np.ndarray]:
    """Token ids of each text, int32, as of `encode`; `add_special_tokens` says if the tokenizer adds its own."""
    return [ids for ids, _ in _rows(tokenizer, texts, add_special_tokens=add_special_tokens)]


def prepends_bos(tokenizer: Any) -> bool:
    """True if the tokenizer puts a special token before a text."""
    plain, special = (token_ids(tokenizer, ["a"], add_special_tokens=added)[0].tolist() for added in (False, True))
    return len(special) > len(plain) and special[: len(plain)] != plain


def windows(num_tokens: int, max_length: int | None) -> Iterator[Window]:
    """Windows that score every token but the first exactly once.

    As rolling log-likelihoods of language model evaluation: each window begins with the last token of the one
    before it, so that all its other tokens are scored; the last window is extended to the left to full length,
    for context, and scores only what is left. A text has at least 2 tokens, and so has `max_length`; None makes one
    window.
    """
    longest = num_tokens if max_length is None else max_length
    first_target = 1
    while first_target < num_tokens:
        stop = min(first_target - 1 + longest, num_tokens)
        yield Window(max(0, stop - longest), first_target, stop)
        first_target = stop


def _rows(
    tokenizer: Any, texts: Sequence[str], *, add_special_tokens: bool = True, spans: bool = False
) -> Iterator[tuple[np.ndarray, Any]]:
    """Token ids of each text, int32, and what knows its character spans or None; block after block."""
    options: dict[str, Any] = {"add_special_tokens": add_special_tokens}
    if hasattr(tokenizer, "split_special_tokens"):  # of transformers
        options["split_special_tokens"] = True
    if getattr(tokenizer, "is_fast", False):
        options.update(return_attention_mask=False, verbose=False)
    ours = any(kind.__module__.startswith("transformers.") for kind in type(tokenizer).__mro__)
    for block in _blocks(texts):
        rows = _called(tokenizer, block, options, spans=spans)
        if not ours:
            _check_whole_and_alone(tokenizer, block, [ids for ids, _ in rows], options)
        yield from rows


def _called(
    tokenizer: Any, block: list[str], options: Mapping[str, Any], *, spans: bool = False
) -> list[tuple[np.ndarray, Any]]:
    """Token ids of each text of a block, without padding, and what knows its character spans."""
    if not callable(tokenizer):
        raise InputError(
            f"tokenizer must be one of transformers, or a function (texts, add_special_tokens=True) -> {{'input_ids': "
            f"[...]}}, got {type(tokenizer).__name__}; a tokenizers.Tokenizer goes into transformers' "
            "PreTrainedTokenizerFast(tokenizer_object=...)"
        )
    try:
        with panics(f"the tokenizer gives up on the texts from {block[0][:40]!r} on"):
            encoded: Any = tokenizer(block, **options)
    except TypeError as error:
        if "add_special_tokens" not in str(error):
            raise
        raise InputError(
            "tokenizer must take the keyword add_special_tokens, true or false, beside the texts"
        ) from error
    try:
        ids = list(encoded["input_ids"])
    except (TypeError, KeyError, IndexError) as error:
        raise InputError(
            "tokenizer(texts, add_special_tokens=True) must return a mapping with 'input_ids', one list of token "
            f"ids a text; it returned {type(encoded).__name__}"
        ) from error
    real = _column(encoded, "attention_mask", block)
    places = _column(encoded, "offset_mapping", block) if spans else [None] * len(block)
    known = getattr(encoded, "encodings", None) if spans else None
    if len(ids) != len(block):
        raise InputError(f"the tokenizer returned {len(ids)} token lists for {len(block)} texts")
    rows = []
    for i, text in enumerate(block):
        found, place = _real_ids(ids[i], real[i], text), places[i]
        if known is not None:
            place = known[i] if len(found) == len(ids[i]) else known[i].offsets
        is_list = place is not None and not hasattr(place, "token_to_chars")
        rows.append((found, _unpadded(place, real[i]) if is_list else place))
    return rows


def _column(encoded: Any, name: str, block: list[str]) -> Sequence[Any]:
    """What a tokenizer returned beside the ids, one entry a text; None for each where it is not there."""
    if name not in encoded or encoded[name] is None:
        return [None] * len(block)
    found = encoded[name]
    if len(found) != len(block):
        raise InputError(f"the tokenizer returned {name!r} for {len(found)} of {len(block)} texts")
    return found


def _real_ids(ids: Any, real: Any, text: str) -> np.ndarray:
    """Token ids as int32, without those of padding."""
    try:
        found = np.asarray(ids)
    except ValueError:
        found = np.asarray(None)
    if found.ndim != 1 or (found.size and found.dtype.kind not in "iu"):
        raise InputError(
            f"the tokenizer must return a list of whole numbers for each text, got {reprlib.repr(ids)} for "
            f"{text[:40]!r}"
        )
    found = _unpadded(found, real)
    if found.size and not -(2**31) <= int(found.min()) <= int(found.max()) < 2**31:
        raise InputError(f"the tokenizer returned a token id beyond 32 bits for the text {text[:40]!r}")
    return found.astype(np.int32)


def _unpadded(row: Any, real: Any) -> Any:
    """The entries of a row that its attention mask keeps; all of them without a mask."""
    if real is None:
        return row
    kept = np.asarray(real) != 0
    if kept.shape != (len(row),):
        raise InputError(f"the tokenizer returned an attention mask of shape {kept.shape} beside {len(row)} token ids")
    return row if kept.all() else np.asarray(row)[kept]


def _check_whole_and_alone(
    tokenizer: Any, block: list[str], rows: list[np.ndarray], options: Mapping[str, Any]
) -> None:
    """Check that no text's tokens depend on the texts beside it, and that none is cut or filled up.

    Looked at are the shortest and the longest text, and the one of most tokens.
    """
    places = sorted(range(len(block)), key=lambda i: len(block[i]))
    for i in dict.fromkeys((places[0], places[-1], max(places, key=lambda i: len(rows[i])))):
        text, row = block[i], rows[i]
        if len(block) > 1 and not np.array_equal(alone := _called(tokenizer, [text], options)[0][0], row):
            raise InputError(
                f"the tokenizer gives the text {text[:40]!r} {len(alone)} tokens alone and {len(row)} beside others: "
                "let it return lists without padding, or 'attention_mask' with 0 where a token is padding"
            )
        if len(row) < _FEWEST_CUT:
            continue
        try:
            twice = _called(tokenizer, [f"{text} {text}"], options)[0][0]
        except Exception:  # too long for it, which is no fault: no text is as long
            continue
        if len(twice) <= len(row):
            raise InputError(
                f"the tokenizer gives the text {text[:40]!r} as many tokens as twice this text ({len(row)}): let it "
                "neither cut texts nor fill them up to a length"
            )


def _blocks(texts: Sequence[str]) -> Iterator[list[str]]:
    """The texts, at most `_BLOCK` characters at a time or a single one."""
    block: list[str] = []
    size = 0
    for text in texts:
        if block and size + len(text) > _BLOCK:
            yield block
            block, size = [], 0
        block.append(text)
        size += len(text)
    if block:
        yield block


def _end_of(tokenizer: Any, text: str, ids: np.ndarray, spans: Any) -> int | None:
    """Characters of the text up to the end of its leading tokens `ids`; None where the tokenizer does not tell."""
    if spans is None and not hasattr(tokenizer, "decode"):
        return None
    if spans is None:
        return min(len(text), len(tokenizer.decode(ids.tolist(), skip_special_tokens=True)))
    if hasattr(spans, "token_to_chars"):  # of tokenizers: one span is asked for, where all take 100 bytes a token
        spans = [spans.token_to_chars(0) or (0, 0)] if len(ids) == 1 else spans.offsets
    return max((end for _, end in spans[: len(ids)]), default=0)


def check_token_ids(
    tokens: Iterable[np.ndarray], identifiers: Sequence[str], vocab_size: int, what: str, tokenizer: Any = None
) -> None:
    """Check that every token id has a row in the readout of the model, called `what` in the message.

    `tokenizer` names the token.
    """
    for identifier, ids in zip(identifiers, tokens, strict=True):
        if len(ids) and not 0 <= ids.min() <= ids.max() < vocab_size:
            worst = ids.max() if ids.max() >= vocab_size else ids.min()
            name = getattr(tokenizer, "convert_ids_to_tokens", lambda number: None)(int(worst))
            named = "" if name is None else f" ({name!r})"
            raise InputError(
                f"text {identifier!r} has token id {worst}{named}, but the {what} has a vocabulary of {vocab_size}: "
                "the tokenizer belongs to another model, or has tokens that this one never learned: leave the text "
                "out, or pass the tokenizer that the model was trained with"
            )
