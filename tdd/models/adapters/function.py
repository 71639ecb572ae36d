"""Any function that returns logits, as a `LanguageModel`; what the other adapters are built on; a test of causality."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import functools
import inspect
from collections.abc import Callable, Hashable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from tdd.records import LanguageModel
from tdd.validate import InputError
from tdd.validate.arrays import check_params
from tdd.validate.files import check_positive, check_tokens
from tdd.validate.settings import in_own_settings

Output = int | str | Callable[[Any], Any] | None
"""Place of the logits in the result of a model."""

Arguments = tuple[tuple[str, Hashable], ...]
"""Keyword arguments as a hashable value."""

EVALUATION: Mapping[str, bool] = {
    "deterministic": True,
    "enable_dropout": False,
    "inference": True,
    "is_training": False,
    "train": False,
    "training": False,
    "use_running_average": True,
}
"""Libraries' names of the switch between training and evaluation, with its setting for evaluation."""


@dataclasses.dataclass(frozen=True)
class FunctionSpec:
    """Identity of an adapted model, from the arguments of `from_function`: equal only for equal functions and sizes."""

    name: str
    logits_fn: Callable[[Any, jax.Array], Any]
    vocab_size: int
    max_length: int | None
    hidden_fn: Callable[[Any, jax.Array], Any] | None = None
    readout_fn: Callable[[Any], Any] | None = None
    output: Output = None
    _hash: int = dataclasses.field(init=False, compare=False, repr=False)

    def __post_init__(self) -> None:
        fields = (field.name for field in dataclasses.fields(self) if field.compare)
        object.__setattr__(self, "_hash", hash(tuple(getattr(self, name) for name in fields)))

    def __hash__(self) -> int:
        """Computed once: every call of a compiled program asks for it, and a module of many layers takes a while."""
        return self._hash


def from_function(
    logits_fn: Callable[[Any, jax.Array], Any],
    *,
    vocab_size: int,
    max_length: int | None = None,
    name: str,
    hidden: Callable[[Any, jax.Array], Any] | None = None,
    readout: Callable[[Any], Any] | None = None,
    soft_cap: float | None = None,
    output: Output = None,
) -> LanguageModel:
    """Make a model of a function `logits(params, tokens [B, T]) -> [B, T, V]`.

    The function must be traceable by JAX and causal: logits at position t describe token t + 1 and depend on tokens
    0..t only; `check_causal` tests it. Weights belong into `params`; closed over, they would be compiled into every
    program.
    Pass the same function object each time: a new closure is a new model and compiles again. What it reads besides its
    arguments (the attributes of an object, global values) is constant in `tdd.score` and under `jit`, by the rules of
    JAX; `tdd.token_stats` and `tdd.grad_norms` outside `jit` read it, and compile, at every call, unless `jax.jit` has
    wrapped the function.

    Args:
      logits_fn: The function.
      vocab_size: V, rows of padding counted: they take part in the softmax as in the model's own loss, unless the
        model gives them -inf or a large negative number.
      max_length: Longest sequence that it accepts, or None.
      name: Shown in reports.
      hidden: `(params, tokens [B, T]) -> [B, T, D]`, what the readout multiplies; with it and `readout`, scoring
        never builds [B, T, V].
      readout: `(params) -> [V, D]`, so that logits = cap(hidden @ readout.T).
      soft_cap: c in logits = c tanh(z / c), where the model has it; for `hidden` and `readout` only.
      output: Place of the logits, if the function returns more: an index, a key, an attribute's name or a
        function of the result. Without it: the result itself, or its `logits`.

    Raises:
      InputError: a function that cannot be called or hashed, a size that is not positive, `hidden` without
        `readout`; when traced, results of other shapes or types than these.
    """
    _check_callable("logits_fn", logits_fn)
    check_positive(vocab_size=vocab_size, **({} if max_length is None else {"max_length": max_length}))
    _check_head(hidden, readout, soft_cap)
    check_hashable("output", output)
    spec = FunctionSpec(name, logits_fn, vocab_size, max_length, hidden, readout, output)
    return LanguageModel(
        spec,
        vocab_size,
        max_length,
        logits=functools.partial(_logits, spec),
        hidden=None if hidden is None else functools.partial(_hidden, spec),
        readout=None if readout is None else functools.partial(_readout, spec),
        soft_cap=soft_cap,
    )


