"""config.json -> family and spec, and the tokenizer beside it."""

from __future__ import annotations

import pathlib
from typing import Any

from tdd.models.families import family_of_config
from tdd.models.families.record import Family
from tdd.models.spec import DecoderSpec
from tdd.validate.checkpoints import check_config, check_vocabulary, reading

__all__ = ["read_spec", "read_tokenizer"]


def read_spec(folder: pathlib.Path) -> tuple[Family, DecoderSpec]:
    """The architecture that a folder's config.json describes, with the defaults that transformers fills in.

    Raises:
      InputError: no configuration, one that cannot be read, an unsupported architecture, a key whose meaning is
        unknown, or a value that is not supported.
    """
    path = folder / "config.json"
    raw = check_config(path)
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
      InputError: it cannot be read, is empty, or has more ids than the model has rows.
    """
    from transformers import AutoTokenizer

    with reading(folder, "a tokenizer that transformers accepts"):
        tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    check_vocabulary(tokenizer.get_vocab(), vocab_size, str(folder))
    return tokenizer
