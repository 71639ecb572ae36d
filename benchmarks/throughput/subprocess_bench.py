"""Measurements that need a process of their own: what a study costs with its imports and compilation, flags or none.

`python -m benchmarks.throughput.subprocess_bench SPEC`, SPEC a JSON object, prints one JSON object. The peer runs
in the same process, its rounds between those of the study.
"""

from __future__ import annotations

import importlib
import json
import os
import pathlib
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import Any

__all__ = ["echo", "in_fresh_process", "main"]

_KEPT = (
    "PATH", "HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "PYTHONPATH", "TMPDIR", "VIRTUAL_ENV", "JAX_PLATFORMS",
    "CUDA_VISIBLE_DEVICES", "XLA_PYTHON_CLIENT_PREALLOCATE",
)  # fmt: skip
_DEADLINE = 1800
_ROOT = pathlib.Path(__file__).resolve().parents[2]


def in_fresh_process(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Run one measurement in a new interpreter whose environment carries no compiler setting.

    Args:
      spec: `study`, a module of this folder and its function, as `studies.resample`; `flags`, whether the settings of
        `tdd study` are made before JAX starts; and the arguments of the function.

    Returns:
      What the function returned, with `import_s`.

    Raises:
      RuntimeError: the process failed; the message holds the end of what it said.
    """
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    command = [sys.executable, "-m", "benchmarks.throughput.subprocess_bench", json.dumps(dict(spec))]
    done = subprocess.run(
        command, env=environment, cwd=_ROOT, capture_output=True, text=True, timeout=_DEADLINE, check=False
    )
    if done.returncode:
        raise RuntimeError(f"{spec['study']} failed in its own process:\n{done.stderr[-800:]}")
    return json.loads(done.stdout.splitlines()[-1])


def main(spec: dict[str, Any]) -> dict[str, Any]:
    """Run one measurement in this process."""
    start = time.perf_counter()
    if spec.pop("flags"):
        from tdd.cores import set_host_device_count

        set_host_device_count()
    module, name = spec.pop("study").split(".")
    measure = getattr(importlib.import_module(f"benchmarks.throughput.{module}"), name)
    import_s = time.perf_counter() - start
    return measure(**spec) | {"import_s": import_s, "xla_flags": os.environ.get("XLA_FLAGS", "")}


def echo(value: Any) -> dict[str, Any]:
    """What it was given: a measurement of nothing, to see that processes start."""
    return {"value": value}


if __name__ == "__main__":
    print(json.dumps(main(json.loads(sys.argv[1]))))
