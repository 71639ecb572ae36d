"""Files, folders and machines that are hostile: nothing of them may end in a traceback, hang, fill the memory or lie.

    python tests/machines/hostile.py              every kind of trial
    python tests/machines/hostile.py gguf disk    some of them
    python tests/machines/hostile.py --list       the kinds

A trial fails with a traceback, a signal, more than 30 s of processor time (or 180 s in all), more than 2 GB, or a
result that differs from the right one without a word. Right is what the same command gives undisturbed; of a changed
GGUF file, the tensors that the package gguf reads from it. The exit status is 1 if a trial failed.
"""

import argparse
import json
import os
import pathlib
import random
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SUPPORT = ROOT / "tests" / "support"
DEMO = ROOT / "tdd" / "demo"
INSIDE = pathlib.Path(__file__).with_name("hostile_inputs.py")

PROCESSOR_S, WALL_S, BYTES = 30, 180, 2 << 30
ENDS = (0, 2, 3)
"""Exit statuses: done, refused in a line, and done with a check that failed."""

_ITEMS = 40
_READ = (
    "config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json", "generation_config.json",
    "model.safetensors.index.json", "adapter_config.json", "adapter_model.safetensors", "model.gguf",
)  # fmt: skip
_ENVIRONMENT = {
    **os.environ,
    "PYTHONPATH": f"{ROOT}{os.pathsep}{SUPPORT}",
    "OPENBLAS_NUM_THREADS": "1",
    "HF_HUB_OFFLINE": "1",
    "JAX_PLATFORMS": "cpu",
}


class Trials:
    """Outcomes of the trials of a kind."""

    def __init__(self, kind):
        self.kind, self.count, self.refused, self.failed, self.most_s, self.most_bytes = kind, 0, 0, [], 0.0, 0

    def note(self, name, wrong="", *, refused=False, seconds=0.0, size=0):
        """Enter a trial; `wrong` says what is wrong with it."""
        self.count += 1
        self.refused += refused
        self.most_s, self.most_bytes = max(self.most_s, seconds), max(self.most_bytes, size)
        if seconds > PROCESSOR_S:
            wrong = wrong or f"{seconds:.0f} s of processor time"
        if size > BYTES:
            wrong = wrong or f"{size / 2**30:.1f} GB"
        if wrong:
            self.failed.append(name)
            print(f"{self.kind}: {name}: {wrong}", flush=True)

    def ended(self, name, done, wrong=""):
        """Enter a process that ended."""
        wrong = wrong or done.wrong()
        self.note(name, wrong, refused=done.status == 2, seconds=done.seconds, size=done.size)

    def row(self):
        """The row of the table in tests/README.md."""
        memory = f"{self.most_bytes / 2**20:,.0f} MB"
        return f"| {self.kind} | {self.count} | {self.refused} | {len(self.failed)} | {self.most_s:.0f} s | {memory} |"


class Ended:
    """A command that ended: status, error stream, seconds of processor time, largest resident size in bytes."""

    def __init__(self, status, error, seconds, size):
        self.status, self.error, self.seconds, self.size = status, error, seconds, size

    def wrong(self):
        """What is wrong with how it ended; "" if nothing is."""
        if "Traceback" in self.error:
            return "traceback: " + self.error.strip().splitlines()[-1][:300]
        if self.status not in ENDS:
            return f"status {self.status}: {self.error.strip()[-300:]}"
        if self.status == 2 and len(self.error.strip().splitlines()) != 1:
            return f"not one line: {self.error[-500:]}"
        return ""


def started(words, cwd, before=None, more=()):
    """A process whose error stream is read when it has ended."""
    return subprocess.Popen(
        words, cwd=cwd, env={**_ENVIRONMENT, **dict(more)}, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE, preexec_fn=before, start_new_session=True,
    )  # fmt: skip


def ended(process, kill_after=None):
    """Wait for a process; with `kill_after`, kill it then, in seconds."""
    end = time.monotonic() + (WALL_S if kill_after is None else kill_after)
    while True:
        pid, status, used = os.wait4(process.pid, os.WNOHANG)
        if pid:
            break
        if time.monotonic() > end:
            os.killpg(process.pid, signal.SIGKILL)
            _, status, used = os.wait4(process.pid, 0)
            break
        time.sleep(0.02)
    process.returncode = os.waitstatus_to_exitcode(status)
    with process.stderr:
        text = process.stderr.read().decode(errors="replace")
    return Ended(process.returncode, text, used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)


