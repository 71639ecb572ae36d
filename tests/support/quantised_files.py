"""A small LLaMA whose projections are stored in a quantised format, and the same model with plain weights.

Formats are packed here from drawn integers, number by number as their definitions say; the plain weights are computed
from those integers, never unpacked.
"""

import functools
import json
import pathlib
import tempfile

import ml_dtypes
import numpy as np
from family_files import word_tokenizer
from safetensors.numpy import save_file

VOCABULARY = 48
CONFIG = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 64, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96, "max_position_embeddings": 32,
    "rms_norm_eps": 1e-5, "bos_token_id": None, "eos_token_id": None, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}  # fmt: skip
PROJECTIONS = {
    "self_attn.q_proj": (64, 64), "self_attn.k_proj": (32, 64), "self_attn.v_proj": (32, 64),
    "self_attn.o_proj": (64, 64), "mlp.gate_proj": (96, 64), "mlp.up_proj": (96, 64), "mlp.down_proj": (64, 96),
}  # fmt: skip
MODULES = {f"model.layers.{layer}.{name}": shape for layer in range(2) for name, shape in PROJECTIONS.items()}


def others(draw):
    """What no format quantises, in bfloat16: embedding, head and norms."""
    norms = [f"model.layers.{i}.{name}_layernorm" for i in range(2) for name in ("input", "post_attention")]
    found = {f"{name}.weight": 1 + draw.uniform(-0.25, 0.25, 64) for name in (*norms, "model.norm")}
    for name in ("model.embed_tokens", "lm_head"):
        found[f"{name}.weight"] = draw.uniform(-0.25, 0.25, (VOCABULARY, 64))
    return {name: tensor.astype(ml_dtypes.bfloat16) for name, tensor in found.items()}


def write(folder, tensors, quantisation=None, **changes):
    """A checkpoint folder of the LLaMA with these tensors."""
    config = {**CONFIG, **({} if quantisation is None else {"quantization_config": quantisation}), **changes}
    return write_config(folder, config, tensors)


def write_config(folder, config, tensors):
    """A checkpoint folder of this configuration and these tensors."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    save_file({name: np.ascontiguousarray(one) for name, one in tensors.items()}, folder / "model.safetensors")
    for name, content in _tokenizer().items():
        (folder / name).write_bytes(content)
    return folder


@functools.cache
def _tokenizer():
    """The files of a tokenizer, by name."""
    with tempfile.TemporaryDirectory() as folder:
        word_tokenizer(VOCABULARY).save_pretrained(folder)
        return {path.name: path.read_bytes() for path in pathlib.Path(folder).iterdir()}


def tensors(pack):
    """Tensors of a quantised and of the plain model; `pack(draw, shape)` gives tensors and weight of a projection."""
    draw = np.random.default_rng(0)
    stored = others(draw)
    plain = {name: tensor.astype(np.float32) for name, tensor in stored.items()}
    for module, shape in MODULES.items():
        parts, weight = pack(draw, shape)
        assert (weight.shape, weight.dtype) == (shape, np.float32)
        stored |= {module + suffix: part for suffix, part in parts.items()}
        plain[f"{module}.weight"] = weight
    return stored, plain


def words(values, bits):
    """Rows of integers as rows of int32: a stream in which number i has the bits i * bits and following."""
    streams = [sum(int(value) << (bits * i) for i, value in enumerate(row)) for row in values]
    size = -(-values.shape[1] * bits // 32)
    return np.array([np.frombuffer(stream.to_bytes(4 * size, "little"), "<i4") for stream in streams])


def gptq(draw, shape, bits=4, group=32, version=1, order=False, dtype=np.float16):
    """Numbers packed along inputs, zero points along outputs, minus one in version 1."""
    outputs, inputs = shape
    count = 1 if group == -1 else -(-inputs // group)
    groups = np.arange(inputs) // (inputs if group == -1 else group)
    groups = draw.permutation(groups) if order else groups
    numbers = draw.integers(0, 2**bits, (inputs, outputs))
    lowest = int(version == 1)
    zeros = draw.integers(lowest, lowest + 2**bits, (count, outputs))
    scales = draw.uniform(1e-3, 2e-2, (count, outputs)).astype(dtype)
    weight = scales[groups].astype(np.float32) * (numbers - zeros[groups]).astype(np.float32)
    tensors = {
        ".qweight": words(numbers.T, bits).T,
        ".qzeros": words(zeros - lowest, bits),
        ".scales": scales,
        ".g_idx": groups.astype(np.int32),
    }
    return tensors, weight.T.copy()


def awq(draw, shape, group=32):
    """Nibbles along outputs, in each word those of columns 0, 2, 4, 6, 1, 3, 5, 7."""
    outputs, inputs = shape
    size = inputs if group == -1 else group
    numbers = draw.integers(0, 16, (inputs, outputs))
    zeros = draw.integers(0, 16, (inputs // size, outputs))
    scales = draw.uniform(1e-3, 2e-2, zeros.shape).astype(np.float16)
    weight = scales.astype(np.float32).repeat(size, 0) * (numbers - zeros.repeat(size, 0)).astype(np.float32)
    order = [0, 2, 4, 6, 1, 3, 5, 7]
    packed = [words(one.reshape(len(one), -1, 8)[:, :, order].reshape(len(one), -1), 4) for one in (numbers, zeros)]
    return {".qweight": packed[0], ".qzeros": packed[1], ".scales": scales}, weight.T.copy()


NF4 = [
    -1.0, -0.6961928009986877, -0.5250730514526367, -0.39491748809814453, -0.28444138169288635, -0.18477343022823334,
    -0.09105003625154495, 0.0, 0.07958029955625534, 0.16093020141124725, 0.24611230194568634, 0.33791524171829224,
    0.44070982933044434, 0.5626170039176941, 0.7229568362236023, 1.0,
]  # fmt: skip
"""Dettmers et al. 2023, appendix E."""
_FP4 = [0, 1 / 192, 2 / 3, 1, 1 / 3, 1 / 2, 1 / 6, 1 / 4]
FP4 = [*_FP4, *(-one for one in _FP4)]
"""bitsandbytes' own four bits: sign, then magnitudes by a tree of three bits."""


