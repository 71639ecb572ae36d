"""Models of GGUF files: the parameters and the architecture of the same model in safetensors."""

import sys

import family_files
import gguf_files
import jax
import jax.numpy as jnp
import numpy as np
import pytest

import tdd
from tdd.models.checkpoint import load
from tdd.models.source import resolve
from tdd.validate import InputError

EXACT = [
    ("llama", "llama", {}, {}),
    ("llama, tied", "llama", {}, {}),
    ("llama, biases, own head width", "llama", {}, {}),
    ("qwen2", "qwen2", {}, {}),
    ("qwen3", "qwen3", {}, {}),
    ("qwen3", "qwen3", {"rope_scaling": {"type": "linear", "factor": 4.0}}, {
        "rope.scaling.type": "linear", "rope.scaling.factor": 4.0,
    }),
    ("qwen2", "qwen2", {"rope_scaling": {"type": "yarn", "factor": 4.0, "original_max_position_embeddings": 16}}, {
        "rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 16,
    }),
    ("phi3", "phi3", {}, {"rope.dimension_count": 2, "rope.scaling.original_context_length": 32}),
    ("phi3", "phi3", {"sliding_window": 5}, {"rope.dimension_count": 2, "attention.sliding_window": 5}),
    ("olmo", "olmo", {"clip_qkv": 0.1}, {"attention.clamp_kqv": 0.1}),
    ("olmo2", "olmo2", {}, {}),
    ("gpt2", "gpt2", {}, {}),
]  # fmt: skip
"""Configuration, architecture, further keys of config.json, and the metadata that say the same."""

_GEMMA_3 = {
    "attention.sliding_window": 5, "attention.sliding_window_pattern": 3, "rope.freq_base_swa": 50.0,
    "rope.scaling.type": "linear", "rope.scaling.factor": 8.0,
}  # fmt: skip
PLUS_ONE = [
    ("gemma2", {"attention.sliding_window": 5, "attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}),
    ("gemma3_text", _GEMMA_3),
]


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected)):
        np.testing.assert_array_equal(one, other)


def prefixed(architecture, metadata):
    return {f"{architecture}.{key}": value for key, value in metadata.items()}


@pytest.mark.parametrize(("name", "architecture", "changes", "metadata"), EXACT)
def test_equals_the_safetensors_of_the_same_model(tmp_path, name, architecture, changes, metadata):
    folder, _ = family_files.write(tmp_path / "folder", name, **changes)
    file = gguf_files.write_family(
        tmp_path / "model.gguf", name, architecture, metadata=prefixed(architecture, metadata)
    )
    (lm, params, _), (expected, stored, _) = load(file), load(folder)
    assert lm.spec == expected.spec
    assert_same(params, stored)


@pytest.mark.parametrize(("name", "metadata"), PLUS_ONE)
def test_norms_that_are_stored_plus_one(tmp_path, name, metadata):
    folder, _ = family_files.write(tmp_path / "folder", name, query_pre_attn_scalar=6)
    architecture = name.removesuffix("_text")
    file = gguf_files.write_family(tmp_path / "model.gguf", name, metadata=prefixed(architecture, metadata))
    (lm, params, _), (expected, stored, _) = load(file), load(folder)
    assert lm.spec == expected.spec
    for (path, one), other in zip(jax.tree_util.tree_leaves_with_path(params), jax.tree.leaves(stored)):
        # of a scale s the sum 1 + s was rounded, to half a unit in the last place of a number below 4
        error = 2 * np.finfo(np.float32).eps if "scale" in str(path[-1]) else 0
        assert np.abs(np.asarray(one) - np.asarray(other)).max() <= error, path


def test_the_largest_gemma_scales_by_the_width(tmp_path):
    from tdd.models.gguf.configuration import read_configuration
    from tdd.models.gguf.header import Header, StoredTensor

    keys = {
        "context_length": 32, "embedding_length": 48, "feed_forward_length": 40, "attention.head_count": 4,
        "attention.key_length": 6, "attention.value_length": 6, "attention.layer_norm_rms_epsilon": 1e-6,
    }  # fmt: skip
    scales = {}
    for layers in (42, 46):
        metadata = {"general.architecture": "gemma2", **prefixed("gemma2", {**keys, "block_count": layers})}
        tensors = {"token_embd.weight": StoredTensor((48, 48), 0, 0, 9216)}
        tensors |= {f"blk.{layer}.attn_norm.weight": StoredTensor((48,), 0, 0, 192) for layer in range(layers)}
        config = read_configuration(Header(metadata, tensors, np.empty(0, np.uint8)), "file").config
        scales[layers] = config["query_pre_attn_scalar"]
    assert scales == {42: 6, 46: 12}


