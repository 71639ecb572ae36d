"""Checkpoints with quantised weights (`quantization_config` of config.json), read as float32, one tensor at a time.

`Form` says which tensors hold a weight and how they become numbers; `FORMS` is the table, `_METHODS` reads the
configuration of each `quant_method`. The files decide which weights are quantised: one is if its numbers are not stored
as floating point numbers or one of its companions lies beside it, unless the configuration names it as not converted.
Only weights are dequantised. A method that also rounds activations by scales found on the way (dynamically) computes
with activations that are a little coarser than those here, which a record says; scales fixed beforehand are refused.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
import pathlib
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from tdd.models import dequantise
from tdd.models.weights import DTYPES, Part, StoredTensors, View
from tdd.validate import InputError
from tdd.validate.files import parse_json

NOTE = "weights dequantised; activations not quantised"
"""What a record says of every such model."""

_CONVERT = (
    "convert it once with the library that wrote it, to 16-bit weights (in transformers "
    "model.dequantize(), then model.save_pretrained(new_folder))"
)
_SCALES = ("F32", "BF16", "F16")


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


class Group(NamedTuple):
    """Modules whose weights are stored in one form."""

    matches: Callable[[str], bool]
    form: Form
    options: Options


class Scheme(NamedTuple):
    """What a `quantization_config` says."""

    method: str
    says: str  # the form in words
    groups: tuple[Group, ...]
    ignored: Callable[[str], bool]  # whether the module of that name is not quantised

    @property
    def description(self) -> str:
        """The form in words, and what becomes of it."""
        return f"{self.says}; {NOTE}"

    def of(self, module: str) -> Group | None:
        """The group of a module."""
        return None if self.ignored(module) else next((group for group in self.groups if group.matches(module)), None)


class Dequantised(View):
    """Stored tensors, the quantised weights among them as float32."""

    def __init__(self, stored: StoredTensors, scheme: Scheme, where: str) -> None:
        super().__init__(stored)
        self._names, self._where = stored.names(), where
        self._weights: dict[str, tuple[Group, Module, Layout]] = {}
        for form in dict.fromkeys(group.form for group in scheme.groups):
            for name in sorted(name for name in self._names if name.endswith(form.carrier)):
                module = Module(stored, self._names, name.removesuffix(form.carrier))
                group = scheme.of(module.name)
                if group is None or group.form is not form or not _is_quantised(module, form):
                    continue
                with _named(where, module.name):
                    layout = form.layout(group.options, module)
                self._weights[module.name + form.weight] = (group, module, layout)
        held = {module.name + suffix for _, module, layout in self._weights.values() for suffix in layout.parts}
        self._seen = (self._names - held) | self._weights.keys()

    def names(self) -> frozenset[str]:
        """Names of all tensors; a weight instead of the tensors that it consists of."""
        return self._seen

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of one tensor."""
        return self._weights[name][2].shape if name in self._weights else super().shape(name)

    def dtype(self, name: str) -> str:
        """Dtype of one tensor, as `StoredTensors.dtype`."""
        return "F32" if name in self._weights else super().dtype(name)

    def parts(self) -> dict[str, Part]:
        """The tensors that the quantised weights consist of."""
        return {
            module.name + suffix: part
            for _, module, layout in self._weights.values()
            for suffix, part in layout.parts.items()
        }

    def is_idle(self, name: str) -> bool:
        """Whether it is a bias of zeros beside a quantised weight."""
        if not name.endswith(".bias") or name.removesuffix("bias") + "weight" not in self._weights:
            return False
        return not np.any(super().read(name))

    def read(self, name: str) -> np.ndarray:
        """One tensor; a quantised weight as float32."""
        if name not in self._weights:
            return super().read(name)
        group, module, layout = self._weights[name]
        with _named(self._where, module.name):
            return group.form.decode(group.options, module, layout.shape)

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor; a quantised weight is dequantised whole for it."""
        return self.read(name)[index] if name in self._weights else super().cut(name, index)

    def equal(self, name: str, other: str) -> bool:
        """True if two tensors are equal, as `StoredTensors.equal`."""
        if not {name, other} & self._weights.keys():
            return super().equal(name, other)
        return np.array_equal(self.read(name), self.read(other))

    def sizes(self) -> dict[str, int]:
        """How many weights are quantised, and bytes of all tensors as they are stored and in float32."""
        widths = {**dict.fromkeys(("F16", "BF16", "I16", "U16"), 2), **dict.fromkeys(("F64", "I64", "U64"), 8)}
        widths |= dict.fromkeys(("F32", "I32", "U32"), 4)
        inner = self._stored
        stored = sum(math.prod(inner.shape(name)) * widths.get(inner.dtype(name), 1) for name in self._names)
        numbers = sum(math.prod(self.shape(name)) for name in self._seen)
        return {"weights": len(self._weights), "stored_bytes": stored, "float32_bytes": 4 * numbers}


def _is_quantised(module: Module, form: Form) -> bool:
    return module.dtype(form.carrier) not in DTYPES or any(map(module.has, form.companions))


@contextlib.contextmanager
def _named(where: str, name: str) -> Iterator[None]:
    """Faults of a module's tensors name it."""
    try:
        yield
    except _Fault as fault:
        raise InputError(f"{where}: {name} {fault}; the file is damaged, or its config.json is another's") from fault


