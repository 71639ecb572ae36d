"""Audits of images: the road from tables to a run folder, near copies, and the blind baseline with its false alarms."""

import base64
import functools
import io

import numpy as np
import pytest
import vision_files
from PIL import Image, ImageEnhance
from scipy.stats import binom

import tdd
from tdd.audit.blind_baseline import blind_baseline
from tdd.audit.image_checks import NEAR, image_marks, look, near_images, similarities, view
from tdd.audit.images import INSTRUCTION
from tdd.audit.preparation import preparation
from tdd.cli import main
from tdd.models import vision
from tdd.report import folder_report
from tdd.report.page import to_markdown
from tdd.runs.folder import to_csv
from tdd.validate import InputError

SCORE = "max_renyi:gamma=0.5,k=0.1 image"


@functools.cache
def drawn(seed, size=(72, 54)):
    """A smooth picture of random colours with grain, of random size."""
    rng = np.random.default_rng(seed)
    width, height = (int(side * rng.uniform(0.7, 1.4)) for side in size)
    small = rng.normal(size=(6, 8, 3)).cumsum(0).cumsum(1)
    small = (small - small.min()) / np.ptp(small) * rng.uniform(100, 255)
    smooth = Image.fromarray(small.astype(np.uint8)).resize((width, height), Image.Resampling.BICUBIC)
    grain = rng.normal(0, rng.uniform(1, 12), (height, width, 3))
    return Image.fromarray(np.clip(np.asarray(smooth) + grain, 0, 255).astype(np.uint8))


def jpeg(image, quality=85):
    buffer = io.BytesIO()
    image.save(buffer, "JPEG", quality=quality)
    return buffer.getvalue()


@functools.cache
def file_of(seed):
    return jpeg(drawn(seed))


def seen(*files):
    """SHA-256 stand-ins -> looks."""
    return {f"{i:064x}": look(Image.open(io.BytesIO(data)), len(data)) for i, data in enumerate(files)}


def table(first, count, **columns):
    rows = [{"id": f"i{seed}", "image": file_of(seed)} for seed in range(first, first + count)]
    return [{**row, **{name: values[i] for name, values in columns.items()}} for i, row in enumerate(rows)]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    loaded = vision.load_vision_language(vision_files.write(tmp_path_factory.mktemp("llava"), "llava-1.5"))
    words = ["<unk>", "</s>", "USER:", "ASSISTANT:", *INSTRUCTION.split()]
    tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="</s>")
    return loaded._replace(tokenizer=fast)


def test_an_audit_of_images(model, tmp_path):
    candidates = table(0, 20, label=[1, 0] * 10)
    known = table(100, 30)
    options = {"alpha": 0.2, "image_field": "image", "progress": False}
    audit = tdd.run_audit(
        model,
        candidates,
        known,
        extra_scores=["max_renyi description"],
        label_field=None,
        out=tmp_path / "a",
        **options,
    )
    scores = tdd.score_images(model, candidates, progress=False)
    np.testing.assert_array_equal(audit.items[SCORE], scores[SCORE])
    direct = tdd.ptdi(audit.calibration[SCORE], audit.items[SCORE], alpha=0.2)
    np.testing.assert_array_equal(direct.selected, audit.items["selected"])
    assert {"duplicates", "sharing", "blind_baseline"} <= audit.run["checks"].keys()
    assert "overlap" not in audit.run["checks"]
    assert audit.run["checks"]["blind_baseline"]["warning"] == ""
    with pytest.raises(InputError, match="holds a run of other inputs"):
        tdd.run_audit(model, candidates, known[1:], out=tmp_path / "a", **options)


def test_the_same_folder_continues_from_its_store(model, tmp_path, monkeypatch):
    options = {"alpha": 0.2, "image_field": "image", "progress": False, "out": tmp_path / "a"}
    first = tdd.run_audit(model, table(0, 12), table(100, 12), **options)
    monkeypatch.setattr("tdd.audit.images._read_and_describe", None)  # nothing is computed again
    again = tdd.run_audit(model, table(0, 12), table(100, 12), **options)
    np.testing.assert_array_equal(first.items[SCORE], again.items[SCORE])


