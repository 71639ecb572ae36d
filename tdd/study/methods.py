"""Methods as values: the procedures of `tdd` by name, and functions of users."""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp

from tdd.procedures import exchangeability, jecs, ktd, online, p_values, ptdi, td4eval, testing
from tdd.procedures.jecs import JECS, JMCS
from tdd.procedures.ktd import KTD
from tdd.procedures.procedure import Procedure, as_procedure, known_procedures
from tdd.procedures.td4eval import TD4Eval
from tdd.procedures.values import PTDI
from tdd.study import baselines
from tdd.study.designs import Sample
from tdd.validate import InputError

_P_VALUES: dict[str, Callable[..., Any]] = {
    name: getattr(testing, name)
    for name in (
        "bh", "storey_bh", "by", "holm", "hochberg", "hommel", "bonferroni", "sidak", "holm_sidak", "two_stage_bh",
    )
} | {name: getattr(online, name) for name in ("lond", "lord_plus_plus", "saffron")}  # fmt: skip
_VALUES: dict[str, tuple[type[Procedure], str, tuple[str, ...]]] = {
    "ptdi": (PTDI, "proportion", ptdi.PROPORTIONS),
    "td4eval": (TD4Eval, "combine", td4eval.COMBINATIONS),
    "ktd": (KTD, "rule", ktd.RULES),
    "jmcs": (JMCS, "rule", jecs.RULES),
}
_FAMILIES: dict[str, tuple[Callable[..., Any], tuple[str, ...]]] = {
    "exchangeability": (exchangeability.exchangeability, exchangeability.TESTS),
    "threshold": (baselines.threshold, baselines.RULES),
}
_ALONE: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(baselines.COMPOSITIONS, baselines.selected_by_each),
    **_P_VALUES,
}
NAMES = (
    *(f"{family}/{name}" for family, (*_, names) in (_VALUES | _FAMILIES).items() for name in names),
    "jecs",
    *_ALONE,
)
_GIVEN = {"calibration", "scores", "alpha", "mask", "calibration_mask", "key", "p_values", "canonical", "shuffled"}
_GIVEN |= {"validation", "is_target", "validation_mask", "rule", "test", "null"}
_NUM_DRAWS = 999


@dataclasses.dataclass(frozen=True)
class StudyMethod:
    """One decision rule of a study. Make it with `method`.

    Attributes:
      name: name in the results.
      select: `(key, sample, alpha) -> [m] bool`, pure.
      null: the null it tests, if it tests one only.
      panel: True if it needs several rows of scores, False if one, None if it takes both.
      needs: names in `Sample.extra` that it reads.
      masks: names of the masks that it reads.
      exact_levels: whether `alpha` comes as a `tdd.kernels.lattice.Level` with traced digits (one trace serves all
        levels, decisions are exact), or as a plain number (one trace a level).
      directed: whether `select` takes the `null` of the design as a keyword argument.
    """

    name: str
    select: Callable[..., jax.Array]
    null: str | None = None
    panel: bool | None = None
    needs: tuple[str, ...] = ()
    masks: tuple[str, ...] = ("mask", "calibration_mask")
    exact_levels: bool = False
    directed: bool = False


