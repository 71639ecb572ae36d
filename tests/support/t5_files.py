"""T5 checkpoints whose every parameter is a fixed pseudo-random number, written without torch."""

import json

from family_files import tensors, write_files

from tdd.models.t5 import _expected, _read_spec

VOCABULARY = 67
COMMON = {
    "model_type": "t5", "vocab_size": VOCABULARY, "d_model": 24, "d_kv": 5, "d_ff": 40, "num_layers": 2, "num_heads": 3,
    "relative_attention_num_buckets": 8, "relative_attention_max_distance": 12, "decoder_start_token_id": 0,
    "pad_token_id": 0, "eos_token_id": 1,
}  # fmt: skip
CONFIGURATIONS = {
    "relu, tied": COMMON | {"feed_forward_proj": "relu", "num_layers": 3, "num_decoder_layers": 2},
    "gated, head of its own": COMMON | {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
    "gated, tied": COMMON | {"feed_forward_proj": "gated-gelu", "layer_norm_epsilon": 1e-3, "d_kv": 8},
}


def write_t5(folder, name="gated, head of its own"):
    """Files of a configuration, with a tokenizer whose words are numbers."""
    config = CONFIGURATIONS[name]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    shapes = _expected(_read_spec(folder / "config.json", tied=config.get("tie_word_embeddings") is not False))
    write_files(folder, config, tensors(shapes, "t5"), tokenizer_size=VOCABULARY - 3)
    return folder
