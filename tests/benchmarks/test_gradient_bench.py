"""The benchmark of gradient norms, at a size that takes no time: what it compares, and what it says of absent peers."""

import importlib.util

import pytest

from benchmarks.throughput import gradients
from benchmarks.throughput.cases import Disagreement
from benchmarks.throughput.random_model import save_model
from tdd.models.spec import DecoderSpec


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    spec = DecoderSpec.gpt2(vocab_size=60, width=16, num_layers=2, num_heads=2, max_length=16)
    return save_model(tmp_path_factory.mktemp("gradients") / "model", 0, spec)


@pytest.mark.slow("long")
def test_every_way_has_a_row(path):
    rows = gradients.batch_run("small", path, ("vmap(grad)", "jax_privacy"), rounds=2, batch=2, length=8)
    ours, plain, other = rows
    assert (ours["way"], plain["way"], other["way"]) == ("tdd", "vmap(grad)", "jax_privacy")
    assert ours["time / tdd"] == 1
    assert plain["difference"] < 1e-5
    assert plain["memory / tdd"] > 0
    if importlib.util.find_spec("jax_privacy") is None:
        assert other["absent"] == "jax_privacy is not installed"


@pytest.mark.slow("long")
def test_nothing_is_timed_that_disagrees(path, monkeypatch):
    monkeypatch.setitem(gradients.JAX_PEERS, "vmap(grad)", lambda lm: lambda params, tokens: tokens.sum(1) * 1.0)
    with pytest.raises(Disagreement, match=r"small 2x8: gradient norms disagree: .*vmap\(grad\)"):
        gradients.batch_run("small", path, ("vmap(grad)",), rounds=1, batch=2, length=8)
