"""`kill -9` at random moments of `tdd score`: is a finished shard ever lost or scored again, is the table the same?

    python -m benchmarks.kill_score

Chains of processes run one command on one output file. Each process is killed with SIGKILL at a moment drawn uniformly
from the length of an undisturbed run: while it starts, while it scores, while it writes shards or the table. After each
kill the store is read: every shard that was finished before must be there, byte for byte. The processes note which rows
they send through the model: none of them may be of a finished shard. A chain is at its end when its table is written;
that and the provenance beside it must be those of the undisturbed run, byte for byte.

Shards are made every fifth of a second instead of every two seconds, so that there are many.

Everything is kept in the working folder: the script itself may be interrupted, and continues where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import time
from typing import Any

from benchmarks.throughput.machine import machine
from tdd.demo.data import demo_files, load_calibration, load_candidates
from tdd.scoring.store.shards import decode_keys

RESULT = pathlib.Path(__file__).with_name("results") / "kill_score.json"
SCORES = "loss,lowercase,min_k_plus_plus"
FILES = ("s.csv", "s.csv.provenance.json")

NOTING = """
import os, sys
from tdd.scoring import programs
from tdd.scoring.store import namespace
from tdd.scoring.store.address import row_key
from tdd.cli import main

log, start = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_APPEND), programs.TokenProgram.start

def noting(self, pieces, size, length, rows, halvings):
    for row in pieces[0]:
        text, window = rows.tokens[int(rows.text[row])], rows.windows[row]
        key = row_key(text[window.start : window.stop], window.first_target - window.start)
        os.write(log, f"{os.getpid()} {key.hex()} {len(rows.statistics)}\\n".encode())
    return start(self, pieces, size, length, rows, halvings)

programs.TokenProgram.start = noting
namespace._SECONDS = 0.2
sys.exit(main(sys.argv[2:]))
"""


def main() -> None:
    """Kill until there are enough."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--copies", type=int, default=2, help="times that the demonstration's texts are taken")
    parser.add_argument("--folder", type=pathlib.Path, default=pathlib.Path("kill_score"), help="working folder")
    arguments = parser.parse_args()
    folder = arguments.folder
    folder.mkdir(parents=True, exist_ok=True)
    texts = folder / "texts.jsonl"
    if not texts.exists():
        write_texts(texts, arguments.copies)
    state_file = folder / "state.json"
    state = json.loads(state_file.read_text()) if state_file.exists() else undisturbed(folder, texts)
    while len(state["kills"]) < arguments.kills or state["open"]:
        one_process(folder, texts, state, more=len(state["kills"]) < arguments.kills)
        state_file.write_text(json.dumps(state))
        print(f"{len(state['kills'])} kills, {len(state['chains'])} chains finished", flush=True)
    kills = state["kills"]
    result = {
        "machine": machine(),
        "command": f"tdd score DEMO texts.jsonl --score {SCORES} --out s.csv",
        "seconds_undisturbed": state["seconds"],
        "shards_undisturbed": state["shards"],
        "rows": state["rows"],
        "num_kills": len(kills),
        "before_the_first_shard": sum(kill["shards"] == 0 and not kill["table"] for kill in kills),
        "while_scoring": sum(kill["shards"] > 0 and not kill["table"] for kill in kills),
        "after_the_table": sum(kill["table"] for kill in kills),
        "finished_shards_lost": sum(kill["lost"] for kill in kills),
        "rows_of_finished_shards_scored_again": sum(one["again"] for one in (kills + state["chains"])),
        "tables": len(state["chains"]),
        "tables_that_differ": sum(not chain["same"] for chain in state["chains"]),
        "kills": kills,
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({name: value for name, value in result.items() if name not in ("kills", "machine")}, indent=1))


def write_texts(path: pathlib.Path, copies: int) -> None:
    """The demonstration's texts and, so that none is there twice, variants of them."""
    files, rng = demo_files(), random.Random(0)
    originals = [*load_candidates(files).texts, *load_calibration(files).texts]
    with open(path, "w", encoding="utf-8") as file:
        for copy in range(copies):
            for number, text in enumerate(originals):
                words = text.split()
                if copy:
                    rng.shuffle(words)
                file.write(json.dumps({"id": f"{copy}-{number}", "text": " ".join(words)}) + "\n")


