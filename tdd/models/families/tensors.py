"""The stored tensors that fill each parameter, and the forms in which they are stored."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from tdd.models.spec import DecoderSpec, Experts, Latent, LayerNorm, LearnedPositions, Mlp


@dataclasses.dataclass(frozen=True)
class Piece:
    """One stored tensor that becomes a part of a parameter."""

    # its name in the files, with "{layer}" for the number of the layer and "{expert}" for that of the expert or head
    name: str
    shape: tuple[int, ...]
    transposed: bool = False  # true if the parameter has the last two axes in reverse order
    # number of groups G of heads that are stored one by one along the first axis, each with its queries, its key and
    # its value, (G, queries + 2, d), where the parameter has all queries, then all keys, then all values; 0 for any
    # other tensor
    interleaved: int = 0
    queries: int = 1  # query heads of a group
    column: bool = False  # true if a vector is one column of the parameter
    # true if entries of gate and up alternate along the last axis, where the parameter has all of the gate first
    alternating: bool = False

    @property
    def part_shape(self) -> tuple[int, ...]:
        """Shape of the part of the parameter."""
        if self.column:
            return (*self.shape, 1)
        return _turned(self.shape) if self.transposed else self.shape

    def to_part(self, stored: np.ndarray) -> np.ndarray:
        """Stored tensor -> part of the parameter; a view unless interleaved."""
        if self.interleaved:
            stored = self._heads(stored)[self._order].reshape(self.shape)
        if self.column:
            return stored[..., None]
        if self.alternating:
            return np.concatenate([stored[..., ::2], stored[..., 1::2]], axis=-1)
        return stored.swapaxes(-1, -2) if self.transposed else stored

    def cut(self, index: tuple[slice, ...], read: Callable[[tuple[slice, ...]], np.ndarray]) -> np.ndarray:
        """A slice of the part of the parameter; `read` takes a slice of the stored tensor."""
        if self.interleaved:
            return self.to_part(read((slice(None),) * len(self.shape)))[index]
        if self.column:
            return read(index[:-1])[..., None]
        if self.alternating:
            return self.to_part(read((*index[:-1], slice(None))))[..., index[-1]]
        return read(_turned(index)).swapaxes(-1, -2) if self.transposed else read(index)

    def to_stored(self, part: np.ndarray) -> np.ndarray:
        """The inverse of `to_part`."""
        if self.column:
            return part[..., 0]
        if self.alternating:
            return np.stack(np.split(part, 2, axis=-1), axis=-1).reshape(self.shape)
        stored = part.swapaxes(-1, -2) if self.transposed else part
        if self.interleaved:
            stored = self._heads(stored)[np.argsort(self._order)].reshape(self.shape)
        return stored

    def _heads(self, rows: np.ndarray) -> np.ndarray:
        return rows.reshape(self.interleaved * (self.queries + 2), -1, *self.shape[1:])

    @property
    def _order(self) -> np.ndarray:
        """The numbers, in the files, of all query heads, then all heads of keys, then all of values."""
        places = np.arange(self.interleaved * (self.queries + 2)).reshape(self.interleaved, -1)
        return np.concatenate([places[:, : self.queries].ravel(), places[:, -2], places[:, -1]])


def _turned(values: tuple[Any, ...]) -> tuple[Any, ...]:
    *before, last, but_one = values
    return (*before, but_one, last)


@dataclasses.dataclass(frozen=True)
class Slot:
    """One parameter and the stored tensors that fill it, side by side along its last axis."""

    path: tuple[str, ...]  # keys into the nested dict of parameters
    pieces: tuple[Piece, ...]  # the stored tensors, or those of one expert
    # numbers of the layers over which the parameter is a stack, [len(layers), *shape]; empty if it is none
    layers: range = range(0)
    # E, if the parameter (or one of its layers) is a stack over experts, or over heads, whose tensors are stored one by
    # one; 0 for any other
    experts: int = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the parameter, or of one of its layers."""
        return (self.experts, *self._of_one) if self.experts else self._of_one

    @property
    def _of_one(self) -> tuple[int, ...]:
        """Shape of what the pieces fill."""
        parts = [piece.part_shape for piece in self.pieces]
        return (*parts[0][:-1], sum(shape[-1] for shape in parts))

    @property
    def whole_shape(self) -> tuple[int, ...]:
        """Shape of the parameter with its layers."""
        return (len(self.layers), *self.shape) if self.layers else self.shape

    def stored(self) -> Iterator[tuple[str, tuple[int, ...]]]:
        """Names and shapes of all stored tensors of this parameter."""
        for layer in range(len(self.layers) or 1):
            for expert in range(self.experts or 1):
                yield from ((self._name(piece, layer, expert), piece.shape) for piece in self.pieces)

    def _name(self, piece: Piece, layer: int, expert: int = 0) -> str:
        """The name of a stored tensor; here and below `layer` is a place in `layers`."""
        return piece.name.format(layer=self.layers[layer] if self.layers else 0, expert=expert)

    def read(self, layer: int, *, dtype: np.dtype, read: Callable[[str], np.ndarray]) -> np.ndarray:
        """The parameter, or one of its layers, from a reader of stored tensors, which is called once for each of them.

        Several tensors become one of type `dtype`, one of them held at a time; a single tensor keeps its own type.
        """
        if len(self.pieces) == 1 and not self.experts:
            (piece,) = self.pieces
            return piece.to_part(read(self._name(piece, layer)))
        whole = np.empty(self.shape, dtype)
        for name, piece, part in self._parts(layer, whole):
            part[...] = piece.to_part(read(name))
        return whole

    def sliced(
        self, layer: int, *, dtype: np.dtype, read: Callable[[str, tuple[slice, ...]], np.ndarray]
    ) -> Sliced | Stack:
        """As `read`, but nothing is read until a slice is asked for, and then little more than that slice."""

        def of(expert: int) -> Sliced:
            readers = (functools.partial(read, self._name(piece, layer, expert)) for piece in self.pieces)
            return Sliced(self._of_one, dtype, tuple(zip(self.pieces, readers, strict=True)))

        return Stack(self.shape, dtype, tuple(map(of, range(self.experts)))) if self.experts else of(0)

    def write(self, layer: int, parameter: np.ndarray) -> Iterator[tuple[str, np.ndarray]]:
        """The inverse of `read`: stored tensors by name."""
        for name, piece, part in self._parts(layer, parameter):
            yield name, piece.to_stored(part)

    def _parts(self, layer: int, whole: np.ndarray) -> Iterator[tuple[str, Piece, np.ndarray]]:
        """Every stored tensor's name, its form and its part of the parameter."""
        ends = np.cumsum([piece.part_shape[-1] for piece in self.pieces])
        for expert, one in enumerate(whole if self.experts else [whole]):
            for piece, part in zip(self.pieces, np.split(one, ends[:-1], axis=-1), strict=True):
                yield self._name(piece, layer, expert), piece, part


