"""Texts → token ids, the same way for every pass, and windows over texts longer than the model's context."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
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
      tokenizer: A transformers tokenizer, or any callable `(texts, add_special_tokens=True, ...)` that returns
        {"input_ids": [...]}; with `return_offsets_mapping` it may add "offset_mapping" (character spans).
      max_tokens: Longest text, or None.

    Raises:
      InputError: the tokenizer returns something else, or gives up; a text is cut and it does not tell where.
    """
    bos = prepends_bos(tokenizer)
    tokens, kept, scored_bytes = [], [], np.zeros(len(texts), np.int64)
    for i, (text, (row, span)) in enumerate(zip(texts, _rows(tokenizer, texts, spans=True), strict=True)):
        cut = len(row) if max_tokens is None else min(len(row), max_tokens)
        tokens.append(np.asarray(row[:cut], np.int32))
        end = len(text) if cut == len(row) else _end_of(tokenizer, text, row[:cut], span)
        start = 0 if bos or cut == 0 else _end_of(tokenizer, text, row[:1], span)
        if end is None:
            raise InputError(f"text {text[:40]!r} has {len(row)} tokens and is cut after {cut}, but {_NO_SPANS}")
        kept.append(text[:end])
        scored_bytes[i] = -1 if start is None else len(text[start:end].encode())
    return Encoded(tuple(tokens), tuple(kept), scored_bytes, bos)


def token_ids(tokenizer: Any, texts: Sequence[str], *, add_special_tokens: bool) -> list[np.ndarray]:
    """Token ids of each text, int32, as of `encode`; `add_special_tokens` says if the tokenizer adds its own."""
    return [np.asarray(ids, np.int32) for ids, _ in _rows(tokenizer, texts, add_special_tokens=add_special_tokens)]


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
) -> Iterator[tuple[Sequence[int], Any]]:
    """Token ids of each text, and what knows its character spans or None; block after block."""
    options: dict[str, Any] = {"add_special_tokens": add_special_tokens}
    if hasattr(tokenizer, "split_special_tokens"):  # of transformers
        options["split_special_tokens"] = True
    if getattr(tokenizer, "is_fast", False):
        options.update(return_attention_mask=False, verbose=False)
    for block in _blocks(texts):
        with panics(f"the tokenizer gives up on the texts from {block[0][:40]!r} on"):
            encoded = tokenizer(block, **options)
        ids = _check_encoded(encoded, len(block))
        known = getattr(encoded, "encodings", None) if spans else None
        known = encoded["offset_mapping"] if known is None and "offset_mapping" in encoded else known
        yield from zip(ids, known or [None] * len(ids), strict=True)


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


def _end_of(tokenizer: Any, text: str, ids: Sequence[int], spans: Any) -> int | None:
    """Characters of the text up to the end of its leading tokens `ids`; None where the tokenizer does not tell."""
    if spans is None and not hasattr(tokenizer, "decode"):
        return None
    if spans is None:
        return min(len(text), len(tokenizer.decode(list(ids), skip_special_tokens=True)))
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


def _check_encoded(encoded: Any, num_texts: int) -> list[Sequence[int]]:
    """The token ids that a tokenizer returned for a list of texts."""
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
