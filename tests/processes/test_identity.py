"""Who a process is: arguments, environment, `jax.distributed`, and what cannot be used."""

import argparse
import socket

import pytest
from process_launcher import free_port, until

from tdd.audit.mesh import find_devices
from tdd.processes import Processes, current, identity, initialize
from tdd.validate.errors import InputError
from tdd.validate.processes import check_shared_folder


@pytest.fixture(autouse=True)
def _nobody(monkeypatch):
    monkeypatch.setattr(identity, "_given", None)
    for name in ("JAX_COORDINATOR_ADDRESS", "JAX_NUM_PROCESSES", "JAX_PROCESS_ID"):
        monkeypatch.delenv(name, raising=False)


def test_alone():
    assert current() == Processes(0, 1, connected=False)
    assert current().lead
    assert all(current().owns(number) for number in range(5))


def test_pieces_are_dealt_round_robin():
    everybody = [Processes(index, 3) for index in range(3)]
    for number in range(20):
        assert [one.index for one in everybody if one.owns(number)] == [everybody[0].owner(number)]
    counts = [sum(one.owns(number) for number in range(20)) for one in everybody]
    assert max(counts) - min(counts) <= 1
    assert [one.lead for one in everybody] == [True, False, False]


def test_by_number_alone():
    assert initialize(num_processes=4, process_id=2, connect=False) == Processes(2, 4, connected=False)
    assert current() == Processes(2, 4)
    with pytest.raises(InputError, match="one of several already"):
        initialize(num_processes=4, process_id=2, connect=False)


def test_from_the_environment(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "3")
    monkeypatch.setenv("JAX_PROCESS_ID", "1")
    assert initialize(connect=False) == Processes(1, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_processes": 2}, "num_processes is given and process_id is not"),
        ({"process_id": 0}, "process_id is given and num_processes is not"),
        ({"num_processes": 0, "process_id": 0}, "num_processes=0 must be at least 1"),
        ({"num_processes": 2, "process_id": 2}, "process_id=2 must be at least 0 and less than num_processes=2"),
        ({"num_processes": 2, "process_id": -1}, "process_id=-1 must be at least 0"),
        ({"num_processes": 2.0, "process_id": 1}, "num_processes is 2.0; it must be a whole number"),
        ({"num_processes": "two", "process_id": 1}, "num_processes is 'two'; it must be a whole number"),
        ({"num_processes": 2, "process_id": 1}, "without a coordinator to connect to"),
        ({"coordinator": "here:1"}, "needs num_processes and process_id"),
        ({"coordinator": "here", "num_processes": 2, "process_id": 1}, "coordinator='here' must be HOST:PORT"),
        ({"coordinator": "h:99999", "num_processes": 2, "process_id": 1}, "must be HOST:PORT"),
        ({"connect": False}, "num_processes and process_id are needed"),
    ],
)
def test_what_cannot_be_used(arguments, message):
    with pytest.raises(InputError, match=message):
        initialize(**arguments)
    assert identity._given is None


def test_a_variable_that_is_no_number(monkeypatch):
    monkeypatch.setenv("JAX_NUM_PROCESSES", "many")
    with pytest.raises(InputError, match="the variable JAX_NUM_PROCESSES is 'many'; it must be a whole number"):
        initialize(process_id=0, connect=False)


def test_process_0_listens_at_the_given_address_alone(monkeypatch):
    """JAX by itself listens at all addresses of the host, and has no authentication."""
    given = {}
    monkeypatch.setattr("jax.distributed.is_initialized", lambda: False)
    monkeypatch.setattr("jax.distributed.initialize", lambda *positions, **options: given.update(options))
    monkeypatch.setattr("jax.config.update", lambda *change: None)
    monkeypatch.delenv("JAX_COORDINATOR_BIND_ADDRESS", raising=False)
    address = f"127.0.0.1:{free_port()}"
    initialize(address, 2, 0)
    assert given["coordinator_bind_address"] == address


