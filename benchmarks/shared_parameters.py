"""Memory that a process needs for its part of a model's parameters on this machine.

    python -m benchmarks.shared_parameters

A checkpoint of random numbers is loaded whole by one process, and by two processes that `jax.distributed` connects
through the loopback and that shard the parameters over their devices (`--shard-params`): growth of the peak of the
resident set while loading.
"""

from __future__ import annotations

import argparse
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
from typing import Any

from benchmarks.harness import machine, write
from tdd.demo.data import demo_files

MEMORY = """
import sys
import jax
count = int(sys.argv[3])
if count > 1:
    jax.distributed.initialize(sys.argv[2], count, int(sys.argv[4]))
from tdd.scoring.devices import find_devices
from tdd.demo.data import demo_files
from tdd.models.checkpoint import load
mesh = find_devices(shard_params=True).mesh if count > 1 else None
load(demo_files().checkpoint, mesh=mesh)  # what loading itself needs, whatever the model
def peak():
    return next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM"))
before = peak()
params = load(sys.argv[1], mesh=mesh)[1]
print("\\n", peak() - before, sum(leaf.nbytes for leaf in jax.tree.leaves(params)))
"""


def main() -> None:
    """Measure and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=768, help="of the checkpoint")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        memory = loaded(pathlib.Path(name), arguments.width)
    print(memory)
    print(write("shared_parameters", {"machine": machine(), "memory": memory}))


def loaded(folder: pathlib.Path, width: int) -> dict[str, Any]:
    """Peak memory of loading a checkpoint whole, and a share of it."""
    place = folder / "model"
    save_random(place, width)
    (whole,) = finish([started(MEMORY, place, "-", 1, 0)])
    address = f"127.0.0.1:{free_port()}"
    shares = finish([started(MEMORY, place, address, 2, index) for index in range(2)])
    return {
        "parameters_mib": round(whole[1] / 2**20),
        "peak_mib_whole": round(whole[0] / 2**10),
        "peak_mib_of_two_processes": [round(found[0] / 2**10) for found in shares],
    }


def finish(processes: list[subprocess.Popen[str]]) -> list[list[int]]:
    """The numbers in the last lines of the outputs."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=600)
        assert process.returncode == 0, err
        found.append([*map(int, out.splitlines()[-1].split())])
    return found


def save_random(place: pathlib.Path, width: int) -> None:
    """A checkpoint of random numbers."""
    import jax

    from tdd.models.checkpoint import load, save
    from tdd.models.decoder import init_params
    from tdd.models.language_model import language_model
    from tdd.models.spec import DecoderSpec

    tokenizer = load(demo_files().checkpoint)[2]
    spec = DecoderSpec.gpt2(vocab_size=40 * width, width=width, num_layers=8, num_heads=8, max_length=256)
    save(place, language_model(spec), init_params(spec, jax.random.key(0)), tokenizer)


def started(code: str, *arguments: Any) -> subprocess.Popen[str]:
    """A process of its own, with one device."""
    env = {**os.environ, "JAX_PLATFORMS": "cpu", "TDD_COMPILATION_CACHE": "0"}
    command = [sys.executable, "-c", code, *map(str, arguments)]
    return subprocess.Popen(command, env=env, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def free_port() -> int:
    """A port of the loopback."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
