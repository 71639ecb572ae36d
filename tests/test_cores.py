"""Settings that must be made before JAX starts."""

import json
import os
import subprocess
import sys

import child_process
import pytest

from tdd.cores import set_host_device_count

CODE = """
import json, os, sys
from tdd.cores import set_host_device_count
made = set_host_device_count({devices})
early = "jax" in sys.modules
import jax
print(json.dumps([made, early, jax.device_count(), set_host_device_count(7)]))
"""


def in_process(devices, **variables):
    unset = {"XLA_FLAGS", "JAX_NUM_CPU_DEVICES"}
    environment = {name: value for name, value in os.environ.items() if name not in unset}
    environment |= {"JAX_PLATFORMS": "cpu", **variables}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(devices=devices)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, [True, False, 3, False]),
        ({"XLA_FLAGS": "--xla_force_host_platform_device_count=2"}, [False, False, 2, False]),
        ({"JAX_NUM_CPU_DEVICES": "2"}, [False, False, 2, False]),
    ],
)
@pytest.mark.slow("long")
def test_devices(variables, expected):
    assert in_process(3, **variables) == expected


def test_one_device_a_core():
    assert in_process(None) == [True, False, len(os.sched_getaffinity(0)), False]


def test_it_is_too_late_once_jax_is_loaded():
    assert "jax" in sys.modules
    before = dict(os.environ)
    assert not set_host_device_count(5)
    assert dict(os.environ) == before


@pytest.mark.slow("processes")
def test_flags_that_xla_does_not_know_are_left_out():
    known, unknown = "--xla_backend_optimization_level=0", "--xla_no_such_flag=1"
    assert child_process.known(known, unknown) == (known,)
