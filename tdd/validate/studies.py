"""Checks of Monte Carlo studies: designs, methods, grids, options of a run, folders of results."""

from __future__ import annotations

import math
import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jax
import numpy as np

from tdd.kernels import lattice
from tdd.validate.arrays import check_level, check_seed
from tdd.validate.errors import InputError

__all__ = [
    "NULLS",
    "as_devices",
    "as_grid",
    "as_levels",
    "as_number",
    "as_pool",
    "check_components",
    "check_copula",
    "check_counts",
    "check_design",
    "check_fingerprint",
    "check_fits",
    "check_method_names",
    "check_names",
    "check_numbers",
    "check_pool_shares",
    "check_pool_sizes",
    "check_result_folder",
    "check_run",
    "check_sample",
    "check_selected",
    "check_signal",
    "folder_gone",
    "is_known",
]

NULLS = ("nonmember", "member")
_MOST_REPETITIONS = 2**31 - 1


def is_known(value: Any) -> bool:
    """Whether a field holds values, rather than a tracer or a stand-in for a leaf of a pytree."""
    if isinstance(value, (list, tuple)):
        return all(is_known(item) for item in value)
    return isinstance(value, (bool, int, float, str, np.ndarray, np.generic))


def check_counts(design: Any, *names: str) -> None:
    """Sizes of a design: whole numbers of at least 1."""
    for name in names:
        value = getattr(design, name)
        if isinstance(value, bool) or not isinstance(value, (int, np.integer)) or value < 1:
            raise InputError(
                f"{type(design).__name__}: {name} must be a whole number of at least 1, got {value!r}; sizes are "
                "static, a change of them compiles anew"
            )


def check_numbers(design: Any, **ranges: tuple[float | None, float | None]) -> None:
    """Numbers of a design within closed ranges; None is no limit, and None as a value is left alone."""
    for name, (low, high) in ranges.items():
        value = getattr(design, name)
        if value is None or not is_known(value) or np.ndim(value) > 0:
            continue
        _check_number(f"{type(design).__name__}: {name}", value, low, high)


def _check_number(name: str, value: Any, low: float | None, high: float | None) -> None:
    number = math.nan if isinstance(value, (bool, str)) else float(value)
    if math.isfinite(number) and (low is None or number >= low) and (high is None or number <= high):
        return
    span = {
        (True, True): "",
        (False, True): f" of at least {low}",
        (True, False): f" of at most {high}",
        (False, False): f" from {low} to {high}",
    }[low is None, high is None]
    raise InputError(f"{name} must be a finite number{span}, got {value!r}")


def check_names(design: Any, **choices: Sequence[str]) -> None:
    """Names out of fixed sets."""
    for name, allowed in choices.items():
        value = getattr(design, name)
        if value not in allowed:
            raise InputError(
                f"{type(design).__name__}: {name} must be one of {', '.join(map(repr, allowed))}; got {value!r}"
            )


def check_components(design: Any, *names: str) -> None:
    """Components of a normal mixture: rows (weight, mean, sd)."""
    for name in names:
        value = getattr(design, name)
        if not is_known(value):
            continue
        where = f"{type(design).__name__}: {name}"
        try:
            rows = np.asarray(value, float)
        except (TypeError, ValueError) as error:
            raise InputError(f"{where} must be rows (weight, mean, sd): {error}") from error
        if rows.ndim != 2 or rows.shape[1] != 3 or not len(rows):
            raise InputError(f"{where} must be rows (weight, mean, sd), at least one; got shape {rows.shape}")
        if not np.isfinite(rows).all() or (rows[:, 0] < 0).any() or rows[:, 0].sum() <= 0 or (rows[:, 2] < 0).any():
            raise InputError(f"{where} needs finite means, weights and sds that are not negative; got {value!r}")


def check_signal(signal: Any, num_detectors: int) -> None:
    """One shift, or one a detector."""
    if not is_known(signal):
        return
    found = np.asarray(signal, float)
    if found.shape not in ((), (num_detectors,)) or not np.isfinite(found).all():
        raise InputError(
            f"CorrelatedDetectors: signal must be one finite number or {num_detectors}, one a detector; got {signal!r}"
        )