def test_factors_of_the_frequencies(tmp_path):
    """Llama 3 stretches its context by a factor for each pair of coordinates, which a tensor holds."""
    folder, _ = family_files.write(tmp_path / "folder", "llama, llama3 rotary")
    lm, params, _ = load(folder)
    plain = 100.0 ** (-np.arange(0, 4, 2) / 4)
    factors = (plain / lm.spec.positions.frequencies()).astype(np.float32)
    assert factors.max() > 1.5
    tensors = {"rope_freqs.weight": (factors, "F32")}
    file = gguf_files.write_family(tmp_path / "model.gguf", "llama, llama3 rotary", tensors=tensors)
    found, same, _ = load(file)
    assert_same(same, params)
    assert found.spec.max_length == lm.spec.max_length
    np.testing.assert_allclose(
        found.spec.positions.frequencies(), lm.spec.positions.frequencies(), rtol=np.finfo(np.float32).eps
    )


def test_long_contexts_of_phi3(tmp_path):
    folder, _ = family_files.write(tmp_path / "folder", "phi3, longrope")
    short, long = (np.array(values, np.float32) for values in ([1.0, 1.3], [2.0, 5.0]))
    tensors = {"rope_factors_short.weight": (short, "F32"), "rope_factors_long.weight": (long, "F32")}
    positions = load(folder)[0].spec.positions
    metadata = {"rope.scaling.original_context_length": 32, "rope.scaling.attn_factor": positions.scaling.amplitude}
    written = {"metadata": prefixed("phi3", metadata), "tensors": tensors}
    found = load(gguf_files.write_family(tmp_path / "model.gguf", "phi3, longrope", **written))[0].spec.positions
    assert (found.max_length, found.scaling.stretched_length) == (32, 96)
    np.testing.assert_allclose(found.scaling.short, positions.scaling.short, rtol=np.finfo(np.float32).eps)
    np.testing.assert_allclose(found.scaling.long, positions.scaling.long, rtol=np.finfo(np.float32).eps)
    np.testing.assert_allclose(found.scaling.amplitude, positions.scaling.amplitude, rtol=np.finfo(np.float32).eps)


def converts_to_float16():
    """Not under SSE4_2: XLA calls a function there that it does not have."""
    try:
        return bool(jnp.float32(1).astype(jnp.float16))
    except jax.errors.JaxRuntimeError:
        return False


@pytest.mark.parametrize("kind", ["F16", "BF16"])
def test_types_of_16_bits_are_kept(tmp_path, kind):
    if kind == "F16" and not converts_to_float16():
        pytest.skip("XLA converts nothing to float16 for this instruction set")
    dtype = {"F16": "float16", "BF16": "bfloat16"}[kind]
    _, params, _ = load(gguf_files.write_family(tmp_path / "model.gguf", "llama", kind=kind))
    _, exact, _ = load(gguf_files.write_family(tmp_path / "exact.gguf", "llama"))
    assert params["embedding"]["tokens"].dtype == dtype
    np.testing.assert_array_equal(params["embedding"]["tokens"], exact["embedding"]["tokens"].astype(dtype))
    assert load(tmp_path / "exact.gguf", dtype=dtype)[1]["embedding"]["tokens"].dtype == dtype


def test_a_folder_with_one_file(tmp_path):
    file = gguf_files.write_family(tmp_path / "folder" / "model.gguf", "llama")
    assert_same(load(tmp_path / "folder")[1], load(file)[1])


def test_tokens(tmp_path):
    lm, _, tokenizer = load(gguf_files.write_family(tmp_path / "model.gguf", "llama"))
    assert tokenizer("!#").input_ids == [1, 3]
    assert lm.vocab_size == 48


QUANTISED = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4, "num_key_value_heads": 2}


