"""`python -m benchmarks device`: the main programs on this machine's accelerator, beside the estimate and torch."""

from __future__ import annotations

import argparse
import functools
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

from tdd.cli.common import command, print_json
from tdd.validate import InputError, is_memory_error

__all__ = ["add", "measured"]

_ROUNDS = 5
_KERNELS = 8
"""Of a profile, those whose sums of time are the largest."""


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(commands, "device", _run, "measure the main programs on this machine's accelerator")
    parser.add_argument("--program", action="append", metavar="NAME", help="beginning of a name (default: all)")
    parser.add_argument("--limit", type=float, default=420, metavar="S", help="begin nothing after S seconds")
    parser.add_argument("--no-tests", action="store_true", help="leave out the tests that need an accelerator")
    parser.add_argument(
        "--profile",
        metavar="DIR",
        help="write each compiled program and a profile of one call of it, and list its largest kernels",
    )
    parser.add_argument("--out", metavar="FILE", help="JSON file to write")


def _run(arguments: argparse.Namespace) -> int:
    import jax

    from benchmarks.aot.peers import share_memory, torch_device
    from benchmarks.aot.programs import PROGRAMS
    from benchmarks.throughput import harness
    from tdd.runs.atomic import check_output_file

    last = time.perf_counter() + arguments.limit
    share_memory()
    device = jax.devices()[0]
    if device.platform == "cpu" and not arguments.program:
        raise InputError(
            "this machine has no accelerator (JAX sees cpu); name programs with --program to measure them here, or "
            "estimate with python -m benchmarks.aot"
        )
    if arguments.out is not None:
        check_output_file(pathlib.Path(arguments.out), (".json",))
    names = [name for name in PROGRAMS if name.startswith(tuple(arguments.program or ("",)))]
    if not names:
        raise InputError(f"--program {', '.join(arguments.program)} begins no name; there are {'; '.join(PROGRAMS)}")
    where, about_torch = torch_device(device.platform)
    result: dict[str, Any] = {"device": device.device_kind, "jax": jax.__version__}
    result |= {"peer": about_torch if where else None, "no_peer": "" if where else about_torch}
    result |= {"rows": [], "left_out": []}
    if device.platform != "cpu" and not arguments.no_tests:
        result["tests"] = _tests()
    for name in names:
        if time.perf_counter() > last:
            result["left_out"].append(name)
        else:
            result["rows"].append({"program": name, **_row(name, device, arguments.profile, where, last)})
            if not arguments.quiet:
                print(result["rows"][-1], file=sys.stderr, flush=True)
        if arguments.out is not None:
            harness.write(pathlib.Path(arguments.out), result)
    if arguments.json or arguments.out is None:
        print_json(result)
    return int(any("failed" in row for row in result["rows"]))


def _tests() -> str:
    """The last line of the tests that need an accelerator, whose memory this process has taken its part of."""
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "--compilation", "full", "tests/portability"]
    environment = {**os.environ, "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stdout, done.stderr, sep="\n", file=sys.stderr)
    return (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]


def _row(name: str, *options: Any) -> dict[str, Any]:
    """What `measured` says; of a program that fails, why, so that the others are measured."""
    try:
        return measured(name, *options)
    except Exception as error:
        traceback.print_exc()
        return {"failed": f"{type(error).__name__}: {next(iter(str(error).splitlines()), '')[:300]}"}


def measured(
    name: str, device: Any, profile: str | None = None, where: str = "", last: float = math.inf
) -> dict[str, Any]:
    """Seconds of one call of a program, beside the estimate and torch: medians of five rounds after the first call.

    Args:
      name: In `PROGRAMS`.
      device: JAX's.
      profile: Folder for a folder with a profile of one call and the compiled program, or None.
      where: Torch's device, or "".
      last: Time of `time.perf_counter` after which no peer begins.

    Returns:
      A row, whose `peer` is None where torch has no such program or does not run, and else holds, by way,
      `{"seconds", "all", "difference", "peer / ours"}` or `{"refused"}`.
    """
    import jax

    from benchmarks.aot.hlo import facts, without_dead_code, written_flops
    from benchmarks.aot.peers import beside, interleaved
    from benchmarks.aot.programs import PROGRAMS, filled
    from benchmarks.throughput import harness
    from tdd.device_kinds import kind_of

    made, kind = PROGRAMS[name](device), kind_of(device)
    try:
        arguments = filled(made.arguments, device)
        traced = jax.jit(made.function).trace(*arguments)
        begun = time.perf_counter()
        compiled = traced.lower().compile()
        compile_s = time.perf_counter() - begun
        ours = functools.partial(compiled, *arguments)
        jax.block_until_ready(ours())
        with beside(made.peer if where else None, device, where, arguments, last) as (calls, about):
            rounds = interleaved(ours, calls, about, _ROUNDS)
        kernels = _profiled(ours, compiled, pathlib.Path(profile) / _folder(name)) if profile else None
    except jax.errors.JaxRuntimeError as error:
        if not is_memory_error(error):
            raise
        return {"refused": str(error).splitlines()[0][:200]}
    seconds = rounds.pop("")
    median = statistics.median(seconds)
    row = {
        "seconds": median,
        "all": seconds,
        "compile_s": compile_s,
        "rate": made.work / median,
        "peer": about or None,
    }
    row |= {"kernels": kernels} if kernels else {}
    for way, others in rounds.items():
        slower = harness.ratio(others, seconds)
        about[way] |= {"seconds": statistics.median(others), "all": others, "peer / ours": slower}
    if kind.memory is None or kind.peak is None or kind.bandwidth is None:
        return row
    flops = written_flops(without_dead_code(traced.jaxpr.jaxpr), made.trips)
    estimated = facts(compiled, kind, made.trips, flops).seconds
    row |= {"estimated_s": estimated, "estimated / measured": estimated / median}
    return {**row, "share_of_peak": flops / kind.peak / median}


def _folder(name: str) -> str:
    """A program's name as that of a folder."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def _profiled(call: Callable[[], Any], compiled: Any, folder: pathlib.Path) -> list[dict[str, Any]]:
    """What a device ran in one call, the largest sums first: {"name", "times", "ms"}. Empty on a CPU."""
    import jax

    folder.mkdir(parents=True, exist_ok=True)
    (folder / "program.hlo").write_text(compiled.as_text())
    with jax.profiler.trace(str(folder)):
        jax.block_until_ready(call())
    latest = max(folder.rglob("*.xplane.pb"), key=lambda file: file.stat().st_mtime)
    times: dict[str, list[float]] = {}
    for plane in jax.profiler.ProfileData.from_file(str(latest)).planes:
        for line in plane.lines if plane.name.startswith("/device:") else ():
            for event in line.events if line.name.startswith("Stream") else ():
                times.setdefault(event.name, []).append(event.duration_ns / 1e6)
    rows = [{"name": name, "times": len(each), "ms": sum(each)} for name, each in times.items()]
    return sorted(rows, key=lambda row: -row["ms"])[:_KERNELS]