class _Fault(Exception):
    """What is wrong with the tensors of a module."""


def scheme_of(config: Any, where: str) -> Scheme:
    """What the `quantization_config` of the file `where` says.

    Raises:
      InputError: A method or an option that is not dequantised.
    """
    if not isinstance(config, dict):
        raise InputError(f"{where} has quantization_config={config!r}, no object; remove it if nothing is quantised")
    method = config.get("quant_method")
    if method is None and (config.get("load_in_4bit") or config.get("load_in_8bit")):
        method = "bitsandbytes"
    if not isinstance(method, str) or method not in _METHODS:
        raise InputError(
            f"{where} has quantization_config of quant_method {method!r}, which is not dequantised on loading "
            f"(those that are: {', '.join(_METHODS)}); {_CONVERT}"
        )
    return _METHODS[method](config, f"{where}: quantization_config of {method}")


def record(folder: pathlib.Path, scheme: Scheme) -> dict[str, Any]:
    """What a record says of a checkpoint of this scheme."""
    with StoredTensors(folder) as stored:
        sizes = Dequantised(stored, scheme, str(folder)).sizes()
    return {"method": scheme.method, "form": scheme.says, **sizes, "note": NOTE}


def _refuse(where: str, key: str, value: Any, supported: str) -> InputError:
    return InputError(f"{where} has {key}={value!r}; dequantised on loading: {supported}; otherwise {_CONVERT}")


def _choice(config: Mapping[str, Any], key: str, default: Any, allowed: Sequence[Any], where: str) -> Any:
    """The value of a key, one of those allowed."""
    value = config.get(key, default)
    if not any(type(value) is type(one) and value == one for one in allowed):
        raise _refuse(where, key, value, f"{key} of {', '.join(map(str, allowed))}")
    return value


def _size(config: Mapping[str, Any], key: str, default: Any, where: str) -> int:
    """A number of inputs that share a scale; -1 for all."""
    value = config.get(key, default)
    if type(value) is not int or (value < 1 and value != -1):
        raise InputError(f"{where} has {key}={value!r}; it must be a positive number, or -1 for all inputs")
    return value


def _block(value: Any, key: str, where: str) -> tuple[int, int]:
    if not isinstance(value, list) or len(value) != 2 or not all(type(one) is int and one > 0 for one in value):
        raise InputError(
            f"{where} has {key}={value!r}; it must hold two positive numbers, outputs and inputs of a block"
        )
    return value[0], value[1]


