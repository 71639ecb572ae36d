"""LLaVA-1.5: a CLIP vision tower, a projector of two layers, and a decoder that reads image features among its tokens.

The tower cuts an image into N = (S / P)^2 patches; the stream after one of its layers (the last but one in LLaVA-1.5),
without the class token, goes through the projector, and the N rows take the places of N placeholder tokens in the
decoder's embedded text (Liu et al. 2024, "Improved baselines with visual instruction tuning"; the tower is the ViT of
Radford et al. 2021). Numbers are as in `tdd.models.decoder`: products take factors of the weight's type and sum in
float32, all else is float32.
"""

from __future__ import annotations

import dataclasses
import math
import os
import pathlib
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from tdd.kernels.platforms import product
from tdd.models import decoder
from tdd.models.attention import attend_to_all
from tdd.models.checkpoint import read_slots
from tdd.models.configuration import read_config, read_tokenizer
from tdd.models.families import FAMILIES, IGNORED, REQUIRED, family_of_config
from tdd.models.families.family import Family
from tdd.models.families.tensors import Piece, Slot, slots
from tdd.models.lora import check_no_adapter
from tdd.models.source import resolve
from tdd.models.spec import DecoderSpec
from tdd.models.weights import StoredTensors, check_tensors, read_json
from tdd.placement import Placement
from tdd.validate import InputError, some
from tdd.validate.files import check_choice, check_divides, check_positive, reading

MEAN = (0.48145466, 0.4578275, 0.40821073)
STD = (0.26862954, 0.26130258, 0.27577711)
"""Means and standard deviations of red, green and blue that CLIP normalises with."""

_ACTIVATIONS = {
    "gelu": lambda x: 0.5 * x * (1 + lax.erf(x * math.sqrt(0.5))),
    "quick_gelu": lambda x: x * jax.nn.sigmoid(1.702 * x),
}
_DECODERS = ("llama", "mistral")
_OF_MODEL = """
    ignore_index image_seq_length image_token_id image_token_index multimodal_projector_bias projector_hidden_act
    text_config tie_word_embeddings vision_config vision_feature_layer vision_feature_select_strategy vocab_size
"""
_OF_TOWER = """
    hidden_act hidden_size image_size initializer_factor intermediate_size layer_norm_eps num_attention_heads
    num_channels num_hidden_layers patch_size projection_dim vocab_size
"""
_RENAMED = (
    ("language_model.lm_head.", "lm_head."),
    ("language_model.model.", "model.language_model."),
    ("model.vision_tower.vision_model.", "model.vision_tower."),
    ("vision_tower.vision_model.", "model.vision_tower."),
    ("vision_tower.", "model.vision_tower."),
    ("multi_modal_projector.", "model.multi_modal_projector."),
)
"""Beginnings of names in files of other layouts -> that of the names used here; the first that fits counts."""


