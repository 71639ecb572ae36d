"""Quantised checkpoints: the model is that of the plain weights to the last bit, or it is refused in one line."""

import functools

import jax
import ml_dtypes
import numpy as np
import pytest
import quantised_files as files

from tdd.models.checkpoint import load
from tdd.validate import InputError

FP8 = {"quant_method": "fp8", "activation_scheme": "dynamic", "fmt": "e4m3"}
FORMATS = {
    "FP8, blocks": ({**FP8, "weight_block_size": [24, 20]}, files.fp8_blocks),
    "FP8, blocks, exponents": (
        {**FP8, "weight_block_size": [32, 32], "scale_fmt": "ue8m0"},
        functools.partial(files.fp8_blocks, block=(32, 32), dtype=ml_dtypes.float8_e8m0fnu),
    ),
    "FP8, a tensor": (FP8, files.fp8_whole),
    "FP8, a tensor [1]": ({**FP8, "weight_block_size": None}, functools.partial(files.fp8_whole, form=(1,))),
    "FP8, outputs": (FP8, functools.partial(files.fp8_whole, form="outputs")),
}


def assert_same(found, expected):
    assert jax.tree.structure(found) == jax.tree.structure(expected)
    jax.tree.map(np.testing.assert_array_equal, found, expected)


@pytest.mark.parametrize("name", FORMATS)
def test_parameters_and_logits_are_those_of_the_plain_weights(tmp_path, name):
    quantised, plain, _ = files.models(tmp_path, *FORMATS[name])
    lm, params, _ = load(quantised)
    other, expected, _ = load(plain)
    assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {np.dtype(np.float32)}
    assert_same(params, expected)
    tokens = np.arange(12).reshape(2, 6) % files.VOCABULARY
    logits = [
        np.asarray(one.hidden(p, tokens)) @ np.asarray(one.readout(p)).T for one, p in ((lm, params), (other, expected))
    ]
    np.testing.assert_array_equal(*logits)
    assert np.abs(logits[0]).max() > 0


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
    quantised, plain, _ = files.models(tmp_path, *FORMATS["FP8, blocks"])
    assert_same(load(quantised, dtype="bfloat16")[1], load(plain, dtype="bfloat16")[1])


def test_the_records_say_what_was_dequantised(tmp_path, capsys):
    import json

    from tdd import score
    from tdd.audit.models import provenance_of
    from tdd.cli import main

    quantised, plain, stored = files.models(tmp_path, *FORMATS["FP8, blocks"])
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
    ],
)
def test_configurations_that_are_refused(tmp_path, config, message):
    draw = np.random.default_rng(0)
    refused(files.write(tmp_path, files.others(draw), config), message)


Q = "model.layers.1.self_attn.q_proj"


def edited(tmp_path, name, change, **options):
    """The quantised folder of a format, its tensors changed."""
    config, pack = FORMATS[name]
    _, _, stored = files.models(tmp_path, config, pack)
    change(stored)
    return files.write(tmp_path / "edited", stored, {**config, **options})


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
    ],
)
def test_faults_of_companions_are_those_of_weights(tmp_path, name, change, message):
    refused(edited(tmp_path, name, change), message)


@pytest.mark.parametrize("pattern", ["q_proj", Q, "model.layers.1", "re:.*q_proj", "model.layers.*.self_attn"])
def test_modules_that_are_not_converted(tmp_path, pattern):
    """A weight in floating point numbers is read as it is, whether it is named or not; a named one always is."""
    config, pack = FORMATS["FP8, blocks"]
    _, plain, stored = files.models(tmp_path, config, pack)
    expected = load(plain)[1]
    refused(
        files.write(tmp_path / "named", stored, {**config, "modules_to_not_convert": [pattern]}),
        r"architecture has not: .*weight_scale_inv.* not stored as F32, F16, BF16: .*\.weight \(F8_E4M3\)",
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
