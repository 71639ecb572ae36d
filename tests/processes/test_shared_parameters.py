"""Parameters shared out over the devices of several processes: what each reads and holds, and the numbers."""

import hashlib
import json

import family_files
import jax
import numpy as np
from process_launcher import free_port
from scored_models import random_texts, scored_model

import tdd
from tdd.models.checkpoint import load

FAMILIES = ("gpt2", "gpt_neox")

WORKER = """
import hashlib, json, sys
from tdd.processes import initialize
address, index, runs, *folders = sys.argv[1:]
initialize(address, 2, int(index), survive=False)
import jax, numpy as np
from tdd.audit.mesh import find_devices
from tdd.models.checkpoint import load
from tdd.models.placement import everywhere
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
from process_runs import exchanges
from scored_models import random_texts, scored_model
scores = tdd.score(
    scored_model(width=32), random_texts(30), ("loss", "min_k", "grad_norm"), shard_params=True, token_budget=256
)
bits = hashlib.sha256(b"".join(column.tobytes() for column in scores.values.values())).hexdigest()
found["scores"] = scores.provenance["num_devices"], bits
found["exchanges"] = exchanges(runs, ["control"], shard_params=True)
try:
    tdd.score(scored_model(width=32), random_texts(2, seed=int(index)), shard_params=True)
except ValueError as error:
    found["refusal"] = str(error)
print(json.dumps(found))
"""


def bits(arrays):
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def test_shares_and_numbers(launcher, tmp_path, exchanges_alone):
    """Each of two processes reads and holds its share, and both find the numbers of one."""
    folders = [str(family_files.write(tmp_path / name, name)[0]) for name in FAMILIES]
    given = f"127.0.0.1:{free_port()}", tmp_path / "runs"
    started = [launcher.python(WORKER, given[0], index, given[1], *folders, devices=2) for index in range(2)]
    alone = tdd.score(scored_model(width=32), random_texts(30), ("loss", "min_k", "grad_norm"), token_budget=256)
    for end in launcher.all(started, 200):
        assert end.code == 0, end.err
        found = json.loads(end.out.splitlines()[-1])  # behind what Gloo says
        assert found["scores"] == [4, bits(alone.values.values())]
        assert found["exchanges"] == {"control": exchanges_alone["control"]}
        assert "other processes were not given the same inputs as process 0: process 1: texts. " in found["refusal"]
        for folder in folders:
            loaded = found[folder]
            assert loaded["bits"] == bits(jax.tree.leaves(load(folder)[1])), folder
            assert 0.5 <= loaded["held"] / loaded["all"] < 0.7, "half of them, and what no axis divides on each device"
            if "neox" not in folder:  # its heads are interleaved: where they are cut, the tensor is read whole
                assert loaded["read"] <= loaded["held"]
