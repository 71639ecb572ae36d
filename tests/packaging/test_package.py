"""The layout that must not break: the link, the wheel, the sdist, the packaged demonstration."""

import os
import pathlib
import shutil
import subprocess
import sys
import tarfile
import zipfile

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def test_kernels_is_a_link_and_no_package():
    assert os.readlink(ROOT / "tdd" / "kernels") == "../kernels"
    assert not (ROOT / "kernels" / "__init__.py").exists()


def test_only_the_agreed_names_at_the_top():
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:
        pytest.skip("not a git checkout")
    assert {line.split("/")[0] for line in listed.stdout.splitlines()} <= {
        ".ci",
        ".gitignore",
        "LICENSE",
        "README.md",
        "benchmarks",
        "kernels",
        "pyproject.toml",
        "tdd",
        "tests",
    }


@pytest.fixture(scope="module")
def distributions(tmp_path_factory):
    """sdist of the checkout, and the wheel built from it."""
    out = tmp_path_factory.mktemp("dist")
    source = out / "source"  # a copy: builds of two processes in one checkout would meet
    ignored = shutil.ignore_patterns(".git", "__pycache__", "build", "dist", "*.egg-info", ".*_cache", ".venv")
    shutil.copytree(ROOT, source, symlinks=True, ignore=ignored)
    built = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(source)],
        capture_output=True,
        text=True,
    )
    assert built.returncode == 0, built.stderr[-2000:]
    return next(out.glob("*.tar.gz")), next(out.glob("*.whl"))


@pytest.mark.slow("packaging")
def test_wheel_holds_the_kernels_once_and_the_demonstration(distributions):
    names = zipfile.ZipFile(distributions[1]).namelist()
    for kernel in (ROOT / "kernels").glob("*.py"):
        assert f"tdd/kernels/{kernel.name}" in names
    assert not [name for name in names if name.startswith(("kernels/", "tests/", "benchmarks/"))]
    assert "tdd/kernels/__init__.py" not in names
    assert "tdd/py.typed" in names
    for folder in ("checkpoint", "corpus"):
        for file in (ROOT / "tdd" / "demo" / folder).iterdir():
            assert f"tdd/demo/{folder}/{file.name}" in names
    for file in (ROOT / "tdd" / "lab" / "data").rglob("*.toml"):
        assert file.relative_to(ROOT).as_posix() in names
    assert any(name.endswith("LICENSE") for name in names)


@pytest.mark.slow("packaging")
def test_installed_wheel_runs(distributions, tmp_path):
    """From the wheel alone, in another working directory."""
    with zipfile.ZipFile(distributions[1]) as wheel:
        wheel.extractall(tmp_path / "site")
    code = (
        "import sys, tdd, pathlib; from tdd.demo.data import demo_files;"
        "assert pathlib.Path(tdd.__file__).is_relative_to(sys.argv[1]);"
        "assert tdd.ptdi([3.0, 4.0, 5.0, 6.0], [1.0], alpha=0.5, proportion='none').selected.all();"
        "assert demo_files().checkpoint.is_dir(); assert 'kernels' not in sys.modules"
    )
    site = str(tmp_path / "site")
    subprocess.run([sys.executable, "-c", code, site], check=True, cwd=tmp_path, env=os.environ | {"PYTHONPATH": site})


@pytest.mark.slow("packaging")
def test_sdist_holds_the_sources(distributions):
    with tarfile.open(distributions[0]) as sdist:
        names = {name.split("/", 1)[1] for name in sdist.getnames() if "/" in name}
    assert "pyproject.toml" in names
    assert "tdd/kernels/stepup.py" in names or "kernels/stepup.py" in names