def test_clusters_and_labels(model):
    candidates = table(0, 12, label=[1, 0] * 6, album=[str(i // 2) for i in range(12)])
    known = table(100, 24, label=[0] * 24, album=[f"k{i // 2}" for i in range(24)])
    audit = tdd.run_audit(
        model, candidates, known, alpha=0.2, image_field="image", label_field="label", group_field="album",
        progress=False,
    )  # fmt: skip
    assert audit.run["decision"]["unit"] == "cluster"
    assert audit.run["decision"]["num_calibration"] == 12
    wrong = table(100, 4, label=[0, 1, 0, 0])
    with pytest.raises(InputError, match="labelled as member"):
        tdd.run_audit(model, table(0, 2, label=[0, 1]), wrong, alpha=0.2, image_field="image", label_field="label")


def test_copies_are_found(model):
    known = table(100, 40)
    copies = [{"id": f"c{i}", "image": row["image"]} for i, row in enumerate(known[:3])]
    darker = [{"id": "d", "image": jpeg(ImageEnhance.Brightness(drawn(110)).enhance(0.9), 60)}]
    audit = tdd.run_audit(model, table(0, 30) + copies + darker, known, alpha=0.2, image_field="image", progress=False)
    found = audit.run["checks"]["duplicates"]
    assert (found["num_exact_pairs"], found["num_near_pairs"]) == (3, 1)
    assert "4 candidates are copies or near copies (fraction of equal bits" in found["warning"]
    assert found["pairs"][3]["candidate"] == "d"


def test_command(model, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("tdd.audit.run.list_of_models", lambda *_, **__: [model])
    monkeypatch.setattr("tdd.audit.pictures.check_vision_language", lambda *_, **__: None)
    for name, first, count in (("candidates", 0, 12), ("calibration", 100, 20)):
        (tmp_path / name).mkdir()
        rows = table(first, count)
        for row in rows:
            (tmp_path / name / f"{row['id']}.jpg").write_bytes(row["image"])
        lines = [f"{row['id']},{name}/{row['id']}.jpg\n" for row in rows]
        (tmp_path / f"{name}.csv").write_text("id,photo\n" + "".join(lines))
    command = ["audit", "model", "--alpha", "0.2", "--images", "photo", "--score", SCORE]
    for name in ("candidates", "calibration"):
        command += [f"--{name}", str(tmp_path / f"{name}.csv")]
    assert main([*command, "--out", str(tmp_path / "run")]) == 0
    assert f"score │ {SCORE} (lower = more" in " ".join(capsys.readouterr().out.split())
    expected = tdd.run_audit(
        model, tmp_path / "candidates.csv", tmp_path / "calibration.csv", alpha=0.2, image_field="photo", progress=False
    )
    assert (tmp_path / "run" / "items.csv").read_bytes() == b"".join(to_csv(expected.items))
    assert main([*command, "--max-length", "9"]) != 0
    assert "--max-length: for texts" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"method": "ktd"}, "needs knockoffs"),
        ({"text_field": "image"}, "text_field: for texts"),
        ({"max_length": 9}, "max_length: for texts"),
        ({"max_length": 0}, "max_length: for texts"),
        ({"flagged": np.array(["i0", "i1"])}, "flagged: for texts"),
        ({"device": "cpu"}, "device: images are computed on JAX's default device"),
        ({"shard": "0/2"}, "shard: for texts"),
        ({"score": "loss image"}, "needs target tokens"),
        ({"score": "max_renyi"}, "names no slice"),
        ({"image_field": "photo"}, "image_field='photo'"),
    ],
    ids=str,
)
def test_what_does_not_apply_is_refused(model, options, message):
    options = {"image_field": "image", "alpha": 0.2, "progress": False} | options
    with pytest.raises(InputError, match=message):
        tdd.run_audit(model, table(0, 2), table(100, 2), **options)


def test_hashes_forgive_compression_scale_and_brightness():
    for seed in range(10):
        image = drawn(seed, (160, 120))
        changed = [jpeg(image, 40), jpeg(image.resize((90, 70))), jpeg(ImageEnhance.Brightness(image).enhance(0.8))]
        found = seen(jpeg(image), *changed)
        names = list(found)
        (_, right, similarity), complete = near_images(found, names[:1], names[1:], NEAR)
        assert complete
        assert sorted(right) == [0, 1, 2]
        assert (similarity >= NEAR).all()
    others = seen(*map(file_of, range(60)))
    names = list(others)
    assert near_images(others, names, names, NEAR)[0][0].size == 0


def test_flat_images_have_no_hash():
    flat = seen(jpeg(Image.new("RGB", (40, 30), (9, 9, 9))), jpeg(Image.new("RGB", (40, 30), (200, 9, 9))))
    names = list(flat)
    assert near_images(flat, names[:1], names[1:], NEAR)[0][0].size == 0


def found_between(known, unknown, seed=0):
    both = seen(*known, *unknown)
    names = list(both)
    return blind_baseline(names[: len(known)], names[len(known) :], seed=seed, view=view(both))


@pytest.mark.parametrize(
    "change",
    [
        lambda image: jpeg(image, 40),
        lambda image: jpeg(ImageEnhance.Brightness(image).enhance(0.6)),
        lambda image: jpeg(image.resize((2 * image.width, 2 * image.height))),
    ],
    ids=["quality", "brightness", "size"],
)
def test_shifts_are_found(change):
    found = found_between([*map(file_of, range(60))], [change(drawn(seed)) for seed in range(100, 160)])
    assert found.warning
    assert "colours, edges, size, format and bytes a pixel alone tell them apart" in found.warning


def png(image):
    buffer = io.BytesIO()
    image.save(buffer, "PNG")
    return buffer.getvalue()