def check_copula(degrees: Any, law: str) -> None:
    """Student's copula has Student's margins here."""
    if degrees is None:
        return
    if law != "normal":
        raise InputError(
            f'CorrelatedDetectors: with degrees the law must be "normal" (the margins are Student\'s), got {law!r}'
        )
    if is_known(degrees):
        _check_number("CorrelatedDetectors: degrees", degrees, 0.1, None)


def as_pool(scores: Any, is_member: Any) -> tuple[np.ndarray, np.ndarray]:
    """Scores of a labelled pool in JAX's float type, distinct where they were, and labels."""
    try:
        values = np.asarray(scores, np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"Pool: scores must be numbers, [items] or [detectors, items]: {error}") from error
    if values.ndim not in (1, 2) or values.shape[-1] < 2:
        raise InputError(
            f"Pool: scores must be [items] or [detectors, items] with at least two items, got shape {values.shape}"
        )
    bad = int((~np.isfinite(values)).any(axis=tuple(range(values.ndim - 1))).sum())
    if bad:
        raise InputError(f"Pool: {bad} of {values.shape[-1]} items have a missing or infinite score; leave them out")
    labels = np.asarray(is_member)
    if labels.shape != values.shape[-1:]:
        raise InputError(
            f"Pool: is_member must be one label an item, shape {values.shape[-1:]}; got shape {labels.shape}"
        )
    if labels.dtype != np.bool_ and not np.isin(labels, (0, 1)).all():
        raise InputError(f"Pool: is_member must hold True and False (or 1 and 0), got {np.unique(labels)[:5].tolist()}")
    labels = labels.astype(bool)
    if labels.all() or not labels.any():
        raise InputError(
            f"Pool: all {labels.size} items are {'members' if labels[0] else 'non-members'}; both are needed"
        )
    rows = np.atleast_2d(values)
    narrow = values.astype(np.float32)
    if any(len(np.unique(a)) != len(np.unique(b)) for a, b in zip(np.atleast_2d(narrow), rows, strict=True)):
        raise InputError(
            "Pool: some scores differ by less than single precision tells apart; pass their ranks "
            "(scipy.stats.rankdata, one detector at a time), which every method that compares scores decides alike"
        )
    return narrow, labels


def check_pool_shares(test_members: Any, calibration_ratio: Any) -> None:
    """Options of a pool."""
    if test_members is not None:
        _check_number("Pool: test_members", test_members, 0, 1)
    if calibration_ratio is not None:
        _check_number("Pool: calibration_ratio", calibration_ratio, 0, None)


def check_pool_sizes(sizes: tuple[int, int, int], test_members: Any, calibration_ratio: Any) -> None:
    """A pool that can give what is asked of it."""
    if sizes[0] == 0:
        raise InputError(
            f"Pool: no draw has test_members={test_members!r} and calibration_ratio={calibration_ratio!r}: the pool "
            "has too few items; ask for less extreme values"
        )


def check_design(design: Any) -> None:
    """A value that draws, not a class."""
    if isinstance(design, type) or not callable(getattr(design, "draw", None)):
        words = (
            f"the class {design.__name__}: make one, {design.__name__}(...)"
            if isinstance(design, type)
            else repr(design)
        )
        raise InputError(f"design must be a value with a method draw(key) -> tdd.study.Sample, got {words}")


def as_grid(design: Any, grid: Mapping[str, Iterable[Any]] | None) -> list[dict[str, Any]] | None:
    """Every combination of the values of a grid, the last field running fastest; None without a grid."""
    if grid is None:
        return None
    known = tuple(getattr(design, "__dataclass_fields__", {}))
    points: list[dict[str, Any]] = [{}]
    for name, values in dict(grid).items():
        if name not in known:
            raise InputError(
                f"grid: {type(design).__name__} has no field {name!r}; its fields are {', '.join(known) or 'none'}"
            )
        if isinstance(values, (str, bytes)) or not isinstance(values, Iterable):
            raise InputError(f"grid[{name!r}] must be a sequence of values, got {values!r}")
        chosen = list(values)
        if not chosen:
            raise InputError(f"grid[{name!r}] is empty; give at least one value")
        points = [{**point, name: value} for point in points for value in chosen]
    if points == [{}]:
        raise InputError("grid is empty; leave it out, or give it fields of the design with their values")
    return points