class Sliced(NamedTuple):
    """A parameter of this shape, or one of its layers, that is read slice by slice; types are as in `Slot.read`."""

    shape: tuple[int, ...]
    dtype: np.dtype
    pieces: tuple[tuple[Piece, Callable[[tuple[slice, ...]], np.ndarray]], ...]

    def cut(self, index: tuple[slice, ...]) -> np.ndarray:
        """The parameter at one slice (without a step) for each axis."""
        *before, last = index
        start, stop, _ = last.indices(self.shape[-1])
        parts, offset = [], 0
        for piece, read in self.pieces:
            size = piece.part_shape[-1]
            overlap = slice(max(start - offset, 0), min(stop - offset, size))
            if overlap.start < overlap.stop:
                parts.append(piece.cut((*before, overlap), read))
            offset += size
        return parts[0] if len(self.pieces) == 1 else np.concatenate([part.astype(self.dtype) for part in parts], -1)


class Stack(NamedTuple):
    """A stack over experts, each of them read slice by slice."""

    shape: tuple[int, ...]
    dtype: np.dtype
    experts: tuple[Sliced, ...]

    def cut(self, index: tuple[slice, ...]) -> np.ndarray:
        """The parameter at one slice (without a step) for each axis."""
        chosen, *rest = index
        return np.stack([expert.cut(tuple(rest)).astype(self.dtype) for expert in self.experts[chosen]])


