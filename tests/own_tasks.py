"""Files with tasks of a user's own, for tests."""

PARITY = '''
class Parity:
    """Is the number of ones even? length: positions of the longest sequence."""

    def __init__(self, *, length: int = 24, train: int = 200, val: int = 40, test: int = 50):
        self.length = length
        self.sizes = {"train": train, "val": val, "test": test}

    def examples(self, split, rng):
        lengths = rng.integers(self.length // 2, self.length + 1, self.sizes[split])
        sequences = [rng.integers(0, 2, n) for n in lengths]
        return sequences, [int(s.sum()) % 2 for s in sequences]
'''

SAME = '''
class Same:
    """Are two sequences the same? with metadata."""

    num_classes, max_length, vocab_size, towers = 2, 12, 7, 2

    def examples(self, split, rng):
        pairs, labels, first = [], [], []
        for _ in range(60):
            a = rng.integers(0, 7, rng.integers(3, 13)).tolist()
            equal = bool(rng.integers(2))
            pairs.append((a, a if equal else rng.integers(0, 7, 5).tolist()))
            labels.append(equal)
            first.append("low" if a[0] < 4 else "high")
        return pairs, labels, {"first": first, "sum": [sum(a) for a, _ in pairs]}
'''

WAVES = '''
class Waves:
    """Which of three frequencies has a wave of two channels?"""

    def examples(self, split, rng):
        import numpy as np

        labels = rng.integers(0, 3, 48)
        at = np.arange(20)[None, :, None] / 20
        phase = rng.uniform(0, 6, (48, 1, 2))
        return np.sin(6.28 * (1 + labels[:, None, None]) * at + phase), labels
'''

IMAGES = '''
class Images:
    """Is the upper half brighter? on a grid."""

    grid = (4, 6)

    def examples(self, split, rng):
        images = rng.normal(size=(40, 24))
        return images, images[:, :12].sum(axis=1) > images[:, 12:].sum(axis=1)
'''

LAST = '''
class Last:
    """Say at the last position how many ones there are, modulo 3."""

    def examples(self, split, rng):
        sequences = [rng.integers(0, 2, rng.integers(3, 9)) for _ in range(40)]
        return sequences, [[-1] * (len(s) - 1) + [int(s.sum()) % 3] for s in sequences]
'''

LEVELS = '''
class Levels:
    """How high is each of two noisy sequences, in the mean?"""

    def __init__(self, *, length: int = 16, train: int = 200):
        self.length, self.train = length, train

    def examples(self, split, rng):
        count = self.train if split == "train" else 60
        levels = rng.normal(size=(count, 2))
        noise = rng.normal(size=(count, self.length, 2))
        return levels[:, None] + noise, [1e6, 0] + [300, 0.02] * levels
'''

TAGS = '''
from lra.tasks.goals import ExampleLabels


class Tags:
    """Which of the tokens 1 to 3 occur?"""

    goal = ExampleLabels(3)

    def __init__(self, *, length: int = 12, train: int = 200):
        self.length, self.train = length, train

    def examples(self, split, rng):
        count = self.train if split == "train" else 60
        sequences = rng.integers(0, 12, (count, self.length))
        return sequences, [[token in s for token in (1, 2, 3)] for s in sequences]
'''

OWN_TASKS = {
    "Parity": PARITY, "Same": SAME, "Waves": WAVES, "Images": IMAGES, "Last": LAST,
    "Levels": LEVELS, "Tags": TAGS,
}  # fmt: skip
"""Each kind of inputs and of labels, by the name of the class."""