def _named_in(config: Mapping[str, Any], keys: Sequence[str], where: str) -> Callable[[str], bool]:
    """Whether a module is one of those that the configuration names.

    A pattern means a module, those inside it, and those of which it is the end of the name. With `re:` before it, or
    with a `*`, it is a regular expression.
    """
    patterns: list[re.Pattern[str]] = []
    for key in keys:
        given = config.get(key) or []
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise InputError(f"{where} has {key}={given!r}; it must be a list of names of modules")
        for one in given:
            regular = one.startswith("re:") or "*" in one
            text = one.removeprefix("re:") if regular else rf"(?:.*\.)?{re.escape(one)}"
            try:
                patterns.append(re.compile(rf"(?:{text})(?:\..*)?"))
            except re.error as error:
                raise InputError(f"{where} has {one!r} in {key}, which is no pattern: {error}") from error
    return lambda name: any(pattern.fullmatch(name) for pattern in patterns)


def _everything(name: str) -> bool:
    return True


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
        raise _Fault(f"has {total} {what}, which groups of {size} do not divide")
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
    columns = np.arange(inputs) // block[1] if groups is None else groups
    return dequantise.scaled(
        numbers, scales.reshape(grid), rows, columns, None if zeros is None else zeros.reshape(grid)
    )


def _fp8(config: Mapping[str, Any], where: str) -> Scheme:
    if config.get("activation_scheme", "dynamic") != "dynamic":
        raise _refuse(where, "activation_scheme", config["activation_scheme"], "activations scaled dynamically")
    _choice(config, "fmt", "e4m3", ("e4m3", "float8_e4m3fn"), where)
    _choice(config, "expert_dtype", "fp8", ("fp8",), where)
    given = config.get("weight_block_size", [128, 128])
    block = None if given is None else _block(given, "weight_block_size", where)
    options = Options(block=block, types=("F8_E4M3",), strategy="any")
    says = "FP8 (e4m3)" + (f" in blocks of {block[0]} x {block[1]}" if "weight_block_size" in config and block else "")
    ignored = _named_in(config, ("modules_to_not_convert", "ignored_layers"), where)
    return Scheme("fp8", says, (Group(_everything, FORMS["scaled"], options),), ignored)


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
    groups = np.arange(inputs) // (inputs if options.group == -1 else options.group)
    if module.has(".g_idx"):
        groups = _groups(module.read(".g_idx"), len(scales), ".g_idx")
    numbers, zeros = module.read(".qweight"), module.read(".qzeros")
    return dequantise.gptq(numbers, zeros, scales, groups, bits=options.bits, offset=options.offset)


def _groups(found: np.ndarray, count: int, suffix: str) -> np.ndarray:
    """The groups of inputs, of which there are `count`."""
    if found.min() < 0 or found.max() >= count:
        raise _Fault(f"has the groups {found.min()} to {found.max()} in {suffix[1:]}, but {count} of scales")
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


def _in_groups(group: int) -> str:
    return "one group" if group == -1 else f"groups of {group}"


def _gptq(config: Mapping[str, Any], where: str) -> Scheme:
    bits = _choice(config, "bits", None, (2, 3, 4, 8), where)
    key = "checkpoint_format" if config.get("checkpoint_format") is not None else "format"
    version = _choice(config, key, "gptq", ("gptq", "gptq_v2"), where)
    if config.get("is_marlin_format"):
        raise _refuse(where, "is_marlin_format", config["is_marlin_format"], "the layout of AutoGPTQ")
    changed = config.get("dynamic") or {}
    if not isinstance(changed, dict) or not all(isinstance(one, str) and one.startswith("-:") for one in changed):
        raise _refuse(
            where, "dynamic", changed, "modules of one form, and those excepted by a pattern that begins with -:"
        )
    order = _choice(config, "desc_act", False, (False, True), where)
    group = _size(config, "group_size", 128, where)
    options = Options(bits=bits, group=group, offset=int(version == "gptq"), order=order)
    says = f"GPTQ, {bits} bits, {_in_groups(group)}{' in order of activations' if order else ''}"
    excepted = {
        "modules_to_not_convert": config.get("modules_to_not_convert"),
        "dynamic": [f"re:{one[2:]}" for one in changed],
    }
    ignored = _named_in(excepted, ("modules_to_not_convert", "dynamic"), where)
    return Scheme("gptq", says, (Group(_everything, FORMS["gptq"], options),), ignored)


