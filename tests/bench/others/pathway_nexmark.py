"""Pathway: queries of Nexmark over files of events. Prints [query, seconds, processor seconds] as JSON.

Arguments: the directory, which has a directory of files for each table, and one query. Each file is a transaction of
its table, with a header, in which the column `id` is `number`: Pathway reserves that name. Runs in an environment of
its own, which has `pathway` and none of ours.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pathway as pw
from nexmark_queries import COLUMNS, SIDE_COLUMNS, SIDE_INPUT

TYPES = {"varchar": str, "bigint": int}
RENAMED = {"id": "number"}
COMMIT_MS = 100
DAY_MS = 86_400_000
CHANNELS = {"apple": "0", "google": "1", "facebook": "2", "baidu": "3"}
CHANNEL_ID = re.compile("(&|^)channel_id=([^&]*)")
LOW, HIGH = 10_000, 1_000_000


class Inputs:
    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def __getattr__(self, name: str) -> pw.Table:
        columns = {**COLUMNS, SIDE_INPUT: SIDE_COLUMNS}[name]
        pairs = (column.split() for column in columns.split(", "))
        schema = pw.schema_from_types(**{RENAMED.get(column, column): TYPES[type] for column, type in pairs})
        path = str(self._directory / name)
        table = pw.io.csv.read(path, schema=schema, mode="static", autocommit_duration_ms=COMMIT_MS)
        setattr(self, name, table)
        return table


def q0(i: Inputs) -> pw.Table:
    return i.bid[["auction", "bidder", "price", "ts", "extra"]]


def q1(i: Inputs) -> pw.Table:
    return i.bid.select(pw.this.auction, pw.this.bidder, pw.this.ts, pw.this.extra, price=0.908 * pw.this.price)


def q2(i: Inputs) -> pw.Table:
    return i.bid.filter(pw.this.auction % 123 == 0)[["auction", "price"]]


def q3(i: Inputs) -> pw.Table:
    p = i.person.filter((pw.this.state == "OR") | (pw.this.state == "ID") | (pw.this.state == "CA"))
    a = i.auction.filter(pw.this.category == 10)
    return a.join(p, a.seller == p.number).select(p.name, p.city, p.state, a.number)


def _valid(i: Inputs) -> pw.Table:
    """The bids of each auction while it was open."""
    a = i.auction.without(i.auction.ts, i.auction.extra).with_columns(ats=i.auction.ts, aextra=i.auction.extra)
    joined = a.join(i.bid, a.number == i.bid.auction).select(
        *a, i.bid.bidder, i.bid.price, bts=i.bid.ts, bextra=i.bid.extra
    )
    return joined.filter((pw.this.bts >= pw.this.ats) & (pw.this.bts <= pw.this.expires))


def q4(i: Inputs) -> pw.Table:
    valid = _valid(i)
    best = valid.groupby(valid.number, valid.category).reduce(valid.category, final=pw.reducers.max(valid.price))
    return best.groupby(best.category).reduce(best.category, m=pw.reducers.avg(best.final))


def q5(i: Inputs) -> pw.Table:
    hops = i.bid.select(pw.this.auction, w=pw.apply(_hops, pw.this.ts)).flatten(pw.this.w)
    counted = hops.groupby(hops.auction, hops.w).reduce(hops.auction, hops.w, num=pw.reducers.count())
    most = counted.groupby(counted.w).reduce(counted.w, most=pw.reducers.max(counted.num))
    return counted.join(most, counted.w == most.w, counted.num == most.most).select(counted.auction, counted.num)


def _hops(ts: int) -> tuple[int, ...]:
    last = ts // 2000
    return (last, last - 1, last - 2, last - 3, last - 4)


def q7(i: Inputs) -> pw.Table:
    b = i.bid.select(pw.this.auction, pw.this.price, pw.this.bidder, pw.this.ts, pw.this.extra, w=pw.this.ts // 10_000)
    most = b.groupby(b.w).reduce(b.w, most=pw.reducers.max(b.price))
    return b.join(most, b.w == most.w, b.price == most.most).select(b.auction, b.price, b.bidder, b.ts, b.extra)


def q8(i: Inputs) -> pw.Table:
    p = i.person.select(pw.this.name, pw.this.number, w=pw.this.ts // 10_000)
    p = p.groupby(p.number, p.name, p.w).reduce(p.number, p.name, p.w)
    a = i.auction.select(pw.this.seller, w=pw.this.ts // 10_000)
    a = a.groupby(a.seller, a.w).reduce(a.seller, a.w)
    return p.join(a, p.number == a.seller, p.w == a.w).select(p.number, p.name, p.w)


def q9(i: Inputs) -> pw.Table:
    ordered = _valid(i).with_columns(rank=pw.make_tuple(pw.this.price, -pw.this.bts, -pw.this.bidder))
    best = ordered.groupby(ordered.number).reduce(row=pw.reducers.argmax(ordered.rank))
    return ordered.ix(best.row)


def q10(i: Inputs) -> pw.Table:
    when = i.bid.ts.dt.utc_from_timestamp(unit="ms")
    return i.bid.select(
        *(pw.this[name] for name in ("auction", "bidder", "price", "ts", "extra")),
        d=when.dt.strftime("%Y-%m-%d"),
        m=when.dt.strftime("%H:%M"),
    )


def q11(i: Inputs) -> pw.Table:
    sessions = i.bid.windowby(
        i.bid.ts, window=pw.temporal.session(predicate=lambda a, b: b - a <= 10_000), instance=i.bid.bidder
    )
    return sessions.reduce(
        bidder=pw.this._pw_instance,
        bids=pw.reducers.count(),
        starts=pw.reducers.min(pw.this.ts),
        ends=pw.reducers.max(pw.this.ts),
    )


def q12(i: Inputs) -> pw.Table:
    b = i.bid.select(pw.this.bidder, w=pw.this.ts // 10_000)
    return b.groupby(b.bidder, b.w).reduce(b.bidder, b.w, bids=pw.reducers.count())


def q13(i: Inputs) -> pw.Table:
    b = i.bid.with_columns(k=pw.this.auction % 10_000)
    return b.join(i.side_input, b.k == i.side_input.k).select(b.auction, b.bidder, b.price, b.ts, i.side_input.v)


def q14(i: Inputs) -> pw.Table:
    price = 0.908 * pw.this.price
    b = i.bid.filter((price > 1_000_000) & (price < 50_000_000))
    hour = b.ts // 3_600_000 % 24
    part = pw.if_else((hour <= 6) | (hour >= 20), "nightTime", "otherTime")
    return b.select(
        *(pw.this[name] for name in ("auction", "bidder", "ts", "extra")),
        price=price,
        part=pw.if_else((hour >= 8) & (hour <= 18), "dayTime", part),
        c_counts=pw.this.extra.str.count("c"),
    )


def _conditions(price: pw.ColumnExpression) -> dict[str, pw.ColumnExpression]:
    return {"1": price < LOW, "2": (price >= LOW) & (price < HIGH), "3": price >= HIGH}


def _totals(b: pw.Table) -> dict[str, pw.ColumnExpression]:
    counted = {f"bids{n}": pw.reducers.sum(pw.cast(int, is_in)) for n, is_in in _conditions(b.price).items()}
    return {"bids": pw.reducers.count(), **counted}


def _distinct(b: pw.Table) -> dict[str, pw.ColumnExpression]:
    """The numbers of distinct bidders and auctions. A row that a condition excludes counts as -1."""
    found: dict[str, pw.ColumnExpression] = {}
    for name in ("bidder", "auction"):
        found[f"{name}s"] = pw.reducers.count_distinct(b[name])
        for n, is_in in _conditions(b.price).items():
            excluded = pw.reducers.max(pw.if_else(is_in, 0, 1))
            found[f"{name}s{n}"] = pw.reducers.count_distinct(pw.if_else(is_in, b[name], -1)) - excluded
    return found


def q15(i: Inputs) -> pw.Table:
    b = i.bid.with_columns(d=pw.this.ts // DAY_MS)
    return b.groupby(b.d).reduce(b.d, **_totals(b), **_distinct(b))


def q16(i: Inputs) -> pw.Table:
    b = i.bid.with_columns(d=pw.this.ts // DAY_MS, minute=pw.this.ts // 60_000 % 1_440)
    return b.groupby(b.channel, b.d).reduce(b.channel, b.d, m=pw.reducers.max(b.minute), **_totals(b), **_distinct(b))


def q17(i: Inputs) -> pw.Table:
    b = i.bid.with_columns(d=pw.this.ts // DAY_MS)
    return b.groupby(b.auction, b.d).reduce(
        b.auction,
        b.d,
        **_totals(b),
        mi=pw.reducers.min(b.price),
        ma=pw.reducers.max(b.price),
        av=pw.reducers.avg(b.price),
        su=pw.reducers.sum(b.price),
    )


def q18(i: Inputs) -> pw.Table:
    last = i.bid.groupby(i.bid.bidder, i.bid.auction).reduce(row=pw.reducers.argmax(i.bid.ts))
    return i.bid.ix(last.row)


def q19(i: Inputs) -> pw.Table:
    b = i.bid.with_columns(rank=pw.make_tuple(-pw.this.price, pw.this.ts, pw.this.id))
    ordered = b.groupby(b.auction).reduce(rows=pw.reducers.sorted_tuple(b.rank))
    first = ordered.select(rows=pw.apply(_first, pw.this.rows)).flatten(pw.this.rows)
    row = i.bid.ix(first.rows[1])
    return first.select(*row, n=first.rows[0])


def _first(rows: list[tuple[int, int, pw.Pointer]]) -> list[tuple[int, pw.Pointer]]:
    return [(number + 1, row[2]) for number, row in enumerate(rows[:10])]


def q20(i: Inputs) -> pw.Table:
    a = i.auction.filter(pw.this.category == 10)
    details = {name: a[name] for name in ("item", "description", "initial_bid", "reserve", "expires", "seller")}
    return i.bid.join(a, i.bid.auction == a.number).select(
        *i.bid, **details, category=a.category, ats=a.ts, aextra=a.extra
    )


def q21(i: Inputs) -> pw.Table:
    found = i.bid.select(
        *(pw.this[name] for name in ("auction", "bidder", "price", "channel")),
        channel_id=pw.apply(_channel_id, pw.this.channel, pw.this.url),
    )
    return found.filter(pw.this.channel_id.is_not_none())


def _channel_id(channel: str, url: str) -> str | None:
    if (known := CHANNELS.get(channel.lower())) is not None:
        return known
    found = CHANNEL_ID.search(url)
    return None if found is None else found[2]


def q22(i: Inputs) -> pw.Table:
    parts = i.bid.select(
        *(pw.this[name] for name in ("auction", "bidder", "price", "channel")),
        dirs=pw.apply(_directories, pw.this.url),
    )
    return parts.select(*parts.without(parts.dirs), dir1=pw.this.dirs[0], dir2=pw.this.dirs[1], dir3=pw.this.dirs[2])


def _directories(url: str) -> tuple[str, str, str]:
    first, second, third = url.split("/", 6)[3:6]
    return first, second, third


QUERIES: dict[str, Callable[[Inputs], pw.Table]] = {
    query.__name__: query
    for query in (q0, q1, q2, q3, q4, q5, q7, q8, q9, q10, q11, q12, q13, q14, q15, q16, q17, q18, q19, q20, q21, q22)
}


def used_s() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def main(directory: Path, name: str) -> None:
    if name not in QUERIES:
        return
    pw.io.null.write(QUERIES[name](Inputs(directory)))
    begun, before = time.monotonic(), used_s()
    pw.run(monitoring_level=pw.MonitoringLevel.NONE)
    print(json.dumps([name, time.monotonic() - begun, used_s() - before]), flush=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
