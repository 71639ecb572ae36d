"""Plant faults one at a time in a copy of the package: which tier of the tests notices each?

    python tests/faults/plant.py [--tier default|slow|both] [--only WORDS ...] [--targeted] [--out results.json]

The checkout is copied once for each job (`git ls-files`, without what git ignores) into a temporary folder; there a
fault of `faults.py` is planted, its own tests are run, and if they pass the whole tier; then the file is restored. The
checkout itself is never written to. With --out the results are kept as they come, and a run that was interrupted
continues with the faults that are left: those that nothing has caught, and those whose record or file has changed.

With --tier both the slow tier is asked about what the default tier let through. With --control the tests are first run
without a fault: those that fail then would fail for every fault. A run that takes longer than --timeout counts as
caught, since it hangs; raise it above the time that a whole tier takes here.
"""

from __future__ import annotations

import argparse
import ast
import concurrent.futures
import contextlib
import dataclasses
import functools
import hashlib
import json
import os
import pathlib
import queue
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from faults import Fault

ROOT = pathlib.Path(__file__).resolve().parents[2]
TIERS = ("default", "slow")
PYTEST = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", "-n", "0")
NOTHING_SELECTED = 5
FAILED = re.compile(r"^(?:FAILED|ERROR) (\S+?::.*?)(?: - .*)?$", re.MULTILINE)
CAUGHT = ("caught", "hangs")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a tier said of a fault.

    Attributes:
      verdict: "caught", "hangs", "not caught", or "did not run" where pytest itself failed.
      test: the first test that failed; of "did not run" the last lines of the output.
      seconds: that it took.
      whole: whether the whole tier was run, not the fault's own tests alone.
    """

    verdict: str
    test: str
    seconds: float
    whole: bool

    @property
    def caught(self) -> bool:
        return self.verdict in CAUGHT


class Children:
    """Processes of pytest that are running, so that none is left behind."""

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[str]] = set()
        self._lock = threading.Lock()
        self._closed = False

    def run(self, command: Sequence[str], folder: pathlib.Path, environment: dict[str, str], timeout: float) -> Any:
        """(exit status, output), the status None where the time was up."""
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as output:
            with self._lock:
                if self._closed:
                    raise KeyboardInterrupt
                process = subprocess.Popen(
                    command,
                    cwd=folder,
                    env=environment,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
                self._running.add(process)
            try:
                status = process.wait(timeout)
            except subprocess.TimeoutExpired:
                status = None
            finally:
                _kill(process)
                with self._lock:
                    self._running.discard(process)
            output.seek(0)
            return status, output.read()

    def close(self) -> None:
        """Kill what runs, and start nothing more."""
        with self._lock:
            self._closed = True
            for process in self._running:
                _kill(process)


@dataclasses.dataclass(frozen=True)
class Place:
    """A copy of the checkout, and how its tests are run."""

    root: pathlib.Path
    cache: pathlib.Path
    timeout: float
    children: Children

    def environment(self, tier: str) -> dict[str, str]:
        """That of this process, with the copy in front of what is installed, and compiled programs kept."""
        return {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(filter(None, (str(self.root), os.environ.get("PYTHONPATH")))),
            "PYTHONDONTWRITEBYTECODE": "1",  # bytecode is told apart by seconds and sizes, which a fault may keep
            "JAX_COMPILATION_CACHE_DIR": str(self.cache / tier),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
            "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        }

    def check_import(self) -> None:
        """Stop unless Python takes the package from the copy."""
        command = (sys.executable, "-c", "import tdd; print(tdd.__file__)")
        status, output = self.children.run(command, self.root, self.environment("default"), self.timeout)
        found = output.strip().splitlines()[-1:] or [""]
        if status != 0 or not pathlib.Path(found[0]).is_relative_to(self.root):
            sys.exit(f"{self.root} was to be imported, but Python found:\n{output}")

    def test(self, tier: str, tests: Sequence[str]) -> Outcome:
        """Run tests of a tier, all of them where none is named."""
        marks = ("-m", "slow") if tier == "slow" else ()
        start = time.perf_counter()
        command = (sys.executable, *PYTEST, *marks, *tests)
        status, output = self.children.run(command, self.root, self.environment(tier), self.timeout)
        verdict, test = judged(status, output)
        return Outcome(verdict, test, round(time.perf_counter() - start, 1), not tests)

    @contextlib.contextmanager
    def planted(self, fault: Fault) -> Iterator[None]:
        """The fault stands in the copy as long as this is open."""
        path = self.root / fault.file
        sound = path.read_text("utf-8")
        path.write_text(sound.replace(fault.old, fault.new), "utf-8")
        try:
            yield
        finally:
            path.write_text(sound, "utf-8")

    def try_fault(self, fault: Fault, tier: str, *, targeted: bool) -> Outcome:
        """The fault's own tests first, then the whole tier."""
        with self.planted(fault):
            first = self.test(tier, fault.tests)
            if first.caught or targeted:
                return first
            every = self.test(tier, ())
        return dataclasses.replace(every, seconds=round(first.seconds + every.seconds, 1))


