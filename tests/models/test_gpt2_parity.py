"""The decoder against torch's GPT-2, from saved files in which every parameter was perturbed."""

import json
import pathlib

import gpt2_files
import jax
import numpy as np
import pytest

from tdd.models.checkpoint import load, save

pytestmark = pytest.mark.torch

GOLDEN = pathlib.Path(__file__).parent / "golden" / "gpt2_logits.json"
TOLERANCE = 1e-5
CONFIGURATIONS = {
    "default": {},
    "inverse_layer_idx": {"scale_attn_by_inverse_layer_idx": True},
    "no_attention_scale": {"scale_attn_weights": False},
    "both_scales_unusual": {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True},
    "n_inner_relu": {"n_inner": 40, "activation_function": "relu"},
    "exact_gelu_untied": {"activation_function": "gelu", "tie_word_embeddings": False},
    "silu_epsilon": {"activation_function": "silu", "layer_norm_epsilon": 1e-2},
    "tanh": {"activation_function": "tanh"},
    "one_head_one_layer": {"n_head": 1, "n_layer": 1},
    "upcast": {"reorder_and_upcast_attn": True},
}


def perturbed(folder, *, seed=0, **changes):
    """A random torch model, each parameter moved by 0.08 * normal, saved and returned."""
    import torch
    import transformers

    torch.manual_seed(seed)
    sizes = {"vocab_size": 96, "n_positions": 40, "n_embd": 48, "n_layer": 3, "n_head": 4}
    config = transformers.GPT2Config(bos_token_id=None, eos_token_id=None, **{**sizes, **changes})
    model = transformers.GPT2LMHeadModel(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.08 * torch.randn_like(parameter))
    model.save_pretrained(folder)
    gpt2_files.word_tokenizer(config.vocab_size).save_pretrained(folder)
    return model


def torch_logits(model, tokens):
    import torch

    with torch.no_grad():
        return model(torch.tensor(np.asarray(tokens), dtype=torch.long)).logits.float().numpy()


@pytest.fixture
def tokens():
    return np.random.default_rng(5).integers(0, 96, (3, 40)).astype(np.int32)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_logits_equal_torch(tmp_path, tokens, name, record_property):
    model = perturbed(tmp_path, **CONFIGURATIONS[name])
    lm, params, _ = load(tmp_path)
    with jax.default_matmul_precision("highest"):
        ours = np.asarray(jax.jit(lm.logits)(params, tokens))
    expected = torch_logits(model, tokens)
    difference = float(np.abs(ours - expected).max())
    record_property("max_abs_logit_difference", difference)
    assert np.abs(expected).max() > 1
    assert difference <= TOLERANCE


@pytest.mark.parametrize("name", ["inverse_layer_idx", "no_attention_scale", "n_inner_relu", "exact_gelu_untied"])
def test_configurations_differ_from_the_default(tmp_path, tokens, name):
    """An option that changed nothing would pass the parity test without being read."""
    model = perturbed(tmp_path / "a", **CONFIGURATIONS[name])
    plain = {"n_inner": 40} if name == "n_inner_relu" else {}
    if name == "exact_gelu_untied":
        plain = {"tie_word_embeddings": False}
    other = perturbed(tmp_path / "b", **plain)
    assert np.abs(torch_logits(model, tokens) - torch_logits(other, tokens)).max() > 10 * TOLERANCE


def test_saved_files_reach_torch_bit_for_bit(tmp_path):
    import torch
    import transformers

    model = perturbed(tmp_path / "torch", tie_word_embeddings=False)
    lm, params, tokenizer = load(tmp_path / "torch")
    save(tmp_path / "ours", lm, params, tokenizer, max_shard_bytes=50_000)
    assert len(list((tmp_path / "ours").glob("*.safetensors"))) > 3
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    expected = model.state_dict()
    assert again.state_dict().keys() == expected.keys()
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, expected[name]), name


def test_saved_bfloat16_reaches_torch_bit_for_bit(tmp_path):
    import torch
    import transformers

    model = perturbed(tmp_path / "torch").to(torch.bfloat16)
    lm, params, tokenizer = load(tmp_path / "torch")
    save(tmp_path / "ours", lm, params, tokenizer, dtype="bfloat16")
    again = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "ours")
    assert again.dtype == torch.bfloat16
    for name, tensor in again.state_dict().items():
        assert torch.equal(tensor, model.state_dict()[name]), name


def test_bfloat16_files_of_torch(tmp_path, tokens):
    """bfloat16 files, computed in float32, against torch computing in float32 from the same rounded numbers."""
    import torch

    model = perturbed(tmp_path).to(torch.bfloat16)
    model.save_pretrained(tmp_path)
    lm, params, _ = load(tmp_path, dtype="float32")
    with jax.default_matmul_precision("highest"):
        ours = np.asarray(lm.logits(params, tokens))
    assert np.abs(ours - torch_logits(model.float(), tokens)).max() <= TOLERANCE


def test_sharded_files_of_torch(tmp_path, tokens):
    model = perturbed(tmp_path)
    (tmp_path / "model.safetensors").unlink()
    model.save_pretrained(tmp_path, max_shard_size="40KB")
    assert (tmp_path / "model.safetensors.index.json").is_file()
    lm, params, _ = load(tmp_path)
    with jax.default_matmul_precision("highest"):
        ours = np.asarray(lm.logits(params, tokens))
    assert np.abs(ours - torch_logits(model, tokens)).max() <= TOLERANCE


def test_files_of_the_bare_model(tmp_path, tokens):
    """`GPT2Model.save_pretrained` leaves out the `transformer.` prefix."""
    model = perturbed(tmp_path)
    model.transformer.save_pretrained(tmp_path)
    lm, params, _ = load(tmp_path)
    with jax.default_matmul_precision("highest"):
        ours = np.asarray(lm.logits(params, tokens))
    assert np.abs(ours - torch_logits(model, tokens)).max() <= TOLERANCE


def test_golden_numbers_are_torch(tmp_path):
    """The committed logits are what torch computes; to write them anew, dump `computed` in this form."""
    import transformers

    golden = json.loads(GOLDEN.read_text())
    computed = {}
    for name, changes in golden["configurations"].items():
        folder, *_ = gpt2_files.write(tmp_path / name, **changes)
        model = transformers.GPT2LMHeadModel.from_pretrained(folder).eval()
        computed[name] = torch_logits(model, golden["tokens"])[:, ::4, ::3]
    assert computed.keys() == golden["logits"].keys()
    for name, logits in computed.items():
        np.testing.assert_allclose(logits, np.asarray(golden["logits"][name]), rtol=0, atol=2e-6)
