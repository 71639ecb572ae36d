"""Settings that must be made before JAX starts."""

import json
import os
import subprocess
import sys

import pytest

from tdd.cores import set_host_device_count

CODE = """
import json, os, sys
from tdd.cores import set_host_device_count
made = set_host_device_count({devices})
early = "jax" in sys.modules
import jax
print(json.dumps([made, early, jax.device_count(), set_host_device_count(7), os.environ["XLA_FLAGS"]]))
"""


def in_process(devices, flags):
    environment = {**os.environ, "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(devices=devices)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize(
    ("devices", "flags", "expected"),
    [
        (3, "", [True, False, 3, False, "--xla_force_host_platform_device_count=3"]),
        (
            3,
            "--xla_force_host_platform_device_count=2",
            [False, False, 2, False, "--xla_force_host_platform_device_count=2"],
        ),
    ],
)
@pytest.mark.slow("long")
def test_devices(devices, flags, expected):
    assert in_process(devices, flags) == expected


def test_one_device_a_core():
    made, early, devices, again, _ = in_process(None, "")
    assert (made, early, again) == (True, False, False)
    assert devices == len(os.sched_getaffinity(0))


def test_it_is_too_late_once_jax_is_loaded():
    assert "jax" in sys.modules
    before = os.environ.get("XLA_FLAGS")
    assert not set_host_device_count(5)
    assert os.environ.get("XLA_FLAGS") == before
