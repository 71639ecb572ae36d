"""GGUF files written without the package gguf: a writer, quantisers, and the checkpoints of family_files."""

import math
import pathlib
import struct

import family_files
import ml_dtypes
import numpy as np
from family_configs import CONFIGURATIONS, VOCABULARY

ALIGNMENT = 32
NUMBERS = {"F32": 0, "F16": 1, "Q4_0": 2, "Q8_0": 8, "BF16": 30}
_VALUES = {bool: (7, "<?"), int: (4, "<I"), float: (6, "<f")}
_ITEMS = {np.dtype("f4"): 6, np.dtype("i4"): 5, np.dtype("?"): 7}


def _string(text):
    raw = text if isinstance(text, bytes) else text.encode()
    return struct.pack("<Q", len(raw)) + raw


def _value(value):
    if isinstance(value, str):
        return struct.pack("<I", 8) + _string(value)
    if isinstance(value, list):
        return struct.pack("<IIQ", 9, 8, len(value)) + b"".join(map(_string, value))
    if isinstance(value, np.ndarray):
        return struct.pack("<IIQ", 9, _ITEMS[value.dtype], len(value)) + value.tobytes()
    number, form = _VALUES[type(value)]
    return struct.pack("<I", number) + struct.pack(form, value)


def encoded(tensor, kind):
    """The bytes of a float32 array in a type."""
    if kind in ("F32", "F16", "BF16"):
        return tensor.astype({"F32": np.float32, "F16": np.float16, "BF16": ml_dtypes.bfloat16}[kind]).tobytes()
    return QUANTISED[kind](tensor.reshape(-1, 32))[0]


def q8_0(blocks):
    """(bytes, values): 32 signed bytes with one float16 scale."""
    scale = (np.abs(blocks).max(1, keepdims=True) / 127).astype(np.float16)
    steps = np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-8)).astype(np.int8)
    return np.concatenate([scale.view(np.uint8), steps.view(np.uint8)], 1).tobytes(), scale * steps.astype(np.float32)


def q4_0(blocks):
    """(bytes, values): 32 numbers of 4 bits, minus 8, with one float16 scale; the first 16 are the low halves."""
    scale = (np.abs(blocks).max(1, keepdims=True) / 8).astype(np.float16)
    steps = np.rint(blocks / np.maximum(scale.astype(np.float32), 1e-8)).clip(-8, 7).astype(np.int8)
    halves = (steps + 8).astype(np.uint8)
    packed = halves[:, :16] | (halves[:, 16:] << 4)
    return np.concatenate([scale.view(np.uint8), packed], 1).tobytes(), scale * steps.astype(np.float32)


QUANTISED = {"Q8_0": q8_0, "Q4_0": q4_0}


def write(path, metadata, tensors, *, version=3):
    """`metadata` by name, and float32 `tensors` by name, each with the type in which it is stored."""
    head, data = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(metadata)), b""
    for name, value in metadata.items():
        head += _string(name) + _value(value)
    for name, (tensor, kind) in tensors.items():
        head += _string(name) + struct.pack(f"<I{tensor.ndim}Q", tensor.ndim, *tensor.shape[::-1])
        head += struct.pack("<IQ", NUMBERS[kind], len(data))
        raw = encoded(np.ascontiguousarray(tensor, np.float32), kind)
        data += raw + bytes(-len(raw) % ALIGNMENT)
    path = pathlib.Path(path)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(head + bytes(-len(head) % ALIGNMENT) + data)
    return path


# Tokenizers

ALPHABET = [chr(byte) for byte in range(33, 127)] + [chr(code) for code in range(161, 256)] + ["\u0120", "\u010a"]
MERGES = ["t h", "th e", "\u0120 the", "1 2", "12 3", "' s"]


def byte_level(pre="gpt-2", **changes):
    """Metadata of a byte-level BPE; its tokens are letters, merges, and three special tokens."""
    tokens = ["<|end|>", "<|start|>", "<think>", *ALPHABET, *(merge.replace(" ", "") for merge in MERGES)]
    kinds = np.array([3, 3, 4] + [1] * (len(tokens) - 3), np.int32)
    found = {"model": "gpt2", "pre": pre, "tokens": tokens, "token_type": kinds, "merges": MERGES}
    found |= {"bos_token_id": 1, "eos_token_id": 0, **changes}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items() if value is not None}


def letters(count):
    """Metadata of a byte-level BPE with a given number of tokens: letters, and no merges that need others."""
    tokens = ["<|end|>", *ALPHABET][:count]
    kinds = np.array([3] + [1] * (count - 1), np.int32)
    found = {"model": "gpt2", "pre": "gpt-2", "tokens": tokens, "token_type": kinds, "merges": []}
    return {f"tokenizer.ggml.{key}": value for key, value in found.items()}


