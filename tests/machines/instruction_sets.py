"""Numbers, not laws, as XLA compiles for other processors: golden values, references, parity with torch and last bits.

    python tests/machines/instruction_sets.py             every set that this processor has
    python tests/machines/instruction_sets.py SSE4_2      one of them
    python tests/machines/instruction_sets.py --list      which it has

Programs are compiled as users compile them. `XLA_FLAGS=--xla_cpu_max_isa=AVX2 python -m pytest` runs every test so.
XLA calls a library for products, which chooses its instructions by itself; under a set they are XLA's own, if it can.
"""

import argparse
import os
import pathlib
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests" / "support"))

import child_process  # noqa: E402

SETS = {"SSE4_2": "sse4_2", "AVX2": "avx2", "AVX512": "avx512f"}
"""XLA's names, the narrowest first, and the flag of /proc/cpuinfo."""

OWN_PRODUCTS = "--xla_cpu_experimental_ynn_fusion_type="

FOLDERS = ("contract", "procedures", "models", "scoring", "kernels/test_online_conformal.py")
CHOSEN = "(golden or test_reference or parity or masked_scores or bits) and not record_is_torch"


def available(cpuinfo):
    """Those of `SETS` that a processor has."""
    flags = next((line.split() for line in cpuinfo.splitlines() if line.startswith("flags")), [])
    return [name for name, flag in SETS.items() if flag in flags]


def run(name, options):
    """(exit status, seconds, the last line of pytest) under an instruction set, or under the processor's own."""
    flags = (f"--xla_cpu_max_isa={name}", *child_process.known(OWN_PRODUCTS)) if name in SETS else ()
    environment = {**os.environ, "XLA_FLAGS": " ".join([os.environ.get("XLA_FLAGS", ""), *flags]).strip()}
    chosen = ("-m", "slow or not slow", "-k", CHOSEN, "--compilation", "full", "--dist", "load")
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *chosen, *options, *(f"tests/{name}" for name in FOLDERS)],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False,
    )  # fmt: skip
    if done.returncode:
        print(done.stdout, flush=True)
    return done.returncode, time.perf_counter() - started, (done.stdout.strip().splitlines() or [""])[-1]


def main(arguments):
    """Run the tests under each set; the exit status is that of the first that failed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", help="lowest, native, or a name (default: all)")
    parser.add_argument("--list", action="store_true", help="print the names and end")
    parser.add_argument("-n", default="2", help="workers")
    given = parser.parse_args(arguments)
    here = available(pathlib.Path("/proc/cpuinfo").read_text())
    if given.list or not here:
        print(*(here or ["this processor names none of", *SETS]))
        return 0
    asked = [here[0] if name == "lowest" else name for name in given.sets or here]
    if missing := [name for name in asked if name not in [*here, "native"]]:
        parser.error(f"{', '.join(missing)}: this processor has {', '.join(here)}")
    status = 0
    for name in asked:
        code, seconds, last = run(name, ["-n", given.n])
        print(f"{name}: {last} ({seconds:.0f} s)", flush=True)
        status = status or code
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
