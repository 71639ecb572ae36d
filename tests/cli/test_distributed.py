"""How processes that hold one model between them find one another, and what cannot be used."""

import argparse
import socket

import pytest
from process_launcher import Launcher, free_port

from tdd.cli import distributed, main
from tdd.cli.options import connect, leads
from tdd.validate import InputError


@pytest.fixture(autouse=True)
def _nobody(monkeypatch):
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID", "JAX_COORDINATOR_BIND_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def launcher(tmp_path):
    launcher = Launcher(tmp_path)
    yield launcher
    launcher.stop()


def options(coordinator=None, num_processes=None, process_id=None, **more):
    given = {"coordinator": coordinator, "num_processes": num_processes, "process_id": process_id}
    usual = {"distributed": False, "shard_params": True, "shard": None, "quiet": False, "command": "score"}
    return argparse.Namespace(**{**usual, **given, **more})


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"num_processes": 2}, "num_processes is given and process_id is not"),
        ({"process_id": 0}, "process_id is given and num_processes is not"),
        ({"num_processes": 0, "process_id": 0}, "num_processes=0 must be at least 1"),
        ({"num_processes": 2, "process_id": 2}, "process_id=2 must be at least 0 and less than num_processes=2"),
        ({"num_processes": 2, "process_id": -1}, "process_id=-1 must be at least 0"),
        ({"num_processes": 2, "process_id": 1}, "given without coordinator, the HOST:PORT of process 0; .* shard=I/N"),
        ({"coordinator": "here:1"}, "needs num_processes and process_id"),
        ({"coordinator": "here", "num_processes": 2, "process_id": 1}, "coordinator='here' must be HOST:PORT"),
        ({"coordinator": "h:99999", "num_processes": 2, "process_id": 1}, "must be HOST:PORT"),
        ({"coordinator": "h:1", "shard": "0/2"}, "shard=0/2 and shard_params over several processes exclude"),
        (
            {"coordinator": "h:1", "shard_params": False},
            "--coordinator connects .* with --shard-params; .* --shard 0/N",
        ),
        ({"distributed": True, "shard_params": False}, "--distributed connects processes that hold one model"),
        ({"process_id": 0, "shard_params": False}, "--process-id connects processes that hold one model"),
    ],
)
def test_what_cannot_be_used(given, message):
    with pytest.raises(InputError, match=message):
        connect(options(**given))


@pytest.mark.parametrize(
    "command", [["score", "m", "t.txt", "--out", "x.csv"], ["audit", "m", "--candidates", "t"], ["exchange", "m", "t"]]
)
def test_the_commands_name_what_shares_out_work(command, capsys):
    assert main([*command, "--num-processes", "2", "--process-id", "0"]) == 2
    assert "start the same command with --shard 0/N" in capsys.readouterr().err


def test_a_variable_that_is_no_number(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "many")
    with pytest.raises(InputError, match="the variable JAX_NUM_PROCESSES is 'many'; it must be a whole number"):
        connect(options(process_id=0))


def test_nothing_is_connected_unless_asked(monkeypatch):
    monkeypatch.setenv("JAX_COORDINATOR_ADDRESS", "node01:1")
    monkeypatch.setattr("jax.distributed.initialize", None)
    connect(options())
    connect(options(shard_params=False, shard="0/2"))


def test_process_0_listens_at_the_given_address_alone(monkeypatch):
    """JAX by itself listens at all addresses of the host, and has no authentication."""
    given = {}
    monkeypatch.setattr("jax.distributed.initialize", lambda *positions, **options: given.update(options))
    monkeypatch.setattr("jax.config.update", lambda *change: None)
    address = f"127.0.0.1:{free_port()}"
    connect(options(address, 2, 0))
    assert given["coordinator_bind_address"] == address


def test_what_an_address_means_here(monkeypatch):
    port = free_port()
    assert distributed._bind_address(f"localhost:{port}") in (f"127.0.0.1:{port}", f"[::1]:{port}")
    assert distributed._bind_address(f"192.0.2.1:{port}") is None
    assert distributed._bind_address(f"no-such-host.invalid:{port}") is None
    entry = (socket.AF_INET, 0, 0, "", ("127.0.1.1", port))  # as Debian has the host's own name in /etc/hosts
    with monkeypatch.context() as patch:
        patch.setattr("socket.getaddrinfo", lambda *name, **options: [entry])
        assert distributed._bind_address(f"node01:{port}") is None
    with socket.socket() as other:
        other.bind(("127.0.1.1", 0))
        other.listen()
        with pytest.raises(InputError, match="another program has port"):
            distributed._bind_address(f"127.0.1.1:{other.getsockname()[1]}")


def test_nobody_at_the_coordinator(monkeypatch):
    monkeypatch.setattr(distributed, "_TIMEOUT", 0.3)
    address = f"127.0.0.1:{free_port()}"
    with pytest.raises(InputError, match=f"nobody listens at coordinator={address} after .* process 0 must run on"):
        connect(options(address, 2, 1))


def test_who_writes_the_results(monkeypatch, capsys):
    assert leads(options())
    monkeypatch.setattr("jax.process_index", lambda: 1)
    monkeypatch.setattr("jax.process_count", lambda: 2)
    assert leads(options(shard_params=False))
    follower = options()
    assert not leads(follower)
    assert follower.follows
    assert "tdd score: process 1 of 2 is done; process 0 writes the results" in capsys.readouterr().err


@pytest.mark.slow("processes")
def test_what_goes_wrong_at_the_start(launcher):
    """Nothing to detect, a second call, JAX in use: each is told from the others."""
    code = """
import argparse, sys
from tdd.cli.options import connect
from tdd.validate import InputError
def refused(coordinator=None, count=None, index=None):
    try:
        connect(argparse.Namespace(
            distributed=True, shard_params=True, shard=None, coordinator=coordinator, num_processes=count,
            process_id=index,
        ))
    except InputError as error:
        print(error)
refused()
refused(sys.argv[1], 1, 0)
refused(sys.argv[2], 1, 0)
import jax
jax.numpy.ones(3).sum()
refused(sys.argv[2], 1, 0)
"""
    addresses = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    (end,) = launcher.all([launcher.python(code, *addresses)])
    assert end.code == 0, end
    nothing, again, late = end.out.splitlines()
    assert "give coordinator, num_processes and process_id" in nothing
    assert "jax.distributed connects this process already" in again
    assert "call jax.distributed.initialize before anything else" in late
