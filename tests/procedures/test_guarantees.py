"""The table of guarantees: nothing that promises anything is missing from it."""

import importlib
import inspect
import pkgutil
import re

import pytest

import tdd
import tdd.probe
from tdd.procedures.procedure import all_differences, all_guarantees
from tdd.records import Guarantee

ROWS = [row for row in all_guarantees() if row.call.startswith("tdd.")]
PROMISE = re.compile(r"^ *\**Guarantees?\**\b", re.MULTILINE)
PUBLIC = {
    **{f"tdd.{name}": getattr(tdd, name) for name in tdd.__all__ if name not in ("probe", "study")},
    **{f"tdd.probe.{name}": getattr(tdd.probe, name) for name in tdd.probe.__all__ if not hasattr(tdd, name)},
}


@pytest.mark.parametrize("name", [name for name, it in PUBLIC.items() if PROMISE.search(inspect.getdoc(it) or "")])
def test_every_public_name_that_promises_is_listed(name):
    assert name in {row.call for row in ROWS}


def test_the_search_finds_promises_and_nothing_else():
    def without():
        """Loads a file. It gives no guarantee."""

    assert not PROMISE.search(inspect.getdoc(without))
    assert PROMISE.search(inspect.getdoc(tdd.ptdi))
    assert PROMISE.search(inspect.getdoc(tdd.Probe))


def records():
    """Every `Guarantee` that a module of the project holds, alone or in a dictionary."""
    for module in pkgutil.walk_packages(tdd.__path__, "tdd."):
        if not module.name.startswith(("tdd.procedures.", "tdd.probe.", "tdd.audit.", "tdd.exchange.")):
            continue
        for name, value in vars(importlib.import_module(module.name)).items():
            held = value.items() if isinstance(value, dict) else [("", value)]
            yield from ((f"{module.name}.{name}[{key}]", one) for key, one in held if isinstance(one, Guarantee))


def test_every_record_is_listed():
    listed = {row.guarantee for row in ROWS}
    # what says that nothing is promised need not be listed
    missing = [where for where, one in records() if one not in listed and one.kind != "none"]
    assert not missing


def test_rows_are_whole():
    assert len({(row.call, row.option) for row in ROWS}) == len(ROWS)
    for row in ROWS:
        assert row.guarantee.controls
        assert row.guarantee.source
        assert row.guarantee.assumes or row.guarantee.kind == "none"
        name, _, attribute = row.call.rpartition(".")
        assert hasattr(importlib.import_module(name), attribute)


def is_told(difference):
    """Whether the docstring of the function names the place."""
    name, _, attribute = difference.call.rpartition(".")
    told = inspect.getdoc(getattr(importlib.import_module(name), attribute)) or ""
    return difference.place in " ".join(told.split()).replace("Eq.", "eq.")


@pytest.mark.parametrize("difference", all_differences(), ids=lambda it: f"{it.call}, {it.place}")
def test_a_docstring_names_each_place_where_it_differs_from_its_paper(difference):
    assert is_told(difference)
    assert all(difference)
    # twins: another place, and another function that is there
    assert not is_told(difference._replace(place="eq. 99"))
    assert not is_told(difference._replace(call="tdd.holm"))


def test_every_docstring_that_differs_has_its_records():
    calls = {it.call for it in all_differences()}
    told = {name for name, it in PUBLIC.items() if "Differs from the paper" in (inspect.getdoc(it) or "")}
    assert told == calls & set(PUBLIC)
    assert {it.paper for it in all_differences()} == {"PTDI", "KTD", "TD4Eval", "JECS", "Exchangeability"}
