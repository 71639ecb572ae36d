"""GGUF files: one file with the weights, often quantised, and what config.json and tokenizer.json would say.

Nothing of a file is run; a chat template is kept as text.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import Any

from tdd.models.families.family import Family
from tdd.models.gguf.configuration import Reading, read_configuration
from tdd.models.gguf.header import Header, read_header
from tdd.models.gguf.tensors import GgufTensors, types
from tdd.models.spec import DecoderSpec
from tdd.models.weights import DTYPES
from tdd.validate.files import reading


@dataclasses.dataclass(frozen=True)
class GgufFile:
    """An opened GGUF file; only its header has been read.

    Raises:
      InputError: It is no GGUF file of a supported architecture, or the package gguf is needed and missing.
    """

    path: pathlib.Path
    _header: Header = dataclasses.field(init=False, repr=False)
    _reading: Reading = dataclasses.field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "_header", read_header(self.path))
        object.__setattr__(self, "_reading", read_configuration(self._header, str(self.path)))

    @property
    def types(self) -> Mapping[str, int]:
        """How many tensors are stored in each type, the most frequent first."""
        return types(self._header)

    @property
    def dtype(self) -> str:
        """The widest type in which matrices are read: that of tensors stored in blocks is float32."""
        found = {tensor.kind.name for tensor in self._header.tensors.values() if len(tensor.shape) > 1}
        return DTYPES[found.pop()].name if len(found) == 1 and found <= DTYPES.keys() else "float32"

    def spec(self) -> tuple[Family, DecoderSpec]:
        """The architecture, with the defaults that transformers fills in."""
        from transformers import AutoConfig

        family, config, _ = self._reading
        with reading(self.path, "a configuration that transformers accepts"):
            filled = AutoConfig.for_model(**config).to_dict()
        with reading(self.path, "a supported configuration"):
            return family, family.to_spec({**config, **filled})

    def tensors(self) -> GgufTensors:
        """The tensors under the family's names."""
        return GgufTensors(self._header, self._reading.forms, str(self.path))

    def tokenizer(self) -> Any:
        """Transformers' fast tokenizer."""
        from tdd.models.gguf.tokenizer import read_tokenizer

        metadata = self._header.metadata
        with reading(self.path, "a tokenizer that tokenizers accepts"):
            return read_tokenizer(metadata, metadata["general.architecture"], str(self.path))
