"""Pin what the package gives, so that a move can be told from a change: bytes, public names, numbers of compilations.

    python tests/pins/pin.py --out before.json      # before the change
    python tests/pins/pin.py --against before.json  # after it, on the same machine: a line a difference

The commands run in this process, one after another, on the packaged demonstration. Dates, seconds, paths and command
lines are taken out of what they write. Bytes of floating-point numbers hold on one machine; names hold everywhere.
"""

from __future__ import annotations

import argparse
import contextlib
import csv
import hashlib
import importlib
import inspect
import io
import json
import os
import pathlib
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

if __name__ == "__main__":  # before JAX is imported
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["TDD_COMPILATION_CACHE"] = "0"
    os.environ["COLUMNS"] = "100"

import jax

from tdd.cli import main as tdd_main
from tdd.demo.data import demo_files

MODULES = ("tdd", "tdd.study", "tdd.procedures", "tdd.probe", "tdd.lab", "tdd.exchange", "tdd.on_ray")
VOLATILE = {"fingerprint", "seconds", "command", "started", "finished", "date", "host", "cells", "git", "created"}
TIMES = re.compile(r"\b\d+(\.\d+)? s\b|[\d,]+ a second")


def prepare(folder: pathlib.Path) -> None:
    """What the commands read: the packaged model and texts, and tables."""
    files = demo_files()
    shutil.copytree(files.checkpoint, folder / "model")
    shutil.copytree(files.candidates.parent, folder / "texts")
    texts = [json.loads(line) for line in files.candidates.read_text("utf-8").splitlines()]
    with open(folder / "dump.jsonl", "w") as out:
        for number, row in enumerate(texts[:40]):
            logprobs = [-((number * 7 + i * 13) % 29) / 7 - 0.01 for i in range(12)]
            out.write(json.dumps({"id": row["id"], "token_logprobs": logprobs}) + "\n")
    with open(folder / "table.csv", "w", newline="") as out:
        rows = csv.writer(out)
        rows.writerow(["id", "role", "a", "b", "k1", "k2"])
        for number in range(600):
            role = "calibration" if number < 300 else "candidate"
            shift = 1.5 if number >= 500 else 0.0
            values = [((number * k) % 601) / 100 - shift for k in (37, 101, 211, 307)]
            rows.writerow([f"x{number}", role, *values])
    (folder / "ordered.txt").write_text("\n".join(row["text"] for row in texts[:60]))


def commands() -> dict[str, str]:
    """Name -> command line; `{f}` is the folder."""
    model, table = "{f}/model", "{f}/table.csv --role-field role --score a"
    candidates, calibration = "{f}/texts/candidates.jsonl", "{f}/texts/calibration.jsonl"
    inputs = f"--candidates {candidates} --calibration {calibration} --label-field label"
    return {
        "score": f"score {model} {candidates} --score loss,min_k,min_k_plus_plus,zlib --out {{f}}/scores.csv",
        "score-logprobs": "score-logprobs {f}/dump.jsonl --score loss,min_k --out {f}/dump.csv",
        "audit": f"audit {model} {inputs} --alpha 0.2 --out {{f}}/audit",
        "audit-none": f"audit {model} {inputs} --score min_k_plus_plus --method ptdi:proportion=none --json",
        "report": "report {f}/audit",
        "select-ptdi": f"select {table} --alpha 0.1 --out {{f}}/ptdi",
        "select-none": f"select {table} --method ptdi:proportion=none --alpha 0.3 --json",
        "select-td4eval": f"select {table} --score b --method td4eval --alpha 0.2 --out {{f}}/td4eval",
        "select-jmcs": f"select {table} --score b --method jmcs --alpha 0.2 --json",
        "select-jecs": f"select {table} --score b --method jecs --alpha 0.2 --json",
        "select-ktd": f"select {table} --method ktd --knockoffs k1,k2 --alpha 0.2 --out {{f}}/ktd",
        "exchange": f"exchange {model} {{f}}/ordered.txt --shards 6 --shuffles 9 --out {{f}}/exchange",
        "study": "study ptdi-alpha --repetitions 3000 --alpha 0.2 --out {f}/study",
        "study-td4eval": "study td4eval-alpha --repetitions 500 --out {f}/study2",
        "power": "power --auc 0.8 --n 100 --m 50 --fraction 0.2 --out {f}/power",
        "guarantees": "guarantees",
        "guarantees-json": "guarantees --json",
    }


