"""Writes the types of the HTTP API for the page's modules, so that its checks know every field of every record."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from limpet.server.openapi import document
from limpet.server.table import ROUTES

TARGET = Path(__file__).resolve().parent.parent / "web" / "src" / "api.d.ts"
PLAIN = {"string": "string", "integer": "number", "number": "number", "boolean": "boolean", "null": "null"}


def main() -> int:
    schemas: dict[str, dict[str, Any]] = document(ROUTES)["components"]["schemas"]
    written = "".join(f"export type {simple(name)} = {shape(each, 0)};\n" for name, each in sorted(schemas.items()))
    text = f"// Written by tools/page_types.py from the OpenAPI document.\n{written}"
    if not TARGET.exists() or TARGET.read_text() != text:
        TARGET.write_text(text)
    return 0


def simple(name: str) -> str:
    return name.rpartition(".")[2]


def shape(schema: dict[str, Any], deep: int) -> str:
    """One schema as TypeScript."""
    if "$ref" in schema:
        return simple(schema["$ref"].rpartition("/")[2])
    if "anyOf" in schema:
        return " | ".join(shape(each, deep) for each in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(f'"{each}"' if isinstance(each, str) else str(each) for each in schema["enum"])
    kind = schema.get("type")
    if kind == "array":
        return f"Array<{shape(schema.get('items') or {}, deep)}>"
    if kind == "object":
        return struct(schema, deep)
    return PLAIN.get(kind or "", "any")


def struct(schema: dict[str, Any], deep: int) -> str:
    if "properties" not in schema:
        values = schema.get("additionalProperties")
        return f"Record<string, {shape(values, deep) if isinstance(values, dict) else 'any'}>"
    required = set(schema.get("required", ()))
    pad = "  " * (deep + 1)
    fields = "".join(
        f"{pad}{name}{'' if name in required else '?'}: {shape(each, deep + 1)};\n"
        for name, each in schema["properties"].items()
    )
    return f"{{\n{fields}{'  ' * deep}}}"


if __name__ == "__main__":
    sys.exit(main())
