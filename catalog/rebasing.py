"""Two transactions that change the catalog at the same time: the changes of one on top of those of the other."""

from __future__ import annotations

import re
from collections.abc import Hashable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from catalog.drops import without_temporary
from catalog.ids import ObjectId
from catalog.objects.catalog_object import Item
from catalog.objects.namespaces import Database, Schema, is_temporary
from catalog.objects.sinks import Sink
from catalog.objects.tables import Table
from catalog.state import CatalogState

_ID = re.compile(r"\bu\d+\b")
CHARS_MAX = 1 << 18  # of definitions that are searched for ids; bounds the time
_OBJECTS = ("databases", "schemas", "items")
_BY_OBJECT = ("owners", "privileges", "column_privileges")
_ALONE = ("memberships", "default_acls")
"""Mappings whose entries depend on each other in ways that are not examined: only one of the two may change them."""
_MAPPINGS = (*_OBJECTS, *_BY_OBJECT, *_ALONE, "roles", "settings", "comments")


def rebased(before: CatalogState, after: CatalogState, current: CatalogState) -> CatalogState | None:
    """The changes from `before` to `after` on top of `current`, which another transaction computed from `before`.

    Returns None if the two might concern the same thing: they changed the same object or its privileges, an object of
    one uses an object that the other has changed, both use a name, or one has dropped a role. Temporary objects of
    sessions that have ended are dropped in both.
    """
    gone = [id for id, schema in before.schemas.items() if is_temporary(schema) and id not in current.schemas]
    if gone:
        remaining = [id for id in gone if id in after.schemas]
        before, after = without_temporary(before, gone), without_temporary(after, remaining)
    own, others = _Changes(before, after), _Changes(before, current)
    is_apart = own.touched.isdisjoint(others.touched) and own.names.isdisjoint(others.names)
    if not is_apart or _share_mappings(own, others):
        return None
    changed: dict[str, Any] = {name: _applied(getattr(current, name), of) for name, of in own.of.items() if of}
    next_id = max(after.next_id, current.next_id)
    merged = replace(current, **changed, next_id=next_id, version=current.version + 1)
    return None if _uses_changed(merged, own, others) or _uses_changed(merged, others, own) else merged


@dataclass(frozen=True)
class _Changes:
    """The difference of two states."""

    before: CatalogState
    after: CatalogState

    @cached_property
    def of(self) -> dict[str, dict[Any, Any]]:
        """The new values by mapping and key. None: the key was removed."""
        return {name: _difference(getattr(self.before, name), getattr(self.after, name)) for name in _MAPPINGS}

    @cached_property
    def objects(self) -> dict[ObjectId, Item | Schema | Database | None]:
        """The changed databases, schemas and items."""
        return {id: object for name in _OBJECTS for id, object in self.of[name].items()}

    @cached_property
    def touched(self) -> AbstractSet[ObjectId]:
        """The changed objects and roles, and those whose owner, privileges or comments are changed."""
        by_object = {id for name in _BY_OBJECT for id in self.of[name]}
        commented = {id for id, _ in self.of["comments"]}
        defaults = {id for key in self.of["default_acls"] for id in (key.database, key.schema) if id is not None}
        return self.objects.keys() | self.of["roles"].keys() | by_object | commented | defaults

    @cached_property
    def names(self) -> AbstractSet[object]:
        """The names of the changed objects and roles, with what they are unique in."""
        found: set[object] = {("role", role.name) for role in self.of["roles"].values() if role is not None}
        for object in self.objects.values():
            match object:
                case Database():
                    found.add(("database", object.name))
                case Schema():
                    found.add(("schema", object.database_id, object.name))
                case Item():
                    keys = object.keys if isinstance(object, Table) else ()
                    found |= {(object.schema_id, name) for name in (object.name, *(key.name for key in keys))}
        return found

    @property
    def drops_role(self) -> bool:
        return None in self.of["roles"].values()

    @property
    def has_sink(self) -> bool:
        return any(isinstance(object, Sink) for object in self.objects.values())


def _difference(before: Mapping[Hashable, Any], after: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    if before is after:
        return {}
    changed = {key: value for key, value in after.items() if (old := before.get(key)) is not value and old != value}
    return changed | dict.fromkeys(before.keys() - after.keys())


def _applied(current: Mapping[Hashable, Any], changes: Mapping[Hashable, Any]) -> dict[Hashable, Any]:
    return {key: value for key, value in {**current, **changes}.items() if value is not None}


def _share_mappings(own: _Changes, others: _Changes) -> bool:
    """Whether both changed something that is no object, or one changed something that the other may use anywhere."""
    return (
        any(own.of[name] and others.of[name] for name in _ALONE)
        or not own.of["settings"].keys().isdisjoint(others.of["settings"])
        or own.drops_role
        or others.drops_role
        or (own.has_sink and others.has_sink)  # two sinks may not write to the same place
    )


def _uses_changed(merged: CatalogState, users: _Changes, used: _Changes) -> bool:
    """Whether an object that one transaction has changed uses one that the other has changed, directly or indirectly.

    May be True for definitions whose texts are long.
    """
    chars = 0
    for object in users.objects.values():
        definition = repr(object)
        chars += len(definition)
        if chars > CHARS_MAX or not used.objects.keys().isdisjoint(_ID.findall(definition)):
            return True
    items = [id for id in used.of["items"] if id in merged.items]
    return any(user.id in users.objects for user in merged.dependents(*items))
