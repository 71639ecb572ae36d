"""The `quantization_config` of config.json → which weights are stored in which form, by `quant_method`.

Only weights are dequantised. A method that also rounds activations by scales found on the way (dynamically) computes
with activations that are a little coarser than those here, which a record says; scales fixed beforehand are refused.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from tdd.models.quantised.forms import FORMS, Form, Options
from tdd.validate import InputError

NOTE = "weights dequantised; activations not quantised"
"""What a record says of every such model."""

_CONVERT = (
    "convert it once with the library that wrote it, to 16-bit weights (in transformers "
    "model.dequantize(), then model.save_pretrained(new_folder))"
)


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


def _refuse(where: str, key: str, value: Any, supported: str) -> InputError:
    return InputError(f"{where} has {key}={value!r}; dequantised on loading: {supported}; otherwise {_CONVERT}")


def _choice(config: Mapping[str, Any], key: str, default: Any, allowed: Sequence[Any], where: str) -> Any:
    """The value of a key, one of those allowed; null is the default."""
    value = default if config.get(key) is None else config[key]
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

    A pattern means a module, those inside it, and those of which it is the end of the name. With a `*` it is a regular
    expression for all of a name or its first modules, with `re:` before it one for its first characters.
    """
    patterns: list[re.Pattern[str]] = []
    for key in keys:
        given = config.get(key) or []
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise InputError(f"{where} has {key}={given!r}; it must be a list of names of modules")
        for one in given:
            text = one if "*" in one else rf"(?:.*\.)?{re.escape(one)}"
            text = one[3:] if one.startswith("re:") else rf"(?:{text})(?:\..*)?\Z"
            try:
                patterns.append(re.compile(text))
            except re.error as error:
                raise InputError(f"{where} has {one!r} in {key}, which is no pattern: {error}") from error
    return lambda name: any(pattern.match(name) for pattern in patterns)


def _everything(name: str) -> bool:
    return True


def _fp8(config: Mapping[str, Any], where: str) -> Scheme:
    if config.get("activation_scheme") not in (None, "dynamic"):
        raise _refuse(where, "activation_scheme", config["activation_scheme"], "activations scaled dynamically")
    _choice(config, "fmt", "e4m3", ("e4m3", "float8_e4m3fn"), where)
    _choice(config, "expert_dtype", "fp8", ("fp8",), where)
    given = config.get("weight_block_size", [128, 128])
    block = None if given is None else _block(given, "weight_block_size", where)
    options = Options(block=block, types=("F8_E4M3",), strategy="any")
    says = "FP8 (e4m3)" + (f" in blocks of {block[0]} x {block[1]}" if "weight_block_size" in config and block else "")
    ignored = _named_in(config, ("modules_to_not_convert", "ignored_layers"), where)
    return Scheme("fp8", says, (Group(_everything, FORMS["scaled"], options),), ignored)


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


def _bitsandbytes(config: Mapping[str, Any], where: str) -> Scheme:
    four, eight = (bool(config.get(key, config.get(f"_{key}"))) for key in ("load_in_4bit", "load_in_8bit"))
    if four == eight:
        raise InputError(f"{where} has load_in_4bit={four} and load_in_8bit={eight}; one of them must be true")
    form = "four bits" if four else "eight bits"
    kind = _choice(config, "bnb_4bit_quant_type", "fp4", ("nf4", "fp4"), where) if four else ""
    says = f"bitsandbytes, 4 bits ({kind})" if four else "bitsandbytes, 8 bits"
    ignored = _named_in(config, ("llm_int8_skip_modules",), where)
    return Scheme("bitsandbytes", says, (Group(_everything, FORMS[form], Options()),), ignored)


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


def _mxfp4(config: Mapping[str, Any], where: str) -> Scheme:
    ignored = _named_in(config, ("modules_to_not_convert",), where)
    says = "MXFP4, 4 bits (e2m1), blocks of 32"
    return Scheme("mxfp4", says, (Group(_everything, FORMS["mxfp4"], Options(bits=4)),), ignored)


_METHODS: Mapping[str, Callable[[Mapping[str, Any], str], Scheme]] = {
    "fp8": _fp8,
    "gptq": _gptq,
    "awq": _awq,
    "bitsandbytes": _bitsandbytes,
    "compressed-tensors": _compressed_tensors,
    "mxfp4": _mxfp4,
}
"""Readers of the configurations, by `quant_method`."""
