"""Scores of the text itself: the statistics of its tokens, and its size."""

from __future__ import annotations

import functools
from fractions import Fraction

from tdd.records import TokenStats
from tdd.scoring.scores import (
    Array,
    Evidence,
    Score,
    check_fraction,
    check_named,
    check_positive,
    first_occurrences,
    largest_mean,
    masked_mean,
    namespace,
    smallest_mean,
    smallest_tokens,
)

_SIGMA_FLOOR = 1e-6

_BETAS = {"0.5": 0.5, "1/2": 0.5, "1": 1.0, "1.0": 1.0, "2": 2.0, "2.0": 2.0}
_FIELD_OF_BETA = {0.5: "renyi_half", 1.0: "mu", 2.0: "renyi_two"}
_ORDERS = {**_BETAS, "inf": float("inf")}
_FIELD_OF_ORDER = {**_FIELD_OF_BETA, float("inf"): "renyi_inf"}

_SOME_TOKENS = functools.partial(check_fraction, "k", allow_zero=False)


def loss(stats: TokenStats) -> Array:
    """loss: -(1/n) sum_t log p(x_t | x_<t) over the n scored tokens, nats a token: [B].

    Perplexity is its exponential. Paper: "High-power training data identification", Eq. 2, which leaves out 1/n; the
    mean is used here, because texts of unequal length are ranked.
    """
    return -masked_mean(namespace(stats), stats.log_prob, stats.mask)


def _zlib(value: Array, evidence: Evidence) -> Array:
    """zlib: loss / number of bytes of the zlib-compressed text (Carlini et al. 2021, "Extracting training data")."""
    return value / evidence.compressed_bytes


def _min_k(stats: TokenStats, k: Fraction) -> Array:
    """min_k: minus the mean of the max(1, floor(k n)) smallest log-probabilities (Shi et al. 2023, Min-K% Prob)."""
    return -smallest_mean(namespace(stats), stats.log_prob, stats.mask, k)


def _min_k_plus_plus(stats: TokenStats, k: Fraction) -> Array:
    """min_k_plus_plus: minus the mean of the max(1, floor(k n)) smallest z_t (Zhang et al. 2024, Min-K%++).

    z_t = (log p(x_t | x_<t) - mu_t) / sigma_t with mu_t = sum_v p_v log p_v and sigma_t^2 = sum_v p_v (log p_v -
    mu_t)^2, both weighted by probability. sigma is floored at 1e-6.
    """
    xp = namespace(stats)
    standardised = (stats.log_prob - stats.mu) / xp.maximum(stats.sigma, _SIGMA_FLOOR)
    return -smallest_mean(xp, standardised, stats.mask, k)


def _m_entropy(stats: TokenStats) -> Array:
    """m_entropy: mean modified entropy (Song & Mittal 2021): small where the model is confident and right.

    -(1 - p_y) log p_y - sum_{v != y} p_v log(1 - p_v), averaged over the scored tokens.
    """
    return masked_mean(namespace(stats), stats.m_entropy, stats.mask)


def _max_renyi(stats: TokenStats, gamma: float, k: Fraction) -> Array:
    """max_renyi: mean of the max(1, floor(k n)) largest Renyi entropies of order gamma (Li et al. 2024, MaxRenyi-K%).

    gamma is 1/2, 1 (Shannon), 2 or inf (minus the largest log-probability); k = 0 takes the single largest.
    """
    entropies = stats.entropy if gamma == 1 else getattr(stats, _FIELD_OF_ORDER[gamma])
    return largest_mean(namespace(stats), entropies, stats.mask, k)


def _acmia(stats: TokenStats, beta: float) -> Array:
    """acmia: the mean change of the log-probability by a temperature, over the first occurrence of every token.

    p_beta is proportional to p^beta. Zare Zade et al. (2025, AC) average log p - log p_beta for beta < 1 and
    log p_beta - log p for beta > 1; the score is minus that. log p_beta(y) = beta log p(y) - log sum_v p_v^beta, and
    these sums are those of the Renyi entropies of order 1/2 and 2. beta = 1 is the limit of both divided by |beta - 1|,
    log p(y) - sum_v p_v log p_v (their DerivAC at a temperature of 1). The authors' script reports the best of 52
    temperatures, chosen by the labels of the test set: fix beta beforehand.
    """
    xp = namespace(stats)
    if beta == 1:
        loss = stats.mu - stats.log_prob
    elif beta < 1:
        loss = -stats.log_prob / 2 - stats.renyi_half / 2
    else:
        loss = -stats.log_prob - stats.renyi_two
    return masked_mean(xp, loss, first_occurrences(xp, stats))


