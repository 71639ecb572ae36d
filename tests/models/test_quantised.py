"""Quantised checkpoints: the model is that of the plain weights to the last bit, or it is refused in one line."""

import functools
import json
import tracemalloc

import family_files
import jax
import ml_dtypes
import numpy as np
import pytest
import quantised_files as files
from safetensors.numpy import save_file

from tdd.models.checkpoint import load
from tdd.models.configuration import read_spec
from tdd.models.families.tensors import slots
from tdd.models.quantised import dequantise
from tdd.models.weights import has_infinite
from tdd.validate import InputError

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
GPTQ = {"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": False, "sym": False, "format": None}
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 32, "version": "gemm", "zero_point": True}

NF4 = {"quant_method": "bitsandbytes", "load_in_4bit": True, "load_in_8bit": False, "bnb_4bit_quant_type": "nf4"}
INT8 = {"load_in_4bit": False, "load_in_8bit": True, "llm_int8_threshold": 6.0}  # as before `quant_method` was written
ACTIVATIONS = {"num_bits": 8, "type": "int", "strategy": "token", "dynamic": True, "symmetric": True}


def compressed(form, activations=None, **weights):
    """A configuration of compressed-tensors with one group."""
    group = {"targets": ["Linear"], "weights": {"type": "int", "num_bits": 8, "symmetric": True, **weights}}
    return {
        "quant_method": "compressed-tensors",
        "config_groups": {"group_0": {**group, "input_activations": activations}},
        "format": form,
        "ignore": ["lm_head"],
        "kv_cache_scheme": None,
        "quantization_status": "compressed",
    }


def without_groups(tensors, weight):
    """GPTQ whose groups are those of the order of inputs, as files may leave unsaid."""
    return {suffix: tensor for suffix, tensor in tensors.items() if suffix != ".g_idx"}, weight


FORMATS = {
    "FP8, blocks": ({**FP8, "weight_block_size": [24, 20]}, files.fp8_blocks),
    "FP8, blocks, exponents": (
        {**FP8, "weight_block_size": [32, 32], "scale_fmt": "ue8m0"},
        functools.partial(files.fp8_blocks, block=(32, 32), dtype=ml_dtypes.float8_e8m0fnu),
    ),
    "FP8, a block of more than all": (
        {**FP8, "weight_block_size": [10**30, 10**30]},
        functools.partial(files.fp8_blocks, block=(96, 96)),
    ),
    "FP8, a tensor": (FP8, files.fp8_whole),
    "FP8, a tensor [1]": ({**FP8, "weight_block_size": None}, functools.partial(files.fp8_whole, form=(1,))),
    "FP8, outputs": (FP8, functools.partial(files.fp8_whole, form="outputs")),
    **{
        f"GPTQ, {bits} bits": ({**GPTQ, "bits": bits}, functools.partial(files.gptq, bits=bits))
        for bits in (2, 3, 4, 8)
    },
    "GPTQ, in order": ({**GPTQ, "desc_act": True}, functools.partial(files.gptq, order=True)),
    "GPTQ, version 2": ({**GPTQ, "checkpoint_format": "gptq_v2"}, functools.partial(files.gptq, version=2)),
    "GPTQ, one group": ({**GPTQ, "group_size": -1}, functools.partial(files.gptq, group=-1)),
    "GPTQ, a last group that is shorter": ({**GPTQ, "group_size": 40}, functools.partial(files.gptq, group=40)),
    "GPTQ, unnamed groups": (GPTQ, lambda draw, shape: without_groups(*files.gptq(draw, shape))),
    "GPTQ, a group of more than all": (
        {**GPTQ, "group_size": 10**30},
        lambda draw, shape: without_groups(*files.gptq(draw, shape, group=-1)),
    ),
    "AWQ": (AWQ, files.awq),
    "AWQ, one group": ({**AWQ, "group_size": -1}, functools.partial(files.awq, group=-1)),
    "NF4": (NF4, files.four_bits),
    "NF4, nested": (NF4, functools.partial(files.four_bits, nested=True)),
    "NF4, a last block that is shorter": (NF4, functools.partial(files.four_bits, block=1000)),
    "NF4, in bfloat16": (NF4, functools.partial(files.four_bits, storage=ml_dtypes.bfloat16)),
    "FP4": ({**NF4, "bnb_4bit_quant_type": "fp4"}, functools.partial(files.four_bits, kind="fp4")),
    "8 bits": (INT8, files.eight_bits),
    "packed": (compressed("pack-quantized", num_bits=4, group_size=32, symmetric=False), files.packed),
    "packed, symmetric": (
        compressed("pack-quantized", num_bits=4, strategy="group", group_size=32),
        functools.partial(files.packed, zeros=False, dtype=ml_dtypes.bfloat16),
    ),
    "packed, in order": (
        compressed("pack-quantized", num_bits=4, group_size=32, symmetric=False, actorder="group"),
        functools.partial(files.packed, order=True),
    ),
    "packed, 8 bits, outputs": (
        compressed("pack-quantized", num_bits=8, strategy="channel"),
        functools.partial(files.packed, bits=8, group=-1, zeros=False),
    ),
    "packed, 2 bits": (
        compressed("pack-quantized", num_bits=2, group_size=16, symmetric=False),
        functools.partial(files.packed, bits=2, group=16),
    ),
    "integers": (compressed("int-quantized", ACTIVATIONS, strategy="channel"), files.integers),
    "integers, zeros": (
        compressed("int-quantized", ACTIVATIONS, strategy="channel", symmetric=False),
        functools.partial(files.integers, zeros=True),
    ),
    "floats, outputs": (
        compressed("float-quantized", ACTIVATIONS, type="float", strategy="channel"),
        functools.partial(files.fp8_whole, form="outputs"),
    ),
    "floats, a tensor": (
        compressed("naive-quantized", type="float", strategy="tensor"),
        functools.partial(files.fp8_whole, form=(1,)),
    ),
    "floats, blocks": (
        compressed("float-quantized", type="float", strategy="block", block_structure=[24, 20]),
        lambda draw, shape: files.fp8_blocks(draw, shape, name=".weight_scale"),
    ),
}


