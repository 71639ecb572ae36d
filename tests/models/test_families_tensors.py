"""Which stored tensor becomes which part of which parameter, for every family, and every form its files take."""

import json
import tracemalloc
import weakref

import jax
import numpy as np
import pytest
from family_configs import CONFIGURATIONS, ONE_OF_EACH, VOCABULARY
from family_files import golden, shapes, tensors, write
from safetensors.numpy import load_file, save_file

from tdd.models import decoder
from tdd.models.checkpoint import load
from tdd.models.configuration import read_spec
from tdd.models.families import FAMILIES
from tdd.models.families.tensors import Piece, Slot, slots
from tdd.validate import InputError


def spec_of(folder, name):
    (folder / "config.json").write_text(json.dumps(CONFIGURATIONS[name]))
    return read_spec(folder)


def leaves(params):
    return {tuple(entry.key for entry in path): leaf for path, leaf in jax.tree_util.tree_leaves_with_path(params)}


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_names_and_shapes_are_those_of_torch(tmp_path, name):
    family, spec = spec_of(tmp_path, name)
    found = {key: list(shape) for slot in slots(spec, family.names) for key, shape in slot.stored()}
    assert found == shapes(name)


SHAPED = ("opt, as its 350M", "llama", "deepseek_v2", "gpt_oss", "qwen3_moe, dense layers")


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in SHAPED else pytest.mark.slow("grid")) for name in CONFIGURATIONS]
)
def test_parameters_are_those_of_the_decoder(tmp_path, name):
    family, spec = spec_of(tmp_path, name)
    expected = jax.eval_shape(lambda: decoder.init_params(spec, jax.random.key(0)))
    found = {slot.path: slot.whole_shape for slot in slots(spec, family.names)}
    assert found == {path: leaf.shape for path, leaf in leaves(expected).items()}


PIECES = [
    Piece("a", (6, 4)),
    Piece("a", (6, 4), transposed=True),
    Piece("a", (3, 6, 4), transposed=True),
    Piece("a", (5,)),
    Piece("a", (18, 4), transposed=True, interleaved=3),
    Piece("a", (18,), interleaved=3),
    Piece("a", (5,), column=True),
    Piece("a", (3, 4, 6), alternating=True),
    Piece("a", (20, 4), transposed=True, interleaved=2, queries=3),
    Piece("a", (10,), interleaved=1, queries=3),
]


@pytest.mark.parametrize("piece", PIECES)
def test_a_piece_and_back(piece):
    stored = np.arange(np.prod(piece.shape)).reshape(piece.shape)
    part = piece.to_part(stored)
    assert part.shape == piece.part_shape
    np.testing.assert_array_equal(piece.to_stored(part), stored)


def test_interleaved_heads():
    """Row r of the file belongs to head r // (3 d), then to q, k or v, then to a coordinate."""
    heads, width = 3, 2
    stored = np.asarray([[head, kind, i] for head in range(heads) for kind in range(3) for i in range(width)])
    part = Piece("a", stored.shape, transposed=True, interleaved=heads).to_part(stored)
    expected = [[head, kind, i] for kind in range(3) for head in range(heads) for i in range(width)]
    np.testing.assert_array_equal(part.T, expected)


def test_interleaved_groups():
    """Five heads of two groups: of each its three queries, its key and its value."""
    stored = np.repeat(np.arange(10), 2)[:, None] * [1, 1, 1]
    part = Piece("a", stored.shape, transposed=True, interleaved=2, queries=3).to_part(stored)
    np.testing.assert_array_equal(part[0, ::2], [0, 1, 2, 5, 6, 7, 3, 8, 4, 9])


def test_gate_and_up_in_turn():
    part = Piece("a", (2, 6), alternating=True).to_part(np.arange(12).reshape(2, 6))
    np.testing.assert_array_equal(part, [[0, 2, 4, 1, 3, 5], [6, 8, 10, 7, 9, 11]])