def quantised(path, kind):
    """(file, float32 tensors before) of a LLaMA whose matrices are quantised."""
    width, inner, kv = 64, 96, 32
    shapes = {"token_embd": (48, width), "output_norm": (width,)}
    for layer in ("blk.0.", "blk.1."):
        shapes |= {f"{layer}attn_{part}": (rows, width) for part, rows in zip("qkv", (width, kv, kv))}
        shapes |= {f"{layer}attn_output": (width, width), f"{layer}ffn_down": (width, inner)}
        shapes |= {f"{layer}{part}": (inner, width) for part in ("ffn_gate", "ffn_up")}
        shapes |= {f"{layer}{part}": (width,) for part in ("attn_norm", "ffn_norm")}
    found = {
        f"{name}.weight": family_files.values(shape, stream) for stream, (name, shape) in enumerate(shapes.items())
    }
    config = {
        **QUANTISED, "num_hidden_layers": 2, "max_position_embeddings": 32, "rms_norm_eps": 1e-5, "vocab_size": 48,
    }  # fmt: skip
    metadata = {**gguf_files.common(config, "llama"), **gguf_files.letters(48)}
    written = {name: (tensor, kind if tensor.ndim == 2 else "F32") for name, tensor in found.items()}
    return gguf_files.write(path, metadata, written), found


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_0"])
def test_quantised_values_are_those_of_the_definition(tmp_path, kind):
    pytest.importorskip("gguf")
    file, tensors = quantised(tmp_path / "model.gguf", kind)
    lm, params, _ = load(file)
    embedding = gguf_files.values(kind, tensors["token_embd.weight"])
    np.testing.assert_array_equal(params["embedding"]["tokens"], embedding)
    query = gguf_files.values(kind, tensors["blk.1.attn_q.weight"])
    by_halves = query.reshape(4, 8, 2, 64).swapaxes(1, 2).reshape(64, 64)
    np.testing.assert_array_equal(params["layers"]["qkv"]["kernel"][1, :, :64], by_halves.T)
    np.testing.assert_array_equal(params["final_norm"]["scale"], tensors["output_norm.weight"])
    assert np.isfinite(jax.jit(lm.logits)(params, np.array([[1, 2, 3]]))).all()


def test_slices_are_those_of_the_whole(tmp_path):
    pytest.importorskip("gguf")
    from tdd.models.gguf import GgufFile

    stored = GgufFile(quantised(tmp_path / "model.gguf", "Q8_0")[0]).tensors()
    for name, index in (
        ("model.layers.0.self_attn.q_proj.weight", (slice(3, 40), slice(5, 9))),
        ("model.layers.1.mlp.down_proj.weight", (slice(None), slice(90, 96))),
        ("model.norm.weight", (slice(10, 20),)),
    ):
        np.testing.assert_array_equal(stored.cut(name, index), stored.read(name)[index])


def test_every_type_that_the_package_reads(monkeypatch):
    """Rows are dequantised block by block, here two at a time; blocks of random bytes may hold anything."""
    gguf = pytest.importorskip("gguf")
    from tdd.models.gguf import tensors
    from tdd.models.gguf.header import KINDS, Header, StoredTensor

    monkeypatch.setattr(tensors, "_BLOCK", 1024)
    members = gguf.GGMLQuantizationType.__members__
    unread = {"Q8_1", "Q8_K"} | {kind.name for kind in KINDS.values() if kind.name not in members}
    random = np.random.default_rng(0)
    for number, kind in KINDS.items():
        if kind.numbers == 1:
            continue
        data = random.integers(0, 256, 5 * 512 // kind.numbers * kind.size, np.uint8)
        header = Header({}, {"m": StoredTensor((5, 512), number, 0, len(data))}, data)
        if kind.name in unread:
            with pytest.raises(InputError, match=f"type {kind.name}, which the installed gguf does not read"):
                tensors.GgufTensors(header, {"m": tensors.Form("m")}, "file")
            continue
        stored = tensors.GgufTensors(header, {"m": tensors.Form("m")}, "file")
        with np.errstate(all="ignore"):
            whole = gguf.dequantize(data.reshape(5, -1), gguf.GGMLQuantizationType(number))
        np.testing.assert_array_equal(stored.read("m"), whole)
        np.testing.assert_array_equal(stored.cut("m", (slice(1, 4), slice(7, 300))), whole[1:4, 7:300])


def test_the_package_that_dequantises_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "gguf", None)
    file, _ = quantised(tmp_path / "model.gguf", "Q8_0")
    with pytest.raises(InputError, match=r"type Q8_0, and the package gguf reads them: pip install 'tdd\[gguf\]'"):
        load(file)


def test_numbers_that_are_not_finite(tmp_path):
    broken = np.full(16, np.nan, np.float32)
    file = gguf_files.write_family(tmp_path / "model.gguf", "llama", tensors={"output_norm.weight": (broken, "F32")})
    with pytest.raises(InputError, match="NaN or infinite numbers in 1 of"):
        load(file)


