"""What a run takes of a node of a Ray cluster."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lra.config.strict_yaml import parse_yaml
from lra.runtime.errors import UserError, nearest
from lra.sweep.launcher import LaunchOptions

RESOURCE = "resources."
"""Start of the names of a cluster's own resources."""
PARAMETERS = {
    "num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory", "accelerator_type": None,
}  # fmt: skip
"""Parameters of a run's task, with the names that Ray gives them among a node's resources."""


def read_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Read what a run asks of a node, and check names and types without a cluster.

    Args:
        texts: num_cpus, num_gpus, memory (bytes), accelerator_type or resources.NAME, each as
            "name=value".
    Raises: UserError naming what is wrong.
    """
    values: dict[str, Any] = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (equals and name):
            raise UserError(f"--cluster {text}: expected NAME=VALUE, for example num_cpus=4")
        is_resource = name.startswith(RESOURCE) and name != RESOURCE
        if name not in PARAMETERS and not is_resource:
            near = nearest(name, PARAMETERS)
            hint = f"; did you mean {near}?" if near else ""
            raise UserError(
                f"--cluster {text}: a run has no parameter {name!r}{hint} (valid: "
                f"{', '.join(PARAMETERS)}, {RESOURCE}NAME)"
            )
        values[name] = parse_yaml(value, f"--cluster {text}")
        is_text = name == "accelerator_type"
        right = (
            isinstance(values[name], str)
            if is_text
            else type(values[name]) in (int, float) and values[name] >= 0
        )
        if not right:
            kind = "a name, for example A100" if is_text else "a number of at least 0"
            raise UserError(f"--cluster {text}: expected {kind}")
    return values


@dataclass(frozen=True)
class Needs:
    """What a run takes of a node."""

    options: Mapping[str, Any]
    """Options of its task."""

    @classmethod
    def choose(cls, options: LaunchOptions, nodes: Sequence[Mapping[str, float]]) -> Needs:
        """Choose what a run takes: GPUs, or a share of one, where the nodes have any; else CPUs.

        Args:
            nodes: resources of each node.
        """
        given = read_parameters(options.parameters)
        values: dict[str, Any] = {"num_cpus": 1}
        if options.device != "cpu" and any(node.get("GPU") for node in nodes):
            many = options.gpus_per_run > 1
            values["num_gpus"] = options.gpus_per_run if many else 1 / options.per_device
        else:
            cpus = min((node["CPU"] for node in nodes if node.get("CPU")), default=1)
            values["num_cpus"] = max(1, int(cpus) // options.per_device)
        values |= {name: value for name, value in given.items() if not name.startswith(RESOURCE)}
        own = {n.removeprefix(RESOURCE): v for n, v in given.items() if n.startswith(RESOURCE)}
        return cls({**values, "resources": own})

    def amounts(self) -> dict[str, float]:
        """Return what a run takes of each resource of a node."""
        named = {key: self.options.get(name) for name, key in PARAMETERS.items() if key}
        return {key: n for key, n in (named | dict(self.options["resources"])).items() if n}

    def count(self, node: Mapping[str, float]) -> int:
        """Count the runs that a node has room for."""
        amounts = self.amounts()
        return int(min((node.get(k, 0) / n + 1e-9 for k, n in amounts.items()), default=1))