@functools.cache
def tensors(name):
    """Tensors of the quantised and of the plain model of a format; not to be changed."""
    return files.tensors(FORMATS[name][1])


def models(folder, name):
    """(quantised folder, plain folder, tensors of the first) of a format."""
    stored, plain = tensors(name)
    quantised = files.write(folder / "quantised", stored, FORMATS[name][0])
    return quantised, files.write(folder / "plain", plain), dict(stored)


PACKED = FORMATS["packed"][0]


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("name", FORMATS)
def test_parameters_are_the_plain_weights(tmp_path, name):
    """To the last bit, in the type of dequantised weights."""
    quantised, plain, _ = models(tmp_path, name)
    params, expected = load(quantised)[1], load(plain)[1]
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    assert_same(params, expected)


@pytest.mark.parametrize("name", ["FP8, blocks", "GPTQ, 4 bits", "AWQ", "NF4, nested", "8 bits", "packed", "integers"])
def test_logits_are_those_of_the_plain_weights(tmp_path, name):
    tokens = np.arange(12).reshape(2, 6)
    logits = []
    for folder in models(tmp_path, name)[:2]:
        lm, params, _ = load(folder)
        logits.append(np.asarray(jax.jit(lm.hidden)(params, tokens)) @ np.asarray(lm.readout(params)).T)
    np.testing.assert_array_equal(*logits)
    assert np.ptp(logits[0]) > 0


@pytest.mark.parametrize("block", [(32, 32), (16, 64)])
def test_blocks_are_those_of_transformers(block):
    """What the weights of these tests are computed by is transformers' own definition."""
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("transformers.integrations.finegrained_fp8")
    tensors, weight = files.fp8_blocks(np.random.default_rng(0), (96, 64), block)
    codes = torch.from_numpy(tensors[".weight"].view(np.uint8)).view(torch.float8_e4m3fn)
    theirs = module.Fp8Dequantize(None)._dequantize_one(codes, torch.from_numpy(tensors[".weight_scale_inv"]))
    np.testing.assert_array_equal(weight, theirs.numpy())