def test_a_slot_of_unequal_pieces():
    pieces = tuple(Piece(f"{{layer}}.{name}", (rows, 4), True) for name, rows in (("q", 6), ("k", 2), ("v", 3)))
    slot = Slot(("layers", "qkv", "kernel"), pieces, range(2))
    stored = {name: np.random.default_rng(i).normal(size=shape) for i, (name, shape) in enumerate(slot.stored())}
    assert list(stored) == ["0.q", "0.k", "0.v", "1.q", "1.k", "1.v"]
    whole = slot.read(1, dtype=np.dtype(np.float64), read=stored.__getitem__)
    assert whole.shape == slot.shape == (4, 11)
    np.testing.assert_array_equal(whole, np.concatenate([stored[f"1.{n}"] for n in "qkv"]).T)
    for name, part in slot.write(1, whole):
        np.testing.assert_array_equal(part, stored[name])


def test_a_slot_of_experts():
    """[E, 4, 6 + 2] from a tensor for each expert and piece."""
    pieces = tuple(Piece(f"{{layer}}.{{expert}}.{name}", (rows, 4), True) for name, rows in (("a", 6), ("b", 2)))
    slot = Slot(("layers", "x", "kernel"), pieces, range(2), experts=3)
    stored = {name: np.random.default_rng(i).normal(size=shape) for i, (name, shape) in enumerate(slot.stored())}
    assert list(stored) == [f"{layer}.{expert}.{name}" for layer in (0, 1) for expert in (0, 1, 2) for name in "ab"]
    whole = slot.read(1, dtype=np.dtype(np.float64), read=stored.__getitem__)
    assert whole.shape == slot.shape == (3, 4, 8)
    for expert in range(3):
        np.testing.assert_array_equal(whole[expert], np.concatenate([stored[f"1.{expert}.{n}"] for n in "ab"]).T)
    written = dict(slot.write(1, whole))
    assert list(written) == [name for name in stored if name.startswith("1")]
    for name, tensor in written.items():
        np.testing.assert_array_equal(tensor, stored[name])


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt_neox", "llama", "opt, as its 350M", "mixtral", "qwen3_moe, dense layers"]
)
def test_one_stored_tensor_on_the_host(tmp_path, monkeypatch, name):
    """Whenever a tensor is read, every tensor read before is gone."""
    from tdd.models.weights import StoredTensors

    folder, stored = write(tmp_path, name)
    alive, plain = [], StoredTensors.read

    def read(self, tensor_name):
        assert [ref() is None for ref in alive] == [True] * len(alive), tensor_name
        tensor = plain(self, tensor_name)
        alive.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(StoredTensors, "read", read)
    load(folder)
    assert len(alive) == len(stored)


def test_a_slot_of_many_pieces_keeps_one(tmp_path):
    size = 400_000
    slot = Slot(("x",), tuple(Piece(f"{i}", (1, size), True) for i in range(4)))
    tracemalloc.start()
    slot.read(0, dtype=np.dtype(np.float32), read=lambda name: np.ones((1, size), np.float32))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < (4 + 1) * size * 4 + 100_000


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_every_fault_in_one_error(tmp_path, name):
    """Missing, extra, mis-shaped and unreadable tensors are all named at once."""
    folder, stored = write(tmp_path, name)
    family = FAMILIES[CONFIGURATIONS[name]["model_type"]]
    layer = family.names.base + family.names.layer.format(layer=1)
    gone = f"{layer}{family.names.attention_out}.weight"
    turned = f"{layer}{family.names.experts_out or family.names.mlp_out}".format(expert=2)
    turned = turned if turned in stored else f"{turned}.weight"
    typed = f"{layer}{(family.names.kv_up, *family.names.qkv)[-1]}.weight"
    del stored[gone]
    stored[turned] = np.ascontiguousarray(stored[turned].T)
    stored[typed] = stored[typed].astype(np.int8)
    stored["score.weight"] = np.ones((2, 3), np.float32)
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(InputError) as caught:
        load(folder)
    message = str(caught.value)
    for part in (
        f"lacks 1 of {len(shapes(name))} tensors: {gone}",
        "has 1 tensors that the architecture has not: score.weight",
        f"has 1 tensors of another shape: {turned} {list(stored[turned].shape)} instead of",
        f"has 1 tensors not stored as F32, F16, BF16, F64: {typed} (I8)",
        str(folder),
    ):
        assert part in message, message


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_infinite_weights(tmp_path, dtype, bad):
    folder, stored = write(tmp_path, "llama", dtype=dtype)
    files = load_file(folder / "model.safetensors")
    names = sorted(files)[2:9:3]
    for name in names:
        files[name].reshape(-1)[-1] = bad
    save_file(files, folder / "model.safetensors")
    with pytest.raises(InputError, match=f"NaN or infinite numbers in 3 of {len(stored)} tensors") as caught:
        load(folder)
    assert all(name in str(caught.value) for name in names)