def _surp(stats: TokenStats, k: Fraction, entropy: float) -> Array:
    """surp: minus the mean log-probability of the surprising tokens (Zhang and Wu 2024, SURP).

    A token is surprising if its log-probability is among the max(1, floor(k n)) smallest of the text and the entropy of
    the model's distribution there is below `entropy` nats: certain but wrong. A text without such a token has the mean
    of the max(1, floor(k n)) smallest, as in min_k; a constant would tie all those texts at one end.
    """
    xp = namespace(stats)
    least_likely = smallest_tokens(xp, stats.log_prob, stats.mask, k)
    surprising = least_likely & (stats.entropy < entropy)
    loss = -masked_mean(xp, stats.log_prob, surprising)
    otherwise = _min_k(stats, k)
    return xp.where(surprising.any(-1) & ~xp.isnan(otherwise), loss, otherwise)


def _dc_pdd(stats: TokenStats, cap: float, log_frequency: Array) -> Array:
    """dc_pdd: minus the mean of min(cap, p(x_t) log(1 / f(x_t))) over first occurrences of tokens (Zhang et al. 2024).

    f is the frequency of the token in a corpus that stands for training data at large, (count + 1) / (tokens + V). The
    authors count at most 1,024 tokens of a text, with the tokenizer's special ones; here all tokens count but special
    ones.
    """
    xp = namespace(stats)
    divergence = xp.minimum(-xp.exp(stats.log_prob) * xp.asarray(log_frequency)[stats.tokens], cap)
    return -masked_mean(xp, divergence, first_occurrences(xp, stats))


def _diversity(stats: TokenStats) -> Array:
    """diversity: loss divided by the share of distinct tokens among the scored ones (Chang et al. 2025, CAMIA)."""
    xp = namespace(stats)
    share = masked_mean(xp, first_occurrences(xp, stats), stats.mask)
    return -masked_mean(xp, stats.log_prob, stats.mask) / share


SCORES = (
    Score("loss", "mean negative log-probability of a token", ("log_prob",), loss),
    Score("zlib", "loss divided by the compressed size of the text", ("log_prob",), loss, _zlib),
    Score(
        "min_k",
        "minus the mean of the k least likely tokens' log-probabilities",
        ("log_prob",),
        _min_k,
        checks={"k": _SOME_TOKENS},
        defaults={"k": "0.2"},
    ),
    Score(
        "min_k_plus_plus",
        "as min_k, with log-probabilities standardised by the distribution at their position",
        ("log_prob", "mu", "sigma"),
        _min_k_plus_plus,
        checks={"k": _SOME_TOKENS},
        defaults={"k": "0.2"},
    ),
    Score("m_entropy", "mean modified entropy of a token", ("m_entropy",), _m_entropy),
    Score(
        "max_renyi",
        "mean of the k largest Renyi entropies of order gamma",
        ("mu", "renyi_half", "renyi_two", "renyi_inf"),
        _max_renyi,
        checks={
            "gamma": functools.partial(check_named, "gamma", "the orders are 0.5, 1, 2 and inf", _ORDERS),
            "k": functools.partial(check_fraction, "k", allow_zero=True),
        },
        defaults={"gamma": "0.5", "k": "0.2"},
        reads=lambda parameters: (_FIELD_OF_ORDER[parameters["gamma"]],),
    ),
    Score(
        "acmia",
        "mean change of the log-probability by a temperature, over the first occurrence of each token",
        ("log_prob", "mu", "renyi_half", "renyi_two", "tokens"),
        _acmia,
        checks={"beta": functools.partial(check_named, "beta", "the inverse temperatures are 0.5, 1 and 2", _BETAS)},
        defaults={"beta": "0.5"},
        reads=lambda parameters: ("log_prob", _FIELD_OF_BETA[parameters["beta"]], "tokens"),
    ),
    Score(
        "surp",
        "minus the mean of the k smallest log-probabilities where the model is certain (entropy below a limit)",
        ("log_prob", "mu"),
        _surp,
        checks={"k": _SOME_TOKENS, "entropy": functools.partial(check_positive, "entropy")},
        defaults={"k": "0.2", "entropy": "2"},
    ),
    Score(
        "dc_pdd",
        "minus the mean of p log(1/f), capped, with the frequency f of each token in a corpus",
        ("log_prob", "tokens"),
        _dc_pdd,
        checks={"cap": functools.partial(check_positive, "cap")},
        defaults={"cap": "0.01"},
        corpus=True,
    ),
    Score("diversity", "loss divided by the share of distinct tokens", ("log_prob", "tokens"), _diversity),
)
