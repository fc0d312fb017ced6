"""The mixer or task of a run: its class, where it comes from, and errors that its code raises."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import chdir, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from lra.config.plugin_code import describe_error
from lra.config.registry import Section
from lra.runtime.environment import is_out_of_memory
from lra.runtime.errors import UserError
from models.promises import BrokenPromise
from tasks.errors import KnownError


@dataclass(frozen=True, kw_only=True)
class Component:
    """A class, registered or a plug-in: of a user's own file or module."""

    spec: str
    """What the flag said."""
    name: str
    """What records, folders and tables call it: a plug-in by its class."""
    cls: type[Any]
    options: type[Section]
    flag: str
    """The flag that said it."""
    code: str | None = None
    """Start of the SHA-256 of a plug-in's file; None for a registered class."""
    file: str | None = None
    """The file that defines a plug-in's class."""

    @property
    def origin(self) -> str:
        """What errors begin with: the flag and what it said."""
        return f"{self.flag} {self.spec}"

    @contextmanager
    def explain_errors(self, what: str) -> Iterator[None]:
        """Turn whatever a plug-in's code raises, `sys.exit` too, into a UserError that names it.

        Errors that explain themselves pass, and so do interruptions, too little memory, and errors
        of the file system that did not come through its file. With a registered class all pass.
        Afterwards the working directory is what it was before.

        Args:
            what: what it means, "its constructor failed" for instance.
        Raises: UserError naming the plug-in, the error and its place, or the promise that it broke.
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
