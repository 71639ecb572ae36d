"""Tiers, a compilation cache for the session, shared fixtures, and the marks that need what a machine may lack."""

import gc
import importlib.metadata
import importlib.util
import os
import pathlib
import types

import child_process
import hypothesis
import pytest

os.environ.setdefault("TDD_COMPILATION_CACHE", "0")  # tests leave nothing in the user's folders
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # workers share an accelerator
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # of workers and child processes: two threads of small products wait
os.environ.pop("COLUMNS", None)  # pytest-xdist passes its own to the workers; commands print as wide as it says

hypothesis.settings.register_profile("fixed", derandomize=True, deadline=None)  # seeds are fixed: no flake by chance
hypothesis.settings.load_profile("fixed")

SLOW = ("repetitions", "processes", "training", "packaging", "parity", "data", "eager", "bits", "grid", "long")
"""Reasons for the slow tier; tests/README.md has the rule."""

SLOW_MARKS = {"torch": "parity", "shared_data": "data"}
SLOW_FIXTURES = {"launcher": "processes"}

NO_PARAMETERS = types.SimpleNamespace(params={})

SHARED_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_addoption(parser):
    parser.addoption(
        "--compilation", choices=("quick", "full"), default="quick", help="few of XLA's passes, or all that users have"
    )


def pytest_configure(config):
    """Before JAX is imported: quick compilation, and one folder of compiled programs for workers and child processes.

    The user's XLA_FLAGS stand last and win. Flags of quick compilation that the installed XLA does not know are left
    out.
    """
    if hasattr(config, "workerinput"):
        return  # the environment is that of the controller
    if config.getoption("compilation") == "quick":
        given = os.environ.get("XLA_FLAGS", "")
        os.environ["XLA_FLAGS"] = " ".join([*known_flags(config, *child_process.QUICK_COMPILATION), given]).strip()
    if hasattr(config, "cache"):
        os.environ.setdefault("JAX_COMPILATION_CACHE_DIR", str(config.cache.mkdir("xla")))
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        os.environ.setdefault("JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES", "-1")


def known_flags(config, *flags):
    """Those that the installed XLA knows; found once for each version of it."""
    key = f"tdd/flags of jaxlib {importlib.metadata.version('jaxlib')}"
    found = config.cache.get(key, {}) if hasattr(config, "cache") else {}
    if found.get("asked") != [*flags]:
        found = {"asked": [*flags], "known": [*child_process.known(*flags)]}
        if hasattr(config, "cache"):
            config.cache.set(key, found)
    return found["known"]


@pytest.fixture(scope="session")
def shared_data():
    """Folder with the labelled data beside the project."""
    return SHARED_DATA


def beyond_the_first(items):
    """Items that repeat their test with parameters each of whose values another item of the test has shown already."""
    shown = {}
    for item in sorted((item for item in items if not item.get_closest_marker("slow")), key=lambda item: item.nodeid):
        values = {(name, repr(value)) for name, value in getattr(item, "callspec", NO_PARAMETERS).params.items()}
        seen = shown.setdefault(item.nodeid.partition("[")[0], set())
        if values and values <= seen:
            yield item
        seen |= values


def repeated(items):
    """Checks that another includes: 10^5 repetitions begin with 2,000, and a twin is drawn until it is convicted."""
    for item in items:
        budget = getattr(item, "callspec", NO_PARAMETERS).params.get("budget")
        for mark in item.iter_markers("guarantee"):
            twin = mark.kwargs.get("checks") == 0
            slow = {mark.args for mark in item.iter_markers("slow")}
            if slow == {("repetitions",)} if twin and budget == "long" else slow and budget == "short" and not twin:
                yield item


@pytest.hookimpl(tryfirst=True)  # before tests are left out by their marks
def pytest_collection_modifyitems(config, items):
    """Mark what is slow by the rule, and skip what this machine cannot run."""
    import jax

    quick = config.getoption("compilation") == "quick"
    absent = {
        "shared_data": None if SHARED_DATA.is_dir() else "no ../shared/data beside the project",
        "torch": None if importlib.util.find_spec("torch") else "torch is not installed",
        "gpu": None if jax.default_backend() != "cpu" else "no accelerator",
    }
    for item in items:
        implied = [why for mark, why in SLOW_MARKS.items() if item.get_closest_marker(mark)]
        implied += [why for name, why in SLOW_FIXTURES.items() if name in getattr(item, "fixturenames", ())]
        for why in implied:
            item.add_marker(pytest.mark.slow(why))
    for item in beyond_the_first(items):
        item.add_marker(pytest.mark.slow("grid"))
    left_out = {id(item) for item in repeated(items)}
    items[:] = [item for item in items if id(item) not in left_out]
    for item in items:
        for mark in item.iter_markers("slow"):
            if mark.args not in {(why,) for why in SLOW}:
                raise pytest.UsageError(f"{item.nodeid}: slow{mark.args}; the reasons are {', '.join(SLOW)}")
            if quick and mark.args == ("bits",):
                item.add_marker(pytest.mark.skip(reason="needs --compilation full"))
        for mark, reason in absent.items():
            if reason and item.get_closest_marker(mark):
                item.add_marker(pytest.mark.skip(reason=reason))


def pytest_collection_finish(session):
    """What thousands of collected tests are made of need not be looked at again by the garbage collector."""
    gc.freeze()


_since = 0


def pytest_runtest_teardown(item, nextitem):
    """Compiled programs of thousands of tests would fill the memory: forget them now and then, between files."""
    import jax

    global _since
    _since += 1
    if _since >= 200 and (nextitem is None or nextitem.path != item.path):
        jax.clear_caches()
        _since = 0


@pytest.fixture(scope="session")
def false_alarm_level(request):
    """Level of one guarantee check: the suite's budget over the number of checks collected."""
    import guarantees

    marks = [item.get_closest_marker("guarantee") for item in request.session.items]
    checks = sum(mark.kwargs.get("checks", 1) for mark in marks if mark)
    return guarantees.SUITE_FALSE_ALARM / max(checks, 1)


@pytest.fixture
def strict_training():
    """JAX's settings by which a training finds its own errors, all at once."""
    import training_settings

    with training_settings.strict():
        yield


def pytest_generate_tests(metafunc):
    """A guarantee has 2,000 repetitions and, in a test of its own, 10^5; where both are slow, the second is enough."""
    if "budget" in metafunc.fixturenames:
        short = () if metafunc.definition.get_closest_marker("slow") else ("short",)
        long = pytest.param("long", marks=pytest.mark.slow("repetitions"))
        metafunc.parametrize("budget", [*short, long], indirect=True)


@pytest.fixture
def budget(request, false_alarm_level):
    """What one guarantee check may use: its level, and 2,000 repetitions or 10^5."""
    import guarantees

    return guarantees.Budget(false_alarm_level, guarantees.SHORT if request.param == "short" else guarantees.LONG)
