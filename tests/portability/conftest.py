"""An environment whose JAX compiles for TPUs and NVIDIA GPUs without one."""

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


def compilers():
    """libtpu in the version that this JAX asks for, and the CUDA plugin of the same version as JAX."""
    version = importlib.metadata.version("jax")
    asked = [re.match(r"(libtpu\s*==[^;\s]+)", line) for line in importlib.metadata.requires("jax") or ()]
    return [
        f"jax-cuda12-pjrt=={version}",
        f"jax-cuda12-plugin=={version}",
        *(found.group(1) for found in asked if found),
    ]


@pytest.fixture(scope="session")
def compiled_elsewhere(tmp_path_factory):
    """A function (target, programs) -> records of `python -m benchmarks.aot`, in that environment."""
    site = tmp_path_factory.mktemp("aot")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(site), *compilers()]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=INSTALLATION_S)
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(compilers())} were not installed in {INSTALLATION_S} s")
    if done.returncode:
        pytest.skip(f"{' '.join(compilers())} cannot be installed: {(done.stderr.strip().splitlines() or [''])[-1]}")

    def compile_for(target, programs):
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