def test_the_type_asked_for(tmp_path):
    """Dequantised in float32 and rounded once."""
    quantised, plain, _ = models(tmp_path, "FP8, blocks")
    assert_same(load(quantised, dtype="bfloat16")[1], load(plain, dtype="bfloat16")[1])


def test_the_records_say_what_was_dequantised(tmp_path, capsys):
    from tdd import score
    from tdd.cli import main
    from tdd.scoring.models import provenance_of

    quantised, plain, stored = models(tmp_path, "FP8, blocks")
    expected = {
        "method": "fp8",
        "form": "FP8 (e4m3) in blocks of 24 x 20",
        "weights": 14,
        "stored_bytes": sum(tensor.nbytes for tensor in stored.values()),
        "float32_bytes": sum(leaf.nbytes for leaf in jax.tree.leaves(load(plain)[1])),
        "note": "weights dequantised; activations not quantised",
    }
    assert provenance_of(quantised)["quantisation"] == expected
    assert "quantisation" not in provenance_of(plain)
    tables = [score(folder, ["3 4 5 6"], "loss") for folder in (quantised, plain)]
    assert [table.provenance.get("quantisation") for table in tables] == [expected, None]
    np.testing.assert_array_equal(tables[0]["loss"], tables[1]["loss"])
    assert main(["info", "--model", str(quantised), "--device", "1GiB", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["dtype"], found["params_bytes"]) == ("float32", expected["float32_bytes"])
    assert found["quantisation"] == f"{expected['form']}; {expected['note']}"
    assert main(["info", "--model", str(quantised), "--device", "1GiB"]) == 0
    assert "FP8 (e4m3) in blocks of 24 x 20; weights dequantised" in capsys.readouterr().out


def refused(folder, message):
    with pytest.raises(InputError, match=message) as caught:
        load(folder)
    assert str(folder) in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"quant_method": "eetq"}, "quant_method 'eetq', which is not dequantised .* convert it once"),
        ({"quant_method": ["fp8"]}, "quant_method .'fp8'., which is not dequantised"),
        ({"bits": 4}, "quant_method None, which is not dequantised on loading .those that are: fp8"),
        ([], r"has quantization_config=\[\], no object"),
        ({**FP8, "activation_scheme": "static"}, "fp8 has activation_scheme='static'; dequantised on loading: activat"),
        ({**FP8, "fmt": "e5m2"}, "has fmt='e5m2'; dequantised on loading: fmt of e4m3"),
        ({**FP8, "weight_block_size": [128]}, r"weight_block_size=\[128\]; it must hold two positive numbers"),
        ({**FP8, "weight_block_size": [0, 8]}, r"weight_block_size=\[0, 8\]; it must hold"),
        ({**FP8, "modules_to_not_convert": "lm_head"}, "modules_to_not_convert='lm_head'; it must be a list of names"),
        ({**FP8, "ignored_layers": ["re:("]}, r"has 're:\(' in ignored_layers, which is no pattern"),
        ({**GPTQ, "bits": 5}, "gptq has bits=5; dequantised on loading: bits of 2, 3, 4, 8; otherwise convert it once"),
        ({**GPTQ, "bits": True}, "gptq has bits=True; "),
        ({**GPTQ, "group_size": 0}, "gptq has group_size=0; it must be a positive number, or -1 for all inputs"),
        ({**GPTQ, "group_size": "32"}, "gptq has group_size='32'; it must be a positive number"),
        (
            {**GPTQ, "checkpoint_format": "marlin"},
            "has checkpoint_format='marlin'; dequantised on loading: checkpoint_f",
        ),
        ({**GPTQ, "is_marlin_format": True}, "has is_marlin_format=True; "),
        ({**GPTQ, "dynamic": {"+:.*": {"bits": 8}}}, "has dynamic=.*; dequantised on loading: modules of one form"),
        (
            {**NF4, "load_in_4bit": False},
            "bitsandbytes has load_in_4bit=False and load_in_8bit=False; one of them must",
        ),
        (
            {**NF4, "bnb_4bit_quant_type": "int4"},
            "has bnb_4bit_quant_type='int4'; dequantised on loading: bnb_4bit_qua",
        ),
        (
            {**PACKED, "kv_cache_scheme": {"num_bits": 8}},
            "has kv_cache_scheme=.*; dequantised on loading: models without",
        ),
        ({**PACKED, "sparsity_config": {"format": "sparse-24-bitmask"}}, "has sparsity_config=.*: dense weights"),
        (
            {**PACKED, "format": "nvfp4-pack-quantized"},
            "group_0, weights has format='nvfp4-pack-quantized'; dequantised",
        ),
        ({**PACKED, "config_groups": {"W8A8": ["Linear"]}}, "has config_groups=.*; it must hold a description of each"),
        (
            compressed("pack-quantized", num_bits=3),
            "group_0, weights has num_bits=3; dequantised on loading: num_bits of",
        ),
        (compressed("pack-quantized", num_bits=4, type="float"), "has type='float'; dequantised on loading: integers"),
        (
            compressed("pack-quantized", num_bits=4, strategy="group"),
            "has group_size=None; it must be a positive number",
        ),
        (compressed("int-quantized", strategy="block"), "has block_structure=None; it must hold two positive numbers"),
        (
            compressed("int-quantized", {**ACTIVATIONS, "dynamic": False}),
            "group_0 has input_activations=.*; dequantised on loading: activations that are not quantised, or dynamic",
        ),
        ({**AWQ, "bits": 3}, "awq has bits=3; dequantised on loading: bits of 4"),
        ({**AWQ, "version": "gemv"}, "awq has version='gemv'; dequantised on loading: the order of gemm"),
    ],
)
def test_configurations_that_are_refused(tmp_path, config, message):
    draw = np.random.default_rng(0)
    refused(files.write(tmp_path, files.others(draw), config), message)


