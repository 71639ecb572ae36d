"""`python -m benchmarks device`, on a CPU, and what the estimates read."""

import json
import sys

import jax
import jax.numpy as jnp
import pytest

from benchmarks.__main__ import main
from benchmarks.aot import hlo
from benchmarks.aot.programs import PROGRAMS
from tdd.device_kinds import KINDS, named_kind


@pytest.fixture
def without_torch(monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)


def test_named_programs_are_measured_anywhere(without_torch, capsys, tmp_path):
    out = tmp_path / "device.json"
    assert main(["device", "--program", "bh", "--quiet", "--json", "--out", str(out)]) == 0
    shown = json.loads(capsys.readouterr().out)
    (row,) = shown["rows"]
    assert row["program"] == "bh"
    assert row["seconds"] == sorted(row["all"])[2]
    assert row["rate"] == pytest.approx(1000 / row["seconds"])
    assert shown["peer"] is row["peer"] is None
    assert shown["no_peer"].startswith("torch and transformers cannot be imported: ")
    assert json.loads(out.read_text())["rows"] == shown["rows"]


def test_a_profile_has_a_folder_a_program(without_torch, capsys, tmp_path):
    """With the compiled program; on a CPU no kernels are listed."""
    assert main(["device", "--program", "bh", "--quiet", "--json", "--profile", str(tmp_path)]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert "kernels" not in row
    assert "ENTRY" in (tmp_path / "bh" / "program.hlo").read_text()
    assert list((tmp_path / "bh").rglob("*.xplane.pb"))


@pytest.mark.parametrize(
    ("options", "complaint"),
    [((), "this machine has no accelerator"), (("--program", "nothing"), "begins no name; there are resample 775")],
)
def test_refusals(options, complaint, without_torch, capsys):
    assert main(["device", *options]) == 2
    assert complaint in capsys.readouterr().err


def test_nothing_begins_after_the_limit(without_torch, capsys, tmp_path):
    out = tmp_path / "device.json"
    assert main(["device", "--program", "bh", "--limit", "0", "--quiet", "--json", "--out", str(out)]) == 0
    assert json.loads(capsys.readouterr().out)["left_out"] == ["bh"]
    assert json.loads(out.read_text())["rows"] == []


def test_a_program_that_fails_leaves_the_others(without_torch, capsys, monkeypatch):
    def fails(device):
        raise ValueError("no such thing\nand more")

    monkeypatch.setitem(PROGRAMS, "bh fails", fails)
    assert main(["device", "--program", "bh", "--quiet", "--json"]) == 1
    works, fails = json.loads(capsys.readouterr().out)["rows"]
    assert works["seconds"] > 0
    assert fails == {"program": "bh fails", "failed": "ValueError: no such thing"}


def test_flops_as_written():
    """A product of [3, 4] and [4, 5] in a loop of 7, and one that no output needs."""

    def program(x, w):
        dead = w @ w.T
        del dead
        return jax.lax.fori_loop(0, 7, lambda i, y: y + x @ w, jnp.zeros((3, 5)))

    jaxpr = jax.make_jaxpr(program)(jnp.ones((3, 4)), jnp.ones((4, 5))).jaxpr
    assert hlo.written_flops(hlo.without_dead_code(jaxpr)) == 7 * 2 * 3 * 4 * 5


def test_a_module_is_weighted_by_its_loops():
    """Read from this machine's compiler: a loop of 7 holds one product; nothing waits, and nothing is in f64."""
    kind = KINDS["h200"]

    def program(x):
        return jax.lax.fori_loop(0, 7, lambda i, y: jnp.tanh(y @ x), x)

    compiled = jax.jit(program).lower(jnp.ones((64, 64))).compile()
    module = hlo.Module(compiled.as_text())
    products = sum(times * module.products(rest, one)[0] for times, rest, one in module.running())
    assert products in (0, 7 * 2 * 64**3)  # a CPU may hand the product to a library
    found = hlo.facts(compiled, kind, flops=1e12)
    assert found.waits == 0
    assert found.launches >= 7
    assert not found.has_f64
    assert found.share_of_peak == pytest.approx(1e12 / 989e12 / found.seconds)


def test_an_unknown_device_has_no_estimate():
    compiled = jax.jit(jnp.sin).lower(1.0).compile()
    with pytest.raises(ValueError, match="are not known"):
        hlo.facts(compiled, named_kind("24GB"))
