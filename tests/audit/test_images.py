"""Scores of images by slice, against the published code's arithmetic written anew in numpy."""

import csv
import functools
import io
import tracemalloc

import jax
import jax.numpy as jnp
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import vision_files
from PIL import Image

import tdd
from tdd.audit import images as scoring
from tdd.audit.image_files import image_rows
from tdd.audit.images import _DESCRIPTION, INSTRUCTION, SLICES, _batch_size, _read_and_describe, of_slice
from tdd.cli import main
from tdd.device_kinds import DeviceKind
from tdd.models import decoder, vision
from tdd.validate import InputError

ORDERS = ("0.5", "1", "2", "inf")


def picture(seed, size=(16, 12)):
    from PIL import Image

    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (*size[::-1], 3), np.uint8))


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small LLaVA whose tokenizer knows the words of the prompt."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    loaded = vision.load_vision_language(vision_files.write(tmp_path_factory.mktemp("llava"), "llava-1.5"))
    words = ["<unk>", "</s>", "USER:", "ASSISTANT:", *INSTRUCTION.split()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return loaded._replace(
        tokenizer=PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    )


@functools.partial(jax.jit, static_argnums=0)
def all_logits(spec, params, prompt, written, image):
    """Logits of a prompt and what was written after it, in one pass; the image's token may be written too."""
    features = vision.image_features(spec, params, image[None])
    words = decoder.embed(spec.text, params["text"], written[None])
    stream = jnp.concatenate([vision.embed(spec, params, prompt[None], features), words], axis=1)
    return (decoder.trunk(spec.text, params["text"], stream) @ decoder.readout(spec.text, params["text"]).T)[0]


def described(model, image):
    """Tokens of prompt and description, made by one whole pass for each, the prompt's length, and logits [T, V]."""
    pixels = vision.pixels(image, 12)
    prompt = np.asarray([2, *[vision_files.IMAGE] * 9, 4, 5, 6, 7, 3], np.int32)
    written, length = np.zeros(_DESCRIPTION, np.int32), 0
    while True:
        logits = np.asarray(all_logits(model.spec, model.params, prompt, written, pixels))[: len(prompt) + length]
        if length == _DESCRIPTION or (word := int(logits[-1].argmax())) == 1:
            return np.append(prompt, written[:length]), len(prompt), logits
        written[length], length = word, length + 1


def renyi(p, order):
    """Rows of probabilities -> Renyi entropies; order inf is that of the largest probability."""
    if order == "1":
        return -(p * np.log(p)).sum(-1)
    if order == "inf":
        return -np.log(p.max(-1))
    alpha = float(order)
    return np.log((p**alpha).sum(-1)) / (1 - alpha)


def published_scores(logits, slices, order, k, least=1e-10):
    """Logits of a slice's own positions stand beside the slice's tokens from the second on: the last row has none."""
    scores = []
    for start, stop in slices:
        z = logits[start:stop].astype(np.float64)
        p = np.exp(z - z.max(-1, keepdims=True))
        p = np.maximum(p / p.sum(-1, keepdims=True), least)
        entropies = [renyi(p[i : i + 1], order)[0] for i in range(stop - start - 1)]
        chosen = sorted(entropies, reverse=True)[: max(1, int(len(entropies) * k))]
        scores.append(np.mean(chosen))
    return np.array(scores)


def shifted_scores(logits, slices, order, k):
    """Each of a slice's tokens with the distribution that predicts it."""
    return published_scores(logits, [(start - 1, stop) for start, stop in slices], order, k)


@pytest.mark.parametrize("k", ["0.1", "1"])
@pytest.mark.parametrize("published", [True, False])
def test_equals_the_published_arithmetic(model, published, k):
    image = picture(1)
    tokens, num_prompt, logits = described(model, image)
    slices = [(1, 10), (10, len(tokens)), (10, num_prompt), (num_prompt, len(tokens))]
    names = [f"max_renyi:gamma={order},k={k}" for order in ORDERS]
    table = tdd.score_images(model, [{"image": png(image)}], names, published=published, progress=False)
    for name, order in zip(names, ORDERS, strict=True):
        ours = np.array([table[f"{name} {part}"][0] for part in SLICES])
        reference = published_scores if published else shifted_scores
        other = shifted_scores if published else published_scores
        np.testing.assert_allclose(ours, reference(logits, slices, order, float(k)), rtol=2e-5)
        if k == "1":  # the largest entropy alone is in both
            assert np.abs(ours - other(logits, slices, order, 1)).max() > 1e-4
    assert table.num_tokens[0] == len(tokens) - 1


def test_probabilities_are_raised_as_published(model):
    """A readout so large that many probabilities are below 1e-10."""
    head = {"kernel": 60 * model.params["text"]["head"]["kernel"]}
    sure = model._replace(params={**model.params, "text": {**model.params["text"], "head": head}})
    tokens, num_prompt, logits = described(sure, picture(2))
    slices = [(1, 10), (10, len(tokens)), (10, num_prompt), (num_prompt, len(tokens))]
    table = tdd.score_images(
        sure, [{"image": png(picture(2))}], "max_renyi:gamma=0.5,k=1", published=True, progress=False
    )
    ours = np.array([table[f"max_renyi:gamma=0.5,k=1 {part}"][0] for part in SLICES])
    np.testing.assert_allclose(ours, published_scores(logits, slices, "0.5", 1), rtol=1e-3)
    assert np.abs(ours / published_scores(logits, slices, "0.5", 1, least=0) - 1).max() > 3e-3


OTHER_TOWERS = ("gelu, first layer, class token", "all layers, no biases in the projector")
"""Images that are read in another way, by both passes alike; the golden logits have them too."""


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=pytest.mark.slow("grid") if name in OTHER_TOWERS else ())
        for name in vision_files.CONFIGURATIONS
    ],
)
def test_descriptions_from_the_cache_equal_whole_passes(name, tmp_path):
    """The description is greedy, windows shorter than the prompt among them; the twin is shifted by one position."""
    loaded = vision.load_vision_language(vision_files.write(tmp_path, name))
    tower = loaded.spec.tower
    images = np.stack([vision.pixels(picture(seed), tower.image_size) for seed in range(2)])
    prompt = np.asarray([2, *[vision_files.IMAGE] * tower.num_features, 4, 5, 6, 7, 3], np.int32)
    words, columns = jax.device_get(_read_and_describe(loaded.spec, loaded.params, images, prompt, False))
    for row, image in enumerate(images):
        whole = np.asarray(all_logits(loaded.spec, loaded.params, prompt, words[row], image), np.float64)
        np.testing.assert_array_equal(words[row], whole[len(prompt) - 1 : -1].argmax(-1))
        p = np.exp(whole - whole.max(-1, keepdims=True))
        entropy = renyi(p / p.sum(-1, keepdims=True), "1")[:-1]
        np.testing.assert_allclose(-columns["mu"][row], entropy, rtol=2e-5)
        assert np.abs(-columns["mu"][row][1:] - entropy[:-1]).max() > 1e-3


