"""config.json -> family and spec, and the tokenizer beside it."""

from __future__ import annotations

import importlib.util
import itertools
import logging
import pathlib
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from tdd.models.families import MULTIMODAL, family_of_config
from tdd.models.families.family import Family
from tdd.models.spec import DecoderSpec
from tdd.models.tokenizer_limits import check_tokenizer_file
from tdd.models.weights import read_json
from tdd.validate import InputError, some
from tdd.validate.files import check_fetched, reading

if TYPE_CHECKING:
    from tdd.models.quantised.schemes import Scheme

_OLDEST = (5, 22, 2)
"""The oldest transformers whose configurations were compared; pyproject.toml has the same bound."""

_LAYER_COUNTS = ("n_layer", "num_layers", "num_hidden_layers", "attention_types")


def read_config(path: pathlib.Path) -> dict[str, Any]:
    """The contents of a config.json."""
    if not path.is_file():
        if (path.parent / "adapter_config.json").is_file():
            from tdd.models.lora import check_whole

            check_whole(path.parent)  # an adapter alone: the message names its base model
        raise InputError(f"no config.json in {path.parent}; a model folder needs config.json, weights, tokenizer")
    content = read_json(path)
    if not isinstance(content, dict):
        raise InputError(f"{path} must hold a JSON object, got {type(content).__name__}")
    return content


