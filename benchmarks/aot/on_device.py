"""`python -m benchmarks device`: the main programs on this machine's accelerator, measurement beside estimate."""

from __future__ import annotations

import argparse
import contextlib
import pathlib
import statistics
import subprocess
import sys
import time
from typing import Any

from tdd.cli.common import command, print_json
from tdd.validate import InputError, is_memory_error

__all__ = ["add", "measured"]

_ROUNDS = 5


def add(commands: Any) -> None:
    """Register the command."""
    parser = command(commands, "device", _run, "measure the main programs on this machine's accelerator")
    parser.add_argument("--program", action="append", metavar="NAME", help="beginning of a name (default: all)")
    parser.add_argument("--limit", type=float, default=420, metavar="S", help="begin no program after S seconds")
    parser.add_argument("--no-tests", action="store_true", help="leave out the tests that need an accelerator")
    parser.add_argument("--profile", metavar="DIR", help="write a profile of one call each, for XProf or Perfetto")
    parser.add_argument("--out", metavar="FILE", help="JSON file to write")


def _run(arguments: argparse.Namespace) -> None:
    import jax

    from benchmarks.aot.programs import PROGRAMS
    from benchmarks.throughput import harness
    from tdd.runs.atomic import check_output_file

    device, started = jax.devices()[0], time.perf_counter()
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
    result: dict[str, Any] = {"device": device.device_kind, "jax": jax.__version__, "rows": [], "left_out": []}
    if device.platform != "cpu" and not arguments.no_tests:
        tests = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/portability"]
        done = subprocess.run(tests, capture_output=True, text=True, check=False)
        result["tests"] = (done.stdout.strip().splitlines() or [done.stderr.strip()])[-1]
    for name in names:
        if time.perf_counter() - started > arguments.limit:
            result["left_out"].append(name)
            continue
        result["rows"].append({"program": name, **measured(name, device, arguments.profile)})
        if not arguments.quiet:
            print(result["rows"][-1], file=sys.stderr, flush=True)
    if arguments.out is not None:
        harness.write(pathlib.Path(arguments.out), result)
    if arguments.json or arguments.out is None:
        print_json(result)


def measured(name: str, device: Any, profile: str | None = None) -> dict[str, Any]:
    """Seconds of one call of a program: the median of five after the first, beside the estimate."""
    import jax

    from benchmarks.aot.hlo import facts, without_dead_code, written_flops
    from benchmarks.aot.programs import PROGRAMS, filled
    from tdd.device_kinds import kind_of

    made, kind = PROGRAMS[name](device), kind_of(device)
    try:
        arguments = filled(made.arguments, device)
        traced = jax.jit(made.function).trace(*arguments)
        begun = time.perf_counter()
        compiled = traced.lower().compile()
        compile_s = time.perf_counter() - begun
        jax.block_until_ready(compiled(*arguments))
        seconds = []
        for _ in range(_ROUNDS):
            begun = time.perf_counter()
            jax.block_until_ready(compiled(*arguments))
            seconds.append(time.perf_counter() - begun)
        with jax.profiler.trace(profile) if profile else contextlib.nullcontext():
            jax.block_until_ready(compiled(*arguments)) if profile else None
    except jax.errors.JaxRuntimeError as error:
        if not is_memory_error(error):
            raise
        return {"refused": str(error).splitlines()[0][:200]}
    median = statistics.median(seconds)
    row = {"seconds": median, "all": seconds, "compile_s": compile_s, "rate": made.work / median}
    if kind.memory is None or kind.peak is None or kind.bandwidth is None:
        return row
    flops = written_flops(without_dead_code(traced.jaxpr.jaxpr), made.trips)
    estimated = facts(compiled, kind, made.trips, flops).seconds
    row |= {"estimated_s": estimated, "estimated / measured": estimated / median}
    return {**row, "share_of_peak": flops / kind.peak / median}
