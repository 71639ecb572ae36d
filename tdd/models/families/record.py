"""What a family of checkpoints is made of: names of stored tensors, their forms, and the configuration's keys."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np

from tdd.models.spec import DecoderSpec

__all__ = ["Family", "Piece", "Sliced", "Slot", "TensorNames"]


@dataclasses.dataclass(frozen=True)
class Piece:
    """One stored tensor, and how it becomes a part of a parameter.

    Attributes:
      name: its name in the files, with "{layer}" where the layer's number stands.
      shape: as stored.
      transposed: whether the parameter has its axes the other way round.
      interleaved: heads H whose queries, keys and values are stored head by head along the first axis, (H, 3, d);
        the parameter has all queries, then all keys, then all values. 0 where it is not so.
    """

    name: str
    shape: tuple[int, ...]
    transposed: bool = False
    interleaved: int = 0

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of the part of the parameter."""
        return self.shape[::-1] if self.transposed else self.shape

    def to_part(self, stored: np.ndarray) -> np.ndarray:
        """Stored tensor -> part of the parameter; a view unless interleaved."""
        if self.interleaved:
            by_head = stored.reshape(self.interleaved, 3, -1, *self.shape[1:])
            stored = by_head.swapaxes(0, 1).reshape(self.shape)
        return stored.T if self.transposed else stored

    def cut(self, index: tuple[slice, ...], read: Callable[[tuple[slice, ...]], np.ndarray]) -> np.ndarray:
        """A cut of the part of the parameter; `read` takes a cut of the stored tensor."""
        if self.interleaved:
            return self.to_part(read((slice(None),) * len(self.shape)))[index]
        return read(index[::-1]).T if self.transposed else read(index)

    def to_stored(self, part: np.ndarray) -> np.ndarray:
        """The inverse of `to_part`."""
        stored = part.T if self.transposed else part
        if self.interleaved:
            by_kind = stored.reshape(3, self.interleaved, -1, *self.shape[1:])
            stored = by_kind.swapaxes(0, 1).reshape(self.shape)
        return stored