def read_spec(folder: pathlib.Path) -> tuple[Family, DecoderSpec]:
    """The architecture that a folder's config.json describes, with the defaults that transformers fills in.

    Raises:
      InputError: No configuration, one that cannot be read, an unsupported architecture, a key whose meaning is
        unknown, or an unsupported value.
    """
    path = folder / "config.json"
    raw = read_config(path)
    if quantisation_of(folder) is not None:
        raw.pop("quantization_config")
    family = family_of_config(raw, str(path))
    from transformers import AutoConfig

    _check_transformers()
    with reading(path, "a configuration that transformers accepts"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    # keys that transformers drops stay, so that a family can see whether they contradict
    with reading(path, "a supported configuration"):
        whole = config.to_dict()
        if raw["model_type"] in MULTIMODAL:
            from tdd.models.families.multimodal import text_part

            raw, whole = text_part(raw), text_part(whole)
        return family, family.to_spec({**raw, **whole})


def _check_transformers() -> None:
    """Refuse a release that fills in other values than those that the families were compared with."""
    from transformers import __version__ as installed

    numbers = tuple(int(number) for number in re.findall(r"\d+", installed)[: len(_OLDEST)])
    if numbers < _OLDEST:
        needed = ".".join(map(str, _OLDEST))
        raise InputError(
            f"transformers {installed} is installed, and reads some configurations otherwise than {needed}, Gemma's "
            f"activation for one; run pip install 'transformers>={needed}'"
        )


def quantisation_of(folder: pathlib.Path) -> Scheme | None:
    """What a folder's config.json says of quantised weights, for `tdd.models.quantised`; None where it says nothing.

    Raises:
      InputError: No configuration, one that cannot be read, or a method or an option that is not dequantised.
    """
    path = folder / "config.json"
    given = read_config(path).get("quantization_config")
    if given is None:
        return None
    from tdd.models.quantised.schemes import scheme_of

    return scheme_of(given, str(path))


def quantisation_record(folder: pathlib.Path) -> dict[str, Any] | None:
    """What a record says of the quantised weights of a folder; None without any."""
    scheme = quantisation_of(folder)
    if scheme is None:
        return None
    from tdd.models.quantised.view import record

    return record(folder, scheme)


PROBE = (
    "In 2023, 1,234,567 of 3.14159 and 10^5; 007 is 7.",
    "  two blanks,\ttab,\n\n  new lines \r\n and a blank at the end ",
    " leading",
    "Don't; they'll WON'T l'été naïve Ångström \u0041\u030a \ufb01ne \u00bd \u2460",
    "def f(x):\n    return {'a': x**2}  # <b>&amp;</b> https://a.b/c?d=e_f",
    "\u4f60\u597d\uff0c\u4e16\u754c\u3002\u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 "
    "\u041f\u0440\u0438\u0432\u0435\u0442 \u0645\u0631\u062d\u0628\u0627 \u0e2a\u0e27\u0e31\u0e2a\u0e14\u0e35",
    "\U0001f600\U0001f469\u200d\U0001f4bb\ufe0f \u200b\u00a0\ufeff\u2028 \U000e0041 \x00\x7f",
)
"""Texts that readings of a tokenizer differ on: digits, blanks, forms of characters, code, scripts, emoji, controls."""

_SHOWN = 12
_logger = logging.getLogger("tdd")


def read_tokenizer(folder: pathlib.Path, vocab_size: int | None = None) -> Any:
    """The tokenizer of a folder; each of its ids has a row in a vocabulary of that size, if one is given.

    Its tokens are those of tokenizer.json where there is one: transformers rebuilds parts of a tokenizer from the name
    of its class or the type of the model, and drops the file's. Merges are never left out at random.

    Raises:
      InputError: It cannot be read, is empty, has more ids than the model has rows, or lengthens texts without bound.
    """
    from transformers import AutoTokenizer

    _check_reader(folder)
    check_tokenizer_file(folder / "tokenizer.json")
    with reading(folder, "a tokenizer that transformers accepts"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
        if (folder / "tokenizer.json").is_file() and tokenizer.is_fast:
            tokenizer = _as_in_file(folder / "tokenizer.json", tokenizer)
    check_vocabulary(tokenizer.get_vocab(), vocab_size, str(folder))
    longest = tokenizer.model_max_length  # not compared with anything by transformers until a text is encoded
    if longest is not None and (isinstance(longest, bool) or not isinstance(longest, (int, float))):
        raise InputError(
            f"the tokenizer of {folder} has model_max_length={longest!r}, which is no number; mend it there"
        )
    return tokenizer


def _as_in_file(file: pathlib.Path, tokenizer: Any) -> Any:
    """Transformers' tokenizer, or one with the file's tokens where its own differ on `PROBE` or on special tokens."""
    from tokenizers import Tokenizer
    from transformers import PreTrainedTokenizerFast

    own = Tokenizer.from_file(str(file))
    own.no_truncation()
    own.no_padding()
    for one in (own, tokenizer.backend_tokenizer):
        if getattr(one.model, "dropout", None):
            one.model.dropout = None
    special = [str(token) for token in own.get_added_tokens_decoder().values()]
    for text in (*PROBE, *(f"a{token} b" for token in special)):
        theirs, found = _ids(tokenizer, text), _ids(own, text)
        if theirs == found or not found:
            continue
        kind = type(tokenizer).__name__
        _logger.warning(
            "%s: transformers' %s reads it otherwise (%r is %s there, %s by the file); the file's tokens are used",
            *(file, kind, text[:_SHOWN], theirs[:_SHOWN], found[:_SHOWN]),
        )
        named = {name: token for name, token in tokenizer.special_tokens_map.items() if isinstance(token, str)}
        kept = {name: token for name, token in named.items() if own.token_to_id(token) is not None}
        replaced = PreTrainedTokenizerFast(tokenizer_object=own, **kept)
        replaced.chat_template = tokenizer.chat_template
        replaced.model_max_length = tokenizer.model_max_length
        replaced.read_from = f"{file.name}; transformers' {kind} differs"
        return replaced
    return tokenizer


def _ids(tokenizer: Any, text: str) -> list[int]:
    """Token ids by transformers or by tokenizers; none of a text that the vocabulary cannot say."""
    try:
        if hasattr(tokenizer, "encode_batch"):
            return tokenizer.encode(text).ids
        return tokenizer(text, truncation=False, padding=False, verbose=False)["input_ids"]
    except Exception as error:  # the library's own class of errors is plain Exception
        _logger.debug("%r cannot be encoded: %s", text, error)
        return []


_TIKTOKEN = re.compile(rb"[A-Za-z0-9+/]+=* \d+\r?\n")


def check_tokenizer_present(folder: pathlib.Path) -> None:
    """Some tokenizer is there."""
    sets = (("tokenizer.json",), ("tokenizer.model",), ("vocab.json", "merges.txt"))
    if not any(all((folder / name).is_file() for name in names) for names in sets):
        raise InputError(
            f"no tokenizer in {folder}: need tokenizer.json, tokenizer.model, or vocab.json with merges.txt; "
            "save the tokenizer that the model was trained with into the folder"
        )


def _check_reader(folder: pathlib.Path) -> None:
    """A tokenizer.model alone has the package that reads it: sentencepiece, or tiktoken for lines of base64."""
    path = folder / "tokenizer.model"
    first = next((file for file in (folder / "tokenizer.json", path) if file.is_file()), None)
    if first is not None:
        check_fetched(first)
    if (folder / "tokenizer.json").is_file() or (folder / "vocab.json").is_file() or not path.is_file():
        return
    with path.open("rb") as file:
        package = "tiktoken" if _TIKTOKEN.match(file.read(4096)) else "sentencepiece"
    if importlib.util.find_spec(package) is None:
        raise InputError(
            f"{path} is the only tokenizer there, and the package {package} reads it: pip install {package}, or "
            "save a tokenizer.json into the folder (AutoTokenizer.from_pretrained(folder).save_pretrained(folder))"
        )


def log_tokens_without_row(vocabulary: Mapping[str, int], vocab_size: int, where: str) -> None:
    """Name the tokens beyond the model's rows; a text that uses one is refused when it is scored."""
    beyond = sorted((number, token) for token, number in vocabulary.items() if number >= vocab_size)
    if beyond:
        _logger.warning(
            "%s: %d tokens have no row in the model's vocabulary of %d (%s); texts with one of them are refused",
            *(where, len(beyond), vocab_size, some([f"{token!r} {number}" for number, token in beyond])),
        )


def check_vocabulary(vocabulary: Mapping[str, int], vocab_size: int | None, where: str) -> None:
    """The tokenizer's ids are clear, and each has a row in the model, if the number of rows is given."""
    if not vocabulary:
        raise InputError(f"the tokenizer of {where} has an empty vocabulary")
    token_of = {number: token for token, number in vocabulary.items()}
    for token, number in vocabulary.items():
        if token_of[number] != token:
            raise InputError(
                f"the tokenizer of {where} has id {number} twice, for {token!r} and {token_of[number]!r}: which of the "
                "two a row of the model stands for cannot be told; save the tokenizer of the model again"
            )
    token, largest = max(vocabulary.items(), key=lambda entry: entry[1])
    if vocab_size is not None and largest >= vocab_size:
        raise InputError(
            f"the tokenizer of {where} has id {largest} (token {token!r}), but the model's vocabulary has "
            f"{vocab_size} rows: tokenizer and model do not belong together"
        )


def check_layer_counts(path: pathlib.Path, num_tensors: int) -> None:
    """A config.json has no more layers than there are tensors, before a list as long as the layers is made."""
    config = read_config(path)
    within = config.get("text_config")
    parts = (config, within) if isinstance(within, dict) else (config,)
    for part, key in itertools.product(parts, _LAYER_COUNTS):
        if any(number > num_tensors for number in _numbers(part.get(key))):
            raise InputError(
                f"{path} has {key}={part[key]!r}, but the files beside it hold {num_tensors} tensors, fewer "
                "than layers: they do not belong together"
            )


def _numbers(value: Any) -> Iterator[int | float]:
    """The numbers in nested lists."""
    if isinstance(value, list):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, (int, float)):
        yield value
