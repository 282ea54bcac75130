"""Access control lists, as in PostgreSQL's acl.c: who granted which privileges on one object to whom.

A privilege can be granted with GRANT OPTION: the grantee may then grant it. The owner of an object has all grant
options. What a role granted depends on its grant options, and is revoked with them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from catalog.ids import ObjectId, user_oid
from catalog.roles import LETTERS, PUBLIC, Privilege

ITEMS_MAX = 500
"""The number of entries of one list. The work of a GRANT or REVOKE is quadratic in it."""

Privileges = frozenset[Privilege]
NONE: Privileges = frozenset()


class DependentPrivileges(Exception):
    """A grant option was revoked without CASCADE from a role that has used it."""


class CircularGrant(Exception):
    """A grant option was granted to a role from which the grantor has it."""


class AclTooLong(Exception):
    """The list would have more than `ITEMS_MAX` entries."""


@dataclass(frozen=True, slots=True)
class AclItem:
    """The privileges that `grantor` granted to `grantee`. `grantable`: those with GRANT OPTION, a subset."""

    grantee: ObjectId
    grantor: ObjectId
    privileges: Privileges
    grantable: Privileges = NONE


Acl = tuple[AclItem, ...]
"""The privileges on one object or on one column. No two entries have the same grantee and grantor."""

HasRightsOf = Callable[[ObjectId, ObjectId], bool]
"""Whether a role has the privileges of another one."""


def letters(item: AclItem) -> str:
    """The privileges as in PostgreSQL's aclitem, such as `ar*w`: an asterisk follows a privilege with GRANT OPTION."""
    return "".join(
        f"{letter}{'*' * (privilege in item.grantable)}"
        for privilege, letter in LETTERS.items()
        if privilege in item.privileges
    )


def from_letters(grantee: ObjectId, grantor: ObjectId, text: str) -> AclItem:
    """The inverse of `letters`."""
    granted = frozenset(privilege for privilege, letter in LETTERS.items() if letter in text)
    return AclItem(grantee, grantor, granted, frozenset(p for p in granted if f"{LETTERS[p]}*" in text))


def acl_items(acl: Acl) -> list[str]:
    """Materialize's mz_aclitem, `grantee=letters/grantor` with ids, PUBLIC as `p`."""
    return [f"{item.grantee}={letters(item)}/{item.grantor}" for item in acl]


def built_in_acl(owner: ObjectId, own: Privileges, public: Privileges) -> Acl:
    """The built-in privileges: `public` for PUBLIC, `own` for the owner."""
    items = (AclItem(PUBLIC, owner, public), AclItem(owner, owner, own))
    return tuple(item for item in items if item.privileges)


def in_order(acl: Acl) -> Acl:
    """The entries in the order of the OIDs of their roles, as in pg_default_acl."""
    return tuple(sorted(acl, key=lambda item: (role_order(item.grantee), role_order(item.grantor))))


def role_order(role: ObjectId) -> int:
    """A number that orders roles as their OIDs do. PUBLIC is the first."""
    if role == PUBLIC:
        return 0
    return user_oid(role) if role.startswith("u") else 1


def grant_options(acl: Iterable[AclItem], role: ObjectId, owner: ObjectId, has_rights_of: HasRightsOf) -> Privileges:
    """The privileges that a role may grant, also as a member of others, if it is not the owner."""
    found = [item.grantable for item in acl if item.grantable and has_rights_of(role, item.grantee)]
    return frozenset(Privilege) if has_rights_of(role, owner) else NONE.union(*found)


