"""What is saved is complete or absent, and reads back bit for bit."""

import json
import os

import gpt2_files
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tdd.models import decoder
from tdd.models.adapters import from_function
from tdd.models.checkpoint import load, save
from tdd.models.language_model import language_model
from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp
from tdd.validate import InputError

OPTIONS = [
    {},
    {"scale_attn_by_inverse_layer_idx": True},
    {"scale_attn_weights": False, "n_inner": 30},
    {"scale_attn_weights": False, "scale_attn_by_inverse_layer_idx": True, "activation_function": "silu"},
    {"tie_word_embeddings": False, "activation_function": "relu", "layer_norm_epsilon": 1e-3},
]


def assert_same(params, other):
    assert jax.tree.structure(params) == jax.tree.structure(other)
    for leaf, twin in zip(jax.tree.leaves(params), jax.tree.leaves(other), strict=True):
        assert leaf.dtype == twin.dtype
        np.testing.assert_array_equal(leaf, twin)


@pytest.fixture
def loaded(tmp_path):
    return load(gpt2_files.write(tmp_path / "original")[0])


@pytest.mark.parametrize("max_shard_bytes", [10**9, 20_000, 1])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
def test_round_trip(tmp_path, dtype, max_shard_bytes):
    folder, *_ = gpt2_files.write(tmp_path / "original", dtype=dtype)
    lm, params, tokenizer = load(folder)
    save(tmp_path / "new" / "copy", lm, params, tokenizer, max_shard_bytes=max_shard_bytes)
    again, params_again, tokenizer_again = load(tmp_path / "new" / "copy")
    assert again is lm
    assert_same(params, params_again)
    assert tokenizer_again("1 5 7").input_ids == [1, 5, 7]
    assert json.loads((tmp_path / "new" / "copy" / "config.json").read_text())["dtype"] == dtype
    files = sorted(path.name for path in (tmp_path / "new" / "copy").glob("*.safetensors"))
    assert len(files) == {10**9: 1, 1: 40}.get(max_shard_bytes, len(files))
    assert (tmp_path / "new" / "copy" / "model.safetensors.index.json").exists() == (len(files) > 1)
    assert os.listdir(tmp_path / "new") == ["copy"]


@pytest.mark.parametrize("changes", OPTIONS)
def test_every_option_survives(tmp_path, changes):
    folder, *_ = gpt2_files.write(tmp_path / "original", **changes)
    lm, params, tokenizer = load(folder)
    save(tmp_path / "copy", lm, params, tokenizer)
    again, params_again, _ = load(tmp_path / "copy")
    assert again.spec == lm.spec
    assert_same(params, params_again)


def test_shards_are_no_larger_than_asked(tmp_path, loaded):
    lm, params, tokenizer = loaded
    save(tmp_path / "copy", lm, params, tokenizer, max_shard_bytes=20_000)
    index = json.loads((tmp_path / "copy" / "model.safetensors.index.json").read_text())
    sizes = [path.stat().st_size for path in (tmp_path / "copy").glob("*.safetensors")]
    assert len(sizes) > 1
    assert max(sizes) < 20_000 + 4_000  # and a header
    assert index["metadata"]["total_size"] == sum(leaf.nbytes for leaf in jax.tree.leaves(params))


def test_dtype_on_request(tmp_path, loaded):
    lm, params, tokenizer = loaded
    save(tmp_path / "copy", lm, params, tokenizer, dtype="bfloat16")
    assert_same(load(tmp_path / "copy")[1], jax.tree.map(lambda leaf: leaf.astype(jnp.bfloat16), params))


@pytest.mark.slow("long")
def test_random_model(tmp_path):
    spec = DecoderSpec(48, 24, 2, LayerNorm(), LearnedPositions(16), Attention(3, 8, (8**-0.5,) * 2), Mlp(50, "gelu"))
    lm = language_model(spec)
    params = decoder.init_params(spec, jax.random.key(0))
    save(tmp_path / "copy", lm, params, gpt2_files.word_tokenizer(48))
    again, params_again, _ = load(tmp_path / "copy")
    assert again is lm
    assert_same(params, params_again)


def test_special_tokens_enter_the_configuration(tmp_path, loaded):
    lm, params, tokenizer = loaded
    tokenizer.eos_token = "7"
    save(tmp_path / "copy", lm, params, tokenizer)
    config = json.loads((tmp_path / "copy" / "config.json").read_text())
    assert (config["eos_token_id"], config["bos_token_id"]) == (7, None)


def test_an_empty_folder_is_filled(tmp_path, loaded):
    (tmp_path / "copy").mkdir()
    save(tmp_path / "copy", *loaded)
    assert load(tmp_path / "copy")[0] is loaded[0]


