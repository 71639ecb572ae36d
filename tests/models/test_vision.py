"""LLaVA against torch's class, from saved files of perturbed parameters; preprocessing against transformers'."""

import functools
import itertools
import json

import family_files
import jax
import numpy as np
import pytest
import rounding
import vision_files
from decoder_specs import REQUIRED, assert_logits, roundings
from safetensors.numpy import load_file, save_file
from vision_files import CONFIGURATIONS, IMAGE, LAYOUTS

from tdd.models import vision
from tdd.validate import InputError

features_of = jax.jit(vision.image_features, static_argnums=0)
embedded_of = jax.jit(vision.embed, static_argnums=0)
logits_of = jax.jit(vision.logits, static_argnums=0)


def ours(model):
    placed = vision_files.tokens(model.spec.tower.num_features)
    with jax.default_matmul_precision("highest"):
        features = features_of(model.spec, model.params, vision_files.images())
        return features, logits_of(model.spec, model.params, placed, features)


@functools.cache
def torch_model(name):
    model = vision_files.torch_model(CONFIGURATIONS[name])
    placed = vision_files.tokens(vision_files.num_features(CONFIGURATIONS[name]))
    return model, vision_files.torch_numbers(model, placed, vision_files.images())


@pytest.mark.torch
@pytest.mark.parametrize(
    ("name", "layout"),
    [*itertools.product(["llava-1.5"], LAYOUTS), *((n, [*LAYOUTS][1]) for n in [*CONFIGURATIONS][1:])],
)
def test_equals_torch(tmp_path, name, layout, record_property):
    model, (features, logits) = torch_model(name)
    model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    spelled = vision_files.in_layout([key for key, _ in model.named_parameters()], layout)
    parameters = {spelled[key]: value.detach().numpy() for key, value in model.named_parameters()}
    assert sorted(parameter.size for parameter in stored.values()) == sorted(p.size for p in parameters.values())
    save_file(parameters, tmp_path / "model.safetensors", metadata={"format": "pt"})
    (tmp_path / "config.json").write_text(json.dumps(CONFIGURATIONS[name]))
    family_files.word_tokenizer(40).save_pretrained(tmp_path)
    found = ours(vision.load_vision_language(tmp_path))
    for kind, mine, theirs in zip(("features", "logits"), found, (features, logits), strict=True):
        assert np.abs(theirs).max() > 0.1
        difference = float(np.abs(np.asarray(mine) - theirs).max())
        record_property(f"max_abs_{kind}_difference", difference)
        assert difference <= REQUIRED, kind


@pytest.mark.torch
def test_files_that_torch_writes(tmp_path):
    """The layout and the configuration of the transformers that is installed."""
    model, (features, logits) = torch_model("llava-1.5")
    model.save_pretrained(tmp_path)
    family_files.word_tokenizer(40).save_pretrained(tmp_path)
    found = ours(vision.load_vision_language(tmp_path))
    assert np.abs(found[0] - features).max() <= REQUIRED
    assert np.abs(found[1] - logits).max() <= REQUIRED


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_golden(tmp_path, name):
    model = vision.load_vision_language(vision_files.write(tmp_path, name))
    features, logits = map(np.asarray, ours(model))
    tower = model.spec.tower
    seen = tower.num_used * max(tower.width, tower.mlp_width) + tower.width + model.spec.text.width
    expected = vision_files.golden()[name]
    assert np.abs(expected["logits"]).max() > 0.25
    assert_logits(features[:, ::3, ::5], np.asarray(expected["features"]), seen)
    chain = seen + roundings(model.spec.text, logits.shape[1])
    assert_logits(logits[:, ::5, ::7], np.asarray(expected["logits"]), chain)


@pytest.fixture
def folder(tmp_path):
    return vision_files.write(tmp_path / "model", "llava-1.5")


def test_unused_layers_change_nothing_and_may_be_absent(folder):
    before = ours(vision.load_vision_language(folder))[1]
    stored = load_file(folder / "model.safetensors")
    unused = [name for name in stored if "encoder.layers.2." in name or "post_layernorm" in name]
    assert len(unused) == 18
    save_file({name: value for name, value in stored.items() if name not in unused}, folder / "model.safetensors")
    np.testing.assert_array_equal(ours(vision.load_vision_language(folder))[1], before)


def test_features_take_the_places_of_the_placeholders(folder):
    """The two rows differ in the image alone before the first placeholder, and in everything after it."""
    model = vision.load_vision_language(folder)
    spec, placed = model.spec, vision_files.tokens(9)[:1].repeat(2, axis=0)
    features = np.asarray(features_of(spec, model.params, vision_files.images()))
    embedded = np.asarray(embedded_of(spec, model.params, placed, features))
    is_image = placed[0] == IMAGE
    np.testing.assert_array_equal(embedded[:, is_image], features)
    np.testing.assert_array_equal(
        embedded[0, ~is_image], np.asarray(model.params["text"]["embedding"]["tokens"])[placed[0, ~is_image]]
    )
    logits = np.asarray(logits_of(spec, model.params, placed, features))
    np.testing.assert_array_equal(logits[0, :1], logits[1, :1])
    assert np.abs(logits[0, 1:] - logits[1, 1:]).max(-1).min() > 1e-3


def test_a_row_with_another_number_of_placeholders_is_nan(folder):
    model = vision.load_vision_language(folder)
    placed = vision_files.tokens(9)
    placed[1, -1] = IMAGE
    features = features_of(model.spec, model.params, vision_files.images())
    embedded = np.asarray(embedded_of(model.spec, model.params, placed, features))
    assert np.isfinite(embedded[0]).all()
    assert np.isnan(embedded[1]).all()


