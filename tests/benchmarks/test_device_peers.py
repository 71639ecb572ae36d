"""torch beside the programs of `python -m benchmarks device`: on a CPU, at sizes that take no time."""

import dataclasses
import json
import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from benchmarks.__main__ import main
from benchmarks.aot import models, on_device, peers, programs
from benchmarks.throughput.peers import ranking, stepup
from tdd.models.language_model import language_model

MODEL_PEERS = [
    (peers.TokenStatistics, "gpt2", "float32"),
    (peers.TokenStatistics, "llama", "bfloat16"),
    (peers.GradientNorms, "gpt2", "bfloat16"),
    (peers.GradientNorms, "llama", "float32"),
]
MADE = {peers.TokenStatistics: programs._token_stats, peers.GradientNorms: programs._grad_norms}


@pytest.fixture
def device():
    return jax.devices()[0]


@pytest.fixture
def small(monkeypatch):
    """The programs' models are small."""
    monkeypatch.setattr(models, "CONFIGS", models.SMALL)
    monkeypatch.setattr(models, "model", lambda name: language_model(models.spec(name, models.SMALL)))
    monkeypatch.setattr(programs, "_TOKENS", 200)


@pytest.fixture
def without_cuda(monkeypatch):
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.mark.torch
@pytest.mark.parametrize(("kind", "name", "dtype"), MODEL_PEERS)
def test_models_agree_and_are_timed_in_the_same_rounds(small, device, monkeypatch, kind, name, dtype):
    monkeypatch.setitem(programs.PROGRAMS, "tiny", lambda device: MADE[kind](name, dtype, 2, 24))
    row = on_device.measured("tiny", device, where="cpu")
    assert row["peer"].keys() == {"torch", "torch.func"} if (kind, name) == MODEL_PEERS[2][:2] else {"torch"}
    for way in row["peer"].values():
        assert way["difference"] <= kind(name, dtype).tolerance
        assert way["seconds"] == sorted(way["all"])[2]
        ratios = sorted(theirs / ours for theirs, ours in zip(way["all"], row["all"]))
        assert way["peer / ours"] == ratios[2]


@pytest.mark.torch
def test_norms_are_the_same_where_gradients_are_not_kept(small):
    import torch

    from benchmarks.throughput.peers.gradients import TorchBackward, TorchStreamed
    from benchmarks.throughput.peers.torch_models import random_torch_model

    model = random_torch_model("gpt2", models.CONFIGS["gpt2"], "float32", "cpu")
    ids = torch.randint(0, 200, (3, 16))
    kept = TorchBackward(model).norms(ids)
    exact = [TorchBackward(model).exact(row) for row in ids]
    streamed = TorchStreamed(model).norms(ids)
    np.testing.assert_allclose(kept, exact, rtol=1e-5)
    np.testing.assert_allclose(streamed, exact, rtol=1e-5)
    assert all(parameter.grad is None for parameter in model.parameters())


@pytest.mark.torch
def test_kernels_are_those_of_scipy_and_numpy():
    import torch

    rng = np.random.default_rng(0)
    p = (rng.random((200, 30)) ** 2).astype(np.float32)
    p[0], p[1] = 0.1, 1.0  # all rejected, at equality; none
    found = stepup.bh_torch(torch.tensor(p), 0.1).numpy()
    np.testing.assert_array_equal(found, stepup.fdr_scipy(0.1)(p)["reject"])
    calibration, scores = rng.integers(0, 9, (2, 5, 40)).astype(np.float32)
    found = ranking.conformal_torch(torch.tensor(calibration), torch.tensor(scores)).numpy()
    for given, expected in zip(found, map(ranking.conformal, calibration, scores)):
        np.testing.assert_allclose(given, expected["p_values"], rtol=1e-6)


@pytest.mark.torch
def test_the_command_names_torch_and_times_it(without_cuda, capsys):
    assert main(["device", "--program", "bh", "--quiet", "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["peer"].startswith("torch ")
    assert shown["no_peer"] == ""
    assert shown["rows"][0]["peer"]["torch"].keys() == {"difference", "seconds", "all", "peer / ours"}
    assert not shown["rows"][0]["peer"]["torch"]["difference"]


@pytest.mark.torch
@pytest.mark.parametrize(
    ("torch_form", "reason"),
    [
        (lambda p: stepup.bh_torch(p, 2 * peers.ALPHA), "differs from ours by 1.0e+00"),
        (lambda p: p / 0 * 0, "differs from ours by nan"),
        (lambda p: p.reshape(-1, 7), "shape '[-1, 7]' is invalid"),
    ],
)
def test_what_disagrees_or_fails_is_not_timed(device, torch_form, reason):
    peer = dataclasses.replace(peers.BH, torch=torch_form)
    with peers.beside(peer, device, "cpu", (jnp.ones((10, 10)),)) as (calls, about):
        assert not calls
        assert about["torch"]["refused"].startswith(reason)


def test_a_missing_number_is_no_agreement():
    ours = {"mu": np.zeros(2), "sigma": np.ones(2)}
    assert np.isnan(peers._difference(ours, {"mu": np.zeros(2), "sigma": np.array([1, np.nan])}))
    assert peers._difference(ours, {"mu": np.zeros(2), "sigma": np.array([1, 1.5])}) == 0.5
    assert peers._difference(np.array([200.0]), np.array([202.0])) == 0.01


def test_torch_that_fails_while_it_is_timed_leaves_ours():
    def fails():
        raise RuntimeError("CUDA out of memory.\nTried to allocate")

    about = {"torch": {"difference": 0.0}}
    assert [len(times) for times in peers.interleaved(lambda: None, {"torch": fails}, about, 3).values()] == [3]
    assert about == {"torch": {"refused": "CUDA out of memory."}}

    def ours():
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory")

    with pytest.raises(jax.errors.JaxRuntimeError):
        peers.interleaved(ours, {}, {}, 3)


@pytest.mark.torch
def test_what_agreed_too_late_is_not_timed(device, monkeypatch):
    clock = iter((1.0, 3.0))
    monkeypatch.setattr(peers.time, "perf_counter", lambda: next(clock))
    monkeypatch.setattr(peers, "_differences", lambda *given: {"torch": 0.0})
    with peers.beside(peers.BH, device, "cpu", (jnp.ones((10, 10)),), last=2.0) as (calls, about):
        assert not calls
        assert about == {"torch": {"refused": "the limit had passed"}}


@pytest.mark.torch
def test_a_machine_without_cuda_says_so(without_cuda, monkeypatch):
    import torch

    assert peers.torch_device("gpu") == ("", f"torch {torch.__version__} sees no CUDA device")
    assert peers.torch_device("tpu") == ("", f"torch {torch.__version__} does not run on tpu")
    assert peers.torch_device("cpu")[0] == "cpu"
    monkeypatch.setattr(os, "environ", {})
    peers.share_memory()
    assert os.environ == {}
