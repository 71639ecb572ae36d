"""What the machine refuses is one line for every command: names, files, memory, the output itself."""

import errno
import shutil

import pytest

from benchmarks.__main__ import main as benchmarks
from tdd.cli import main
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
