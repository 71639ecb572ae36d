"""The benchmark of the test of canonical order, at sizes that take no time."""

import dataclasses
from types import SimpleNamespace

import numpy as np
import pytest
from word_tokenizer import word_tokenizer

import tdd.exchange.run
from benchmarks.reproductions.models import Shape
from benchmarks.throughput import exchange, exchange_calls
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.peers.torch_models import TorchOrders, overlapping
from benchmarks.throughput.random_model import save_model
from tdd.models import checkpoint
from tdd.models.spec import DecoderSpec
from tdd.scoring.inputs import Model

SAMPLE = exchange.Sample(
    examples=4, orders=3, orders_shared=4, peer_orders=1, long_examples=8, long_orders=2, long_peer_orders=1
)


@pytest.mark.parametrize("num_tokens", [2, 7, 8, 9, 12, 13, 100])
def test_windows_of_the_reference_score_every_token_but_the_first_once(num_tokens):
    windows = overlapping(num_tokens, 8)
    scored = [token for _, target, stop in windows for token in range(target, stop)]
    assert scored == [*range(1, num_tokens)]
    assert all(start < target < stop <= start + 8 for start, target, stop in windows)
    assert [start for start, *_ in windows] == [*range(0, 4 * len(windows), 4)]


@pytest.fixture(scope="module")
def peers(tmp_path_factory):
    spec = DecoderSpec.gpt2(vocab_size=90, width=16, num_layers=1, num_heads=2, max_length=160)
    path = save_model(tmp_path_factory.mktemp("exchange") / "model", 0, spec)
    model = Model(*checkpoint.load(path), "model")
    return model, TorchOrders(path, model.tokenizer)


@pytest.mark.torch
def test_every_layout_has_a_row(peers):
    rows = exchange.compare(*peers, SAMPLE, rounds=1)["rows"]
    assert [row["run"] for row in rows] == ["1 permuted", "0.5 permuted", "0.25 permuted", "longer than the context"]
    full, half, quarter, long = rows
    assert max(row["largest error"] for row in rows) < 1e-5
    assert full["tdd tokens a sequence"] == full["torch tokens a sequence"] == full["tokens of the shard"] <= 160
    assert full["tdd tokens a sequence"] > half["tdd tokens a sequence"] >= quarter["tdd tokens a sequence"]
    assert long["torch tokens a sequence"] > long["tokens of the shard"] > 160
    for row in rows:
        np.testing.assert_allclose(row["ratio"], row["tdd sequences/s"] / row["torch sequences/s"])


@pytest.mark.torch
def test_nothing_is_timed_that_disagrees(peers, monkeypatch):
    model, peer = peers
    monkeypatch.setattr(peer, "log_prob", lambda tokens, windows: -100.0)
    with pytest.raises(Disagreement, match=r"sums of log-probabilities disagree with torch's: .*'1 permuted'"):
        exchange.compare(model, peer, SAMPLE, rounds=1)


@pytest.mark.slow("long")
def test_power_of_designs_that_are_drawn_from_known_shards():
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(60, 21))
    assert exchange_calls.power(noise, 10, 20, "t", 400) < 0.05
    known = noise + 3 * (np.arange(21) == 0)
    assert exchange_calls.power(known, 10, 20, "t", 400) == 1
    faint = noise + 0.7 * (np.arange(21) == 0)
    few, many = (exchange_calls.power(faint, 10, shuffles, "t", 400) for shuffles in (2, 20))
    assert 0 < few < many < 1
    np.testing.assert_allclose(exchange_calls.effect(known), 3, atol=0.5)


DESIGN = dataclasses.replace(
    exchange_calls.Design.quick(), shape=Shape(16, 1, 64), num_examples=12, num_shards=3, copies=3, faint_copies=2
)


@pytest.mark.slow("long")
def test_the_planted_model_is_tested(monkeypatch):
    monkeypatch.setattr(exchange_calls, "canary_tokenizer", lambda size: word_tokenizer(size))
    monkeypatch.setattr(tdd.exchange.run, "TESTS", ("combined", "t"))  # the others only cost time here
    model, facts = exchange_calls.planted_model(DESIGN)
    assert facts["training tokens"] > (3 + 2) * 12 * 5
    found = exchange_calls._exchange(model, exchange_calls.clear_set(DESIGN), 2, DESIGN, 0.5)
    of_set = found.run["data"][0]
    assert 0 < of_set["calls"]["sequences"] <= 9
    assert of_set["calls"]["tokens"] > 0
    assert 0 < of_set["tests"]["t"]["p_value"] <= 1


@pytest.fixture
def known(monkeypatch):
    """Instead of a model: normal log-probabilities, the canonical order 2 sd above; sequential rules stop after 2."""
    asked = []

    def exchange_of(model, texts, num_shuffles, design, share, *, stop="none", target_p=None):
        asked.append((share, stop, target_p))
        used = num_shuffles if stop == "none" else 2
        table = np.random.default_rng(len(asked)).normal(size=(design.num_shards, used + 1))
        calls = {"sequences": design.num_shards * (used + 1), "tokens": 100 * (1 - share + share * (used + 1))}
        of_set = {"calls": calls, "p_value": 1e-4, "shuffles_used": used, "tests": {"t": {"p_value": 0.01}}}
        return SimpleNamespace(run={"data": [of_set]}, log_probs={"canaries": (table[:, 0] + 2, table[:, 1:])})

    monkeypatch.setattr(exchange_calls, "_exchange", exchange_of)
    return asked


def test_calls_beside_the_fixed_design(known, monkeypatch):
    monkeypatch.setattr(exchange_calls, "_FEWER", (2, 9))
    told = []
    rows = exchange_calls.calls_to_reject(None, DESIGN, told.append)
    assert told == rows
    ways = ["fixed", "fixed, fewer shuffles", "e_process", "spending"]
    assert [(row["way"], row["share permuted"]) for row in rows] == [(way, s) for s in (1, 0.5, 0.25) for way in ways]
    assert known[1] == (1.0, "e_process", 1e-3)
    fixed, fewer, sequential, _, half, *_ = rows
    assert (fixed["calls"], fixed["tokens"], fixed["calls / fixed"]) == (30, 1000, 1)
    assert (fewer["calls"], fewer["calls / fixed"]) == (9, 0.3)
    np.testing.assert_allclose(fewer["tokens"], 300)
    assert (sequential["shuffles"], sequential["calls"], sequential["reached"]) == (2, 9, True)
    np.testing.assert_allclose(half["tokens / fixed"], 0.55)
