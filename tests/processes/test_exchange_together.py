"""`tdd exchange` and `tdd audit` in two real processes: the bits of one."""

import json

from process_launcher import free_port
from process_runs import audit

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
from process_runs import audit, exchanges
found = [exchanges(folder), dict(counts)]
print(json.dumps([*found, audit(folder + "/audit")]))
"""


def test_the_same_waves_decisions_and_bits(launcher, tmp_path, exchanges_alone):
    address = f"127.0.0.1:{free_port()}"
    started = [launcher.python(EXCHANGE, tmp_path / "runs", address, index) for index in range(2)]
    expected = audit(tmp_path / "alone")
    ends = launcher.all(started, 200)
    counts = []
    for end in ends:
        assert end.code == 0, end.err
        found, counted, decisions = json.loads(end.out.splitlines()[-1])
        assert found == exchanges_alone
        assert decisions == expected
        counts.append(counted)
    for kind in counts[0]:
        assert min(one[kind] for one in counts) >= sum(one[kind] for one in counts) // 3, "each does its part"
    run = json.loads((tmp_path / "runs" / "control" / "run.json").read_text())
    assert run["data"][0]["p_value"] == exchanges_alone["control"]["p_value"]
    items = [(tmp_path / name / "items.csv").read_bytes() for name in ("runs/audit", "alone")]
    assert items[0] == items[1]