def check_run(repetitions: Any, seed: Any, target_se: Any) -> None:
    """Options of a run."""
    if isinstance(repetitions, bool) or not isinstance(repetitions, (int, np.integer)):
        raise InputError(f"repetitions must be a whole number, got {repetitions!r}")
    if not 1 <= repetitions <= _MOST_REPETITIONS:
        raise InputError(f"repetitions must lie from 1 to {_MOST_REPETITIONS:,}, got {repetitions!r}")
    check_seed(seed)
    if target_se is not None and not (isinstance(target_se, (int, float)) and 0 < target_se < 1):
        raise InputError(
            f"target_se must be a number between 0 and 1, or None to run all repetitions; got {target_se!r}"
        )


def as_devices(devices: Any) -> tuple[Any, ...]:
    """Devices to run on; None is all of this process."""
    if devices is None:
        return tuple(jax.local_devices())
    found = tuple(devices) if isinstance(devices, Iterable) else ()
    if not found or not all(isinstance(device, jax.Device) for device in found):
        raise InputError(f"devices must be some of jax.devices(), for example jax.devices()[:1]; got {devices!r}")
    own = jax.process_index(found[0].platform)
    distant = [str(device) for device in found if device.process_index != own]
    if distant:
        raise InputError(
            f"devices must be of this process, number {own}: some of jax.local_devices(); got "
            f"{', '.join(distant[:3])}. For several machines give each a shard=(i, n) of the study"
        )
    return found


def check_sample(name: str, sample: Any, kind: Any) -> None:
    """What a design draws has the fields and shapes that the runner needs."""
    if not isinstance(sample, kind):
        raise InputError(f"{name}.draw must return a tdd.study.Sample, got {type(sample).__name__}")
    calibration, scores = np.shape(sample.calibration), np.shape(sample.scores)
    if len(scores) not in (1, 2) or len(calibration) != len(scores) or calibration[:-1] != scores[:-1]:
        raise InputError(
            f"{name}.draw: calibration and scores must be [n] and [m], or [K, n] and [K, m]; got {calibration} and "
            f"{scores}"
        )
    for field, shape in (("target", scores[-1:]), ("mask", scores[-1:]), ("calibration_mask", calibration[-1:])):
        value: Any = getattr(sample, field)
        if value is None and field != "target":
            continue
        found, kind = getattr(value, "shape", None), getattr(value, "dtype", None)
        if found != shape or kind != np.bool_:
            raise InputError(f"{name}.draw: {field} must be bool of shape {shape}, got {kind} of shape {found}")
    if scores[-1] >= 2**24:
        raise InputError(f"{name} draws {scores[-1]:,} test items; the runner counts up to 2^24 - 1")


def check_fits(
    method: str, design: str, *, null: str | None, needs_null: str | None, rows: int | None, panel: bool | None,
    missing: Sequence[str], unread: Sequence[str],
) -> None:  # fmt: skip
    """A method that can be run on what a design draws, and for which it means something."""
    if panel is True and rows is None:
        raise InputError(
            f"{method} needs the scores of several detectors or models, [K, n] and [K, m]; {design} draws one score "
            "an item. CorrelatedDetectors and JointLabels draw several"
        )
    if panel is False and rows is not None:
        raise InputError(
            f"{method} needs one score an item; {design} draws {rows} rows of scores. Use td4eval, jmcs or jecs, or a "
            "function of your own that combines them"
        )
    if missing:
        raise InputError(f"{method} needs extra[{missing[0]!r}], which {design} does not draw")
    if needs_null is not None and null is not None and null != needs_null:
        raise InputError(
            f'{method} tests the null "{needs_null}" and calibrates on known {needs_null}s; {design} has '
            f"null={null!r}. Set null={needs_null!r} in the design where it can be, or choose another method"
        )
    if unread:
        raise InputError(
            f"{method} does not take {unread[0]!r}, but {design} masks items with it: without it the function would "
            f"count items that are not there. Add a keyword argument {unread[0]} (bool, True = real item)"
        )