def _awq(config: Mapping[str, Any], where: str) -> Scheme:
    _choice(config, "bits", 4, (4,), where)
    key = "version" if config.get("version") is not None else "format"
    if str(config.get(key, "gemm")).lower() != "gemm":
        raise _refuse(where, key, config[key], "the order of gemm")
    group = _size(config, "group_size", 128, where)
    says = f"AWQ, 4 bits, {_in_groups(group)}"
    ignored = _named_in(config, ("modules_to_not_convert",), where)
    return Scheme("awq", says, (Group(_everything, FORMS["awq"], Options(bits=4, group=group)),), ignored)


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
        raise _Fault(f"has a {suffix[1:]} that is no text ({module.dtype(suffix)} {list(found)})")
    try:
        content = parse_json(module.read(suffix).tobytes().decode())
    except ValueError as error:
        raise _Fault(f"has a {suffix[1:]} that is not valid JSON: {error}") from error
    content = content if isinstance(content, dict) else {}
    shape, block = content.get("shape"), content.get("blocksize")
    inner, offset = content.get("nested_blocksize", 0), content.get("nested_offset", 0.0)
    sizes = shape if isinstance(shape, list) else []
    if not sizes or type(block) is not int or not all(type(one) is int and one > 0 for one in [*sizes, block]):
        raise _Fault(f"has shape={shape!r} and blocksize={block!r} in {suffix[1:]}")
    if type(inner) is not int or inner < 0 or type(offset) is not float:
        raise _Fault(f"has nested_blocksize={inner!r} and nested_offset={offset!r} in {suffix[1:]}")
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
        raise _Fault(f"has weight_format {order}, an order of one kind of GPU, where row by row is 0")
    return dequantise.eight_bits(module.read(".weight"), module.read(".SCB"))


def _bitsandbytes(config: Mapping[str, Any], where: str) -> Scheme:
    four, eight = (bool(config.get(key, config.get(f"_{key}"))) for key in ("load_in_4bit", "load_in_8bit"))
    if four == eight:
        raise InputError(f"{where} has load_in_4bit={four} and load_in_8bit={eight}; one of them must be true")
    form = "four bits" if four else "eight bits"
    kind = _choice(config, "bnb_4bit_quant_type", "fp4", ("nf4", "fp4"), where) if four else ""
    says = f"bitsandbytes, 4 bits ({kind})" if four else "bitsandbytes, 8 bits"
    ignored = _named_in(config, ("llm_int8_skip_modules",), where)
    return Scheme("bitsandbytes", says, (Group(_everything, FORMS[form], Options()),), ignored)


# compressed-tensors: integers packed in words, or numbers of 8 bits, for modules that patterns choose


