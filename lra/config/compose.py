"""Composing a configuration from settings files and changed settings."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from lra.config.changes import effective_changes
from lra.config.component import Component
from lra.config.mixers import MixerComponent, find_mixer
from lra.config.precedence import read_settings, read_task_settings
from lra.config.registry import Section
from lra.config.request import Change, RunRequest, TaskRequest
from lra.config.schema import LogConfig, ModelConfig, PretrainConfig, RunConfig, TrainConfig
from lra.config.setting_names import check_names
from lra.config.settings_files import CONFIGS
from lra.config.settings_layers import MergedSettings, add_origins, merge_layers
from lra.config.tasks import TaskComponent, find_task
from lra.config.validate import validate_sections
from tasks.base import Task


def compose(request: RunRequest, configs: Path = CONFIGS) -> RunConfig:
    """Compose the configuration of a run, in which each single value is valid.

    Raises: UserError naming the value, its origin, and the valid ones.
    """
    task, mixer = find_task(request.task, "--task"), find_mixer(request.mixer, "--mixer")
    layers, citation = read_settings(task.name, mixer.name, request, configs)
    merged = merge_layers(layers, request.changes)
    types = {
        "task": task.options, "mixer": mixer.options, "model": ModelConfig, "train": TrainConfig,
        "pretrain": PretrainConfig, "log": LogConfig,
    }  # fmt: skip
    components = {"task": task, "mixer": mixer}
    check_names(merged, types, components)
    sections = validate_sections(merged, types, components)
    return RunConfig(
        task_name=task.name,
        mixer_name=mixer.name,
        preset=request.preset,
        protocol=request.protocol,
        **sections,
        origins=merged.origins,
        changed=effective_changes(merged, sections),
        settings_citation=citation,
        mixer_component=mixer,
        task_component=task,
    )


def compose_task(request: TaskRequest, configs: Path = CONFIGS) -> Task:
    """Construct the task that a run of any mixer would use.

    A published preset that only a mixer has uses the data of preset paper.
    Raises: UserError, also for a change of anything but the task.
    """
    task = find_task(request.task, "--task")
    merged = merge_layers(read_task_settings(task.name, request, configs), request.changes)
    options = _options(merged, task, "task", "the data")
    with add_origins(merged.origins):
        return task.build(options)


def compose_options(
    component: MixerComponent | TaskComponent, changes: Iterable[Change], section: str = "mixer"
) -> Section:
    """Compose the options of a mixer or a task alone: defaults, but for changes.

    Args:
        section: mixer or task.
    Raises: UserError, also for a change of anything else.
    """
    return _options(merge_layers((), changes), component, section, f"a {section} alone")


def _options(merged: MergedSettings, component: Component, section: str, what: str) -> Section:
    types, components = {section: component.options}, {section: component}
    check_names(merged, types, components, what)
    return validate_sections(merged, types, components)[section]
