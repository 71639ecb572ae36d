"""The tokenizer that a GGUF file describes, built of the library tokenizers.

A file holds tokens, their types, merges or scores, the numbers of special tokens, and the name of a rule that cuts a
text into words; the rule itself stands here. Tokens are those of ggml's own readers. Some tokenizer.json
normalise a text (Qwen's to NFC) where no GGUF file says so: composed text has the same tokens either way.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.models.gguf.header import single
from tdd.validate import InputError

_BLANK = "\u2581"
_NORMAL, _UNKNOWN, _CONTROL, _USER_DEFINED = 1, 2, 3, 4
_PREFIX = "tokenizer.ggml."

_SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_CL100K = _CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|" + _SPACES
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"


def _by_case(ending: str, digits: str) -> str:
    """Words that begin anew at capital letters."""
    words = rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*{ending}"
    return rf"{words}|{digits}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_SPACES}"


class _Rule(NamedTuple):
    """How a text is cut into words before tokens are merged."""

    expression: str  # what a word is; "" for that of GPT-2
    digits: bool = False  # true if every digit is a word, before all else
    whole_words: bool = False  # true if a word that is a token is not built by merges
    begins: bool = False  # true if texts begin with the first special token where the file does not say


_GPT2, _DIGITS = _Rule(""), _Rule("", digits=True)
_LLAMA3 = _Rule(_CL100K, whole_words=True, begins=True)
_QWEN2 = _Rule(_CL100K.replace("{1,3}", ""))
_GPT4O = _Rule(_by_case(rf"{_CONTRACTIONS}?", r"\p{N}{1,3}"))
RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "phi-2"), _GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell"), _DIGITS),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _Rule(_CL100K)),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2"), _QWEN2),
    **dict.fromkeys(("gpt-4o", "llama4"), _GPT4O),
    "tekken": _Rule(_by_case("", r"\p{N}"), whole_words=True, begins=True),
}
"""Supported values of tokenizer.ggml.pre."""


class _Vocabulary(NamedTuple):
    """The lists of a file, checked."""

    tokens: list[str]
    kinds: Sequence[int]  # one a token
    numbers: dict[str, int]  # number of each token

    def of(self, *kinds: int) -> list[str]:
        """The tokens of these kinds, in the file's order."""
        return [token for token, kind in zip(self.tokens, self.kinds, strict=True) if kind in kinds]


def read_tokenizer(metadata: Mapping[str, Any], architecture: str, where: str) -> Any:
    """Transformers' fast tokenizer around the one that the metadata describe.

    Raises:
      InputError: No tokenizer, one of another model than byte-level BPE ("gpt2") or SentencePiece's BPE ("llama"), an
        unknown rule for words, or lists that do not fit together.
    """
    from transformers import PreTrainedTokenizerFast

    vocabulary, model = _vocabulary(metadata, where), single(metadata, f"{_PREFIX}model", None, where)
    if model == "gpt2":
        rule = _rule(metadata, architecture, where)
        built, begins = _byte_level(metadata, vocabulary, rule, where), rule.begins
    elif model == "llama":
        built, begins = _with_blanks(metadata, vocabulary, where), True
    else:
        raise InputError(f"{where} has {_PREFIX}model = {model!r}, which is not supported; supported: gpt2, llama")
    _add_whole(built, vocabulary)
    special = {
        name: _token(metadata, key, vocabulary, where)
        for name, key in (("bos", "bos"), ("eos", "eos"), ("unk", "unknown"), ("pad", "padding"))
    }
    first = special["bos"] if _flag(metadata, "add_bos_token", begins, where) else None
    last = special["eos"] if _flag(metadata, "add_eos_token", False, where) else None
    _enclose(built, first, last, vocabulary)
    found = PreTrainedTokenizerFast(
        tokenizer_object=built,
        **{f"{name}_token": token for name, token in special.items()},
    )
    template = metadata.get("tokenizer.chat_template")
    found.chat_template = template if isinstance(template, str) else None
    rule = f" {metadata[f'{_PREFIX}pre']}" if f"{_PREFIX}pre" in metadata else ""
    found.read_from = f"GGUF metadata ({model}{rule})"
    return found


def _vocabulary(metadata: Mapping[str, Any], where: str) -> _Vocabulary:
    tokens = metadata.get(f"{_PREFIX}tokens")
    if not isinstance(tokens, list) or not tokens:
        raise InputError(f"{where} has no list {_PREFIX}tokens; convert the model again, with its tokenizer")
    numbers = {token: number for number, token in enumerate(tokens)}
    if len(numbers) < len(tokens):
        token = next(token for number, token in enumerate(tokens) if numbers[token] != number)
        raise InputError(f"{where} has the token {token!r} twice; convert the model again")
    kinds = _one_each(metadata, "token_type", len(tokens), where)
    return _Vocabulary(tokens, [_NORMAL] * len(tokens) if kinds is None else kinds.tolist(), numbers)


def _one_each(metadata: Mapping[str, Any], key: str, count: int, where: str) -> np.ndarray | None:
    """An array with one number a token, or None if it is not there."""
    values = metadata.get(_PREFIX + key)
    if values is not None and not (isinstance(values, np.ndarray) and len(values) == count):
        raise InputError(f"{where} must have one number a token ({count}) in {_PREFIX}{key}; convert the model again")
    return values


