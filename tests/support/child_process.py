"""Python in another process: with a number of devices, compiled as in this one, with its compiled programs."""

import functools
import json
import os
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]

QUICK_COMPILATION = (
    "--xla_backend_optimization_level=0",
    "--xla_cpu_use_fusion_emitters=false",
    "--xla_cpu_parallel_codegen_split_count=1",
    "--xla_disable_hlo_passes=constant_folding",
)
"""XLA's settings for what is compiled once and run a few times: a third of the compiler's time."""


def starts(*flags):
    """Whether JAX starts with these flags of XLA, asked in another process: XLA ends one that is given an unknown."""
    done = subprocess.run(
        [sys.executable, "-c", "import jax; jax.devices()"],
        env={**os.environ, "JAX_PLATFORMS": "cpu", "XLA_FLAGS": " ".join(flags)},
        capture_output=True,
    )
    return done.returncode == 0


@functools.cache
def known(*flags):
    """Those of the flags that the installed XLA knows."""
    return flags if starts(*flags) else tuple(flag for flag in flags if starts(flag))


def environment(devices=1, **variables):
    """This process's, on a host that shows `devices` devices, with `tdd` and the support of the tests to import."""
    return {
        **os.environ,
        "JAX_PLATFORMS": "cpu",
        "JAX_NUM_CPU_DEVICES": str(devices),
        "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "tests" / "support")]),
        **variables,
    }


def run_python(code, *arguments, devices=1, **variables):
    """Run code to its end; returns what its last line of output says in JSON."""
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)],
        env=environment(devices, **variables), cwd=ROOT, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])
