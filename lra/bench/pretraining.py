"""Pretraining steps of language models over the layers of their position encoders.

Figure 1b of Moreno et al. (2023): causal models learn the next token, bidirectional ones masked
tokens.
"""

from __future__ import annotations

import argparse
import dataclasses
import itertools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lra.bench.case import Case
from lra.bench.steps import StepCase
from lra.config.request import RunRequest, parse_change, parse_changes
from lra.config.schema import RunConfig
from lra.record.benchmark import OBJECTIVES, Objective
from lra.runtime.cli import name_list, whole_numbers
from lra.runtime.errors import UserError
from lra.train.pretraining import pretraining_data
from tasks.base import Dataset, TaskInfo

MIXERS = "tnn,fd-tnn"
LENGTHS = "512"
RPE_LAYERS = "1,2,3,4,5,6"
TASK = "lm"
_SETTING = "mixer.rpe_layers"


@dataclass(frozen=True, kw_only=True)
class PretrainingCase(StepCase):
    """Training steps of task lm's model, causal or bidirectional, on synthetic tokens.

    A bidirectional model is no run of lm, which refuses it: it is the same model with its masked
    pretraining, so that causality changes once all other settings are composed and checked.
    """

    objective: Objective
    rpe_layers: int
    rounds_rpe_layers: tuple[int, ...]

    def config(self) -> RunConfig:
        """See `StepCase.config`."""
        config = super().config()
        pretrain = config.pretrain.model_copy(update={"objective": self.objective})
        model = config.model.model_copy(update={"causal": self.objective == "next"})
        return dataclasses.replace(config, pretrain=pretrain, model=model)

    def data(self, config: RunConfig) -> tuple[TaskInfo, Dataset]:
        """See `StepCase.data`."""
        info, dataset = pretraining_data(config, *super().data(config))
        # With tied embeddings there is a logit for what stands for masked tokens, too.
        return dataclasses.replace(info, num_classes=info.vocab_size or 0), dataset

    def settings(self) -> dict[str, Any]:
        """See `Case.settings`."""
        return {
            **super().settings(),
            "mode": "pretraining",
            "objective": self.objective,
            "rpe_layers": self.rpe_layers,
            "rounds_rpe_layers": self.rounds_rpe_layers,
        }


def pretraining_cases(options: argparse.Namespace) -> list[list[Case]]:
    """List the models to measure, in a group for each length, which has its own rounds.

    Raises: UserError for layers that --set changes.
    """
    changes = parse_changes(options.overrides)
    for change in changes:
        if f"{change.section}.{change.key}" == _SETTING:
            raise UserError(f"{change.origin}: expected no {_SETTING} there; use --rpe-layers")
    layers = sorted(whole_numbers(options.rpe_layers, "--rpe-layers", 0))
    mixers = name_list(options.mixers, "--mixers")
    return [
        [
            PretrainingCase(
                mixer=mixer,
                device=options.device,
                request=RunRequest(
                    task=TASK,
                    mixer=mixer,
                    preset=options.preset,
                    changes=(
                        *changes,
                        parse_change(f"train.batch_size={options.batch_size}", "--batch-size"),
                        parse_change(f"{_SETTING}={count}", "--rpe-layers"),
                    ),
                ),
                length=length,
                data_dir=Path(),
                objective=objective,
                rpe_layers=count,
                rounds_rpe_layers=tuple(layers),
            )
            for objective, count, mixer in itertools.product(OBJECTIVES, layers, mixers)
        ]
        for length in sorted(whole_numbers(options.lengths, "--lengths", 1))
    ]