@dataclasses.dataclass(frozen=True)
class TensorNames:
    """A family's names of its tensors, without ".weight" and ".bias"; the defaults are LLaMA's, and "" means none."""

    base: str = "model."  # prefix of all names except the head's
    layer: str = "layers.{layer}."  # prefix of the names in a layer, after `base`, with "{layer}" for its number
    tokens: str = "embed_tokens"
    positions: str = ""
    embedding_norm: str = ""  # norm of the embedded tokens
    embedding_in: str = ""  # projections from and to the embedding's width
    embedding_out: str = ""
    # norm of each part: before it, after the sum in a "post" layout, or of its output in a "branch" layout
    attention_norm: str = "input_layernorm"
    mlp_norm: str = "post_attention_layernorm"
    parallel_norms: tuple[str, ...] = ()  # both of them in a "parallel" layout, if they have other names there
    attention_post_norm: str = ""  # norm of the part's output in a "sandwich" layout
    mlp_post_norm: str = ""
    # one projection with all three, or those of queries, keys and values
    qkv: tuple[str, ...] = ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj")
    # norm of each head, or of all together; with "{expert}" for the number of a head, if each has a tensor of its own
    query_norm: str = "self_attn.q_norm"
    key_norm: str = "self_attn.k_norm"
    attention_out: str = "self_attn.o_proj"  # projections back into the stream
    mlp_out: str = "mlp.down_proj"
    mlp_in: tuple[str, ...] = ("mlp.gate_proj", "mlp.up_proj")  # one projection, or those of gate and up
    # projections of the experts, with "{expert}" for the number of one, or single tensors, without ".weight", that are
    # stacks over the experts; and their scores
    experts_in: tuple[str, ...] = ()
    experts_out: str = ""
    router: str = ""
    correction: str = ""  # what is added to the scores to choose experts, with any ".weight"
    shared_in: tuple[str, ...] = ()  # gate and up of the perceptron beside the experts, and its projection back
    shared_out: str = ""
    # projections of latent attention: of the queries, of keys and values down and up; `query_norm` and `key_norm` are
    # between them
    query_down: str = ""
    query: str = ""
    query_up: str = ""  # in place of `query` behind `query_down`
    kv_down: str = ""
    kv_up: str = ""
    experts_inputs_first: bool = False  # true if stacks are [E, in, out] instead, with gate and up in turn
    sinks: str = "self_attn.sinks"  # of attention; without ".weight"
    final_norm: str = "norm"
    head: str = "lm_head"
    inputs_first: bool = False  # true if kernels are stored [in, out] instead of [out, in]
    # true if the one projection `qkv` is stored by heads of keys, each with its queries, its key and its value
    heads_interleaved: bool = False


STACKS = {"experts_in": ("mlp.experts.gate_up_proj",), "experts_out": "mlp.experts.down_proj", "router": "mlp.gate"}
"""Names in files of any family where the experts of a layer are one tensor."""


def slots(spec: DecoderSpec, names: TensorNames) -> tuple[Slot, ...]:
    """Every parameter of a decoder with its stored tensors."""
    in_layers = (
        dataclasses.replace(slot, path=(stack, *slot.path), layers=layers)
        for stack, layers, mlp in spec.runs
        for slot in _layer(spec, names, mlp)
    )
    return (*_trunk(spec, names), *in_layers)


