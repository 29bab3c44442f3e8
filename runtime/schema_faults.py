"""What of a JSON schema can't be honoured, and where in it.

Owns the walk through a schema, and the faults that are ours to find: what the grammars' library would let pass although
the answer might not validate.  Does not know that library (constraints.py).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

_CONTROLS = re.compile(r"[\x00-\x07\x0b\x0e-\x1f\x7f]")
_MAPS_OF_SCHEMAS = ("properties", "patternProperties", "$defs", "definitions", "dependentSchemas")
_LISTS_OF_SCHEMAS = ("anyOf", "oneOf", "allOf", "prefixItems", "items")
_SCHEMAS = ("items", "additionalProperties", "contains", "not", "if", "then", "else", "propertyNames")


def own_fault(schema: dict[str, Any]) -> tuple[str, str] | None:
    """(place, fault) of what no grammar could hold an answer to; None when there is none."""
    if (found := _unwritable(schema)) is not None:
        return _pointer(found[0]), found[1]
    if (way := _counted_keys(schema)) is not None:
        return _pointer(way), "minProperties counts keys that are not named, and a key written twice counts once"
    return None


def place_of_fault(schema: dict[str, Any], fails: Callable[[object], bool]) -> str:
    """The place of the smallest part of a schema that fails alone."""
    return _pointer(_deepest(schema, fails))


def _deepest(schema: dict[str, Any], fails: Callable[[object], bool]) -> list[str]:
    """The way to the smallest part of a schema that fails alone."""
    for way, part in _parts(schema):
        if fails(part):
            return [*way, *_deepest(part, fails)]
    return []


def _parts(schema: dict[str, Any]) -> Iterator[tuple[list[str], Any]]:
    """The schemas right inside a schema, and the keys that lead there."""
    for key in _MAPS_OF_SCHEMAS:
        if isinstance(value := schema.get(key), dict):
            yield from (([key, name], part) for name, part in value.items())
    for key in _LISTS_OF_SCHEMAS:
        if isinstance(value := schema.get(key), list):
            yield from (([key, str(index)], part) for index, part in enumerate(value))
    for key in _SCHEMAS:
        if isinstance(value := schema.get(key), dict):
            yield [key], value


def _unwritable(value: object) -> tuple[list[str], str] | None:
    """(way, fault) of a number that would be rounded, or of a text that can't be spelt without \\u."""
    if isinstance(value, int):
        return ([], "a whole number has more than 53 bits") if abs(value) > 2**53 else None
    if isinstance(value, str):
        return ([], "a text holds a control character") if _CONTROLS.search(value) else None
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, part in items:
        if (found := _unwritable(key) if isinstance(key, str) else None) is not None:
            return found
        if (found := _unwritable(part)) is not None:
            return [str(key), *found[0]], found[1]
    return None


def _counted_keys(schema: dict[str, Any]) -> list[str] | None:
    """The way to an object that must have more keys than are required, of which some may be any."""
    least, required = schema.get("minProperties", 0), schema.get("required", [])
    is_open = schema.get("additionalProperties") is not False or "patternProperties" in schema
    if isinstance(least, int) and isinstance(required, list) and least > len(required) and is_open:
        return []
    for way, part in _parts(schema):
        if isinstance(part, dict) and (rest := _counted_keys(part)) is not None:
            return [*way, *rest]
    return None


def _pointer(way: list[str]) -> str:
    """A JSON pointer, as in a fragment of an address."""
    return "#" + "".join("/" + key.replace("~", "~0").replace("/", "~1") for key in way)
