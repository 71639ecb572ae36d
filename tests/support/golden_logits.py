"""What tests/models/golden/family_logits.json holds, computed anew by torch.

PYTHONPATH=tests/support python -m golden_logits     writes it
"""

import json

import numpy as np
from family_configs import CONFIGURATIONS, LENGTH, VOCABULARY
from family_files import GOLDEN, tensors, values
from torch_models import torch_config, torch_logits

TOKENS = np.random.default_rng(11).integers(0, VOCABULARY, (1, LENGTH))
SHOWN = (slice(None), slice(None, None, 5), slice(None, None, 7))


def recorded(name):
    """Names, shapes and a part of the logits of one configuration.

    Torch computes in float64 as far as its classes let it: their RMS norms and rotations stay in float32.
    """
    import tempfile

    import torch
    import transformers
    from family_files import write_files
    from safetensors import safe_open

    config = torch_config(CONFIGURATIONS[name])
    with tempfile.TemporaryDirectory() as folder:
        transformers.AutoModelForCausalLM.from_config(config).save_pretrained(folder)
        with safe_open(f"{folder}/model.safetensors", "numpy") as file:
            shapes = {key: list(file.get_slice(key).get_shape()) for key in file.keys()}  # noqa: SIM118
        write_files(folder, CONFIGURATIONS[name], tensors(shapes, config.model_type))
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float64, attn_implementation="eager", experts_implementation="eager"
        ).eval()
        logits = torch_logits(model, TOKENS)
    by_layer = {key.replace(".0.", ".{layer}.", 1): shape for key, shape in shapes.items() if _first_number(key) == "0"}
    numbered = lambda key: {key.replace("{layer}", str(n)) for n in range(config.num_hidden_layers)}  # noqa: E731
    layer = {key: shape for key, shape in by_layer.items() if numbered(key) <= shapes.keys()}
    other = {key: shape for key, shape in shapes.items() if not any(key in numbered(pattern) for pattern in layer)}
    return {
        "num_layers": config.num_hidden_layers,
        "layer": layer,
        "other": other,
        "logits": np.round(logits[SHOWN].astype(np.float64), 8).tolist(),
    }


def _first_number(key):
    """The number of the layer; later ones are those of experts."""
    return next((part for part in key.split(".") if part.isdigit()), None)


def main():
    content = {
        "tokens": TOKENS.tolist(),
        "values_2x2_stream_7": values((2, 2), 7).tolist(),
        "configurations": {name: recorded(name) for name in CONFIGURATIONS},
    }
    lines = json.dumps(content, indent=0).replace("\n", "").replace('"gpt', '\n"gpt')
    GOLDEN.write_text(lines + "\n")


if __name__ == "__main__":
    main()