def test_weights_too_large_for_the_type(tmp_path):
    folder, stored = write(tmp_path, "llama")
    stored["model.norm.weight"][3] = 1e5
    save_file(stored, folder / "model.safetensors")
    assert load(folder, dtype="bfloat16")[1]["final_norm"]["scale"][3] > 9e4
    with pytest.raises(InputError, match=r"in 1 of 21 tensors: model.norm.weight \(read as float16\).*wider dtype"):
        load(folder, dtype="float16")


def test_the_largest_numbers_are_finite(tmp_path):
    folder, stored = write(tmp_path, "llama")
    stored["model.norm.weight"][:2] = np.finfo(np.float32).max, np.finfo(np.float32).tiny / 4
    save_file(stored, folder / "model.safetensors")
    np.testing.assert_array_equal(load(folder)[1]["final_norm"]["scale"], stored["model.norm.weight"])


@pytest.mark.parametrize("name", ONE_OF_EACH)
def test_buffers_are_skipped_by_name(tmp_path, name):
    """Of every layer, of any type and shape; a tensor of a like name elsewhere is still an error."""
    folder, stored = write(tmp_path, name)
    expected = leaves(load(folder)[1])
    family = FAMILIES[CONFIGURATIONS[name]["model_type"]]
    layers = golden()["configurations"][name]["num_layers"]
    for pattern in family.buffers:
        for layer in range(layers):
            stored[pattern.format(layer=layer)] = np.ones((1, 1, 3, 3), np.bool_)
    save_file(stored, folder / "model.safetensors")
    found = leaves(load(folder)[1])
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf)
    stored[f"{family.names.base}{family.names.layer.format(layer=0)}other.attention.bias"] = np.ones(3, np.float32)
    stored[f"{family.names.base}{family.names.layer.format(layer=layers)}attn.bias"] = np.ones(3, np.float32)
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(InputError, match="has 2 tensors that the architecture has not"):
        load(folder)


@pytest.mark.parametrize(
    "name", ["gpt2", "gpt_neo", "gpt_neox, tied", "falcon", "mpt", "bloom", "opt", "llama, tied", "gemma2"]
)
def test_a_tied_head_in_the_file(tmp_path, name):
    """A copy of the embedding is left aside where it is one, and an error where it is not."""
    folder, stored = write(tmp_path, name)
    family = FAMILIES[CONFIGURATIONS[name]["model_type"]]
    copy, original = f"{family.names.head}.weight", f"{family.names.base}{family.names.tokens}.weight"
    stored[copy] = stored[original].copy()
    save_file(stored, folder / "model.safetensors")
    lm, params, _ = load(folder)
    assert "head" not in params
    assert lm.readout(params) is params["embedding"]["tokens"]
    embedding = stored.pop(original)  # safetensors' save_model keeps the name that comes first
    save_file(stored, folder / "model.safetensors")
    np.testing.assert_array_equal(load(folder)[1]["embedding"]["tokens"], params["embedding"]["tokens"])
    stored[original] = embedding
    stored[copy][-1, -1] += 1
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(InputError, match=f"ties the readout .*, but {copy} differs from {original}"):
        load(folder)


def test_a_tied_head_is_compared_in_blocks(tmp_path, monkeypatch):
    from tdd.models import weights

    monkeypatch.setattr(weights, "_COMPARED_BYTES", 7 * 16 * 4)
    test_a_tied_head_in_the_file(tmp_path, "llama, tied")


