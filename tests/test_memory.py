"""Freed memory stays with the process: counted page faults, in a process of its own."""

import subprocess
import sys

import pytest

from tdd import cores as memory

CODE = """
import resource, sys, threading
from tdd.cores import keep_memory
kept = "keep" in sys.argv and keep_memory()
faults = []
def work():
    for _ in range(6):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = bytearray(200 << 20)
        block[::4096] = bytes(len(block) // 4096)
        del block
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
thread = threading.Thread(target=work)
thread.start()
thread.join()
print(kept, max(faults[2:]))
"""


def faults(*arguments, **environment):
    out = subprocess.run(
        [sys.executable, "-c", CODE, *arguments], capture_output=True, text=True, check=True, env=environment
    ).stdout.split()
    return out[0] == "True", int(out[1])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an allocator of Linux")
@pytest.mark.slow("long")
def test_pages_are_not_handed_out_again():
    kept, without = faults("keep")
    if not kept:
        pytest.skip("not glibc")
    assert without < 1000
    assert faults()[1] > 40 * 1000  # 200 MiB are 51,200 pages


def test_the_users_own_settings_win():
    assert faults("keep", MALLOC_ARENA_MAX="2")[0] is False


@pytest.mark.parametrize(
    ("refused", "asked"), [((), [-3, -8, -1]), ((-3,), [-3, -4, -8, -1]), ((-3, -4), [-3, -4]), ((-8,), [-3, -8, -1])]
)
def test_an_allocator_that_refuses(refused, asked, monkeypatch):
    """glibc before 2.35 takes no threshold above 32 MiB; another setting alone would make pages come and go more."""
    called = []

    class Library:
        @staticmethod
        def mallopt(parameter, value):
            called.append(parameter)
            return int(parameter not in refused)

    for name in memory._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: Library)
    assert memory.keep_memory() is ({*refused} <= {-3})
    assert called == asked


def test_other_libraries_and_systems_are_left_alone(monkeypatch):
    for name in memory._VARIABLES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(memory.sys, "platform", "linux")
    monkeypatch.setattr(memory.ctypes, "CDLL", lambda name: object())  # musl has no mallopt
    assert memory.keep_memory() is False
    monkeypatch.setattr(memory.sys, "platform", "darwin")
    monkeypatch.setattr(memory.ctypes, "CDLL", None)
    assert memory.keep_memory() is False