Q = "model.layers.1.self_attn.q_proj"


STATE = f"{Q}.weight.quant_state.bitsandbytes__nf4"


def state_of(**changes):
    """Changes what bitsandbytes wrote about a weight."""

    def change(stored):
        content = json.dumps(json.loads(stored[STATE].tobytes()) | changes)
        stored[STATE] = np.frombuffer(content.encode(), np.uint8)

    return change


def edited(tmp_path, name, change, **options):
    """The quantised folder of a format, its tensors changed."""
    stored = {name: tensor.copy() for name, tensor in tensors(name)[0].items()}
    change(stored)
    return files.write(tmp_path / "edited", stored, {**FORMATS[name][0], **options})


@pytest.mark.parametrize(
    ("name", "change", "message"),
    [
        ("FP8, blocks", lambda s: s.pop(f"{Q}.weight_scale_inv"), f"lacks 1 of .* tensors: {Q}.weight_scale_inv; its"),
        ("FP8, a tensor", lambda s: s.update({f"{Q}.input_scale": np.ones(1, np.float32)}), f"has not: {Q}.input_scal"),
        (
            "FP8, blocks",
            lambda s: s.update({f"{Q}.weight_scale_inv": np.ones((128, 128), np.float32)}),
            rf"of another shape: {Q}.weight_scale_inv \[128, 128\] instead of \[3, 4\]; its",
        ),
        (
            "FP8, blocks",
            lambda s: s.update({f"{Q}.weight_scale_inv": s[f"{Q}.weight_scale_inv"].astype(np.int8)}),
            rf"1 tensors of another type: {Q}.weight_scale_inv \(I8 instead of F32 or BF16 or F16 or F8_E8M0\)",
        ),
        (
            "FP8, blocks",
            lambda s: s.update({f"{Q}.weight": s[f"{Q}.weight"].astype(np.float32)}),
            rf"of another type: {Q}.weight \(F32 instead of F8_E4M3\)",
        ),
        (
            "FP8, blocks",
            lambda s: s.update({f"{Q}.weight": np.ascontiguousarray(s[f"{Q}.weight"][:, :20])}),
            rf"of another shape: {Q}.weight \[64, 20\] instead of \[64, 64\], .*_inv \[3, 4\] instead of \[3, 1\]",
        ),
        ("FP8, blocks", lambda s: s.update({f"{Q}.weight": s[f"{Q}.weight"].reshape(-1)}), r"q_proj.weight \[4096\]"),
        (
            "FP8, a tensor",
            lambda s: s.update({f"{Q}.weight_scale": np.float32(np.inf).reshape(())}),
            "has NaN or infinite numbers in 1 of 21 tensors: model.layers.1.self_attn.q_proj.weight",
        ),
        ("GPTQ, 4 bits", lambda s: s.pop(f"{Q}.qzeros"), f"lacks 1 of .* tensors: {Q}.qzeros; its"),
        ("GPTQ, in order", lambda s: s.pop(f"{Q}.g_idx"), f"lacks 1 of .* tensors: {Q}.g_idx; its"),
        ("GPTQ, 4 bits", lambda s: s.pop(f"{Q}.qweight"), f"lacks 1 of .* {Q}.weight; has 3 .* has not: {Q}.g_idx, "),
        (
            "GPTQ, 4 bits",
            lambda s: s.update({f"{Q}.g_idx": np.where(s[f"{Q}.g_idx"], 2, 0).astype(np.int32)}),
            f": {Q} has the groups 0 to 2 in g_idx, but 2 of scales; the file is damaged, or its config.json is anoth",
        ),
        (
            "GPTQ, 4 bits",
            lambda s: s.update({f"{Q}.qweight": s[f"{Q}.qweight"][0]}),
            r"q_proj.weight \[64\] instead of",
        ),
        (
            "GPTQ, 4 bits",
            lambda s: s.update({f"{Q}.bias": np.ones(64, np.float16)}),
            f"has 1 tensors that the architecture has not: {Q}.bias",
        ),
        ("NF4", lambda s: s.pop(STATE), f"lacks 1 of .* tensors: {STATE}"),
        ("NF4", lambda s: s.pop(f"{Q}.weight.absmax"), f"lacks 1 of .* tensors: {Q}.weight.absmax; its"),
        ("NF4, nested", lambda s: s.pop(f"{Q}.weight.nested_absmax"), f"lacks 1 of .*: {Q}.weight.nested_absmax; its"),
        ("NF4", state_of(shape=[2**62, 2**62]), rf"of another shape: .*{Q}.weight \[2048, 1\] instead of \[1063"),
        (
            "NF4",
            state_of(shape=[64, 0]),
            rf"{Q} has shape=\[64, 0\] and blocksize=64 in weight.quant_state",
        ),
        ("NF4", state_of(blocksize="64"), r"blocksize='64' in weight"),
        ("NF4", state_of(nested_blocksize=4), f"lacks 2 of .* {Q}.weight.nested_absmax, {Q}.weight.nested_quant_map"),
        (
            "NF4, nested",
            state_of(nested_offset=True),
            f"{Q} has nested_blocksize=16 and nested_offset=True in weight.quant_state",
        ),
        ("NF4", lambda s: s.update({STATE: s[STATE][:-1]}), f"{Q} has a weight.quant_state.* that is not valid JSON"),
        ("NF4", lambda s: s.update({STATE: np.full(3, 255, np.uint8)}), "that is not valid JSON: 'utf-8' codec"),
        ("NF4", lambda s: s.update({STATE: np.zeros(1 << 17, np.uint8)}), r"that is no text \(U8 \[131072\]\)"),
        ("packed", lambda s: s.pop(f"{Q}.weight_shape"), f"lacks 1 of .* tensors: {Q}.weight_shape; its"),
        ("packed", lambda s: s.pop(f"{Q}.weight_zero_point"), f"lacks 1 of .* tensors: {Q}.weight_zero_point; its"),
        (
            "packed",
            lambda s: s.update({f"{Q}.weight_shape": np.array([2**62, 32])}),
            rf"{Q}.weight_packed \[64, 8\] instead of \[4611686018427387904, 4\]",
        ),
        (
            "packed",
            lambda s: s.update({f"{Q}.weight_shape": np.array([-64, 64])}),
            r"q_proj.weight \[-64, 64\] instead",
        ),
        (
            "packed",
            lambda s: s.update({f"{Q}.weight_shape": np.float32([np.nan, 64])}),
            rf"of another type: {Q}.weight_shape \(F32 instead of I64 or I32\)",
        ),
        (
            "packed, in order",
            lambda s: s[f"{Q}.weight_g_idx"].fill(2),
            f"{Q} has the groups 2 to 2 in weight_g_idx, but",
        ),
        ("8 bits", lambda s: s.pop(f"{Q}.SCB"), f"lacks 1 of .* tensors: {Q}.SCB; its"),
        (
            "8 bits",
            lambda s: s.update({f"{Q}.weight_format": np.uint8(2)}),
            f"{Q} has weight_format 2, an order of one",
        ),
        ("AWQ", lambda s: s.pop(f"{Q}.qzeros"), f"lacks 1 of .* tensors: {Q}.qzeros; its"),
        ("AWQ", lambda s: s.update({f"{Q}.qweight": s[f"{Q}.qweight"][0]}), r"q_proj.weight \[8\] instead of"),
    ],
)
def test_faults_of_companions_are_those_of_weights(tmp_path, name, change, message):
    refused(edited(tmp_path, name, change), message)