# The checkpoints of family_files

_LLAMA = {
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "embed_tokens": "token_embd",
    "norm": "output_norm",
    "lm_head": "output",
}
_GEMMA = {
    **_LLAMA,
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
_PARTS = {
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
    "olmo2": _GEMMA,
    "phi3": {**_LLAMA, "self_attn.qkv_proj": "attn_qkv", "mlp.gate_up_proj": "ffn_up"},
    "gpt2": {
        "wte": "token_embd",
        "wpe": "position_embd",
        "ln_1": "attn_norm",
        "ln_2": "ffn_norm",
        "ln_f": "output_norm",
        "attn.c_attn": "attn_qkv",
        "attn.c_proj": "attn_output",
        "mlp.c_fc": "ffn_up",
        "mlp.c_proj": "ffn_down",
    },
}
"""Published name of a part -> its name in GGUF files, by architecture; LLaMA's for all others."""  # fmt: skip


EPSILONS = {"olmo": "attention.layer_norm_epsilon"}


def in_pairs(tensor, heads):
    """Rows of queries or keys as llama.cpp orders them: the two of a rotated pair are neighbours."""
    halves = tensor.reshape(heads, 2, -1, *tensor.shape[1:])
    return halves.swapaxes(1, 2).reshape(tensor.shape)


def renamed(name, architecture):
    """A published name of a tensor -> (its name in a GGUF file, its part)."""
    stem, _, last = name.rpartition(".")
    words = stem.removeprefix("model.").removeprefix("transformer.")
    layer = ""
    if words.startswith(("layers.", "h.")):
        _, number, words = words.split(".", 2)
        layer = f"blk.{number}."
    part = _PARTS.get(architecture, _LLAMA)[words]
    return f"{layer}{part}.{last}", part


def common(config, architecture):
    """Metadata of an architecture with LLaMA's or GPT-2's keys."""
    if architecture == "gpt2":
        width = config["n_embd"]
        found = {
            "context_length": config["n_positions"], "embedding_length": width, "block_count": config["n_layer"],
            "feed_forward_length": 4 * width, "attention.head_count": config["n_head"],
            "attention.layer_norm_epsilon": 1e-5,
        }  # fmt: skip
        return {"general.architecture": "gpt2", **{f"gpt2.{key}": value for key, value in found.items()}}
    found = {
        "context_length": config["max_position_embeddings"],
        "embedding_length": config["hidden_size"],
        "block_count": config["num_hidden_layers"],
        "feed_forward_length": config["intermediate_size"],
        "attention.head_count": config["num_attention_heads"],
        "attention.head_count_kv": config["num_key_value_heads"],
        EPSILONS.get(architecture, "attention.layer_norm_rms_epsilon"): config.get("rms_norm_eps", 1e-5),
        "rope.freq_base": float(config.get("rope_theta", 10_000.0)),
        "vocab_size": config["vocab_size"],
    }
    if "head_dim" in config:
        found |= {"attention.key_length": config["head_dim"], "attention.value_length": config["head_dim"]}
    return {"general.architecture": architecture, **{f"{architecture}.{key}": value for key, value in found.items()}}


def write_family(path, name, architecture=None, *, kind="F32", metadata=(), tensors=(), **changes):
    """A configuration of family_configs as a GGUF file, with further metadata and tensors."""
    config = {**CONFIGURATIONS[name], **changes}
    model_type = config["model_type"]
    architecture = architecture or model_type.removesuffix("_text")
    stored = family_files.tensors(family_files.shapes(name), model_type)
    written = {}
    for own, tensor in stored.items():
        spelled, part = renamed(own, architecture)
        if architecture in ("llama", "olmo") and part in ("attn_q", "attn_k"):
            heads = config["num_attention_heads" if part == "attn_q" else "num_key_value_heads"]
            tensor = in_pairs(tensor, heads)
        if architecture.startswith("gemma") and part.endswith("norm"):
            tensor = tensor + np.float32(1)
        if architecture == "gpt2" and tensor.ndim == 2 and part.startswith(("attn_", "ffn_")):
            tensor = tensor.T
        written[spelled] = (tensor, "F32" if tensor.ndim == 1 else kind)
    entries = {**common(config, architecture), **letters(VOCABULARY - 8), **dict(metadata)}
    return write(path, entries, {**written, **dict(tensors)})


def values(name, tensor):
    """What a reader finds of a tensor stored as a quantised type."""
    assert math.prod(tensor.shape) % 32 == 0
    return QUANTISED[name](tensor.reshape(-1, 32))[1].reshape(tensor.shape)
