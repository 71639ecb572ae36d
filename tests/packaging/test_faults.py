"""The faults that the suite is tried with can still be planted: their lines are in the code, and each changes it."""

import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).parents[2]


def test_every_fault_can_be_planted():
    check = [sys.executable, ROOT / "tests" / "faults" / "plant.py", "--check"]
    found = subprocess.run(check, capture_output=True, text=True, cwd=ROOT)
    assert found.returncode == 0, found.stdout + found.stderr
    assert ", 0 problems" in found.stdout
