"""The mixer of a run: one of the suite, by its name, or a class of the user's own."""

from __future__ import annotations

from dataclasses import dataclass

from torch import nn

from lra.config.component import Component
from lra.config.plugin import ComponentKind, find_component
from lra.config.registry import MIXERS, Section
from lra.runtime.errors import UserError
from models.base import Mixer, MixerContext

MIXER = ComponentKind(
    registry=MIXERS,
    fits=lambda cls: issubclass(cls, nn.Module),
    expected="a subclass of torch.nn.Module",
    first=("context",),
)


@dataclass(frozen=True, kw_only=True)
class MixerComponent(Component):
    """A mixer's class and its origin.

    A plug-in need not be a subclass of `Mixer`; `check_plug_in` tests whether it behaves as one.
    """

    cls: type[Mixer]

    @property
    def takes_longer(self) -> bool:
        """Whether the mixer also mixes longer sequences than it was built for."""
        return getattr(self.cls, "takes_longer", True)

    def build(self, context: MixerContext, options: Section) -> Mixer:
        """Construct the mixer of one block.

        Raises: UserError for options that contradict one another or the context, and for
            any error of a plug-in's constructor.
        """
        with self.explain_errors("its constructor failed"):
            try:
                return self.cls(context, **dict(options))
            except ValueError as error:
                raise UserError(f"mixer {self.name}: {error}") from None

    def share(self, context: MixerContext, options: Section) -> nn.Module | None:
        """Build the module that the mixers of all blocks share, see `Mixer.shared`.

        Raises: UserError as `build`.
        """
        if not issubclass(self.cls, Mixer):
            return None
        with self.explain_errors("its `shared` failed"):
            try:
                return self.cls.shared(context, **dict(options))
            except ValueError as error:
                raise UserError(f"mixer {self.name}: {error}") from None


def find_mixer(spec: str, flag: str) -> MixerComponent:
    """Find the mixer that a flag names; see `find_component`."""
    return find_component(MixerComponent, MIXER, spec, flag)
