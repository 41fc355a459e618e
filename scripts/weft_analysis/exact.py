"""Exact intervals for the ratio of two sets of positive numbers, distribution free.

Launches are few (3 to 30), skewed, and some machines have two modes, so neither a normal distribution nor a bootstrap can
be trusted in the tails that a correction for many cells reaches into. Rank statistics hold their level for any
distribution: without a difference every order of the launches is equally likely.

- unpaired: Mann-Whitney. The statistics are the n*m ratios new/base of all pairs of launches; their median is the
  Hodges-Lehmann estimate of the ratio of medians (of the same quantity where one side is the other times a constant, with
  two thirds of the variance that the quotient of two sample medians has for normal noise).
- paired: Wilcoxon's signed ranks, on the Walsh averages sqrt(d_i d_j), i <= j, of the ratios d of the pairs.

Both intervals go from the k-th smallest statistic to the k-th largest, k from the exact null distribution (Hollander and
Wolfe, Nonparametric Statistical Methods, chapters 3 and 4). Ties are counted against a difference.
"""
import functools
import itertools
import math
import statistics

EFFICIENCY = 3 / math.pi  # of rank statistics relative to means, normal noise
POWER = 0.8  # that "detectable" means


@functools.lru_cache(maxsize=None)
def mann_whitney_tail(n, m):
    """[P(U <= k) for k = 0 .. n*m//2]: the coefficients of prod (1 - x^(m+i)) / (1 - x^i), i = 1..n."""
    counts = [1] + [0] * (n * m // 2)
    for i in range(1, n + 1):
        for k in range(len(counts) - 1, m + i - 1, -1):
            counts[k] -= counts[k - m - i]
        for k in range(i, len(counts)):
            counts[k] += counts[k - i]
    total = math.comb(n + m, n)
    return [cumulated / total for cumulated in itertools.accumulate(counts)]


@functools.lru_cache(maxsize=None)
def signed_rank_tail(n):
    """[P(W <= k) for k = 0 .. n(n+1)/4]: the coefficients of prod (1 + x^i), i = 1..n."""
    counts = [1] + [0] * (n * (n + 1) // 4)
    for i in range(1, n + 1):
        for k in range(len(counts) - 1, i - 1, -1):
            counts[k] += counts[k - i]
    return [cumulated / 2**n for cumulated in itertools.accumulate(counts)]


class RatioEstimate:
    """The ratio new/base with its exact test and intervals. All values must be positive and finite.

        estimate = RatioEstimate.of(base, new)
        estimate.ratio, estimate.interval(0.95), estimate.p_value
    """

    def __init__(self, logs, tail, standard_error):
        self._logs, self._tail = sorted(logs), tail
        self.standard_error = standard_error  # of log(ratio), assuming normal noise; None if unknown

    @classmethod
    def of(cls, base, new):
        """Launches that have nothing to do with each other."""
        base, new = [math.log(value) for value in base], [math.log(value) for value in new]
        freedom = len(base) + len(new) - 2
        squares = sum(len(side) * statistics.pvariance(side) for side in (base, new))
        error = math.sqrt(squares / freedom * (1 / len(base) + 1 / len(new)) / EFFICIENCY) if freedom else None
        return cls([b - a for a in base for b in new], mann_whitney_tail(len(base), len(new)), error)

    @classmethod
    def of_pairs(cls, base, new):
        """The i-th of `base` belongs to the i-th of `new`."""
        d = [math.log(b / a) for a, b in zip(base, new, strict=True)]
        error = statistics.stdev(d) / math.sqrt(len(d) * EFFICIENCY) if len(d) > 1 else None
        walsh = [(d[i] + d[j]) / 2 for i in range(len(d)) for j in range(i + 1)]
        return cls(walsh, signed_rank_tail(len(d)), error)

    @property
    def ratio(self):
        return math.exp(statistics.median(self._logs))

    @property
    def p_value(self):
        """Two-sided; the smallest alpha whose interval excludes 1."""
        smaller = min(sum(log <= 0 for log in self._logs), sum(log >= 0 for log in self._logs))
        return min(1.0, 2 * self._tail[smaller]) if smaller < len(self._tail) else 1.0

    def interval(self, level):
        """(low, high) that covers the ratio with at least `level`; (0, inf) where no interval of so few launches does."""
        alpha = (1 - level) * (1 + 1e-9)  # 0.9 must mean 2/20, in spite of rounding
        k = sum(2 * probability <= alpha for probability in self._tail)
        k = min(k, (len(self._logs) + 1) // 2)
        return (math.exp(self._logs[k - 1]), math.exp(self._logs[-k])) if k else (0.0, math.inf)

    def detectable(self, level, threshold):
        """The ratio > 1 that would be found with probability POWER: interval of `level` above 1, estimate above
        1 + threshold. Infinite where no interval of so few launches has that level."""
        low, high = self.interval(level)
        if not low or self.standard_error is None:
            return math.inf
        reach = max(math.log(high / low) / 2, math.log1p(threshold))
        return math.exp(reach + statistics.NormalDist().inv_cdf(POWER) * self.standard_error)


def launches_needed(alpha, paired):
    """Fewest launches a side with which a difference can be found at `alpha` at all."""
    n = 2
    while 2 * (2.0**-n if paired else 1 / math.comb(2 * n, n)) > alpha:
        n += 1
    return n


def holm(p_values, alpha):
    """Holm's procedure: [(rejected, alpha it was judged at)] in the order given. Those that are not rejected are all
    judged at the level at which the procedure stopped, so that "rejected" and "p <= level" say the same."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    result, level, rejecting = [None] * len(order), alpha, True
    for done, index in enumerate(order):
        if rejecting:
            level = alpha / (len(order) - done)
            rejecting = p_values[index] <= level * (1 + 1e-9)
        result[index] = (rejecting, level)
    return result
