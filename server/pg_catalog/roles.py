"""The rows of pg_authid and pg_auth_members. Passwords are masked for everyone: verifiers stay in the catalog."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible

_MASK = "********"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def _moment(microseconds: int | None) -> datetime | None:
    return None if microseconds is None else _EPOCH + timedelta(microseconds=microseconds)


def roles(visible: Visible) -> Iterator[Row]:
    """pg_authid"""
    for role in visible.state.roles.values():
        yield {
            "oid": oids.oid_of(role.id),
            "rolname": role.name,
            "rolsuper": role.superuser,
            "rolinherit": role.inherit,
            "rolcreaterole": role.create_role,
            "rolcreatedb": role.create_db,
            "rolcanlogin": role.login,
            "rolreplication": False,
            "rolbypassrls": role.superuser,
            "rolconnlimit": role.connection_limit,
            "rolpassword": None if role.verifier is None else _MASK,
            "rolvaliduntil": _moment(role.valid_until),
        }


def members(visible: Visible) -> Iterator[Row]:
    """pg_auth_members"""
    for key, membership in visible.state.memberships.items():
        yield {
            "oid": oids.membership_oid(key),
            "roleid": oids.oid_of(key.role),
            "member": oids.oid_of(key.member),
            "grantor": oids.oid_of(key.grantor),
            "admin_option": membership.admin,
            "inherit_option": membership.inherit,
            "set_option": membership.may_set,
        }