class Worker:
    """A process that runs one command of tdd after another, so that each need not import and compile again."""

    def __init__(self, folder):
        self.folder, self.process = folder, None

    def begin(self, *words):
        """Start a command; `end` waits for it."""
        if self.process is None:
            self.errors = tempfile.TemporaryFile()  # noqa: SIM115
            self.process = subprocess.Popen(
                [sys.executable, __file__, "--inside-commands"], cwd=self.folder, env=_ENVIRONMENT, text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, start_new_session=True,
            )  # fmt: skip
        self.process.stdin.write(json.dumps([*map(str, words)]) + "\n")
        self.process.stdin.flush()

    def end(self, within=WALL_S):
        """How the command ended; killed after `within` seconds."""
        if select.select([self.process.stdout], [], [], within)[0] and (line := self.process.stdout.readline()):
            return Ended(**json.loads(line))
        self.close()
        self.errors.seek(0)
        error = self.errors.read().decode(errors="replace")[-3000:]
        status, self.process = self.process.returncode, None
        return Ended(status, error, 0.0, 0)

    def run(self, *words):
        """Start a command and wait for it."""
        self.begin(*words)
        return self.end()

    def close(self):
        """End the process."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()


def inside_commands():
    """Run the commands that are read, one a line; print how each ended."""
    import contextlib
    import io
    import traceback

    from tdd.cli import main as command

    answers = os.dup(1)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    for line in sys.stdin:
        pathlib.Path("/proc/self/clear_refs").write_text("5")
        begun, said = time.process_time(), io.StringIO()
        try:
            with contextlib.redirect_stderr(said):
                status = command(json.loads(line))
        except SystemExit as end:
            status = end.code
        except BaseException:
            status = 1
            said.write(traceback.format_exc())
        peak = pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]
        ended = {"status": status, "error": said.getvalue()[-3000:], "seconds": time.process_time() - begun,
                 "size": int(peak) * 1024}  # fmt: skip
        os.write(answers, json.dumps(ended).encode() + b"\n")


def texts(folder):
    """Candidates and calibration texts, some of the demonstration's."""
    folder.mkdir(parents=True, exist_ok=True)
    for role in ("candidates", "calibration"):
        lines = (DEMO / "corpus" / f"{role}.jsonl").read_text().splitlines()[:_ITEMS]
        (folder / f"{role}.jsonl").write_text("\n".join(lines) + "\n")


def audit(out, *more, model=DEMO / "checkpoint"):
    """The words of an audit's command."""
    roles = ("--candidates", "candidates.jsonl", "--calibration", "calibration.jsonl")
    return ["audit", str(model), *roles, "--score", "loss", "--out", str(out), "-q", *more]


def process(*words, cwd, before=None):
    """A process of its own with a command of tdd."""
    return started([sys.executable, "-m", "tdd", *words], cwd, before)


def result(folder):
    """What equal runs have alike, whatever their model is called: their tables, byte for byte, and what was decided."""
    record = json.loads((folder / "run.json").read_text())
    parts = {name: record[name] for name in ("decision", "verdict", "outcome", "checks", "certificate", "warnings")}
    return [(folder / name).read_bytes() for name in ("items.csv", "calibration.csv")], parts


def same(folder, expected):
    """What is wrong with a finished run."""
    if not (folder / "run.json").is_file():
        return "status 0, and no run.json"
    return "" if result(folder) == expected else "another result without a word"


def straight(folder):
    """The result of an audit that nothing disturbs."""
    texts(folder)
    done = ended(process(*audit("straight"), cwd=folder))
    if done.status not in (0, 3):
        sys.exit(f"an audit that nothing disturbs failed: {done.error}")
    return result(folder / "straight")


# GGUF files