@pytest.mark.parametrize("pattern", [Q, "model.layers.1", "re:.*q_proj", "model.layers.*.self_attn"])
def test_modules_that_are_not_converted(tmp_path, pattern):
    """A weight in floating point numbers is read as it is, whether it is named or not; a named one always is."""
    config = FORMATS["FP8, blocks"][0]
    _, plain, stored = models(tmp_path, "FP8, blocks")
    expected = load(plain)[1]
    refused(
        files.write(tmp_path / "named", stored, {**config, "modules_to_not_convert": [pattern]}),
        r"architecture has not: .*weight_scale_inv.* not stored as F32, F16, BF16, F64: .*\.weight \(F8_E4M3\)",
    )
    for layer in range(2):
        for projection in "qkvo":
            module = f"model.layers.{layer}.self_attn.{projection}_proj"
            weight = stored[f"{module}.weight"]
            scales = stored.pop(f"{module}.weight_scale_inv")
            rows, columns = np.arange(weight.shape[0]) // 24, np.arange(64) // 20
            stored[f"{module}.weight"] = weight.astype(np.float32) * scales[rows][:, columns]
    assert_same(load(files.write(tmp_path / "some", stored, config))[1], expected)
    if pattern != "model.layers.1":
        again = files.write(tmp_path / "named", stored, {**config, "modules_to_not_convert": [pattern, "lm_head"]})
        assert_same(load(again)[1], expected)


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("GPTQ, 4 bits", {"bits": 8}, r"weight \[96, 32\] instead of \[96, 64\]"),
        ("GPTQ, 4 bits", {"group_size": 16}, r"qzeros \[2, 12\] instead of \[4, 12\]"),
        ("GPTQ, unnamed groups", {"desc_act": True}, "lacks 14 of 77 tensors: .*g_idx"),
        ("AWQ", {"group_size": 48}, r"model.layers.0.mlp.gate_proj has 64 inputs, which groups of 48 do not divide"),
        ("AWQ", {"group_size": 10**30}, "has .* inputs, which groups of 10*0 do not divide"),
        ("FP8, blocks", {"weight_block_size": [10**30, 1]}, r"weight_scale_inv \[\d, \d\] instead of \[1, \d+\]"),
    ],
)
def test_a_configuration_of_another_checkpoint(tmp_path, name, options, message):
    refused(edited(tmp_path, name, lambda stored: None, **options), message)