def _trunk(spec: DecoderSpec, names: TensorNames) -> Iterator[Slot]:
    def matrix(path: tuple[str, str], name: str, *shape: int, transposed: bool = False) -> Slot:
        return Slot(path, (Piece(f"{name}.weight", shape, transposed),))

    base, width, embedded = names.base, spec.width, spec.embedded_width
    yield matrix(("embedding", "tokens"), base + names.tokens, spec.vocab_size, embedded)
    if isinstance(spec.positions, LearnedPositions):
        rows = spec.positions.count + spec.positions.offset
        yield matrix(("embedding", "positions"), base + names.positions, rows, width)
    if spec.embedding_width is not None:
        for path, name, inputs, outputs in (
            ("embedding_in", names.embedding_in, embedded, width),
            ("embedding_out", names.embedding_out, width, embedded),
        ):
            yield matrix((path, "kernel"), base + name, outputs, inputs, transposed=True)
    if spec.embedding_norm:
        yield from _norm(spec, "embedding_norm", base + names.embedding_norm, width)
    if spec.final_norm:
        yield from _norm(spec, "final_norm", base + names.final_norm, width)
    if not spec.tied_head:
        biases = (Piece(f"{names.head}.bias", (spec.vocab_size,), column=True),) if spec.head_bias else ()
        yield Slot(("head", "kernel"), (Piece(f"{names.head}.weight", (spec.vocab_size, embedded)), *biases))


def _layer(spec: DecoderSpec, names: TensorNames, mlp: Mlp | Experts) -> Iterator[Slot]:
    """The parameters of one layer, whose paths begin with the name of its stack."""
    attention, width = spec.attention, spec.width
    before = names.attention_norm, names.mlp_norm
    if spec.layout == "parallel" and names.parallel_norms:
        before = names.parallel_norms
    norms: dict[str, tuple[str, int]] = {"attention_norm": (before[0], width)}
    if spec.layout != "shared":
        norms["mlp_norm"] = (before[1], width)
    if spec.layout == "sandwich":
        norms["attention_post_norm"] = (names.attention_post_norm, width)
        norms["mlp_post_norm"] = (names.mlp_post_norm, width)
    if attention.qk_norm == "each":
        for path, name, heads in (
            ("query_norm", names.query_norm, attention.num_heads),
            ("key_norm", names.key_norm, attention.kv_heads),
        ):
            yield from _norm_by_head(path, f"{names.base}{names.layer}{name}.weight", heads, attention.head_dim)
    elif attention.qk_norm:
        sizes = attention.qkv_widths[:2] if attention.qk_norm == "full" else (attention.head_dim,) * 2
        norms["query_norm"] = (names.query_norm, sizes[0])
        norms["key_norm"] = (names.key_norm, sizes[1])
    for path, (name, size) in norms.items():
        yield from _norm(spec, path, names.base + names.layer + name, size)

    mixed = attention.num_heads * attention.value_dim
    if attention.latent is not None:
        yield from _latent(spec, names, attention.latent)
    else:
        groups = attention.kv_heads, attention.num_heads // attention.kv_heads
        yield from _dense(names, "qkv", names.qkv, width, attention.qkv_widths, attention.qkv_bias, groups)
    yield from _dense(names, "attention_out", (names.attention_out,), mixed, (width,), attention.out_bias)
    if attention.sinks:
        yield Slot(("sinks", "bias"), (Piece(names.base + names.layer + names.sinks, (attention.num_heads,)),))
    if isinstance(mlp, Experts):
        yield from _experts(names, mlp, width)
        if mlp.shared_width:
            yield from _dense(names, "shared_in", names.shared_in, width, (mlp.shared_width,) * 2, False)
            yield from _dense(names, "shared_out", (names.shared_out,), mlp.shared_width, (width,), False)
        return
    up = (mlp.width,) * (2 if mlp.gated else 1)
    yield from _dense(names, "mlp_in", names.mlp_in, width, up, mlp.bias)
    yield from _dense(names, "mlp_out", (names.mlp_out,), mlp.width, (width,), mlp.bias)


def _norm(spec: DecoderSpec, path: str, name: str, size: int) -> Iterator[Slot]:
    if isinstance(spec.norm, LayerNorm) and not spec.norm.affine:
        return
    yield Slot((path, "scale"), (Piece(f"{name}.weight", (size,)),))
    if isinstance(spec.norm, LayerNorm) and spec.norm.bias:
        yield Slot((path, "bias"), (Piece(f"{name}.bias", (size,)),))