def plain(value: Any, folder: str) -> Any:
    """Without what differs from run to run."""
    if isinstance(value, dict):
        return {key: plain(item, folder) for key, item in value.items() if key not in VOLATILE}
    if isinstance(value, list):
        return [plain(item, folder) for item in value]
    return value.replace(folder, "FOLDER") if isinstance(value, str) else value


def digest(text: str, folder: str) -> str:
    with contextlib.suppress(ValueError):
        found = plain(json.loads(text), folder)
        if isinstance(found, dict):
            found.pop("sha256", None)  # that of a record with its date
        text = json.dumps(found)
    text = TIMES.sub("N", text.replace(folder, "FOLDER"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def written(folder: pathlib.Path) -> Iterator[pathlib.Path]:
    """Files whose bytes are promised; stores of scores and figures are not."""
    return (path for path in sorted(folder.rglob("*")) if path.suffix in (".json", ".csv", ".md") and path.is_file())


def run_commands() -> dict[str, Any]:
    """Of each command: exit status, digests of its output and of the files that are new, programs compiled."""
    compiled = [0]

    def count(event: str, seconds: float, **_: Any) -> None:
        compiled[0] += event == "/jax/core/compile/backend_compile_duration"

    jax.monitoring.register_event_duration_secs_listener(count)
    found: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder, seen = pathlib.Path(name), set[pathlib.Path]()
        prepare(folder)
        seen |= set(written(folder))
        for label, line in commands().items():
            output, before = io.StringIO(), compiled[0]
            with contextlib.redirect_stdout(output):
                status = tdd_main([*line.format(f=folder).split(), "--quiet"])
            new = [path for path in written(folder) if path not in seen]
            seen |= set(new)
            found[label] = {
                "status": status,
                "output": digest(output.getvalue(), name),
                "files": {str(path.relative_to(folder)): digest(path.read_text("utf-8"), name) for path in new},
                "compiled": compiled[0] - before,
            }
            print(f"{label}: {status}, {compiled[0] - before} programs, {len(new)} files", file=sys.stderr)
    return found


def public_names() -> dict[str, str]:
    """Dotted name -> signature, of functions, classes and the public methods of classes."""
    found = {}
    kernels = sorted(path.stem for path in (pathlib.Path(__file__).parents[2] / "kernels").glob("*.py"))
    for module in (*MODULES, *(f"tdd.kernels.{name}" for name in kernels)):
        there = importlib.import_module(module)
        for name in getattr(there, "__all__", ()):
            value = getattr(there, name)
            found[f"{module}.{name}"] = signature(value)
            if inspect.isclass(value):
                for method, inner in sorted(vars(value).items()):
                    if not method.startswith("_"):
                        found[f"{module}.{name}.{method}"] = signature(inner)
    return found


def signature(value: Any) -> str:
    try:
        return re.sub(r" at 0x[0-9a-f]+", "", str(inspect.signature(value)))
    except (TypeError, ValueError):
        return type(value).__name__


def differences(before: Any, now: Any, path: str = "") -> Iterator[str]:
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from differences(before.get(key), now.get(key), f"{path}/{key}")
    elif before != now:
        yield f"{path}: {before} -> {now}"


def main() -> int:
    parser = argparse.ArgumentParser(description=str(__doc__).splitlines()[0])
    parser.add_argument("--out", metavar="FILE", help="write what is found")
    parser.add_argument("--against", metavar="FILE", help="compare with what was written before")
    options = parser.parse_args()
    found = {"commands": run_commands(), "names": public_names()}
    if options.out:
        pathlib.Path(options.out).write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")
    lines = list(differences(json.loads(pathlib.Path(options.against).read_text()), found)) if options.against else []
    print("\n".join(lines) if lines else f"{len(found['names'])} names, {len(found['commands'])} commands")
    return 1 if lines else 0


if __name__ == "__main__":
    raise SystemExit(main())
