"""An environment whose JAX compiles for TPUs and NVIDIA GPUs without one."""

import functools
import importlib.metadata
import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]
INSTALLATION_S = 600


def compiler(target):
    """libtpu in the version that this JAX asks for, or the CUDA plugin of the same version as JAX."""
    if target.startswith("h"):
        version = importlib.metadata.version("jax")
        return [f"jax-cuda12-pjrt=={version}", f"jax-cuda12-plugin=={version}"]
    asked = [re.match(r"(libtpu\s*==[^;\s]+)", line) for line in importlib.metadata.requires("jax") or ()]
    return [found.group(1) for found in asked if found]


@pytest.fixture(scope="session")
def compiled_elsewhere(tmp_path_factory):
    """A function (target, programs) -> records of `python -m benchmarks.aot`, in an environment of its own.

    It skips the test if the target's compiler cannot be installed.
    """
    site = tmp_path_factory.mktemp("aot")

    @functools.cache
    def missing(*packages):
        """Why they are not installed in that environment; "" if they are."""
        command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *packages]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLATION_S)
        except subprocess.TimeoutExpired:
            return f"{' '.join(packages)} were not installed in {INSTALLATION_S} s"
        if not done.returncode:
            return ""
        return f"{' '.join(packages)} cannot be installed: {(done.stderr.strip().splitlines() or [''])[-1]}"

    @functools.cache
    def compile_for(target, programs):
        if reason := missing(*compiler(target)):
            pytest.skip(reason)
        out = site / "records.json"
        chosen = ["--target", target, *(word for program in programs for word in ("--program", program))]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith(("XLA_", "JAX_"))},
            "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)]),
            "JAX_PLATFORMS": "cpu",
        }
        command = [sys.executable, "-m", "benchmarks.aot", *chosen, "--out", str(out)]
        done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900)
        assert done.returncode == 0, done.stderr[-3000:]
        records = json.loads(out.read_text())["records"]
        return {(record["target"], record["program"]): record for record in records}

    return compile_for