def from_methods(
    kind: type,
    call: Callable[[str | Callable[..., Any], Arguments], Callable[..., Any]],
    *,
    method: str | Callable[..., Any],
    arguments: Mapping[str, Any] | None,
    hidden: str | Callable[..., Any] | None,
    name: str | None,
    **sizes: Any,
) -> LanguageModel:
    """Make a model of a module of class `kind`; see `from_function` for `sizes`.

    `call(method, keywords)` is a function of parameters and tokens that calls a method of the module, or a function of
    it, with these keywords: `arguments`, and the switches that it has.
    """
    given = arguments_of(arguments)
    return from_function(
        call(method, _method_arguments(kind, method, given)),
        name=name or kind.__name__,
        hidden=None if hidden is None else call(hidden, _method_arguments(kind, hidden, given, only_known=True)),
        **sizes,
    )


def _logits(spec: FunctionSpec, params: Any, tokens: jax.Array) -> jax.Array:
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    logits = _pick(spec.name, spec.output, spec.logits_fn(params, tokens))
    shape, expected = jnp.shape(logits), (*tokens.shape, spec.vocab_size)
    if shape != expected:
        raise InputError(f"the logits of {spec.name!r} have shape {shape}, expected [B, T, V] = {expected}")
    _check_floating(spec.name, "logits", jnp.result_type(logits))
    return jnp.asarray(logits).astype(jnp.float32)


def _hidden(spec: FunctionSpec, params: Any, tokens: jax.Array) -> jax.Array:
    assert spec.hidden_fn is not None
    check_tokens(tokens.shape, tokens.dtype, spec.max_length)
    hidden = spec.hidden_fn(params, tokens)
    shape = jnp.shape(hidden)
    if len(shape) != 3 or shape[:2] != tokens.shape:
        raise InputError(
            f"the hidden states of {spec.name!r} have shape {shape}, expected [B, T, D] = "
            f"({tokens.shape[0]}, {tokens.shape[1]}, D)"
        )
    _check_floating(spec.name, "hidden states", hidden.dtype)
    return hidden


def _readout(spec: FunctionSpec, params: Any) -> jax.Array:
    assert spec.readout_fn is not None
    readout, vocab_size = spec.readout_fn(params), spec.vocab_size
    shape = jnp.shape(readout)
    if len(shape) != 2 or shape[0] != vocab_size:
        hint = "; transpose it" if len(shape) == 2 and shape[1] == vocab_size else ""
        raise InputError(f"the readout of {spec.name!r} has shape {shape}, expected [V, D] = ({vocab_size}, D){hint}")
    _check_floating(spec.name, "readout", readout.dtype)
    return readout


def _check_head(hidden: Any, readout: Any, soft_cap: Any) -> None:
    """`hidden` and `readout` come together or not at all; a soft cap is for them only."""
    if (hidden is None) != (readout is None):
        given, missing = ("hidden", "readout") if readout is None else ("readout", "hidden")
        raise InputError(f"{given} is given without {missing}; the fast path needs both, plain logits need neither")
    for name, function in (("hidden", hidden), ("readout", readout)):
        if function is not None:
            _check_callable(name, function)
    if soft_cap is not None and hidden is None:
        raise InputError(f"soft_cap={soft_cap!r} belongs to hidden and readout; logits are capped by their own model")
    if soft_cap is not None:
        check_positive(soft_cap=soft_cap)


def _check_floating(name: str, what: str, dtype: Any) -> None:
    if not jnp.issubdtype(dtype, jnp.floating):
        raise InputError(f"the {what} of {name!r} are {dtype}; they must be floating")


def arguments_of(given: Mapping[str, Any] | None) -> Arguments:
    """Keyword arguments that a user gave, checked to be hashable."""
    pairs = tuple(sorted((given or {}).items()))
    for name, value in pairs:
        check_hashable(f"arguments[{name!r}]", value)
    return pairs


def _method_arguments(
    kind: type, method: str | Callable[..., Any], given: Arguments, *, only_known: bool = False
) -> Arguments:
    """`given`, and the evaluation switches among the parameters of a method of `kind` or of a function.

    `only_known` drops what it has no parameter for: arguments are given for the logits, and `hidden` gets those that it
    shares with them.
    """
    function = getattr(kind, method, None) if isinstance(method, str) else method
    if function is None:
        raise InputError(f"{kind.__name__} has no method {method!r}")
    _check_callable(f"{kind.__name__}.{method}" if isinstance(method, str) else "hidden", function)
    names = list(inspect.signature(function).parameters)
    switches = {name: value for name, value in EVALUATION.items() if name in names}
    chosen = {name: value for name, value in given if name in names or not only_known}
    return tuple(sorted({**switches, **chosen}.items()))


def bound(module: Any, method: str | Callable[..., Any], arguments: Arguments) -> Callable[..., Any]:
    """A method of a module, or a function of it, with these keyword arguments."""
    function = getattr(module, method) if isinstance(method, str) else functools.partial(method, module)
    return functools.partial(function, **dict(arguments))


