"""Scores of the text itself: the statistics of its tokens, and its size."""

from __future__ import annotations

import dataclasses
import functools
import zlib
from collections.abc import Callable, Mapping
from typing import Any

from tdd.records import TokenStats
from tdd.scoring.scores.parts import (
    as_float,
    check_fraction,
    check_named,
    check_positive,
    first_occurrences,
    largest_mean,
    masked_mean,
    name_of_order,
    namespace,
    smallest_mean,
    smallest_tokens,
)
from tdd.scoring.scores.score import Array, Evidence, Score, option, texts_given
from tdd.validate import InputError

_SIGMA_FLOOR = 1e-6

_BETAS = {"0.5": 0.5, "1/2": 0.5, "1": 1.0, "1.0": 1.0, "2": 2.0, "2.0": 2.0}
_FIELD_OF_BETA = {0.5: "renyi_half", 1.0: "mu", 2.0: "renyi_two"}
_ORDERS = {**_BETAS, "inf": float("inf")}
_FIELD_OF_ORDER = {**_FIELD_OF_BETA, float("inf"): "renyi_inf"}

_SOME_TOKENS = functools.partial(check_fraction, "k", allow_zero=False)


def _order(value: Any) -> float:
    """An order of a Renyi entropy."""
    known = _ORDERS.get(str(value)) or as_float(value)
    if not known > 0:
        raise InputError(f"gamma={value!s} is no order of a Renyi entropy; give a number above 0, or inf")
    return known


def _named_number(parameter: str, hint: str, named: dict[str, float], value: Any) -> float:
    """One of some numbers, as a word or as the number."""
    return value if value in named.values() else check_named(parameter, hint, named, str(value))


class OfMeanLoss(Score):
    """A score whose part from the tokens is their mean negative log-probability."""

    statistics = ("log_prob",)

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        return -masked_mean(namespace(stats), stats.log_prob, stats.mask)


check_reduction = functools.partial(
    check_named, "reduction", "use 'sum' (of -log p over the scored tokens) or 'mean'", ("sum", "mean")
)


@dataclasses.dataclass(frozen=True)
class Loss(OfMeanLoss):
    """loss: -(1/n) sum_t log p(x_t | x_<t) over the n scored tokens, nats a token; with reduction=sum without 1/n.

    Perplexity is the exponential of the mean. Paper: "High-power training data identification", Eq. 2, is the sum,
    which ranks short texts first: where lengths differ it says more of the length than of the model.
    """

    name = "loss"
    meaning = "mean negative log-probability of a token, or their sum"

    reduction: Any = option("mean", check_reduction)

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        mean = super().rows(stats)
        return mean * stats.mask.sum(-1) if self.reduction == "sum" else mean


def compressed_bytes(text: str) -> float:
    """Bytes of a text after zlib."""
    return float(len(zlib.compress(text.encode())))


@dataclasses.dataclass(frozen=True)
class Zlib(OfMeanLoss):
    """zlib: loss / number of bytes of the zlib-compressed text (Carlini et al. 2021, "Extracting training data").

    Paper: "High-power training data identification", section 4.2, has the perplexity in place of its logarithm.
    """

    name = "zlib"
    meaning = "loss divided by the compressed size of the text"

    def measures(self) -> Mapping[str, Callable[[str], float]]:  # noqa: D102
        return {"compressed_bytes": compressed_bytes}

    def finish(self, rows: Array, evidence: Evidence) -> Array:  # noqa: D102
        return rows / evidence["compressed_bytes"]


@dataclasses.dataclass(frozen=True)
class MinK(Score):
    """min_k: minus the mean of the max(1, floor(k n)) smallest log-probabilities (Shi et al. 2023, Min-K% Prob)."""

    name = "min_k"
    meaning = "minus the mean of the k least likely tokens' log-probabilities"
    statistics = ("log_prob",)

    k: Any = option("0.2", _SOME_TOKENS)

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        return -smallest_mean(namespace(stats), stats.log_prob, stats.mask, self.k)