class Results:
    """What is known of each fault, in memory and in a file."""

    def __init__(self, path: pathlib.Path | None) -> None:
        self._path, self._lock = path, threading.Lock()
        self._found: dict[str, Any] = json.loads(path.read_text("utf-8")) if path and path.exists() else {}

    def known(self, fault: Fault, tier: str) -> Outcome | None:
        """The outcome of an earlier run if it still says what this run would find."""
        record = self._found.get(fault.name, {})
        if record.get("key") != key_of(fault) or tier not in record["tiers"]:
            return None
        outcome = Outcome(**record["tiers"][tier])
        return outcome if outcome.caught else None  # the tests may have changed since

    def keep(self, fault: Fault, tier: str, outcome: Outcome) -> None:
        """Enter an outcome, and write the file."""
        with self._lock:
            key = key_of(fault)
            record = self._found.get(fault.name)
            if record is None or record["key"] != key:
                record = self._found[fault.name] = {"key": key, "file": fault.file, "tiers": {}}
            record["tiers"][tier] = dataclasses.asdict(outcome)
            if self._path is not None:
                temporary = self._path.with_name(f".{self._path.name}.part")
                temporary.write_text(json.dumps(self._found, indent=1) + "\n", "utf-8")
                temporary.replace(self._path)


def main() -> None:
    """Check the table, or plant what is asked for."""
    from faults import FAULTS  # beside the script: pytest, which looks for doctests here, would not find it

    arguments = parsed()
    if arguments.check:
        sys.exit(checked(FAULTS))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("terminated"))  # so that copies and processes are cleared away
    words = [word.lower() for word in arguments.only or ()]
    chosen = [fault for fault in FAULTS if not words or any(word in fault.name.lower() for word in words)]
    tiers = TIERS if arguments.tier == "both" else (arguments.tier,)
    results, children = Results(arguments.out), Children()
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        cache = (arguments.cache or pathlib.Path(folder) / "cache").resolve()
        places: queue.SimpleQueue[Place] = queue.SimpleQueue()
        try:
            for job in range(arguments.jobs):
                root = copied(pathlib.Path(folder).resolve() / f"job-{job}")
                places.put(Place(root, cache, arguments.timeout, children))
            first = places.get()
            first.check_import()
            if arguments.control:
                control(first, chosen, tiers, targeted=arguments.targeted)
            places.put(first)
            outcomes = tried(chosen, tiers, results, places, arguments)
        finally:
            children.close()
    summarise(outcomes, tiers)


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tier", choices=(*TIERS, "both"), default="default")
    parser.add_argument("--only", nargs="+", metavar="WORDS", help="faults with one of these in their names")
    parser.add_argument("--targeted", action="store_true", help="stop after a fault's own tests")
    parser.add_argument("--control", action="store_true", help="first run the tests without a fault")
    parser.add_argument("--check", action="store_true", help="only look whether the table fits the code")
    parser.add_argument("--jobs", type=int, default=1, help="faults at a time, each in a copy (default: 1)")
    parser.add_argument("--timeout", type=float, default=1_200, help="seconds of one run of pytest (default: 1200)")
    parser.add_argument("--out", type=pathlib.Path, help="file of results, read and written")
    parser.add_argument("--cache", type=pathlib.Path, help="folder of compiled programs (default: a temporary one)")
    return parser.parse_args()


def tried(
    chosen: Sequence[Fault],
    tiers: Sequence[str],
    results: Results,
    places: queue.SimpleQueue[Place],
    arguments: argparse.Namespace,
) -> list[dict[str, Outcome]]:
    """The outcomes of each fault by tier, in the order of the faults."""

    def one(fault: Fault) -> dict[str, Outcome]:
        found: dict[str, Outcome] = {}
        for tier in tiers:
            outcome = results.known(fault, tier)
            if outcome is None:
                place = places.get()
                try:
                    outcome = place.try_fault(fault, tier, targeted=arguments.targeted)
                finally:
                    places.put(place)
                results.keep(fault, tier, outcome)
            found[tier] = outcome
            print(line(fault, tier, outcome), flush=True)
            if outcome.caught:
                break
        return found

    pool = concurrent.futures.ThreadPoolExecutor(arguments.jobs)
    try:
        return list(pool.map(one, chosen))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise


def control(place: Place, chosen: Sequence[Fault], tiers: Sequence[str], *, targeted: bool) -> None:
    """Stop if a test that is to notice a fault fails without one."""
    for tier in tiers:
        tests = () if not targeted else tuple(dict.fromkeys(test for fault in chosen for test in fault.tests))
        outcome = place.test(tier, tests)
        print(f"without a fault, {tier} tier: {outcome.verdict} {outcome.test} ({outcome.seconds:.0f} s)", flush=True)
        if outcome.verdict != "not caught":
            sys.exit("the tests must pass without a fault")


