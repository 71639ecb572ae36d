"""The frame of the reproductions: cells that are kept, folders that belong to one run, what is written."""

import dataclasses
import json
import sys
import types

import numpy as np
import pytest

from benchmarks.reproductions import REPRODUCTIONS, load, record
from benchmarks.reproductions import run as running
from benchmarks.reproductions.record import Options, Reproduction, cell, cell_seconds
from tdd.validate import InputError


def test_a_kept_cell_is_not_computed_again_and_is_the_same(tmp_path):
    calls = []

    def compute():
        calls.append(1)
        return {"x": np.float64(0.1) + np.float64(0.2), "row": (1, 2), "array": np.arange(2), "missing": np.nan}

    first = cell(tmp_path, "width 32/epochs 1", compute, {"seed": 0})
    again = cell(tmp_path, "width 32/epochs 1", compute, {"seed": 0})
    assert (
        first
        == again
        == cell(None, "any", compute)
        == {"x": 0.1 + 0.2, "row": [1, 2], "array": [0, 1], "missing": None}
    )
    assert len(calls) == 2  # the second of them without a folder
    assert list(cell_seconds(tmp_path)) == ["width 32/epochs 1"]
    assert cell_seconds(None) == cell_seconds(tmp_path / "nothing") == {}


def test_a_cell_of_other_settings_is_refused(tmp_path):
    cell(tmp_path, "one", lambda: 1, {"seed": 0, "scale": 1.0})
    with pytest.raises(InputError, match=r"run of other settings \(seed: 0 there, 1 now\); choose another folder"):
        cell(tmp_path, "one", lambda: 2, {"seed": 1, "scale": 1.0})


def test_cells_of_other_versions_are_named(tmp_path):
    """A run that goes on after an upgrade does not pass for one of the new versions alone."""
    for key in ("one", "two", "old"):
        cell(tmp_path, key, lambda: 1)
    assert "cells_of_other_versions" not in record.provenance(Options(tmp_path), {})
    place = tmp_path / "cells" / "two.json"
    kept = json.loads(place.read_text())
    place.write_text(json.dumps({**kept, "versions": kept["versions"] | {"jax": "0.1"}}))
    place = tmp_path / "cells" / "old.json"
    kept = json.loads(place.read_text())
    place.write_text(json.dumps({name: value for name, value in kept.items() if name != "versions"}))
    assert record.provenance(Options(tmp_path), {})["cells_of_other_versions"] == ["two"]


@pytest.mark.parametrize("content", ["", "[]", '{"key": "one"}', "{"])
def test_a_damaged_cell_is_named(tmp_path, content):
    cell(tmp_path, "one", lambda: 1)
    place = tmp_path / "cells" / "one.json"
    place.write_text(content)
    with pytest.raises(InputError, match=r"one\.json is damaged .*; delete it to repeat this cell"):
        cell(tmp_path, "one", lambda: 1)


def test_a_cell_that_fails_leaves_nothing(tmp_path):
    with pytest.raises(ZeroDivisionError):
        cell(tmp_path, "one", lambda: 1 / 0)
    assert cell_seconds(tmp_path) == {}
    assert cell(tmp_path, "one", lambda: 3) == 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"seed": -1}, r"seed must be a whole number from 0 to 2\^32 - 1, got -1"),
        ({"seed": 2**32}, r"seed must be a whole number from 0 to 2\^32 - 1, got 4294967296"),
        ({"scale": 0}, "scale must be a number between 0.001 and 1000, got 0"),
        ({"scale": "big"}, "scale must be a number between 0.001 and 1000, got 'big'"),
    ],
)
def test_options_out_of_range(tmp_path, options, message):
    with pytest.raises(InputError, match=message):
        Options(tmp_path, **options)


def test_an_unknown_name_lists_the_known():
    with pytest.raises(
        InputError,
        match=r"there is no reproduction 'ptdi'; did you mean 'ptdi-ktd'.*choose one of exchangeability, ptdi-ktd",
    ):
        load("ptdi")
    assert list(REPRODUCTIONS) == ["exchangeability", "ptdi-ktd", "td4eval", "jecs", "power-grid"]


