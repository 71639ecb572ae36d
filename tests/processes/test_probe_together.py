"""A probe whose parameters lie over the devices of two processes: the record of one process, in each of them."""

import json

import jax
import numpy as np
import pytest
from adapted_models import weights
from probed import SMALL, small_probe
from process_launcher import free_port

LOOKS = """
import json, sys
import jax, numpy as np
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from jax.sharding import AxisType, NamedSharding, PartitionSpec
from adapted_models import weights
from probed import SMALL, small_probe
from tdd.placement import partition, put_shares
from tdd.probe.probe import _on_host
params = weights()
mesh = jax.make_mesh((4,), ("data",), axis_types=(AxisType.Auto,))
def cut(leaf):
    return NamedSharding(mesh, partition(leaf.shape, mesh, layered=False))
shared = jax.tree.map(lambda leaf: put_shares(leaf, cut(leaf)), params)
step = jax.jit(lambda tree: jax.tree.map(lambda leaf: leaf * 1.01, tree), donate_argnums=0)
probe = small_probe(SMALL, every=1)
for number in range(2):
    record = probe(number, shared)
    shared = step(shared)
probe.save(sys.argv[3])
again = small_probe(SMALL, every=1)
again.restore(sys.argv[3])
record = again(2, shared)
found = {"scores": record.result.suspect_scores.tolist(), "evidence": [float(x) for x in record.evidence]}
part = put_shares(np.arange(8), NamedSharding(mesh, PartitionSpec("data")))
found["whole"] = _on_host({"part": part})["part"].tolist()
found["cut"] = not part.is_fully_addressable
print(json.dumps(found), flush=True)
"""


def test_each_process_gets_the_record_of_one(launcher, tmp_path):
    address = f"127.0.0.1:{free_port()}"
    ends = launcher.all(
        [launcher.python(LOOKS, address, index, tmp_path / str(index), devices=2) for index in range(2)]
    )
    params = weights()
    alone = small_probe(SMALL, every=1)
    for number in range(3):
        record = alone(number, params)
        params = jax.tree.map(lambda leaf: leaf * 1.01, params)
    for end in ends:
        assert end.code == 0, end.err
        found = json.loads(end.out.splitlines()[-1])  # behind what Gloo says
        assert found["cut"]
        assert found["whole"] == list(range(8))
        assert found["scores"] == pytest.approx(record.result.suspect_scores.tolist(), rel=1e-5)
        assert found["evidence"] == json.loads(ends[0].out.splitlines()[-1])["evidence"]
        assert np.isfinite(found["evidence"]).all()
