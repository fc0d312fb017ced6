"""A run's mixer: a registered name, or a class of the user's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lra.config.plugin import Kind, find
from lra.config.registry import MIXERS, Section
from lra.config.source import Source
from lra.runtime.errors import UserError
from models.base import Mixer, MixerContext

MIXER = Kind(
    registry=MIXERS,
    fits=lambda cls: issubclass(cls, nn.Module),
    expected="a subclass of torch.nn.Module",
    first=("context",),
)


@dataclass(frozen=True, kw_only=True)
class MixerSource(Source):
    """A mixer's class and where it is from.

    A plug-in's need not be a subclass of `Mixer`; `check_plug_in` looks whether it behaves as one.
    """

    cls: type[Mixer]

    def build(self, context: MixerContext, options: Section) -> Mixer:
        """Construct the mixer of one block.

        Raises: UserError for options that contradict one another or the context, and for
            whatever the constructor of a plug-in raises.
        """
        with self.faults_named("its constructor failed"):
            try:
                return self.cls(context, **dict(options))
            except ValueError as error:
                raise UserError(f"mixer {self.name}: {error}") from None

    def share(self, context: MixerContext, options: Section) -> nn.Module | None:
        """Build what the mixers of all blocks have in common, see `Mixer.shared`.

        Raises: UserError as `build`.
        """
        if not issubclass(self.cls, Mixer):
            return None
        with self.faults_named("its `shared` failed"):
            try:
                return self.cls.shared(context, **dict(options))
            except ValueError as error:
                raise UserError(f"mixer {self.name}: {error}") from None


def find_mixer(spec: str, flag: str) -> MixerSource:
    """Find the mixer that a flag names; see `find`."""
    return find(MixerSource, MIXER, spec, flag)
