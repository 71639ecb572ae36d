"""Every checkpoint that cannot be trusted is refused, with a message that names what and where."""

import json
import os
import pathlib
import re
import time
import tomllib

import chex
import gpt2_files
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tdd.models import configuration
from tdd.models.checkpoint import load
from tdd.validate import InputError

WEIGHTS = "model.safetensors"
INDEX = "model.safetensors.index.json"
_COPIES = ("lm_head.weight", "transformer.wte.weight")


@pytest.fixture
def folder(tmp_path):
    return gpt2_files.write(tmp_path / "model")[0]


@pytest.fixture
def sharded(tmp_path):
    return gpt2_files.write(tmp_path / "model", shards=3)[0]


def edit_config(folder, **changes):
    path = folder / "config.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def edit_weights(folder, change):
    stored = load_file(folder / WEIGHTS)
    change(stored)
    save_file(stored, folder / WEIGHTS)


def edit_index(folder, change):
    content = json.loads((folder / INDEX).read_text())
    change(content)
    (folder / INDEX).write_text(json.dumps(content))


def refused(folder, message):
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value) or "tensor" in str(caught.value)


def test_no_such_folder(tmp_path):
    with pytest.raises(InputError, match=r"no model folder at '.*missing', and it is not a hub id"):
        load(tmp_path / "missing")


def test_a_file(folder):
    with pytest.raises(InputError, match="is a file; give the folder"):
        load(folder / WEIGHTS)


def test_a_revision_for_a_folder(folder):
    with pytest.raises(InputError, match="revision='main' is for hub ids"):
        load(folder, revision="main")


@pytest.mark.parametrize("dtype", ["float64", "int8", "wide", 3])
def test_dtype(folder, dtype):
    with pytest.raises(InputError, match=r"dtype=.* is not supported; supported: float32, bfloat16, float16"):
        load(folder, dtype=dtype)


def test_missing_config(folder):
    (folder / "config.json").unlink()
    refused(folder, "no config.json in")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON: it is nested too deeply"),
        ("[1]", "must hold a JSON object, got list"),
        ('{"n_layer": 1, "n_layer": 3}', "not valid JSON: the key 'n_layer' is there 2 times in one object"),
    ],
    ids=["open", "deep", "list", "repeated"],
)
def test_broken_config(folder, text, message):
    (folder / "config.json").write_text(text)
    refused(folder, message)


def test_config_that_is_not_text(folder):
    (folder / "config.json").write_bytes(b"\xff\xfe\x00")
    refused(folder, "not valid JSON")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "bert"}, "model_type 'bert', which is not supported; supported architectures: gpt2, gpt_neo"),
        ({"model_type": None}, "has no model_type; supported architectures: gpt2, gpt_neo"),
        ({"model_type": ["gpt2"]}, "model_type .'gpt2'., which is not supported"),
        ({"add_cross_attention": True}, "add_cross_attention=True, which changes the computation"),
        ({"is_encoder_decoder": True}, "is_encoder_decoder=True, which changes"),
        ({"quantization_config": {"bits": 4}}, "quantization_config of quant_method None, which is not dequantised"),
        ({"auto_map": {"AutoModel": "x.Y"}}, "auto_map=.*, which changes .* remove auto_map from config.json"),
        ({"pruned_heads": {"0": [1]}}, "pruned_heads=.*, which changes"),
        ({"rope_theta": 1.0, "alibi": 1}, "unknown keys rope_theta: "),
        ({"activation_function": "mish"}, "activation_function='mish' is not supported; supported: gelu_new"),
        ({"n_head": 5}, "n_embd=24 must be a multiple of n_head=5"),
        ({"n_head": 0}, "n_head must be a positive number, got 0"),
        ({"n_layer": 0}, "num_layers must be a positive number, got 0"),
        ({"layer_norm_epsilon": 0.0}, "eps must be a positive number"),
        ({"layer_norm_epsilon": float("inf")}, "eps must be a positive number, got inf"),
        ({"n_embd": "wide"}, "does not hold a configuration that transformers accepts"),
    ],
)
def test_config_values(folder, changes, message):
    edit_config(folder, **changes)
    with pytest.raises(InputError, match=message):
        load(folder)


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json", "model.gguf"])
def test_pointers_of_git_lfs(folder, name):
    """What a clone has in the place of large files."""
    (folder / name).write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 4999819336\n")
    with pytest.raises(InputError, match=rf"{name} is a pointer of Git LFS, not the file: run git lfs pull there"):
        load(folder / name if name.endswith(".gguf") else folder)


@pytest.mark.parametrize("gone", [["tokenizer.json"], ["tokenizer.json", "tokenizer_config.json"]])
def test_missing_tokenizer(folder, gone):
    for name in gone:
        (folder / name).unlink()
    refused(folder, "no tokenizer in .*tokenizer.json")


def test_broken_tokenizer(folder):
    (folder / "tokenizer.json").write_text('{"version": 3}')
    refused(folder, "a tokenizer that transformers accepts")


