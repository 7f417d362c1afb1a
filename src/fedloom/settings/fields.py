"""What all tables of settings share: unknown names are errors, and values are of the right kind."""

from __future__ import annotations

from collections.abc import Mapping
from types import NoneType, UnionType
from typing import Annotated, Any, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainSerializer,
    ValidationInfo,
    field_validator,
)
from pydantic_core import PydanticCustomError

from fedloom.core.errors import shown
from fedloom.core.spec import Spec, parse


def _spec(value: Any) -> Any:
    """A spec from its short form or its table."""
    if isinstance(value, Spec):
        return value
    if isinstance(value, str) and len(specs := parse(value)) == 1:
        return specs[0]
    if isinstance(value, Mapping) and isinstance(value.get("name"), str):
        return Spec(value["name"], {k: v for k, v in value.items() if k != "name"})
    raise ValueError(
        f"{shown(value)} is not one name; "
        "write a name, name(argument=value), or a table with a name"
    )


SpecField = Annotated[
    Spec,
    BeforeValidator(_spec),
    PlainSerializer(
        lambda s: {"name": s.name, **{k: v for k, v in s.args.items() if v is not None}}
    ),
]


class Settings(BaseModel):
    """A table of settings; unknown names are errors."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        arbitrary_types_allowed=True,
        validate_default=True,
        allow_inf_nan=False,
    )

    @field_validator("*", mode="before")
    @classmethod
    def _of_the_right_kind(cls, value: Any, info: ValidationInfo) -> Any:
        """Pydantic would read lr = true as 1, rounds = "3" as 3, and compile = 1 as true."""
        takes = _kinds(cls.model_fields[str(info.field_name)].annotation)
        if isinstance(value, bool) and bool not in takes:
            raise ValueError(f"{str(value).lower()} is not a number or a name; write a value")
        if takes == {bool} and not isinstance(value, bool):
            raise PydanticCustomError("not_bool", "true or false")
        if isinstance(value, str) and takes <= {int, float, NoneType}:
            wanted = "a valid integer" if int in takes else "a finite number"
            raise PydanticCustomError("text_for_number", f"{wanted}, not text")
        return value


def _kinds(annotation: Any) -> set[Any]:
    """The members of a union; otherwise the type itself."""
    return set(get_args(annotation)) if isinstance(annotation, UnionType) else {annotation}
