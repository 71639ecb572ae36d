"""Drawn images, and the study of slices with a model and pools that are smaller still."""

import json

import jax
import numpy as np
import pytest

from benchmarks import slice_tables, slices
from benchmarks.drawn_images import VOCABULARY, draw
from tdd.models import vision

SMALL = {
    "MEMBERS": 16, "NONMEMBERS": 16, "BACKGROUND": 16, "EPOCHS": 2, "SIZE": 14, "TOWER_WIDTH": 16, "TOWER_LAYERS": 1,
    "WIDTH": 16, "LAYERS": 1, "REPETITIONS": 200, "DIVISIONS": 20, "GAMMAS": ("0.5",), "SHARES": ("0.1", "1"),
    "PROPORTIONS": (0.5,), "NOTHING": (23, 6),
}  # fmt: skip


@pytest.fixture
def small(monkeypatch):
    for name, value in SMALL.items():
        monkeypatch.setattr(slices, name, value)


def test_images_differ_and_are_what_the_caption_says():
    drawn = draw(40, 28, 7)
    assert len({image.tobytes() for image in drawn.images}) == 40
    assert {word for caption in drawn.captions for word in caption.split()} <= set(VOCABULARY)
    np.testing.assert_array_equal(draw(3, 28, 7).images, drawn.images[:3])
    assert draw(3, 28, 8).captions != drawn.captions[:3]
    for image, caption in zip(drawn.images, drawn.captions, strict=True):
        lightness = np.median(image)
        ground = caption.split()[caption.split().index("on") + 1]
        assert {"white": lightness > 200, "grey": 100 < lightness < 200, "black": lightness < 100}[ground], caption


def test_parameters_have_the_shapes_of_a_checkpoint(small):
    """What the tower reads from files has the same names and shapes."""
    spec, _ = slices.tiny()
    params = jax.eval_shape(lambda key: slices.initial(spec, key), jax.random.key(0))
    stored = {slot.path: slot for slot in vision._tower_slots(spec.tower)}
    found = {
        tuple(entry.key for entry in path): leaf.shape
        for path, leaf in jax.tree_util.tree_leaves_with_path({"tower": params["tower"]})
    }
    assert found.keys() == stored.keys()
    for path in (("tower", "positions", "rows"), ("tower", "patches", "kernel")):
        assert found[path] == stored[path].pieces[0].shape


@pytest.mark.slow("training")
def test_one_seed(small):
    found = json.loads(json.dumps(slices.measure(3)))
    assert found["losses"][1] < found["losses"][0]
    assert 0 <= found["description_tokens"] <= 32
    assert len(found["auc"]) == 2 * 2 * 4
    joined = slices.joined([found, found])
    assert [row["auc_se"] for row in joined["auc"]] == [0] * 16
    for row in joined["ptdi"] + joined["proportions"]:
        assert 0 <= row["fdr"] <= 1
        assert 0 <= row["power"] <= 1
    page = slice_tables.slices({**joined, "command": "x"})
    assert page.count("\n| `max_renyi:gamma=0.5,k=1` |") == 5
    assert "Nothing to find" in page
