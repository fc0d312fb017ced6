"""The mixer or task of a run: its class, its origin, and the errors that its code raises."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from common.errors import KnownError
from lra.config.plugin_code import describe_error
from lra.config.registry import Section
from lra.runtime.environment import is_out_of_memory
from lra.runtime.errors import UserError
from models.promises import BrokenPromise


@dataclass(frozen=True, kw_only=True)
class Component:
    """A class of the suite, or a plug-in: a class in a user's own file or module."""

    spec: str
    """Value of the flag: a name, or the place of a plug-in."""
    name: str
    """Name in records, folders and tables; of a plug-in that of its class."""
    cls: type[Any]
    options: type[Section]
    flag: str
    """The flag that named the class."""
    code: str | None = None
    """Start of the SHA-256 of a plug-in's file; None for a registered class."""
    file: str | None = None
    """The file that defines a plug-in's class."""

    @property
    def origin(self) -> str:
        """Start of error messages: the flag and its value."""
        return f"{self.flag} {self.spec}"

    @contextmanager
    def explain_errors(self, what: str) -> Iterator[None]:
        """Turn whatever a plug-in's code raises, `sys.exit` included, into a UserError.

        Some errors are raised as they are: errors that explain themselves, interrupts, running out
        of memory, errors of the file system outside of the plug-in's code, and all errors of the
        suite's own classes. Afterwards the working directory is the same as before.

        Args:
            what: the consequence of an error, "its constructor failed" for instance.
        Raises: UserError naming the plug-in, the error and its line, or the promise that it broke.
        """
        try:
            with nullcontext() if self.file is None else chdir("."):
                yield
        except (KnownError, KeyboardInterrupt, GeneratorExit):
            raise
        except BrokenPromise as error:
            raise UserError(f"{self.origin}: {error}") from None
        except BaseException as error:
            if (
                self.file is None
                or is_out_of_memory(error)
                or _is_file_system_error(error, self.file)
            ):
                raise
            raise UserError(f"{self.origin}: {what}: {describe_error(error, self.file)}") from error


def _is_file_system_error(error: BaseException, file: str) -> bool:
    """Whether an error is one of the file system that did not pass through a file of code."""
    if not isinstance(error, OSError) or error.errno is None:
        return False
    return all(file != frame.filename for frame in traceback.extract_tb(error.__traceback__))