def test_a_configuration_in_a_file_of_its_own(tmp_path):
    """As the first writers of GPTQ left it."""
    stored = tensors("GPTQ, 4 bits")[0]
    refused(files.write(tmp_path, stored), "has quantised weights, and none that its config.json describes: copy what")


def test_biases_of_zeros_that_writers_of_gptq_add(tmp_path):
    config = FORMATS["GPTQ, 4 bits"][0]
    quantised, plain, stored = models(tmp_path, "GPTQ, 4 bits")
    stored |= {f"{name}.bias": np.zeros(shape[0], np.float16) for name, shape in files.MODULES.items()}
    assert_same(load(files.write(quantised, stored, config))[1], load(plain)[1])


def test_modules_that_a_pattern_of_gptq_excepts(tmp_path):
    config = FORMATS["GPTQ, 4 bits"][0]
    quantised, _, stored = models(tmp_path, "GPTQ, 4 bits")
    dynamic = {"dynamic": {r"-:.*\.0\.mlp\.up_proj": {}}}
    refused(files.write(quantised, stored, config | dynamic), "lacks 1 of .*0.mlp.up_proj.weight; has 4 tensors")


def test_groups_of_modules_in_other_forms(tmp_path):
    """The pattern of a group counts before the class of layers."""
    stored, plain = (dict(found) for found in tensors("packed"))
    others = tensors("integers")
    for name in [name for name in stored if ".mlp." in name]:
        del stored[name]
    stored |= {name: tensor for name, tensor in others[0].items() if ".mlp." in name}
    plain |= {name: tensor for name, tensor in others[1].items() if ".mlp." in name}
    config = FORMATS["packed"][0]
    outer = {**FORMATS["integers"][0]["config_groups"]["group_0"], "format": "int-quantized"}
    groups = {"all": config["config_groups"]["group_0"], "mlp": {**outer, "targets": ["re:.*mlp.(gate|up|down)"]}}
    quantised = files.write(tmp_path / "quantised", stored, {**config, "config_groups": groups})
    assert_same(load(quantised)[1], load(files.write(tmp_path / "plain", plain))[1])


