"""Trivial baselines: predictions that need no sequence model, to read accuracies against."""

import warnings

import numpy as np

LARGEST_FIT = 40_000
"""Most training examples that a baseline is fitted to: the first ones in a random order."""


def logistic(features: np.ndarray, labels: np.ndarray, asked: np.ndarray) -> np.ndarray:
    """Predict the classes of asked examples, (questions,) uint8, by a logistic regression.

    Args:
        features: (examples, features) float32, of the training examples.
        labels: (examples,) classes of the training examples.
        asked: (questions, features) float32.
    """
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    if len(np.unique(labels)) == 1:  # nothing to tell apart
        return np.full(len(asked), labels[0], dtype=np.uint8)
    model = make_pipeline(StandardScaler(), LogisticRegression(C=0.1, max_iter=200))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(features, labels)
    return model.predict(asked).astype(np.uint8)


def cross_fitted_trees(features: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Predict every example, (examples,) uint8, by trees fitted to the other half of the examples.

    No prediction has seen its own label, whichever way the examples are split later.

    Args:
        features: (examples, features).
        labels: (examples,) classes.
    """
    from sklearn.ensemble import HistGradientBoostingClassifier

    predictions = np.empty(len(labels), dtype=np.uint8)
    halves = np.arange(len(labels)) % 2
    for half in (0, 1):
        known, asked = halves != half, halves == half
        if len(np.unique(labels[known])) < 2:  # noqa: PLR2004 (nothing to tell apart)
            predictions[asked] = labels[known][:1]
            continue
        model = HistGradientBoostingClassifier(max_iter=200, random_state=0)
        model.fit(features[known], labels[known])
        predictions[asked] = model.predict(features[asked])
    return predictions


def pair_features(bags: np.ndarray, pairs: np.ndarray) -> np.ndarray:
    """Compare bags of bytes (documents, 256) of pairs (n, 2): (n, 512) products and distances."""
    a, b = bags[pairs[:, 0]], bags[pairs[:, 1]]
    return np.concatenate([a * b, np.abs(a - b)], axis=1)
