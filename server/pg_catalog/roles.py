"""The rows of pg_authid and pg_auth_members."""

from __future__ import annotations

from collections.abc import Iterator

from server.pg_catalog import oids
from server.pg_catalog.static import Row
from server.pg_catalog.visible import Visible


def roles(visible: Visible) -> Iterator[Row]:
    """pg_authid"""
    for role in visible.state.roles.values():
        yield {
            "oid": oids.oid_of(role.id),
            "rolname": role.name,
            "rolsuper": role.superuser,
            "rolinherit": role.inherit,
            "rolcreaterole": role.superuser,
            "rolcreatedb": role.create_db,
            "rolcanlogin": role.login,
            "rolreplication": False,
            "rolbypassrls": role.superuser,
            "rolconnlimit": -1,
        }


def members(visible: Visible) -> Iterator[Row]:
    """pg_auth_members"""
    for role in visible.state.roles.values():
        for of in sorted(role.member_of):
            yield {
                "oid": oids.membership_oid(role.id, of),
                "roleid": oids.oid_of(of),
                "member": oids.oid_of(role.id),
                "grantor": oids.OWNER,
                "admin_option": False,
                "inherit_option": role.inherit,
                "set_option": True,
            }