def test_stacks_of_experts_in_blocks_of_4_bits(tmp_path):
    """As GPT-OSS stores them: [experts, outputs, inputs / 32, 16], read [experts, inputs, outputs]."""
    from tdd.models.quantised.schemes import scheme_of
    from tdd.models.quantised.view import Dequantised
    from tdd.models.weights import StoredTensors

    blocks, scales, weight = files.mxfp4(np.random.default_rng(0), (3, 6, 64))
    name = "model.layers.0.mlp.experts.gate_up_proj"
    files.write(tmp_path, {f"{name}_blocks": blocks, f"{name}_scales": scales})
    with StoredTensors(tmp_path) as stored:
        found = Dequantised(stored, scheme_of({"quant_method": "mxfp4"}, "config.json"), str(tmp_path))
        assert found.names() == {name}
        assert (found.shape(name), found.dtype(name)) == ((3, 64, 6), "F32")
        assert all(part.shape == part.found and part.dtype in part.types for part in found.parts().values())
        np.testing.assert_array_equal(found.read(name), weight.swapaxes(1, 2))
        index = (slice(1, 2), slice(None), slice(2, 4))
        np.testing.assert_array_equal(found.cut(name, index), weight.swapaxes(1, 2)[index])
        assert found.equal(name, name)


def test_blocks_of_4_bits_are_those_of_transformers():
    torch = pytest.importorskip("torch")
    module = pytest.importorskip("transformers.integrations.mxfp4")
    blocks, scales, weight = files.mxfp4(np.random.default_rng(1), (2, 5, 96))
    theirs = module.convert_moe_packed_tensors(*map(torch.from_numpy, (blocks, scales)), dtype=torch.float32)
    np.testing.assert_array_equal(weight.swapaxes(1, 2), theirs.numpy())


@pytest.mark.parametrize("name", ["GPTQ, 4 bits", "NF4, nested"])
def test_an_adapter_beside_quantised_weights(tmp_path, name):
    """Merged into the dequantised weight, as it is into a plain one."""
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "bias": "none", "init_lora_weights": True}
    draw = np.random.default_rng(0)
    factors = {"A": draw.normal(size=(2, 64)), "B": draw.normal(size=(64, 2))}
    stored = {f"base_model.model.{Q}.lora_{part}.weight": one.astype(np.float32) for part, one in factors.items()}
    folders = models(tmp_path, name)[:2]
    without = load(folders[0])[1]
    for folder in folders:
        (folder / "adapter_config.json").write_text(json.dumps(config))
        save_file(stored, folder / "adapter_model.safetensors")
    found, expected = (load(folder)[1] for folder in folders)
    assert_same(found, expected)
    assert not np.array_equal(found["layers"]["qkv"]["kernel"], without["layers"]["qkv"]["kernel"])


