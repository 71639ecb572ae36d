"""The text decoder of a model that sees: its tensors under every name, without the tower's."""

import json
import operator
import pathlib

import jax
import numpy as np
import pytest
from family_configs import LENGTH, VOCABULARY
from family_files import values, word_tokenizer, write_files
from multimodal_configs import CONFIGURATIONS, LAYOUTS, PUBLISHED

from tdd.models.checkpoint import load, save
from tdd.models.configuration import read_spec
from tdd.models.families import family_of_spec, unread_keys
from tdd.models.families.multimodal import text_part
from tdd.models.families.tensors import slots
from tdd.scoring.models import provenance_of
from tdd.validate import InputError

TOWER = {kind: "visual" if kind.startswith("qwen") else "vision_tower" for kind in LAYOUTS}
SAVED_AS = {
    "gemma3": "gemma3_text", "llava": "llama", "llava_next": "llama", "llava_onevision": "qwen2", "qwen2_vl": "qwen2",
    "qwen2_5_vl": "qwen2", "qwen3_vl": "qwen3",
}  # fmt: skip


def spec_of(folder, config):
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config))
    return read_spec(folder)


def decoder_tensors(folder, config):
    """(names and shapes of the decoder alone, made into tensors; configuration of the decoder alone)."""
    spec = spec_of(folder, config)[1]
    family, written = family_of_spec(spec)
    shapes = sorted((name, shape) for slot in slots(spec, family.names) for name, shape in slot.stored())
    return {name: values(shape, stream) for stream, (name, shape) in enumerate(shapes)}, written


def around(stored, layout, tower):
    """The tensors as files of the whole model hold them."""
    base, before_head, before_tower = layout
    named = {
        before_head + name if name.startswith("lm_head.") else base + name.removeprefix("model."): tensor
        for name, tensor in stored.items()
    }
    beside = {f"{before_tower}{tower}.blocks.{i}.weight": values((3, 5), 99 + i) for i in range(2)}
    if tower == "vision_tower":
        beside[f"{before_tower}multi_modal_projector.linear_1.weight"] = values((4, 4), 98)
        beside[f"{before_tower}image_newline"] = values((16,), 97)
    return named | beside


def assert_same(params, others):
    assert jax.tree.structure(params) == jax.tree.structure(others)
    jax.tree.map(np.testing.assert_array_equal, params, others)


@pytest.mark.parametrize("later", [False, True])
@pytest.mark.parametrize("name", [*SAVED_AS, "qwen2_vl, nested", "qwen2_5_vl, windows, tied"])
def test_the_decoder_is_that_of_a_checkpoint_of_its_own(tmp_path, name, later, caplog):
    config = CONFIGURATIONS[name]
    kind = config["model_type"]
    stored, alone = decoder_tensors(tmp_path / "spec", config)
    whole = write_files(
        tmp_path / "whole", config, around(stored, LAYOUTS[kind][later], TOWER[kind]), tokenizer_size=VOCABULARY - 8
    )
    plain = write_files(tmp_path / "plain", alone, stored, tokenizer_size=VOCABULARY - 8)
    lm, params, tokenizer = load(whole)
    other, expected, _ = load(plain)
    assert lm is other
    assert_same(params, expected)
    beside = 4 if TOWER[kind] == "vision_tower" else 2
    assert f"only the text decoder is read; {beside} tensors that no text meets are left out" in caplog.text
    assert provenance_of(str(whole))["left_out"][TOWER[kind]] == 2
    assert "left_out" not in provenance_of(str(plain))
    save(tmp_path / "copy", lm, params, tokenizer)
    assert json.loads((tmp_path / "copy" / "config.json").read_text())["model_type"] == SAVED_AS[kind]
    again, params_again, _ = load(tmp_path / "copy")
    assert again is lm
    assert_same(params_again, params)


def test_both_spellings_of_a_tensor(tmp_path):
    config = CONFIGURATIONS["llava"]
    stored, _ = decoder_tensors(tmp_path / "spec", config)
    tensors = around(stored, LAYOUTS["llava"][0], "vision_tower")
    tensors["model.language_model.norm.weight"] = tensors["language_model.model.norm.weight"]
    write_files(tmp_path / "whole", config, tensors, tokenizer_size=VOCABULARY - 8)
    with pytest.raises(InputError, match="has 1 tensors that the architecture has not"):
        load(tmp_path / "whole")


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_key_that_transformers_writes(tmp_path, name):
    from transformers import AutoConfig

    family, spec = spec_of(tmp_path, CONFIGURATIONS[name])
    AutoConfig.from_pretrained(tmp_path).to_json_file(tmp_path / "config.json", use_diff=False)
    assert read_spec(tmp_path) == (family, spec)
    assert spec.max_length >= LENGTH
    assert unread_keys(CONFIGURATIONS[name]) == []


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(tmp_path, name):
    config, expected = PUBLISHED[name]
    _, spec = spec_of(tmp_path, config)
    for path, value in expected.items():
        assert operator.attrgetter(path)(spec) == value, path