@pytest.mark.parametrize(
    ("metadata", "words"),
    [
        ({"general.architecture": "mamba"}, "general.architecture = 'mamba', which is not supported; supported: llama"),
        ({"general.type": "adapter"}, "general.type = 'adapter'"),
        ({"split.count": 3}, "one of 3 parts of a model"),
        ({"llama.block_count": 10**9}, "block_count = 1000000000, but"),
        (
            {"llama.attention.head_count_kv": np.array([2, 1], np.int32)},
            "head_count_kv = an array of 2; one value is supported",
        ),
        ({"general.type": np.ones(3, np.int32)}, "general.type = an array of 3"),
        ({"split.count": np.ones(3, np.int32)}, "split.count = an array of 3"),
        ({"llama.attention.head_count": 7}, "does not hold a configuration that transformers accepts"),
        ({"llama.expert_count": 8}, "expert_count = 8, which changes the computation"),
        ({"llama.attention.temperature": 1.5}, "unknown metadata llama.attention.temperature"),
        ({"llama.rope.scaling.type": "su"}, "rope.scaling.type = 'su'"),
        ({"llama.rope.dimension_count": 2}, "rope.dimension_count = 2"),
        ({"llama.attention.layer_norm_rms_epsilon": float("nan")}, "layer_norm_rms_epsilon = nan; a positive number"),
        (
            {"llama.embedding_length": 32},
            "has 21 tensors of another shape: lm_head.weight [48, 16] instead of [48, 32]",
        ),
        ({"llama.embedding_length": "wide"}, "embedding_length = 'wide'; a whole number"),
    ],
)
def test_metadata_that_cannot_be_used(tmp_path, metadata, words):
    file = gguf_files.write_family(tmp_path / "model.gguf", "llama", metadata=metadata)
    with pytest.raises(InputError, match=r"model\.gguf") as error:
        load(file)
    assert words in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "tensor"),
    [
        ("llama", "blk.0.ssm_a.weight"),
        ("llama", "rope_factors_long.weight"),  # of Phi 3 alone; where nothing reads them they are not left out
        ("gpt2", "rope_freqs.weight"),
        ("llama", "blk.00.attn_q.weight"),
        ("llama", "blk.0.post_attention_norm.weight"),
    ],
)
def test_tensors_of_another_model(tmp_path, name, tensor):
    file = gguf_files.write_family(tmp_path / "model.gguf", name, tensors={tensor: (np.ones(4, np.float32), "F32")})
    with pytest.raises(InputError, match=f"1 tensors that the architecture has not: {tensor}"):
        load(file)


def test_the_record_says_how_weights_were_stored(tmp_path):
    from tdd.scoring.models import check_references, provenance_of

    file = gguf_files.write_family(tmp_path / "model.gguf", "llama", kind="F16")
    scores = tdd.score(file, ["!#$%", "&%$#"], "loss", progress=False)
    assert np.isfinite(scores.values["loss"]).all()
    assert scores.provenance["gguf_types"] == {"F16": 16, "F32": 5}
    assert scores.provenance["tokenizer"] == "GGUF metadata (gpt2 gpt-2)"
    known = provenance_of(file)
    assert (known["name"], known["gguf_types"]) == (str(file), {"F16": 16, "F32": 5})
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "model.gguf").write_bytes(file.read_bytes())
    assert provenance_of(tmp_path / "folder")["sha256"] == known["sha256"]
    with pytest.raises(InputError, match="is the audited model"):
        check_references([tmp_path / "folder"], file)


def test_where_a_file_is_looked_for(tmp_path):
    file = gguf_files.write_family(tmp_path / "folder" / "a.GGUF", "llama")
    found = resolve(file.parent)
    assert (found.path, found.files, found.revision) == (file, ("a.GGUF",), None)
    assert resolve(file) == found
    with pytest.raises(InputError, match="'v1' is for hub ids"):
        load(file, revision="v1")
    with pytest.raises(InputError, match="is a file; give the folder"):
        resolve(file, gguf=False)
    (file.parent / "b.gguf").write_bytes(b"")
    with pytest.raises(InputError, match=r"holds 2 GGUF files, a\.GGUF, b\.gguf; give one of them"):
        load(file.parent)
    (file.parent / "b.gguf").unlink()
    (file.parent / "adapter_config.json").write_text("{}")  # an adapter is not left out in silence
    with pytest.raises(InputError, match="holds an adapter of"):
        load(file.parent)