def test_tokens_without_a_row_refuse_the_texts_that_use_one(tmp_path, caplog):
    from tdd import score

    folder, *_ = gpt2_files.write(tmp_path / "other", tokenizer_size=50)
    assert np.isfinite(score(folder, ["3 4 5 6"], "loss")["loss"]).all()
    assert "2 tokens have no row in the model's vocabulary of 48 ('48' 48, '49' 49)" in caplog.text
    with pytest.raises(InputError, match=r"text '2' has token id 49 \('49'\), but the model has a vocabulary of 48"):
        score(folder, ["3 4 5 6", "3 49 5"], "loss")


@pytest.mark.parametrize(
    ("content", "package"), [(b"\n\x0e\n\x05<unk>\x15\x00", "sentencepiece"), (b"IQ== 0\nIg== 1\n", "tiktoken")]
)
def test_the_package_that_reads_a_tokenizer_model(folder, monkeypatch, content, package):
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    (folder / "tokenizer.json").unlink()
    (folder / "tokenizer.model").write_bytes(content)
    refused(folder, f"the package {package} reads it: pip install {package}")


@pytest.mark.parametrize(
    ("installed", "accepted"), [("5.17.0", False), ("5.22.1", False), ("5.22.2", True), ("5.23.0.dev0", True)]
)
def test_an_old_transformers_is_refused(folder, installed, accepted, monkeypatch):
    """It reads some configurations otherwise: 5.17 gives Gemma another activation."""
    monkeypatch.setattr("transformers.__version__", installed)
    if accepted:
        load(folder)
        return
    with pytest.raises(
        InputError,
        match=rf"transformers {re.escape(installed)} is installed, .* run pip install 'transformers>=5\.22\.2'",
    ):
        load(folder)


def test_the_oldest_transformers_is_that_of_the_package():
    project = pathlib.Path(__file__).resolve().parents[2] / "pyproject.toml"
    needed = ".".join(map(str, configuration._OLDEST))
    assert f"transformers>={needed}" in tomllib.loads(project.read_text())["project"]["dependencies"]


def test_two_tokens_of_one_id(folder):
    place = folder / "tokenizer.json"
    content = json.loads(place.read_text())
    content["model"]["vocab"]["47"] = 46
    place.write_text(json.dumps(content))
    refused(folder, "has id 46 twice, for '4[67]' and '4[67]'")


def test_an_empty_name(folder, monkeypatch):
    monkeypatch.chdir(folder)  # which a path of no characters would mean
    with pytest.raises(InputError, match="the model's name is empty; give a folder, or a hub id"):
        load("")


def test_a_configuration_that_may_not_be_read(folder, monkeypatch):
    def refuse(self, *options, **named):
        raise PermissionError(13, "Permission denied", str(self))

    monkeypatch.setattr("pathlib.Path.read_text", refuse)
    refused(folder, "config.json cannot be read: Permission denied")


def test_a_pipe_among_the_files(folder):
    """Whoever opens it would wait for its writer for ever."""
    os.mkfifo(folder / "special_tokens_map.json")
    refused(folder, "special_tokens_map.json is no file")


def test_missing_weights(folder):
    (folder / WEIGHTS).unlink()
    refused(folder, f"no weights in .*need {WEIGHTS}, or {INDEX} with its shards$")
    (folder / "gptq_model-4bit-128g.safetensors").touch()
    refused(
        folder, f"holds gptq_model-4bit-128g.safetensors: rename a single file to {WEIGHTS}, or copy the index .*them$"
    )
    (folder / "quantize_config.json").touch()
    refused(folder, "and copy what quantize_config.json says into config.json as quantization_config")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00002.bin", "model.pt", "model.pth"])
def test_pickled_weights_only(folder, name):
    (folder / WEIGHTS).rename(folder / name)
    refused(folder, rf"only as {name}, which can run code when read; convert them once.*save_pretrained")


@pytest.mark.parametrize("keep", [0, 5, 200, -1])
def test_truncated_weights(folder, keep):
    content = (folder / WEIGHTS).read_bytes()
    (folder / WEIGHTS).write_bytes(content[:keep])
    refused(folder, "truncated or not a safetensors file")


def test_corrupt_header(folder):
    content = bytearray((folder / WEIGHTS).read_bytes())
    content[8:40] = bytes(32)
    (folder / WEIGHTS).write_bytes(content)
    refused(folder, "truncated or not a safetensors file")


def test_missing_tensors(folder):
    edit_weights(folder, lambda stored: [stored.pop(f"transformer.h.{layer}.ln_1.bias") for layer in range(2)])
    refused(folder, "lacks 2 of 40 tensors: transformer.h.0.ln_1.bias, transformer.h.1.ln_1.bias")


def test_a_layer_more_than_configured(folder):
    edit_config(folder, n_layer=2)
    refused(folder, r"has 12 tensors that the architecture has not: transformer.h.2.* and 7 more")


