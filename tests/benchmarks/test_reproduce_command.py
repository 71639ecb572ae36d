"""`python -m benchmarks reproduce`: what it lists, refuses and prints."""

import json

from benchmarks.__main__ import main
from benchmarks.reproductions import REPRODUCTIONS
from benchmarks.reproductions.record import Outcome


def test_reproductions_are_listed(capsys):
    assert main(["reproduce"]) == 0
    printed = capsys.readouterr().out
    assert all(name in printed for name in REPRODUCTIONS)
    assert main(["reproduce", "--json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == list(REPRODUCTIONS)


def test_a_reproduction_needs_a_known_name_and_a_folder(capsys):
    assert main(["reproduce", "exchangability"]) == 2
    assert "did you mean 'exchangeability'?" in capsys.readouterr().err
    assert main(["reproduce", "exchangeability"]) == 2
    assert "--out is needed" in capsys.readouterr().err


def test_a_reproduction_is_carried_out_with_the_options_given(capsys, tmp_path, monkeypatch):
    given = []

    def carry_out(name, options):
        given.append((name, options.seed, options.scale, options.progress, options.folder))
        options.folder.mkdir(exist_ok=True)
        tables = {"a table": ({"set": "x1", "p": 0.0123456, "n": 1200, "none": None},)}
        return Outcome(name, "A title", ({"p": 0.5},), tables, 12.3, {})

    monkeypatch.setattr("benchmarks.reproductions.run.run_reproduction", carry_out)
    out = tmp_path / "out"
    assert main(["reproduce", "jecs", "--out", str(out), "--seed", "4", "--scale", "0.5", "-q"]) == 0
    assert given == [("jecs", 4, 0.5, False, out)]
    printed = capsys.readouterr().out
    for word in ("a table", "x1", "0.01235", "1,200", "A title", "12 s", str(out)):
        assert word in printed
    assert main(["reproduce", "jecs", "--out", str(out), "-q", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["rows"] == [{"p": 0.5}]
