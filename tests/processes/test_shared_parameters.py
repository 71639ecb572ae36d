"""Parameters shared out over the devices of several processes: what each reads and holds, and the numbers."""

import hashlib
import json

import family_files
import jax
import numpy as np
import pytest
from process_launcher import free_port
from process_runs import exchange
from scored_models import random_texts, scored_model

import tdd
from tdd.models.checkpoint import load
from tdd.scoring.programs import TokenProgram

FAMILIES = ("gpt2", "gpt_neox")

WORKER = """
import hashlib, json, sys
import jax, numpy as np
address, index, runs, *folders = sys.argv[1:]
jax.distributed.initialize(address, 2, int(index))
from tdd.scoring.devices import find_devices
from tdd.models.checkpoint import load
from tdd.placement import everywhere
from tdd.models.weights import StoredTensors
cut, read = StoredTensors.cut, []
def counted(self, name, index):
    found = cut(self, name, index)
    read.append(found.nbytes)
    return found
StoredTensors.cut = counted
read_whole, StoredTensors.read = StoredTensors.read, None
mesh = find_devices(shard_params=True).mesh
found = {}
for folder in folders:
    read.clear()
    leaves = jax.tree.leaves(load(folder, mesh=mesh)[1])
    whole = [np.asarray(everywhere(leaf).addressable_data(0)) for leaf in leaves]
    found[folder] = {
        "all": sum(leaf.nbytes for leaf in leaves),
        "held": sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards),
        "read": sum(read),
        "bits": hashlib.sha256(b"".join(leaf.tobytes() for leaf in whole)).hexdigest(),
    }
StoredTensors.read = read_whole
import tdd
from process_runs import exchange
from scored_models import random_texts, scored_model
def bits(scores):
    return hashlib.sha256(b"".join(column.tobytes() for column in scores.values.values())).hexdigest()
given = scored_model(width=32), random_texts(30), ("loss", "min_k", "grad_norm")
scores = tdd.score(*given, shard_params=True, token_budget=256)
found["scores"] = scores.provenance["num_devices"], scores.provenance["num_processes"], bits(scores)
found["by itself"] = bits(tdd.score(*given, token_budget=256))
tdd.score(*given, token_budget=256, store=runs + "/store", shard=(jax.process_index(), jax.process_count()))
found["exchange"] = exchange(runs + "/exchange", shard_params=True)
def refused(*more, **options):
    try:
        tdd.score(scored_model(width=32), *more, shard_params=True, **options)
    except ValueError as error:
        return str(error)
found["other texts"] = refused(random_texts(2, seed=int(index)))
found["shard"] = refused(random_texts(2), shard=(int(index), 2), store=runs + "/store")
spread, whole = (jax.sharding.NamedSharding(mesh, jax.P(*axes)) for axes in (mesh.axis_names, ()))
lm, params, tokenizer = scored_model(width=32)
def over(sharding, leaf):
    leaf = np.asarray(leaf)
    return jax.make_array_from_callback(leaf.shape, sharding, lambda index: leaf[index])
replicated = jax.tree.map(lambda leaf: over(whole, leaf), params)
found["replicated"] = bits(tdd.score((lm, replicated, tokenizer), *given[1:], token_budget=256))
def said(call):
    try:
        call()
    except ValueError as error:
        return str(error)
elsewhere = next(x for x in jax.devices() if x.process_index != jax.process_index())
found["elsewhere"] = said(lambda: tdd.score(scored_model(), random_texts(2), device=elsewhere))
found["spread"] = said(lambda: tdd.ptdi(over(spread, np.arange(8.0)), np.arange(3.0), alpha=0.1))
print(json.dumps(found))
"""


def bits(arrays):
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def test_shares_and_numbers(launcher, tmp_path):
    """Each of two processes reads and holds its share, and both find the numbers of one; without shared parameters each
    computes by itself, or its shard."""
    folders = [str(family_files.write(tmp_path / name, name)[0]) for name in FAMILIES]
    given = f"127.0.0.1:{free_port()}", tmp_path / "runs"
    started = [launcher.python(WORKER, given[0], index, given[1], *folders, devices=2) for index in range(2)]
    given = scored_model(width=32), random_texts(30), ("loss", "min_k", "grad_norm")
    alone = bits(tdd.score(*given, token_budget=256).values.values())
    exchanged = exchange(tmp_path / "alone")
    for end in launcher.all(started, 200):
        assert end.code == 0, end.err
        found = json.loads(end.out.splitlines()[-1])  # behind what Gloo says
        assert found["scores"] == [4, 2, alone]
        assert found["by itself"] == found["replicated"] == alone
        assert "belongs to process" in found["elsewhere"]
        assert "choose among jax.local_devices()" in found["elsewhere"]
        assert "calibration is spread over the devices of several processes; call this under" in found["spread"]
        assert found["exchange"] == exchanged
        assert "other processes were not given the same inputs as process 0: process 1: texts. " in found["other texts"]
        assert "/2 and shard_params over several processes exclude each other" in found["shard"]
        for folder in folders:
            loaded = found[folder]
            assert loaded["bits"] == bits(jax.tree.leaves(load(folder)[1])), folder
            assert 0.5 <= loaded["held"] / loaded["all"] < 0.7, "half of them, and what no axis divides on each device"
            if "neox" not in folder:  # its heads are interleaved: where they are cut, the tensor is read whole
                assert loaded["read"] <= loaded["held"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(TokenProgram, "start", None)  # the two shards have left nothing to compute
        joined = tdd.score(*given, token_budget=256, store=tmp_path / "runs" / "store")
    assert bits(joined.values.values()) == alone
