"""What a training has set in JAX, settings that find its errors and a mesh, stops no call and changes no number."""

import jax
import numpy as np
import pytest
from child_process import run_python
from scored_models import random_texts, scored_model

import tdd
from tdd.validate.settings import in_own_settings, on_own_devices


def bigrams(params, tokens):
    return trunk(params, tokens) @ params["h"].T


def trunk(params, tokens):
    return params["e"][tokens]


def readout(params):
    return params["h"]


@pytest.mark.parametrize("heads", [{}, {"hidden": trunk, "readout": readout}], ids=["logits", "heads"])
def test_settings_of_a_training_do_not_stop_statistics(strict_training, heads):
    lm = tdd.from_function(bigrams, vocab_size=30, name="bigrams", **heads)
    rng = np.random.default_rng(0)
    params = jax.device_put({name: rng.normal(size=(30, 4)).astype(np.float32) for name in "eh"})
    tokens, mask = rng.integers(0, 30, (3, 5)), np.ones((3, 5), bool)
    tdd.check_causal(lm, params, tokens)
    norms = tdd.grad_norms(lm, params, tokens, mask, reduction="mean")
    assert np.isnan(jax.device_get(norms.input_embedding)).all()
    placed = jax.device_put((tokens.astype(np.int32), mask))
    inside = jax.jit(lambda *given: (tdd.token_stats(lm, *given).log_prob, tdd.grad_norms(lm, *given).total))
    found = jax.device_get(
        (tdd.token_stats(lm, params, tokens, mask).log_prob, tdd.grad_norms(lm, params, *placed).total)
    )
    for eager, compiled in zip(found, inside(params, *placed)):
        np.testing.assert_allclose(eager, jax.device_get(compiled), rtol=1e-5)


@pytest.fixture(scope="module")
def model():
    return scored_model()


def test_settings_of_a_training_do_not_stop_scores(model, strict_training):
    found = tdd.score(model, random_texts(4), ("loss", "min_k_plus_plus"), token_budget=256, progress=False)
    assert np.isfinite(found["min_k_plus_plus"]).all()


def test_a_mesh_of_the_caller_is_left_and_entered_again():
    mesh = jax.make_mesh((1,), ("data",))
    with jax.set_mesh(mesh):
        with in_own_settings():
            assert not jax.sharding.get_abstract_mesh().empty
        with on_own_devices():
            assert jax.sharding.get_abstract_mesh().empty
        assert jax.sharding.get_abstract_mesh() == mesh.abstract_mesh
    assert on_own_devices()(lambda: jax.sharding.get_abstract_mesh().empty)()


IN_MESH = """
import json, pathlib, sys, tempfile
import jax, numpy as np, tdd
from jax.sharding import AxisType
from scored_models import random_texts, scored_model
from probed import token_rows

rows, texts = np.stack(token_rows(8)), random_texts(6)
model = scored_model()

def everything():
    order, stream = tdd.probe.OrderGuard(), tdd.probe.StreamGuard(rows[:3], ngram=4, capacity=64)
    records = [order(0, np.arange(8.0)).log_martingale, len(stream(0, rows).new)]
    records += [order(1, np.arange(8.0)).log_martingale, len(stream(1, rows).repeated_rows)]
    shared = {"token_budget": 128, "progress": False}
    scores = tdd.score(model, texts, ("loss", "grad_norm"), **shared)
    several = tdd.score(model, texts, "loss", devices=2, **shared)
    halves = tdd.score(model, texts, "loss", devices=2, shard_params=True, **shared)
    key, few = jax.random.key(0), {"alphas": [0.1], "repetitions": 64}
    pool = tdd.study.resample(np.arange(40.0), np.arange(40) < 15, key=key, **few)
    study = tdd.study.run(tdd.study.NormalShift(30, 20), ["ptdi"], **few)
    return [
        records, [*map(float, scores["loss"])], [*map(float, scores["grad_norm"])], [*map(float, several["loss"])],
        [*map(float, halves["loss"])], pool.power.tolist(), study.fdr.tolist(),
    ]

plain = everything()
same = {}
for kind in ("Auto", "Explicit"):
    jax.clear_caches()
    with jax.set_mesh(jax.make_mesh((2, 2), ("d", "m"), axis_types=(AxisType[kind],) * 2)):
        same[kind] = everything() == plain
mesh = jax.make_mesh((4,), ("d",))
bound = lambda params, tokens: params["e"].at[tokens].get(out_sharding=jax.sharding.NamedSharding(mesh, jax.P()))
lm = tdd.from_function(bound, vocab_size=300, name="bound")
try:
    tdd.score((lm, {"e": np.ones((300, 300), np.float32)}, model[2]), texts, "loss", progress=False)
except tdd.InputError as error:
    same["refused"] = str(error).startswith("the model names a mesh of its own")
print(json.dumps(same))
"""


@pytest.mark.slow("processes")
def test_what_chooses_its_devices_does_so_in_any_mesh():
    assert run_python(IN_MESH, devices=4) == {"Auto": True, "Explicit": True, "refused": True}