def _rule(metadata: Mapping[str, Any], architecture: str, where: str) -> _Rule:
    name = metadata.get(f"{_PREFIX}pre", "gpt-2" if architecture == "gpt2" else None)
    if not isinstance(name, str) or name not in RULES:
        raise InputError(
            f"{where} has {_PREFIX}pre = {name!r}, a rule for words that is not known; known: {', '.join(RULES)}"
        )
    return RULES[name]


def _byte_level(metadata: Mapping[str, Any], vocabulary: _Vocabulary, rule: _Rule, where: str) -> Any:
    """BPE over bytes, each written as a printable character."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers

    listed = metadata.get(f"{_PREFIX}merges")
    if not isinstance(listed, list):
        raise InputError(f"{where} has no list {_PREFIX}merges, which a tokenizer of model gpt2 needs")
    merges = [(left, right) for left, _, right in (str(pair).partition(" ") for pair in listed)]
    for left, right in merges:
        if not {left, right, left + right} <= vocabulary.numbers.keys():
            raise InputError(f"{where} has the merge {f'{left} {right}'!r}, whose parts or whole are no tokens")
    built = Tokenizer(models.BPE(vocabulary.numbers, merges, ignore_merges=rule.whole_words))
    cut: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if rule.digits else []
    if rule.expression:
        cut.append(pre_tokenizers.Split(Regex(rule.expression), "isolated"))
    cut.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not rule.expression))
    built.pre_tokenizer = pre_tokenizers.Sequence(cut)
    built.decoder = decoders.ByteLevel()
    return built


def _with_blanks(metadata: Mapping[str, Any], vocabulary: _Vocabulary, where: str) -> Any:
    """SentencePiece's BPE: the adjacent pair whose token has the best score is merged; bytes where no token fits."""
    from tokenizers import Tokenizer, decoders, models, normalizers

    scores = _one_each(metadata, "scores", len(vocabulary.tokens), where)
    if scores is None:
        raise InputError(f"{where} has no {_PREFIX}scores, which a tokenizer of model llama needs")
    unknown = _token(metadata, "unknown", vocabulary, where)
    built = Tokenizer(
        models.BPE(
            vocabulary.numbers, _merges(vocabulary, scores), unk_token=unknown, fuse_unk=True, byte_fallback=True
        )
    )
    spaced = normalizers.Replace(" ", _BLANK)
    begun = _flag(metadata, "add_space_prefix", True, where)
    built.normalizer = normalizers.Sequence([normalizers.Prepend(_BLANK), spaced]) if begun else spaced
    ends = [decoders.Strip(" ", 1, 0)] if begun else []
    built.decoder = decoders.Sequence([decoders.Replace(_BLANK, " "), decoders.ByteFallback(), decoders.Fuse(), *ends])
    return built


def _merges(vocabulary: _Vocabulary, scores: np.ndarray) -> list[tuple[str, str]]:
    """Every way to build a token of two others, the best token first; of equal scores the first token."""
    numbers, found = vocabulary.numbers, []
    for whole in np.argsort(-scores.astype(np.float64), kind="stable").tolist():
        token = vocabulary.tokens[whole]
        if vocabulary.kinds[whole] in (_NORMAL, _USER_DEFINED):
            halves = ((token[:cut], token[cut:]) for cut in range(1, len(token)))
            known = [pair for pair in halves if pair[0] in numbers and pair[1] in numbers]
            found += sorted(known, key=lambda pair: (numbers[pair[0]], numbers[pair[1]]))
    return found


def _add_whole(built: Any, vocabulary: _Vocabulary) -> None:
    """Tokens that stand for themselves wherever they occur in a text."""
    from tokenizers import AddedToken

    built.add_special_tokens(
        [AddedToken(token, normalized=False, special=True) for token in vocabulary.of(_CONTROL, _UNKNOWN) if token]
    )
    built.add_tokens([AddedToken(token, normalized=False) for token in vocabulary.of(_USER_DEFINED) if token])


def _enclose(built: Any, first: str | None, last: str | None, vocabulary: _Vocabulary) -> None:
    """Every text begins with `first` and ends with `last`, where they are not None."""
    from tokenizers import processors

    before, after = [first] if first is not None else [], [last] if last is not None else []
    if before or after:
        built.post_processor = processors.TemplateProcessing(
            single=[*before, "$A", *after],
            pair=[*before, "$A", "$B", *after],
            special_tokens=[(token, vocabulary.numbers[token]) for token in {*before, *after}],
        )


def _token(metadata: Mapping[str, Any], key: str, vocabulary: _Vocabulary, where: str) -> str | None:
    """The special token whose number an entry holds; None without the entry."""
    number = metadata.get(f"{_PREFIX}{key}_token_id")
    if number is None:
        return None
    if type(number) is not int or not 0 <= number < len(vocabulary.tokens):
        raise InputError(f"{where} has {_PREFIX}{key}_token_id = {number!r}, but {len(vocabulary.tokens)} tokens")
    return vocabulary.tokens[number]


def _flag(metadata: Mapping[str, Any], key: str, default: bool, where: str) -> bool:
    value = metadata.get(_PREFIX + key, default)
    if not isinstance(value, bool):
        raise InputError(f"{where} has {_PREFIX}{key} = {value!r}; it must be true or false")
    return value