@dataclasses.dataclass(frozen=True)
class Sizes:
    cells: int = 2


@pytest.fixture
def toy(monkeypatch):
    """A reproduction of two cells, the second of which can be made to fail."""
    state = {"broken": False, "computed": []}

    def square(number):
        state["computed"].append(number)
        if state["broken"] and number == 2:
            raise KeyboardInterrupt
        return {"number": number, "square": number**2 / 3, "none": None}

    def measure(run, sizes):
        rows = [run.cell(f"cell {n}", lambda n=n: square(n)) for n in range(1, sizes.cells + 1)]
        return rows, {"Squares | all": rows}, {"further": 1}

    def draw(outcome):
        from tdd.report.plots import sheet

        return sheet.sheet(outcome.title, "nothing", rows=1, columns=1)

    monkeypatch.setattr(running, "load", lambda name: Reproduction("toy", "Squares", lambda scale: Sizes(), measure))
    monkeypatch.setitem(sys.modules, "benchmarks.reproductions.figures.toy", types.SimpleNamespace(draw=draw))
    return state


def test_an_interrupted_run_gives_what_an_uninterrupted_one_does(tmp_path, toy):
    running.run_reproduction("toy", Options(tmp_path / "whole"))
    toy["broken"] = True
    with pytest.raises(KeyboardInterrupt):
        running.run_reproduction("toy", Options(tmp_path / "cut"))
    assert not (tmp_path / "cut" / "results.json").exists()
    toy["broken"], toy["computed"] = False, []
    running.run_reproduction("toy", Options(tmp_path / "cut"))
    assert toy["computed"] == [2]
    for name in ("results.csv", "tables.md", "figure.png", "run.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()
    results = [json.loads((tmp_path / run / "results.json").read_text()) for run in ("cut", "whole")]
    assert results[0]["rows"] == results[1]["rows"]
    assert (tmp_path / "cut" / "results.csv").read_text().splitlines()[:2] == [
        "number,square,none",
        "1,0.3333333333333333,",
    ]
    assert (tmp_path / "cut" / "tables.md").read_text() == (
        "Squares | all\n\n| number | square | none |\n| --- | --- | --- |\n| 1 | 0.3333 | - |\n| 2 | 1.333 | - |\n"
    )
    assert results[0]["provenance"]["settings"] == {"scale": 1.0, "seed": 0, "cells": 2}
    assert (results[0]["provenance"]["seed"], results[0]["provenance"]["further"]) == (0, 1)
    assert list(results[0]["provenance"]["cells"]) == ["cell 1", "cell 2"]


def test_a_reproduction_of_several_figures_writes_each(tmp_path, toy, monkeypatch):
    figures = sys.modules["benchmarks.reproductions.figures.toy"]
    one = figures.draw
    monkeypatch.setattr(figures, "draw", lambda outcome: {"figure": one(outcome), "figure-more": one(outcome)})
    running.run_reproduction("toy", Options(tmp_path))
    assert sorted(place.name for place in tmp_path.glob("*.png")) == ["figure-more.png", "figure.png"]


def test_a_folder_belongs_to_one_run(tmp_path, toy):
    running.run_reproduction("toy", Options(tmp_path))
    with pytest.raises(InputError, match=r"holds another run \(seed 0 there, 1 now\); choose another folder"):
        running.run_reproduction("toy", Options(tmp_path, seed=1))
    (tmp_path / "run.json").write_text("[1]")
    with pytest.raises(InputError, match="holds another run"):
        running.run_reproduction("toy", Options(tmp_path))
    (tmp_path / "run.json").unlink()
    (tmp_path / "file").write_text("")
    with pytest.raises(InputError, match="is a file; name a folder"):
        running.run_reproduction("toy", Options(tmp_path / "file"))
    with pytest.raises(InputError, match="is not empty and holds no reproduction"):
        running.run_reproduction("toy", Options(tmp_path))
    with pytest.raises(InputError, match="folder is None"):
        running.run_reproduction("toy", Options(None))
