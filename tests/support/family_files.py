"""Checkpoints written tensor by tensor under their published names, without torch and without the loader.

Names and shapes are those of torch's own files, recorded in tests/models/golden/family_logits.json. Parameters come
from integer arithmetic alone, so that they are the same on every machine: element i of the k-th tensor (names in sorted
order) is (u - 1/2) / 2, plus 1 for the weight of a norm (but not where a family stores it minus one), where u has the
top 24 bits of splitmix64's output for the state k * 2**32 + i.
"""

import functools
import json
import pathlib

import ml_dtypes  # noqa: F401  (bfloat16 in safetensors)
import numpy as np
from family_configs import CONFIGURATIONS, VOCABULARY
from safetensors.numpy import save_file

GOLDEN = pathlib.Path(__file__).parents[1] / "models" / "golden" / "family_logits.json"


@functools.cache
def golden():
    """What was recorded from torch."""
    return json.loads(GOLDEN.read_text())


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


def shapes(name):
    """Published tensor names and shapes of a configuration, by its name."""
    found = golden()["configurations"][name]
    layers = {
        key.replace("{layer}", str(layer)): shape
        for key, shape in found["layer"].items()
        for layer in range(found["num_layers"])
    }
    return {**found["other"], **layers}


def tensors(shapes, model_type):
    """Every tensor by its name."""
    factors = ("ln_", "norm") if model_type not in ("gemma", "gemma2") else ()
    return {
        name: values(shape, stream) + (name.endswith("weight") and any(word in name for word in factors))
        for stream, (name, shape) in enumerate(sorted(shapes.items()))
    }


def word_tokenizer(size):
    """A tokenizer whose words are the decimal numbers 0 .. size - 1."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = Tokenizer(models.WordLevel({str(number): number for number in range(size)}, unk_token="0"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=words, unk_token="0")


def write_files(folder, config, stored, *, dtype="float32", shards=1, tokenizer_size=0):
    """config.json, weights in one file or in shards with an index, and a tokenizer where it has a size."""
    folder = pathlib.Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    written = {name: np.ascontiguousarray(tensor.astype(dtype)) for name, tensor in stored.items()}
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
    return folder


def write(folder, name, *, stored=None, dtype="float32", shards=1, **changes):
    """A checkpoint of one of CONFIGURATIONS; returns (folder, tensors in float32 or as given in `stored`).

    The tokenizer has fewer words than the model has rows, as where a vocabulary was padded.
    """
    config = {**CONFIGURATIONS[name], **changes}
    found = tensors(shapes(name), config["model_type"]) if stored is None else stored
    write_files(folder, config, found, dtype=dtype, shards=shards, tokenizer_size=VOCABULARY - 8)
    return pathlib.Path(folder), found
