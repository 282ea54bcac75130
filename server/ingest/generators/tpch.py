"""LOAD GENERATOR TPCH: the tables of the TPC-H benchmark, and ticks that replace one order each.

The columns and the relations between the tables are those of TPC-H, the values are not dbgen's.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pyarrow as pa

from catalog import updates
from catalog.objects.columns import Column
from server.ingest.generators.columns import (
    Ints,
    dates,
    decimals,
    numbered,
    random_ints,
    random_words,
    table,
    words,
)
from server.ingest.option_values import OptionValues
from server.ingest.source_definition import Output

ORDERS_PER_TICK = 10_000  # of the snapshot: about 6 MB with their items
ITEMS_MAX = 7  # of an order
_FIRST_DAY, _LAST_DAY = 8_035, 10_440  # 1992-01-01 and 1998-08-02, in days since 1970
_REGIONS = ("AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST")
_NATIONS = (
    *("ALGERIA", "ARGENTINA", "BRAZIL", "CANADA", "EGYPT", "ETHIOPIA", "FRANCE", "GERMANY", "INDIA", "INDONESIA"),
    *("IRAN", "IRAQ", "JAPAN", "JORDAN", "KENYA", "MOROCCO", "MOZAMBIQUE", "PERU", "CHINA", "ROMANIA"),
    *("SAUDI ARABIA", "VIETNAM", "RUSSIA", "UNITED KINGDOM", "UNITED STATES"),
)
_NATION_REGIONS = (0, 1, 1, 1, 4, 0, 3, 3, 2, 2, 4, 4, 2, 4, 0, 0, 0, 1, 2, 3, 4, 2, 3, 3, 1)
_SEGMENTS = ("AUTOMOBILE", "BUILDING", "FURNITURE", "HOUSEHOLD", "MACHINERY")
_PRIORITIES = ("1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW")
_INSTRUCTIONS = ("DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN")
_MODES = ("AIR", "FOB", "MAIL", "RAIL", "REG AIR", "SHIP", "TRUCK")
_TYPES = tuple(
    f"{size} {finish} {metal}"
    for size in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for finish in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for metal in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
)
_CONTAINERS = tuple(
    f"{size} {kind}"
    for size in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for kind in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
)
_COLORS = ("almond", "azure", "blue", "chocolate", "forest", "green", "ivory", "lemon", "navy", "rose", "snow", "tan")
_COMMENTS = ("carefully final deposits", "even packages sleep", "furiously regular ideas", "quick accounts haggle")


def _output(name: str, key: tuple[str, ...], **columns: str) -> Output:
    return Output(name, name, tuple(Column(c, type, nullable=False) for c, type in columns.items()), key)


_MONEY = "numeric(15,2)"
OUTPUTS = (
    _output("region", ("r_regionkey",), r_regionkey="int8", r_name="text", r_comment="text"),
    _output("nation", ("n_nationkey",), n_nationkey="int8", n_name="text", n_regionkey="int8", n_comment="text"),
    _output(
        "supplier",
        ("s_suppkey",),
        s_suppkey="int8",
        s_name="text",
        s_address="text",
        s_nationkey="int8",
        s_phone="text",
        s_acctbal=_MONEY,
        s_comment="text",
    ),
    _output(
        "part",
        ("p_partkey",),
        p_partkey="int8",
        p_name="text",
        p_mfgr="text",
        p_brand="text",
        p_type="text",
        p_size="int4",
        p_container="text",
        p_retailprice=_MONEY,
        p_comment="text",
    ),
    _output(
        "partsupp",
        ("ps_partkey", "ps_suppkey"),
        ps_partkey="int8",
        ps_suppkey="int8",
        ps_availqty="int4",
        ps_supplycost=_MONEY,
        ps_comment="text",
    ),
    _output(
        "customer",
        ("c_custkey",),
        c_custkey="int8",
        c_name="text",
        c_address="text",
        c_nationkey="int8",
        c_phone="text",
        c_acctbal=_MONEY,
        c_mktsegment="text",
        c_comment="text",
    ),
    _output(
        "orders",
        ("o_orderkey",),
        o_orderkey="int8",
        o_custkey="int8",
        o_orderstatus="text",
        o_totalprice=_MONEY,
        o_orderdate="date",
        o_orderpriority="text",
        o_clerk="text",
        o_shippriority="int4",
        o_comment="text",
    ),
    _output(
        "lineitem",
        ("l_orderkey", "l_linenumber"),
        l_orderkey="int8",
        l_partkey="int8",
        l_suppkey="int8",
        l_linenumber="int4",
        l_quantity=_MONEY,
        l_extendedprice=_MONEY,
        l_discount=_MONEY,
        l_tax=_MONEY,
        l_returnflag="text",
        l_linestatus="text",
        l_shipdate="date",
        l_commitdate="date",
        l_receiptdate="date",
        l_shipinstruct="text",
        l_shipmode="text",
        l_comment="text",
    ),
)


class Tpch:
    """The snapshot is divided into ticks of ORDERS_PER_TICK orders. Each later tick replaces the next order."""

    outputs = OUTPUTS
    interval_us: int | None = None

    def __init__(self, options: OptionValues) -> None:
        scale = options.number("scale factor", 0.01, 100.0)
        self._seed = options.integer("seed", 0, 0)
        self._sizes = {
            "region": len(_REGIONS),
            "nation": len(_NATIONS),
            "supplier": max(4, int(10_000 * scale)),
            "part": max(1, int(200_000 * scale)),
            "partsupp": 4 * max(1, int(200_000 * scale)),
            "customer": max(1, int(150_000 * scale)),
        }
        self._orders = max(1, int(1_500_000 * scale))
        self.snapshot_ticks = -(-self._orders // ORDERS_PER_TICK)
        self._makers: dict[str, Callable[[Ints], pa.Table]] = {
            "region": self._region,
            "nation": self._nation,
            "supplier": self._supplier,
            "part": self._part,
            "partsupp": self._partsupp,
            "customer": self._customer,
        }

    def changes(self, references: Sequence[str], first: int, end: int, start_us: int) -> Mapping[str, list[pa.Table]]:
        found: dict[str, list[pa.Table]] = {}
        ticks = self.snapshot_ticks
        begun, done = min(first, ticks), min(end, ticks)
        slots = np.arange(
            min(begun * ORDERS_PER_TICK, self._orders), min(done * ORDERS_PER_TICK, self._orders), dtype=np.int64
        )
        replaced, slot = np.divmod(np.arange(max(first, ticks) - ticks, max(end, ticks) - ticks), self._orders)
        for reference in references:
            if reference in self._makers:
                size = self._sizes[reference]
                rows = np.arange(size * begun // ticks, size * done // ticks, dtype=np.int64)
                found[reference] = [self._makers[reference](rows)]
            else:
                make = self._order if reference == "orders" else self._items
                found[reference] = [make(slots), make(slot + (replaced + 1) * self._orders)]
                if len(slot):
                    found[reference].append(updates.with_diff(make(slot + replaced * self._orders), -1))
        return found

    # Each maker returns the rows with these numbers. Column numbers of random values are unique.

    def _ints(self, column: int, rows: Ints, least: int, greatest: int) -> Ints:
        return random_ints(self._seed, column, rows, least, greatest)

    def _words(self, column: int, rows: Ints, choices: Sequence[str]) -> pa.Array:
        return random_words(self._seed, column, rows, choices)

    def _phone(self, column: int, rows: Ints, nation: Ints) -> pa.Array:
        return numbered("", (nation + 10) * 10_000_000 + self._ints(column, rows, 1_000_000, 9_999_999))

    def _region(self, rows: Ints) -> pa.Table:
        return table(rows, words(rows, _REGIONS), self._words(1, rows, _COMMENTS))

    def _nation(self, rows: Ints) -> pa.Table:
        regions = np.array(_NATION_REGIONS, dtype=np.int64)[rows]
        return table(rows, words(rows, _NATIONS), regions, self._words(2, rows, _COMMENTS))

    def _supplier(self, rows: Ints) -> pa.Table:
        keys, nation = rows + 1, self._ints(3, rows, 0, 24)
        return table(
            keys,
            numbered("Supplier#", keys, 9),
            numbered("Address ", self._ints(4, rows, 1, 10**9)),
            nation,
            self._phone(5, rows, nation),
            decimals(self._ints(6, rows, -99_999, 999_999)),
            self._words(7, rows, _COMMENTS),
        )

    def _part(self, rows: Ints) -> pa.Table:
        keys, maker = rows + 1, self._ints(8, rows, 1, 5)
        return table(
            keys,
            self._words(9, rows, tuple(f"{a} {b}" for a in _COLORS for b in _COLORS if a != b)),
            numbered("Manufacturer#", maker),
            numbered("Brand#", maker * 10 + self._ints(10, rows, 1, 5)),
            self._words(11, rows, _TYPES),
            pa.array(self._ints(12, rows, 1, 50).astype(np.int32)),
            self._words(13, rows, _CONTAINERS),
            decimals(_price(keys)),
            self._words(14, rows, _COMMENTS),
        )

    def _partsupp(self, rows: Ints) -> pa.Table:
        parts, number = np.divmod(rows, 4)
        return table(
            parts + 1,
            self._supplier_of(parts + 1, number),
            pa.array(self._ints(15, rows, 1, 9_999).astype(np.int32)),
            decimals(self._ints(16, rows, 100, 100_000)),
            self._words(17, rows, _COMMENTS),
        )

    def _supplier_of(self, parts: Ints, number: Ints) -> Ints:
        """The supplier with this number, 0 to 3, of a part. They differ, as there are at least four suppliers."""
        suppliers = self._sizes["supplier"]
        return (parts + number * (suppliers // 4)) % suppliers + 1

    def _customer(self, rows: Ints) -> pa.Table:
        keys, nation = rows + 1, self._ints(18, rows, 0, 24)
        return table(
            keys,
            numbered("Customer#", keys, 9),
            numbered("Address ", self._ints(19, rows, 1, 10**9)),
            nation,
            self._phone(20, rows, nation),
            decimals(self._ints(21, rows, -99_999, 999_999)),
            self._words(22, rows, _SEGMENTS),
            self._words(23, rows, _COMMENTS),
        )

    def _order(self, versions: Ints) -> pa.Table:
        """Orders by version: the slot plus the number of replacements times the number of orders."""
        day = self._ints(30, versions, _FIRST_DAY, _LAST_DAY)
        total = np.zeros(len(versions), dtype=np.int64)
        counts = self._item_counts(versions)
        owner, item = _spread(counts)
        if len(owner):
            np.add.at(total, owner, self._item_price(versions[owner], item))
        return table(
            versions % self._orders + 1,
            self._ints(31, versions, 1, self._sizes["customer"]),
            self._words(32, versions, ("F", "O", "P")),
            decimals(total),
            dates(day),
            self._words(33, versions, _PRIORITIES),
            numbered("Clerk#", self._ints(34, versions, 1, 1_000), 9),
            pa.array(np.zeros(len(versions), np.int32)),
            self._words(35, versions, _COMMENTS),
        )

    def _item_counts(self, versions: Ints) -> Ints:
        return self._ints(36, versions, 1, ITEMS_MAX)

    def _item_price(self, versions: Ints, item: Ints) -> Ints:
        """Quantity times the part's price, in cents."""
        rows = versions * ITEMS_MAX + item
        return self._ints(41, rows, 1, 50) * _price(self._ints(40, rows, 1, self._sizes["part"]))

    def _items(self, versions: Ints) -> pa.Table:
        owner, item = _spread(self._item_counts(versions))
        version = versions[owner]
        rows = version * ITEMS_MAX + item
        part = self._ints(40, rows, 1, self._sizes["part"])
        shipped = self._ints(30, version, _FIRST_DAY, _LAST_DAY) + self._ints(42, rows, 1, 121)
        return table(
            version % self._orders + 1,
            part,
            self._supplier_of(part, self._ints(43, rows, 0, 3)),
            pa.array((item + 1).astype(np.int32)),
            decimals(self._ints(41, rows, 1, 50) * 100),
            decimals(self._item_price(version, item)),
            decimals(self._ints(44, rows, 0, 10)),
            decimals(self._ints(45, rows, 0, 8)),
            self._words(46, rows, ("A", "N", "R")),
            self._words(47, rows, ("F", "O")),
            dates(shipped),
            dates(shipped + self._ints(48, rows, -30, 30)),
            dates(shipped + self._ints(49, rows, 1, 30)),
            self._words(50, rows, _INSTRUCTIONS),
            self._words(51, rows, _MODES),
            self._words(52, rows, _COMMENTS),
        )


def _price(part: Ints) -> Ints:
    """The retail price of a part in cents, by the formula of TPC-H."""
    return 90_000 + (part // 10) % 20_001 + 100 * (part % 1_000)


def _spread(counts: Ints) -> tuple[Ints, Ints]:
    """For each item of orders with these numbers of items: the order's position, and the item's number from 0."""
    owner = np.repeat(np.arange(len(counts), dtype=np.int64), counts)
    starts = np.cumsum(counts) - counts
    return owner, np.arange(len(owner), dtype=np.int64) - starts[owner]
