"""Decides how pydantic reads, writes and describes a public record; imported only where pydantic asks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, get_type_hints

import msgspec
from pydantic_core import core_schema

if TYPE_CHECKING:
    from pydantic import GetCoreSchemaHandler

    from limpet.core.records.record import Record

R = TypeVar("R", bound="Record")


def schema_of(kind: type[R], handler: GetCoreSchemaHandler) -> core_schema.CoreSchema:
    """A record is taken as it is or as its JSON object, and always written as its JSON object."""
    types = get_type_hints(kind)
    fields = {
        field.name: core_schema.typed_dict_field(handler.generate_schema(types[field.name]), required=field.required)
        for field in msgspec.structs.fields(kind)
    }

    def made(values: dict[str, Any]) -> R:
        return kind(**values)

    shape = core_schema.typed_dict_schema(fields, cls_name=kind.__name__)
    read = core_schema.no_info_after_validator_function(made, shape)
    return core_schema.json_or_python_schema(
        json_schema=read,
        python_schema=core_schema.union_schema([core_schema.is_instance_schema(kind), read]),
        serialization=core_schema.plain_serializer_function_ser_schema(kind.to_dict),
        ref=f"{kind.__module__}.{kind.__qualname__}",
    )
