"""Shared fixtures: optional resources and the marks that need them."""

import importlib.util
import itertools
import os
import pathlib

import pytest

os.environ.setdefault("TDD_COMPILATION_CACHE", "0")  # tests leave nothing in the user's folders

SHARED_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def shared_data():
    """Folder with the labelled data beside the project."""
    return SHARED_DATA


def pytest_collection_modifyitems(config, items):
    """Skip what this machine cannot run, and say why."""
    import jax

    absent = {
        "shared_data": None if SHARED_DATA.is_dir() else "no ../shared/data beside the project",
        "torch": None if importlib.util.find_spec("torch") else "torch is not installed",
        "gpu": None if jax.default_backend() != "cpu" else "no accelerator",
    }
    for item in items:
        for mark, reason in absent.items():
            if reason and item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


_finished = itertools.count(1)


def pytest_runtest_teardown(item):
    """Compiled programs of thousands of tests would fill the memory: forget them now and then."""
    import jax

    if next(_finished) % 200 == 0:
        jax.clear_caches()


@pytest.fixture(scope="session")
def false_alarm_level(request):
    """Level of one guarantee check: the suite's budget over the number of checks collected."""
    import guarantees

    marks = [item.get_closest_marker("guarantee") for item in request.session.items]
    checks = sum(mark.kwargs.get("checks", 1) for mark in marks if mark)
    return guarantees.SUITE_FALSE_ALARM / max(checks, 1)
