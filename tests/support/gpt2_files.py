"""GPT-2 checkpoints written tensor by tensor under their published names, without torch and without the loader.

Parameters come from integer arithmetic alone, so that they are the same on every machine: element i of the k-th
tensor (names in sorted order) is (u - 1/2) / 2, plus 1 for the weight of a norm, where u has the top 24 bits of
splitmix64's output for the state k * 2**32 + i.
"""

import json
import pathlib

import ml_dtypes  # noqa: F401  (bfloat16 in safetensors)
import numpy as np
from safetensors.numpy import save_file

CONFIG = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "vocab_size": 48,
    "n_positions": 16,
    "n_embd": 24,
    "n_layer": 3,
    "n_head": 4,
    "n_inner": None,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "tie_word_embeddings": True,
    "bos_token_id": None,
    "eos_token_id": None,
}


def values(shape, stream):
    """Uniform numbers in [-1/4, 1/4), exact in float32."""
    count = int(np.prod(shape))
    state = np.arange(count, dtype=np.uint64) + (np.uint64(stream) << np.uint64(32))
    bits = (state + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    bits = (bits ^ (bits >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    bits = (bits ^ (bits >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    bits ^= bits >> np.uint64(31)
    uniform = (bits >> np.uint64(40)).astype(np.float64) / 2**24
    return ((uniform - 0.5) / 2).astype(np.float32).reshape(shape)


def shapes(config):
    """Published tensor names and shapes of a GPT-2 configuration."""
    vocab, width, inner = config["vocab_size"], config["n_embd"], config["n_inner"] or 4 * config["n_embd"]
    found = {
        "transformer.wte.weight": (vocab, width),
        "transformer.wpe.weight": (config["n_positions"], width),
        "transformer.ln_f.weight": (width,),
        "transformer.ln_f.bias": (width,),
    }
    for layer in range(config["n_layer"]):
        for name, (rows, columns) in {
            "attn.c_attn": (width, 3 * width),
            "attn.c_proj": (width, width),
            "mlp.c_fc": (width, inner),
            "mlp.c_proj": (inner, width),
        }.items():
            found[f"transformer.h.{layer}.{name}.weight"] = (rows, columns)
            found[f"transformer.h.{layer}.{name}.bias"] = (columns,)
        for name in ("ln_1", "ln_2"):
            found[f"transformer.h.{layer}.{name}.weight"] = (width,)
            found[f"transformer.h.{layer}.{name}.bias"] = (width,)
    if not config["tie_word_embeddings"]:
        found["lm_head.weight"] = (vocab, width)
    return found


def tensors(config):
    """Every tensor of a configuration by its published name."""
    return {
        name: values(shape, stream) + ((".ln_" in name) and name.endswith("weight"))
        for stream, (name, shape) in enumerate(sorted(shapes(config).items()))
    }


def word_tokenizer(size):
    """A tokenizer whose words are the decimal numbers 0 .. size - 1."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({str(number): number for number in range(size)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0")


def write(folder, *, stored=None, dtype="float32", shards=1, tokenizer_size=48, **changes):
    """Write a checkpoint; returns (folder, configuration, tensors in float32 or as given in `stored`)."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    config = {**CONFIG, **changes}
    found = tensors(config) if stored is None else stored
    written = {name: np.ascontiguousarray(tensor.astype(dtype)) for name, tensor in found.items()}
    (folder / "config.json").write_text(json.dumps(config))
    if shards == 1:
        save_file(written, folder / "model.safetensors", metadata={"format": "pt"})
    else:
        weight_map = {}
        for shard in range(shards):
            file_name = f"model-{shard + 1:05d}-of-{shards:05d}.safetensors"
            part = dict(list(written.items())[shard::shards])
            save_file(part, folder / file_name, metadata={"format": "pt"})
            weight_map.update(dict.fromkeys(part, file_name))
        (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    if tokenizer_size:
        word_tokenizer(tokenizer_size).save_pretrained(folder)
    return folder, config, found
