"""Connecting to a Ray cluster, or starting Ray on this machine."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from types import ModuleType

from common.cores import core_count
from lra.runtime.errors import UserError

OBJECT_STORE_BYTES = 256 * 2**20
"""Memory for what tasks hand back, where Ray is started on this machine."""

SETTINGS = {"RAY_USAGE_STATS_ENABLED": "0", "RAY_worker_niceness": "0"}
"""Settings of Ray: it sends no statistics, and runs have the usual priority of processes."""

SECONDS_TO_CONNECT = 10.0
SECONDS_TO_ANSWER = 60
"""Time in which a cluster has to accept a connection of Ray."""
_CONNECT = """
import signal, sys
signal.alarm(int(sys.argv[2]))
import ray
ray.init(address=sys.argv[1], log_to_driver=False, configure_logging=False)
"""
"""Program that connects to the cluster at an address, and is killed after some seconds."""


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


def describe_error(error: BaseException) -> str:
    """Return the line of Ray's message that says what happened: of a traceback the last."""
    lines = [line for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    return lines[-1 if "Traceback" in str(error) or "ray::" in lines[0] else 0].strip()


def check_address(address: str) -> None:
    """Make sure that a Ray cluster answers at an address, for which Ray itself would wait long.

    Raises: UserError if none does, or it is not an address.
    """
    if address != "auto":
        host, colon, port = address.rpartition(":")
        if not (host and colon and port.isdecimal()) or "//" in address:
            raise UserError(
                f"--ray-address {address}: expected auto, or HOST:PORT of the head node"
            )
        try:
            socket.create_connection((host, int(port)), SECONDS_TO_CONNECT).close()
        except (OSError, OverflowError) as error:
            raise UserError(f"--ray-address {address}: no answer ({error})") from None
    # In another process, because no signal ends a connection attempt of Ray in this one.
    command = [sys.executable, "-c", _CONNECT, address, str(SECONDS_TO_ANSWER)]
    if subprocess.run(command, capture_output=True, check=False).returncode == -signal.SIGALRM:
        named = os.environ.get("RAY_ADDRESS") if address == "auto" else None
        where = f" at RAY_ADDRESS={named}" if named else ""
        raise UserError(
            f"--ray-address {address}: no Ray cluster answered{where} within {SECONDS_TO_ANSWER} "
            f"seconds; start one with ray start --head, or give the HOST:PORT of its head node"
        )


def _describe_folder() -> str:
    """Say which folder Ray uses, if the environment names one: its path may be too long for it."""
    for name in ("RAY_TMPDIR", "TMPDIR"):
        if name in os.environ:
            return (
                f"; its files are in {name}={os.environ[name]}, which has to be a short path of "
                f"ASCII letters: set RAY_TMPDIR=/tmp"
            )
    return ""


@contextlib.contextmanager
def connected(address: str | None) -> Iterator[None]:
    """Connect to a Ray cluster, or start Ray on this machine.

    Raises: UserError if there is no cluster at the address, or Ray does not start.
    """
    ray = import_ray()
    if address is not None:
        check_address(address)
    quiet = {"log_to_driver": False, "logging_level": logging.ERROR, "configure_logging": False}
    try:
        if address is None:
            ray.init(
                address="local", num_cpus=core_count(), include_dashboard=False,
                object_store_memory=OBJECT_STORE_BYTES, **quiet,
            )  # fmt: skip
        else:
            ray.init(address=address, **quiet)
    except (OSError, RuntimeError, ValueError) as error:
        if address is not None:
            raise UserError(f"--ray-address {address}: {describe_error(error)}") from None
        raise UserError(
            f"Ray does not start: {describe_error(error)}{_describe_folder()}"
        ) from None
    try:
        yield
    finally:
        ray.shutdown()
