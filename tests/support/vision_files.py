"""Small LLaVA checkpoints: the configurations that are tested, and the record of torch's numbers.

PYTHONPATH=tests/support python -m vision_files     writes tests/models/golden/vision_logits.json
"""

import functools
import json
import pathlib

import numpy as np
from family_files import tensors, write_files

GOLDEN = pathlib.Path(__file__).parents[1] / "models" / "golden" / "vision_logits.json"
VOCABULARY, IMAGE = 48, 41

_TEXT = {
    "model_type": "llama", "vocab_size": VOCABULARY, "hidden_size": 16, "intermediate_size": 40,
    "num_hidden_layers": 2, "num_attention_heads": 4, "max_position_embeddings": 64, "rms_norm_eps": 1e-5,
}  # fmt: skip
_VISION = {
    "model_type": "clip_vision_model", "hidden_size": 24, "intermediate_size": 56, "num_hidden_layers": 3,
    "num_attention_heads": 3, "image_size": 12, "patch_size": 4,
}  # fmt: skip
_LLAVA = {"model_type": "llava", "image_token_index": IMAGE, "vision_feature_layer": -2}

CONFIGURATIONS = {
    "llava-1.5": {**_LLAVA, "text_config": _TEXT, "vision_config": _VISION},
    "gelu, first layer, class token": {
        **_LLAVA,
        "vision_feature_layer": -3,
        "vision_feature_select_strategy": "full",
        "text_config": {**_TEXT, "num_key_value_heads": 2},
        "vision_config": {**_VISION, "hidden_act": "gelu", "layer_norm_eps": 0.01},
    },
    "all layers, no biases in the projector": {
        **_LLAVA,
        "vision_feature_layer": 3,
        "multimodal_projector_bias": False,
        "text_config": {**_TEXT, "num_hidden_layers": 3},
        "vision_config": {**_VISION, "num_attention_heads": 4, "patch_size": 6},
    },
    "mistral, tied": {
        **_LLAVA,
        "tie_word_embeddings": True,
        "text_config": {**_TEXT, "model_type": "mistral", "sliding_window": 7, "num_key_value_heads": 2},
        "vision_config": {**_VISION, "num_hidden_layers": 2},
    },
}

LAYOUTS = {
    "language_model.model": {
        "model.language_model.": "language_model.model.",
        "model.vision_tower.": "vision_tower.",
        "model.multi_modal_projector.": "multi_modal_projector.",
        "lm_head.": "language_model.lm_head.",
    },
    "vision_tower.vision_model": {
        "model.language_model.": "language_model.model.",
        "model.vision_tower.": "vision_tower.vision_model.",
        "model.multi_modal_projector.": "multi_modal_projector.",
        "lm_head.": "language_model.lm_head.",
    },
    "model.language_model": {},
}
"""Layout -> beginnings of torch's names of parameters and what files of the layout have in their place."""


def in_layout(names, layout):
    """Torch's names of parameters -> names in files of a layout."""
    found = {}
    for name in names:
        plain = name.replace("model.vision_tower.vision_model.", "model.vision_tower.")
        old = next((old for old in LAYOUTS[layout] if plain.startswith(old)), "")
        found[name] = LAYOUTS[layout].get(old, "") + plain[len(old) :]
    return found


def images():
    return np.random.default_rng(3).normal(size=(2, 3, 12, 12)).astype(np.float32)


def tokens(num_features):
    """Two texts of the same length with one image each, in different places."""
    words = np.random.default_rng(4).integers(0, IMAGE, (2, 9))
    rows = [[*row[:place], *[IMAGE] * num_features, *row[place:]] for row, place in zip(words, (1, 4), strict=True)]
    return np.asarray(rows, np.int32)


def torch_model(config, dtype="float32"):
    """A random torch model in which each parameter was moved by 0.08 * normal."""
    import torch
    import transformers
    from torch_models import torch_config

    torch.manual_seed(0)
    found = torch_config(config)
    model = transformers.LlavaForConditionalGeneration._from_config(found, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    return model.to(getattr(torch, dtype))


def torch_numbers(model, tokens, images):
    """Torch's projected features and logits."""
    import torch

    images = torch.tensor(images).to(model.dtype)
    with torch.no_grad():
        features = model.get_image_features(images).pooler_output
        output = model(torch.tensor(tokens, dtype=torch.long), pixel_values=images).logits
    return torch.stack(list(features)).double().numpy(), output.double().numpy()


@functools.cache
def golden():
    return json.loads(GOLDEN.read_text())


def write(folder, name):
    """A checkpoint with the recorded names and shapes, whose parameters come from integer arithmetic."""
    return write_files(
        folder, CONFIGURATIONS[name], tensors(golden()[name]["shapes"], "llava"), tokenizer_size=VOCABULARY - 8
    )


def recorded(name):
    """Names, shapes and numbers of one configuration; torch computes in float64 as far as its classes let it."""
    import torch

    model = torch_model(CONFIGURATIONS[name], "float64")
    spelled = in_layout([key for key, _ in model.named_parameters()], "model.language_model")
    shapes = {spelled[key]: list(parameter.shape) for key, parameter in model.named_parameters()}
    filled = tensors(shapes, "llava")
    with torch.no_grad():
        for key, parameter in model.named_parameters():
            parameter.copy_(torch.tensor(filled[spelled[key]]))
    placed = tokens(num_features(CONFIGURATIONS[name]))
    features, logits = torch_numbers(model, placed, images())
    return {
        "shapes": shapes,
        "features": np.round(features[:, ::3, ::5], 8).tolist(),
        "logits": np.round(logits[:, ::5, ::7], 8).tolist(),
    }


def num_features(config):
    vision = config["vision_config"]
    patches = (vision["image_size"] // vision["patch_size"]) ** 2
    return patches + (config.get("vision_feature_select_strategy") == "full")


if __name__ == "__main__":
    GOLDEN.write_text(json.dumps({name: recorded(name) for name in CONFIGURATIONS}, separators=(",", ":")) + "\n")
