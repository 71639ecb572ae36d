"""Which stored tensors fill which parameter: one function of a spec and a family's names."""

from __future__ import annotations

from collections.abc import Iterator

from tdd.models.families.record import Piece, Slot, TensorNames
from tdd.models.spec import DecoderSpec, LayerNorm, LearnedPositions

__all__ = ["slots", "tied_copy"]


def slots(spec: DecoderSpec, names: TensorNames) -> tuple[Slot, ...]:
    """Every parameter of a decoder with its stored tensors."""
    return (*_trunk(spec, names), *_layer(spec, names))


def tied_copy(names: TensorNames) -> tuple[str, str]:
    """(copy, original): a second copy of the embedding that some files of tied models carry, as the head."""
    return f"{names.head}.weight", f"{names.base}{names.tokens}.weight"


def _trunk(spec: DecoderSpec, names: TensorNames) -> Iterator[Slot]:
    def matrix(path: tuple[str, str], name: str, *shape: int, transposed: bool = False) -> Slot:
        return Slot(path, (Piece(f"{name}.weight", shape, transposed),), layered=False)

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
    if spec.final_norm:
        yield from _norm(spec, ("final_norm",), base + names.final_norm, width, layered=False)
    if not spec.tied_head:
        yield matrix(("head", "kernel"), names.head, spec.vocab_size, embedded)


def _layer(spec: DecoderSpec, names: TensorNames) -> Iterator[Slot]:
    attention, mlp, width = spec.attention, spec.mlp, spec.width
    norms = {"attention_norm": (names.attention_norm, width), "mlp_norm": (names.mlp_norm, width)}
    if spec.layout == "sandwich":
        norms["attention_post_norm"] = (names.attention_post_norm, width)
        norms["mlp_post_norm"] = (names.mlp_post_norm, width)
    if attention.qk_norm:
        norms["query_norm"] = (names.query_norm, attention.head_dim)
        norms["key_norm"] = (names.key_norm, attention.head_dim)
    for path, (name, size) in norms.items():
        yield from _norm(spec, ("layers", path), names.base + names.layer + name, size, layered=True)

    mixed = attention.num_heads * attention.head_dim
    up = (mlp.width,) * (2 if mlp.gated else 1)
    yield from _dense(names, "qkv", names.qkv, width, attention.qkv_widths, attention.qkv_bias, attention.num_heads)
    yield from _dense(names, "attention_out", (names.attention_out,), mixed, (width,), attention.out_bias)
    yield from _dense(names, "mlp_in", names.mlp_in, width, up, mlp.bias)
    yield from _dense(names, "mlp_out", (names.mlp_out,), mlp.width, (width,), mlp.bias)


def _norm(spec: DecoderSpec, path: tuple[str, ...], name: str, size: int, *, layered: bool) -> Iterator[Slot]:
    if isinstance(spec.norm, LayerNorm) and not spec.norm.affine:
        return
    yield Slot((*path, "scale"), (Piece(f"{name}.weight", (size,)),), layered)
    if isinstance(spec.norm, LayerNorm):
        yield Slot((*path, "bias"), (Piece(f"{name}.bias", (size,)),), layered)


def _dense(
    names: TensorNames,
    path: str,
    stored: tuple[str, ...],
    inputs: int,
    outputs: tuple[int, ...],
    bias: bool,
    heads: int = 0,
) -> Iterator[Slot]:
    """Kernel and bias of one projection, stored as one tensor or as one for each of `outputs`."""
    if len(stored) == 1:
        outputs = (sum(outputs),)
    interleaved = heads if names.heads_interleaved else 0
    prefix = names.base + names.layer
    kernel = tuple(
        Piece(f"{prefix}{name}.weight", (inputs, size))
        if names.inputs_first
        else Piece(f"{prefix}{name}.weight", (size, inputs), True, interleaved)
        for name, size in zip(stored, outputs, strict=True)
    )
    yield Slot(("layers", path, "kernel"), kernel, layered=True)
    if bias:
        biases = (
            Piece(f"{prefix}{name}.bias", (size,), False, interleaved)
            for name, size in zip(stored, outputs, strict=True)
        )
        yield Slot(("layers", path, "bias"), tuple(biases), layered=True)