def four_bits(draw, shape, kind="nf4", nested=False, block=64, storage="uint8"):
    """Along the flat weight: two numbers a byte, the first in the upper half; scales may be quantised likewise."""
    count = shape[0] * shape[1]
    code = np.array(NF4 if kind == "nf4" else FP4, np.float32)
    numbers = draw.integers(0, 16, count)
    state = {"quant_type": kind, "blocksize": block, "dtype": "bfloat16", "shape": list(shape)}
    scales = draw.uniform(0.01, 0.2, -(-count // block)).astype(np.float32)
    extra = {}
    if nested:
        table, inner = np.sort(draw.uniform(-1, 1, 256)).astype(np.float32), 16
        of_scales = draw.integers(0, 256, scales.size).astype(np.uint8)
        greatest = draw.uniform(0.01, 0.1, -(-scales.size // inner)).astype(np.float32)
        offset = 0.11250000447034836  # a float32
        scales = np.array([table[q] * greatest[k // inner] + np.float32(offset) for k, q in enumerate(of_scales)])
        state |= {"nested_blocksize": inner, "nested_dtype": "float32", "nested_offset": offset}
        extra = {".weight.nested_absmax": greatest, ".weight.nested_quant_map": table}
    weight = np.array([code[q] * scales[k // block] for k, q in enumerate(numbers)], np.float32).reshape(shape)
    packed = np.array([int(a) * 16 + int(b) for a, b in numbers.reshape(-1, 2)], np.uint8)
    tensors = {
        ".weight": packed.view(storage).reshape(-1, 1),
        ".weight.absmax": of_scales if nested else scales,
        ".weight.quant_map": code,
        f".weight.quant_state.bitsandbytes__{kind}": np.frombuffer(json.dumps(state).encode(), np.uint8),
    }
    return tensors | extra, weight


def eight_bits(draw, shape):
    """Outputs with the greatest magnitude of each."""
    numbers = draw.integers(-127, 128, shape).astype(np.int8)
    greatest = draw.uniform(0.05, 0.3, shape[0]).astype(np.float32)
    weight = numbers.astype(np.float32) * greatest[:, None] * np.float32(1 / 127)
    return {".weight": numbers, ".SCB": greatest, ".weight_format": np.uint8(0)}, weight


def packed(draw, shape, bits=4, group=32, zeros=True, order=False, dtype=np.float32):
    """compressed-tensors: numbers along inputs and zero points along outputs, both from -2^(bits - 1) on."""
    outputs, inputs = shape
    half = 2 ** (bits - 1)
    size = inputs if group == -1 else group
    groups = np.arange(inputs) // size
    groups = draw.permutation(groups) if order else groups
    numbers = draw.integers(-half, half, shape)
    points = draw.integers(-half, half, (outputs, inputs // size)) * zeros
    scales = draw.uniform(1e-3, 2e-2, points.shape).astype(dtype)
    weight = scales[:, groups].astype(np.float32) * (numbers - points[:, groups]).astype(np.float32)
    tensors = {
        ".weight_packed": words(numbers + half, bits),
        ".weight_scale": scales,
        ".weight_shape": np.array(shape, np.int64),
        ".weight_zero_point": words((points + half).T, bits).T,
        ".weight_g_idx": groups.astype(np.int32),
    }
    left_out = [*([] if zeros else [".weight_zero_point"]), *([] if order else [".weight_g_idx"])]
    return {suffix: tensor for suffix, tensor in tensors.items() if suffix not in left_out}, weight


def integers(draw, shape, zeros=False):
    """compressed-tensors: numbers of 8 bits with a scale, and perhaps a zero point, for each output."""
    numbers, points = (draw.integers(-128, 128, size).astype(np.int8) for size in (shape, (shape[0], 1)))
    scales = draw.uniform(1e-4, 2e-3, (shape[0], 1)).astype(ml_dtypes.bfloat16)
    shifted = numbers.astype(np.int32) - points.astype(np.int32) * zeros
    extra = {".weight_zero_point": points} if zeros else {}
    weight = scales.astype(np.float32) * shifted.astype(np.float32)
    return {".weight": numbers, ".weight_scale": scales, **extra}, weight


def mxfp4(draw, shape):
    """Blocks of 32 of the last axis: nibbles, the lower first; sign, two bits of exponent, one of mantissa."""
    codes = draw.integers(0, 16, (*shape[:-1], shape[-1] // 32, 32))
    exponents = draw.integers(100, 130, codes.shape[:-1])
    exponent, mantissa = (codes >> 1) & 3, codes & 1
    size = np.where(exponent == 0, mantissa / 2, (1 + mantissa / 2) * 2.0 ** (exponent - 1.0))
    weight = np.where(codes >> 3, -size, size) * 2.0 ** (exponents[..., None] - 127.0)
    blocks = (codes[..., ::2] + 16 * codes[..., 1::2]).astype(np.uint8)
    return blocks, exponents.astype(np.uint8), weight.reshape(shape).astype(np.float32)


def e4m3(codes):
    """Bytes as float32: sign, four bits of exponent with bias 7, three of mantissa; exponent 0 is subnormal."""
    sign, exponent, mantissa = codes >> 7, (codes >> 3) & 15, codes & 7
    size = np.where(exponent == 0, mantissa / 8 * 2.0**-6, (1 + mantissa / 8) * 2.0 ** (exponent.astype(float) - 7))
    return np.where(sign, -size, size).astype(np.float32)


def fp8_codes(draw, shape):
    """Bytes that are finite numbers of e4m3."""
    codes = draw.integers(0, 256, shape).astype(np.uint8)
    return np.where((codes & 127) == 127, 0, codes).astype(np.uint8)


def fp8_blocks(draw, shape, block=(24, 20), dtype=np.float32, name=".weight_scale_inv"):
    """Blocks that neither axis is a multiple of."""
    codes = fp8_codes(draw, shape)
    grid = [-(-size // step) for size, step in zip(shape, block, strict=True)]
    scales = draw.uniform(1e-4, 2e-3, grid).astype(dtype)
    of_each = [[scales[i // block[0], j // block[1]] for j in range(shape[1])] for i in range(shape[0])]
    weight = e4m3(codes) * np.array(of_each, np.float32)
    return {".weight": codes.view(ml_dtypes.float8_e4m3fn), name: scales}, weight


def fp8_whole(draw, shape, form=()):
    """One scale for the tensor, or one for each output where `form` is "outputs"."""
    codes = fp8_codes(draw, shape)
    scales = draw.uniform(1e-4, 2e-3, (shape[0], 1) if form == "outputs" else form).astype(np.float32)
    return {".weight": codes.view(ml_dtypes.float8_e4m3fn), ".weight_scale": scales}, e4m3(codes) * scales
