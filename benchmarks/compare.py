"""Two checkouts side by side: `python -m benchmarks.compare BEFORE AFTER [--rounds 5] [--only NAMES]`.

Each checkout runs in a process of its own that stays for the whole comparison. In every round each case runs in both,
one after the other, so that a slow minute of the machine meets both; the ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import contextlib
import functools
import io
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

import numpy as np

TOLERATED = 1.05
"""Ratio above which a case counts as slower."""


SHORTEST = 0.5
"""Seconds for which a case is repeated in a round; the mean of its calls counts."""


def cases(folder: pathlib.Path) -> dict[str, Callable[[], object]]:
    """Name -> call, compiled by a first run; nothing here depends on what a change may rename."""
    import jax

    import tdd
    from tdd.cli import main
    from tdd.demo.data import demo_files

    rng = np.random.default_rng(0)
    member = rng.random(100_000) < 0.3
    scores = rng.normal(size=member.size) - 1.5 * member
    known = rng.normal(size=20_000)
    p_values = np.asarray(tdd.conformal_p_values(known, scores, null="nonmember"))
    families = rng.random((1_000, 1_000))
    rows, own = rng.normal(size=(5, 2_000)), rng.normal(size=(5, 1_000))
    pool, is_member = rng.normal(size=775), np.arange(775) < 388
    canonical, shuffled = rng.normal(size=50), rng.normal(size=(50, 50))
    copies = rng.normal(size=(20_000, 3))
    design = tdd.study.NormalShift()
    key = jax.random.key(0)
    demo = demo_files()
    table = folder / "table.csv"
    with open(table, "w") as out:
        out.write("id,role,score\n")
        out.writelines(f"x{i},{'candidate' if i % 2 else 'calibration'},{x:.6f}\n" for i, x in enumerate(scores))
    (folder / "ordered.txt").write_text(
        "\n".join(json.loads(line)["text"] for line in demo.candidates.read_text("utf-8").splitlines()[:60])
    )

    def command(text: str) -> None:
        with contextlib.redirect_stdout(io.StringIO()):
            status = main([*text.split(), "-q"])
        if status not in (0, 3):  # 3: a check speaks against the data, which are made for speed
            raise RuntimeError(f"tdd {text} ended with status {status}")

    audit = f"audit {demo.checkpoint} --candidates {demo.candidates} --calibration {demo.candidates.parent}"
    return {
        "conformal_p_values": lambda: tdd.conformal_p_values(known, scores, null="nonmember"),
        "bh": lambda: tdd.bh(p_values, 0.1),
        "hommel": lambda: tdd.hommel(p_values[:20_000], 0.1),
        "rejections": lambda: tdd.rejections(families, 0.1, procedure="bh"),
        "ptdi": lambda: tdd.ptdi(known, scores, alpha=0.1),
        "ktd": lambda: tdd.ktd(scores[:20_000], copies, alpha=0.1),
        "td4eval": lambda: tdd.td4eval(own, rows, alpha=0.1),
        "jmcs": lambda: tdd.jmcs(own, rows, alpha=0.1),
        "best_score": lambda: tdd.best_score(own, rows, alpha=0.1),
        "exchangeability": lambda: tdd.exchangeability(canonical, shuffled, key=key),
        "fdp_bounds": lambda: tdd.fdp_bounds(own[0], rows[0], null="nonmember", key=key, delta=0.1),
        "study.resample": lambda: tdd.study.resample(
            pool - is_member, is_member, alphas=[0.1, 0.2], repetitions=400_000, key=key
        ),
        "study.run": lambda: tdd.study.run(design, "ptdi/storey", alphas=[0.1, 0.2], repetitions=16_384),
        "tdd score": lambda: command(f"score {demo.checkpoint} {demo.candidates} --out {folder / 'scores.csv'}"),
        "tdd audit": lambda: command(f"{audit}/calibration.jsonl --alpha 0.2"),
        "tdd select": lambda: command(f"select {table} --role-field role --score score --alpha 0.1"),
        "tdd exchange": lambda: command(f"exchange {demo.checkpoint} {folder / 'ordered.txt'} --shards 6 --shuffles 8"),
    }


def serve() -> None:
    """Run the cases whose names arrive on standard input; answer each with its seconds."""
    import jax

    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with tempfile.TemporaryDirectory() as folder:
        known = cases(pathlib.Path(folder))
        for line in sys.stdin:
            call = known[line.strip()]
            start, calls = time.perf_counter(), 0
            while not calls or time.perf_counter() - start < SHORTEST:
                jax.block_until_ready(call())
                calls += 1
            print((time.perf_counter() - start) / calls, file=answers, flush=True)


def seconds(worker: subprocess.Popen[str], name: str) -> float:
    """Seconds that a checkout takes for a case."""
    assert worker.stdin is not None
    assert worker.stdout is not None
    print(name, file=worker.stdin, flush=True)
    return float(worker.stdout.readline())


@functools.cache
def names() -> tuple[str, ...]:
    """All cases."""
    with tempfile.TemporaryDirectory() as folder:
        return tuple(cases(pathlib.Path(folder)))


def start(checkout: str) -> subprocess.Popen[str]:
    """A process that imports the package from a checkout and runs this file."""
    environment = os.environ | {"PYTHONPATH": str(pathlib.Path(checkout).resolve()), "TDD_COMPILATION_CACHE": "0"}
    return subprocess.Popen(
        [sys.executable, __file__, "--serve"], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )


def run() -> int:
    """Print a line for each case; the exit status is 1 where one became slower."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("before", help="folder of a checkout")
    parser.add_argument("after", help="folder of another one")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="cases, comma-separated")
    arguments = parser.parse_args()
    for checkout in (arguments.before, arguments.after):
        if not pathlib.Path(checkout, "tdd", "__init__.py").is_file():
            parser.error(f"{checkout} is no checkout: there is no tdd/__init__.py in it (git worktree add DIR COMMIT)")
    wanted = [name for name in names() if name in arguments.only.split(",") or not arguments.only]
    workers = [start(arguments.before), start(arguments.after)]
    slower = []
    print(f"{'case':22s}{'before':>11s}{'after':>11s}{'after/before':>14s}")
    for name in wanted:
        for worker in workers:
            seconds(worker, name)  # compiles
        rounds = []
        for number in range(arguments.rounds):
            order = workers if number % 2 == 0 else workers[::-1]
            found = {id(worker): seconds(worker, name) for worker in order}
            rounds.append([found[id(worker)] for worker in workers])
        ratio = statistics.median(after / before for before, after in rounds)
        before, after = (statistics.median(column) for column in zip(*rounds, strict=True))
        slower += [name] * (ratio > TOLERATED)
        print(f"{name:22s}{1e3 * before:8.1f} ms{1e3 * after:8.1f} ms{ratio:14.2f}", flush=True)
    for worker in workers:
        assert worker.stdin is not None
        worker.stdin.close()
        worker.wait()
    if slower:
        print(f"slower by more than {TOLERATED - 1:.0%}: {', '.join(slower)}")
    return bool(slower)


if __name__ == "__main__":
    sys.path.pop(0)
    sys.exit(serve() if "--serve" in sys.argv else run())
