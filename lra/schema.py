"""Types that records hold, and what they have in common."""

from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from lra.common.errors import UserError, explain_fault
from lra.common.files import write_atomically

Percent = Annotated[float, Field(ge=0, le=100)]
Count = Annotated[int, Field(ge=0, lt=2**63)]
PositiveCount = Annotated[int, Field(ge=1, lt=2**63)]
Amount = Annotated[float, Field(ge=0, lt=1e18)]
Positive = Annotated[float, Field(gt=0, lt=1e18)]


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("holds control characters")
    return text


FileName = Annotated[str, Field(pattern=r"^[\w-][\w.-]{0,99}$")]
"""Name of a file or folder, which cannot lead to a place outside the folder that it is in."""
PrintableText = Annotated[str, Field(max_length=2000), AfterValidator(_printable)]
"""Text that can be shown on a terminal, in a figure and on a page."""
ShortText = Annotated[PrintableText, Field(max_length=200)]
"""A short text, such as the name of a device."""
RowLabel = Annotated[
    str, Field(max_length=60, pattern=r"^(?s:\S(.*\S)?)$"), AfterValidator(_printable)
]
"""What a user calls a row of a table; no spaces at its ends."""


def _refuse_control_characters(facts: Any) -> Any:
    if isinstance(facts, str):
        _printable(facts)
    elif isinstance(facts, dict):
        _refuse_control_characters([*facts, *facts.values()])
    elif isinstance(facts, (list, tuple)):
        for fact in facts:
            _refuse_control_characters(fact)
    return facts


Value = Annotated[Any, AfterValidator(_refuse_control_characters)]
"""What JSON holds, whose texts can be shown like `PrintableText`."""
SettingName = Annotated[str, Field(max_length=200, pattern=r"^[a-z]+\.[A-Za-z_]\w*$")]
Settings = Annotated[dict[SettingName, Value], Field(max_length=1000)]
Facts = Annotated[dict[PrintableText, Value], Field(max_length=1000)]


class Record(BaseModel):
    """A record, written once and never changed; unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    def write(self, path: Path) -> Path:
        """Write the record as JSON; return the path."""
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(path, (self.model_dump_json(indent=2) + "\n").encode())
        return path


def fault_of(error: ValidationError) -> str:
    """Name the first field that is wrong, and what is wrong with it."""
    first = error.errors()[0]
    return ": ".join([*map(str, first["loc"]), explain_fault(first["msg"])])


def row_label(text: str, flag: str) -> None:
    """Raise UserError if no record can hold the name of a row that a flag gave."""
    try:
        TypeAdapter(RowLabel).validate_python(text)
    except ValidationError as error:
        raise UserError(f"{flag} {text!r}: no name of a row: {fault_of(error)}") from None
