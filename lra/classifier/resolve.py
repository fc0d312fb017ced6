"""The configuration of a run, composed and then checked by building its parts."""

from __future__ import annotations

from pathlib import Path

from lra.classifier.axes import build_layers
from lra.classifier.classifier import input_length
from lra.classifier.plugin_check import check_plug_in
from lra.classifier.position_targets import refuse_unfit, refuse_unfit_pretraining
from lra.config.changes import refuse_idle
from lra.config.compose import compose
from lra.config.request import RunRequest
from lra.config.schema import RunConfig
from lra.config.settings_files import CONFIGS
from lra.config.settings_layers import add_origins
from models.base import MixerContext


def resolve(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run and check it.

    Raises: UserError as `compose`, and for options that contradict one another.
    """
    config = compose(request, configs)
    with add_origins(config.origins):
        refuse_idle(request.changes, config)
        _build(config)
    return config


def _build(config: RunConfig) -> None:
    """Construct the task and the first mixers, for checks of several options together.

    A plug-in is also applied to data.
    """
    info = config.build_task().info
    length = input_length(config, info)
    model = config.model
    # With alternate axes, blocks see rows and columns, whose lengths may differ.
    different = min(model.depth, 2 if model.axes == "alternate" else 1)
    mixers = list(build_layers(config, info, length, different))
    refuse_unfit(config, info)
    refuse_unfit_pretraining(config, info)
    grid = None if model.axes == "flat" else info.grid
    context = MixerContext.of(dim=model.dim, length=length, causal=model.causal, grid=grid)
    check_plug_in(config.mixer_component, mixers[0], context)
