"""Every form in which a GPT-2 checkpoint may lie in a folder."""

import json
import os

import gpt2_files
import jax
import numpy as np
import pytest
from safetensors.numpy import save_file

from tdd.models.checkpoint import load

PLACES = {
    ("embedding", "tokens"): "transformer.wte.weight",
    ("embedding", "positions"): "transformer.wpe.weight",
    ("final_norm", "scale"): "transformer.ln_f.weight",
    ("final_norm", "bias"): "transformer.ln_f.bias",
    ("layers", "attention_norm", "scale"): "ln_1.weight",
    ("layers", "attention_norm", "bias"): "ln_1.bias",
    ("layers", "qkv", "kernel"): "attn.c_attn.weight",
    ("layers", "qkv", "bias"): "attn.c_attn.bias",
    ("layers", "attention_out", "kernel"): "attn.c_proj.weight",
    ("layers", "attention_out", "bias"): "attn.c_proj.bias",
    ("layers", "mlp_norm", "scale"): "ln_2.weight",
    ("layers", "mlp_norm", "bias"): "ln_2.bias",
    ("layers", "mlp_in", "kernel"): "mlp.c_fc.weight",
    ("layers", "mlp_in", "bias"): "mlp.c_fc.bias",
    ("layers", "mlp_out", "kernel"): "mlp.c_proj.weight",
    ("layers", "mlp_out", "bias"): "mlp.c_proj.bias",
}


def leaves(params):
    """Path of keys -> array."""
    return {
        tuple(entry.key for entry in path): np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(params)
    }


def assert_same(params, other):
    for path, leaf in leaves(params).items():
        np.testing.assert_array_equal(leaf, leaves(other)[path], err_msg=str(path))


@pytest.fixture
def plain(tmp_path):
    """(params, stored tensors) of a float32 checkpoint in one file."""
    folder, _, stored = gpt2_files.write(tmp_path / "plain")
    return load(folder)[1], stored


def test_every_tensor_in_its_place(plain):
    params, stored = plain
    found = leaves(params)
    assert found.keys() == PLACES.keys()
    for path, name in PLACES.items():
        assert found[path].dtype == np.float32
        if path[0] == "layers":
            for layer in range(3):
                np.testing.assert_array_equal(found[path][layer], stored[f"transformer.h.{layer}.{name}"])
        else:
            np.testing.assert_array_equal(found[path], stored[name])


def test_model_and_tokenizer(tmp_path):
    folder, *_ = gpt2_files.write(tmp_path, tokenizer_size=40)
    lm, _, tokenizer = load(os.fspath(folder))
    assert (lm.vocab_size, lm.max_length, lm.soft_cap) == (48, 16, None)
    assert tokenizer("3 17 39").input_ids == [3, 17, 39]


@pytest.mark.parametrize("shards", [2, 7])
def test_sharded(tmp_path, plain, shards):
    folder, *_ = gpt2_files.write(tmp_path / "sharded", shards=shards)
    assert_same(load(folder)[1], plain[0])


def test_without_prefix_and_with_buffers(tmp_path, plain):
    """The files of the original release."""
    stored = {name.removeprefix("transformer."): tensor for name, tensor in plain[1].items()}
    for layer in range(3):
        stored[f"h.{layer}.attn.bias"] = np.tril(np.ones((1, 1, 16, 16), np.float32))
        stored[f"h.{layer}.attn.masked_bias"] = np.float32(-1e4)
    folder, *_ = gpt2_files.write(tmp_path / "bare", stored=stored)
    assert_same(load(folder)[1], plain[0])


def test_boolean_buffers(tmp_path, plain):
    """Buffers are never read, whatever their dtype."""
    folder, *_ = gpt2_files.write(tmp_path / "buffers")
    stored = {**plain[1], "transformer.h.0.attn.bias": np.ones((1, 1, 16, 16), np.bool_)}
    save_file(stored, folder / "model.safetensors")
    assert_same(load(folder)[1], plain[0])


def test_a_stored_copy_of_the_tied_embedding(tmp_path, plain):
    stored = {**plain[1], "lm_head.weight": plain[1]["transformer.wte.weight"]}
    folder, *_ = gpt2_files.write(tmp_path / "copy", stored=stored)
    assert_same(load(folder)[1], plain[0])


def test_untied_head(tmp_path):
    folder, _, stored = gpt2_files.write(tmp_path, tie_word_embeddings=False)
    lm, params, _ = load(folder)
    np.testing.assert_array_equal(lm.readout(params), stored["lm_head.weight"])
    assert not np.array_equal(lm.readout(params), params["embedding"]["tokens"])


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_stored_dtype_is_kept(tmp_path, plain, dtype):
    folder, *_ = gpt2_files.write(tmp_path / dtype, dtype=dtype)
    for path, leaf in leaves(load(folder)[1]).items():
        assert leaf.dtype == dtype
        np.testing.assert_array_equal(leaf, leaves(plain[0])[path].astype(dtype))


@pytest.mark.parametrize("dtype", ["bfloat16", np.float16, jax.numpy.bfloat16])
def test_dtype_on_request(tmp_path, plain, dtype):
    folder, *_ = gpt2_files.write(tmp_path / "f32")
    for path, leaf in leaves(load(folder, dtype=dtype)[1]).items():
        assert leaf.dtype == np.dtype(dtype)
        np.testing.assert_array_equal(leaf, leaves(plain[0])[path].astype(dtype))


def test_mixed_dtypes_widen_to_what_holds_both(tmp_path, plain):
    folder, *_ = gpt2_files.write(tmp_path / "mixed")
    stored = {**plain[1]}
    for layer in range(2):
        name = f"transformer.h.{layer}.mlp.c_fc.bias"
        stored[name] = stored[name].astype("bfloat16")
    save_file(stored, folder / "model.safetensors")
    bias = leaves(load(folder)[1])["layers", "mlp_in", "bias"]
    assert bias.dtype == np.float32
    np.testing.assert_array_equal(bias[2], plain[1]["transformer.h.2.mlp.c_fc.bias"])


def test_keys_of_published_configurations(tmp_path):
    """The configuration that GPT-2 was published with, aliases of sizes included."""
    changes = {
        "n_ctx": 16,
        "attn_pdrop": 0.1,
        "embd_pdrop": 0.1,
        "resid_pdrop": 0.1,
        "initializer_range": 0.02,
        "summary_activation": None,
        "summary_first_dropout": 0.1,
        "summary_proj_to_labels": True,
        "summary_type": "cls_index",
        "summary_use_proj": True,
        "task_specific_params": {"text-generation": {"do_sample": True, "max_length": 50}},
        "torch_dtype": "float32",
        "use_cache": True,
        "transformers_version": "4.20.0",
    }
    folder, config, _ = gpt2_files.write(tmp_path, **changes)
    spec = load(folder)[0].spec
    renamed = {"n_embd": "hidden_size", "n_layer": "num_hidden_layers", "n_head": "num_attention_heads"}
    renamed["n_positions"] = "max_position_embeddings"
    (folder / "config.json").write_text(json.dumps({renamed.get(key, key): config[key] for key in config}))
    assert load(folder)[0].spec == spec


def test_keys_that_transformers_writes(tmp_path):
    """Every key of a configuration written in full today is known."""
    import transformers

    folder, config, _ = gpt2_files.write(tmp_path)
    spec = load(folder)[0].spec
    full = transformers.GPT2Config(**{key: config[key] for key in config if key != "architectures"})
    full.to_json_file(folder / "config.json", use_diff=False)
    assert load(folder)[0].spec == spec
