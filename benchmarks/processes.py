"""`tdd score` in one process and in several, on this machine: are the tables the same bytes, is work done twice, and
how much memory does a process need for its share of the parameters?

    python benchmarks/processes.py

- "one": `tdd score` of the demonstration's texts in one process.
- "connected": the same command in four processes that `jax.distributed` connects through the loopback.
- "unconnected": in four processes that have nothing in common but the folder; one of them is killed with SIGKILL after
  its first shard and is not started again: the others take its batches over.
- "restarted": all four are killed after a few shards and started again.

`rows_computed` counts what went through the model, in the processes that were not killed; `rows_stored` what the store
holds at the end. Where nobody was killed, they are equal: nothing was computed twice.

Memory: a checkpoint of random numbers is loaded whole by one process, and by two processes that share the parameters
out over their devices (`--shard-params`): growth of the peak of the resident set while loading.

Processes on one machine share its cores, so the seconds say nothing of what more machines would save.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import tempfile
import time
from typing import Any

from harness import machine, write

from tdd.audit.store.shards import decode_keys
from tdd.demo.data import demo_files, load_calibration, load_candidates

COUNTING = """
import sys
from tdd.audit import programs
from tdd.audit.store import space
from tdd.cli import main
space._SECONDS = 0.2
rows, start = 0, programs.TokenProgram.start
def counting(self, pieces, *arguments):
    global rows
    rows += sum(len(piece) for piece in pieces)
    return start(self, pieces, *arguments)
programs.TokenProgram.start = counting
from tdd.processes import meeting
meeting.SILENCE = 10.0
code = main(sys.argv[1:])
print("rows", rows, file=sys.stderr)
sys.exit(code)
"""

MEMORY = """
import sys
from tdd.processes import initialize
count = int(sys.argv[3])
if count > 1:
    initialize(sys.argv[2], count, int(sys.argv[4]), survive=False)
import jax
from tdd.audit.mesh import find_devices
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
    """Run everything and write the results."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, default=4)
    parser.add_argument("--copies", type=int, default=1, help="times that the demonstration's texts are taken")
    parser.add_argument("--width", type=int, default=768, help="of the checkpoint whose memory is measured")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        texts = write_texts(folder, arguments.copies)
        rows: list[dict[str, Any]] = []
        for how in ("one", "connected", "unconnected", "restarted"):
            row = scored(folder, texts, how, arguments.processes)
            rows.append({**row, "same_bytes_as_one": row["sha256"] == [*rows, row][0]["sha256"]})
            print(json.dumps(rows[-1]), flush=True)
        memory = loaded(folder, arguments.width)
        print(json.dumps(memory))
    result = {"machine": machine(), "processes": arguments.processes, "scoring": rows, "memory": memory}
    print(write("processes", result))


def write_texts(folder: pathlib.Path, copies: int) -> pathlib.Path:
    """The demonstration's texts, each copy cut at another place so that no row is the same."""
    place = folder / "texts.jsonl"
    with open(place, "w", encoding="utf-8") as file:
        for copy in range(copies):
            for texts in (load_calibration(demo_files()), load_candidates(demo_files())):
                for text in texts.texts:
                    file.write(json.dumps({"text": text[7 * copy :]}) + "\n")
    return place


def scored(folder: pathlib.Path, texts: pathlib.Path, how: str, count: int) -> dict[str, Any]:
    """One way of scoring: the hash of its table, and what was computed for it."""
    out, store = folder / f"{how}.csv", folder / how
    command = ["score", demo_files().checkpoint, texts, "--out", out, "--store", store, "--scores", "loss,min_k"]
    command += ["--token-budget", 512]
    address = ["--coordinator", f"127.0.0.1:{free_port()}"] if how == "connected" else []
    start = time.perf_counter()

    def begin() -> list[subprocess.Popen[str]]:
        if how == "one":
            return [started(COUNTING, *command)]
        return [
            started(COUNTING, *command, *address, "--num-processes", count, "--process-id", index)
            for index in range(count)
        ]

    processes = begin()
    dead: list[subprocess.Popen[str]] = []
    if how in ("unconnected", "restarted"):
        while len([*store.rglob("*.parquet")]) < 3 and processes[0].poll() is None:
            time.sleep(0.01)
        dead = processes[1:2] if how == "unconnected" else processes
        for process in dead:
            process.send_signal(signal.SIGKILL)
            process.wait()
    finished = shards(store)
    if how == "restarted":
        processes, dead = begin(), []
    computed = []
    for process in processes:
        _, err = process.communicate(timeout=600)
        if process not in dead:
            assert process.returncode == 0, err
            computed.append(int(err.split()[-1]))
    return {
        "how": how,
        "processes": len(processes),
        "seconds": round(time.perf_counter() - start, 1),
        "sha256": hashlib.sha256(out.read_bytes()).hexdigest(),
        "rows_computed": computed,
        "rows_stored": len(set().union(*shards(store).values())),
        "rows_stored_at_the_kill": len(set().union(*finished.values()))
        if how in ("unconnected", "restarted")
        else None,
        "finished_shards_lost": sum(shard not in shards(store) for shard in finished),
    }


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
    from tdd.models.decoder import init_params, language_model
    from tdd.models.spec import Attention, DecoderSpec, LayerNorm, LearnedPositions, Mlp

    tokenizer = load(demo_files().checkpoint)[2]
    spec = DecoderSpec(
        vocab_size=40 * width,
        width=width,
        num_layers=8,
        norm=LayerNorm(),
        positions=LearnedPositions(256),
        attention=Attention(8, width // 8, ((width // 8) ** -0.5,) * 8),
        mlp=Mlp(4 * width, "gelu_tanh"),
    )
    save(place, language_model(spec), init_params(spec, jax.random.key(0)), tokenizer)


def shards(store: pathlib.Path) -> dict[str, set[bytes]]:
    """Finished shards and the keys in them."""
    return {path.name: set(decode_keys(path.read_bytes())[0]) for path in store.rglob("*.parquet")}


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
