"""What the machine refuses is one line for every command: names, files, memory, the output itself."""

import errno
import os
import re
import resource
import shutil
import subprocess
import sys

import pytest

import tdd
from benchmarks.__main__ import main as benchmarks
from tdd.cli import main
from tdd.cli.machine import of_jax_settings
from tdd.runs.atomic import disk_errors
from tdd.validate import InputError


@pytest.fixture
def reproduce(monkeypatch, tmp_path):
    """Runs `python -m benchmarks reproduce jecs` with another function in the place of the reproduction."""

    def call(carry_out):
        monkeypatch.setattr("tdd.cores.keep_memory", lambda: True)
        monkeypatch.setattr("benchmarks.reproductions.run.run_reproduction", carry_out)
        return benchmarks(["reproduce", "jecs", "--out", str(tmp_path / "run"), "-q", "--json"])

    return call


def only_line(capsys):
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    return error


def test_a_name_that_no_file_can_have(capsys):
    assert main(["report", "a" * 300]) == 2
    assert f"tdd report: error: {'a' * 300}: File name too long" in only_line(capsys)


@pytest.mark.parametrize("name", ["a" * 300, "y/" * 3_000, "\ud800", "a\0b"])
def test_names_that_no_output_can_have(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "t.csv").write_text("role,loss\n" + "calibration,1\n" * 30 + "candidate,0\n" * 9)
    for call in (
        lambda: tdd.select("t.csv", alpha=0.2, out=name),
        lambda: tdd.paraphrase([{"id": "a", "text": "b"}], out=name, model="m", endpoint="http://127.0.0.1:9/v1"),
        lambda: tdd.load(name),
    ):
        with pytest.raises(InputError) as raised:
            call()
        assert len(str(raised.value)) < 600
        assert str(raised.value).isprintable()


def test_an_output_that_is_full(monkeypatch, capsys):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr("sys.stdout", full)
        assert main(["lab", "example"]) == 2
        full.flush()  # as Python does at its end
    assert "the output cannot be written: No space left on device" in only_line(capsys)


def test_an_output_that_is_closed(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdout", None)
    assert main(["lab", "example"]) == 2
    assert "the standard output is closed; redirect it" in only_line(capsys)


def test_a_closed_error_stream(monkeypatch):
    monkeypatch.setattr("sys.stderr", None)
    assert main(["lab", "example", "nothing"]) == 2


def test_a_file_beyond_the_limit_of_its_size():
    refused = pytest.raises(InputError, match=r"cannot write run.json: the file is larger than .*ulimit -f")
    with refused, disk_errors("run.json"):
        raise OSError(errno.EFBIG, "File too large")


def test_no_memory(reproduce, capsys):
    def carry_out(name, options):
        raise RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 512 bytes.")

    assert reproduce(carry_out) == 2
    assert "error: out of memory (RESOURCE_EXHAUSTED: Out of memory allocating 512 bytes.)" in only_line(capsys)


def test_a_folder_that_was_removed_near_the_end(reproduce, capsys):
    def carry_out(name, options):
        options.folder.mkdir()
        shutil.rmtree(options.folder)
        return {}

    assert reproduce(carry_out) == 2
    assert "run was removed while the command ran; run the same command again" in only_line(capsys)


def test_a_fault_of_the_program_is_none_of_the_machine(reproduce):
    def carry_out(name, options):
        raise RuntimeError("something else")

    with pytest.raises(RuntimeError, match="something else"):
        reproduce(carry_out)


@pytest.mark.parametrize("seed", ["12345678901234567890123", "-1"])
@pytest.mark.parametrize("command", ["select t.csv", "audit m --candidates a --calibration b", "exchange m quiz.jsonl"])
def test_seeds(command, seed, capsys):
    assert main([*command.split(), "--seed", seed]) == 2
    assert f"seed must be a whole number from 0 to 2^32 - 1, got {seed}" in only_line(capsys)


def test_what_jax_stops_for_is_named(monkeypatch):
    for name, error in (
        ("JAX_DEBUG_NANS", FloatingPointError("invalid value (nan) encountered in sub")),
        ("JAX_COMPILATION_CACHE_DIR", UnicodeEncodeError("utf-8", "\udcff", 0, 1, "surrogates not allowed")),
        ("JAX_COMPILATION_CACHE_DIR", TypeError("Invoked with types: jaxlib._jax.DebugOptions, str")),
    ):
        monkeypatch.setenv(name, "1")
        assert of_jax_settings(error) == f"{name}=1: JAX stops for it; leave {name} unset"
        monkeypatch.delenv(name)
        assert name not in of_jax_settings(error)


@pytest.mark.parametrize(
    ("setting", "value", "said"),
    [
        ("JAX_PLATFORMS", "cpu,foo", "Unable to initialize backend 'foo'.*; set JAX_PLATFORMS=cpu, or leave it unset"),
        ("JAX_DEFAULT_DEVICE", "x", "JAX stops for it; leave JAX_DEFAULT_DEVICE unset"),
        pytest.param(
            "JAX_PLATFORMS",
            "foo",
            "Unable to initialize backend 'foo'.*; set JAX_PLATFORMS=cpu, or leave it unset",
            marks=pytest.mark.slow("grid"),
        ),
        ("JAX_ENABLE_X64", "maybe", "JAX knows no such value; leave JAX_ENABLE_X64 unset"),
    ],
)
def test_odd_settings_of_jax_are_named_in_one_line(setting, value, said, tmp_path):
    rows = [f"{'calibration' if i < 30 else 'candidate'},{i}" for i in range(60)]
    (tmp_path / "t.csv").write_text("\n".join(["role,loss", *rows]))
    command = [sys.executable, "-m", "tdd", "select", str(tmp_path / "t.csv")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), setting: value}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.fullmatch(f"tdd select: error: {setting}={value}: {said}.*\n", done.stderr), done.stderr


@pytest.mark.parametrize(
    "error",
    [
        ValueError("invalid truth value 'maybe' for environment 'JAX_ENABLE_X64'"),
        ValueError("invalid integer value 'maybe' for environment 'JAX_ENABLE_X64'"),
        ValueError('Invalid value "maybe" for JAX flag jax_enable_x64'),
    ],
)
def test_what_jax_says_of_its_settings(error):
    assert of_jax_settings(error).startswith("JAX_ENABLE_X64=maybe: ")


def test_other_errors_are_none_of_the_settings(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    for error in (ValueError("an odd value"), AssertionError(), RuntimeError("Invalid value")):
        assert of_jax_settings(error) == ""


@pytest.mark.parametrize(("limit", "option", "what"), [("AS", "-v", "address space"), ("DATA", "-d", "data")])
def test_a_shell_that_leaves_no_room_is_told_before_anything_is_computed(limit, option, what, monkeypatch, capsys):
    """JAX would end the process by a signal, or wait for ever."""
    least = {"AS": 4 << 20, "DATA": 2 << 20}[limit]
    given = {getattr(resource, f"RLIMIT_{limit}"): (1_000_000 << 10, resource.RLIM_INFINITY)}
    monkeypatch.setattr(resource, "getrlimit", lambda name: given.get(name, (resource.RLIM_INFINITY,) * 2))
    assert main(["lab", "example"]) == 2
    assert f"1,000,000 kB of {what} (ulimit {option}), and JAX needs {least:,} before" in only_line(capsys)
    given[getattr(resource, f"RLIMIT_{limit}")] = (least << 10, resource.RLIM_INFINITY)
    assert main(["lab", "example"]) == 0