def inside_gguf(folder, seed, count):
    """Change a file `count` times and read it; a line of JSON for each trial. The seed says how it is changed."""
    import gguf
    import gguf_files
    import numpy as np

    import tdd as package
    from tdd.models.checkpoint import load
    from tdd.models.gguf.header import read_header
    from tdd.validate import InputError

    whole = gguf_files.write_family(folder / "whole.gguf", "llama")
    raw, rng = whole.read_bytes(), random.Random(seed)
    expected = read_header(whole)
    spots = places(raw)
    file = folder / f"changed-{seed}.gguf"
    for _ in range(count):
        kind, changed = changed_gguf(raw, spots, rng)
        file.write_bytes(changed)
        outcome, started_s = {"name": f"{kind} (seed {seed})"}, time.process_time()
        signal.alarm(WALL_S)
        try:
            lm, params, tokenizer = load(file)
            package.score((lm, params, tokenizer), ["ABC+12(DEF)", "!?"], ["loss"])
            header = read_header(file)
            read = {t.name: t.data for t in gguf.GGUFReader(file).tensors}
            for name, tensor in header.tensors.items():
                mine = header.data[tensor.start : tensor.start + tensor.size]
                if not np.array_equal(mine, np.ascontiguousarray(read[name]).view(np.uint8).ravel()):
                    outcome["wrong"] = f"tensor {name} differs from the package gguf's"
            outcome["read"] = True
            if header.tensors.keys() != expected.tensors.keys():
                outcome["renamed"] = True
        except InputError as error:
            outcome["refused"] = True
            if "\n" in str(error) or not str(error).isprintable():
                outcome["wrong"] = f"not one line: {str(error)[:300]!r}"
        except BaseException as error:  # whatever it is: it is what a trial is for
            outcome["wrong"] = f"{type(error).__name__}: {str(error)[:300]}"
        signal.alarm(0)
        outcome["seconds"] = time.process_time() - started_s
        outcome["size"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps(outcome), flush=True)


def places(raw):
    """Kind of a number in the header of a GGUF file -> [(place, form), ...]; names -> [(place, length), ...]."""
    found = {name: [] for name in ("count", "length", "type", "number", "real", "items", "axes", "size", "offset",
                                   "kind", "name", "string")}  # fmt: skip
    scalars = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), ("<" + code for code in "BbHhIif?Qqd"), strict=True))
    at = 8
    num_tensors, num_entries = struct.unpack_from("<QQ", raw, at)
    found["count"] += [(at, "<Q"), (at + 8, "<Q")]
    at += 16

    def string(at, kind):
        (length,) = struct.unpack_from("<Q", raw, at)
        found["length"].append((at, "<Q"))
        found[kind].append((at + 8, length))
        return at + 8 + length

    def value(at, number):
        if number == 8:
            return string(at, "string")
        form = scalars[number]
        found["real" if form in "<f<d" else "number"].append((at, form))
        return at + struct.calcsize(form)

    for _ in range(num_entries):
        at = string(at, "name")
        (number,) = struct.unpack_from("<I", raw, at)
        found["type"].append((at, "<I"))
        at += 4
        if number != 9:
            at = value(at, number)
            continue
        number, count = struct.unpack_from("<IQ", raw, at)
        found["type"].append((at, "<I"))
        found["items"].append((at + 4, "<Q"))
        at += 12
        for _ in range(count):
            at = value(at, number)
    for _ in range(num_tensors):
        at = string(at, "name")
        (axes,) = struct.unpack_from("<I", raw, at)
        found["axes"].append((at, "<I"))
        found["size"] += [(at + 4 + 8 * axis, "<Q") for axis in range(axes)]
        found["kind"].append((at + 4 + 8 * axes, "<I"))
        found["offset"].append((at + 8 + 8 * axes, "<Q"))
        at += 16 + 8 * axes
    return found