@pytest.mark.parametrize("published", [pytest.param(True, marks=pytest.mark.slow("grid")), False])
def test_an_image_in_a_batch_is_as_alone(model, published, monkeypatch):
    """Five images in batches of four, so that the last is filled up; twins: the descriptions differ between images."""
    table = [{"image": png(picture(seed))} for seed in range(5)]
    alone = tdd.score_images(model, table, published=published, progress=False)
    monkeypatch.setattr(scoring, "_batch_size", lambda *_: 4)
    together = tdd.score_images(model, table, published=published, progress=False)
    np.testing.assert_array_equal(together.num_tokens, alone.num_tokens)
    for name in alone.values:
        np.testing.assert_allclose(together[name], alone[name], rtol=1e-5)
        assert len(set(alone[name])) == 5


def test_what_precedes_an_unreadable_image_is_kept(model, tmp_path, monkeypatch):
    """The third of four cannot be read; the two before it are in the store, though all are in one batch."""
    table = [{"id": f"a{seed}", "image": png(picture(seed))} for seed in range(4)]
    table[2]["image"] = table[2]["image"][:200]
    rows, files = image_rows(table, "image")
    texts = tdd.load_texts(rows, text_field="image")
    monkeypatch.setattr(scoring, "_batch_size", lambda *_: 4)
    options = {"files": files, "store": tmp_path / "store", "progress": False}
    with pytest.raises(InputError, match="index 2: the image cannot be read"):
        scoring.score_image_files(model, texts, {"max_renyi image": of_slice("max_renyi image")}, **options)
    monkeypatch.setattr(scoring, "_read_and_describe", None)  # nothing is computed again
    before = tdd.load_texts(image_rows(table[:2], "image")[0], text_field="image")
    found = scoring.score_image_files(model, before, {"max_renyi image": of_slice("max_renyi image")}, **options)
    assert np.isfinite(found["max_renyi image"]).all()


def test_parameters_may_be_numpy_arrays(model):
    table = [{"image": png(picture(0))}]
    found = tdd.score_images(model._replace(params=jax.tree.map(np.asarray, model.params)), table, progress=False)
    expected = tdd.score_images(model, table, progress=False)
    for name in expected.values:
        np.testing.assert_array_equal(found[name], expected[name])


def test_smaller_batches_after_a_memory_error(model, monkeypatch, caplog):
    table, sizes = [{"image": png(picture(seed))} for seed in range(5)], []
    expected = tdd.score_images(model, table, progress=False)

    def compute(spec, params, images, *rest):
        sizes.append(len(images))
        if len(images) > 2:
            raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate 9 bytes.")
        return _read_and_describe(spec, params, images, *rest)

    monkeypatch.setattr(scoring, "_batch_size", lambda *_: 32)
    monkeypatch.setattr(scoring, "_read_and_describe", compute)
    found = tdd.score_images(model, table, progress=False)
    assert sizes == [5, 2, 2, 2]
    assert "out of memory: going on with batches of 2 images" in caplog.text
    for name in expected.values:
        np.testing.assert_allclose(found[name], expected[name], rtol=1e-5)