@dataclasses.dataclass(frozen=True)
class MinKPlusPlus(Score):
    """min_k_plus_plus: minus the mean of the max(1, floor(k n)) smallest z_t (Zhang et al. 2024, Min-K%++).

    z_t = (log p(x_t | x_<t) - mu_t) / sigma_t with mu_t = sum_v p_v log p_v and sigma_t^2 = sum_v p_v (log p_v -
    mu_t)^2, both weighted by probability. sigma is floored at 1e-6.
    """

    name = "min_k_plus_plus"
    meaning = "as min_k, with log-probabilities standardised by the distribution at their position"
    statistics = ("log_prob", "mu", "sigma")

    k: Any = option("0.2", _SOME_TOKENS)

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        xp = namespace(stats)
        standardised = (stats.log_prob - stats.mu) / xp.maximum(stats.sigma, _SIGMA_FLOOR)
        return -smallest_mean(xp, standardised, stats.mask, self.k)


@dataclasses.dataclass(frozen=True)
class MEntropy(Score):
    """m_entropy: mean modified entropy (Song & Mittal 2021): small where the model is confident and right.

    -(1 - p_y) log p_y - sum_{v != y} p_v log(1 - p_v), averaged over the scored tokens.
    """

    name = "m_entropy"
    meaning = "mean modified entropy of a token"
    statistics = ("m_entropy",)

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        return masked_mean(namespace(stats), stats.m_entropy, stats.mask)


@dataclasses.dataclass(frozen=True)
class MaxRenyi(Score):
    """max_renyi: mean of the max(1, floor(k n)) largest Renyi entropies of order gamma (Li et al. 2024, MaxRenyi-K%).

    gamma is any number above 0: 1 is Shannon's entropy, inf minus the largest log-probability; k = 0 takes the single
    largest. Each order but 1/2, 1, 2 and inf costs one more pass of the readout, and needs the model itself: logged
    statistics and the descriptions of images have these four.

    Paper: "High-power training data identification", Eq. 3, leaves out the factor 1/(gamma - 1), without which orders
    below 1 rank the texts the other way round.
    """

    name = "max_renyi"
    meaning = "mean of the k largest Renyi entropies of order gamma"
    statistics = ("mu", "renyi_half", "renyi_two", "renyi_inf")

    gamma: Any = option("0.5", _order)
    k: Any = option("0.2", functools.partial(check_fraction, "k", allow_zero=True))

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        (name,) = self.reads
        if name not in stats.renyi and name not in _FIELD_OF_ORDER.values():
            raise InputError(
                f"this score reads the Renyi entropy of order {self.gamma:g}: set TokenStats.renyi[{name!r}]"
            )
        entropies = (
            stats.entropy if self.gamma == 1 else stats.renyi[name] if name in stats.renyi else getattr(stats, name)
        )
        return largest_mean(namespace(stats), entropies, stats.mask, self.k)

    @property
    def computed(self) -> tuple[str, ...]:  # noqa: D102
        return self.statistics if self.gamma in _FIELD_OF_ORDER else self.reads

    @property
    def reads(self) -> tuple[str, ...]:  # noqa: D102
        return (_FIELD_OF_ORDER.get(self.gamma) or name_of_order(self.gamma),)


@dataclasses.dataclass(frozen=True)
class AcMia(Score):
    """acmia: the mean change of the log-probability by a temperature, over the first occurrence of every token.

    p_beta is proportional to p^beta. Zare Zade et al. (2025, AC) average log p - log p_beta for beta < 1 and
    log p_beta - log p for beta > 1; the score is minus that. log p_beta(y) = beta log p(y) - log sum_v p_v^beta, and
    these sums are those of the Renyi entropies of order 1/2 and 2. beta = 1 is the limit of both divided by |beta - 1|,
    log p(y) - sum_v p_v log p_v (their DerivAC at a temperature of 1). The authors' script reports the best of 52
    temperatures, chosen by the labels of the test set: fix beta beforehand.
    """

    name = "acmia"
    meaning = "mean change of the log-probability by a temperature, over the first occurrence of each token"
    statistics = ("log_prob", "mu", "renyi_half", "renyi_two", "tokens")

    beta: Any = option(
        "0.5", functools.partial(_named_number, "beta", "the inverse temperatures are 0.5, 1 and 2", _BETAS)
    )

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        xp = namespace(stats)
        if self.beta == 1:
            loss = stats.mu - stats.log_prob
        elif self.beta < 1:
            loss = -stats.log_prob / 2 - stats.renyi_half / 2
        else:
            loss = -stats.log_prob - stats.renyi_two
        return masked_mean(xp, loss, first_occurrences(xp, stats))

    @property
    def reads(self) -> tuple[str, ...]:  # noqa: D102
        return ("log_prob", _FIELD_OF_BETA[self.beta], "tokens")


