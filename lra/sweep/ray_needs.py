"""What a run requests from a node of a Ray cluster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from common.strict_yaml import parse_yaml
from lra.runtime.errors import UserError, nearest
from lra.sweep.launcher import LaunchOptions

SMALLEST_SHARE = 0.0001
"""Smallest share of a resource that Ray counts."""
LARGEST = int(2**63 * SMALLEST_SHARE)
"""Most of a resource that Ray counts: 64-bit integers hold the number of smallest shares."""
RESOURCE = "resources."
"""Start of the names of a cluster's own resources."""
ACCELERATOR = "accelerator_type:"
"""Start of the name that Ray gives a kind of accelerator among a node's resources."""
PARAMETERS = {
    "num_cpus": "CPU", "num_gpus": "GPU", "memory": "memory", "accelerator_type": None,
}  # fmt: skip
"""Parameters of a run's task, with the names that Ray gives them among a node's resources."""


def read_parameters(texts: Sequence[str]) -> dict[str, Any]:
    """Read what a run requests from a node; checks names and types without a cluster.

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
        own = name.removeprefix(RESOURCE)
        is_resource = name.startswith(RESOURCE) and own not in ("", *PARAMETERS.values())
        if name not in PARAMETERS and not is_resource:
            near = nearest(name, PARAMETERS)
            hint = f"; did you mean {near}?" if near else ""
            raise UserError(
                f"--cluster {text}: a run has no parameter {name!r}{hint} (valid: "
                f"{', '.join(PARAMETERS)}, {RESOURCE}NAME)"
            )
        values[name] = parse_yaml(value, f"--cluster {text}")
        if (expected := _expected(name, values[name])) is not None:
            raise UserError(f"--cluster {text}: expected {expected}")
    return values


def _expected(name: str, value: object) -> str | None:
    """Say what the value of a parameter should have been; None if it is right."""
    if name == "accelerator_type":
        return None if isinstance(value, str) else "a name, for example A100"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= LARGEST:
        return f"a number from 0 to {LARGEST:.2g}"
    if name == "memory" or value == 0 or value == int(value):
        return None
    return None if SMALLEST_SHARE <= value < 1 else f"a whole number, or {SMALLEST_SHARE} to 1"


@dataclass(frozen=True)
class Needs:
    """What a run requests from a node."""

    options: Mapping[str, Any]
    """Options of its task."""

    @classmethod
    def choose(cls, options: LaunchOptions, nodes: Sequence[Mapping[str, float]]) -> Needs:
        """Choose what a run requests: GPUs, or a share of one, where nodes have any; else CPUs.

        Args:
            options: device cuda requests a GPU also where no node has one yet.
            nodes: resources of each node.
        """
        given = read_parameters(options.parameters)
        values: dict[str, Any] = {"num_cpus": 1}
        has_gpu = options.device == "auto" and any(node.get("GPU") for node in nodes)
        if options.device == "cuda" or has_gpu:
            share = math.floor(1 / options.per_device / SMALLEST_SHARE) * SMALLEST_SHARE
            values["num_gpus"] = options.gpus_per_run if options.gpus_per_run > 1 else share
        else:
            cpus = min((node["CPU"] for node in nodes if node.get("CPU")), default=1)
            values["num_cpus"] = max(1, int(cpus) // options.per_device)
        values |= {name: value for name, value in given.items() if not name.startswith(RESOURCE)}
        own = {n.removeprefix(RESOURCE): v for n, v in given.items() if n.startswith(RESOURCE)}
        return cls({**values, "resources": own})

    @property
    def device(self) -> str:
        """The device of a run, as --device of run_task.py."""
        return "cuda" if self.options.get("num_gpus") else "cpu"

    def amounts(self) -> dict[str, float]:
        """Return what a run requests of each resource of a node."""
        named = {key: self.options.get(name) for name, key in PARAMETERS.items() if key}
        return {key: n for key, n in (named | dict(self.options["resources"])).items() if n}

    def count(self, node: Mapping[str, float]) -> int:
        """Count the runs that a node has room for."""
        kind = self.options.get("accelerator_type")
        if kind is not None and f"{ACCELERATOR}{kind}" not in node:
            return 0
        amounts = self.amounts()
        return int(min((node.get(k, 0) / n + 1e-9 for k, n in amounts.items()), default=1))

    def describe(self, node: Mapping[str, float] | None = None) -> str:
        """Describe what a run requests from a node, or what a node has of that."""
        kind = self.options.get("accelerator_type")
        amounts = self.amounts() | ({f"{ACCELERATOR}{kind}": 1} if kind else {})
        found = amounts if node is None else {name: node.get(name, 0) for name in amounts}
        return ", ".join(f"{n:g} {name}" for name, n in found.items())

    def refuse_too_much(self, nodes: Sequence[Mapping[str, float]]) -> None:
        """Refuse what none of these nodes has, where no other node can join.

        Raises: UserError saying what a run requests, and what there is.
        """
        if any(map(self.count, nodes)):
            return
        found = "; or ".join(map(self.describe, nodes))
        raise UserError(
            f"a run takes {self.describe()}, and this machine has {found}; change --cluster, "
            f"--device or --gpus-per-run, or give a larger cluster with --ray-address"
        )
