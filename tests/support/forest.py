"""BoostedTrees once more: plain loops over rows, float64, neither histograms nor kept places.

Where the library remembers a row's node, leaf and bins, this walks the trees and compares numbers
anew. Splits are found by trying every threshold on the rows themselves.
"""

import math

import numpy as np

START, LONGEST_WAIT, TURNS, SAMPLE = 32, 2048, 16, 512


def edges(column, filled, count):
    """Return where a column is cut, of which the first ``filled`` values are there."""
    n = min(SAMPLE, len(column))
    rows = [i * max(filled, n) // n for i in range(n)]
    values = sorted(column[i] for i in rows if i < filled and not math.isnan(column[i]))
    most = len(values) // (count + 1) + 1
    counted = [v for i, v in enumerate(values) if i < most or values[i - most] != v]
    cuts = []
    for k in range(1, count + 1):
        above = counted[k * len(counted) // (count + 1)] if counted else None
        below = [v for v in values if above is not None and v < above]
        cuts.append(below[-1] + (above - below[-1]) / 2 if below else -math.inf)
    return cuts


def gain(targets, weights, right, ridge, least):
    """Return what it gains to send some rows right, given what to learn of each and its weight."""
    (h, m), (g, n) = (
        (math.fsum((weights * targets)[side]), math.fsum(weights[side])) for side in (right, ~right)
    )
    if min(n, m) < least:
        return 0.0
    return g**2 / (n + ridge) + h**2 / (m + ridge) - (g + h) ** 2 / (n + m + ridge)


def goes_right(values, threshold, missing_right):
    return np.where(np.isnan(values), missing_right, values > threshold)


def best_split(x, targets, weights, columns, cuts, ridge, least):
    """Return (gain, column, threshold, whether missing values go right); all go left by default.

    Of equal splits the first counts: by the side of missing values, then by threshold, then by
    column.
    """
    best = 0.0, None, math.inf, False
    for missing_right in (False, True):
        for number in range(len(cuts[0]) + 2):
            for j in columns:
                threshold = [-math.inf, *cuts[j], math.inf][number]
                right = goes_right(x[:, j], threshold, missing_right)
                new = gain(targets, weights, right, ridge, least)
                if new > best[0] * (1 + 1e-9) + 1e-12:
                    best = new, j, threshold, missing_right
    return best


class Tree:
    """Nodes from the root on; the children of node i are 2i + 1 and 2i + 2."""

    def __init__(self, depth):
        self.depth, self.nodes, self.values = depth, {}, [0.0] * 2**depth

    def node(self, x, steps):
        i = 0
        for _ in range(steps):
            column, threshold, missing_right = self.nodes.get(i, (0, math.inf, False))
            i = 2 * i + 1 + int(goes_right(x[column], threshold, missing_right))
        return i

    def leaf(self, x):
        return self.node(x, self.depth) - (2**self.depth - 1)

    def value(self, x):
        return self.values[self.leaf(x)]


class Row:
    """A row of the ring: what all trees say of it, and what one of them says."""

    def __init__(self, x, d, w, fitted, old):
        self.x, self.d, self.w, self.fitted, self.old = x, d, w, fitted, old


class Forest:
    """Boosted trees with the settings of a ``jb.BoostedTrees``."""

    def __init__(self, settings, r):
        self.set, self.r = settings, r
        self.slice = min(settings.rows, max(1, settings.work // min(settings.columns, r)))
        self.places = math.ceil(settings.rows / self.slice) * self.slice
        self.trees = [Tree(settings.depth) for _ in range(settings.trees)]
        self.grown = Tree(settings.depth)
        self.ring, self.next = [None] * self.places, 0
        self.cuts = [[-math.inf] * (settings.bins - 2) for _ in range(r)]
        self.gains = np.zeros(r)
        self.mean, self.filled, self.wait, self.turn = 0.0, 0, START, TURNS
        self.level, self.place, self.replaces, self.seen = 0, 0, 0, []
        self.ended = 0  # trees that were completed

    def predict(self, x):
        return self.mean + sum(tree.value(x) for tree in self.trees)

    def learn(self, x, d, weight, columns, other):
        """Learn a row; ``columns`` are those that the tree being grown may look at.

        ``other`` returns the split of a node that the library chose. It is taken where it gains as
        much as the best: rounding decides between splits that part the rows in the same way.
        """
        if math.isnan(d) or weight == 0:
            return
        self.remember(x, d, min(weight, 10.0))
        if self.level == 0 and self.place == 0 and self.turn >= TURNS and self.wait <= 0:
            self.turn, self.wait = 0, min(self.filled, LONGEST_WAIT)
        if self.turn < TURNS:
            self.cut_columns()
        elif self.filled >= START:
            self.grow(columns, other)

    def remember(self, x, d, w):
        values = [tree.value(x) for tree in self.trees]
        error, leaves = d - self.predict(x), [tree.leaf(x) for tree in self.trees]
        if self.filled < START:
            self.mean += (d - self.mean) / (self.filled + 1)
        else:
            for tree, leaf in zip(self.trees, leaves, strict=True):
                tree.values[leaf] += self.set.follow * min(w, 1.0) * error / self.set.trees
        awaited = self.level == 0 and self.next >= self.place
        old = values[self.replaces - 1 if awaited else self.replaces]
        self.ring[self.next] = Row(x, d, w, sum(values), old)
        self.next = (self.next + 1) % self.places
        self.filled = min(self.filled + 1, self.places)
        self.wait -= 1

    def cut_columns(self):
        share = math.ceil(self.r / TURNS)
        for j in range(self.turn * share, min((self.turn + 1) * share, self.r)):
            column = [math.nan if row is None else row.x[j] for row in self.ring]
            self.cuts[j] = edges(column, self.filled, self.set.bins - 2)
        self.turn += 1
        if self.turn * share >= self.r:
            self.turn = TURNS

    def grow(self, columns, other):
        for row in self.ring[self.place : self.place + self.slice]:
            if row is None:
                continue
            if self.level == 0:  # the tree before is in place; this one replaces another
                row.fitted += self.trees[self.replaces - 1].value(row.x) - row.old
                row.old = self.trees[self.replaces].value(row.x)
            residual = row.d - self.mean - row.fitted
            node = self.grown.node(row.x, self.level)
            self.seen.append((node, row.x, residual, row.old, row.w))
        self.place += self.slice
        if self.place >= self.filled:
            self.split(columns, other)

    def split(self, columns, other):
        s = self.set
        for node in range(2**self.level - 1, 2 ** (self.level + 1) - 1):
            rows = [row for number, *row in self.seen if number == node]
            if not rows:
                continue
            x, residual, old, w = map(np.array, zip(*rows, strict=True))
            found = best_split(x, residual + old, w, columns, self.cuts, s.ridge, s.least)
            gained, column, *where = found
            if column is not None:
                right = goes_right(x[:, other(node)[0]], *other(node)[1:])
                gains = gain(residual + old, w, right, s.ridge, s.least)
                if gains > gained * (1 - 1e-9):
                    column, *where = other(node)
                self.grown.nodes[node] = column, *where
                self.gains[column] += gained
        self.level, self.place = self.level + 1, 0
        if self.level == s.depth:
            sums = np.zeros((2**s.depth, 2))
            for _, x, residual, old, w in self.seen:
                sums[self.grown.leaf(x)] += w * (s.rate * residual + s.keep * old), w
            self.grown.values = list(sums[:, 0] / (sums[:, 1] + s.ridge))
            self.trees[self.replaces], self.grown = self.grown, Tree(s.depth)
            self.level, self.replaces = 0, (self.replaces + 1) % s.trees
            self.gains, self.ended = 0.95 * self.gains, self.ended + 1
        self.seen = []