def test_what_an_address_means_here(monkeypatch, caplog):
    port = free_port()
    assert identity._bind_address(f"localhost:{port}") in (f"127.0.0.1:{port}", f"[::1]:{port}")
    assert not caplog.records
    assert identity._bind_address(f"192.0.2.1:{port}") == f"[::]:{port}"
    assert "is no address of this host" in caplog.text
    entry = (0, 0, 0, "", ("127.0.1.1", 0))  # as Debian has the host's own name in /etc/hosts
    monkeypatch.setattr("socket.getaddrinfo", lambda *name, **options: [entry])
    assert identity._bind_address(f"node01:{port}") == f"[::]:{port}"
    with socket.socket() as other:
        other.bind(("127.0.1.1", 0))
        other.listen()
        with pytest.raises(InputError, match="another program has port"):
            identity._bind_address(f"127.0.1.1:{other.getsockname()[1]}")
    monkeypatch.setenv("JAX_COORDINATOR_BIND_ADDRESS", "10.0.0.1:1")
    assert identity._bind_address("node01:2") == "10.0.0.1:1"


def test_several_need_a_folder(tmp_path):
    assert check_shared_folder(str(tmp_path), 2, "out") == tmp_path
    with pytest.raises(InputError, match="2 processes share this run out and need resume_dir, a folder that all"):
        check_shared_folder(None, 2, "resume_dir")


def test_jax_distributed_of_the_caller(launcher):
    """What a program has initialised itself is what counts; a second time is an error."""
    code = """
import sys, jax
jax.distributed.initialize(sys.argv[1], 2, int(sys.argv[2]))
from tdd.processes import current, initialize
from tdd.validate.errors import InputError
print(current())
try:
    initialize(sys.argv[1], 2, int(sys.argv[2]))
except InputError as error:
    print(error)
"""
    address = f"127.0.0.1:{free_port()}"
    ends = launcher.all([launcher.python(code, address, index) for index in range(2)])
    for index, end in enumerate(ends):
        assert end.code == 0, end.err
        assert f"Processes(index={index}, count=2, connected=True, job='')" in end.out
        assert "call initialize once, and not beside jax.distributed's" in end.out


def test_what_goes_wrong_at_the_start(launcher):
    """Nothing to detect, nobody at the coordinator, its port taken, JAX in use: each is told from the others."""
    code = """
import socket, sys
from tdd.processes import identity
identity._CONNECT = 1
from tdd.validate.errors import InputError
def refused(*arguments):
    try:
        identity.initialize(*arguments)
    except InputError as error:
        print(error)
refused()
refused(sys.argv[1], 2, 1)
taken = socket.socket()
taken.bind(("0.0.0.0", 0))
taken.listen()
port = taken.getsockname()[1]
refused(f"127.0.0.1:{port}", 1, 0)
import jax
jax.numpy.ones(3).sum()
refused(sys.argv[1], 1, 0)
print(port)
"""
    address = f"127.0.0.1:{free_port()}"
    (end,) = launcher.all([launcher.python(code, address)])
    assert end.code == 0, end
    nothing, nobody, taken, late, port = end.out.splitlines()
    assert "give coordinator, num_processes and process_id" in nothing
    assert f"nobody listens at coordinator={address} after" in nobody
    assert "process 0 must run on that host" in nobody
    assert f"process 0 cannot listen at coordinator=127.0.0.1:{port}: another program has port {port}" in taken
    assert "initialize the processes before anything else" in late


def test_process_0_says_that_it_waits(launcher):
    code = """
import sys
from tdd.processes import identity
identity._QUIET = 0.5
identity.initialize(sys.argv[1], 2, 0)
"""
    started = launcher.python(code, f"127.0.0.1:{free_port()}")
    told = "process 0: waiting for the other processes to connect; JAX ends this one if they have not come after 300 s"
    until(lambda: told in started.text(), what=told)
    started.kill()


def test_a_job_is_told_by_its_output(tmp_path, monkeypatch):
    """Two jobs may use one store at once: their processes meet in folders of their own."""
    from tdd.audit import together
    from tdd.cli.processes import join

    found = []
    for out in ("one.csv", "two.csv"):
        monkeypatch.setattr(identity, "_given", None)
        given = {"distributed": False, "coordinator": None, "num_processes": 2, "process_id": 0}
        join(argparse.Namespace(out=str(tmp_path / out), **given))
        met = []
        monkeypatch.setattr(together, "Meeting", lambda *where, met=met, **job: met.append(job) or _Meeting())
        together.sharing(find_devices(), tmp_path / "store", "score", "store").planned({})
        found += met
    assert found == [{"job": str(tmp_path / out)} for out in ("one.csv", "two.csv")]


class _Meeting:
    def agree(self, facts):
        pass
