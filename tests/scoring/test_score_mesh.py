"""Scoring on several devices: the numbers of one device to the last bit, shares of parameters, bad combinations."""

import jax
import numpy as np
import pytest
from child_process import run_python
from scored_models import random_texts, scored_model

from tdd.scoring.devices import find_devices
from tdd.scoring.score import score
from tdd.validate import InputError

CODE = """
import dataclasses, json, logging, pathlib, sys
import jax, numpy as np
from scored_models import random_texts, scored_model
from tdd.scoring import programs
from tdd.scoring.devices import find_devices
from tdd.scoring.score import score
from tdd.scoring.scores import Reference
from tdd.models.checkpoint import load, save

NAMES = ("loss", "reference", "min_k_plus_plus")
model, other, texts = scored_model(), scored_model(7), random_texts(45, shortest=36)
out, said = {}, []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("tdd").addHandler(handler)

def run(chosen=model, names=NAMES, **options):
    names = (names,) if isinstance(names, str) else names
    names = [Reference(other) if name == "reference" else name for name in names]
    return score(chosen, texts, names, **{"token_budget": 256, "progress": False, **options})

def equal(found, expected):
    return [bool(np.array_equal(found[name], expected[name])) for name in expected.values]

one = run()
out["batches"] = sum(-(-45 // size) for size, _ in one.provenance["batch_shapes"])
for devices, shared in ((8, False), (8, True)):
    out[f"{devices} {shared}"] = equal(run(devices=devices, shard_params=shared), one)
out["list"] = equal(run(devices=jax.devices()[2:7:2]), one)
before = [f._cache_size() for f in (programs._trunk, programs._head)]
found = run(devices="all", shard_params=True)
after = [f._cache_size() for f in (programs._trunk, programs._head)]
out["all"] = equal(found, one)
out["again"] = before == after
out["provenance"] = [found.provenance[key] for key in ("num_devices", "shard_params", "device")]

norms = [run(names="grad_norm", **options) for options in ({}, {"devices": 3, "shard_params": True})]
out["gradient"] = equal(*norms)

# a model that only has logits
lm, params, tokenizer = model
bare = (dataclasses.replace(lm, spec="bare", hidden=None, readout=None), params, tokenizer)
out["bare"] = equal(run(bare, ("loss", "min_k"), devices=8, shard_params=True), run(bare, ("loss", "min_k")))

# out of memory on several devices
original = programs._trunk
def limited(lm, where, params, tokens, *rest):
    if tokens.shape[-2] > 2:
        raise jax.errors.JaxRuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8589934592 bytes.")
    return original(lm, where, params, tokens, *rest)
programs._trunk = limited
small = run(devices=8)
programs._trunk = original
out["halved"] = [bool(np.allclose(small[name], one[name], rtol=1e-5, atol=1e-5)) for name in NAMES]
out["said"] = any(text.startswith("out of memory: going on with batches of") for text in said)

# interrupted on one device, continued on eight
class Stopped(Exception): pass
def stop(done, total):
    if done == 5: raise Stopped
try: run(store=sys.argv[1], on_batch=stop)
except Stopped: pass
done = []
out["continued"] = equal(run(store=sys.argv[1], devices=8, on_batch=lambda *counts: done.append(counts)), one)
out["plans"] = len(list(pathlib.Path(sys.argv[1], "runs").iterdir()))

# a checkpoint is loaded into its shares
folder = sys.argv[1] + "-model"
save(folder, *model)
where = find_devices(devices=8, shard_params=True)
loaded = load(folder, mesh=where.mesh)[1]
placed = where.put_params(loaded)
def place(leaf): return leaf.addressable_data(5).unsafe_buffer_pointer()
out["not moved"] = jax.tree.leaves(jax.tree.map(lambda a, b: place(a) == place(b), loaded, placed))
whole = sum(leaf.nbytes for leaf in jax.tree.leaves(params))
out["share"] = [sum(leaf.addressable_data(i).nbytes for leaf in jax.tree.leaves(placed)) / whole for i in range(8)]
out["from a checkpoint"] = equal(run(folder, devices=8, shard_params=True), one)
print(json.dumps(out))
"""


@pytest.fixture(scope="module")
def eight(tmp_path_factory):
    return run_python(CODE, tmp_path_factory.mktemp("eight") / "store", devices=8)


@pytest.mark.parametrize("case", ["8 False", "8 True", "list", "all", "bare", "gradient"])
@pytest.mark.slow("processes")
def test_one_device_and_several_to_the_last_bit(eight, case):
    assert all(eight[case])
    assert eight["batches"] % 8 != 0


@pytest.mark.slow("processes")
def test_programs_are_compiled_once_for_all_devices(eight):
    assert eight["again"]


@pytest.mark.slow("processes")
def test_the_provenance_names_every_device(eight):
    count, shared, names = eight["provenance"]
    assert (count, shared) == (8, True)
    assert len(set(names.split(", "))) == 8


@pytest.mark.slow("processes")
def test_memory_errors_of_a_mesh_halve_the_batches(eight):
    assert all(eight["halved"])
    assert eight["said"]


@pytest.mark.slow("processes")
def test_a_run_may_be_continued_on_other_devices(eight):
    assert all(eight["continued"])
    assert eight["plans"] == 1


@pytest.mark.slow("processes")
def test_a_checkpoint_is_loaded_into_shares(eight):
    """Of 16 columns and 300 rows, 8 devices divide the columns: every parameter but no vector is cut into eighths."""
    assert all(eight["not moved"])
    assert all(eight["from a checkpoint"])
    assert len(set(eight["share"])) == 1
    assert 1 / 8 <= eight["share"][0] < 0.13


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"devices": 1000}, "devices=1000 must be at least 1 and at most .*JAX_NUM_CPU_DEVICES"),
        ({"devices": 0}, "devices=0 must be at least 1"),
        ({"devices": True}, "devices=True cannot be used; give a number, 'all'"),
        ({"devices": 1.5}, "devices=1.5 cannot be used"),
        ({"devices": "cpu"}, "devices='cpu' cannot be used"),
        ({"devices": []}, "different devices of one kind, at least one; it has nothing"),
        ({"devices": [jax.devices()[0]] * 2}, "must be different devices of one kind"),
        ({"devices": 1, "shard_params": True}, "several devices, but only one is used; pass devices='all'"),
        ({"shard_params": True}, "several devices, but only one is used"),
        ({"device": "cpu:0", "devices": 1}, "device='cpu:0' is one device and devices=1 asks for several"),
        ({"device": jax.devices()[0], "devices": "all"}, "asks for several; leave one of them out"),
        ({"device": "abacus", "devices": 1}, "device='abacus' is not available"),
    ],
)
def test_bad_devices(options, message):
    with pytest.raises(InputError, match=message):
        score(scored_model(), random_texts(2), "loss", progress=False, **options)


def test_one_of_several_devices_is_one_device():
    assert find_devices(devices=1) == find_devices() == find_devices(device="cpu", devices="1")
    assert find_devices(devices=[jax.devices()[0]]) == find_devices()


def test_parameters_that_do_not_fit_or_divide_are_said(monkeypatch):
    where = find_devices()

    def full(*_):
        raise jax.errors.JaxRuntimeError(
            "RESOURCE_EXHAUSTED: Error allocating device buffer: Attempting to allocate 2G"
        )

    monkeypatch.setattr(jax, "device_put", full)
    with pytest.raises(InputError, match=r"the parameters, 2.00 GiB, do not fit: .* shard_params=True with several"):
        where.put_params({"kernel": np.broadcast_to(np.float32(0), (1024, 1024, 512))})
