"""The forms in which a quantised weight may be stored: which tensors it consists of, and how they become numbers.

`FORMS` is the table. The shapes and types of all tensors follow from those of the one that holds the numbers, so that a
file is checked before any of them is read.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from tdd.models.quantised import dequantise
from tdd.models.weights import Part, StoredTensors
from tdd.validate.files import parse_json

_SCALES = ("F32", "BF16", "F16")


class Fault(Exception):
    """What is wrong with the tensors of a module."""


class Module(NamedTuple):
    """A module of the model and its tensors in the files, by what follows its name."""

    stored: StoredTensors
    names: frozenset[str]  # of all tensors
    name: str

    def has(self, suffix: str) -> bool:
        """Whether it has the tensor."""
        return self.name + suffix in self.names

    def shape(self, suffix: str) -> tuple[int, ...]:
        """Shape of a tensor that is there."""
        return self.stored.shape(self.name + suffix)

    def dtype(self, suffix: str) -> str:
        """Type of a tensor that is there, by its name in the files."""
        return self.stored.dtype(self.name + suffix)

    def read(self, suffix: str) -> np.ndarray:
        """A tensor that is there."""
        return self.stored.read(self.name + suffix)

    def part(self, suffix: str, types: Sequence[str], *shapes: tuple[int, ...]) -> Part:
        """What a tensor must be, of one of these shapes."""
        if not self.has(suffix):
            return Part(shapes[0], tuple(types), None)
        found = self.shape(suffix)
        return Part(found if found in shapes else shapes[0], tuple(types), found, self.dtype(suffix))


@dataclasses.dataclass(frozen=True)
class Options:
    """What a configuration says of the weights of a form."""

    bits: int = 8
    group: int = -1  # inputs that share a scale; -1 for all
    block: tuple[int, int] | None = None  # outputs and inputs of a block that shares a scale
    types: tuple[str, ...] = ()  # of the numbers
    strategy: str = ""  # what shares a scale: tensor, channel, group or block
    zeros: bool = False  # whether there are zero points
    offset: int = 0  # what is added to stored zero points
    order: bool = False  # whether the group of each input is stored


class Layout(NamedTuple):
    """The shape of a weight and the tensors that it consists of, by suffix."""

    shape: tuple[int, ...]
    parts: dict[str, Part]


class Form(NamedTuple):
    """One way to store a weight."""

    carrier: str  # suffix of the tensor that holds its numbers
    companions: tuple[str, ...]  # suffixes of others that it may have
    layout: Callable[[Options, Module], Layout]
    decode: Callable[[Options, Module, tuple[int, ...]], np.ndarray]  # options, module, shape → float32
    weight: str = ".weight"  # suffix of the name of the weight


# FP8 and integers of 8 bits: the numbers, and a scale for each tensor, output, group of inputs or block


def _scaled_layout(options: Options, module: Module) -> Layout:
    shape = module.shape(".weight")
    if len(shape) != 2:
        return Layout(shape, {".weight": module.part(".weight", options.types, shape)})
    outputs, inputs = shape
    single = [(1,), (), (1, 1)]
    shapes = {
        "tensor": single,
        "channel": [(outputs, 1), (outputs,)],
        "any": [*single, (outputs, 1), (outputs,)],
    }.get(options.strategy)
    name, types = ".weight_scale", (*_SCALES, "F8_E8M0")
    if options.strategy == "any" and (module.has(".weight_scale_inv") or (options.block and not module.has(name))):
        name = ".weight_scale_inv"
    if shapes is None or (name == ".weight_scale_inv" and options.block):
        rows, columns = options.block or (1, _divided(inputs, options.group, "inputs"))
        shapes = [(-(-outputs // rows), -(-inputs // columns))]
    parts = {".weight": module.part(".weight", options.types, shape), name: module.part(name, types, *shapes)}
    if options.zeros or module.has(".weight_zero_point"):
        # one for each scale
        parts[".weight_zero_point"] = module.part(".weight_zero_point", options.types, parts[name].shape)
    return Layout(shape, parts)


def _divided(total: int, size: int, what: str) -> int:
    """A size of groups that divides a total."""
    size = total if size == -1 else size
    if size < 1 or total % size:
        raise Fault(f"has {total} {what}, which groups of {size} do not divide")
    return size


def _decode_scaled(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    scales = module.read(".weight_scale_inv" if module.has(".weight_scale_inv") else ".weight_scale")
    zeros = module.read(".weight_zero_point") if module.has(".weight_zero_point") else None
    weight = module.read(".weight")
    return _spread(lambda part: weight[part], scales, zeros, shape, options)


def _spread(
    numbers: Callable[[slice], np.ndarray],
    scales: np.ndarray,
    zeros: np.ndarray | None,
    shape: tuple[int, ...],
    options: Options,
    groups: np.ndarray | None = None,
) -> np.ndarray:
    """The weight [outputs, inputs] from scales for the whole, for each output, or for each block."""
    outputs, inputs = shape
    grid = scales.shape if scales.ndim == 2 else (scales.size, 1)
    block = options.block or (1, inputs if options.group == -1 else options.group)
    rows = np.arange(outputs) // (outputs if grid[0] == 1 else 1 if grid[0] == outputs else block[0])
    columns = np.arange(inputs) // min(block[1], inputs) if groups is None else groups
    return dequantise.scaled(
        numbers, scales.reshape(grid), rows, columns, None if zeros is None else zeros.reshape(grid)
    )


# GPTQ and AWQ: integers, zero points and scales, [inputs, outputs]


def _gptq_layout(options: Options, module: Module) -> Layout:
    found = module.shape(".qweight")
    if len(found) != 2:
        return Layout(found, {".qweight": module.part(".qweight", ("I32",), found)})
    rows, outputs = found
    inputs, groups = rows * 32 // options.bits, 1
    if options.group != -1:
        groups = -(-inputs // options.group)
    words = -(-outputs * options.bits // 32)
    parts = {
        ".qweight": module.part(".qweight", ("I32",), (-(-inputs * options.bits // 32), outputs)),
        ".qzeros": module.part(".qzeros", ("I32",), (groups, words)),
        ".scales": module.part(".scales", _SCALES, (groups, outputs)),
    }
    if options.order or module.has(".g_idx"):
        parts[".g_idx"] = module.part(".g_idx", ("I32",), (inputs,))
    return Layout((outputs, inputs), parts)


def _decode_gptq(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    scales, inputs = module.read(".scales"), shape[1]
    groups = np.arange(inputs) // (inputs if options.group == -1 else min(options.group, inputs))
    if module.has(".g_idx"):
        groups = _groups(module.read(".g_idx"), len(scales), ".g_idx")
    numbers, zeros = module.read(".qweight"), module.read(".qzeros")
    return dequantise.gptq(numbers, zeros, scales, groups, bits=options.bits, offset=options.offset)


def _groups(found: np.ndarray, count: int, suffix: str) -> np.ndarray:
    """The groups of inputs, of which there are `count`."""
    if found.min() < 0 or found.max() >= count:
        raise Fault(f"has the groups {found.min()} to {found.max()} in {suffix[1:]}, but {count} of scales")
    return found


def _awq_layout(options: Options, module: Module) -> Layout:
    found = module.shape(".qweight")
    if len(found) != 2:
        return Layout(found, {".qweight": module.part(".qweight", ("I32",), found)})
    inputs, words = found
    groups = inputs // _divided(inputs, options.group, "inputs")
    parts = {
        ".qweight": module.part(".qweight", ("I32",), found),
        ".qzeros": module.part(".qzeros", ("I32",), (groups, words)),
        ".scales": module.part(".scales", _SCALES, (groups, 8 * words)),
    }
    return Layout((8 * words, inputs), parts)


def _decode_awq(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    return dequantise.awq(module.read(".qweight"), module.read(".qzeros"), module.read(".scales"))


# bitsandbytes: 4 bits whose meaning is a table, or 8 bits and a scale for each output

_STATES = tuple(f".weight.quant_state.bitsandbytes__{kind}" for kind in ("nf4", "fp4"))
_STATE_BYTES = 1 << 16
_WIDTHS = {"U8": 1, "I8": 1, "BF16": 2, "F16": 2, "F32": 4}
"""Bytes of the types in which packed numbers may be stored."""


class _State(NamedTuple):
    """What bitsandbytes writes about a weight of 4 bits."""

    shape: tuple[int, ...]
    block: int
    nested_block: int  # 0 where scales are not quantised
    offset: float


def _state(module: Module) -> _State:
    suffix = next(filter(module.has, _STATES))
    found = module.shape(suffix)
    if module.dtype(suffix) != "U8" or math.prod(found) > _STATE_BYTES:
        raise Fault(f"has a {suffix[1:]} that is no text ({module.dtype(suffix)} {list(found)})")
    try:
        content = parse_json(module.read(suffix).tobytes().decode())
    except ValueError as error:
        raise Fault(f"has a {suffix[1:]} that is not valid JSON: {error}") from error
    content = content if isinstance(content, dict) else {}
    shape, block = content.get("shape"), content.get("blocksize")
    inner, offset = content.get("nested_blocksize", 0), content.get("nested_offset", 0.0)
    sizes = shape if isinstance(shape, list) else []
    if not sizes or type(block) is not int or not all(type(one) is int and one > 0 for one in [*sizes, block]):
        raise Fault(f"has shape={shape!r} and blocksize={block!r} in {suffix[1:]}")
    if type(inner) is not int or inner < 0 or type(offset) is not float:
        raise Fault(f"has nested_blocksize={inner!r} and nested_offset={offset!r} in {suffix[1:]}")
    return _State(tuple(sizes), block, inner, offset)


def _four_bits_layout(options: Options, module: Module) -> Layout:
    stored = module.shape(".weight")
    if not any(map(module.has, _STATES)):
        needed = {suffix: module.part(suffix, ("U8",), (1,)) for suffix in _STATES[:1]}
        return Layout(stored, {".weight": module.part(".weight", ("U8",), stored), **needed})
    state = _state(module)
    count = math.prod(state.shape)
    width = _WIDTHS.get(module.dtype(".weight"), 1)
    scales = -(-count // state.block)
    parts = {
        ".weight": module.part(".weight", tuple(_WIDTHS), (-(-count // (2 * width)), 1)),
        ".weight.absmax": module.part(".weight.absmax", ("U8",) if state.nested_block else ("F32",), (scales,)),
        ".weight.quant_map": module.part(".weight.quant_map", ("F32",), (16,)),
    }
    if state.nested_block:
        shape = (-(-scales // state.nested_block),)
        parts[".weight.nested_absmax"] = module.part(".weight.nested_absmax", ("F32",), shape)
        parts[".weight.nested_quant_map"] = module.part(".weight.nested_quant_map", ("F32",), (256,))
    states = [suffix for suffix in _STATES if module.has(suffix)]
    return Layout(state.shape, parts | {states[0]: module.part(states[0], ("U8",), module.shape(states[0]))})


def _decode_four_bits(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    state, scales = _state(module), module.read(".weight.absmax")
    if state.nested_block:
        inner, code = module.read(".weight.nested_absmax"), module.read(".weight.nested_quant_map")
        scales = dequantise.nested(scales, inner, code, block=state.nested_block, offset=state.offset)
    numbers = module.read(".weight").reshape(-1).view(np.uint8)
    code = module.read(".weight.quant_map")
    return dequantise.four_bits(numbers, scales, code, block=state.block, count=math.prod(shape)).reshape(shape)


def _eight_bits_layout(options: Options, module: Module) -> Layout:
    shape = module.shape(".weight")
    parts = {".weight": module.part(".weight", ("I8",), shape), ".SCB": module.part(".SCB", ("F32",), shape[:1])}
    if module.has(".weight_format"):
        parts[".weight_format"] = module.part(".weight_format", ("U8",), (), (1,))
    return Layout(shape, parts)


def _decode_eight_bits(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    if module.has(".weight_format") and (order := int(module.read(".weight_format").reshape(-1)[0])) != 0:
        raise Fault(f"has weight_format {order}, an order of one kind of GPU, where row by row is 0")
    return dequantise.eight_bits(module.read(".weight"), module.read(".SCB"))


# compressed-tensors: integers packed in words, or numbers of 8 bits, for modules that patterns choose


def _packed_layout(options: Options, module: Module) -> Layout:
    found = module.shape(".weight_packed")
    shape = (found[0], found[-1] * 32 // options.bits) if found else ()
    given = module.part(".weight_shape", ("I64", "I32"), (2,))
    if given.found == (2,) and given.dtype in given.types:
        shape = tuple(int(size) for size in module.read(".weight_shape"))
    if len(found) != 2 or len(shape) != 2 or min(shape) < 1:
        return Layout(shape, {".weight_packed": module.part(".weight_packed", ("I32",), found)})
    outputs, inputs = shape
    shapes = {"tensor": [(1,), (), (1, 1)], "channel": [(outputs, 1), (outputs,)]}.get(options.strategy)
    shapes = shapes or [(outputs, inputs // _divided(inputs, options.group, "inputs"))]
    parts = {
        ".weight_packed": module.part(".weight_packed", ("I32",), (outputs, -(-inputs * options.bits // 32))),
        ".weight_scale": module.part(".weight_scale", _SCALES, *shapes),
        ".weight_shape": given,
    }
    if options.zeros:
        words = (-(-outputs * options.bits // 32), *parts[".weight_scale"].shape[1:])
        parts[".weight_zero_point"] = module.part(".weight_zero_point", ("I32",), words)
    if options.order or module.has(".weight_g_idx"):
        parts[".weight_g_idx"] = module.part(".weight_g_idx", ("I32", "I64"), (inputs,))
    return Layout(shape, parts)


def _decode_packed(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    """Numbers and zero points are stored plus 2^(bits - 1), in words along inputs and along outputs."""
    packed, scales, bits = module.read(".weight_packed"), module.read(".weight_scale"), options.bits
    zeros = groups = None
    if options.zeros:
        zeros = dequantise.unpacked(module.read(".weight_zero_point"), bits, shape[0]).astype(np.float32)
    if module.has(".weight_g_idx"):
        groups = _groups(module.read(".weight_g_idx"), scales.shape[-1], ".weight_g_idx")
    # the offset of numbers and zero points cancels
    centre = np.float32(0 if options.zeros else 2 ** (bits - 1))

    def rows(part: slice) -> np.ndarray:
        return dequantise.unpacked(packed[part].T, bits, shape[1]).T.astype(np.float32) - centre

    return _spread(rows, scales, zeros, shape, options, groups)


def _mxfp4_layout(options: Options, module: Module) -> Layout:
    blocks = module.shape("_blocks")
    if len(blocks) < 3:
        return Layout(blocks, {"_blocks": module.part("_blocks", ("U8",), blocks)})
    *before, rows, groups, _ = blocks
    parts = {
        "_blocks": module.part("_blocks", ("U8",), (*before, rows, groups, 16)),
        "_scales": module.part("_scales", ("U8",), (*before, rows, groups)),
    }
    return Layout((*before, 32 * groups, rows), parts)


def _decode_mxfp4(options: Options, module: Module, shape: tuple[int, ...]) -> np.ndarray:
    return dequantise.mxfp4(module.read("_blocks"), module.read("_scales")).swapaxes(-1, -2)


FORMS: Mapping[str, Form] = {
    "packed": Form(
        ".weight_packed",
        (".weight_scale", ".weight_zero_point", ".weight_shape", ".weight_g_idx"),
        _packed_layout,
        _decode_packed,
    ),
    "mxfp4": Form("_blocks", ("_scales",), _mxfp4_layout, _decode_mxfp4, weight=""),
    "four bits": Form(
        ".weight", (".weight.absmax", ".weight.quant_map", *_STATES), _four_bits_layout, _decode_four_bits
    ),
    "eight bits": Form(".weight", (".SCB",), _eight_bits_layout, _decode_eight_bits),
    "gptq": Form(".qweight", (".qzeros", ".scales", ".g_idx"), _gptq_layout, _decode_gptq),
    "awq": Form(".qweight", (".qzeros", ".scales"), _awq_layout, _decode_awq),
    "scaled": Form(
        ".weight", (".weight_scale_inv", ".weight_scale", ".weight_zero_point"), _scaled_layout, _decode_scaled
    ),
}
"""How a weight may be stored."""