def summarise(outcomes: Sequence[dict[str, Outcome]], tiers: Sequence[str]) -> None:
    """Faults caught of those planted, by tier."""
    for tier in tiers:
        asked = [found[tier] for found in outcomes if tier in found]
        caught = sum(outcome.caught for outcome in asked)
        words = [f"{tier} tier: {caught} / {len(asked)} faults caught"]
        words += [
            f"{count} {verdict}"
            for verdict in ("hangs", "did not run")
            if (count := sum(outcome.verdict == verdict for outcome in asked))
        ]
        print(", ".join(words))
    if len(tiers) > 1:
        caught = sum(any(outcome.caught for outcome in found.values()) for found in outcomes)
        print(f"both tiers: {caught} / {len(outcomes)} faults caught")


def line(fault: Fault, tier: str, outcome: Outcome) -> str:
    """One fault in one line."""
    by = f" by {outcome.test}" if outcome.verdict == "caught" else ""
    extent = "" if outcome.whole or outcome.caught else " (own tests only)"
    detail = f"\n{outcome.test}" if outcome.verdict == "did not run" else ""
    return f"{fault.name}: {outcome.verdict}{by}{extent}, {tier} tier, {outcome.seconds:.0f} s{detail}"


def judged(status: int | None, output: str) -> tuple[str, str]:
    """(verdict, first failing test) of a run of pytest."""
    if status is None:
        return "hangs", ""
    if status in (0, NOTHING_SELECTED):
        return "not caught", ""
    found = FAILED.search(output)
    if found is not None and status > 0:
        return "caught", found[1]
    return "did not run", f"exit status {status}: " + "\n".join(output.strip().splitlines()[-5:])


def key_of(fault: Fault) -> str:
    """SHA-256 of a fault and the file that it is planted in."""
    return hashlib.sha256(repr(fault).encode() + (ROOT / fault.file).read_bytes()).hexdigest()


def copied(folder: pathlib.Path) -> pathlib.Path:
    """A copy of the checkout in a folder, with the shared data beside it."""
    root = folder / "checkout"
    listed = subprocess.run(
        ("git", "ls-files", "-co", "--exclude-standard", "-z"), cwd=ROOT, check=True, capture_output=True
    ).stdout
    for name in listed.decode().split("\0"):
        source, target = ROOT / name, root / name
        if not name or not os.path.lexists(source):
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(source, target, follow_symlinks=False)
    if (shared := ROOT.parent / "shared").is_dir():
        (folder / "shared").symlink_to(shared.resolve())
    return root


def checked(faults: Sequence[Fault]) -> int:
    """Print what does not fit the code; the exit status."""
    problems = [f"{fault.name}: {problem}" for fault in faults for problem in _problems(fault)]
    names = [fault.name for fault in faults]
    problems += [f"{name}: named twice" for name in sorted({name for name in names if names.count(name) > 1})]
    print("\n".join([*problems, f"{len(faults)} faults, {len(problems)} problems"]))
    return 1 if problems else 0


def _problems(fault: Fault) -> Iterator[str]:
    path = ROOT / fault.file
    if not path.is_file():
        yield f"no file {fault.file}"
        return
    sound = path.read_text("utf-8")
    if (count := sound.count(fault.old)) != 1:
        yield f"its snippet occurs {count} times in {fault.file}"
    before = _around(sound, fault.old) if count == 1 else sound
    planted = before.replace(fault.old, fault.new)
    try:
        tree = ast.parse(planted)
        if ast.dump(tree) == ast.dump(ast.parse(before)):
            yield "it changes nothing"
        compile(tree, fault.file, "exec")
    except SyntaxError as error:
        yield f"it cannot be compiled: {error}"
    if not fault.tests:
        yield "it names no tests"
    for test in fault.tests:
        if not _exists(test):
            yield f"there is no test {test}"


def _around(text: str, snippet: str) -> str:
    """The top-level statements of a text in which a snippet lies, with the lines before them."""
    start = text.index(snippet)
    first, last = text.count("\n", 0, start), text.count("\n", 0, start + len(snippet))
    ends = _ends_of_statements(text)
    begin = max((end for end in ends if end <= first), default=0)
    end = min((end for end in ends if end > last), default=None)
    return "\n".join(text.split("\n")[begin:end])


@functools.cache
def _ends_of_statements(text: str) -> tuple[int, ...]:
    """How many lines there are up to the end of each top-level statement."""
    return tuple(node.end_lineno or 0 for node in ast.parse(text).body)


def _exists(test: str) -> bool:
    """Whether the file and the function of a test are there; which parameters it has is not looked at."""
    place, _, name = test.partition("::")
    path = ROOT / place
    if not name:
        return path.exists()
    return path.is_file() and name.partition("[")[0].rpartition("::")[2] in _functions(path)


@functools.cache
def _functions(path: pathlib.Path) -> frozenset[str]:
    """The names of all functions of a file."""
    nodes = ast.walk(ast.parse(path.read_text("utf-8")))
    return frozenset(node.name for node in nodes if isinstance(node, ast.FunctionDef))


def _kill(process: subprocess.Popen[str]) -> None:
    """End a process that this script started and that still runs, and what that process started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


if __name__ == "__main__":
    main()