def test_keys_that_nothing_reads(tmp_path):
    config = CONFIGURATIONS["gemma3"]
    text = {**config["text_config"], "neftune_noise_alpha": 5.0}
    more = {**config, "_model_name_or_path": "x", "text_config": text}
    assert spec_of(tmp_path, more) == spec_of(tmp_path, config)
    assert unread_keys(more) == ["_model_name_or_path", "neftune_noise_alpha"]


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("gemma3", {"add_cross_attention": True}, "has add_cross_attention=True, which changes"),
        ("gemma3", {"rope_scaling": None}, "has rope_scaling=None, but .* in text_config"),
        (
            "gemma3",
            {"text_config": {**CONFIGURATIONS["gemma3"]["text_config"], "final_logit_softcapping": 3.0}},
            "text_config of .* has final_logit_softcapping=3.0, which changes",
        ),
        ("gemma3", {"text_config": {"model_type": "t5"}}, "text_config of .* has model_type 't5'; supported: gpt2"),
        ("gemma3", {"text_config": [1]}, r"text_config must be an object, got \[1\]"),
        (
            "gemma3",
            {"text_config": {**CONFIGURATIONS["gemma3"]["text_config"], "use_bidirectional_attention": True}},
            "text_config of .* has use_bidirectional_attention=True, which changes",
        ),
        (
            "llava",
            {"text_config": {**CONFIGURATIONS["llava"]["text_config"], "attention_chunk_size": 4}},
            "text_config of .* unknown keys attention_chunk_size",
        ),
        ("qwen2_vl, nested", {"hidden_size": 24}, "has hidden_size=24, but 16 in text_config; remove the wrong one"),
        ("qwen2_vl", {"hidden_act": "mish"}, "hidden_act='mish' is not supported"),
        (
            "qwen3_vl",
            {"text_config": {**CONFIGURATIONS["qwen3_vl"]["text_config"], "model_type": "llama"}},
            "text_config has model_type 'llama', but the decoder of qwen3_vl is 'qwen3_vl_text'",
        ),
        (
            "qwen3_vl",
            {"text_config": {**CONFIGURATIONS["qwen3_vl"]["text_config"], "use_sliding_window": True}},
            "text_config of .* has use_sliding_window=True, which changes",
        ),
        ("qwen2_5_vl", {"rope_scaling": {"type": "linear", "factor": 2.0, "beta_fast": 3}}, "unknown keys beta_fast"),
    ],
)
def test_refused(tmp_path, name, changes, message):
    with pytest.raises(InputError, match=message):
        spec_of(tmp_path, {**CONFIGURATIONS[name], **changes})


def test_more_layers_than_tensors(tmp_path):
    config = CONFIGURATIONS["gemma3"]
    stored, _ = decoder_tensors(tmp_path / "spec", config)
    text = {**config["text_config"], "num_hidden_layers": 10**9}
    folder = write_files(tmp_path / "whole", {**config, "text_config": text}, stored, tokenizer_size=VOCABULARY - 8)
    with pytest.raises(InputError, match="num_hidden_layers=1000000000, but the files beside it hold"):
        load(folder)


def test_the_whole_says_whether_the_head_is_tied():
    config = CONFIGURATIONS["gemma3, untied"]
    assert text_part(config)["tie_word_embeddings"] is False
    assert "tie_word_embeddings" not in text_part(CONFIGURATIONS["gemma3"])


def torch_saved(folder, config):
    """A random torch model, each parameter moved by 0.08 * normal, saved; and the model."""
    import torch
    import transformers
    from torch_models import torch_config

    torch.manual_seed(0)
    found = torch_config(config)
    model = transformers.AutoModelForImageTextToText.from_config(found, attn_implementation="eager").eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    (pathlib.Path(folder) / "config.json").write_text(json.dumps(config))
    word_tokenizer(VOCABULARY - 8).save_pretrained(folder)
    return model


@pytest.mark.torch
@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logits_equal_torch(tmp_path, name):
    from decoder_specs import REQUIRED
    from torch_models import torch_logits

    model = torch_saved(tmp_path, CONFIGURATIONS[name])
    tokens = np.random.default_rng(5).integers(2, 40, (2, LENGTH)).astype(np.int32)  # none that stands for an image
    expected = torch_logits(model, tokens)
    lm, params, _ = load(tmp_path)
    with jax.default_matmul_precision("highest"):
        compiled = jax.jit(lm.logits, compiler_options={"xla_backend_optimization_level": 0})
        found = np.asarray(compiled(params, tokens))
    assert np.abs(expected).max() > 0.25
    assert np.abs(found - expected).max() <= REQUIRED
