"""The test of canonical order on several devices: the numbers of one device to the last bit."""

import pytest
from child_process import run_python

CODE = """
import json, sys
import numpy as np
from scored_models import random_texts, scored_model
from tdd.exchange.run import run_exchange

model, texts, out = scored_model(positions=128), random_texts(48, 1, 5, 9), {}

def run(**options):
    options = {"num_shards": 6, "num_shuffles": 5, "separator": " ", "progress": False, "token_budget": 160, **options}
    return run_exchange(model, texts, **options)

for suffix in (1.0, 0.5):
    one = run(suffix=suffix)
    for sharded in (False, True):
        found = run(suffix=suffix, devices=4, shard_params=sharded)
        pairs = zip(found.log_probs["data 1"], one.log_probs["data 1"])
        out[f"{suffix} {sharded}"] = [bool(np.array_equal(a, b)) for a, b in pairs]
print(json.dumps(out))
"""


@pytest.mark.slow("processes")
def test_the_numbers_do_not_depend_on_the_devices():
    cases = [f"{suffix} {sharded}" for suffix in (1.0, 0.5) for sharded in (False, True)]
    assert run_python(CODE, devices=4) == {case: [True, True] for case in cases}
