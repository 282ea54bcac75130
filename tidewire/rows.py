"""Converts rows to the `row_type` of a subscription: a dataclass, a NamedTuple or a pydantic model.

Columns and fields are matched by name. pydantic is not imported: a model is recognised by its `model_validate`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from tidewire.errors import RowTypeMismatch

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    R = TypeVar("R", default=tuple[Any, ...])
else:
    from typing import TypeVar

    R = TypeVar("R")  # the type of a row; the default needs Python 3.13


@dataclasses.dataclass(frozen=True, slots=True)
class _Field:
    names: tuple[str, ...]
    """The names of columns that the field accepts."""
    required: bool


def check_row_type(row_type: type) -> None:
    """TypeError if rows cannot be converted to the type."""
    _fields(row_type)


def row_maker(row_type: type[R], columns: Sequence[str]) -> Callable[[tuple[Any, ...]], R]:
    """Returns the function that converts a row of these columns.

    RowTypeMismatch if a field without a default has no column, if a column has no field, or if a name occurs twice. A
    pydantic model that allows extra values has a field for every column.
    """
    fields = _fields(row_type)
    repeated = sorted({name for name in columns if columns.count(name) > 1})
    missing = [each.names[0] for each in fields if each.required and not set(each.names) & set(columns)]
    known = {name for each in fields for name in each.names}
    surplus = [] if _allows_extra(row_type) else [name for name in columns if name not in known]
    if missing or surplus or repeated:
        raise RowTypeMismatch(row_type, missing, surplus, repeated)
    names = tuple(columns)
    validate: Callable[[Mapping[str, Any]], R] | None = getattr(row_type, "model_validate", None)
    if validate is not None:
        return lambda row: validate(dict(zip(names, row, strict=True)))
    return lambda row: row_type(**dict(zip(names, row, strict=True)))


def _fields(row_type: type) -> list[_Field]:
    described: Any = row_type
    is_type = isinstance(row_type, type)
    if is_type and hasattr(row_type, "model_validate"):
        by_name = any(described.model_config.get(name) for name in ("populate_by_name", "validate_by_name"))
        return [
            _Field(_aliases(name, info.validation_alias, by_name), info.is_required())
            for name, info in described.model_fields.items()
        ]
    if is_type and dataclasses.is_dataclass(row_type):
        absent = dataclasses.MISSING
        return [
            _Field((each.name,), each.default is absent and each.default_factory is absent)
            for each in dataclasses.fields(row_type)
            if each.init
        ]
    if is_type and issubclass(row_type, tuple) and hasattr(row_type, "_field_defaults"):
        return [_Field((name,), name not in described._field_defaults) for name in described._fields]
    raise TypeError(f"row_type must be a dataclass, a NamedTuple or a pydantic model, not {row_type!r}")


def _aliases(name: str, alias: Any, by_name: bool) -> tuple[str, ...]:
    aliases = tuple(each for each in getattr(alias, "choices", (alias,)) if isinstance(each, str))
    return (*aliases, name) if by_name or not aliases else aliases


def _allows_extra(row_type: type) -> bool:
    config = cast("Mapping[str, Any]", getattr(row_type, "model_config", {}))
    return hasattr(row_type, "model_validate") and config.get("extra") == "allow"