def _pick(name: str, output: Output, result: Any) -> Any:
    """The logits in what a model returned."""
    if callable(output):
        return output(result)
    if output is not None:
        try:
            return result[output] if isinstance(output, int) or isinstance(result, Mapping) else getattr(result, output)
        except (LookupError, AttributeError, TypeError) as error:
            raise InputError(f"{name!r} returned {describe(result)}, in which there is no output={output!r}") from error
    if isinstance(result, Mapping) and "logits" in result:
        return result["logits"]
    logits = getattr(result, "logits", result)
    if not hasattr(logits, "shape") or not hasattr(logits, "dtype"):
        raise InputError(
            f"{name!r} returned {describe(logits)}, not one array of logits [B, T, V]; say where they are with "
            "output=: an index, a key, an attribute's name, or a function"
        )
    return logits


def check_module(argument: str, value: Any, kind: str, fits: bool) -> None:
    """A model of the adapter's library."""
    if not fits:
        raise InputError(
            f"{argument} must be a {kind}, got {type(value).__name__}; adapters: tdd.from_linen, tdd.from_nnx, "
            "tdd.from_equinox, and tdd.from_function for everything else, Haiku's transforms too"
        )


def _check_callable(name: str, value: Any) -> None:
    """`value` can be called and hashed."""
    if not callable(value):
        raise InputError(f"{name} must be a function, got {value!r}")
    try:
        hash(value)
    except TypeError as error:
        raise InputError(f"{name} must be hashable, {type(value).__name__} is not; pass a function") from error


@dataclasses.dataclass(frozen=True, eq=False)
class _Copied:
    """A copy of what cannot be hashed, as a configuration that is no frozen dataclass.

    Equal is what has the same description (`tdd.runs.described`), whatever its own comparison leaves out; what cannot
    be described is equal to itself.
    """

    value: Any

    def __post_init__(self) -> None:
        from tdd.runs.described import described  # most models have none

        written: Any = object()
        with contextlib.suppress(InputError):
            written = repr(described(self.value))
        object.__setattr__(self, "_written", written)

    def __hash__(self) -> int:
        return hash(self._written)  # type: ignore[attr-defined]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Copied) and self._written == other._written  # type: ignore[attr-defined]


def as_constant(what: str, value: Any) -> Any:
    """A part of a model that is no array, by which programs are found again; `constant_value` gives it back.

    Of what cannot be hashed, a copy, which later changes do not reach.

    Raises:
      InputError: it can be neither hashed nor copied.
    """
    try:
        hash(value)
    except TypeError as error:
        try:
            return _Copied(copy.deepcopy(value))
        except Exception:
            raise InputError(
                f"{what} can be neither hashed ({error}) nor copied, so programs compiled for it could not be found "
                "again; hold such values as tuples or functions, and arrays as parameters"
            ) from error
    return value


def constant_value(constant: Any) -> Any:
    """What `as_constant` was given."""
    return constant.value if isinstance(constant, _Copied) else constant


def check_hashable(what: str, value: Any) -> None:
    """A part of a spec, by which compiled programs are found again."""
    try:
        hash(value)
    except TypeError as error:
        raise InputError(
            f"{what} cannot be hashed ({error}), so programs compiled for it could not be found again; hold such "
            "values as tuples or functions, and arrays as parameters"
        ) from error


def wants_randomness(name: str, error: BaseException | None) -> InputError:
    """The error for a model that is still in training mode."""
    found = "" if error is None else f" ({first_line(error)})"
    return InputError(
        f"{name!r} asks for random numbers, and scores must not depend on chance: switch dropout off, for example "
        f"with arguments={{'deterministic': True}} or {{'is_training': False}}, or build the module with it set, where "
        f"the switch is in its configuration{found}"
    )


def describe(value: Any) -> str:
    """The kind and size of a result, for messages."""
    if isinstance(value, Mapping):
        return f"a mapping with {', '.join(map(repr, value))}"
    if isinstance(value, (tuple, list)):
        return f"a {type(value).__name__} of {len(value)}"
    return type(value).__name__


def first_line(error: BaseException) -> str:
    """The first line of an error's message."""
    return next((line.strip() for line in str(error).splitlines() if line.strip()), type(error).__name__)


_NO_CHANGE = 1e-6  # of the largest logit: rounding
_OTHER_PLACE = 0.05  # of the largest logit: what a text at another place of a batch may differ by, in 16 bits


