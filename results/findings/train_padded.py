r"""Train with padding mixed in, and measure what a batch then does to the logits of one example.

Each sequence is padded to the longest one of its batch with token 0. Mixers and batch norm treat
padding like any other position, and pooling reads the real positions alone, as in most public code
for the Long Range Arena. The suite itself never computes padded positions.

    python -m results.findings.train_padded --results-dir results/findings/padding --task text \
        --mixer s4 --preset budget

The arguments are those of run_task.py. The run is saved under the label "padding mixed in", in a
results folder that has no ordinary run of the same settings.

    python -m results.findings.train_padded --logits RUN

This compares the logits of an example alone with those that it has in a batch with the longest
example, for a run of either kind.
"""

import sys
from pathlib import Path

import numpy as np
import torch
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence

import lra
from lra import run_task
from lra.classifier.classifier import Classifier, pool
from lra.runtime.cli import run_command
from lra.runtime.console import write_out

LABEL = "padding mixed in"
EXAMPLES = 500
"""Test examples whose logits are compared."""


class PaddedClassifier(Classifier):
    """A classifier of padded batches, which does not know which positions are padding."""

    def forward(self, inputs: Tensor, lengths: Tensor, scored: Tensor | None = None) -> Tensor:
        """Compute the logits of a batch; arguments as for `Classifier`."""
        each = lengths.flatten()
        longest = int(each.max())
        padded = pad_sequence(list(inputs.split(each.tolist())), batch_first=True)
        x, packing = self.embedding(padded.flatten(), torch.full_like(each, longest))
        for block in self.blocks:
            x = block(x, packing)
        if self.norm is not None:
            x = self.norm(x)
        is_real = torch.arange(longest) < each[:, None]
        features = pool(x.view(len(each), longest, -1), is_real.to(x.device), self.pooling)
        return self.classify(features, len(lengths))


def compare_logits(folder: Path) -> str:
    """Compute test examples alone and beside the longest one, and describe how logits differ."""
    run = lra.load(folder)
    if run.record.label == LABEL:
        weights = run.model.state_dict()
        run.model = PaddedClassifier(run.config, run.config.build_task().info).eval()
        run.model.load_state_dict(weights)
    longest = int(run.dataset.splits["test"].lengths.argmax())
    alone = np.stack([run.logits("test", [i])[0] for i in range(EXAMPLES)])
    beside = np.stack([run.logits("test", [i, longest])[0] for i in range(EXAMPLES)])
    change = np.abs(alone - beside).max(axis=1)
    other = (alone.argmax(axis=1) != beside.argmax(axis=1)).mean()
    return (
        f"{EXAMPLES} test examples alone and beside the longest one: the largest difference of a "
        f"logit is {np.median(change):.2g} (median) and {change.max():.2g} (maximum), where logits "
        f"have a standard deviation of {alone.std(axis=0).mean():.2g}; {100 * other:.1f} % of the "
        f"predictions differ"
    )


def main(arguments: list[str]) -> int:
    """Train with padded batches, or compare the logits of a run, --logits FOLDER."""
    if arguments[:1] == ["--logits"]:
        write_out(f"{compare_logits(Path(arguments[1]))}\n")
        return 0
    options = run_task.parse_arguments([*arguments, "--label", LABEL])
    return run_command("train_padded", lambda: run_task.run(options, PaddedClassifier))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
