"""What `python -m benchmarks throughput` runs: the cases of each suite, chosen by name, one row at a time."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import jax

from benchmarks.pretrained import PACKAGE
from benchmarks.throughput import kernels, subprocess_bench, token_cases
from benchmarks.throughput.cases import Case, Disagreement, Size
from benchmarks.throughput.measure import Options, measure
from tdd.validate import InputError

__all__ = ["CASES", "STUDIES", "SUITES", "TEXTS", "Study", "Texts", "chosen", "run"]

SUITES = ("kernels", "studies", "scoring")
CASES: dict[str, tuple[Case, ...]] = {"kernels": kernels.CASES, "scoring": token_cases.CASES}
NUM_TEXTS, NUM_QUICK_TEXTS = 24, 8

_QUICK_ITEMS, _QUICK_BATCH = 10_000, 100


@dataclasses.dataclass(frozen=True)
class Study:
    """A study that is measured in a process of its own.

    Attributes:
      name: what `--only` matches.
      spec: for `benchmarks.throughput.subprocess_bench`, without the repetitions.
      repetitions: of each round on CPU, in `--quick`, and on a GPU.
      peer_repetitions: of the loop in each round.
      bars: `steady` and `first` (compilation included): how many times the loop's rate, on CPU; `gpu`, repetitions a
        second on a GPU.
      about: what is computed.
    """

    name: str
    spec: Mapping[str, Any]
    repetitions: tuple[int, int, int]
    peer_repetitions: int
    bars: Mapping[str, float]
    about: str


@dataclasses.dataclass(frozen=True)
class Texts:
    """`tdd.score` from texts to scores, in a process of its own.

    Attributes:
      name: what `--only` matches.
      model: of `benchmarks.throughput.score_texts.score_texts`.
      needs: packages.
      about: what is computed.
    """

    name: str
    model: str
    needs: tuple[str, ...]
    about: str


def _pool(size: int, flags: bool, repetitions: tuple[int, int, int], peer: int, **bars: float) -> Study:
    return Study(
        f"ptdi-resample-{size}{'' if flags else '-library'}",
        {"study": "studies.resample", "size": size, "flags": flags},
        repetitions,
        peer,
        bars,
        f"PTDI on half splits of {size:,} items, plain and scaled, five levels, "
        + ("with the settings of `tdd study`" if flags else "a library call without settings"),
    )


def _joint(name: str, flags: bool, about: str, **bars: float) -> Study:
    return Study(
        f"{name.replace('_', '-')}-10000{'' if flags else '-library'}",
        {"study": f"studies.{name}", "flags": flags},
        (10_000, 1_000, 100_000),
        200,
        bars,
        f"JECS on {about}, K = 5, n = 600, m = 1,400, three levels, "
        + ("with the settings of `tdd study`" if flags else "a library call without settings"),
    )


_SMALL, _LARGE = (2_000_000, 100_000, 100_000_000), (300_000, 20_000, 5_000_000)
STUDIES = (
    _pool(775, True, _SMALL, 1_000, steady=400, first=20, gpu=30e6),
    _pool(775, False, _SMALL, 1_000, steady=150, first=20),
    _pool(11_332, True, _LARGE, 100, steady=150),
    _pool(11_332, False, _LARGE, 100, steady=60),
    _joint("jecs_fixed", True, "subsets of a fixed pool", steady=8),
    _joint("jecs_fixed", False, "subsets of a fixed pool", steady=8),
    _joint("jecs_fresh", True, "fresh normal scores", steady=2),
    _joint("jecs_fresh", False, "fresh normal scores", steady=2),
)
TEXTS = (
    Texts("score-smollm2", "smollm2", ("torch", PACKAGE), "texts of WikiMIA's lengths under SmolLM2-135M"),
    Texts("score-gpt2", "gpt2", ("torch",), "the same under a GPT-2-small-sized model with random weights"),
)


def chosen(suite: str, only: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    """Suite -> its cases whose names begin with one of `only` (all where it is empty).

    Raises:
      InputError: an unknown suite, or names that no case begins with.
    """
    if suite not in (*SUITES, "all"):
        raise InputError(f"suite must be one of {', '.join(SUITES)} or all, got {suite!r}")
    every: dict[str, tuple[Any, ...]] = {**CASES, "studies": STUDIES, "scoring": (*CASES["scoring"], *TEXTS)}
    wanted = {name: every[name] for name in (SUITES if suite == "all" else (suite,))}
    names = [case.name for cases in wanted.values() for case in cases]
    for start in only:
        if not any(name.startswith(start) for name in names):
            raise InputError(f"only: no case begins with {start!r}; there are {', '.join(names)}")
    return {
        name: tuple(case for case in cases if not only or case.name.startswith(tuple(only)))
        for name, cases in wanted.items()
    }


def run(
    wanted: Mapping[str, Sequence[Any]], options: Options, sizes: Sequence[Size], say: Callable[[str], None]
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Suite and row of every case at every size; one that disagrees with a peer has a row that says `failed`.

    Args:
      wanted: of `chosen`.
      options: how carefully.
      sizes: in place of the cases' own; studies have none.
      say: is told what comes next.
    """
    for suite, cases in wanted.items():
        for case in cases:
            if isinstance(case, Study):
                say(case.name)
                yield suite, _study(case, options)
                continue
            if isinstance(case, Texts):
                absent = [name for name in case.needs if importlib.util.find_spec(name) is None]
                if absent:
                    say(f"{case.name}: skipped, not installed: {', '.join(absent)}")
                    continue
                say(case.name)
                yield suite, _texts(case, options)
                continue
            for size in sizes or _own_sizes(case, options.quick):
                say(f"{case.name}, {size}")
                about = {"case": case.name, "items": size.items, "batch": size.batch}
                try:
                    yield suite, measure(case, size, options)
                except Disagreement as error:
                    yield suite, {**about, "failed": str(error)}
    return


def _own_sizes(case: Case, quick: bool) -> tuple[Size, ...]:
    if not quick:
        return case.sizes
    smaller = (Size(min(size.items, _QUICK_ITEMS), size.batch and min(size.batch, _QUICK_BATCH)) for size in case.sizes)
    return tuple(dict.fromkeys(smaller))


def _study(study: Study, options: Options) -> dict[str, Any]:
    on_gpu = jax.default_backend() != "cpu"
    repetitions = study.repetitions[1 if options.quick else 2 if on_gpu else 0]
    spec = {
        **study.spec,
        "repetitions": repetitions,
        "first": min(repetitions, 100_000),
        "peer_repetitions": study.peer_repetitions,
        "rounds": options.rounds,
    }
    bars = {name: bar for name, bar in study.bars.items() if (name == "gpu") == on_gpu and not options.quick}
    try:
        return {"case": study.name, "unit": "repetitions", **subprocess_bench.in_fresh_process(spec), "bars": bars}
    except RuntimeError as error:
        return {"case": study.name, "failed": str(error)}


def _texts(case: Texts, options: Options) -> dict[str, Any]:
    count = options.texts or (NUM_QUICK_TEXTS if options.quick else NUM_TEXTS)
    about = {"case": case.name, "items": count, "batch": None}
    spec = {"study": "score_texts.score_texts", "flags": False, "model": case.model}
    spec |= {"num_texts": count, "rounds": options.rounds}
    try:
        return {"case": case.name, **subprocess_bench.in_fresh_process(spec)}
    except RuntimeError as error:
        return {**about, "failed": str(error)}
