"""`tdd exchange` and `tdd audit` in two real processes: the bits of one."""

import json

import pytest
from process_launcher import free_port
from process_runs import audit, exchanges

EXCHANGE = """
import json, sys
from tdd.processes import initialize, meeting
meeting.BEAT, meeting.SILENCE = 0.2, 20.0
folder, address, index = sys.argv[1:]
initialize(address, 2, int(index))
from tdd.exchange.prefix import PrefixProgram
from tdd.audit.passes import BatchRunner
def counted(kind, name):
    plain = getattr(kind, name)
    def method(self, *arguments):
        counts[kind.__name__] += 1
        return plain(self, *arguments)
    setattr(kind, name, method)
counts = {"PrefixProgram": 0, "BatchRunner": 0}
counted(PrefixProgram, "log_prob_sums")
counted(BatchRunner, "_dispatch")
from process_runs import exchanges
print(json.dumps([exchanges(folder), counts]))
"""

SHARDED = """
import sys
from tdd.processes import initialize
folder, address, index = sys.argv[1:]
initialize(address, 2, int(index), survive=False)
import json
from process_runs import exchanges
print(json.dumps(exchanges(folder, shard_params=True)))
"""

AUDIT = """
import sys
from tdd.processes import initialize
folder, index = sys.argv[1:]
initialize(num_processes=2, process_id=int(index), connect=False)
from process_runs import audit
print(audit(folder))
"""


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return exchanges(tmp_path_factory.mktemp("alone"))


def test_the_same_waves_and_bits(launcher, tmp_path, alone):
    address = f"127.0.0.1:{free_port()}"
    ends = launcher.all([launcher.python(EXCHANGE, tmp_path / "runs", address, index) for index in range(2)], 200)
    counts = []
    for end in ends:
        assert end.code == 0, end.err
        found, counted = json.loads(end.out.splitlines()[-1])
        assert found == alone
        counts.append(counted)
    for kind in counts[0]:
        assert min(one[kind] for one in counts) >= sum(one[kind] for one in counts) // 3, "each does its part"
    run = json.loads((tmp_path / "runs" / "control" / "run.json").read_text())
    assert run["data"][0]["p_value"] == alone["control"]["p_value"]


def test_parameters_over_processes(launcher, tmp_path, alone):
    address = f"127.0.0.1:{free_port()}"
    ends = launcher.all([launcher.python(SHARDED, tmp_path / "runs", address, index) for index in range(2)], 200)
    for end in ends:
        assert end.code == 0, end.err
        assert json.loads(end.out.splitlines()[-1]) == alone


def test_an_audit(launcher, tmp_path):
    ends = launcher.all([launcher.python(AUDIT, tmp_path / "run", index) for index in range(2)])
    expected = audit(tmp_path / "alone")
    for end in ends:
        assert (end.code, end.out.split()) == (0, [expected]), end.err
    items = [(tmp_path / name / "items.csv").read_bytes() for name in ("run", "alone")]
    assert items[0] == items[1]
