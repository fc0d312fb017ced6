"""What every command owes to whoever gives it nonsense, or something hostile."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from forked import Ended, Forked

DOCUMENTED = {
    "lra.run_task": {0, 2, 3, 4, 5, 6, 130},
    "lra.report.__main__": {0, 1, 2, 130},
    "lra.record.__main__": {0, 1, 2, 130},
    "lra.sweep.__main__": {0, 1, 2, 3, 130},
    "lra.evaluate": {0, 2, 5, 130},
    "lra.generate": {0, 2, 5, 130},
    "lra.submit": {0, 1, 2, 5, 130},
    "lra.prepare": {0, 2, 5, 130},
    "lra.bench.__main__": {0, 2, 5, 130},
    "lra.check.__main__": {0, 1, 2, 5, 130},
}
"""Exit codes that the help of a command names."""

MOST_MIB = 400.0
MOST_SECONDS = 20.0
LONGEST_LINE = 1000


@dataclass(frozen=True)
class Place:
    """Where a case works: `folder` is its own, `outside` must stay as it is."""

    root: Path
    forked: Forked

    @property
    def folder(self) -> Path:
        """Where the command works."""
        return self.root / "own"

    @property
    def outside(self) -> Path:
        """What nobody must touch."""
        return self.root / "outside"

    @property
    def canary(self) -> Path:
        """A file that is there once hostile code has been run."""
        return self.root / "executed"

    def attack(
        self,
        command: str,
        arguments: Sequence[str],
        codes: Collection[int] = (2,),
        *,
        says: str = "",
        **limits: object,
    ) -> Ended:
        """Run a command and hold it to its promises.

        Args:
            codes: exit codes that are right here.
            says: what standard error must hold.
            limits: see `Forked.run`.
        """
        before = self._outside()
        ended = self.forked.run(command, arguments, self.folder, **limits)  # pyright: ignore
        shown = (
            f"{command} {' '.join(map(repr, arguments))}\n{ended.err[-3000:]}\n{ended.out[-500:]}"
        )
        assert not ended.hung, f"still at work after {ended.seconds:.0f} s: {shown}"
        assert "Traceback" not in ended.err, shown
        assert ended.code in DOCUMENTED[command], (ended.code, shown)
        assert ended.code in codes, (ended.code, shown)
        self._check_messages(ended, shown, limits)
        assert says in ended.err, shown
        assert ended.peak_mib < MOST_MIB, (ended.peak_mib, shown)
        assert ended.seconds < MOST_SECONDS, (ended.seconds, shown)
        assert not self.canary.exists(), f"hostile code was run: {shown}"
        assert self._outside() == before, f"something outside was changed: {shown}"
        return ended

    @staticmethod
    def _check_messages(ended: Ended, shown: str, limits: Mapping[str, object]) -> None:
        lines = [re.split(r"\r", line)[-1] for line in ended.err.splitlines()]
        errors = [line for line in lines if re.match(r"[\w. -]+: error: ", line)]
        assert len(errors) <= 1, shown
        assert errors or ended.code not in {2, 6, 130} or "largest_file" in limits, shown
        for line in lines:
            assert len(line) <= LONGEST_LINE, (len(line), shown)
        for text in (ended.err, ended.out):
            assert re.sub(r"[\r\n]", "", text).isprintable(), repr(shown)

    def _outside(self) -> dict[str, tuple[int, int, int]]:
        return {
            str(path): (path.lstat().st_mode, path.lstat().st_size, path.lstat().st_mtime_ns)
            for path in self.outside.rglob("*")
        }
