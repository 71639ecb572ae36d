"""The records that the stages hand to each other.

Texts → TokenStats → Scores → Evidence → Selection → Report. Records whose fields are arrays are frozen
dataclasses registered as pytrees: arrays are data, names, polarities and guarantees are static, so they travel
through `jax.jit` unchanged. Axis letters: n calibration, m test, B batch, T tokens, V vocabulary, D hidden width.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Hashable, Mapping
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, dataclass_transform

import jax
import jax.numpy as jnp
import numpy as np

if TYPE_CHECKING:
    from tdd.kernels.envelope import Envelope

Null = Literal["nonmember", "member"]
"""The null hypothesis of one item. It decides what calibrates and which tail is evidence."""

CLUSTER_UNITS = ("cluster", "item", "drawn")
"""Units of decision where items come in clusters; "drawn" is one item of each, drawn at random."""

_T = TypeVar("_T")


@dataclass_transform(frozen_default=True)
def pytree(*static: str) -> Callable[[type[_T]], type[_T]]:
    """Class decorator: a frozen dataclass registered as a pytree with the named fields static."""

    def register(cls: type[_T]) -> type[_T]:
        frozen = dataclasses.dataclass(frozen=True)(cls)
        names = [field.name for field in dataclasses.fields(frozen)]  # type: ignore[arg-type]
        data = [name for name in names if name not in static]
        return jax.tree_util.register_dataclass(frozen, data_fields=data, meta_fields=list(static))

    return register


@dataclasses.dataclass(frozen=True)
class Guarantee:
    """The error rate that a procedure controls, its assumptions and its source.

    Attributes:
      controls: the error rate and its bound, for example "FDR <= alpha".
      assumes: the assumptions, one sentence each.
      kind: "finite-sample", "asymptotic" or "none".
      source: paper and equation.
      levels: levels that `adjusted` may be compared with: "any" that was fixed beforehand, or only the "one" that the
        result was computed for, where statistics depend on it. Never a level that was chosen after looking.
    """

    controls: str
    assumes: tuple[str, ...]
    kind: Literal["finite-sample", "asymptotic", "none"]
    source: str
    levels: Literal["any", "one"] = "any"

    @classmethod
    def finite_sample(
        cls, controls: str, assumes: tuple[str, ...], source: str, levels: Literal["any", "one"] = "any"
    ) -> Self:
        """Return a guarantee that holds at every sample size."""
        return cls(controls, assumes, "finite-sample", source, levels)


class Difference(NamedTuple):
    """One place where a function departs from the paper that it implements; its docstring names the place."""

    call: str  # dotted name of the function
    paper: str
    place: str  # equation, proposition or section
    theirs: str
    ours: str
    why: str


@dataclasses.dataclass(frozen=True)
class Texts:
    """Texts of one role, on the host.

    Attributes:
      ids: unique identifiers, one a text.
      texts: the texts themselves.
      labels: known truth, 1 member and 0 non-member, or an empty tuple where nothing is known.
      source: where they came from (a path, or "memory").
      sha256: hash of ids and texts.
    """

    ids: tuple[str, ...]
    texts: tuple[str, ...]
    labels: tuple[int, ...] = ()
    source: str = "memory"
    sha256: str = ""

    def __len__(self) -> int:
        return len(self.texts)


@pytree()
class TokenStats:
    """Statistics of the model's next-token distribution at every scored target, in nats.

    All fields are [B, T] float32 (`rank` int32), aligned with the *target*: entry t describes
    p(. | tokens[:t]) and the token x_t. Entries where `mask` is False hold 0 and mean nothing.

    Attributes:
      log_prob: log p(x_t | x_<t).
      mu: sum_v p_v log p_v, the probability-weighted mean of the log-probabilities (minus the entropy).
      sigma: square root of sum_v p_v (log p_v - mu)^2.
      renyi_half: Renyi entropy of order 1/2.
      renyi_two: Renyi entropy of order 2.
      renyi_inf: Renyi entropy of order infinity, -max_v log p_v.
      m_entropy: modified entropy, -(1 - p_y) log p_y - sum over v != y of p_v log(1 - p_v).
      rank: number of vocabulary entries strictly more likely than the target.
      mask: [B, T] bool, True where the token is a scored *target*. `mask[:, 0]` is always False: nothing precedes the
        first token.
      tokens: [B, T] int32, the targets' ids; None where no score asks for them.
      renyi: "renyi_<order>" -> Renyi entropy of another order, [B, T]; empty where no score asks for one.
    """

    log_prob: jax.Array
    mu: jax.Array
    sigma: jax.Array
    renyi_half: jax.Array
    renyi_two: jax.Array
    renyi_inf: jax.Array
    m_entropy: jax.Array
    rank: jax.Array
    mask: jax.Array
    tokens: jax.Array | None = None
    renyi: Mapping[str, jax.Array] = dataclasses.field(default_factory=dict)

    @property
    def entropy(self) -> jax.Array:
        """Shannon entropy, the Renyi entropy of order 1: [B, T]."""
        return -self.mu


class GradSqNorms(NamedTuple):
    """Squared norms of the gradient of each text's loss, the SUM of -log p over its scored targets.

    Attributes:
      parts: name of a group of parameters -> squared norm of its gradient, [B] float32, or [L, B] for "layers". No
        parameter is in two groups: all entries of a text add up to the squared norm over all parameters.
      input_embedding: [B] squared norm of the gradient with respect to the embedded input, one row a position.
    """

    parts: dict[str, jax.Array]
    input_embedding: jax.Array


@pytree()
class GradNorms:
    """Norms of the gradient of each text's loss, in nats per unit of parameter.

    Attributes:
      total: [B] norm of the gradient with respect to all parameters.
      input_embedding: [B] norm of the gradient with respect to the embedded input, one row a position; NaN where the
        model does not say what its embedding is.
      parts: name of a group of parameters -> norm of its gradient, [B], or [L, B] for "layers", one a layer.
    """

    total: jax.Array
    input_embedding: jax.Array
    parts: Mapping[str, jax.Array]


@dataclasses.dataclass(frozen=True)
class LanguageModel:
    """Anything that can be scored. Hashable by its spec; parameters are always arguments, never closed over.

    Attributes:
      spec: hashable description of the architecture; two models with equal specs share compiled programs.
      vocab_size: V, the number of rows of the readout.
      max_length: longest token sequence the model accepts, or None where positions are unbounded.
      logits: `(params, tokens [B, T] int32) -> [B, T, V]` float32. The one required function.
      hidden: `(params, tokens) -> [B, T, D]`, what the readout multiplies (after the final norm and any
        projection), or None.
      readout: `(params) -> [V, D]`, so that logits = cap(hidden @ readout.T), or None.
      soft_cap: c in logits = c tanh(z / c), or None.
      grad_sqnorm: `(params, tokens [B, T], mask [B, T]) -> GradSqNorms`, of the sum of -log p over the targets that the
        mask marks, of all examples at once; or None.
      prefix: `(params, tokens [1, P], num_real=None) -> cache`, what a prefix leaves behind for the tokens after it;
        its first `num_real` tokens count, the others are padding. A tree of arrays; or None.
      hidden_after: `(params, cache, tokens [B, T]) -> [B, T, D]`: `hidden` of tokens that all follow that prefix; or
        None.
      on_cpu: `(lm, params) -> params`, a form that `hidden`, `readout`, `prefix` and `hidden_after` of this `lm` take
        besides and that costs less on a CPU, of arrays on one; `params` where one of these was replaced. Or None.
      hidden_at: `(lm, params, tokens [B, T], places [C]) -> [C, D]`, the rows of this `lm`'s `hidden` at flat places of
        the tokens, among which are all before a place in its row, at the price of C tokens; a place B T stands for
        none. Or None.
    """

    spec: Hashable
    vocab_size: int
    max_length: int | None
    logits: Callable[[Any, jax.Array], jax.Array] = dataclasses.field(compare=False)
    hidden: Callable[[Any, jax.Array], jax.Array] | None = dataclasses.field(default=None, compare=False)
    readout: Callable[[Any], jax.Array] | None = dataclasses.field(default=None, compare=False)
    soft_cap: float | None = None
    grad_sqnorm: Callable[[Any, jax.Array, jax.Array], GradSqNorms] | None = dataclasses.field(
        default=None, compare=False
    )
    prefix: Callable[..., Any] | None = dataclasses.field(default=None, compare=False)
    hidden_after: Callable[[Any, Any, jax.Array], jax.Array] | None = dataclasses.field(default=None, compare=False)
    on_cpu: Callable[[LanguageModel, Any], Any] | None = dataclasses.field(default=None, compare=False)
    hidden_at: Callable[[LanguageModel, Any, jax.Array, jax.Array], jax.Array] | None = dataclasses.field(
        default=None, compare=False
    )


@dataclasses.dataclass(frozen=True)
class Scores:
    """A table of loss-like scores on the host: LOWER = MORE member-like, in every column.

    Attributes:
      ids: N identifiers.
      values: score name -> [N] float64; NaN where a score does not exist for an item.
      num_tokens: [N] int64, scored tokens an item (0 where scores came from a file).
      provenance: model, options and hashes that produced the table.
    """

    ids: tuple[str, ...]
    values: Mapping[str, np.ndarray]
    num_tokens: np.ndarray
    provenance: Mapping[str, Any] = dataclasses.field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, name: str) -> np.ndarray:
        return self.values[name]


@pytree("names", "clusters", "calibration_clusters")
class Evidence:
    """The data of a procedure: loss-like scores by role, LOWER = MORE member-like; None where there are none.

    Attributes:
      calibration: [n] or [K, n] scores of items for which the null holds.
      scores: [m] or [K, m] scores of the candidates, one row a detector or model.
      mask: [m] bool, True = real item; None where all are.
      calibration_mask: [n] bool, True = real item; None where all are.
      members: [n1] or [K, n1] scores of known members.
      knockoffs: [m, k] scores of the candidates' knockoffs.
      calibration_knockoffs: [n, k] scores of the calibration items' knockoffs.
      members_knockoffs: [n1, k] scores of the known members' knockoffs.
      weights: [m] density ratio of each candidate.
      calibration_weights: [n] density ratio of each calibration item.
      split: [n] bool, calibration items from which the weights of detectors are learned.
      p_values: [m] p-values that are given, not computed from scores.
      names: names of the K rows of scores.
      clusters: [m] cluster of each candidate.
      calibration_clusters: [n] cluster of each calibration item.
    """

    calibration: Any
    scores: Any
    mask: Any = None
    calibration_mask: Any = None
    members: Any = None
    knockoffs: Any = None
    calibration_knockoffs: Any = None
    members_knockoffs: Any = None
    weights: Any = None
    calibration_weights: Any = None
    split: Any = None
    p_values: Any = None
    names: tuple[str, ...] = ()
    clusters: tuple[Hashable, ...] = ()
    calibration_clusters: tuple[Hashable, ...] = ()


@pytree("method", "null", "guarantee")
class Selection:
    """The decision of a procedure. The boolean mask is the decision; nothing recomputes it.

    Attributes:
      selected: [m] bool, in input order.
      p_values: [m] the p-values before any scaling; NaN for masked items.
      adjusted: [m] adjusted p-values; `selected == (adjusted <= alpha)`. NaN for masked items.
      threshold: [] largest selected p-value, 0 if nothing is selected.
      proportion: [] estimated proportion of items for which the null is false (0 if it is not estimated; negative if
        the estimated proportion of nulls exceeds 1).
      num_selected: [] int32.
      num_tests: [] int32, m: tested items, neither masked nor NaN.
      num_calibration: [] int32, n: calibration items, neither masked nor NaN.
      min_selections: [] int32, the smallest number of selections that n, m, alpha and the proportion allow: fewer
        cannot occur, and a value above m means that nothing can be selected.
      method: name of the procedure.
      null: direction of the null.
      guarantee: the guarantee and its assumptions.
    """

    selected: jax.Array
    p_values: jax.Array
    adjusted: jax.Array
    threshold: jax.Array
    proportion: jax.Array
    num_selected: jax.Array
    num_tests: jax.Array
    num_calibration: jax.Array
    min_selections: jax.Array
    method: str
    null: Null
    guarantee: Guarantee

    @classmethod
    def from_step(cls, step: Any, **fields: Any) -> Self:
        """Return the selection that a step-up procedure decides.

        Args:
          step: `StepUp` or another record with its first five fields.
          fields: the other fields, and those that replace fields of the step.
        """
        decided = {
            "selected": step.reject,
            "adjusted": step.adjusted,
            "threshold": step.threshold,
            "num_selected": step.num_rejected,
            "num_tests": step.num_tests,
            "proportion": jnp.zeros(()),
        }
        return cls(**{**decided, **fields})


@pytree("method", "null", "guarantee", "unit")
class ClusterSelection(Selection):
    """A selection among items that come in clusters.

    The fields of `Selection` describe items: with unit="cluster" every item has the decision, the p-value and the
    adjusted p-value of its cluster; with unit="drawn" items that were not drawn are not tested and have NaN.
    `num_calibration` counts calibration clusters, `min_selections` counts items.

    Attributes:
      cluster: [m] int32, each item's cluster, numbered in order of first appearance among the candidates.
      cluster_selected: [C] bool, whether an item of the cluster is selected; with unit="cluster" the decision itself,
        else a summary that no guarantee covers.
      num_clusters: [] int32, test clusters with a tested item.
      unit: unit of decision, "cluster", "item" or "drawn".
    """

    cluster: jax.Array
    cluster_selected: jax.Array
    num_clusters: jax.Array
    unit: str


@pytree("method", "null", "guarantee")
class CombinedSelection(Selection):
    """A selection from several detectors' scores.

    Attributes:
      weights: [K] weight of each detector in the combination, summing to 1; equal where the rule has none.
      num_rejected_alone: [K] int32, items that BH at alpha rejects on each detector alone.
    """

    weights: jax.Array
    num_rejected_alone: jax.Array


@pytree("method", "null", "guarantee")
class KnockoffSelection(Selection):
    """A selection by knockoffs; `adjusted` is the smallest level at which an item is selected.

    `num_calibration` is 0 and `p_values` is NaN unless the rule has a calibration sample.

    Attributes:
      statistic: [n] statistic that is compared with the cut; large = member, 0 or negative is never selected.
      cut: [] threshold of `statistic`, +inf if none qualifies.
    """

    statistic: jax.Array
    cut: jax.Array


@pytree("method", "null", "guarantee")
class JointSelection(Selection):
    """A selection that holds for several models at once; `p_values` is the largest of the K p-values of an item.

    Attributes:
      envelope: the fitted null distribution of the largest p-value, for plotting; the identity for JMCS.
    """

    envelope: Envelope


@pytree("method", "guarantee")
class TestResult:
    """The result of one test.

    Attributes:
      p_value: [].
      log_p_value: [] natural logarithm of the p-value, finite far below the smallest float.
      statistic: [] the test statistic.
      method: name of the test.
      guarantee: the guarantee and its assumptions.
    """

    __test__ = False  # not a pytest class

    p_value: jax.Array
    log_p_value: jax.Array
    statistic: jax.Array
    method: str
    guarantee: Guarantee
