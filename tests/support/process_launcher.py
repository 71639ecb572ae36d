"""Real processes on this machine, connected through the loopback or through a folder alone."""

import contextlib
import dataclasses
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time

import child_process


@dataclasses.dataclass
class Ended:
    code: int
    out: str
    err: str


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Started:
    """One process whose output goes to files, so that nobody waits for a pipe."""

    def __init__(self, arguments, folder, name, env):
        self.files = [open(pathlib.Path(folder) / f"{name}.{end}", "w+") for end in ("out", "err")]  # noqa: SIM115
        self.process = subprocess.Popen(
            arguments,
            cwd=child_process.ROOT,
            env=env,
            stdout=self.files[0],
            stderr=self.files[1],
            start_new_session=True,
        )

    def text(self, which=1):
        return pathlib.Path(self.files[which].name).read_text()

    def kill(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def end(self, timeout):
        try:
            code = self.process.wait(timeout)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"still running after {timeout} s:\n{self.text()}") from None
        found = Ended(code, self.text(0), self.text(1))
        for file in self.files:
            file.close()
        return found


class Launcher:
    """Starts Python code or `tdd` commands and ends what is left of them.

    Args:
      folder: for their output.
    """

    def __init__(self, folder):
        self.folder, self.started = folder, []

    def python(self, code, *arguments, devices=1, **variables):
        return self._start([sys.executable, "-c", code, *map(str, arguments)], devices, variables)

    def tdd(self, *arguments, devices=1, **variables):
        return self._start([sys.executable, "-m", "tdd", *map(str, arguments)], devices, variables)

    def all(self, started, timeout=120):
        """Wait for all; their ends in order."""
        limit = time.monotonic() + timeout
        return [one.end(max(0.1, limit - time.monotonic())) for one in started]

    def stop(self):
        for one in self.started:
            if one.process.poll() is None:
                one.kill()

    def _start(self, command, devices, variables):
        env = child_process.environment(devices, **variables)
        env = {name: value for name, value in env.items() if not name.startswith("SLURM_") or name in variables}
        one = Started(command, self.folder, f"process-{len(self.started)}", env)
        self.started.append(one)
        return one


def until(condition, timeout=60, what="it"):
    """Wait for a condition; fails by name where it does not come."""
    limit = time.monotonic() + timeout
    while not (found := condition()):
        assert time.monotonic() < limit, f"{what} did not come in {timeout} s"
        time.sleep(0.02)
    return found
