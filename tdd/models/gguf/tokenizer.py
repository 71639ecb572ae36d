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


_CASED = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373"
    "\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
"""Ranges of letters that have case, as DeepSeek's tokenizers list them: those of an older Unicode."""


class _Rule(NamedTuple):
    """How a text is cut into words before tokens are merged."""

    expressions: tuple[str, ...]  # what a word is; each expression cuts the pieces that those before it have made
    whole_words: bool = False  # true if a word that is a token is not built by merges
    begins: bool = False  # true if texts begin with the first special token where the file does not say


_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_LLAMA3 = _Rule((_CL100K,), whole_words=True, begins=True)
_QWEN2 = _CL100K.replace("{1,3}", "")
_LINES, _EAST_ASIAN = r"[\r\n]", "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_MARKS = "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"
RULES: Mapping[str, _Rule] = {
    **dict.fromkeys(("gpt-2", "mpt", "olmo", "phi-2", "mellum", "a.x-4.0", "gigachat", "trillion"), _Rule((_GPT2,))),
    **dict.fromkeys(
        ("smollm", "starcoder", "refact", "command-r", "codeshell", "minerva-7b"), _Rule((r"\p{N}", _GPT2))
    ),
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "pixtral", "midm-2.0"), _LLAMA3),
    **dict.fromkeys(("dbrx", "smaug-bpe"), _Rule((_CL100K,))),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "kormo"), _Rule((_QWEN2,))),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2"), _Rule((_by_case(rf"{_CONTRACTIONS}?", r"\p{N}{1,3}"),))),
    "tekken": _Rule((_by_case("", r"\p{N}"),), whole_words=True, begins=True),
    "deepseek-coder": _Rule((_LINES, r"\s?\p{L}+", r"\s?\p{P}+", _EAST_ASIAN, r"\p{N}")),
    "deepseek-llm": _Rule((_LINES, rf"\s?[{_CASED}]+", _MARKS, r"\s+$", _EAST_ASIAN, r"\p{N}+")),
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
    cut: list[Any] = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in rule.expressions]
    as_bytes = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    built.pre_tokenizer = pre_tokenizers.Sequence([*cut, as_bytes])
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