def test_extra_tensor(folder):
    edit_weights(folder, lambda stored: stored.update({"score.weight": np.ones((2, 24), np.float32)}))
    refused(folder, "has 1 tensors that the architecture has not: score.weight")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"vocab_size": 49}, r"1 tensors of another shape: transformer.wte.weight \[48, 24\] instead of \[49, 24\]"),
        ({"n_positions": 8}, r"wpe.weight \[16, 24\] instead of \[8, 24\]"),
        ({"n_inner": 95}, r"9 tensors of another shape: .*c_fc.bias \[96\] instead of \[95\]"),
    ],
)
def test_shapes(folder, changes, message):
    edit_config(folder, **changes)
    refused(folder, message)


def test_more_layers_than_tensors(folder):
    """Refused before anything as long as the layers is made."""
    start = time.monotonic()
    edit_config(folder, n_layer=10**9)
    refused(folder, "config.json has n_layer=1000000000, but the files beside it hold 40 tensors")
    edit_config(folder, n_layer=3, num_hidden_layers=10**9)
    refused(folder, "config.json has num_hidden_layers=1000000000, but the files")
    assert time.monotonic() - start < 1


def test_transposed_tensor(folder):
    name = "transformer.h.0.attn.c_attn.weight"
    edit_weights(folder, lambda stored: stored.update({name: np.ascontiguousarray(stored[name].T)}))
    refused(folder, rf"{name} \[72, 24\] instead of \[24, 72\]")


def test_stored_dtype(folder):
    name = "transformer.ln_f.bias"
    edit_weights(folder, lambda stored: stored.update({name: stored[name].astype(np.int8)}))
    refused(
        folder, rf"has 1 tensors not stored as F32, F16, BF16, F64: {name} \(I8\); store them in one of these types"
    )


def test_double_precision_becomes_single(folder):
    expected = load(folder)[1]
    edit_weights(folder, lambda stored: stored.update({name: one.astype(np.float64) for name, one in stored.items()}))
    chex.assert_trees_all_equal(load(folder)[1], expected)
    assert {leaf.dtype.name for leaf in jax.tree.leaves(expected)} == {"float32"}
    edit_weights(folder, lambda stored: stored.update({"transformer.ln_f.bias": np.full(24, 1e300)}))
    refused(folder, r"NaN or infinite numbers in 1 of \d+ tensors: transformer.ln_f.bias")


def test_untied_without_a_head(folder):
    edit_config(folder, tie_word_embeddings=False)
    refused(folder, "lacks 1 of 41 tensors: lm_head.weight")


def test_tied_embeddings_that_are_no_matrices(folder):
    """Shapes are checked before the copy is compared with the original."""
    edit_weights(folder, lambda stored: stored.update({name: np.ones((), np.float32) for name in _COPIES}))
    refused(folder, r"has 1 tensors of another shape: transformer.wte.weight \[\] instead of")


def test_tied_with_another_head(folder):
    edit_weights(folder, lambda stored: stored.update({"lm_head.weight": stored["transformer.wte.weight"] + 1}))
    refused(folder, "ties the readout to the embedding .*, but lm_head.weight differs from transformer.wte.weight")


def test_missing_shard(sharded):
    (sharded / "model-00002-of-00003.safetensors").unlink()
    refused(sharded, "names the shard 'model-00002-of-00003.safetensors', which is missing")


def test_truncated_shard(sharded):
    path = sharded / "model-00003-of-00003.safetensors"
    path.write_bytes(path.read_bytes()[:-10])
    refused(sharded, "model-00003-of-00003.safetensors is truncated")


def test_a_tensor_in_two_shards(sharded):
    first, last = (load_file(sharded / f"model-0000{number}-of-00003.safetensors") for number in (1, 3))
    name = min(first)
    save_file({**last, name: first[name] + 1}, sharded / "model-00003-of-00003.safetensors")
    refused(sharded, f"model-00003-of-00003.safetensors holds {name}, as another shard does")


@pytest.mark.parametrize("name", ["../model.safetensors", "/etc/passwd", "weights.bin"])
def test_index_that_leaves_the_folder(sharded, name):
    edit_index(sharded, lambda content: content["weight_map"].update({"transformer.wte.weight": name}))
    refused(sharded, f"names '{name}', which is not a safetensors file of the same folder")


@pytest.mark.parametrize("weight_map", [None, {}, ["model.safetensors"]])
def test_index_without_a_map(sharded, weight_map):
    edit_index(sharded, lambda content: content.update(weight_map=weight_map))
    refused(sharded, "has no weight_map from tensor names to files")


def test_index_that_is_not_json(sharded):
    (sharded / INDEX).write_text("weights")
    refused(sharded, "index.json is not valid JSON")


def test_nothing_of_the_checkpoint_is_executed(folder, tmp_path):
    """Code beside the weights stays unread, even where the configuration points to it."""
    trace = tmp_path / "ran"
    code = f"import pathlib\npathlib.Path({str(trace)!r}).write_text('ran')\n"
    (folder / "evil.py").write_text(code)
    (folder / "pytorch_model.bin").write_bytes(b"not a pickle")
    content = json.loads((folder / "tokenizer_config.json").read_text())
    content["auto_map"] = {"AutoTokenizer": [None, "evil.Evil"]}
    (folder / "tokenizer_config.json").write_text(json.dumps(content))
    load(folder)
    assert not trace.exists()