@dataclasses.dataclass(frozen=True)
class Surp(Score):
    """surp: minus the mean log-probability of the surprising tokens (Zhang and Wu 2024, SURP).

    A token is surprising if its log-probability is among the max(1, floor(k n)) smallest of the text and the entropy of
    the model's distribution there is below `entropy` nats: certain but wrong. A text without such a token has the mean
    of the max(1, floor(k n)) smallest, as in min_k; a constant would tie all those texts at one end.
    """

    name = "surp"
    meaning = "minus the mean of the k smallest log-probabilities where the model is certain (entropy below a limit)"
    statistics = ("log_prob", "mu")

    k: Any = option("0.2", _SOME_TOKENS)
    entropy: Any = option("2", functools.partial(check_positive, "entropy"))

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        xp = namespace(stats)
        least_likely = smallest_tokens(xp, stats.log_prob, stats.mask, self.k)
        surprising = least_likely & (stats.entropy < self.entropy)
        loss = -masked_mean(xp, stats.log_prob, surprising)
        otherwise = -smallest_mean(xp, stats.log_prob, stats.mask, self.k)
        return xp.where(surprising.any(-1) & ~xp.isnan(otherwise), loss, otherwise)


@dataclasses.dataclass(frozen=True)
class DcPdd(Score):
    """dc_pdd: minus the mean of min(cap, p(x_t) log(1 / f(x_t))) over first occurrences of tokens (Zhang et al. 2024).

    f is the frequency of the token in a corpus that stands for training data at large, (count + 1) / (tokens + V). The
    authors count at most 1,024 tokens of a text, with the tokenizer's special ones; here all tokens count but special
    ones. `tdd.scoring.corpus.read_corpus` counts the tokens of a corpus once for several calls.
    """

    name = "dc_pdd"
    meaning = "minus the mean of p log(1/f), capped, with the frequency f of each token in a corpus"
    statistics = ("log_prob", "tokens")

    cap: Any = option("0.01", functools.partial(check_positive, "cap"))
    corpus: Any = texts_given("a corpus of texts", known="")

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        if not hasattr(self.corpus, "log_frequency"):
            raise InputError(f"dc_pdd needs the frequencies of tokens: give corpus as a Corpus, got {self.corpus!r}")
        xp = namespace(stats)
        divergence = xp.minimum(-xp.exp(stats.log_prob) * xp.asarray(self.corpus.log_frequency)[stats.tokens], self.cap)
        return -masked_mean(xp, divergence, first_occurrences(xp, stats))

    def bound(self, tokenizer: Any, vocab_size: int) -> Score:  # noqa: D102
        from tdd.scoring.corpus import read_corpus

        return dataclasses.replace(self, corpus=read_corpus(self.corpus, tokenizer, vocab_size))


@dataclasses.dataclass(frozen=True)
class Diversity(Score):
    """diversity: loss divided by the share of distinct tokens among the scored ones (Chang et al. 2025, CAMIA)."""

    name = "diversity"
    meaning = "loss divided by the share of distinct tokens"
    statistics = ("log_prob", "tokens")

    def rows(self, stats: TokenStats) -> Array:  # noqa: D102
        xp = namespace(stats)
        share = masked_mean(xp, first_occurrences(xp, stats), stats.mask)
        return -masked_mean(xp, stats.log_prob, stats.mask) / share
