"""OIDs of catalog objects, computed from object ids, so that they are stable.

The ranges are disjoint while object numbers are below 2^19. Checksums, in the last three rows, may collide.

| what                         | OID                                             |
|------------------------------|-------------------------------------------------|
| PostgreSQL's own             | PostgreSQL's                                    |
| other built-in objects, `s3` | 15000 + 3                                       |
| users' objects, `u7`         | 16384 + 7                                       |
| a column's default           | 2^30 + 2048 * object's number + column's number |
| a key and its index          | 2^31 + 32 * object's number + key's number      |
| a foreign key                | 2^31 + 2^28 + 64 * object's number + its number |
| a relation's row type        | 2^31 + 2^28 + 2^27 + object's number            |
| the array type of it         | 2^31 + 2^28 + 2^27 + 2^26 + object's number     |
| a CHECK constraint           | 2^31 + 2^29 + 32 * object's number + its number |
| the rule of a view           | 2^31 + 2^29 + 2^28 + object's number            |
| a membership of a role       | 2^31 + 2^30 + checksum of it                    |
| default privileges           | 2^31 + 2^30 + checksum of what they apply to    |
| a function                   | 2^31 + 2^30 + checksum of its signature         |
"""

from __future__ import annotations

import zlib

from catalog import builtin
from catalog.ids import ObjectId, user_oid
from catalog.roles import MATERIALIZE, DefaultAclKey, MembershipKey

PG_CATALOG, INFORMATION_SCHEMA = 11, 13270
OWNER = 10
"""The role `materialize`, which owns all objects without another owner."""
HEAP, BTREE = 2, 403
PG_CLASS, PG_TYPE, PG_NAMESPACE, PG_REWRITE, PG_ATTRDEF, PG_EXTENSION = 1259, 1247, 2615, 2618, 2604, 3079
"""The catalogs of objects that have comments or dependencies."""
PLPGSQL, EXTENSION = 14998, 14999
"""The extension `tidewire`, to which the schemas `mz_catalog` and `mz_internal` belong."""
BUILT_IN = 15000

_SCHEMAS = {builtin.PG_CATALOG.id: PG_CATALOG, builtin.INFORMATION_SCHEMA.id: INFORMATION_SCHEMA}


def oid_of(id: ObjectId) -> int:
    """Returns the OID of a database, schema, item or role."""
    if id == MATERIALIZE.id:
        return OWNER
    if id in _SCHEMAS:
        return _SCHEMAS[id]
    number = _number(id)
    if id.startswith("u"):
        return user_oid(id)
    return number if id in builtin.PG_TABLES else BUILT_IN + number


def default_oid(id: ObjectId, column: int) -> int:
    return (1 << 30) + 2048 * _number(id) + column


def key_oid(id: ObjectId, key: int) -> int:
    return (1 << 31) + 32 * _number(id) + key


def foreign_key_oid(id: ObjectId, key: int) -> int:
    return (1 << 31) + (1 << 28) + 64 * _number(id) + key


def row_type_oid(id: ObjectId) -> int:
    return (1 << 31) + (3 << 27) + _number(id)


def row_array_oid(id: ObjectId) -> int:
    return row_type_oid(id) + (1 << 26)


def check_oid(id: ObjectId, check: int) -> int:
    return (1 << 31) + (1 << 29) + 32 * _number(id) + check


def function_oid(signature: str) -> int:
    return (3 << 30) + (zlib.crc32(signature.encode()) & (1 << 30) - 1)


def rule_oid(id: ObjectId) -> int:
    return (1 << 31) + (1 << 29) + (1 << 28) + _number(id)


def membership_oid(key: MembershipKey) -> int:
    return function_oid(f"{key.member} in {key.role} by {key.grantor}")


def default_acl_oid(key: DefaultAclKey) -> int:
    return function_oid(f"{key.kind} of {key.role} in {key.database} {key.schema}")


def _number(id: ObjectId) -> int:
    return int(id[1:])
