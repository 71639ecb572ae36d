"""A LoRA adapter beside base weights (peft's adapter_config.json and adapter_model.safetensors), merged as it is read.

W' = W + s B A for W [out, in], A [rank, in], B [out, rank]; s = alpha / rank, or alpha / sqrt(rank) with `use_rslora`
(Hu et al. 2022; Kalajdzievski 2023). Weights stored [in, out], those of GPT-2's blocks, get the transpose: peft looks
at the layer, whatever `fan_in_fan_out` says, which is one value for layers of both kinds. Rank and alpha of a module
are those of the first pattern of `rank_pattern` and `alpha_pattern` that its name ends with, else `r` and `lora_alpha`
(huggingface/peft, tuners/tuners_utils.py and tuners/lora/layer.py). Sums are formed in float64 and rounded once, to the
type in which W is stored.
"""

from __future__ import annotations

import dataclasses
import math
import pathlib
import re
from collections.abc import Mapping
from typing import Any

import numpy as np

from tdd.models.weights import (
    ADAPTER,
    ADAPTER_CONFIG,
    DTYPES,
    INDEX,
    SINGLE,
    StoredTensors,
    View,
    open_safetensors,
    read_json,
)
from tdd.validate import InputError, some

_PREFIX = "base_model.model."
_TIED = (
    "merging it would also change the embedding, to which the head is tied: load the base model with "
    "tie_word_embeddings=False, save the head as a tensor of its own, and merge the adapter into that"
)
_FACTOR = re.compile(r"(?P<module>.+)\.lora_(?P<part>[AB])(?:\.[^.]+)?\.weight")
_NONE = ("layer_replication", "alora_invocation_tokens", "lora_bias", "use_qalora", "use_bdlora", "arrow_config",
         "target_parameters", "trainable_token_indices", "modules_to_save", "monteclora_config")  # fmt: skip
"""Options that compute something else, unless they are absent, null or false."""
_STARTS = (True, False, None, "gaussian", "eva", "orthogonal")
"""Values of `init_lora_weights` under which the base weights stay what they were."""

_TURNED = re.compile(r"(?:.+\.)?(?:c_attn|c_proj|c_fc|q_attn)")
"""Modules of GPT-2 whose weights are stored [in, out] (transformers' Conv1D)."""

_MERGE = (
    "merge it once with peft: PeftModel.from_pretrained(base_model, adapter).merge_and_unload().save_pretrained(folder)"
)


@dataclasses.dataclass(frozen=True)
class Factors:
    """The change of one weight, as it is stored: scale * left @ right."""

    left: np.ndarray  # [rows, rank]
    right: np.ndarray  # [rank, columns]
    scale: float

    def merged(self, weight: np.ndarray, index: tuple[slice, ...] = ()) -> np.ndarray:
        """The weight, or the part `index` of it, with the change added; in its own type."""
        rows, columns = (*index, slice(None), slice(None))[:2]
        change = self.left[rows].astype(np.float64) @ self.right[:, columns].astype(np.float64)
        return (weight.astype(np.float64) + self.scale * change).astype(weight.dtype)


def check_whole(folder: pathlib.Path) -> bool:
    """Whether an adapter lies in the folder.

    Raises:
      InputError: an adapter without the weights that it adapts, or a half of one.
    """
    has_config, has_weights = (folder / ADAPTER_CONFIG).is_file(), (folder / ADAPTER).is_file()
    if not has_config and not has_weights:
        return False
    if has_config and not any((folder / name).is_file() for name in (SINGLE, INDEX)):
        content = read_json(folder / ADAPTER_CONFIG)
        base = content.get("base_model_name_or_path") if isinstance(content, dict) else None
        raise InputError(
            f"{folder} holds an adapter of {base!r} and not the weights of that model: copy {ADAPTER_CONFIG} and "
            f"{ADAPTER} into its folder, or {_MERGE}"
        )
    if not (has_config and has_weights):
        there, missing = (ADAPTER_CONFIG, ADAPTER) if has_config else (ADAPTER, ADAPTER_CONFIG)
        raise InputError(
            f"{folder} has {there} and no {missing}: whether the adapter belongs to the model cannot be told; add it, "
            f"or remove {there} if the weights are merged already"
        )
    return True


def check_no_adapter(folder: pathlib.Path) -> None:
    """No adapter lies in a folder of a kind of model for which none is merged."""
    if check_whole(folder):
        raise InputError(f"{folder} holds an adapter, which is merged for decoders of text alone; {_MERGE}")


def adapter_of(folder: pathlib.Path) -> dict[str, Any] | None:
    """What a record says of the adapter in a folder; None without one. Its bytes are in the folder's fingerprint."""
    if not check_whole(folder):
        return None
    config = _read_config(folder)
    names = ("base_model_name_or_path", "r", "lora_alpha", "use_rslora", "rank_pattern", "alpha_pattern")
    return {name: config.get(name) for name in names}


def adapted(folder: pathlib.Path, stored: StoredTensors) -> StoredTensors:
    """The tensors of a checkpoint folder, with an adapter in it merged into those that it adapts.

    Raises:
      InputError: Half an adapter, or one that cannot be merged exactly.
    """
    return Adapted(stored, read_factors(folder, stored)) if check_whole(folder) else stored