def method(
    rule: str | Procedure | Callable[..., Any] | StudyMethod, *, label: str | None = None, **options: Any
) -> StudyMethod:
    """A procedure of `tdd` by its name, or a function, as a method of a study.

    Names: "ptdi/<proportion>", "td4eval/<combine>", "ktd/<rule>", "jmcs/<rule>", "jecs", "exchangeability/<test>"
    (selected if p <= alpha; `num_draws` is 999 unless given), "union" and "intersection" of one Storey-BH a model
    (BH with `step="bh"`),
    "threshold/<rule>" (`tdd.study.baselines`: no guarantee), and a procedure on p-values ("bh", "storey_bh", "by",
    "holm", "lond", ...), which decides on `extra["p_values"]` where the design draws them, and on conformal p-values
    otherwise. Of several rows of scores `detector` names the one that a threshold or p-values are of. Each decides as
    `tdd.<name>` does.

    Args:
      rule: a name out of `NAMES`; a `tdd.Procedure`, or one as text ("ptdi:eta=0.1"); or a function
        `(key, scores, calibration) -> selected`, [m] bool, in JAX. Of the names `alpha` (a plain number), `mask`,
        `calibration_mask` and `extra` it is given those that it has as parameters; without `alpha` it decides alike at
        every level.
      label: name in the results (default: the name with its options).
      **options: options of the procedure, as in `tdd.<name>`, or further keyword arguments of a function.

    Raises:
      InputError: unknown name, options that the procedure does not have or that the sample gives.

    >>> method("ptdi/subtraction", eta=0.1).name
    'ptdi/subtraction, eta=0.1'
    """
    if isinstance(rule, StudyMethod):
        if options:
            raise InputError(f"{rule.name} is a method already; its options cannot be changed, got {options!r}")
        return rule if label is None else dataclasses.replace(rule, name=label)
    if isinstance(rule, str) and rule not in NAMES and rule.partition(":")[0] in known_procedures():
        rule, options = as_procedure(rule, **options), {}
    if isinstance(rule, Procedure):
        if options:
            raise InputError(f"{rule!r} has its options already, got {options!r} besides")
        kind, converted = type(rule), _from_procedure(rule)
        names = [
            field.name for field in dataclasses.fields(kind) if f"/{getattr(rule, field.name)}" not in converted.name
        ]
        options = {name: value for name in names if (value := getattr(rule, name)) != getattr(kind, name, value)}
    elif isinstance(rule, str):
        converted = _from_name(rule, options)
    elif callable(rule):
        converted = _from_function(rule, options)
    else:
        raise InputError(f"a method must be a name or a function (key, scores, calibration) -> selected, got {rule!r}")
    suffix = "".join(f", {name}={value!r}" for name, value in options.items())
    return dataclasses.replace(converted, name=f"{converted.name}{suffix}" if label is None else label)


@dataclasses.dataclass(frozen=True)
class _Decides:
    """A procedure; equal where it and its options are."""

    procedure: Procedure

    def __call__(self, key: jax.Array, sample: Sample, alpha: Any) -> jax.Array:
        return traced(self.procedure.label, sample, lambda: self.procedure.select(sample.evidence, alpha, key).selected)


@dataclasses.dataclass(frozen=True)
class _Named:
    """A procedure on p-values, a test or a baseline of `tdd` with its options; equal where they are."""

    family: Any
    choice: Any
    options: tuple[tuple[str, Any], ...]

    def __call__(self, key: jax.Array, sample: Sample, alpha: Any, *, null: Any = None) -> jax.Array:
        options = dict(self.options)
        masks: dict[str, Any] = {"mask": sample.mask, "calibration_mask": sample.calibration_mask}
        both = (sample.calibration, sample.scores)
        if self.family == "exchangeability":
            return self._test(key, sample, alpha, options)
        if self.family == "threshold":
            return self._threshold(sample, alpha, null, options)
        if self.family in baselines.COMPOSITIONS:
            return baselines.composed(baselines.selected_by_each(*both, alpha=alpha, **options), self.family)
        p = sample.extra.get("p_values")
        row = options.pop("detector", None)
        if p is None or row is not None:
            if null is None:
                raise InputError(f"{self.family} needs to know which items calibrate: give the design a field null")
            rank = functools.partial(p_values.conformal_p_values, null=null, **masks)
            # All rows at once: methods that differ in the row are one computation to the compiler.
            p = rank(*both) if row is None else jax.vmap(rank)(*both)[row]
        return _P_VALUES[self.family](p, alpha, mask=sample.mask, **options).reject

    def _threshold(self, sample: Sample, alpha: Any, null: Any, options: dict[str, Any]) -> jax.Array:
        rows, several = (sample.extra["validation"], sample.scores), sample.scores.ndim == 2
        if null is None or several != ("detector" in options):
            raise InputError(
                f"threshold/{self.choice} needs a design with a field null, and detector, which row of scores decides, "
                f"where there are several, only there; got {options!r} and scores {sample.scores.shape}"
            )
        level = {} if self.choice == "accuracy" else {"alpha": alpha}
        fixed: dict[str, Any] = {"null": null, "rule": self.choice, "mask": sample.mask, **level}

        def select(validation: jax.Array, tested: jax.Array) -> jax.Array:
            return baselines.threshold(validation, sample.extra["validation_target"], tested, **fixed).selected

        return jax.vmap(select)(*rows)[options["detector"]] if several else select(*rows)

    def _test(self, key: jax.Array, sample: Sample, alpha: Any, options: dict[str, Any]) -> jax.Array:
        options = ({"num_draws": _NUM_DRAWS} if self.choice in ("combined", "exact") else {}) | options
        orders = sample.extra["canonical"], sample.extra["shuffled"]
        p = exchangeability.exchangeability(*orders, test=self.choice, key=key, **options).p_value
        return (p <= jnp.asarray(alpha.value, p.dtype))[None]