def test_gpt_oss_in_blocks_of_4_bits(tmp_path):
    """Stacks of experts whose gate and up alternate, beside biases that are stored plainly."""
    config = {**family_files.CONFIGURATIONS["gpt_oss"], "hidden_size": 32, "intermediate_size": 32}
    family, spec = read_spec(files.write_config(tmp_path / "spec", config, {}))
    shapes = dict(pair for slot in slots(spec, family.names) for pair in slot.stored())
    plain = family_files.tensors(shapes, "gpt_oss")
    stored, draw = dict(plain), np.random.default_rng(0)
    for name in [name for name in plain if name.endswith(("experts.gate_up_proj", "experts.down_proj"))]:
        number, inputs, outputs = shapes[name]
        blocks, scales, weight = files.mxfp4(draw, (number, outputs, inputs))
        del stored[name]
        stored |= {f"{name}_blocks": blocks, f"{name}_scales": scales}
        plain[name] = weight.swapaxes(1, 2)
    excepted = ["model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]
    scheme = {"quant_method": "mxfp4", "modules_to_not_convert": excepted}
    quantised = files.write_config(tmp_path / "quantised", {**config, "quantization_config": scheme}, stored)
    assert_same(load(quantised)[1], load(files.write_config(tmp_path / "plain", config, plain))[1])


@pytest.mark.parametrize("family", ["llama", "qwen3_moe", "gpt_neox", "deepseek_v3"])
def test_families_in_8_bits(tmp_path, family):
    """Experts one by one, biases that stay, interleaved heads; LLaMA's files as of a model without its head."""
    config, plain = family_files.CONFIGURATIONS[family], {}
    stored = family_files.tensors(family_files.shapes(family), config["model_type"])
    for name, tensor in [*stored.items()]:
        if tensor.ndim == 2 and ("proj" in name or "dense" in name or "query_key_value" in name):
            codes = tensor.astype(ml_dtypes.float8_e4m3fn)
            stored |= {name: codes, f"{name.removesuffix('.weight')}.weight_scale": np.float32([0.75])}
            plain[name] = codes.astype(np.float32) * np.float32(0.75)
    assert plain
    plain = {**stored, **plain}
    plain = {name: tensor for name, tensor in plain.items() if not name.endswith("_scale")}
    if family == "llama":
        config = {**config, "tie_word_embeddings": True}
        stored, plain = (
            {name.removeprefix("model."): tensor for name, tensor in found.items() if name != "lm_head.weight"}
            for found in (stored, plain)
        )
    folders = []
    for number, (tensors_, more) in enumerate(((stored, {"quantization_config": FP8}), (plain, {}))):
        folders.append(files.write_config(tmp_path / str(number), {**config, **more}, tensors_))
    assert_same(*(load(folder)[1] for folder in folders))


def test_memory_of_one_weight():
    """The weight, its packed numbers (given) and a few blocks of 2^16 numbers: no second copy."""
    side = 2048
    draw = np.random.default_rng(0)
    words = draw.integers(-(2**31), 2**31, (side // 8, side)).astype(np.int32)
    zeros = draw.integers(-(2**31), 2**31, (side // 32, side // 8)).astype(np.int32)
    scales, groups = np.ones((side // 32, side), np.float32), np.arange(side) // 32
    tracemalloc.start()
    try:
        weight = dequantise.gptq(words, zeros, scales, groups, bits=4, offset=1)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # zero points and scales in float32; of each number of a block 8 bytes of words, 1 of an integer and 16 of floats
    assert peak < weight.nbytes + 3 * scales.nbytes + (1 << 16) * 25
    assert not has_infinite(weight, np.dtype(np.float32))