def with_items(acl: Acl, items: Iterable[AclItem], owner: ObjectId, has_rights_of: HasRightsOf) -> Acl:
    """The list after each of the items was granted. Raises CircularGrant and AclTooLong."""
    entries = _entries(acl)
    grantors = {item.grantor for item in acl}
    options: dict[ObjectId, Privileges] = {}
    for item in items:
        if item.grantable and item.grantor != owner:
            if item.grantee in grantors or has_rights_of(item.grantor, item.grantee):
                left = _without_options_of(entries, item.grantee, owner, has_rights_of)
                own = grant_options(left.values(), item.grantor, owner, has_rights_of)
            else:  # the grantor's options do not depend on the grantee's
                if item.grantor not in options:
                    options[item.grantor] = grant_options(entries.values(), item.grantor, owner, has_rights_of)
                own = options[item.grantor]
            # As in PostgreSQL, a grant option on a relation is not found here if `acl` is that of a column.
            if not item.grantable <= own:
                raise CircularGrant
        grantors.add(item.grantor)
        old = entries.get((item.grantee, item.grantor), item)
        privileges, grantable = old.privileges | item.privileges, old.grantable | item.grantable
        if privileges:
            entries[item.grantee, item.grantor] = replace(item, privileges=privileges, grantable=grantable)
    if len(entries) > max(ITEMS_MAX, len(acl)):
        raise AclTooLong
    return tuple(entries.values())


def without_items(
    acl: Acl, items: Iterable[AclItem], owner: ObjectId, has_rights_of: HasRightsOf, *, cascade: bool
) -> Acl:
    """The list after the items and what depends on them were revoked. DependentPrivileges unless `cascade`."""
    entries = _entries(acl)
    for item in items:
        _revoke(entries, item, owner, has_rights_of, cascade=cascade)
    return tuple(entries.values())


def with_new_owner(acl: Acl, old: ObjectId, new: ObjectId) -> Acl:
    """The list after a change of the owner: the new one replaces the old one as grantee and as grantor."""
    entries: dict[tuple[ObjectId, ObjectId], AclItem] = {}
    for item in acl:
        grantee = new if item.grantee == old else item.grantee
        grantor = new if item.grantor == old else item.grantor
        other = entries.get((grantee, grantor), item)
        privileges, grantable = item.privileges | other.privileges, item.grantable | other.grantable
        entries[grantee, grantor] = AclItem(grantee, grantor, privileges, grantable)
    return tuple(entries.values())


def without_role(acl: Acl, role: ObjectId, owner: ObjectId, has_rights_of: HasRightsOf) -> Acl:
    """The list without what a role was granted or has granted. The role is not the owner."""
    return without_items(acl, [i for i in acl if role in (i.grantee, i.grantor)], owner, has_rights_of, cascade=True)


_Entries = dict[tuple[ObjectId, ObjectId], AclItem]


def _entries(acl: Acl) -> _Entries:
    return {(item.grantee, item.grantor): item for item in acl}


def _revoke(entries: _Entries, first: AclItem, owner: ObjectId, has_rights_of: HasRightsOf, *, cascade: bool) -> None:
    """Revokes an item from `entries`, and, repeatedly, what was granted with the grant options that are lost."""
    queue = [first]
    while queue:
        item = queue.pop()
        key = item.grantee, item.grantor
        if (old := entries.get(key)) is None:
            continue
        left = replace(old, privileges=old.privileges - item.privileges, grantable=old.grantable - item.grantable)
        if left.privileges:
            entries[key] = left
        else:
            del entries[key]
        lost = old.grantable - left.grantable
        if not lost or item.grantee == owner:
            continue
        lost -= grant_options(entries.values(), item.grantee, owner, has_rights_of)
        for other in entries.values():
            if other.grantor == item.grantee and other.privileges & lost:
                if not cascade:
                    raise DependentPrivileges
                queue.append(AclItem(other.grantee, other.grantor, lost, lost))


def _without_options_of(entries: _Entries, grantee: ObjectId, owner: ObjectId, has_rights_of: HasRightsOf) -> _Entries:
    """The entries that do not depend on a role's grant options."""
    left = dict(entries)
    for other in [other for other in entries.values() if other.grantee == grantee and other.grantable]:
        _revoke(left, other, owner, has_rights_of, cascade=True)
    return left
