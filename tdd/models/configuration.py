"""config.json -> family and spec, and the tokenizer beside it."""

from __future__ import annotations

import pathlib
from collections.abc import Iterator, Mapping
from typing import Any

from tdd.models.families import family_of_config
from tdd.models.families.family import Family
from tdd.models.spec import DecoderSpec
from tdd.models.weights import read_json
from tdd.validate import InputError
from tdd.validate.files import reading

_LAYER_COUNTS = ("n_layer", "num_layers", "num_hidden_layers", "attention_types")


def read_config(path: pathlib.Path) -> dict[str, Any]:
    """The contents of a config.json."""
    if not path.is_file():
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
    family = family_of_config(raw, str(path))
    from transformers import AutoConfig

    with reading(path, "a configuration that transformers accepts"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    # keys that transformers drops stay, so that a family can see whether they contradict
    with reading(path, "a supported configuration"):
        return family, family.to_spec({**raw, **config.to_dict()})


def read_tokenizer(folder: pathlib.Path, vocab_size: int) -> Any:
    """The tokenizer of a folder; each of its ids has a row in a vocabulary of that size, which may be larger.

    Raises:
      InputError: It cannot be read, is empty, or has more ids than the model has rows.
    """
    from transformers import AutoTokenizer

    with reading(folder, "a tokenizer that transformers accepts"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    check_vocabulary(tokenizer.get_vocab(), vocab_size, str(folder))
    return tokenizer


def check_vocabulary(vocabulary: Mapping[str, int], vocab_size: int, where: str) -> None:
    """Every id of the tokenizer has a row in the model."""
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
    if largest >= vocab_size:
        raise InputError(
            f"the tokenizer of {where} has id {largest} (token {token!r}), but the model's vocabulary has "
            f"{vocab_size} rows: tokenizer and model do not belong together"
        )


def check_layer_counts(path: pathlib.Path, num_tensors: int) -> None:
    """A config.json has no more layers than there are tensors, before a list as long as the layers is made."""
    config = read_config(path)
    for key in _LAYER_COUNTS:
        if any(number > num_tensors for number in _numbers(config.get(key))):
            raise InputError(
                f"{path} has {key}={config[key]!r}, but the files beside it hold {num_tensors} tensors, fewer "
                "than layers: they do not belong together"
            )


def _numbers(value: Any) -> Iterator[int | float]:
    """The numbers in nested lists."""
    if isinstance(value, list):
        for entry in value:
            yield from _numbers(entry)
    elif isinstance(value, (int, float)):
        yield value