def test_placeholders(folder):
    spec = vision.load_vision_language(folder).spec
    np.testing.assert_array_equal(vision.with_placeholders(spec, [1, IMAGE, 2]), [1, *[IMAGE] * 9, 2])
    with pytest.raises(InputError, match="once, got it 2 times"):
        vision.with_placeholders(spec, [IMAGE, 1, IMAGE])
    with pytest.raises(InputError, match=r"images must be \[B, 3, 12, 12\], got \[1, 3, 8, 8\]"):
        vision.image_features(spec, {}, np.zeros((1, 3, 8, 8)))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "llava_next"}, "'llava_next'; supported with images: 'llava'"),
        ({"vision_feature_layer": [-2, -5]}, "must be one number"),
        ({"vision_feature_layer": -4}, "after layer 0 of 3"),
        ({"projector_hidden_act": "relu"}, "projector_hidden_act"),
        ({"image_token_index": 48}, "outside the vocabulary of 48"),
        ({"spatial_merge": 2}, "unknown keys spatial_merge"),
        ({"text_config": {"model_type": "gpt2"}}, "text_config is 'gpt2'; supported: llama, mistral"),
        ({"vision_config": {"model_type": "siglip_vision_model"}}, "supported: clip_vision_model"),
        ({"vision_config": None}, "needs a vision_config"),
    ],
)
def test_unsupported_configurations(folder, change, message):
    config = CONFIGURATIONS["llava-1.5"]
    (folder / "config.json").write_text(json.dumps({**config, **change}))
    with pytest.raises(InputError, match=message):
        vision.load_vision_language(folder)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("lm_head.weight", None, "lacks 1 of"),
        ("model.vision_tower.other.weight", np.zeros(2, np.float32), "has 1 tensors that the architecture has not"),
        ("model.multi_modal_projector.linear_1.bias", np.zeros(3, np.float32), r"\[3\] instead of \[16\]"),
        ("model.vision_tower.post_layernorm.bias", np.zeros(3, np.float32), r"\[3\] instead of \[24\]"),
        ("model.multi_modal_projector.linear_1.bias", np.full(16, np.nan, np.float32), "NaN"),
        ("vision_tower.pre_layrnorm.bias", np.zeros(24, np.float32), "has 1 tensors that the architecture has not"),
    ],
)
def test_damaged_weights(folder, name, value, message):
    stored = load_file(folder / "model.safetensors")
    stored = {**stored, name: value}
    save_file({key: kept for key, kept in stored.items() if kept is not None}, folder / "model.safetensors")
    with pytest.raises(InputError, match=message):
        vision.load_vision_language(folder)


def test_another_normalisation_is_refused(folder):
    (folder / "preprocessor_config.json").write_text(json.dumps({"image_mean": [0.5, 0.5, 0.5]}))
    with pytest.raises(InputError, match="only CLIP's"):
        vision.load_vision_language(folder)


def test_bfloat16(folder):
    model = vision.load_vision_language(folder, dtype="bfloat16")
    assert {leaf.dtype.name for leaf in jax.tree.leaves(model.params)} == {"bfloat16"}
    expected = ours(vision.load_vision_language(folder))[1]
    assert 0 < np.abs(ours(model)[1] - expected).max() < 0.05


def picture(width, height, mode="RGB"):
    from PIL import Image

    numbers = np.random.default_rng(width).integers(0, 256, (height, width, 3), np.uint8)
    return Image.fromarray(numbers).convert(mode)


SIZES = [(20, 20), (37, 20), (20, 37), (5, 64), (336, 336), (401, 300)]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("mode", ["RGB", "L", "P", "RGBA", "CMYK"])
def test_pixels_equal_transformers(size, mode):
    """transformers' processor on PIL and numpy, with the padding of LLaVA-1.5."""
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    processor = LlavaImageProcessorPil(do_pad=True, size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    expected = processor(picture(*size, mode), return_tensors="np")["pixel_values"][0]
    # x / 255, less the mean, by the deviation: three roundings here and three there, of at most 1 / the deviation
    found = vision.pixels(picture(*size, mode), 24)
    rounding.assert_close(found, expected, roundings=6, scale=1 / min(vision.STD))


def test_pixels_pad_with_the_mean_colour():
    found = vision.pixels(picture(40, 10), 40)
    assert found.shape == (3, 40, 40)
    mean = np.floor(255 * np.asarray(vision.MEAN)) / 255
    expected = (mean - vision.MEAN) / vision.STD
    padded = np.broadcast_to(expected[:, None, None], (3, 4, 40))
    rounding.assert_close(found[:, [0, 14, 25, 39]], padded, roundings=3, scale=1 / min(vision.STD))
    assert np.ptp(found[:, 20]) > 1


@pytest.mark.parametrize("orientation", [3, 6])
def test_an_orientation_in_exif_turns_nothing(orientation, tmp_path):
    """As transformers' processor takes an image that is open, and as LLaVA-1.5 was trained."""
    from PIL import Image, ImageOps
    from transformers.models.llava.image_processing_pil_llava import LlavaImageProcessorPil

    exif = Image.Exif()
    exif[0x0112] = orientation
    picture(37, 20).save(tmp_path / "turned.png", exif=exif)
    processor = LlavaImageProcessorPil(do_pad=True, size={"shortest_edge": 24}, crop_size={"height": 24, "width": 24})
    with Image.open(tmp_path / "turned.png") as image:
        assert image.getexif()[0x0112] == orientation
        expected = processor(image, return_tensors="np")["pixel_values"][0]
        found = vision.pixels(image, 24)
        turned = vision.pixels(ImageOps.exif_transpose(image), 24)
    rounding.assert_close(found, expected, roundings=6, scale=1 / min(vision.STD))
    np.testing.assert_array_equal(found, vision.pixels(picture(37, 20), 24))
    assert np.abs(turned - found).max() > 0.1