@in_own_settings()
def check_causal(lm: LanguageModel, params: Any, tokens: Any, *, tolerance: float = 1e-4) -> None:
    """Fail unless logits at position t depend on tokens 0..t, token t included, and `hidden`, `readout` reproduce them.

    For up to four cuts, the tokens from the cut on are replaced by others; logits before the cut must not change, and
    those at the cut must. The scores of a model that sees later tokens, or that shifts its input as decoders do which
    are given their targets, look plausible and mean nothing.

    Args:
      lm: The model.
      params: Its parameters.
      tokens: [B, T] token ids, T >= 2; 16 tokens of one text are enough.
      tolerance: Largest change of a logit, relative to the largest logit.

    Raises:
      InputError: The model is not causal or shifts its input, its logits depend on the other rows of a batch or are not
        finite, or the fast path differs.

    Cost: Forward passes over 11 B rows.
    """
    rows = np.asarray(tokens)
    check_tokens(rows.shape, rows.dtype, lm.max_length)
    check_params(params)
    if rows.shape[1] < 2:
        raise InputError(f"tokens have shape {tuple(rows.shape)}; causality is tested on two tokens or more")
    length = rows.shape[1]
    cuts = sorted({1, length // 3, 2 * length // 3, length - 1} - {0})
    other = (rows + 1 + np.arange(length) % max(1, lm.vocab_size - 1)) % lm.vocab_size
    changed = [np.where(np.arange(length) < cut, rows, other) for cut in cuts]
    name = str(getattr(lm.spec, "name", type(lm.spec).__name__))
    compute = jax.jit(lm.logits)

    def logits_of(batch: np.ndarray) -> np.ndarray:
        return np.asarray(compute(params, jnp.asarray(batch, jnp.int32)))

    # apart: what a batch has in common, as its means or the room of its experts, is no part of the text
    logits = np.stack([logits_of(texts) for texts in (rows, *changed)])
    if np.isnan(logits).any() or np.isposinf(logits).any():  # minus infinity excludes a token on purpose
        raise InputError(f"the logits of {name!r} hold NaN or infinity; check its parameters")
    scale = max(1e-30, float(np.abs(logits[np.isfinite(logits)]).max(initial=0)))
    of_batch = _of_batch(logits_of, rows, [other, (other + 1 + np.arange(length) % 2) % lm.vocab_size]) / scale
    if of_batch[0] > tolerance or of_batch[1] > _OTHER_PLACE:
        raise InputError(
            f"the logits of {name!r} depend on the other texts of a batch: with others they change by "
            f"{of_batch.max():.1e} of the largest logit; use running averages (use_running_average=True), and experts "
            "with room for every token"
        )
    for cut, altered in zip(cuts, logits[1:], strict=True):
        change = _difference(altered[:, :cut], logits[0, :, :cut]).max(axis=(0, 2)) / scale
        position = int(np.argmax(change > tolerance))
        if change[position] > tolerance:
            raise InputError(
                f"{name!r} is not causal: its logits at position {position} change by {change[position]:.1e} of the "
                f"largest logit when tokens {cut} and later are replaced; give it a causal attention mask, and shift "
                "nothing: logits at position t describe token t + 1"
            )
    changes = [_difference(altered, logits[0]).max(axis=(0, 2)) / scale for altered in logits[1:]]
    own = max(change[cut] for cut, change in zip(cuts, changes, strict=True))
    if own <= _NO_CHANGE < tolerance < max(change.max() for change in changes):
        raise InputError(
            f"{name!r} shifts its input: its logits at position t do not depend on token t, so they describe token t, "
            "not t + 1; drop the first, with output=lambda logits: jnp.roll(logits, -1, axis=1)"
        )
    if lm.hidden is not None and lm.readout is not None:
        hidden = jax.jit(lm.hidden)(params, jnp.asarray(rows, jnp.int32))
        fast = jnp.einsum("btd,vd->btv", hidden, lm.readout(params), precision="highest").astype(jnp.float32)
        fast = fast if lm.soft_cap is None else lm.soft_cap * jnp.tanh(fast / lm.soft_cap)
        difference = float(_difference(np.asarray(fast), logits[0]).max()) / scale
        if not difference <= tolerance:
            raise InputError(
                f"hidden and readout of {name!r} do not reproduce its logits (relative difference {difference:.1e}): "
                "hidden must include the final norm, readout is [V, D], a bias or scale of the head is not part of it"
            )


def _of_batch(logits_of: Callable[[np.ndarray], np.ndarray], rows: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
    """How far logits of rows change with the other rows of a batch, and with the place among these: [2].

    All batches have one shape, so that the first is 0 where nothing is in common, however coarse the numbers are; the
    second may be rounded otherwise.
    """
    first, second = (logits_of(np.concatenate([before, rows]))[len(rows) :] for before in others)
    behind = logits_of(np.concatenate([rows, others[0]]))[: len(rows)]
    return np.array([_difference(first, second).max(), _difference(first, behind).max()], np.float64)


def _difference(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """|a - b|, and 0 where both exclude a token (minus infinity)."""
    return np.abs(np.subtract(a, b, out=np.zeros_like(a), where=a != b))
