"""Connecting to a Ray cluster, or starting Ray here, and what a run requests from its nodes."""

from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import ModuleType
from typing import Any

from common.errors import UserError
from common.strict_yaml import parse_yaml
from common.threads import core_count
from lra.sweep.plan import SweepOptions

SECONDS_TO_ANSWER = 60
"""Time in which a cluster has to accept a connection."""
OBJECT_STORE_BYTES = 256 * 2**20
"""Memory of Ray for what processes exchange, where it is started on this machine."""
SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Settings of Ray: it sends no statistics, and runs have the usual priority of processes."""
PARAMETERS = ("num_cpus", "num_gpus", "memory")
"""Numbers that a run may request; more in `read_needs`."""
MOST = 9e14
"""Less than the most that Ray counts of a resource, in units of 0.0001 and 64 bits."""
_CONNECT = "import sys, ray; ray.init(sys.argv[1], log_to_driver=False, configure_logging=False)"


def import_ray() -> ModuleType:
    """Import Ray, with its `SETTINGS`.

    Raises: UserError if it is not installed.
    """
    for variable, value in SETTINGS.items():
        os.environ.setdefault(variable, value)
    try:
        import ray
    except ImportError:
        raise UserError("--launcher ray needs ray: pip install ray") from None
    return ray


def read_needs(texts: Sequence[str]) -> dict[str, Any]:
    """Read what a run requests from a node; checks names and types without a cluster.

    Args:
        texts: num_cpus, num_gpus, memory (bytes), accelerator_type or resources.NAME, each as
            "name=value".
    Returns: options of an actor of Ray.
    Raises: UserError naming what is wrong.
    """
    needs: dict[str, Any] = {"resources": {}}
    for text in texts:
        name, _, value = (part.strip() for part in text.partition("="))
        parsed = parse_yaml(value, f"--cluster {text}")
        # Above 1 Ray takes whole numbers alone.
        is_number = type(parsed) in (int, float) and 0 <= parsed < MOST
        is_number = is_number and (parsed < 1 or parsed == int(parsed))
        if name.startswith("resources.") and is_number:
            needs["resources"][name.removeprefix("resources.")] = parsed
        elif is_number if name in PARAMETERS else name == "accelerator_type":
            needs[name] = parsed
        else:
            raise UserError(
                f"--cluster {text}: expected {', '.join(PARAMETERS)} or resources.NAME, each with "
                f"a share or a whole number, or accelerator_type=NAME"
            )
    try:
        import_ray().remote(type("Run", (), {})).options(**needs)
    except (ValueError, TypeError) as error:
        raise UserError(f"--cluster {' '.join(texts)}: {error}") from None
    return needs


def choose_needs(options: SweepOptions, nodes: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Choose what a run requests: GPUs, or a share of one, where nodes have any; else CPUs.

    Args:
        options: device cuda requests a GPU also where no node has one yet.
        nodes: resources of each node.
    Returns: options of an actor of Ray.
    """
    needs: dict[str, Any] = {"num_cpus": 1}
    has_gpu = options.device == "auto" and any(node.get("GPU") for node in nodes)
    if options.device == "cuda" or has_gpu:
        # Ray counts shares in units of 0.0001.
        share = (10_000 // options.per_device) / 10_000
        needs["num_gpus"] = options.gpus_per_run if options.gpus_per_run > 1 else share
    else:
        cpus = min((node["CPU"] for node in nodes if node.get("CPU")), default=1)
        needs["num_cpus"] = max(1, int(cpus) // options.per_device)
    return needs | read_needs(options.cluster)


@contextlib.contextmanager
def connected(address: str | None, messages: Path) -> Iterator[None]:
    """Connect to a Ray cluster, or start Ray on this machine.

    Args:
        messages: file for what Ray prints.
    Raises: UserError if there is no cluster at the address, or Ray does not start.
    """
    ray = import_ray()
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    logging.getLogger("ray").setLevel(logging.ERROR)  # it warns of tokens before each sweep
    try:
        with messages.open("a") as file, redirect_stdout(file):
            if address is None:
                ray.init(
                    address="local", num_cpus=core_count(), include_dashboard=False,
                    object_store_memory=OBJECT_STORE_BYTES, **quiet,
                )  # fmt: skip
            else:
                check_address(address)
                ray.init(address=address, **quiet)
            yield
    except (OSError, RuntimeError, ValueError) as error:
        if ray.is_initialized():
            raise
        what = "Ray does not start" if address is None else f"--ray-address {address}"
        raise UserError(f"{what}: {describe_error(error)}") from None
    finally:
        ray.shutdown()


def check_address(address: str) -> None:
    """Make sure that a Ray cluster answers at an address.

    Another process tries, because no signal ends a connection attempt of Ray in this one.

    Raises: UserError if none does.
    """
    command = [sys.executable, "-c", _CONNECT, address]
    try:
        subprocess.run(command, capture_output=True, check=True, timeout=SECONDS_TO_ANSWER)
    except subprocess.TimeoutExpired:
        reason = f"within {SECONDS_TO_ANSWER} seconds"
    except subprocess.CalledProcessError as error:
        reason = f"({error.stderr.decode(errors='replace').strip().splitlines()[-1]})"
    else:
        return
    raise UserError(
        f"--ray-address {address}: no Ray cluster answered {reason}; start one with ray start "
        f"--head, or give the HOST:PORT of its head node, or auto on a machine of the cluster"
    )


def describe_error(error: BaseException) -> str:
    """Return the line of Ray's message that says what happened: of a traceback the last."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if "Traceback" in str(error) or "ray::" in lines[0] else 0].strip()