def test_without_tokenizer(tmp_path, loaded):
    save(tmp_path / "copy", *loaded[:2])
    with pytest.raises(InputError, match="no tokenizer in"):
        load(tmp_path / "copy")


def test_a_folder_with_files_is_left_alone(tmp_path, loaded):
    (tmp_path / "copy").mkdir()
    (tmp_path / "copy" / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="already holds files; save into a new folder"):
        save(tmp_path / "copy", *loaded)
    assert os.listdir(tmp_path / "copy") == ["notes.txt"]


def test_the_target_is_a_file(tmp_path, loaded):
    (tmp_path / "copy").write_text("mine")
    with pytest.raises(InputError, match="already holds files"):
        save(tmp_path / "copy", *loaded)
    assert (tmp_path / "copy").read_text() == "mine"


@pytest.mark.parametrize("failing_file", [1, 3])
def test_a_full_disk_leaves_nothing(tmp_path, loaded, monkeypatch, failing_file):
    import safetensors.numpy

    written = []
    real = safetensors.numpy.save_file

    def full(tensors, path, metadata):
        written.append(path)
        if len(written) == failing_file:
            raise OSError(28, "No space left on device")
        real(tensors, path, metadata)

    monkeypatch.setattr(safetensors.numpy, "save_file", full)
    before = set(os.listdir(tmp_path))
    with pytest.raises(OSError, match="No space left"):
        save(tmp_path / "copy", *loaded, max_shard_bytes=20_000)
    assert set(os.listdir(tmp_path)) == before


def test_parameters_that_do_not_fit(tmp_path, loaded):
    lm, params, tokenizer = loaded
    lacking = {name: leaf for name, leaf in params.items() if name != "final_norm"}
    with pytest.raises(InputError, match="params lacks 2 of 16 tensors: final_norm/bias, final_norm/scale"):
        save(tmp_path / "copy", lm, lacking, tokenizer)
    more = {**params, "head": {"kernel": params["embedding"]["tokens"]}}
    with pytest.raises(InputError, match="params has 1 tensors that the architecture has not: head/kernel"):
        save(tmp_path / "copy", lm, more, tokenizer)
    bent = {**params, "embedding": {**params["embedding"], "tokens": params["embedding"]["tokens"][:-1]}}
    with pytest.raises(
        InputError,
        match=r"params has 1 tensors of another shape: embedding/tokens \[47, 24\] instead of \[48, 24\]; give the",
    ):
        save(tmp_path / "copy", lm, bent, tokenizer)
    assert not (tmp_path / "copy").exists()


def test_other_models_and_options(tmp_path, loaded):
    lm, params, tokenizer = loaded
    function = from_function(lambda params, tokens: tokens, vocab_size=3, name="plain")
    with pytest.raises(InputError, match=r"lm\.spec must be a DecoderSpec, got FunctionSpec"):
        save(tmp_path / "copy", function, params)
    with pytest.raises(InputError, match="max_shard_bytes must be a positive number, got 0"):
        save(tmp_path / "copy", lm, params, tokenizer, max_shard_bytes=0)
    with pytest.raises(InputError, match="dtype='int8' is not supported"):
        save(tmp_path / "copy", lm, params, tokenizer, dtype="int8")
    with pytest.raises(InputError, match=r"has id 59 .* vocabulary has 48 rows"):
        save(tmp_path / "copy", lm, params, gpt2_files.word_tokenizer(60))
    odd = language_model(
        DecoderSpec(8, 8, 2, LayerNorm(), LearnedPositions(4), Attention(2, 4, (0.1, 0.9)), Mlp(8, "relu"))
    )
    with pytest.raises(InputError, match=r"no supported family \(gpt2, .*\) can store this architecture"):
        save(tmp_path / "copy", odd, {})
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize(("value", "dtype"), [(np.nan, None), (np.inf, "bfloat16"), (1e5, "float16")])
def test_numbers_that_load_would_refuse(tmp_path, loaded, value, dtype):
    lm, params, tokenizer = loaded
    scale = params["layers"]["mlp_norm"]["scale"].at[1, 3].set(value)
    params = {**params, "layers": {**params["layers"], "mlp_norm": {**params["layers"]["mlp_norm"], "scale": scale}}}
    with pytest.raises(InputError, match=r"params has NaN or infinite numbers in 1 of 40 tensors: .*h\.1\.ln_2.weight"):
        save(tmp_path / "copy", lm, params, tokenizer, dtype=dtype)
    assert "copy" not in os.listdir(tmp_path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".copy")]