def check_selected(method: str, selected: Any, num_tests: int) -> None:
    """What a method returns is one decision an item."""
    shape, dtype = getattr(selected, "shape", None), getattr(selected, "dtype", None)
    if shape is None or dtype is None:
        raise InputError(
            f"method {method!r} must return an array of {num_tests} decisions (bool), got {type(selected).__name__}; "
            "of a tdd selection return its field .selected, of a step-up procedure .reject"
        )
    if shape != (num_tests,):
        raise InputError(f"method {method!r} must return one decision a test item, shape ({num_tests},); got {shape}")
    if dtype != np.bool_:
        raise InputError(
            f"method {method!r} must return bool, True where an item is selected; got {dtype}. Compare scores or "
            "p-values with a threshold"
        )


def check_result_folder(folder: pathlib.Path) -> None:
    """A folder with a finished study."""
    lacking = [name for name in ("study.json", "results.parquet") if not (folder / name).is_file()]
    if lacking:
        raise InputError(f"{folder} holds no finished study: {' and '.join(lacking)} missing")


def bad_result(folder: pathlib.Path, error: Any) -> InputError:
    """The files of a finished study cannot be read."""
    return InputError(f"{folder} holds a damaged study ({error}); remove the folder and run the same command again")


def bad_fingerprint(place: pathlib.Path, error: Any) -> InputError:
    """What a study is of cannot be read."""
    return InputError(
        f"{place} is damaged ({error}): of which study the totals beside it are cannot be told; delete {place.parent} "
        "and run the same command again"
    )


def check_fingerprint(folder: pathlib.Path, own: Mapping[str, Any], there: Any) -> None:
    """A folder is continued by the study that began it, and by no other."""
    if not isinstance(there, Mapping):
        raise bad_fingerprint(folder / "totals" / "fingerprint.json", "no object of JSON")
    names = [name for name in {**own, **there} if own.get(name) != there.get(name)]
    if not names:
        return
    shown = "; ".join(f"{name}: {_short(there.get(name))} there, {_short(own.get(name))} now" for name in names[:3])
    raise InputError(
        f"{folder} holds another study ({shown}). A run continues where its own left off; choose another folder, or "
        "delete this one to start anew"
    )


def folder_gone(folder: pathlib.Path) -> InputError:
    """The folder of a running study was removed."""
    return InputError(f"{folder} was removed while the study ran; run the same command again")


def _short(value: Any) -> str:
    words = repr(value)
    return words if len(words) <= 60 else f"{words[:57]}..."


def check_method_names(names: Sequence[str]) -> None:
    """At least one method, and no two of one name."""
    if not names:
        raise InputError("methods is empty; name at least one, for example 'ptdi/storey'")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two methods are called {twice[0]!r}; give a dict from labels to methods")


def as_number(level: Any) -> float:
    """A level in double precision; 0.7 in single precision is 7/10 too."""
    kind = getattr(level, "dtype", None)
    if kind is None or kind == np.float64:
        return float(level)
    exact = lattice.as_level(np.asarray(level)[()])
    return int(exact.numerator) / int(exact.denominator)


def as_levels(alphas: Any) -> tuple[float, ...]:
    """Distinct levels, as numbers."""
    given = [alphas] if np.ndim(alphas) == 0 else list(alphas)
    if not given:
        raise InputError("alphas is empty; give at least one level, for example 0.1")
    for i, alpha in enumerate(given):
        check_level(alpha, f"alphas[{i}]")
    levels = tuple(as_number(alpha) for alpha in given)
    if len(set(levels)) < len(levels):
        raise InputError(f"alphas holds a level twice: {levels}")
    return levels