def test_both_names_of_a_head(tmp_path):
    """GPT-NeoX's head is `embed_out` in published files, and `lm_head` in some of later tools."""
    folder, stored = write(tmp_path, "gpt_neox")
    expected = load(folder)[1]["head"]["kernel"]
    stored["lm_head.weight"] = stored.pop("embed_out.weight")
    save_file(stored, folder / "model.safetensors")
    np.testing.assert_array_equal(load(folder)[1]["head"]["kernel"], expected)
    stored["embed_out.weight"] = stored["lm_head.weight"].copy()
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"has 1 tensors that the architecture has not: lm_head\.weight"):
        load(folder)


@pytest.mark.parametrize("name", ["opt, as its 350M", "gpt_neox", "gemma2", "qwen3_moe", "stablelm, as its 12B"])
def test_shards_and_dtype_on_request(tmp_path, name):
    one, _ = write(tmp_path / "one", name)
    many, _ = write(tmp_path / "many", name, shards=3)
    expected, found = leaves(load(one, dtype="bfloat16")[1]), leaves(load(many, dtype="bfloat16")[1])
    assert expected.keys() == found.keys()
    for path, leaf in expected.items():
        assert leaf.dtype == "bfloat16"
        np.testing.assert_array_equal(found[path], leaf)


def test_mixed_dtypes_within_one_parameter(tmp_path):
    """Gate and up, or layers, of different types widen to what holds them all."""
    folder, stored = write(tmp_path, "llama")
    expected = {name: tensor.copy() for name, tensor in stored.items()}
    stored["model.layers.1.mlp.up_proj.weight"] = stored["model.layers.1.mlp.up_proj.weight"].astype("bfloat16")
    stored["model.norm.weight"] = stored["model.norm.weight"].astype("bfloat16")
    save_file(stored, folder / "model.safetensors")
    params = load(folder)[1]
    kernel = np.asarray(params["layers"]["mlp_in"]["kernel"])
    assert (kernel.dtype, params["final_norm"]["scale"].dtype) == (np.float32, "bfloat16")
    np.testing.assert_array_equal(kernel[0, :, 40:], expected["model.layers.0.mlp.up_proj.weight"].T)
    np.testing.assert_array_equal(kernel[1, :, 40:].T, stored["model.layers.1.mlp.up_proj.weight"].astype(np.float32))
    np.testing.assert_array_equal(kernel[1, :, :40].T, expected["model.layers.1.mlp.gate_proj.weight"])


@pytest.mark.parametrize("name", ["gpt_neox", "llama"])
def test_tokenizer_in_one_file_and_a_padded_vocabulary(tmp_path, name):
    """tokenizer.json is enough, and rows that no word reaches stay in the model."""
    folder, _ = write(tmp_path, name)
    assert not (folder / "vocab.json").exists()
    for path in folder.glob("*token*"):
        if path.name not in ("tokenizer.json", "tokenizer_config.json"):
            path.unlink()
    lm, params, tokenizer = load(folder)
    assert len(tokenizer) < lm.vocab_size == VOCABULARY == lm.readout(params).shape[0]
    assert tokenizer("3 17 39", add_special_tokens=False).input_ids == [3, 17, 39]


@pytest.mark.parametrize(
    "name",
    [
        *("gpt_neox", "gpt_oss", "qwen3_moe, dense layers"),
        *(pytest.param(name, marks=pytest.mark.slow("grid")) for name in ("gptj", "mixtral", "stablelm, as its 12B")),
    ],
)
def test_a_mesh_shares_the_parameters_out(tmp_path, name):
    folder, _ = write(tmp_path, name)
    plain = leaves(load(folder)[1])
    mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
    shared = load(folder, mesh=mesh)[1]
    for path, leaf in leaves(shared).items():
        assert leaf.sharding.mesh == mesh
        np.testing.assert_array_equal(leaf, plain[path])


def test_values_tell_tensors_apart():
    """No two tensors of a configuration begin alike, so that none can stand in for another."""
    for name in ONE_OF_EACH:
        found = tensors(shapes(name), CONFIGURATIONS[name]["model_type"])
        assert len({tensor.reshape(-1)[:3].tobytes() for tensor in found.values()}) == len(found)