def changed_gguf(raw, spots, rng):
    """(what was done, the bytes of the changed file)."""
    kind = rng.choice([*spots, "truncated", "bits", "swapped"])
    data = bytearray(raw)
    if kind == "truncated":
        return kind, data[: rng.randrange(len(raw))]
    if kind == "bits":
        for _ in range(rng.randint(1, 8)):
            data[rng.randrange(min(len(raw), 6_000))] ^= 1 << rng.randrange(8)
        return kind, data
    if kind == "swapped":  # two numbers of one kind
        kind = rng.choice(("offset", "size", "kind", "axes", "length"))
        (one, form), (other, _) = rng.sample(spots[kind], 2)
        width = struct.calcsize(form)
        data[one : one + width], data[other : other + width] = raw[other : other + width], raw[one : one + width]
        return f"{kind} swapped", data
    if kind in ("name", "string"):
        at, length = rng.choice([spot for spot in spots[kind] if spot[1]])
        ill = rng.choice((b"\n", b"\x1b[2J", b"\x00", b"\xff", "\u202e".encode(), b"../", b"%s", b"{0}"))
        data[at : at + min(length, len(ill))] = ill[:length]
        return kind, data
    at, form = rng.choice(spots[kind])
    if form in "<f<d":
        new = struct.pack(form, rng.choice((0.0, -1.0, float("nan"), float("inf"), 1e30, 1e-40, -0.0)))
    else:
        bits = 8 * struct.calcsize(form)
        (old,) = struct.unpack_from(form, raw, at)
        new = rng.choice((0, 1, 2, old + 1, old - 1, old * 2, old * 32, 2**31, 2 ** (bits - 1), 2**bits - 1, 255))
        new = (int(new) % 2**bits).to_bytes(bits // 8, "little")
    data[at : at + len(new)] = new
    return kind, data


def gguf(trials, folder, seeds=40, each=25):
    """Lengths, counts, offsets, types and numbers out of range, truncated files, overlapping tensors, odd names."""
    for seed in range(seeds):
        lines_of(trials, [__file__, "--inside-gguf", str(folder), str(seed), str(each)], seed, each)


def lines_of(trials, words, seed, each):
    """Enter the trials that a child process prints, a line of JSON each."""
    done = subprocess.run([sys.executable, *words], env=_ENVIRONMENT, capture_output=True, text=True, check=False)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    for line in lines:
        trials.note(line["name"], line.get("wrong", ""), refused="refused" in line, seconds=line["seconds"],
                    size=line["size"])  # fmt: skip
    if len(lines) < each:
        trials.note(f"seed {seed}, trial {len(lines)}", f"status {done.returncode}: {done.stderr[-300:]}")


INPUTS = {"models": (30, 15), "tables": (6, 50), "services": (3, 80), "numbers": (3, 300), "paths": (2, 100),
          "images": (3, 60), "fork": (1, 20), "shapes": (1, 2_000)}  # fmt: skip
"""Kinds of hostile_inputs.py: children, and trials of each."""


def inputs(kind):
    """The function of a kind that hostile_inputs.py has."""

    def run(trials, folder):
        for seed in range(INPUTS[kind][0]):
            words = [str(INSIDE), kind, str(folder), str(seed), str(INPUTS[kind][1])]
            lines_of(trials, words, seed, INPUTS[kind][1])

    run.__doc__ = f"See inside_{kind} in hostile_inputs.py."
    return run


# Links out of folders


def links(trials, folder):
    """Links and odd files in the place of what is read and written: out of the folder, in circles, without an end."""
    expected, worker = straight(folder), Worker(folder)
    outside = folder / "outside"
    outside.mkdir()
    secret = outside / "secret.txt"
    secret.write_text("a secret of somebody else\n" * 3)
    os.mkfifo(outside / "pipe")
    (outside / "circle").symlink_to(outside / "circle")
    targets = {
        "file": secret, "folder": outside, "nothing": outside / "absent", "circle": outside / "circle",
        "pipe": outside / "pipe", "zeros": pathlib.Path("/dev/zero"), "null": pathlib.Path("/dev/null"),
    }  # fmt: skip
    for file in _READ:
        for what, target in targets.items():
            model, out = folder / "model", folder / f"out-{file}-{what}"
            shutil.copytree(DEMO / "checkpoint", model)
            (model / file).unlink(missing_ok=True)
            (model / file).symlink_to(target)
            done = worker.run(*audit(out, model=model))
            wrong = same(out, expected) if done.status in (0, 3) and file != "tokenizer_config.json" else ""
            wrong = wrong or ("the secret is shown" if "secret of somebody" in done.error else "")
            trials.ended(f"{file} -> {what}", done, done.wrong() or wrong)
            shutil.rmtree(model)
    for name in ("texts.jsonl", "texts.txt", "table.csv", "rows.parquet", "rows.json", "rows.jsonl.gz", "rows.arrow"):
        for what, target in targets.items():
            place = folder / f"{what}-{name}"
            place.symlink_to(target)
            words = ("score", DEMO / "checkpoint", place, "--score", "loss", "--out", "scores.csv", "-q")
            done = worker.run(*words)
            read = done.status == 0 and what != "folder" and (what, name) != ("file", "texts.txt")
            trials.ended(f"texts {name} -> {what}", done, done.wrong() or ("was read" if read else ""))
    for name, file in {"table.csv": "select", "samples.jsonl": "score-logprobs", "run": "report"}.items():
        for what, target in targets.items():
            place = folder / f"{what}-{file}-{name}"
            place.symlink_to(target)
            more = {"select": ("--score", "loss"), "score-logprobs": ("--out", "logged.csv")}.get(file, ())
            done = worker.run(file, place, *more, "-q")
            trials.ended(f"{file} {name} -> {what}", done, done.wrong() or ("was read" if done.status != 2 else ""))
    whole, blobs = folder / "linked", folder / "blobs"
    whole.symlink_to(DEMO / "checkpoint")
    blobs.mkdir()
    for place in (DEMO / "checkpoint").iterdir():
        (blobs / place.name).symlink_to(place)
    for model in (whole, blobs):
        done = worker.run(*audit(f"by-{model.name}", model=model))
        trials.ended(
            f"a model by links: {model.name}", done, done.wrong() or same(folder / f"by-{model.name}", expected)
        )
    for name in ("run.json", "items.csv", "calibration.csv", "report.html", "inputs.json", "store"):
        for what in ("file", "folder", "nothing", "pipe", "circle"):
            out = folder / f"written-{name}-{what}"
            out.mkdir()
            before = secret.read_bytes(), sorted(outside.iterdir())
            (out / name).symlink_to(targets[what])
            done = worker.run(*audit(out))
            wrong = "" if (secret.read_bytes(), sorted(outside.iterdir())) == before else "a file outside was changed"
            trials.ended(f"output {name} -> {what}", done, done.wrong() or wrong)
    for stray in ("../outside/secret.txt", str(secret), "a\0b", "\n", "", ".", "x" * 300):
        model = folder / "indexed"
        shutil.copytree(DEMO / "checkpoint", model, ignore=shutil.ignore_patterns("*.safetensors"))
        index = {"metadata": {}, "weight_map": {"a": stray}}
        (model / "model.safetensors.index.json").write_text(json.dumps(index))
        done = worker.run(*audit("out-indexed", model=model))
        trials.ended(f"a shard named {stray[:30]!r}", done, done.wrong() or ("" if done.status == 2 else "was read"))
        shutil.rmtree(model)
    worker.close()


# Two at once


def together(trials, folder, times=10):
    """The same audit twice in one folder at once, and two different ones."""
    expected, rng = straight(folder), random.Random(0)
    workers = [Worker(folder), Worker(folder)]
    for number, worker in enumerate(workers):
        worker.run(*audit(f"warm-{number}"))
    for number in range(times):
        out, other = f"both-{number}", number % 2
        workers[0].begin(*audit(out))
        time.sleep(rng.random() * 2)
        workers[1].begin(*audit(out, *(("--alpha", "0.2") if other else ())))
        pair = [worker.end() for worker in workers]
        for place, done in zip(("first", "second"), pair, strict=True):
            trials.ended(f"{out}, {place}", done)
        good = [done.status in (0, 3) for done in pair]
        wrong = "" if sum(good) == 1 or not other else f"of two different runs {sum(good)} finished"
        if good[0] or not other:
            wrong = wrong or same(folder / out, expected)
        report = workers[0].run("report", out, "-q")
        trials.ended(f"{out}, its report", report, wrong or report.wrong() or ("" if any(good) else "none finished"))
    for worker in workers:
        worker.close()


def shards(trials, folder, times=6):
    """Equal shards at once, all shards at once, and the joining command beside them."""
    expected = straight(folder)
    workers = [Worker(folder) for _ in range(3)]
    for number in range(times):
        out = f"shards-{number}"
        given = ["0/2", "0/2", "1/2"] if number % 2 == 0 else ["0/2", "1/2", None]
        for shard, worker in zip(given, workers, strict=True):
            worker.begin(*audit(out, *(("--shard", shard) if shard else ())))
        for shard, worker in zip(given, workers, strict=True):
            trials.ended(f"{out}, {shard or 'whole'}", worker.end())
        done = workers[0].run(*audit(out))
        trials.ended(f"{out}, joined", done, done.wrong() or same(folder / out, expected))
    for worker in workers:
        worker.close()


def threads(trials, folder, times=10):
    """Two threads of one process: different folders, one audit in one folder, two audits in one folder."""
    straight(folder)
    done = ended(started([sys.executable, __file__, "--inside-threads", str(times)], folder))
    found = [json.loads(line) for line in done.error.splitlines() if line.startswith('{"trial"')]
    for one in found:
        trials.note(one["trial"], one["wrong"], refused=one["refused"] > 0, seconds=done.seconds / len(found),
                    size=done.size)  # fmt: skip
    if len(found) != 3 * times or done.wrong():
        trials.note("their process", done.wrong() or f"{len(found)} trials ended: {done.error[-300:]}")


def inside_threads(times):
    """Carry the trials of `threads` out; a line of JSON for each on the error stream."""
    import threading

    import tdd
    from tdd.runs.folder import read_items, read_run

    roles = [str(pathlib.Path(f"{role}.jsonl").absolute()) for role in ("candidates", "calibration")]

    def work(out, alpha, found):
        try:
            tdd.run_audit(DEMO / "checkpoint", *roles, alpha=alpha, score="loss", out=out, progress=False)
            found[alpha] = found.get(alpha, 0) + 1
        except tdd.InputError as error:
            found["refused"] = [*found.get("refused", ()), str(error)]

    def at_once(*jobs):
        found = {}
        running = [threading.Thread(target=work, args=(*job, found), daemon=True) for job in jobs]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join(WALL_S / 3)
        return found, "a thread hangs" if any(thread.is_alive() for thread in running) else ""

    expected = {}
    for alpha in (0.1, 0.2):
        work(f"right-{alpha}", alpha, {})
        expected[alpha] = result(pathlib.Path(f"right-{alpha}"))
    for number in range(times):
        for kind, alphas in (("apart", (0.1, 0.2)), ("alike", (0.1, 0.1)), ("mixed", (0.1, 0.2))):
            outs = [f"{kind}-{number}{f'-{alpha}' if kind == 'apart' else ''}" for alpha in alphas]
            found, wrong = at_once(*zip(outs, alphas, strict=True))
            refused, ran = found.pop("refused", []), sum(found.values())
            if ran + len(refused) != 2 or len(refused) != (kind == "mixed"):
                wrong = wrong or f"{ran} finished, refused: {refused}"
            for alpha in found:
                place = pathlib.Path(outs[alphas.index(alpha)])
                read_items(place, read_run(place))
                wrong = wrong or same(place, expected[alpha])
            said = {"trial": f"{kind} {number}", "wrong": wrong, "refused": len(refused)}
            print(json.dumps(said), file=sys.stderr, flush=True)


# A worker of Ray


class Noted:
    """Leaves a file with the number of its process at every batch, and waits."""

    def __init__(self, folder):
        self.folder = str(folder)

    def __call__(self, done, total):
        pathlib.Path(self.folder, f"{os.getpid()}-{done}").touch()
        time.sleep(0.2)


def ray(trials, folder, times=3):
    """A worker of Ray that is killed while it scores, in the last trial every worker; then an audit with its store."""
    expected = straight(folder)
    for number in range(times + 1):
        most = 1 if number < times else 1_000
        words = [sys.executable, __file__, "--inside-ray", f"store-{number}", str(most), str(number)]
        done = ended(started(words, folder))
        killed = done.error.count("killed worker")
        lines = [line for line in done.error.splitlines() if line.startswith("refused: ")]
        wrong = "" if killed else "no worker was killed"
        if most > 1 and done.status == 0:
            wrong = wrong or "done, though every worker was killed"
        trials.ended(f"{killed} killed", Ended(done.status, "\n".join(lines) or done.error, done.seconds, 0), wrong)
        again = ended(process(*audit(f"out-{number}", "--store", f"store-{number}"), cwd=folder))
        trials.ended(f"audit after {killed} killed", again, again.wrong() or same(folder / f"out-{number}", expected))


def inside_ray(store, most, seed):
    """Score by two workers of Ray, at most `most` of which are killed from outside; status 2 if refused."""
    import threading

    import ray as ray_

    import tdd
    from tdd import on_ray

    files = [pathlib.Path(f"{role}.jsonl") for role in ("candidates", "calibration")]
    lines = [line for file in files for line in file.read_text("utf-8").splitlines()]
    notes, killed, rng, end = pathlib.Path(f"notes-{seed}").absolute(), set(), random.Random(seed), threading.Event()
    notes.mkdir()

    def kill():
        seen = set()
        while not end.wait(0.05) and len(killed) < most:
            for note in {*notes.iterdir()} - seen:
                seen.add(note)
                worker = int(note.name.partition("-")[0])
                if worker not in killed and (most > 1 or rng.random() < 0.3):
                    os.kill(worker, signal.SIGKILL)
                    killed.add(worker)
                    print("killed worker", worker, file=sys.stderr, flush=True)
                    if len(killed) == most:
                        return

    paths = os.pathsep.join([_ENVIRONMENT["PYTHONPATH"], str(pathlib.Path(__file__).parent)])
    ray_.init(
        address="local", num_cpus=2, include_dashboard=False, logging_level="error",
        runtime_env={"env_vars": {"PYTHONPATH": paths}},
    )  # fmt: skip
    from hostile import Noted as noted

    watch = threading.Thread(target=kill, daemon=True)
    watch.start()
    try:
        on_ray.score(
            DEMO / "checkpoint", [json.loads(line)["text"] for line in lines], "loss", store=store, num_workers=2,
            on_batch=noted(notes), token_budget=512, progress=False,
        )  # fmt: skip
    except tdd.InputError as error:
        print(f"refused: {str(error)!r}", file=sys.stderr, flush=True)
        sys.exit(2)
    finally:
        end.set()
        ray_.shutdown()


# Damage


def flips(trials, folder, times=500, seed=0):
    """Bits changed and files truncated in a run folder with its score store: the audit again, or its report."""
    expected, worker, rng = straight(folder), Worker(folder), random.Random(seed)
    finished = ("run.json", "items.csv", "calibration.csv", "report.html")
    for number in range(times):
        what, how = rng.choice(("again", "unfinished", "report")), rng.choice(("bit", "bit", "8 bits", "cut", "empty"))
        out = folder / "damaged"
        shutil.copytree(folder / "straight", out)
        for name in finished if what == "unfinished" else ():
            (out / name).unlink()
        files = [place for place in sorted(out.rglob("*")) if place.is_file()]
        files = [place for place in files if place.parent == out or what != "report"]
        place = rng.choice(files)
        place.write_bytes(damaged(place.read_bytes(), how, rng))
        words = ("report", out, "--json") if what == "report" else audit(out)
        done = worker.run(*words, *(("--html", folder / "page.html") if what == "report" else ()))
        name = f"{number}: {what}, {how} of {place.relative_to(out)}"
        wrong = done.wrong()
        if done.status == 2 and str(place) not in done.error:
            wrong = wrong or f"the file is not named: {done.error}"
        trials.ended(name, done, wrong or (same(out, expected) if done.status != 2 else ""))
        shutil.rmtree(out)
    worker.close()


def damaged(data, how, rng):
    """Other bytes."""
    if how in ("cut", "empty") or not data:
        return data[: rng.randrange(len(data)) if how == "cut" and data else 0]
    changed = bytearray(data)
    for _ in range(8 if how == "8 bits" else 1):
        place = rng.randrange(8 * len(data))
        changed[place // 8] ^= 1 << (place % 8)
    return bytes(changed)


# A full disk, kills, limits


def disk(trials, folder, sizes=(4, 8, 16, 24, 32, 48, 64, 96, 128, 160, 192, 256, 320, 384, 448, 512, 640)):
    """A file system of so many kB; then the same command with room. Needs the right to mount one."""
    expected, worker = straight(folder), Worker(folder)
    for kilobytes in sizes:
        small = folder / f"disk-{kilobytes}"
        small.mkdir()
        mount = ["mount", "-t", "tmpfs", "-o", f"size={kilobytes}k", "tmpfs", str(small)]
        subprocess.run(mount, check=True)
        try:
            done = worker.run(*audit(small / "out"))
            left = [str(path) for path in small.rglob("*.part")]
            wrong = done.wrong() or (f"left {left}" if left else "")
            if done.status in (0, 3) or (small / "out" / "run.json").exists():
                wrong = wrong or same(small / "out", expected)
            trials.ended(f"{kilobytes} kB", done, wrong)
            subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
            again = worker.run(*audit(small / "out"))
            trials.ended(f"{kilobytes} kB, again with room", again, again.wrong() or same(small / "out", expected))
        finally:
            subprocess.run(["umount", str(small)], check=True)
    worker.close()


def killed(trials, folder, times=30):
    """An audit that is killed at a random moment, `times` times, then left alone."""
    expected, rng, missed = straight(folder), random.Random(0), 0
    words, out = audit("killed", "--token-budget", "256"), folder / "killed"
    begun = time.monotonic()
    ended(process(*audit("timed", "--token-budget", "256"), cwd=folder))
    whole_s = time.monotonic() - begun
    for number in range(times):
        done = ended(process(*words, cwd=folder), rng.uniform(0.3, 1.0) * whole_s)
        wrong = "" if done.status == -signal.SIGKILL else done.wrong()
        missed += done.status != -signal.SIGKILL
        finished = (out / "run.json").exists()
        trials.note(f"kill {number}", wrong or (same(out, expected) if finished else ""), seconds=done.seconds,
                    size=done.size)  # fmt: skip
        if finished:
            shutil.rmtree(out)
    done = ended(process(*words, cwd=folder))
    trials.ended("left alone", done, done.wrong() or same(out, expected))
    print(f"killed: {missed} of {times} had ended before", flush=True)


def limits(trials, folder):
    """Limits of the shell: address space, data, open files, sizes of files, stack, locked memory."""
    expected = straight(folder)
    kinds = {
        "RLIMIT_AS": [x << 20 for x in (50, 100, 300, 500, 700, 976, 1500, 2000, 3000, 4000, 4096, 4500, 6000, 16_000)],
        "RLIMIT_DATA": [x << 20 for x in (50, 100, 200, 400, 600, 800, 1200, 2000, 2048)],
        "RLIMIT_NOFILE": [8, 12, 16, 24, 32, 64],
        "RLIMIT_FSIZE": [0, 100, 1000, 10_000, 100_000],
        "RLIMIT_STACK": [x << 10 for x in (1024, 2048)],
        "RLIMIT_MEMLOCK": [0],
        "RLIMIT_CORE": [0],
    }
    for name, values in kinds.items():
        for value in values:

            def before(name=name, value=value):
                resource.setrlimit(getattr(resource, name), (value, value))

            out = f"limit-{name}-{value}"
            done = ended(process(*audit(out), cwd=folder, before=before))
            wrong = same(folder / out, expected) if done.status in (0, 3) else ""
            trials.ended(f"{name} {value:,}", done, done.wrong() or wrong)


def environment(trials, folder):
    """Variables of JAX, of XLA and of this package with odd values, each in a process of its own."""
    expected = straight(folder)
    values = {
        "JAX_PLATFORMS": ("foo", "cuda", "tpu", "cpu,foo", ",", "CPU", "\x1b[2J"),
        "JAX_ENABLE_X64": ("maybe", "1", "2", ""),
        "JAX_NUM_CPU_DEVICES": ("abc", "0", "-1", "3", "1e9"),
        "JAX_DEFAULT_MATMUL_PRECISION": ("foo", "float32"),
        "JAX_COMPILATION_CACHE_DIR": ("/dev/null", "/proc", "\udcff"),
        "TDD_CACHE_DIR": ("/dev/null", "/proc/x", "x" * 300),
        "JAX_DEBUG_NANS": ("maybe", "1"),
        "JAX_DISABLE_JIT": ("x",),
        "JAX_TRACEBACK_FILTERING": ("foo",),
        "COLUMNS": ("x", "-1", "10"),
        "JAX_THREEFRY_PARTITIONABLE": ("x",),
        "JAX_LOG_COMPILES": ("x",),
        "JAX_DEFAULT_DTYPE_BITS": ("7",),
        "JAX_DEFAULT_DEVICE": ("x",),
        "HOME": ("/dev/null", "/nowhere"),
        "TMPDIR": ("/nowhere",),
        "LANG": ("xx_XX", "C"),
        "LC_ALL": ("C", "x"),
        "TERM": ("", "x\x1b"),
        "PYTHONIOENCODING": ("ascii", "latin-1", "utf-16"),
        "PYTHONWARNINGS": ("error",),
        "PYTHONOPTIMIZE": ("2",),
        "PYTHONHASHSEED": ("7",),
    }
    for name, given in values.items():
        for number, value in enumerate(given):
            out = f"{name}-{number}"
            done = ended(started([sys.executable, "-m", "tdd", *audit(out)], folder, more={name: value}))
            alike = done.status in (0, 3) and name != "JAX_ENABLE_X64"  # another precision
            wrong = same(folder / out, expected) if alike else ""
            trials.ended(f"{name}={value[:30]!r}", done, done.wrong() or wrong)


KINDS = {
    **{kind: inputs(kind) for kind in INPUTS},
    "environment": environment,
    "gguf": gguf,
    "links": links,
    "together": together,
    "threads": threads,
    "shards": shards,
    "ray": ray,
    "flips": flips,
    "disk": disk,
    "killed": killed,
    "limits": limits,
}


def main(arguments):
    """Carry the trials out, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", metavar="KIND", help=f"of {', '.join(KINDS)} (default: all)")
    parser.add_argument("--list", action="store_true", help="print the kinds and end")
    given = parser.parse_args(arguments)
    if unknown := {*given.kinds} - {*KINDS}:
        parser.error(f"{', '.join(sorted(unknown))}: the kinds are {', '.join(KINDS)}")
    if given.list:
        for name, function in KINDS.items():
            print(f"{name}: {function.__doc__}")
        return 0
    done = []
    for name in given.kinds or KINDS:
        with tempfile.TemporaryDirectory() as folder:
            done.append(Trials(name))
            KINDS[name](done[-1], pathlib.Path(folder))
            print(done[-1].row(), flush=True)
    print(
        "| kind | trials | refused in a line | failed | most processor time | most memory |\n|---|---|---|---|---|---|"
    )
    print("\n".join(trials.row() for trials in done))
    return int(any(trials.failed for trials in done))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside-gguf"]:
        inside_gguf(pathlib.Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
    elif sys.argv[1:2] == ["--inside-commands"]:
        inside_commands()
    elif sys.argv[1:2] == ["--inside-threads"]:
        inside_threads(int(sys.argv[2]))
    elif sys.argv[1:2] == ["--inside-ray"]:
        inside_ray(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        sys.exit(main(sys.argv[1:]))