def start(folder: pathlib.Path, texts: pathlib.Path, out: pathlib.Path) -> subprocess.Popen[bytes]:
    """One process of `tdd score` that notes what it computes."""
    command = ["score", str(demo_files().checkpoint), str(texts), "--score", SCORES, "--out", str(out), "-q"]
    environment = {**os.environ, "TDD_CACHE_DIR": str(folder / "programs")}
    log = str(out.with_name("log"))
    return subprocess.Popen([sys.executable, "-c", NOTING, log, *command], env=environment, stdout=subprocess.DEVNULL)


def undisturbed(folder: pathlib.Path, texts: pathlib.Path) -> dict[str, Any]:
    """Two runs that nobody kills; the second finds compiled programs, as those that are killed do."""
    for name in ("first", "expected"):
        out = folder / name / "s.csv"
        shutil.rmtree(out.parent, ignore_errors=True)
        out.parent.mkdir()
        begun = time.perf_counter()
        process, shards = start(folder, texts, out), 0
        while process.poll() is None:
            shards = max(shards, len(finished(out)))
            time.sleep(0.2)
        assert process.returncode == 0
    seconds = time.perf_counter() - begun
    rows = len(computed(out))
    return {
        "seconds": seconds,
        "shards": shards,
        "rows": rows,
        "kills": [],
        "chains": [],
        "open": False,
    }


def one_process(folder: pathlib.Path, texts: pathlib.Path, state: dict[str, Any], *, more: bool) -> None:
    """Start or continue a chain; kill its process, or see it finish."""
    chain = len(state["chains"])
    out = folder / f"chain-{chain}" / "s.csv"
    out.parent.mkdir(exist_ok=True)
    before, known, done = finished(out), keys_of(finished(out)), len(computed(out))
    moment = random.Random(f"{chain} {len(state['kills'])} {done}").uniform(0, state["seconds"])
    process, begun = start(folder, texts, out), time.perf_counter()
    state["open"] = True
    try:
        process.wait(timeout=moment if more else None)
        assert process.returncode == 0
        if not done:
            state["seconds"] = time.perf_counter() - begun  # the load of the machine changes
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        after = finished(out)
        removed = not out.with_name(f".{out.name}.scoring").exists()
        lost = 0 if removed and written(out) else sum(after.get(name) != digest for name, digest in before.items())
        again = sum(key in known for key in computed(out)[done:])
        state["kills"].append(
            {"moment": moment, "shards": len(after), "table": written(out), "lost": lost, "again": again}
        )
    if written(out):
        expected = folder / "expected"
        same = all((out.parent / name).read_bytes() == (expected / name).read_bytes() for name in FILES)
        state["chains"].append({"same": same, "again": sum(key in known for key in computed(out)[done:])})
        state["open"] = False


def written(out: pathlib.Path) -> bool:
    """Whether the table is there, and its provenance."""
    return all((out.parent / name).exists() for name in FILES)


def finished(out: pathlib.Path) -> dict[pathlib.Path, str]:
    """The finished shards, with their SHA-256."""
    shards = out.parent.glob(f".{out.name}.scoring/*/[0-9]*.parquet")
    return {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in shards}


def keys_of(shards: dict[pathlib.Path, str]) -> set[tuple[str, int]]:
    """The rows of shards, with the number of their statistics."""
    decoded = [decode_keys(path.read_bytes()) for path in shards]
    return {(key.hex(), len(fields)) for keys, fields in decoded for key in keys}


def computed(out: pathlib.Path) -> list[tuple[str, int]]:
    """The rows that all processes of a chain have sent through the model so far, in order."""
    log = out.with_name("log")
    lines = log.read_text().split("\n")[:-1] if log.exists() else []
    return [(line.split()[1], int(line.split()[2])) for line in lines]


if __name__ == "__main__":
    main()
