"""Small random torch models of every family, perturbed and saved, made once a session."""

import functools
import json
import os
import pathlib
import tempfile

import numpy as np
from family_configs import ALL, LENGTH, VOCABULARY
from gpt2_files import word_tokenizer


def tokens():
    return np.random.default_rng(5).integers(0, VOCABULARY, (2, LENGTH)).astype(np.int32)


def torch_config(config):
    """The configuration as transformers understands it from a file."""
    import transformers

    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
        return transformers.AutoConfig.from_pretrained(folder)


def perturbed(config, *, seed=0):
    """A random torch model in which each parameter, and each stored buffer, was moved by 0.08 * normal."""
    import torch
    import transformers

    torch.manual_seed(seed)
    found = torch_config(config)
    model = transformers.AutoModelForCausalLM.from_config(found, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
        stored = model.state_dict().keys()
        for name, buffer in model.named_buffers():
            if name in stored and buffer.is_floating_point():
                buffer.add_(0.08 * torch.randn_like(buffer))
    return model


def torch_logits(model, tokens):
    import torch

    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens), dtype=torch.long)).logits.float().numpy()


@functools.cache
def _folder():
    return tempfile.TemporaryDirectory(prefix="torch-models-")


@functools.cache
def saved(name):
    """(folder, model, logits) of a configuration by its name."""
    model = perturbed(ALL[name])
    folder = pathlib.Path(_folder().name) / name.replace(", ", "-").replace(" ", "_")
    model.save_pretrained(folder)
    # the keys of published files, in place of those that this transformers writes
    (folder / "config.json").write_text(json.dumps(ALL[name]))
    word_tokenizer(VOCABULARY - 8).save_pretrained(folder)
    assert os.path.exists(folder / "model.safetensors")
    return folder, model, torch_logits(model, tokens())