@dataclasses.dataclass(frozen=True)
class _Own:
    """A user's function; equal where function and options are."""

    function: Callable[..., Any]
    takes: tuple[str, ...]
    options: tuple[tuple[str, Any], ...]

    def __call__(self, key: jax.Array, sample: Sample, alpha: Any) -> jax.Array:
        given = {name: alpha if name == "alpha" else getattr(sample, name) for name in self.takes}
        call = functools.partial(self.function, key, sample.scores, sample.calibration, **given, **dict(self.options))
        return traced(getattr(self.function, "__name__", repr(self.function)), sample, call)


def traced(name: str, sample: Sample, call: Callable[[], Any]) -> Any:
    """Call a method, and explain an error under `jax.jit` to its author."""
    try:
        return call()
    except InputError:
        raise
    except Exception as error:
        first = (str(error).strip() or "no message").splitlines()[0]
        raise InputError(
            f"method {name!r} failed with key, scores {sample.scores.shape} and calibration "
            f"{sample.calibration.shape}: {type(error).__name__}: {first}. A method is traced by jax.jit: it must "
            "use jax.numpy, and jnp.where in place of if"
        ) from error


def _from_name(name: str, options: Mapping[str, Any]) -> StudyMethod:
    family, _, choice = name.partition("/")
    if name not in NAMES:
        raise InputError(
            f"no method is called {name!r}; known are {', '.join(NAMES)}. A function "
            "(key, scores, calibration) -> selected can be given instead"
        )
    if family in _VALUES or family == "jecs":
        cls, first, _ = _VALUES.get(family, (JECS, "", ()))
        _check_options(name, options, {field.name for field in dataclasses.fields(cls)} - {first, "unit"})
        return _from_procedure(cls(**({first: choice} if first else {}), **options))
    function = _FAMILIES[family][0] if choice else _ALONE[family]
    known = set(inspect.signature(function).parameters) - _GIVEN
    _check_options(name, options, known | ({"detector"} if family == "threshold" or family in _P_VALUES else set()))
    select = _Named(family, choice, tuple(options.items()))
    read: dict[str, Any] = {"name": name, "select": select, "exact_levels": True}
    if family in baselines.COMPOSITIONS:
        read |= {"null": "member", "panel": True, "masks": ()}
    elif family == "threshold":
        read |= {"needs": ("validation", "validation_target"), "directed": True}
    elif family == "exchangeability":
        read |= {"panel": False, "needs": ("canonical", "shuffled"), "masks": ()}
    else:
        read |= {"panel": "detector" in options, "directed": True}
    return StudyMethod(**read)


def _from_procedure(procedure: Procedure) -> StudyMethod:
    return StudyMethod(
        procedure.label,
        _Decides(procedure),
        null=procedure.null,
        panel=procedure.columns != "one",
        needs=tuple(name for name in procedure.needs if name != "calibration"),
        exact_levels=True,
    )


def _check_options(name: str, options: Mapping[str, Any], known: set[str]) -> None:
    for option in options:
        if option not in known:
            raise InputError(f"{name} has no option {option!r}; it has {', '.join(sorted(known)) or 'none'}")


def _from_function(function: Callable[..., Any], options: Mapping[str, Any]) -> StudyMethod:
    try:
        known = tuple(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        known = ()
    takes = tuple(name for name in ("alpha", "mask", "calibration_mask", "extra") if name in known)
    masks = tuple(name for name in ("mask", "calibration_mask") if name in takes)
    name = getattr(function, "__name__", type(function).__name__)
    return StudyMethod(name, _Own(function, takes, tuple(options.items())), masks=masks)


def as_methods(given: Any) -> tuple[StudyMethod, ...]:
    """Convert one method, several, or a dict from labels to methods; their names must be distinct."""
    if isinstance(given, Mapping):
        methods = tuple(method(rule, label=str(label)) for label, rule in given.items())
    elif isinstance(given, (str, StudyMethod, Procedure)) or callable(given):
        methods = (method(given),)
    else:
        methods = tuple(method(rule) for rule in given)
    names = [rule.name for rule in methods]
    if not names:
        raise InputError("methods is empty; name at least one, for example 'ptdi/storey'")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two methods are called {twice[0]!r}; give a dict from labels to methods")
    return methods
