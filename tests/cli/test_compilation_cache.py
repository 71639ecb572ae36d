"""Compiled programs are kept between processes, where they may be."""

import json
import os
import subprocess
import sys

import gpt2_files
import jax
import pytest

from tdd.cli import machine, main

CODE = """
import json, sys
import jax, jax.monitoring
from tdd.cli import main
events = []
jax.monitoring.register_event_listener(lambda name, **rest: events.append(name))
status = main(sys.argv[1:])
counted = [sum(name.endswith(word) for name in events) for word in ("cache_hits", "cache_misses")]
print(json.dumps([status, jax.config.jax_compilation_cache_dir, *counted]))
"""


@pytest.fixture(scope="module")
def arguments(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    model = gpt2_files.write(folder / "gpt2")[0]
    (folder / "texts.txt").write_text("1 2 3 4 5\n6 7 8\n")
    return ["score", str(model), str(folder / "texts.txt"), "--score", "loss", "-q", "--json"]


def process(arguments, out, *more, **environment):
    base = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("JAX_", "TDD_", "XDG_")) or name == "JAX_PLATFORMS"
    }
    done = subprocess.run(
        [sys.executable, "-c", CODE, *arguments, "--out", str(out), *more],
        env={**base, "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0", **environment},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1]), done.stderr


@pytest.mark.slow("processes")
@pytest.mark.parametrize("words", ["select {table} --score loss", "demo", "study ptdi-alpha --repetitions 64"])
def test_what_a_command_compiles_is_kept(words, tmp_path):
    rows = [f"{role}{i},{role},{i * 37 % 41}" for role in ("calibration", "candidate") for i in range(40)]
    (tmp_path / "scores.csv").write_text("\n".join(["id,role,loss", *rows]))
    place = {"TDD_CACHE_DIR": str(tmp_path / "cache")}
    typed = [*words.format(table=tmp_path / "scores.csv").split(), "-q", "--json"]
    (_, _, _, misses), _ = process(typed, tmp_path / "first", **place)
    (status, _, hits, again), _ = process(typed, tmp_path / "second", **place)
    assert (status, again) == (0, 0)
    assert hits >= misses > 0


@pytest.mark.slow("processes")
def test_a_second_process_compiles_nothing_again(arguments, tmp_path):
    place = {"TDD_CACHE_DIR": str(tmp_path / "cache")}
    (status, folder, hits, misses), _ = process(arguments, tmp_path / "first.csv", **place)
    assert (status, folder) == (0, str(tmp_path / "cache" / "xla"))
    assert misses > 0
    assert any((tmp_path / "cache" / "xla").iterdir())
    (status, _, hits, misses), said = process(arguments, tmp_path / "second.csv", **place)
    assert status == 0
    assert hits > 0
    assert misses == 0
    assert not said
    assert (tmp_path / "first.csv").read_text() == (tmp_path / "second.csv").read_text()


@pytest.fixture
def settings():
    """JAX's settings, put back afterwards."""
    names = ("jax_compilation_cache_dir", "jax_persistent_cache_min_compile_time_secs", "jax_enable_compilation_cache")
    before = {name: getattr(jax.config, name) for name in names}
    yield
    for name, value in before.items():
        jax.config.update(name, value)


@pytest.mark.parametrize("obstacle", ["nothing", "a file", "a folder", "the option", "the variable", "jax", "off"])
def test_what_keeps_the_cache_off(settings, monkeypatch, tmp_path, obstacle):
    cache = tmp_path / "cache"
    jax.config.update("jax_compilation_cache_dir", None)
    monkeypatch.setenv("TDD_CACHE_DIR", str(cache))
    monkeypatch.setenv("TDD_COMPILATION_CACHE", "0" if obstacle == "the variable" else "1")
    if obstacle == "a file":
        cache.write_text("no folder can be made here")
    elif obstacle == "a folder":
        monkeypatch.setattr(machine.os, "access", lambda *_: False)  # the tests may run as root
    elif obstacle == "jax":
        jax.config.update("jax_compilation_cache_dir", str(tmp_path / "own"))
    elif obstacle == "off":
        jax.config.update("jax_enable_compilation_cache", False)
    found = machine.keep_compiled(obstacle != "the option")
    expected = str(cache / "xla") if obstacle == "nothing" else None
    assert (None if found is None else str(found)) == expected
    assert jax.config.jax_compilation_cache_dir == (str(tmp_path / "own") if obstacle == "jax" else expected)


@pytest.mark.parametrize(
    ("platform", "environment", "expected"),
    [
        ("linux", {"TDD_CACHE_DIR": "/mine"}, "/mine/xla"),
        ("linux", {"XDG_CACHE_HOME": "/caches"}, "/caches/tdd/xla"),
        ("linux", {}, "/home/user/.cache/tdd/xla"),
        ("darwin", {"XDG_CACHE_HOME": "/caches"}, "/home/user/Library/Caches/tdd/xla"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/tdd/xla"),
    ],
)
def test_the_folder_is_the_one_of_the_platform(monkeypatch, platform, environment, expected):
    for name in ("TDD_CACHE_DIR", "XDG_CACHE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"HOME": "/home/user", **environment}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(machine.sys, "platform", platform)
    assert str(machine.cache_folder()) == expected


def test_long_texts_are_refused_or_cut(arguments, tmp_path, capsys):
    long = tmp_path / "long.txt"
    long.write_text("1 2 3\n" + " ".join(map(str, range(20))) + "\n" + " ".join(map(str, range(17))) + "\n")
    words = [*arguments[:2], str(long), *arguments[3:], "--no-compilation-cache", "--out"]
    assert main([*words, str(tmp_path / "a.csv"), "--long-texts", "error"]) == 2
    said = capsys.readouterr().err
    assert "text '2' has 2" in said
    assert "tokens under the tokenizer of the model, more than the limit of 16 (1 further text is too long" in said
    assert main([*words, str(tmp_path / "a.csv"), "--long-texts", "truncate"]) == 0
    assert (tmp_path / "a.csv").read_text().count("\n") == 4


def test_devices_that_are_not_there(arguments, tmp_path, capsys):
    words = [*arguments, "--no-compilation-cache", "--out", str(tmp_path / "a.csv")]
    assert main([*words, "--devices", "1000"]) == 2
    assert "--devices 1000 must be at least 1 and at most" in capsys.readouterr().err
    assert main([*words, "--devices", "some"]) == 2
    assert "--devices 'some' cannot be used; give a number, 'all'" in capsys.readouterr().err
    assert main([*words, "--shard-params"]) == 2
    assert "only one is used" in capsys.readouterr().err