def _norm_by_head(path: str, name: str, heads: int, head_dim: int) -> Iterator[Slot]:
    """The scales of all heads, stored as one tensor or head by head."""
    if "{expert}" in name:
        yield Slot((path, "scale"), (Piece(name, (head_dim,)),), experts=heads)
    else:
        yield Slot((path, "scale"), (Piece(name, (heads, head_dim)),))


def _latent(spec: DecoderSpec, names: TensorNames, latent: Latent) -> Iterator[Slot]:
    """The projections and norms of latent attention."""
    attention, width, rotated = spec.attention, spec.width, getattr(spec.positions, "dim", 0)
    heads, bias, prefix = attention.num_heads, attention.qkv_bias, names.base + names.layer
    query, inputs = names.query, width
    if latent.query_rank is not None:
        query, inputs = names.query_up, latent.query_rank
        yield from _dense(names, "query_down", (names.query_down,), width, (inputs,), bias)
        yield Slot(("query_norm", "scale"), (Piece(f"{prefix}{names.query_norm}.weight", (inputs,)),))
    yield from _dense(names, "query", (query,), inputs, (heads * attention.head_dim,), False)
    yield from _dense(names, "kv_down", (names.kv_down,), width, (latent.rank + rotated,), bias)
    yield Slot(("key_norm", "scale"), (Piece(f"{prefix}{names.key_norm}.weight", (latent.rank,)),))
    up = heads * (attention.head_dim - rotated + latent.value_dim)
    yield from _dense(names, "kv_up", (names.kv_up,), latent.rank, (up,), False)


def _experts(names: TensorNames, experts: Experts, width: int) -> Iterator[Slot]:
    """The router, and each expert's projections, stored one by one or as stacks."""
    number, prefix = experts.num_experts, names.base + names.layer
    router = Piece(f"{prefix}{names.router}.weight", (number, width), True)
    yield Slot(("router", "kernel"), (router,))
    if experts.corrected:
        yield Slot(("correction", "kernel"), (Piece(prefix + names.correction, (number,)),))
    if experts.bias:
        yield Slot(("router", "bias"), (Piece(f"{prefix}{names.router}.bias", (number,)),))
    for path, stored, inputs, outputs in (
        ("mlp_in", names.experts_in, width, 2 * experts.width),
        ("mlp_out", (names.experts_out,), experts.width, width),
    ):
        if "{expert}" in stored[0]:
            pieces = tuple(Piece(f"{prefix}{name}.weight", (outputs // len(stored), inputs), True) for name in stored)
            yield Slot((path, "kernel"), pieces, experts=number)
        elif names.experts_inputs_first:
            both = path == "mlp_in"
            yield Slot((path, "kernel"), (Piece(prefix + stored[0], (number, inputs, outputs), alternating=both),))
            if experts.bias:
                bias = Piece(f"{prefix}{stored[0]}_bias", (number, outputs), alternating=both)
                yield Slot((path, "bias"), (bias,))
        else:
            yield Slot((path, "kernel"), (Piece(prefix + stored[0], (number, outputs, inputs), True),))


def _dense(
    names: TensorNames,
    path: str,
    stored: tuple[str, ...],
    inputs: int,
    outputs: tuple[int, ...],
    bias: bool,
    groups: tuple[int, int] = (0, 1),
) -> Iterator[Slot]:
    """Kernel and bias of one projection, stored as one tensor or as one for each of `outputs`.

    `groups` are the heads of keys and the queries of each.
    """
    if len(stored) == 1:
        outputs = (sum(outputs),)
    interleaved, queries = groups if names.heads_interleaved else (0, 1)
    kernels, biases = [], []
    for name, size in zip(stored, outputs, strict=True):
        name = names.base + names.layer + name
        if names.inputs_first:
            kernels.append(Piece(f"{name}.weight", (inputs, size)))
        else:
            kernels.append(Piece(f"{name}.weight", (size, inputs), True, interleaved, queries))
        biases.append(Piece(f"{name}.bias", (size,), False, interleaved, queries))
    yield Slot((path, "kernel"), tuple(kernels))
    if bias:
        yield Slot((path, "bias"), tuple(biases))
