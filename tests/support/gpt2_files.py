"""GPT-2 checkpoints written tensor by tensor under their published names, without torch and without the loader."""

from family_files import tensors as family_tensors
from family_files import values, word_tokenizer, write_files

__all__ = ["CONFIG", "shapes", "tensors", "values", "word_tokenizer", "write"]

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
    return family_tensors(shapes(config), "gpt2")


def write(folder, *, stored=None, dtype="float32", shards=1, tokenizer_size=48, **changes):
    """Write a checkpoint; returns (folder, configuration, tensors in float32 or as given in `stored`)."""
    config = {**CONFIG, **changes}
    found = tensors(config) if stored is None else stored
    place = write_files(folder, config, found, dtype=dtype, shards=shards, tokenizer_size=tokenizer_size)
    return place, config, found