@pytest.mark.parametrize("interleaved", [0, 3])
def test_slices_of_a_parameter_without_the_rest(interleaved):
    pieces = [Piece("{layer}.a", (18, 4), True, interleaved)]
    if not interleaved:
        pieces += [Piece("{layer}.b", (6, 4), True), Piece("{layer}.c", (4, 3))]
    slot = Slot(("layers", "x", "kernel"), tuple(pieces), range(2))
    rng = np.random.default_rng(0)
    stored = {name: rng.normal(size=shape).astype(np.float32) for name, shape in slot.stored()}
    sizes = []

    def cut(name, index):
        sizes.append(stored[name][index].size)
        return stored[name][index]

    whole = slot.read(1, dtype=np.dtype(np.float32), read=stored.__getitem__)
    sliced = slot.sliced(1, dtype=np.dtype(np.float32), read=cut)
    assert sliced.shape == whole.shape
    assert sizes == []
    for rows in (slice(None), slice(1, 3), slice(2, 4)):
        for columns in (slice(None), slice(0, 5), slice(5, 18), slice(16, 20), slice(11, whole.shape[1])):
            sizes.clear()
            np.testing.assert_array_equal(sliced.cut((rows, columns)), whole[rows, columns])
            assert interleaved or sum(sizes) == whole[rows, columns].size, "no more is read than is asked for"


@pytest.mark.parametrize("experts", [0, 3])
def test_slices_of_experts_without_the_rest(experts):
    """Experts stored one by one, and as one tensor."""
    if experts:
        slot = Slot(("x",), (Piece("{expert}.a", (5, 4), True), Piece("{expert}.b", (3, 4), True)), experts=experts)
    else:
        slot = Slot(("x",), (Piece("a", (3, 8, 4), True),))
    rng = np.random.default_rng(0)
    stored = {name: rng.normal(size=shape).astype(np.float32) for name, shape in slot.stored()}
    sizes = []

    def cut(name, index):
        sizes.append(stored[name][index].size)
        return stored[name][index]

    whole = slot.read(0, dtype=np.dtype(np.float32), read=stored.__getitem__)
    sliced = slot.sliced(0, dtype=np.dtype(np.float32), read=cut)
    assert sliced.shape == whole.shape == (3, 4, 8)
    everything = slice(None)
    for index in ((everything,) * 3, (slice(1, 2), everything, slice(4, 8)), (everything, slice(2, 4), slice(0, 4))):
        sizes.clear()
        np.testing.assert_array_equal(sliced.cut(index), whole[index])
        assert sum(sizes) == whole[index].size, "no more is read than is asked for"


@pytest.mark.parametrize("name", ["mixtral", "olmoe", "qwen3_moe"])
def test_both_forms_of_the_experts(tmp_path, name):
    """A layer's experts as two stacks, as transformers holds them in memory, are the same parameters."""
    folder, stored = write(tmp_path, name)
    expected = leaves(load(folder)[1])
    family = FAMILIES[CONFIGURATIONS[name]["model_type"]]
    number = expected["layers", "router", "kernel"].shape[-1]
    for layer in range(2):
        before = f"{family.names.base}{family.names.layer.format(layer=layer)}"
        take = lambda pattern, e, before=before: stored.pop(f"{before}{pattern.format(expert=e)}.weight")  # noqa: E731
        gate_up = [np.concatenate([take(pattern, e) for pattern in family.names.experts_in]) for e in range(number)]
        stored[f"{before}mlp.experts.gate_up_proj"] = np.stack(gate_up)
        stored[f"{before}mlp.experts.down_proj"] = np.stack([take(family.names.experts_out, e) for e in range(number)])
        stored[f"{before}mlp.gate.weight"] = stored.pop(f"{before}{family.names.router}.weight")
    save_file(stored, folder / "model.safetensors")
    found = leaves(load(folder)[1])
    assert found.keys() == expected.keys()
    for path, leaf in expected.items():
        np.testing.assert_array_equal(found[path], leaf)
    del stored["model.layers.1.mlp.experts.down_proj"]
    save_file(stored, folder / "model.safetensors")
    with pytest.raises(InputError, match=r"lacks 1 of .*: model\.layers\.1\.mlp\.experts\.down_proj"):
        load(folder)
