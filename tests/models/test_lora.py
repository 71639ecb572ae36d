"""An adapter beside base weights: the model is that of an independent merge, or the adapter is refused."""

import json
import math

import family_files
import gpt2_files
import jax
import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tdd.models.checkpoint import load
from tdd.models.configuration import read_config
from tdd.scoring.models import provenance_of
from tdd.validate import InputError

MODULES = {
    "llama": ("model.layers.0.self_attn.q_proj", "model.layers.1.mlp.down_proj", "model.layers.1.self_attn.v_proj"),
    "gpt2": ("transformer.h.0.attn.c_attn", "transformer.h.2.attn.c_proj", "transformer.h.1.mlp.c_proj"),
}
OPTIONS = {
    "plain": ({}, [16 / 3] * 3),
    "the file says no": ({"fan_in_fan_out": False}, [16 / 3] * 3),  # peft turns by the layer: a file has one value
    "the file says yes": ({"fan_in_fan_out": True}, [16 / 3] * 3),
    "rslora": ({"use_rslora": True}, [16 / math.sqrt(3)] * 3),
    "patterns": (
        {"rank_pattern": {"v_proj": 2, "mlp.c_proj": 2}, "alpha_pattern": {"layers.1.mlp.down_proj|attn.c_proj": 5}},
        [16 / 3, 5 / 3, 16 / 2],
    ),
}


def read_config_of(folder):
    return read_config(folder / "config.json")


def write_base(folder, family, **options):
    if family == "gpt2":
        return gpt2_files.write(folder, **options)[0]
    return family_files.write(folder, "llama", **options)[0]


def write_adapter(folder, family, **changes):
    """The adapter's files, and its factors by module."""
    weights = load_file(folder / "model.safetensors")
    config = {"peft_type": "LORA", "base_model_name_or_path": "base", "r": 3, "lora_alpha": 16, "bias": "none"}
    config |= {"fan_in_fan_out": family == "gpt2", "init_lora_weights": True, "use_dora": False, **changes}
    draw, found = np.random.default_rng(0), {}
    for index, module in enumerate(MODULES[family]):
        rank = 2 if config.get("rank_pattern") and index == 2 else 3
        rows, columns = weights[f"{module}.weight"].shape[:: -1 if family == "gpt2" else 1]
        factors = {"A": draw.normal(size=(rank, columns)), "B": draw.normal(size=(rows, rank))}
        found[module] = {name: (0.1 * factor).astype(np.float32) for name, factor in factors.items()}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    stored = {
        f"base_model.model.{module}.lora_{part}.weight": factor
        for module, pair in found.items()
        for part, factor in pair.items()
    }
    save_file(stored, folder / "adapter_model.safetensors")
    return found


@pytest.mark.parametrize("options", OPTIONS)
@pytest.mark.parametrize("family", MODULES)
def test_the_parameters_are_those_of_a_merge(tmp_path, family, options):
    """By entries: w'_ij = w_ij + s sum_r b_ir a_rj, in float64, rounded once to the type of w."""
    changes, scales = OPTIONS[options]
    merged, folder = write_base(tmp_path / "merged", family), write_base(tmp_path / "adapted", family)
    factors = write_adapter(folder, family, **changes)
    weights = load_file(merged / "model.safetensors")
    for (module, pair), scale in zip(factors.items(), scales, strict=True):
        change = scale * np.einsum("ir,rj->ij", pair["B"].astype(np.float64), pair["A"].astype(np.float64))
        weight = weights[f"{module}.weight"]
        weights[f"{module}.weight"] = (weight + (change.T if family == "gpt2" else change)).astype(np.float32)
    save_file(weights, merged / "model.safetensors", metadata={"format": "pt"})
    found, expected, base = (load(one)[1] for one in (folder, merged, write_base(tmp_path / "base", family)))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-7, atol=1e-8), found, expected)
    changed = jax.tree.leaves(jax.tree.map(lambda a, b: not np.array_equal(a, b), found, base))
    assert sum(changed) == {"llama": 2, "gpt2": 3}[family], "queries and values are one parameter"


def test_the_record_has_the_adapter(tmp_path):
    folder = write_base(tmp_path / "model", "gpt2")
    base = provenance_of(folder)
    write_adapter(folder, "gpt2")
    found = provenance_of(folder)
    assert "adapter" not in base
    assert found["adapter"]["r"] == 3
    assert found["adapter"]["base_model_name_or_path"] == "base"
    with_weights = found["sha256"]
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, "lora_alpha": 8}))
    assert len({base["sha256"], with_weights, provenance_of(folder)["sha256"]}) == 3


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"use_dora": True}, r"use_dora=True, whose magnitudes are not merged on reading; .*merge_and_unload\(\)"),
        ({"peft_type": "IA3"}, "an adapter of type 'IA3'; only LORA is merged"),
        ({"modules_to_save": ["lm_head"]}, r"modules_to_save=\['lm_head'\], which is not merged"),
        ({"bias": "all"}, "biases are not merged"),
        ({"init_lora_weights": "pissa"}, "may have changed the base weights"),
        ({"r": 4}, "have rank 3, and adapter_config.json says 4"),
        ({"lora_alpha": None}, "lora_alpha=None for .*, no number"),
        ({"rank_pattern": {"(": 3}}, "a rank_pattern that is no pattern"),
    ],
)
def test_what_is_not_merged_exactly_is_refused(tmp_path, changes, message):
    folder = write_base(tmp_path / "model", "gpt2")
    write_adapter(folder, "gpt2")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(json.dumps({**config, **changes}))
    with pytest.raises(InputError, match=message):
        load(folder)


def test_other_tensors_and_halves_of_an_adapter(tmp_path):
    folder = write_base(tmp_path / "model", "gpt2")
    write_adapter(folder, "gpt2")
    place = folder / "adapter_model.safetensors"
    stored = load_file(place)
    head = {f"base_model.model.lm_head.lora_{part}.weight": np.ones((2, 2), np.float32) for part in "AB"}
    save_file({**stored, **head}, place)
    with pytest.raises(InputError, match=r"adapts lm_head, .*merging it would also change the embedding"):
        load(folder)
    save_file({**stored, "base_model.model.lm_head.weight": np.ones((2, 2), np.float32)}, place)
    with pytest.raises(InputError, match=r"holds base_model\.model\.lm_head\.weight, which is no factor of LoRA"):
        load(folder)
    save_file({name.replace("c_attn", "c_other"): one for name, one in stored.items()}, place)
    with pytest.raises(
        InputError, match=r"adapts transformer\.h\.0\.attn\.c_other, of which the model's files have no"
    ):
        load(folder)
    save_file(dict(list(stored.items())[1:]), place)
    with pytest.raises(InputError, match="does not hold one lora_A and one lora_B"):
        load(folder)
    place.unlink()
    with pytest.raises(InputError, match=r"has adapter_config\.json and no adapter_model\.safetensors"):
        load(folder)
    (folder / "model.safetensors").unlink()
    with pytest.raises(InputError, match="holds an adapter of 'base' and not the weights of that model: copy"):
        load(folder)
    (folder / "config.json").unlink()  # as peft saves an adapter
    for read in (load, read_config_of, provenance_of):
        with pytest.raises(InputError, match="holds an adapter of 'base' and not the weights of that model: copy"):
            read(folder)
