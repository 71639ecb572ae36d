"""Scoring beside its peers: agreement before timing, a row for every form, and what the pages say of them."""

import importlib.util

import jax
import numpy as np
import pytest

from benchmarks import score_tables
from benchmarks.pretrained import PACKAGE
from benchmarks.throughput import machine, random_model, score_texts
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.peers.torch_models import TorchScores
from benchmarks.throughput.score_texts import DTYPES, FIRST, SETS, Way
from tdd.models import checkpoint
from tdd.models.spec import DecoderSpec

SPEC = DecoderSpec.gpt2(vocab_size=60, width=16, num_layers=2, num_heads=2, max_length=32)
EXACT = {str(name): np.array([2.0, 3.0]) for name in score_texts.ONE_PASS} | {"cancellation": np.array([1.0, 400.0])}
RECORD = {"cores": 2, "processor": "Any", "instruction_sets": ["avx2"], "load_average": 0.5}
RECORD |= {"versions": {"jax": "1", "torch": "2", "transformers": "3"}}


class Found(dict):
    """What a call gives: scores, numbers of tokens, and the padding."""

    num_tokens = np.array([4, 7])
    provenance = {"padding_share": 0.25}  # noqa: RUF012


def forms(off=()):
    """Ways that give the same scores at once, but for a factor of those named."""

    def way(dtype, name, few):
        names = SETS.get(few, ("loss",))
        factor = off[1] if off and f"{dtype}, {name}, {few}" == off[0] else 1.0
        return Way(dtype, name, few, lambda: Found({one: factor * np.array([2.0, 3.0]) for one in names}))

    names = ("tdd", FIRST, "torch, other")
    return [way(dtype, name, few) for dtype in DTYPES for few in SETS for name in names] + [
        way(dtype, "loss of peer", "loss") for dtype in DTYPES
    ]


@pytest.fixture
def no_products(monkeypatch):
    monkeypatch.setattr(score_texts, "product_rate", lambda shapes, rows, dtype, side: 1e9)


@pytest.mark.parametrize("dtype", DTYPES)
def test_nothing_is_timed_that_disagrees(no_products, dtype):
    allowed = {"float32": 1e-4, "bfloat16": score_texts.bfloat16_bound(SPEC)}[dtype]
    key = f"{dtype}, tdd, six"
    found = score_texts.compare("small", ["a", "b"], SPEC, forms((key, 1 + 0.9 * allowed)), EXACT, 1)
    (row,) = (row for row in found["rows"] if (row["dtype"], row["way"], row["scores"]) == (dtype, "tdd", "six"))
    assert row["largest error"] == pytest.approx(0.9 * allowed, rel=1e-6)
    for factor in (1 + 1.1 * allowed, np.nan):
        with pytest.raises(Disagreement, match=f"small: {key}: scores disagree"):
            score_texts.compare("small", ["a", "b"], SPEC, forms((key, factor)), EXACT, 1)


@pytest.mark.parametrize(("way", "name"), [(FIRST, "min_k_plus_plus"), (FIRST, "loss"), ("tdd", "min_k_plus_plus")])
def test_a_peers_variance_may_lose_what_it_cancels(no_products, way, name):
    """eps log V 400 / 2 = 1e-4 beyond 1e-4 for Min-K%++ of torch; nothing for another score, nor for ours."""
    off = Found({one: np.array([2.0, 3.0]) * (1 + 1.5e-4 * (one == name)) for one in SETS["two"]})
    some = [one._replace(call=lambda: off) if one.key == f"float32, {way}, two" else one for one in forms()]
    if (way, name) == (FIRST, "min_k_plus_plus"):
        assert score_texts.compare("small", ["a", "b"], SPEC, some, EXACT, 1)
    else:
        with pytest.raises(Disagreement, match=f"float32, {way}, two"):
            score_texts.compare("small", ["a", "b"], SPEC, some, EXACT, 1)


def test_figures_follow_from_the_seconds(no_products):
    found = score_texts.compare("small", ["a", "b"], SPEC, forms(), EXACT, 3)
    assert len(found["rows"]) == 14
    own = {(row["dtype"], row["scores"]): row for row in found["rows"] if row["way"] == "tdd"}
    for row in found["rows"]:
        beside = own[row["dtype"], "two" if row["scores"] == "loss" else row["scores"]]
        ratios = [a / b for a, b in zip(row["seconds"], beside["seconds"])]
        assert row["time / tdd"] == np.median(ratios)
        assert row["texts/s"] == 2 / np.median(row["seconds"])
    assert found["tokens"] == 5 + 8
    assert found["padding share"]["torch, batches of 8"] == 1 - 13 / 16


def test_flop_are_those_of_the_weights():
    width, vocabulary = random_model.WIDTH, random_model.VOCABULARY
    shapes = random_model.weight_shapes(random_model.GPT2_SMALL)
    assert sum(a * b * count for a, b, count in shapes) == 12 * 12 * width**2 + width * vocabulary
    gated = random_model.weight_shapes(random_model.SPECS["llama"])
    assert (
        sum(a * b * count for a, b, count in gated) == 12 * width * (2 * width + 2 * 4 * 64 + 3 * 2048) + width * 32_000
    )
    assert machine.product_rate([(8, 16, 2)], 4, "bfloat16", "jax") > 0


def test_documented_texts_have_the_lengths_of_the_mix():
    texts = random_model.documented_texts(20)
    assert sorted(len(text.split()) for text in texts) == sorted(random_model.wikimia_words(20))
    assert texts == random_model.documented_texts(20) != random_model.documented_texts(20, seed=2)