@dataclasses.dataclass(frozen=True)
class VisionTower:
    """CLIP's vision transformer: learned positions, a norm before the first block, blocks that see every patch.

    Attributes:
      image_size: S, height and width of the image in pixels.
      patch_size: P, which divides S.
      width: D of the stream.
      num_layers: Layers that are stored.
      num_used: Layers after which the stream is read; those behind it, and the last norm, are not computed.
      num_heads: Heads of the attention.
      mlp_width: F.
      activation: "quick_gelu", x sigmoid(1.702 x), or "gelu".
      eps: Of the norms.
      with_class: True if the class token's row counts among the features.
    """

    image_size: int
    patch_size: int
    width: int
    num_layers: int
    num_used: int
    num_heads: int
    mlp_width: int
    activation: str = "quick_gelu"
    eps: float = 1e-5
    with_class: bool = False

    def __post_init__(self) -> None:
        check_positive(width=self.width, num_layers=self.num_layers, mlp_width=self.mlp_width, eps=self.eps)
        check_divides(patch_size=self.patch_size, image_size=self.image_size)
        check_divides(num_heads=self.num_heads, width=self.width)
        check_choice("hidden_act", self.activation, tuple(_ACTIVATIONS))
        if not 1 <= self.num_used <= self.num_layers:
            raise InputError(
                f"vision_feature_layer reads the stream after layer {self.num_used} of {self.num_layers}; it must be "
                "after one of them, as -2 is"
            )

    @property
    def num_patches(self) -> int:
        """Patches of an image."""
        return (self.image_size // self.patch_size) ** 2

    @property
    def num_features(self) -> int:
        """N, rows of features of an image, each of which takes the place of one token."""
        return self.num_patches + self.with_class


@dataclasses.dataclass(frozen=True)
class VisionLanguageSpec:
    """The architecture: tower, projector (its activation, and whether it has biases), decoder, placeholder's id."""

    tower: VisionTower
    text: DecoderSpec
    image_token: int
    activation: str = "gelu"
    bias: bool = True

    def __post_init__(self) -> None:
        check_choice("projector_hidden_act", self.activation, tuple(_ACTIVATIONS))
        if not 0 <= self.image_token < self.text.vocab_size:
            raise InputError(
                f"image_token_index={self.image_token} is outside the vocabulary of {self.text.vocab_size} tokens"
            )


class VisionLanguageModel(NamedTuple):
    """What `load_vision_language` reads: `params` has the keys "tower", "projector" and "text"."""

    spec: VisionLanguageSpec
    params: dict[str, Any]
    tokenizer: Any


def image_features(spec: VisionLanguageSpec, params: Any, images: jax.Array) -> jax.Array:
    """Images [B, 3, S, S], as `pixels` gives them -> projected features [B, N, D of the decoder], float32."""
    tower, size = spec.tower, spec.tower.image_size
    if images.ndim != 4 or images.shape[1:] != (3, size, size):
        raise InputError(f"images must be [B, 3, {size}, {size}], got {list(images.shape)}; prepare them with pixels()")
    stream = _tower(tower, params["tower"], images)
    inner = _dense(params["projector"]["in"], stream if tower.with_class else stream[:, 1:])
    return _dense(params["projector"]["out"], _ACTIVATIONS[spec.activation](inner))


def embed(spec: VisionLanguageSpec, params: Any, tokens: jax.Array, features: jax.Array) -> jax.Array:
    """The decoder's embedded tokens with image features in the places of the placeholders: [B, T, D] float32.

    Args:
      tokens: [B, T] integer token ids; each row has N placeholders (`spec.image_token`), as `with_placeholders` puts
        them. A row with another number of them is NaN.
      features: [B, N, D], as `image_features` gives them; the first goes to the first placeholder.
    """
    embedded = decoder.embed(spec.text, params["text"], tokens)
    is_image = tokens == spec.image_token
    number = jnp.cumsum(is_image, axis=1) - 1
    rows = jnp.take_along_axis(features, jnp.clip(number, 0, features.shape[1] - 1)[..., None], axis=1)
    complete = is_image.sum(1) == features.shape[1]
    mixed = jnp.where(is_image[..., None], rows, embedded)
    return jnp.where(complete[:, None, None], mixed, jnp.nan)


def hidden(spec: VisionLanguageSpec, params: Any, tokens: jax.Array, features: jax.Array) -> jax.Array:
    """What the readout multiplies, as `tdd.models.decoder.hidden`: [B, T, D]. Arguments as in `embed`."""
    stream = decoder.trunk(spec.text, params["text"], embed(spec, params, tokens, features))
    return stream.astype(decoder.readout(spec.text, params["text"]).dtype)


def logits(spec: VisionLanguageSpec, params: Any, tokens: jax.Array, features: jax.Array) -> jax.Array:
    """Next-token logits [B, T, V], float32: for short inputs and tests. Arguments as in `embed`."""
    return product("btd,vd->btv", hidden(spec, params, tokens, features), decoder.readout(spec.text, params["text"]))


def with_placeholders(spec: VisionLanguageSpec, tokens: Any) -> np.ndarray:
    """Token ids in which the one placeholder of a prompt is repeated N times, [T - 1 + N] int32.

    Raises:
      InputError: Not exactly one placeholder.
    """
    tokens = np.asarray(tokens, np.int32)
    places = np.flatnonzero(tokens == spec.image_token)
    if len(places) != 1:
        raise InputError(f"a prompt must hold the image's token {spec.image_token} once, got it {len(places)} times")
    return np.insert(tokens, places[0], np.full(spec.tower.num_features - 1, spec.image_token, np.int32))


def pixels(image: Any, size: int) -> np.ndarray:
    """An image as the tower takes it: padded to a square, resized and normalised, [3, size, size] float32.

    The shorter side is padded on both ends with CLIP's mean colour (rounded down to whole numbers), as LLaVA-1.5 was
    trained; then follow a bicubic resize in whole numbers, division by 255, and CLIP's means and standard deviations.

    An opacity channel is ignored, and so is the orientation that a camera wrote into the file (EXIF): the model's own
    processor takes the pixels as they are stored, in training and for an image that is open. (transformers turns an
    image only where its processor is given the name of a file.)

    Args:
      image: A PIL image of 8 bits a channel.
      size: S.
    """
    from PIL import Image

    image = image.convert("RGB")
    side = max(image.size)
    square = Image.new("RGB", (side, side), tuple(int(255 * mean) for mean in MEAN))
    square.paste(image, ((side - image.width) // 2, (side - image.height) // 2))
    resized = np.asarray(square.resize((size, size), Image.Resampling.BICUBIC))
    scaled = (resized.astype(np.float64) / 255).astype(np.float32)
    return np.moveaxis((scaled - np.asarray(MEAN, np.float32)) / np.asarray(STD, np.float32), -1, 0)


def check_vision_language(path: str | os.PathLike[str], *, revision: str | None = None) -> None:
    """Check that `load_vision_language` knows the architecture, without reading weights. Raises InputError."""
    _read_spec(resolve(path, revision=revision, gguf=False).folder)


def load_vision_language(
    path: str | os.PathLike[str], *, dtype: str | None = None, revision: str | None = None
) -> VisionLanguageModel:
    """Read LLaVA-1.5 from Hugging Face's safetensors, in any of the three layouts of names in circulation.

    Args:
      path: A folder or a hub id.
      dtype: "float32", "bfloat16" or "float16" for all parameters; None keeps them as stored.
      revision: Branch, tag or commit of a hub id.

    Raises:
      InputError: Anything about the checkpoint that would make its numbers wrong or its files unreadable.

    Cost: Reads every weight once, except those behind the last layer used of the tower, which are only checked for
    their shapes.
    """
    if dtype is not None:
        check_choice("dtype", dtype, ("float32", "bfloat16", "float16"))
    folder = resolve(path, revision=revision, gguf=False).folder
    family, spec = _read_spec(folder)
    _check_processor(folder / "preprocessor_config.json")
    tokenizer = read_tokenizer(folder, spec.text.vocab_size)
    used = tuple(_slots(spec, family))
    check_no_adapter(folder)
    with StoredTensors(folder) as stored:
        name_in_file = _match(stored, used, _unused(spec.tower), str(folder))
        params = read_slots(stored, used, name_in_file, Placement(None, dtype and jnp.dtype(dtype)), str(folder))
    return VisionLanguageModel(spec, params, tokenizer)


def _tower(tower: VisionTower, params: Any, images: jax.Array) -> jax.Array:
    """The stream after the last layer used, [B, 1 + patches, D] float32."""
    batch, patch, across = images.shape[0], tower.patch_size, tower.image_size // tower.patch_size
    cut = images.reshape(batch, 3, across, patch, across, patch)
    cut = jnp.transpose(cut, (0, 2, 4, 1, 3, 5)).reshape(batch, across * across, 3 * patch * patch)
    kernel = params["patches"]["kernel"]
    rows = product("btp,dp->btd", cut.astype(kernel.dtype), kernel.reshape(tower.width, -1))
    first = jnp.broadcast_to(params["class"]["row"].astype(jnp.float32), (batch, 1, tower.width))
    stream = jnp.concatenate([first, rows], axis=1) + params["positions"]["rows"].astype(jnp.float32)
    stream = _norm(tower, params["first_norm"], stream)
    heads, width = tower.num_heads, tower.width // tower.num_heads

    def block(stream: jax.Array, layer: Any) -> tuple[jax.Array, None]:
        fused = _dense(layer["qkv"], _norm(tower, layer["attention_norm"], stream))
        query, key, value = (part.reshape(batch, -1, heads, width) for part in jnp.split(fused, 3, axis=-1))
        mixed = attend_to_all(query * width**-0.5, key, value, dtype=layer["qkv"]["kernel"].dtype)
        stream = stream + _dense(layer["attention_out"], mixed)
        inner = _dense(layer["mlp_in"], _norm(tower, layer["mlp_norm"], stream))
        return stream + _dense(layer["mlp_out"], _ACTIVATIONS[tower.activation](inner)), None

    return lax.scan(block, stream, params["layers"])[0]


def _dense(params: Any, inputs: jax.Array) -> jax.Array:
    kernel = params["kernel"]
    output = product("btd,df->btf", inputs.astype(kernel.dtype), kernel)
    return output + params["bias"].astype(jnp.float32) if "bias" in params else output


def _norm(tower: VisionTower, params: Any, inputs: jax.Array) -> jax.Array:
    centred = inputs - inputs.mean(-1, keepdims=True)
    normed = centred * lax.rsqrt(jnp.square(centred).mean(-1, keepdims=True) + tower.eps)
    return normed * params["scale"].astype(jnp.float32) + params["bias"].astype(jnp.float32)


def _read_spec(folder: pathlib.Path) -> tuple[Family, VisionLanguageSpec]:
    """The decoder's family and the architecture that config.json describes."""
    path = folder / "config.json"
    raw = read_config(path)
    if raw.get("model_type") != "llava":
        raise InputError(f"{path} has model_type {raw.get('model_type')!r}; supported with images: 'llava'")
    vision, text = raw.get("vision_config"), raw.get("text_config")
    if not isinstance(vision, dict) or not isinstance(text, dict):
        raise InputError(f"{path} needs a vision_config and a text_config; save the model's own config.json")
    _check_keys(raw, frozenset(_OF_MODEL.split()), f"{path}")
    _check_keys(vision, frozenset(_OF_TOWER.split()), f"vision_config of {path}")
    for key, value, supported in (
        ("model_type of vision_config", vision.get("model_type", "clip_vision_model"), ("clip_vision_model",)),
        ("model_type of text_config", text.get("model_type", "llama"), _DECODERS),
        ("num_channels of vision_config", vision.get("num_channels", 3), (3,)),
    ):
        if value not in supported:
            raise InputError(f"{path}: {key} is {value!r}; supported: {', '.join(map(str, supported))}")
    family_of_config({"model_type": "llama", **text}, f"text_config of {path}")
    from transformers import AutoConfig

    with reading(path, "a configuration that transformers accepts"):
        config = AutoConfig.from_pretrained(folder, trust_remote_code=False, local_files_only=True)
    with reading(path, "a supported configuration"):
        whole = config.to_dict()
        family = FAMILIES[whole["text_config"]["model_type"]]
        tied = {"tie_word_embeddings": whole["tie_word_embeddings"]}
        decoder_spec = family.to_spec({**text, **whole["text_config"], **tied})
        tower = _tower_of(whole["vision_config"], whole)
        spec = VisionLanguageSpec(
            tower,
            decoder_spec,
            config.image_token_index,
            whole["projector_hidden_act"],
            whole["multimodal_projector_bias"],
        )
    return family, spec


def _check_keys(config: Mapping[str, Any], known: frozenset[str], where: str) -> None:
    for key, allowed in REQUIRED.items():
        if key in config and config[key] not in allowed:
            raise InputError(f"{where} has {key}={config[key]!r}, which is not supported; leave it out")
    if unknown := sorted(config.keys() - known - IGNORED - REQUIRED.keys()):
        raise InputError(
            f"{where} has unknown keys {some(unknown)}: whether they change the computation cannot "
            "be told; remove them if they do not"
        )


def _tower_of(vision: Mapping[str, Any], whole: Mapping[str, Any]) -> VisionTower:
    layers, chosen = vision["num_hidden_layers"], whole["vision_feature_layer"]
    if not isinstance(chosen, int):
        raise InputError(f"vision_feature_layer={chosen!r} must be one number; several layers are not supported")
    return VisionTower(
        image_size=vision["image_size"],
        patch_size=vision["patch_size"],
        width=vision["hidden_size"],
        num_layers=layers,
        num_used=chosen if chosen >= 0 else layers + 1 + chosen,
        num_heads=vision["num_attention_heads"],
        mlp_width=vision["intermediate_size"],
        activation=vision["hidden_act"],
        eps=vision["layer_norm_eps"],
        with_class=whole["vision_feature_select_strategy"] == "full",
    )


def _check_processor(path: pathlib.Path) -> None:
    """The checkpoint's own preprocessing, where it is stored, normalises as `pixels` does."""
    found = read_json(path) if path.is_file() else {}
    for key, ours in (("image_mean", MEAN), ("image_std", STD)):
        if not np.allclose(found.get(key, ours), ours, rtol=0, atol=1e-6):
            raise InputError(f"{path} has {key}={found[key]}; only CLIP's, {list(ours)}, is supported")


def _slots(spec: VisionLanguageSpec, family: Family) -> Iterator[Slot]:
    """Every parameter that is used, with its stored tensors."""
    names = dataclasses.replace(family.names, base="model.language_model.")
    yield from _tower_slots(spec.tower)
    yield from _projector_slots(spec)
    for slot in slots(spec.text, names):
        yield dataclasses.replace(slot, path=("text", *slot.path))


def _projector_slots(spec: VisionLanguageSpec) -> Iterator[Slot]:
    width = spec.text.embedded_width
    for path, name, inputs in (("in", "linear_1", spec.tower.width), ("out", "linear_2", width)):
        name = f"model.multi_modal_projector.{name}"
        yield Slot(("projector", path, "kernel"), (Piece(f"{name}.weight", (width, inputs), True),))
        if spec.bias:
            yield Slot(("projector", path, "bias"), (Piece(f"{name}.bias", (width,)),))


def _tower_slots(tower: VisionTower) -> Iterator[Slot]:
    base, width, patch = "model.vision_tower.", tower.width, tower.patch_size
    for path, name, shape in (
        (("class", "row"), "embeddings.class_embedding", (width,)),
        (("patches", "kernel"), "embeddings.patch_embedding.weight", (width, 3, patch, patch)),
        (("positions", "rows"), "embeddings.position_embedding.weight", (tower.num_patches + 1, width)),
        (("first_norm", "scale"), "pre_layrnorm.weight", (width,)),
        (("first_norm", "bias"), "pre_layrnorm.bias", (width,)),
    ):
        yield Slot(("tower", *path), (Piece(base + name, shape),))
    yield from _layer_slots(tower, range(tower.num_used))


def _layer_slots(tower: VisionTower, layers: range) -> Iterator[Slot]:
    prefix, width, inner = "model.vision_tower.encoder.layers.{layer}.", tower.width, tower.mlp_width
    for path, name in (("attention_norm", "layer_norm1"), ("mlp_norm", "layer_norm2")):
        for last, stored in (("scale", "weight"), ("bias", "bias")):
            yield Slot(("tower", "layers", path, last), (Piece(f"{prefix}{name}.{stored}", (width,)),), layers)
    for path, names, inputs, outputs in (
        ("qkv", ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"), width, width),
        ("attention_out", ("self_attn.out_proj",), width, width),
        ("mlp_in", ("mlp.fc1",), width, inner),
        ("mlp_out", ("mlp.fc2",), inner, width),
    ):
        kernels = tuple(Piece(f"{prefix}{name}.weight", (outputs, inputs), True) for name in names)
        biases = tuple(Piece(f"{prefix}{name}.bias", (outputs,)) for name in names)
        yield Slot(("tower", "layers", path, "kernel"), kernels, layers)
        yield Slot(("tower", "layers", path, "bias"), biases, layers)


def _unused(tower: VisionTower) -> dict[str, tuple[int, ...]]:
    """Names and shapes of tensors that files may hold and no feature depends on."""
    behind = {
        name: shape
        for slot in _layer_slots(tower, range(tower.num_used, tower.num_layers) or range(0))
        for name, shape in (slot.stored() if slot.layers else ())
    }
    last = {f"model.vision_tower.post_layernorm.{name}": (tower.width,) for name in ("weight", "bias")}
    return behind | last


def _match(
    stored: StoredTensors, used: tuple[Slot, ...], unused: Mapping[str, tuple[int, ...]], where: str
) -> dict[str, str]:
    """Find every tensor in the files: name in the spelling used here -> name in the files."""
    name_in_file: dict[str, str] = {}
    for name in sorted(stored.names()):
        spelled = next((new + name[len(old) :] for old, new in _RENAMED if name.startswith(old)), name)
        if spelled.endswith((".position_ids", ".rotary_emb.inv_freq")):
            continue  # buffers
        name_in_file[name if spelled in name_in_file else spelled] = name
    expected = {name: shape for slot in used for name, shape in slot.stored()}
    head, embedding = "lm_head.weight", "model.language_model.embed_tokens.weight"
    if head in name_in_file and head not in expected:  # tied, and stored twice, or as the head alone
        if embedding not in name_in_file:
            name_in_file[embedding] = name_in_file.pop(head)
        elif stored.equal(name_in_file[head], name_in_file[embedding]):
            del name_in_file[head]
        else:
            raise InputError(f"{where} ties the readout to the embedding, but {head} differs; remove {head}")
    check_tensors(
        expected | {name: shape for name, shape in unused.items() if name in name_in_file},
        {name: stored.shape(in_file) for name, in_file in name_in_file.items()},
        where,
        advice="its weights and its config.json do not belong together",
        dtypes={name: stored.dtype(in_file) for name, in_file in name_in_file.items()},
    )
    return {name: name_in_file[name] for name in expected}