def test_batches_follow_the_device(model):
    """One image on a CPU; on an accelerator what fits beside the model, from 1 to 32."""
    assert _batch_size(model, 15, DeviceKind("cpu", None)) == 1
    size = sum(leaf.nbytes for leaf in jax.tree.leaves(model.params))
    found = [_batch_size(model, 15, DeviceKind("gpu", size + room)) for room in (0, 2**20, 2**22, 2**40)]
    assert found[0] == 1 < found[1] < found[2] <= found[3] == 32


def test_paths_bytes_and_records_agree(model, tmp_path):
    (tmp_path / "pictures").mkdir()
    for seed in range(3):
        picture(seed).save(tmp_path / "pictures" / f"{seed}.png")
    paths = [f"pictures/{seed}.png" for seed in range(3)]
    data = [(tmp_path / path).read_bytes() for path in paths]
    (tmp_path / "table.csv").write_text("id,image\n" + "".join(f"a{i},{path}\n" for i, path in enumerate(paths)))
    pq.write_table(pa.table({"id": ["a0", "a1", "a2"], "photo": data}), tmp_path / "table.parquet")
    by_path = tdd.score_images(model, tmp_path / "table.csv", progress=False)
    by_bytes = tdd.score_images(model, tmp_path / "table.parquet", image_field="photo", progress=False)
    records = tdd.score_images(model, [{"image": {"bytes": one, "path": None}} for one in data], progress=False)
    assert by_path.ids == by_bytes.ids == ("a0", "a1", "a2")
    assert records.ids == ("1", "2", "3")
    assert [*by_path.values] == [f"max_renyi:gamma=0.5,k=0.1 {part}" for part in SLICES]
    for name in by_path.values:
        np.testing.assert_array_equal(by_path[name], by_bytes[name])
        np.testing.assert_array_equal(by_path[name], records[name])
        assert len(set(by_path[name])) > 1


@pytest.mark.slow("long")
def test_memory_does_not_grow_with_the_number(model):
    """100 images of 336 pixels: one more in memory at most than for 10."""
    data = [png(picture(seed, (336, 336))) for seed in range(100)]
    peaks = []
    for count in (10, 10, 100):
        table = [{"image": one} for one in data[:count]]
        tracemalloc.start()
        assert len(tdd.score_images(model, table, progress=False)) == count
        peaks.append(tracemalloc.get_traced_memory()[1])
        tracemalloc.stop()
    assert peaks[2] < peaks[1] + 336 * 336 * 3


@pytest.mark.parametrize(
    ("table", "options", "message"),
    [
        ([{"image": b"no image"}], {}, "cannot be read"),
        ([{"image": b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n"}], {}, "cannot be read"),
        ([{"image": "absent.png"}], {}, "no image file 'absent.png'"),
        ([{"image": 3}], {}, "must be a path or the bytes of a file, got int"),
        ([{"picture": b""}], {}, "image_field"),
        ([{"image": b""}], {"scores": "loss"}, "'loss' needs target tokens"),
        ([{"image": b""}], {"scores": "max_renyi:gamma=3"}, "the orders are 0.5, 1, 2 and inf"),
    ],
)
def test_bad_input(model, table, options, message):
    with pytest.raises(InputError, match=message):
        tdd.score_images(model, table, progress=False, **options)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (png(Image.new("1", (100_000, 1))), "100000 x 1 pixels are too many to pad to a square"),
        (png(Image.new("I;16", (9, 9))), "mode I;16; convert them to 8 bits a channel"),
        ("iVBOR" * 1000, "an encoded image must be bytes"),
        ("a\0b", "there is no image file"),
    ],
    ids=["wide", "16 bits", "base64", "null"],
)
def test_pictures_that_would_be_read_wrongly(model, value, message):
    with pytest.raises(InputError, match=message):
        tdd.score_images(model, [{"image": value}], progress=False)


def test_command(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(vision, "load_vision_language", lambda *_, **__: model)
    pq.write_table(pa.table({"id": ["a", "b"], "photo": [png(picture(0)), png(picture(1))]}), tmp_path / "in.parquet")
    command = ["score", "model", str(tmp_path / "in.parquet"), "--images", "photo", "--out", str(tmp_path / "out.csv")]
    assert main([*command, "--score", "max_renyi:gamma=1;k=1"]) == 0
    with open(tmp_path / "out.csv", newline="") as file:
        header, *rows = csv.reader(file)
    assert header == ["id", "num_tokens", *(f"max_renyi:gamma=1,k=1 {part}" for part in SLICES)]
    expected = tdd.score_images(
        model, tmp_path / "in.parquet", "max_renyi:gamma=1,k=1", image_field="photo", progress=False
    )
    assert [float(row[2]) for row in rows] == [*expected["max_renyi:gamma=1,k=1 image"]]
    capsys.readouterr()
    for option in (("--max-length", "9"), ("--long-texts", "truncate"), ("--ray", "host:1")):
        assert main([*command, *option]) != 0
        assert f"{option[0]} is for texts" in capsys.readouterr().err
