"""Compiles the main programs for accelerators that are not there, and says what to expect of them.

python -m benchmarks.aot --target h200 --target v5e --program "resample" --out aot.json
"""

from __future__ import annotations

import argparse
import dataclasses
import pathlib
import sys
import time
from typing import Any

from benchmarks.aot.targets import TARGETS, device  # isort: skip (before JAX: it sets what JAX reads)

import jax

from benchmarks.aot.hlo import facts, without_dead_code, written_flops
from benchmarks.aot.programs import PROGRAMS, placed
from benchmarks.throughput.harness import write


def compiled_facts(program: str, target: str) -> dict[str, Any]:
    """What a program is expected to do on a target; the compiler's first line if it refuses."""
    started = time.perf_counter()
    where = device(target)
    made = PROGRAMS[program](where)
    traced = jax.jit(made.function, donate_argnums=made.donated).trace(*placed(made.arguments, where))
    record: dict[str, Any] = {"program": program, "target": target}
    try:
        compiled = traced.lower().compile()
    except jax.errors.JaxRuntimeError as error:
        return {**record, "refused": str(error).splitlines()[0][:200]}
    found = facts(
        compiled,
        TARGETS[target].kind,
        made.trips,
        written_flops(without_dead_code(traced.jaxpr.jaxpr), made.trips),
        TARGETS[target].clock,
    )
    rate = made.work / found.seconds if found.seconds else None
    return {**record, **dataclasses.asdict(found), "rate": rate, "compile_s": round(time.perf_counter() - started, 1)}


def main(arguments: list[str]) -> int:
    """Print one line a program and target, and write all of them as JSON."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.aot", description=__doc__)
    parser.add_argument("--target", action="append", choices=TARGETS, help="default: all")
    parser.add_argument("--program", action="append", help="the beginning of a program's name; default: all")
    parser.add_argument("--out", help="JSON file to write")
    given = parser.parse_args(arguments)
    names = [name for name in PROGRAMS if name.startswith(tuple(given.program or ("",)))]
    records = []
    for target in given.target or TARGETS:
        for name in names:
            records.append(compiled_facts(name, target))
            print(_line(records[-1]), flush=True)
            if given.out:
                write(pathlib.Path(given.out), {"estimate": True, "jax": jax.__version__, "records": records})
    return 0


def _line(record: dict[str, Any]) -> str:
    named = f"{record['target']:6s} {record['program']:50s}"
    if "refused" in record:
        return f"{named} refused: {record['refused']}"
    share = record["launch_seconds"] / max(record["seconds"], 1e-12)
    return (
        f"{named} {1e3 * record['seconds']:10.3f} ms, {record['share_of_peak']:5.1%} of peak, "
        f"launches {share:4.0%} ({record['launches']:.0f}), {record['waits']:.0f} waits, "
        f"{record['temporary'] / 2**20:.0f} MiB, {record['rate'] or 0:.3g}/s, fits {record['fits']}, "
        f"{record['foreign_calls']}, compiled in {record['compile_s']} s"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
