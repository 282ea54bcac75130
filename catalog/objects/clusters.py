"""Clusters. There is only one, which is Spark."""

from __future__ import annotations

from dataclasses import dataclass

from catalog.ids import ObjectId
from catalog.objects.catalog_object import USAGE_AND_CREATE, USAGE_ONLY, CatalogObject
from catalog.roles import Privilege


@dataclass(frozen=True)
class Cluster(CatalogObject):
    """The compute resources that run dataflows and queries."""

    id: ObjectId
    name: str

    kind = "cluster"
    privileges = USAGE_AND_CREATE

    @property
    def public_privileges(self) -> frozenset[Privilege]:
        return USAGE_ONLY


QUICKSTART = Cluster(ObjectId("s1001"), "quickstart")
"""The only cluster: Spark."""
