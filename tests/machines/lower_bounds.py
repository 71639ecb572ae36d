"""The default tier with every dependency at the lower bound that pyproject.toml states.

python tests/machines/lower_bounds.py constraints      prints the constraints file
python tests/machines/lower_bounds.py run [PYTEST OPTIONS]
                                                       installs them in an environment of its own and runs the tests
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import venv

ROOT = pathlib.Path(__file__).resolve().parents[2]
BOUND = re.compile(r"([A-Za-z0-9_.-]+)(?:\[[a-z,]+\])?>=([0-9.]+)$")


def constraints(project):
    """A line NAME==VERSION for each requirement of the package and of its tests; without a bound it is an error."""
    stated = [*project["dependencies"], *project["optional-dependencies"]["test"]]
    lines = {}
    for requirement in stated:
        if "==" in requirement:
            continue
        found = BOUND.fullmatch(requirement)
        if found is None:
            raise ValueError(f"{requirement!r} states no lower bound")
        lines.setdefault(found[1], f"{found[1]}=={found[2]}")
    return sorted(lines.values())


def run(options):
    """Exit status of the tests in a fresh environment at the lower bounds."""
    with tempfile.TemporaryDirectory() as folder:
        environment, file = pathlib.Path(folder, "environment"), pathlib.Path(folder, "constraints.txt")
        file.write_text("\n".join(stated()) + "\n")
        venv.create(environment, with_pip=True)
        python = environment / "bin" / "python"
        subprocess.run([python, "-m", "pip", "install", "-q", "-c", file, "-e", ".[test]"], cwd=ROOT, check=True)
        listed = subprocess.run([python, "-m", "pip", "freeze"], capture_output=True, text=True, check=True).stdout
        print(*(line for line in listed.splitlines() if line in set(file.read_text().split())), flush=True)
        return subprocess.run([python, "-m", "pytest", *options], cwd=ROOT, check=False).returncode


def stated():
    """The lines for this project."""
    return constraints(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"])


if __name__ == "__main__":
    command, *options = sys.argv[1:] or ["constraints"]
    if command == "constraints":
        print(*stated(), sep="\n")
    else:
        sys.exit(run(options or ["-n", "2", "-q"]))