def turned(image):
    """The file says that a viewer is to turn the picture."""
    buffer, exif = io.BytesIO(), Image.Exif()
    exif[0x0112] = 6
    image.save(buffer, "JPEG", quality=85, exif=exif)
    return buffer.getvalue()


@pytest.mark.parametrize(
    ("change", "mark"),
    [
        (lambda image: jpeg(image, 84), "JPEG quantisation tables"),
        (png, "format"),
        (turned, "orientation by EXIF"),
        (lambda image: jpeg(image.resize((64, 48))), "width 64"),
        (jpeg, ""),
    ],
    ids=["quality", "format", "orientation", "size", "none"],
)
def test_marks_of_files(change, mark):
    files = [change(drawn(seed)) for seed in range(40)], [jpeg(drawn(seed)) for seed in range(100, 140)]
    both = seen(*files[0], *files[1])
    names = list(both)
    marks = functools.partial(image_marks, both)
    found = preparation(names[:40], names[40:], seed=0, level=0.0025, marks=marks)
    assert bool(found.warning) == bool(mark)
    assert mark in found.warning


def alarms(rounds, twin=False):
    """Alarms where nothing differs; the twin standardises each role by itself, which tells the roles apart."""
    count = 0
    for seed in range(rounds):
        both = seen(*(jpeg(drawn(1000 * seed + i)) for i in range(24)))
        names = list(both)
        if twin:
            means = [np.mean([both[name].features for name in part], 0) for part in (names[:12], names[12:])]
            for i, name in enumerate(names):
                both[name] = both[name]._replace(features=both[name].features - means[i // 12] + i // 12)
        count += bool(blind_baseline(names[:12], names[12:], seed=seed, view=view(both)).warning)
    return count


@pytest.mark.slow("long")
def test_false_alarms_are_rare():
    """At level 1%, more than 5 alarms in 60 comparisons have a chance below 1e-4; the twin exceeds them."""
    assert binom.sf(5, 60, 0.01) < 1e-4
    assert alarms(60) <= 5
    assert alarms(12, twin=True) > 5


def test_similarities_ignore_what_is_constant():
    both = seen(*map(file_of, range(6)))
    names = list(both)
    plain = similarities(both, names)
    shifted = {name: one._replace(features=np.append(one.features, 7.0)) for name, one in both.items()}
    np.testing.assert_array_equal(similarities(shifted, names), plain)
    assert plain.dtype == np.float32


def test_cells_may_be_paths(model, tmp_path):
    (tmp_path / "a.jpg").write_bytes(jpeg(drawn(0)))
    of_path = tdd.score_images(model, [{"image": tmp_path / "a.jpg"}], progress=False)
    assert of_path[SCORE] == tdd.score_images(model, table(0, 1), progress=False)[SCORE]


def test_the_report_shows_selected_images(model, tmp_path):
    candidates, options = table(0, 12), {"image_field": "image", "progress": False, "out": tmp_path / "run"}
    candidates = [{**row, "id": f"<b>{place}</b>"} for place, row in enumerate(candidates)]
    audit = tdd.run_audit(model, candidates, table(100, 12), alpha=0.99, method="ptdi:proportion=none", **options)
    shown = audit.run["thumbnails"]
    assert {name for name, _ in shown} == {*audit.selected_ids}
    assert len(shown) >= 2
    for _, image in shown:
        assert max(Image.open(io.BytesIO(base64.b64decode(image))).size) <= 96
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    assert page.count("data:image/jpeg;base64,") == len(shown)
    assert "<b>" not in page
    assert f"{len(shown)} of {len(shown)} selected images" in to_markdown(folder_report(tmp_path / "run")[1])


def test_an_unusable_model_is_reported_before_any_image_is_read(tmp_path):
    options = {"alpha": 0.2, "image_field": "image", "progress": False}
    unreadable = [{"image": b"no image"}]
    with pytest.raises(InputError, match="absent"):
        tdd.run_audit(str(tmp_path / "absent"), unreadable, unreadable, **options)
    with pytest.raises(InputError, match=r"config\.json"):
        tdd.run_audit(str(tmp_path), unreadable, unreadable, **options)


def test_known_members_and_copies(model):
    """Scores of members decide the estimated proportion; a copy has the score of its image, under its own name."""
    candidates, known, members = table(0, 12), table(100, 20), table(300, 15)
    candidates.append({**candidates[3], "id": "copy"})
    options = {"alpha": 0.5, "image_field": "image", "progress": False}
    audit = tdd.run_audit(model, candidates, known, members=members, method="ptdi:proportion=moment", **options)
    assert audit.items[SCORE][3] == audit.items[SCORE][12]
    assert audit.items["id"][12] == "copy"
    own = tdd.score_images(model, members, progress=False)[SCORE]
    wanted = tdd.ptdi(audit.calibration[SCORE], audit.items[SCORE], members=own, alpha=0.5, proportion="moment")
    assert audit.run["decision"]["proportion"] == wanted.proportion
    np.testing.assert_array_equal(audit.items["selected"], wanted.selected)
