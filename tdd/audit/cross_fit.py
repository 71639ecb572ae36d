"""Cross-fitted logistic regression for many labellings of the same texts at once.

With fixed features only the labels change from one labelling to the next, so all of them share the factorisation of
one similarity matrix a fold. In the dual, f = G a + b; the loss log(1 + exp(-+f)) lies below a parabola of curvature
1/4 (Böhning & Lindsay 1988), so iterating the ridge regression of z = f + 4 (y - sigmoid(f)) on the features
converges to the logistic fit, and one step for all labellings is one matrix product.
"""

from __future__ import annotations

import numpy as np

__all__ = ["fold_wins", "logistic_scores"]

_MAX_STEPS = 100
_TOLERANCE = 1e-4


def fold_wins(similarities: np.ndarray, labels: np.ndarray, fold: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Pairs that the classifier of the other folds orders rightly, by fold and labelling.

    Args:
      similarities: [N, N] inner products of the features.
      labels: [N, P] labels 0 and 1, one labelling a column.
      fold: [N] fold of each row; every fold holds both labels in every labelling, or counts no pair.

    Returns:
      wins [folds, P] (a tie counts one half) and pairs [folds, P]; AUC = wins / pairs.

    Cost: for each fold one inverse of size N and up to 100 products [N, N] x [N, P].
    """
    from scipy.stats import rankdata

    wins, pairs = [], []
    for held_out in np.unique(fold):
        test, train = np.flatnonzero(fold == held_out), np.flatnonzero(fold != held_out)
        scores = logistic_scores(similarities[np.ix_(train, train)], labels[train], similarities[np.ix_(test, train)])
        positive = labels[test] == 1
        num_positive = positive.sum(axis=0).astype(np.float64)
        rank_sum = np.where(positive, rankdata(scores, axis=0), 0.0).sum(axis=0)
        wins.append(rank_sum - num_positive * (num_positive + 1) / 2)
        pairs.append(num_positive * (test.size - num_positive))
    return np.stack(wins), np.stack(pairs)


def logistic_scores(train: np.ndarray, labels: np.ndarray, test: np.ndarray, *, penalty: float = 1.0) -> np.ndarray:
    """Log-odds of label 1 for test rows under penalised logistic regression with a free intercept.

    Minimises sum of log-losses + penalty/2 ||w||^2 (scikit-learn's C is 1/penalty) for every column of `labels`.

    Args:
      train: [N, N] inner products of training rows.
      labels: [N, P] labels 0 and 1.
      test: [M, N] inner products of test with training rows.
      penalty: of the squared norm of the weights.

    Returns:
      [M, P] log-odds.
    """
    from scipy.special import expit

    column_mean = train.mean(axis=0)
    grand_mean = column_mean.mean()
    centred = train - column_mean - column_mean[:, None] + grand_mean
    centred_test = test - column_mean - test.mean(axis=1, keepdims=True) + grand_mean
    ridge = 4.0 * penalty
    inverse = np.linalg.inv(centred.astype(np.float64) + ridge * np.eye(len(train))).astype(train.dtype)
    smoother = np.eye(len(train), dtype=train.dtype) - train.dtype.type(ridge) * inverse

    labels = labels.astype(train.dtype)
    log_odds = np.zeros_like(labels)
    for _ in range(_MAX_STEPS):
        target = log_odds + 4 * (labels - expit(log_odds))
        intercept = target.mean(axis=0)
        updated = smoother @ (target - intercept) + intercept
        change = np.max(np.abs(updated - log_odds))
        log_odds = updated
        if change < _TOLERANCE:
            break
    target = log_odds + 4 * (labels - expit(log_odds))
    intercept = target.mean(axis=0)
    return centred_test @ (inverse @ (target - intercept)) + intercept