class Adapted(View):
    """Stored tensors, some of them with a change added on reading."""

    def __init__(self, stored: StoredTensors, factors: Mapping[str, Factors]) -> None:
        super().__init__(stored)
        self._factors = factors

    def read(self, name: str) -> np.ndarray:
        """One tensor."""
        tensor = super().read(name)
        return self._factors[name].merged(tensor) if name in self._factors else tensor

    def cut(self, name: str, index: tuple[slice, ...]) -> np.ndarray:
        """A slice of one tensor."""
        tensor = super().cut(name, index)
        return self._factors[name].merged(tensor, index) if name in self._factors else tensor

    def equal(self, name: str, other: str) -> bool:
        """True if two tensors are equal, as `StoredTensors.equal`."""
        adapted = {name, other} & self._factors.keys()
        return np.array_equal(self.read(name), self.read(other)) if adapted else super().equal(name, other)


def read_factors(folder: pathlib.Path, stored: StoredTensors) -> dict[str, Factors]:
    """The change of every adapted tensor, by its name in the files.

    Raises:
      InputError: An option, a tensor or a shape that cannot be merged exactly.
    """
    config, place = _read_config(folder), folder / ADAPTER
    model = read_json(folder / "config.json") if (folder / "config.json").is_file() else {}
    of_gpt2 = isinstance(model, dict) and model.get("model_type") == "gpt2"
    pairs: dict[str, dict[str, np.ndarray]] = {}
    with open_safetensors(place) as file:
        for name in sorted(file.keys()):
            match = _FACTOR.fullmatch(name)
            if match is None or file.get_slice(name).get_dtype() not in DTYPES:
                advice = _TIED if "lm_head.base_layer" in name else _MERGE
                raise InputError(f"{place} holds {name}, which is no factor of LoRA in {some([*DTYPES])}; {advice}")
            tensor = file.get_tensor(name)
            if not np.isfinite(tensor.astype(np.float32)).all():
                raise InputError(f"{place} has NaN or infinite numbers in {name}; the file is damaged")
            pairs.setdefault(match["module"].removeprefix(_PREFIX), {})[match["part"]] = tensor
    if not pairs:
        raise InputError(f"{place} holds no tensor; save the adapter again")
    found: dict[str, Factors] = {}
    for module, pair in pairs.items():
        name = _stored_name(module, stored.names(), place)
        if pair.keys() != {"A", "B"} or name in found:
            raise InputError(f"{place} does not hold one lora_A and one lora_B for {module}; save the adapter again")
        turned = of_gpt2 and _TURNED.fullmatch(module) is not None
        found[name] = _factors(config, module, pair, stored.shape(name), place, turned)
    return found


def _factors(
    config: Mapping[str, Any],
    module: str,
    pair: Mapping[str, np.ndarray],
    shape: tuple[int, ...],
    place: pathlib.Path,
    turned: bool,
) -> Factors:
    a, b = pair["A"], pair["B"]
    left, right = (a.T, b.T) if turned else (b, a)
    rank = _of_pattern(config, "rank_pattern", module, config.get("r"))
    alpha = _of_pattern(config, "alpha_pattern", module, config.get("lora_alpha"))
    if a.ndim != 2 or b.ndim != 2 or a.shape[0] != b.shape[1] or (left.shape[0], right.shape[1]) != shape:
        raise InputError(
            f"{place}: the factors of {module}, {list(a.shape)} and {list(b.shape)}, do not fit its weight "
            f"{list(shape)}; it belongs to another model"
        )
    if rank != a.shape[0]:
        raise InputError(f"{place}: the factors of {module} have rank {a.shape[0]}, and {ADAPTER_CONFIG} says {rank!r}")
    if isinstance(alpha, bool) or not isinstance(alpha, (int, float)) or not math.isfinite(alpha):
        raise InputError(f"{place.parent / ADAPTER_CONFIG} has lora_alpha={alpha!r} for {module}, no number")
    return Factors(left, right, alpha / (math.sqrt(rank) if config.get("use_rslora") else rank))


def _of_pattern(config: Mapping[str, Any], name: str, module: str, default: Any) -> Any:
    """The value of the first pattern that the module's name ends with."""
    patterns = config.get(name) or {}
    return next((value for key, value in patterns.items() if re.match(rf"(.*\.)?({key})$", module)), default)


def _stored_name(module: str, names: frozenset[str], place: pathlib.Path) -> str:
    """The tensor of a module's weight; files of a bare model omit the first part of all names."""
    for name in (f"{module}.weight", f"{module.partition('.')[2]}.weight"):
        if name in names:
            return name
    advice = _TIED if module.rpartition(".")[2] == "lm_head" else _MERGE
    raise InputError(f"{place} adapts {module}, of which the model's files have no weight; {advice}")


def _read_config(folder: pathlib.Path) -> dict[str, Any]:
    place = folder / ADAPTER_CONFIG
    config = read_json(place)
    if not isinstance(config, dict) or config.get("peft_type") != "LORA":
        kind = config.get("peft_type") if isinstance(config, dict) else type(config).__name__
        raise InputError(f"{place} describes an adapter of type {kind!r}; only LORA is merged on reading: {_MERGE}")
    if config.get("use_dora"):
        raise InputError(f"{place} has use_dora=True, whose magnitudes are not merged on reading; {_MERGE}")
    for name in _NONE:
        if config.get(name):
            raise InputError(f"{place} has {name}={config[name]!r}, which is not merged on reading; {_MERGE}")
    start = config.get("init_lora_weights")
    if not any(start is one or start == one for one in _STARTS):
        raise InputError(f"{place} has init_lora_weights={start!r}, which may have changed the base weights; {_MERGE}")
    if config.get("bias") not in (None, "none"):
        raise InputError(f"{place} has bias={config['bias']!r}, and biases are not merged on reading; {_MERGE}")
    for name in ("rank_pattern", "alpha_pattern"):
        try:
            [re.compile(key) for key in config.get(name) or {}]
        except (re.error, TypeError) as error:
            raise InputError(f"{place} has a {name} that is no pattern: {error}") from error
    return config
