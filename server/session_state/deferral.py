"""Which enforced keys a transaction checks at COMMIT instead of at the end of each statement."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from server.coordinator.key_indexes import EnforcedKey


@dataclass(frozen=True, slots=True)
class Deferral:
    """The effect of a transaction's SET CONSTRAINTS. `every`: of ALL; `named`: of later ones, by the ids of keys."""

    every: bool | None = None
    named: dict[str, bool] = field(default_factory=dict)

    def includes(self, key: EnforcedKey) -> bool:
        """Whether the key is checked at COMMIT."""
        return key.deferrable and self.named.get(key.id, key.deferred if self.every is None else self.every)

    def with_keys(self, ids: Iterable[str], *, deferred: bool) -> Deferral:
        """The state after SET CONSTRAINTS of some keys."""
        return Deferral(self.every, {**self.named, **dict.fromkeys(ids, deferred)})
