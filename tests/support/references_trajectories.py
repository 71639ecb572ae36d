"""Statistics of labellings and the rule of slots by their definitions: loops over items, rows and levels."""

import math
from fractions import Fraction

import numpy as np

CELLS = 4_096


def rank_cells(values, real):
    """Mid-rank of each real item in steps: floor(CELLS (2 #below + #equal) / 2n), None elsewhere."""
    known = [values[i] for i in range(len(values)) if real[i]]
    cells = []
    for i, value in enumerate(values):
        if not real[i]:
            cells.append(None)
            continue
        below, equal = sum(v < value for v in known), sum(v == value for v in known)
        cells.append(math.floor(Fraction(CELLS * (2 * below + equal), 2 * len(known))))
    return cells


def item_score(name, cell):
    q = (cell + 0.5) / CELLS
    if name == "rank_sum":
        return math.floor(CELLS * (0.5 - q))
    return round(CELLS / math.sqrt(12) * (math.log(q) ** 2 - 2) / math.sqrt(20))


def set_statistics(scores, labels, baseline=None, mask=None, statistic="combined"):
    """[K] int, in exact arithmetic from the ranks on."""
    values = np.asarray(scores, float)
    real = np.isfinite(values) & (True if mask is None else mask)
    if baseline is not None:
        x = np.asarray(baseline, float)
        real &= np.isfinite(x)
        if real.sum() > 1 and np.ptp(x[real]) > 0:
            design = np.stack([np.ones(real.sum()), x[real]], axis=1)
            fit = np.linalg.lstsq(design, values[real], rcond=None)[0]
        else:
            fit = np.array([values[real].mean() if real.any() else 0, 0.0])
        values = values - fit[0] - fit[1] * x
        values[np.abs(values) < 1e-5] = 0
    cells = rank_cells(values, real)
    results = []
    for name in ("rank_sum", "tail") if statistic == "combined" else (statistic,):
        item = [0 if cell is None else item_score(name, cell) for cell in cells]
        mean = sum(item) // max(int(real.sum()), 1)
        item = [a - mean if known else 0 for a, known in zip(item, real, strict=True)]
        results.append([sum(a for a, suspect in zip(item, row, strict=True) if suspect) for row in labels])
    return np.array(results).max(axis=0)


def grid(num_rows, alpha=None):
    """Levels from 1 downward, as fractions."""
    digits = (1_000, 800, 600, 500, 400, 300, 250, 200, 150, 125)
    levels = {Fraction(d, 1_000 * 10**k) for k in range(12) for d in digits}
    levels |= set() if alpha is None else {Fraction(alpha)}
    return sorted((level for level in levels if level * num_rows >= 1), reverse=True)


def crossings(paths, shares, alpha=None):
    """[T, K] lowest level crossed by each row after each look, one row and one level at a time.

    Rows come from the most extreme downward, those that tie together: they move to the lowest level that has room for
    all of them on the way.
    """
    num_rows = len(paths[0])
    levels = grid(num_rows, alpha)
    place = [0] * num_rows
    history = []
    for statistics, share in zip(paths, shares, strict=True):
        share = Fraction(math.floor(Fraction(float(share)) * 2**24), 2**24)
        room = [math.floor(level * share * num_rows) for level in levels]
        for j in range(1, len(levels)):
            room[j] -= sum(p >= j for p in place)
        for j in range(1, len(levels)):  # a level is open until a group does not fit
            for value in sorted(set(statistics), reverse=True):
                group = [b for b in range(num_rows) if statistics[b] == value and place[b] == j - 1]
                if len(group) > room[j]:
                    break
                room[j] -= len(group)
                for b in group:
                    place[b] = j
        history.append([levels[p] for p in place])
    return history
