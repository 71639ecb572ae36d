"""The decoder against torch's classes, from saved files in which every parameter was perturbed.

LENGTH exceeds every window, and every parameter that could stand in for another has a shape of its own.
"""

import functools
import itertools
import json
import shutil

import jax
import numpy as np
import pytest
from decoder_specs import REQUIRED, assert_logits, roundings
from family_configs import ALL, CONFIGURATIONS, ONE_OF_EACH
from torch_models import saved, tokens, torch_logits

from tdd.models.checkpoint import load, save

pytestmark = pytest.mark.torch


@functools.cache
def loaded(name):
    return load(saved(name)[0])


def our_logits(lm, params, *, optimised=False):
    """The variants are compiled in haste; what users get is what the table's configurations are tested with."""
    options = {} if optimised else {"xla_backend_optimization_level": 0}
    with jax.default_matmul_precision("highest"):
        return np.asarray(jax.jit(lm.logits, compiler_options=options)(params, tokens()))


def copied(name, folder):
    """A copy of a saved checkpoint that may be changed, and its model."""
    shutil.copytree(saved(name)[0], folder)
    return folder, saved(name)[1]


@pytest.mark.parametrize("name", ALL)
def test_logits_equal_torch(name, record_property):
    expected = saved(name)[2]
    lm, params, _ = loaded(name)
    difference = float(np.abs(our_logits(lm, params, optimised=name in CONFIGURATIONS) - expected).max())
    record_property("max_abs_logit_difference", difference)
    assert np.abs(expected).max() > 0.25
    assert difference <= REQUIRED


@pytest.mark.parametrize("model_type", sorted({config["model_type"] for config in ALL.values()}))
def test_no_two_settings_agree(model_type):
    """A setting that changed nothing would pass the parity test without being read."""
    names = [name for name in ALL if ALL[name]["model_type"] == model_type]
    for name, other in itertools.combinations(names, 2):
        assert np.abs(saved(name)[2] - saved(other)[2]).max() > 20 * REQUIRED, (name, other)


@pytest.mark.parametrize("name", [*CONFIGURATIONS, *(name for name in ALL if name.startswith("opt,"))])
def test_saved_files_reach_torch_bit_for_bit(tmp_path, name):
    import torch
    import transformers

    lm, params, tokenizer = loaded(name)
    save(tmp_path / "ours", lm, params, tokenizer, max_shard_bytes=8_000)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 1
    again = transformers.AutoModelForCausalLM.from_pretrained(tmp_path / "ours", attn_implementation="eager")
    expected = saved(name)[1].state_dict()
    assert again.state_dict().keys() == expected.keys()
    for key, tensor in again.state_dict().items():
        assert torch.equal(tensor, expected[key]), key
    # the configuration says the same too; torch itself rounds anew from run to run
    assert_logits(torch_logits(again.eval(), tokens()), saved(name)[2], roundings(lm.spec, tokens().shape[1]))


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_bfloat16_shards_of_torch(tmp_path, name):
    """Computed in float32 from bfloat16 files; and what is saved as bfloat16 are the same files."""
    import copy

    import torch
    import transformers
    from safetensors.torch import load_file

    folder, model = copied(name, tmp_path / "torch")
    (folder / "model.safetensors").unlink()
    copy.deepcopy(model).to(torch.bfloat16).save_pretrained(folder, max_shard_size="6KB")
    (folder / "config.json").write_text(json.dumps(ALL[name]))
    assert (folder / "model.safetensors.index.json").is_file()
    lm, params, tokenizer = load(folder)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(params)} == {"bfloat16"}
    save(tmp_path / "ours", lm, params, tokenizer)
    ours, theirs = (
        {key: tensor for path in place.glob("*.safetensors") for key, tensor in load_file(path).items()}
        for place in (tmp_path / "ours", folder)
    )
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(ours[key], theirs[key]) for key in ours)
    wide = jax.tree.map(lambda leaf: leaf.astype(np.float32), params)
    # read anew, for a model that was converted keeps rounded rotary frequencies
    again = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    assert np.abs(our_logits(lm, wide) - torch_logits(again, tokens())).max() <= REQUIRED


@pytest.mark.parametrize(
    "name",
    [
        "gpt2",
        "gpt_neo",
        "gpt_neox, tied",
        "falcon",
        "mpt",
        "bloom",
        "opt, as its 350M",
        "llama, tied",
        "gemma2",
        "mixtral, window, tied",
    ],
)
def test_files_of_the_bare_model(tmp_path, name):
    """Saved without the head, the names lack their first word; tied models are complete all the same."""
    folder, model = copied(name, tmp_path / "bare")
    model.base_model.save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps(ALL[name]))
    lm, params, _ = load(folder)
    assert np.abs(our_logits(lm, params) - saved(name)[2]).max() <= REQUIRED


@pytest.mark.parametrize("name", ["mixtral", "olmoe", "qwen3_moe", "qwen3_moe, dense layers", "deepseek_v2"])
def test_experts_as_torch_holds_them(tmp_path, name):
    """`save_original_format=False` writes a layer's experts as stacks, under other names."""
    folder, model = copied(name, tmp_path / "stacks")
    model.save_pretrained(folder, save_original_format=False)
    (folder / "config.json").write_text(json.dumps(ALL[name]))
    lm, params, _ = load(folder)
    for found, expected in zip(*map(jax.tree.leaves, (params, loaded(name)[1])), strict=True):
        np.testing.assert_array_equal(found, expected)
    assert lm is loaded(name)[0]


def test_upcasting_changes_nothing(tmp_path):
    folder, _ = copied("gpt2", tmp_path / "upcast")
    (folder / "config.json").write_text(json.dumps({**ALL["gpt2"], "reorder_and_upcast_attn": True}))
    assert load(folder)[0] is loaded("gpt2")[0]