def test_the_pages_show_the_worst_beside_the_best(no_products):
    details = score_texts.compare("smollm2", ["a", "b"], SPEC, forms(), EXACT, 1)
    factors = {"tdd": 1.0, FIRST: 2.5, "torch, other": 0.4, "loss of peer": 9.0}
    for row in details["rows"]:
        row["time / tdd"] = factors[row["way"]]
    row = {"case": "score-smollm2", "details": details, "skipped": {"other": "because"}}
    result = {"machine": RECORD, "command": "this", "rounds": 1, "scoring": [row]}
    page = score_tables.scoring(result)
    assert page.count("0.40× the fastest form (torch, other), 2.50× the slowest") == 4
    assert "other: because." in page
    assert "2 cores of Any (avx2)" in page
    peers = {"peer": {"ratio": 3.0}, "faster": {"ratio": 0.25}}
    bench = {
        "machine": RECORD,
        "studies": [{"case": "ptdi-resample-775", "per_s": 3e6, "ratios": {"peer": 500.0}}],
        "kernels": [{"case": "one", "items": 10, "batch": 3, "peers": peers}, {"case": "two", "failed": "so"}],
    }
    fast, slow = ({"torch": {"seconds": 1, "peer / ours": ratio}} for ratio in (4.0, 0.5))
    slow["torch, TF32"] = {"refused": "so"}
    device = {
        "device": "Some GPU",
        "rows": [
            {"program": "resample 775", "rate": 5e6, "peer": None},
            {"program": "first", "peer": fast},
            {"program": "second", "peer": slow},
        ],
    }
    said = score_tables.speed(bench, [result, result], device)
    assert "On one Some GPU PTDI makes 5 million such splits a second, and of 2 programs" in said
    assert "the best runs 4.00 times (first; torch) as fast, the worst 0.50 times (second; torch)." in said
    assert "0.25 times the speed of faster (`one`, 3 × 10 items)" in said
    assert said.count("0.40 times as fast as its fastest") == said.count("2.50 times as fast as its slowest") == 4


def lively(folder):
    """A small checkpoint whose distributions are far from uniform, where torch's variance would lose its digits."""
    lm, params, tokenizer = checkpoint.load(random_model.save_model(folder / "flat", 0, SPEC))
    checkpoint.save(
        folder / "model", lm, jax.tree.map(lambda leaf: leaf * 10 if leaf.ndim == 2 else leaf, params), tokenizer
    )
    return folder / "model"


@pytest.mark.torch
@pytest.mark.slow("long")
@pytest.mark.parametrize("compiler", [True, False])
def test_every_form_agrees_on_a_small_model(tmp_path, monkeypatch, compiler):
    pytest.importorskip("torch")
    monkeypatch.setattr(score_texts, "PRODUCT_ROWS", 8)
    monkeypatch.setattr(score_texts, "_EMULATED", np.inf)  # every form, whatever this processor has
    if not compiler:
        monkeypatch.setattr(score_texts.shutil, "which", lambda name: None)
    elif not any(map(score_texts.shutil.which, ("c++", "g++", "clang++"))):
        pytest.skip("no C++ compiler is installed")
    path = lively(tmp_path)
    texts = random_model.sample_texts(10, np.arange(5, 25, 2), vocabulary=60)
    models = {dtype: checkpoint.load(path, dtype=dtype) for dtype in DTYPES}
    ways, skipped = score_texts.ways(models, path, texts)
    found = score_texts.compare("small", texts, SPEC, ways, TorchScores(path, "float64")(texts, score_texts.EXACT), 1)
    assert len(found["rows"]) == len(ways) == (18 if compiler else 16)
    assert len(skipped) == (1 if compiler else 3)
    assert found["tokens"] == sum(len(text.split()) for text in texts)


@pytest.mark.torch
def test_torch_is_left_out_where_its_products_are_emulated(tmp_path, monkeypatch):
    """Zen 3 has no products of bfloat16: torch takes 50 to 100 times as long with them, a run did not end in 20 min."""
    pytest.importorskip("torch")
    rates = {"float32": 8e9, "bfloat16": 1e9}
    monkeypatch.setattr(score_texts, "product_rate", lambda shapes, rows, dtype, side: rates[dtype])
    models = dict.fromkeys(DTYPES, "any")
    ways, skipped = score_texts.ways(models, lively(tmp_path), ["a"])
    assert {way.name for way in ways if way.dtype == "bfloat16"} == {"tdd"}
    assert {FIRST, "tdd"} < {way.name for way in ways if way.dtype == "float32"}
    assert skipped["torch in bfloat16"].startswith("not measured: this processor has no such products; torch reaches 1")
    some = [way for way in forms() if way.dtype == "float32" or way.name == "tdd"]
    details = score_texts.compare("small", ["a", "b"], SPEC, some, EXACT, 1)
    assert list(details["product GFLOP/s"]) == ["jax, float32", "torch, float32", "jax, bfloat16"]
    row = {"details": details | {"run": "gpt2"}, "skipped": skipped}
    page = score_tables.scoring({"machine": RECORD, "command": "this", "rounds": 1, "scoring": [row]})
    assert "float32, six" in page
    assert "bfloat16, six:" not in page


@pytest.mark.torch
@pytest.mark.slow("long")
@pytest.mark.skipif(importlib.util.find_spec(PACKAGE) is None, reason=f"the package {PACKAGE} is not installed")
def test_the_pretrained_model_is_read_from_its_package():
    pytest.importorskip("torch")
    found = score_texts.score_texts("smollm2", 2, 1)
    assert found["details"]["run"] == "smollm2"
    assert found["per_s"] > 0
    assert "llama.cpp" in found["skipped"]
