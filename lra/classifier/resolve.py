"""The configuration of a run, composed and then checked by building its parts."""

from __future__ import annotations

from pathlib import Path

from lra.classifier.axes import build_layers
from lra.classifier.classifier import input_length
from lra.classifier.plugin_check import check_plug_in
from lra.classifier.unfit_settings import refuse_unfit_settings
from lra.config.compose import compose, name_origins
from lra.config.request import RunRequest
from lra.config.schema import RunConfig
from lra.config.settings_files import CONFIGS
from models.base import MixerContext


def resolve(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run, and check it by building its task and first mixers.

    A plug-in is also applied to data.

    Raises: UserError as `compose`, and for options that contradict one another.
    """
    config = compose(request, configs)
    with name_origins(config.origins):
        info = config.build_task().info
        model, length = config.model, input_length(config, info)
        # With alternate axes, blocks see rows and columns, whose lengths may differ.
        different = min(model.depth, 2 if model.axes == "alternate" else 1)
        mixers = list(build_layers(config, info, length, different))
        refuse_unfit_settings(config, request.changes, info)
        grid = None if model.axes == "flat" else info.grid
        context = MixerContext.of(dim=model.dim, length=length, causal=model.causal, grid=grid)
        check_plug_in(config.mixer_component, mixers[0], context)
    return config
