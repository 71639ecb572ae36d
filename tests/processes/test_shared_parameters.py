"""Parameters shared out over the devices of several processes: what each reads and holds, and the numbers."""

import hashlib
import json

import family_files
import numpy as np
from process_launcher import free_port
from scored_models import random_texts, scored_model

import tdd
from tdd.models.checkpoint import load

FAMILIES = ("gpt2", "gpt_neox", "llama")

LOADS = """
import hashlib, json, sys
from tdd.processes import initialize
initialize(sys.argv[1], 2, int(sys.argv[2]), survive=False)
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
StoredTensors.read = None
mesh = find_devices(shard_params=True).mesh
found = {}
for folder in sys.argv[3:]:
    read.clear()
    leaves = jax.tree.leaves(load(folder, mesh=mesh)[1])
    whole = [np.asarray(everywhere(leaf).addressable_data(0)) for leaf in leaves]
    found[folder] = {
        "all": sum(leaf.nbytes for leaf in leaves),
        "held": sum(shard.data.nbytes for leaf in leaves for shard in leaf.addressable_shards),
        "read": sum(read),
        "bits": hashlib.sha256(b"".join(leaf.tobytes() for leaf in whole)).hexdigest(),
    }
print(json.dumps(found))
"""

SCORES = """
import hashlib, sys
from tdd.processes import initialize
initialize(sys.argv[1], 2, int(sys.argv[2]), survive=False)
import numpy as np, tdd
from scored_models import random_texts, scored_model
scores = tdd.score(
    scored_model(width=32), random_texts(30), ("loss", "min_k", "grad_norm"), shard_params=True, token_budget=256
)
bits = hashlib.sha256(b"".join(column.tobytes() for column in scores.values.values())).hexdigest()
print(scores.provenance["num_devices"], bits)
try:
    tdd.score(scored_model(width=32), random_texts(2, seed=int(sys.argv[2])), shard_params=True)
except ValueError as error:
    print(error)
"""


def bits(arrays):
    return hashlib.sha256(b"".join(np.asarray(array).tobytes() for array in arrays)).hexdigest()


def test_each_reads_and_holds_its_share(launcher, tmp_path):
    import jax

    folders = [str(family_files.write(tmp_path / name, name)[0]) for name in FAMILIES]
    address = f"127.0.0.1:{free_port()}"
    ends = launcher.all([launcher.python(LOADS, address, index, *folders, devices=2) for index in range(2)])
    for end in ends:
        assert end.code == 0, end.err
        for folder, found in json.loads(end.out.splitlines()[-1]).items():  # behind what Gloo says
            assert found["bits"] == bits(jax.tree.leaves(load(folder)[1])), folder
            assert 0.5 <= found["held"] / found["all"] < 0.7, "half of them, and what no axis divides on each device"
            if "neox" not in folder:  # its heads are interleaved: where they are cut, the tensor is read whole
                assert found["read"] <= found["held"]


def test_the_numbers_are_those_of_one_process(launcher):
    address = f"127.0.0.1:{free_port()}"
    ends = launcher.all([launcher.python(SCORES, address, index, devices=2) for index in range(2)])
    alone = tdd.score(scored_model(width=32), random_texts(30), ("loss", "min_k", "grad_norm"), token_budget=256)
    for end in ends:
        assert end.code == 0, end.err
        *_, numbers, refusal = end.out.splitlines()
        assert numbers.split() == ["4", bits(alone.values.values())]
        assert "other processes were not given the same inputs as process 0: process 1: texts. " in refusal