@dataclasses.dataclass(frozen=True)
class Slot:
    """One parameter and the stored tensors that fill it, side by side along its last axis.

    Attributes:
      path: keys into the nested dict of parameters.
      pieces: the stored tensors, of one layer where `layered`.
      layered: whether the parameter is stacked over layers, [L, *shape].
    """

    path: tuple[str, ...]
    pieces: tuple[Piece, ...]
    layered: bool

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter, of one layer where `layered`."""
        parts = [piece.part_shape for piece in self.pieces]
        return (*parts[0][:-1], sum(shape[-1] for shape in parts))

    def stored(self, num_layers: int) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of all stored tensors of this parameter."""
        for layer in range(num_layers if self.layered else 1):
            for piece in self.pieces:
                yield piece.name.format(layer=layer), piece.shape

    def read(self, layer: int, *, dtype: np.dtype, read: Callable[[str], np.ndarray]) -> np.ndarray:
        """The parameter, of one layer where `layered`, from a reader of stored tensors.

        Args:
          layer: its number; without meaning where not `layered`.
          dtype: of the result where several tensors meet; one alone keeps its own.
          read: name -> stored tensor; called once for each piece, and nothing of a tensor is kept but its part.
        """
        if len(self.pieces) == 1:
            (piece,) = self.pieces
            return piece.to_part(read(piece.name.format(layer=layer)))
        whole = np.empty(self.shape, dtype)
        for piece, part in zip(self.pieces, self._parts(whole), strict=True):
            part[...] = piece.to_part(read(piece.name.format(layer=layer)))
        return whole

    def sliced(self, layer: int, *, dtype: np.dtype, read: Callable[[str, tuple[slice, ...]], np.ndarray]) -> Sliced:
        """As `read`, but nothing is read before a slice is asked for, and then little more than that."""
        readers = (functools.partial(read, piece.name.format(layer=layer)) for piece in self.pieces)
        return Sliced(self.shape, dtype, tuple(zip(self.pieces, readers, strict=True)))

    def write(self, layer: int, parameter: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """The inverse of `read`: stored tensors by name."""
        for piece, part in zip(self.pieces, self._parts(parameter), strict=True):
            yield piece.name.format(layer=layer), piece.to_stored(part)

    def _parts(self, whole: np.ndarray) -> list[np.ndarray]:
        ends = np.cumsum([piece.part_shape[-1] for piece in self.pieces])
        return np.split(whole, ends[:-1], axis=-1)


class Sliced(NamedTuple):
    """A parameter, of one layer where it is layered, of which only slices are ever read.

    Attributes:
      shape: of all of it.
      dtype: of slices to which several stored tensors contribute; one alone keeps its own.
      pieces: the stored tensors, side by side along the last axis, with what reads cuts of them.
    """

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: tuple[tuple[Piece, Callable[[tuple[slice, ...]], np.ndarray]], ...]

    def cut(self, index: tuple[slice, ...]) -> np.ndarray:
        """The parameter at a slice without a step for each axis."""
        *before, last = index
        start, stop, _ = last.indices(self.shape[-1])
        parts, offset = [], 0
        for piece, read in self.pieces:
            size = piece.part_shape[-1]
            mine = slice(max(start - offset, 0), min(stop - offset, size))
            if mine.start < mine.stop:
                parts.append(piece.cut((*before, mine), read))
            offset += size
        return parts[0] if len(self.pieces) == 1 else np.concatenate([part.astype(self.dtype) for part in parts], -1)


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """How a family names its tensors; "" where it has no such tensor. ".weight" and ".bias" are left out.

    Attributes:
      base: prefix of all names but the head's.
      layer: prefix of a layer's names, behind `base`, with "{layer}" for its number.
      tokens: the token embedding.
      final_norm: norm behind the last layer.
      attention_norm: norm of the attention: before it, or behind the sum in a "post" layout.
      qkv: one projection with all three, or those of queries, keys and values.
      attention_out: projection back into the stream.
      mlp_norm: norm of the multilayer perceptron.
      mlp_in: one projection, or those of gate and up.
      mlp_out: projection back into the stream.
      head: the readout where it is not tied.
      positions: learned positions.
      embedding_in: projection from the embedding's width.
      embedding_out: projection to the embedding's width.
      query_norm: norm of each head of queries.
      key_norm: norm of each head of keys.
      attention_post_norm: norm behind the attention.
      mlp_post_norm: norm behind the multilayer perceptron.
      inputs_first: whether kernels are stored [in, out]; else [out, in].
      heads_interleaved: whether the one projection `qkv` is stored head by head.
    """

    base: str
    layer: str
    tokens: str
    final_norm: str
    attention_norm: str
    qkv: tuple[str, ...]
    attention_out: str
    mlp_norm: str
    mlp_in: tuple[str, ...]
    mlp_out: str
    head: str = "lm_head"
    positions: str = ""
    embedding_in: str = ""
    embedding_out: str = ""
    query_norm: str = ""
    key_norm: str = ""
    attention_post_norm: str = ""
    mlp_post_norm: str = ""
    inputs_first: bool = False
    heads_interleaved: bool = False


@dataclasses.dataclass(frozen=True)
class Family:
    """What sets one family of checkpoints apart.

    Attributes:
      model_type: the `model_type` of its config.json.
      to_spec: configuration with its defaults filled in -> spec. InputError where a value is not supported.
      to_config: spec -> configuration with every key that `to_spec` reads, or None where the family plainly cannot
        express the spec. It need not be sure: `family_of_spec` checks that `to_spec` leads back.
      names: of its tensors.
      used: configuration keys that decide the spec.
      required: configuration keys of its own that would change the computation, with the values under which they
        do not.
      ignored: its own configuration keys that never change the logits of a text.
      buffers: names of stored tensors that are not parameters, with "{layer}" for a layer's number.
      aliases: other names under which files hold a tensor -> the name in `names`.
      bare_prefix: what files of a bare model, without its head, leave out of all names; "" means `names.base`.
    """

    model_type: str
    to_spec: Callable[[Mapping[str, Any]], DecoderSpec]
    to_config: Callable[[DecoderSpec], dict[str, Any] | None]
    names: TensorNames
    used: frozenset[str]
    required: Mapping[str, tuple[Any, ...]] = dataclasses.field(default_factory=dict)
    ignored: frozenset[str] = frozenset()
    buffers: tuple[str, ...] = ()
    aliases: Mapping[str, str] = dataclasses.field(default_factory=dict)
    bare_prefix: str = ""