def _packed_layout(options: Options, module: Module) -> Layout:
    found = module.shape(".weight_packed")
    shape = (found[0], found[-1] * 32 // options.bits) if found else ()
    if module.has(".weight_shape") and module.shape(".weight_shape") == (2,):
        shape = tuple(int(size) for size in module.read(".weight_shape"))
    if len(found) != 2 or len(shape) != 2 or min(shape) < 1:
        return Layout(shape, {".weight_packed": module.part(".weight_packed", ("I32",), found)})
    outputs, inputs = shape
    shapes = {"tensor": [(1,), (), (1, 1)], "channel": [(outputs, 1), (outputs,)]}.get(options.strategy)
    shapes = shapes or [(outputs, inputs // _divided(inputs, options.group, "inputs"))]
    parts = {
        ".weight_packed": module.part(".weight_packed", ("I32",), (outputs, -(-inputs * options.bits // 32))),
        ".weight_scale": module.part(".weight_scale", _SCALES, *shapes),
        ".weight_shape": module.part(".weight_shape", ("I64", "I32"), (2,)),
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


def _compressed_tensors(config: Mapping[str, Any], where: str) -> Scheme:
    for key, harmless in (("kv_cache_scheme", (None,)), ("transform_config", (None, {}))):
        if config.get(key) not in harmless:
            raise _refuse(where, key, config[key], f"models without {key}")
    sparsity = config.get("sparsity_config") or {}
    if not isinstance(sparsity, dict) or sparsity.get("format", "dense") != "dense":
        raise _refuse(where, "sparsity_config", sparsity, "dense weights")
    given = config.get("config_groups")
    if not isinstance(given, dict) or not given or not all(isinstance(one, dict) for one in given.values()):
        raise InputError(f"{where} has config_groups={given!r}; it must hold a description of each group of modules")
    found = [_compressed_group(one, config.get("format"), f"{where}: {name}") for name, one in given.items()]
    groups = sorted((group for group, _ in found), key=lambda group: group.matches is _everything)
    says = "compressed-tensors, " + ", ".join(dict.fromkeys(words for _, words in found))
    return Scheme("compressed-tensors", says, tuple(groups), _named_in(config, ("ignore",), where))


def _compressed_group(config: Mapping[str, Any], outer: Any, where: str) -> tuple[Group, str]:
    """A group of modules, and its form in words."""
    weights = config.get("weights")
    if not isinstance(weights, dict):
        raise _refuse(where, "weights", weights, "groups whose weights are quantised")
    for key in ("input_activations", "output_activations"):
        activations = config.get(key)
        if activations is not None and not (isinstance(activations, dict) and activations.get("dynamic") is True):
            raise _refuse(where, key, activations, "activations that are not quantised, or dynamically")
    kind, where = config.get("format") or outer, f"{where}, weights"
    allowed = ("pack-quantized", "float-quantized", "int-quantized", "naive-quantized")
    kind = _choice({"format": kind}, "format", None, allowed, where)
    number = _choice(weights, "type", "int", ("float",) if kind == "float-quantized" else ("int", "float"), where)
    packed = kind == "pack-quantized"
    bits = _choice(weights, "num_bits", 8, (2, 4, 8) if packed else (8,), where)
    if packed and number != "int":
        raise _refuse(where, "type", number, "integers in pack-quantized")
    group, block = weights.get("group_size"), None
    strategy = weights.get("strategy") or ("tensor" if group is None else "channel" if group == -1 else "group")
    strategies = ("tensor", "channel", "group", *(() if packed else ("block",)))
    strategy = _choice({"strategy": strategy}, "strategy", None, strategies, where)
    group = _size(weights, "group_size", None, where) if strategy == "group" else -1
    if strategy == "block":
        block = _block(weights.get("block_structure"), "block_structure", where)
    zeros = not _choice(weights, "symmetric", True, (True, False), where)
    types = ("I8",) if number == "int" else ("F8_E4M3",)
    order = weights.get("actorder") in ("group", "dynamic", True)
    options = Options(bits, group, block, types, strategy, zeros, order=order)
    says = f"{bits} bits ({number}) with a scale for each {strategy}{f' of {group}' if group != -1 else ''}"
    targets = _named_in(config, ("targets",), where)
    everywhere = "Linear" in (config.get("targets") or ["Linear"])
    return Group(_everything if everywhere else targets, FORMS["packed" if packed else "scaled"], options), says


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


def _mxfp4(config: Mapping[str, Any], where: str) -> Scheme:
    ignored = _named_in(config, ("modules_to_not_convert",), where)
    says = "MXFP4, 4 bits (e2m1), blocks of 32"
    return Scheme("mxfp4", says, (Group(_everything, FORMS["mxfp4"], Options(bits=4)),), ignored)


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

_METHODS: Mapping[str, Callable[[Mapping[str, Any], str], Scheme]] = {
    "fp8": _fp8,
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "mxfp4": _mxfp4,
}
"""Readers of the configurations, by `quant_method`."""
