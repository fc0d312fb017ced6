"""The ideal predictor of Periodic: by Bayes' rule from the law, and from nothing else.

It knows the periods that there are, the noise q and the number of tokens V, but neither the word
nor the period of an example. Of period p, position t continues the class of positions s < t with
s = t (mod p). With c(v) for how often token v stands in this class, the token w of the word has

    P(w | x_0 .. x_{t-1}, p) = a**c(w) / sum over v of a**c(v),    a = (1 - q) (V - 1) / q,

as each token that agrees with w is a times likelier than one that does not. So the next one has

    P(x_t | x_0 .. x_{t-1}, p) = P(w = x_t) (1 - q) + (1 - P(w = x_t)) q / (V - 1).

The product over s < t is the likelihood of p, and periods are equally likely at first:

    P(x_t | x_0 .. x_{t-1}) = sum over p of prod over s <= t of P(x_s | x_0 .. x_{s-1}, p)
                              / the same sum with s < t.
"""

from __future__ import annotations

import math

import numpy as np

from tasks.periodic.law import Law

CERTAIN = 800.0
"""log a where there is no noise: exp(-800) is 0, and sums of multiples of 800 are exact."""
NUMBERS_A_CHUNK = 2**21
"""Numbers, of all periods together, that are kept at a time."""


def ideal_bits(tokens: np.ndarray, law: Law) -> np.ndarray:
    """Calculate what the ideal predictor needs, in bits, for each token but the first.

    Its mean over examples is, by position, the least that any predictor can need on average.

    Args:
        tokens: (examples, positions + 1) examples of the law, of any length.
        law: law of the examples; its length has no effect.
    Returns: (examples, positions) float64.
    """
    total = tokens.shape[1]
    rows = max(1, NUMBERS_A_CHUNK // (len(law.periods) * total))
    bits = np.empty((len(tokens), total - 1))
    for start in range(0, len(tokens), rows):
        some = np.asarray(tokens[start : start + rows], dtype=np.int64)
        joint = [_log_probabilities(some, period, law).cumsum(axis=1) for period in law.periods]
        log_likelihoods = np.logaddexp.reduce(joint, axis=0)
        bits[start : start + rows] = -np.diff(log_likelihoods, axis=1) / math.log(2)
    return bits


def _log_probabilities(tokens: np.ndarray, period: int, law: Law) -> np.ndarray:
    """Calculate log P(token | tokens before it, period).

    Args:
        tokens: (examples, total) int64.
        period: of all examples.
        law: law of the examples.
    Returns: (examples, total) float64, at most 0; -inf for what cannot be.
    """
    examples, total = tokens.shape
    repeats = -(-total // period)
    log_a = CERTAIN
    if law.replacement:
        log_a = max(0.0, math.log(1 - law.noise) - math.log(law.replacement))
    with np.errstate(divide="ignore"):
        # The logarithms of a**c, and of a**(c + 1) - a**c, by which a token changes the sum.
        log_powers = log_a * _counts_before(tokens, period, law.vocab_size)
        log_changes = np.zeros((examples, (repeats + 1) * period))
        log_changes[:, :period] = math.log(law.vocab_size)
        log_changes[:, period:][:, :total] = log_powers + log_a + np.log(-np.expm1(-log_a))
        by_class = log_changes.reshape(examples, repeats + 1, period)
        log_sums = np.logaddexp.accumulate(by_class, axis=1).reshape(examples, -1)[:, :total]
        agrees = np.exp(log_powers - log_sums)
        return np.log(agrees * (1 - law.noise) + (1 - agrees) * law.replacement)


def _counts_before(tokens: np.ndarray, period: int, vocab_size: int) -> np.ndarray:
    """Count for each token how often it stands before, a multiple of the period away.

    Args:
        tokens: (examples, total) int64.
        period: of all examples.
        vocab_size: different tokens.
    Returns: (examples, total) int64.
    """
    places = np.arange(tokens.shape[1])
    keys = places % period * vocab_size + tokens
    order = np.argsort(keys, axis=1, kind="stable")
    ordered = np.take_along_axis(keys, order, axis=1)
    is_first = np.diff(ordered, axis=1, prepend=-1) != 0
    firsts = np.maximum.accumulate(np.where(is_first, places, 0), axis=1)
    counts = np.empty_like(keys)
    np.put_along_axis(counts, order, places - firsts, axis=1)
    return counts
