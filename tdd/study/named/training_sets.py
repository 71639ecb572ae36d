"""KTD's studies of the training set: how much larger it is than its tested part, and how few candidates it holds."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp

from tdd.records import Null, pytree
from tdd.study.designs import Sample
from tdd.study.named import ktd
from tdd.study.named.driver import GridRun
from tdd.study.named.record import Figure, NamedStudy, Needs, StudyOptions
from tdd.study.named.thinned import Thinned

FACTORS = (1, 2, 4, 8, 16, 32, 64)
RATIOS, NUM_MIXED = (0.5, 0.2, 0.1, 0.05, 0.01), 1_010
NUM_KNOCKOFFS, INPUTS, OUTPUTS = 5, 80, 16


@pytree()
class LeastSquares:
    """A linear model, fitted by least squares to a training set of which a part is tested.

    An item has `INPUTS` normal inputs and `OUTPUTS` normal outputs, all independent; inputs of an item and of its
    paraphrases have correlation 1/2. The first half of the candidates belongs to the training set. Score: the mean
    squared residual. The k + 1 scores of a non-member are exchangeable.

    Everything else enters by its exact law: training items that are not tested as their second moments (Wishart, by
    Bartlett's decomposition) and products with their outputs, and inputs of new items as their predictions.
    """

    null: ClassVar[Null] = "nonmember"

    factor: Any = 1  # size of the training set divided by that of its tested part

    def draw(self, key: jax.Array) -> Sample:
        """One data set, with `extra["knockoffs"]` [m, k]."""
        keys = iter(jax.random.split(key, 9))

        def normal(*shape: int) -> jax.Array:
            return jax.random.normal(next(keys), shape)

        m, members = ktd.NUM_TESTS, ktd.NUM_TESTS // 2
        inputs, outputs = normal(members, INPUTS), normal(members, OUTPUTS)
        outside = members * (jnp.asarray(self.factor, inputs.dtype) - 1)
        squares = 2 * jax.random.gamma(next(keys), jnp.maximum(outside - jnp.arange(INPUTS), 1) / 2)
        root = jnp.tril(normal(INPUTS, INPUTS), -1) + jnp.diag(jnp.sqrt(squares))
        root = jnp.where(outside > 0, root, 0)
        products = root @ normal(INPUTS, OUTPUTS) + inputs.T @ outputs
        fitted = _solve(root @ root.T + inputs.T @ inputs, products)
        predicted = inputs @ fitted
        spread = fitted.T @ fitted  # covariance of the prediction of a new item
        own = normal(m, OUTPUTS) @ _cholesky(spread / 2).T  # what paraphrases of a new item share of their predictions
        shared = own.at[:members].set(own[:members] / jnp.sqrt(2) + predicted / 2)
        rest = _cholesky(jnp.eye(OUTPUTS) + spread / 2)
        copies = normal(m, NUM_KNOCKOFFS + 1, OUTPUTS) @ rest.T - shared[:, None]
        residual = copies.at[:members, 0].set(outputs - predicted)
        loss = jnp.mean(residual**2, axis=-1)
        return Sample(loss[:0, 0], loss[:, 0], jnp.arange(m) < members, extra={"knockoffs": loss[:, 1:]})


def _solve(a: jax.Array, b: jax.Array) -> jax.Array:
    """x with a x = b for a positive definite `a` [d, d], by elimination: LAPACK blocks the engine's threads."""

    def eliminate(i: jax.Array, both: jax.Array) -> jax.Array:
        row = both[i] / both[i, i]
        return (both - both[:, i, None] * row).at[i].set(row)

    return jax.lax.fori_loop(0, len(a), eliminate, jnp.concatenate([a, b], axis=1))[:, len(a) :]


def _cholesky(a: jax.Array) -> jax.Array:
    """L with L L^T = a, column by column."""

    def column(j: jax.Array, both: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        left, factor = both
        new = left[:, j] / jnp.sqrt(left[j, j])
        return left - jnp.outer(new, new), factor.at[:, j].set(new)

    return jax.lax.fori_loop(0, len(a), column, (a, jnp.zeros_like(a)))[1]


def _study(synthetic: Any, grid: dict[str, Any], words: str, given: str, labels: dict[str, str], **fields: Any):
    """Rules for knockoffs over a grid, whose last field runs over a given table too, and is the horizontal axis."""
    *panels, x = grid

    def design(options: StudyOptions) -> Any:
        return synthetic if options.columns is None else Thinned(ktd.from_table(options.columns))

    def describe(options: StudyOptions) -> str:
        return words if options.columns is None else f"{ktd.describe(options)}; {given}"

    finish = ktd.with_laws if panels else None
    return NamedStudy(
        describe=describe,
        run=GridRun(design, ktd.RULES, grid, lambda columns: {x: grid[x]}, finish),
        bound=ktd.bound,
        figure=Figure("parameter", panels="".join(panels), x=x, x_label=labels[x], level=0.2, labels=labels),
        needs=Needs(knockoffs=True),
        repetitions=500,
        alphas=(0.1, 0.2),
        **fields,
    )


STUDIES = (
    _study(
        LeastSquares(),
        {"factor": FACTORS},
        f"{ktd.NUM_TESTS} texts, half of them members, and {NUM_KNOCKOFFS} paraphrases of each; a linear model of "
        f"{INPUTS} inputs and {OUTPUTS} outputs is fitted by least squares to the members and to the training items "
        "that are not tested; the score is the mean squared residual, and the copies of a non-member follow one law",
        "one in so many candidates is tested",
        ktd.LABELS | {"factor": "training set / its tested part"},
        name="ktd-dilution",
        title="Knockoffs, by the size of the training set divided by that of its tested part",
    ),
    _study(
        ktd.AnyLaw(num_knockoffs=NUM_KNOCKOFFS, num_tests=NUM_MIXED),
        ktd.ALL_LAWS | {"ratio": RATIOS},
        f"{NUM_MIXED:,} texts, members with scores {ktd.SIGNAL:g} lower, and {NUM_KNOCKOFFS} paraphrases of each; the "
        "scores of a text and its paraphrases follow one law",
        "members beyond this ratio are left out",
        ktd.LABELS | {"ratio": "members / non-members"},
        name="ktd-imbalance",
        title="Knockoffs, by the number of members for one non-member and by the law of the scores",
    ),
)
