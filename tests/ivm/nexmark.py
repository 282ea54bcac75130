"""NEXMark: the persons, auctions and bids of an auction house, queries in PostgreSQL's SQL, and random histories.

Source: Tucker et al., "NEXMark, a benchmark for queries over data streams", and the queries q0 to q22 that Apache Beam
and Flink derived from it. q13 joins a table of channels instead of a file. Hopping windows use generate_series,
tumbling windows date_trunc, and session windows lag() over each bidder's bids. Orders are total, so each query has one
result.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta
from random import Random

TABLES = {
    "person": "id bigint NOT NULL, name text NOT NULL, email text, credit_card text, city text, state char(2), "
    "date_time timestamp NOT NULL, extra text",
    "auction": "id bigint NOT NULL, item text NOT NULL, description text, initial_bid bigint, reserve bigint, "
    "date_time timestamp NOT NULL, expires timestamp NOT NULL, seller bigint NOT NULL, category bigint, extra text",
    "bid": "auction bigint NOT NULL, bidder bigint NOT NULL, price bigint NOT NULL, channel text, url text, "
    "date_time timestamp NOT NULL, extra text",
    "channel": "name text NOT NULL, owner text, fee numeric(6,4)",
}

VIEWS = {
    # The winner of each auction, in three forms.
    "winning_bid": """
SELECT DISTINCT ON (a.id) a.id, a.seller, a.category, a.expires, b.bidder, b.price, b.date_time, b.extra
FROM auction a JOIN bid b ON b.auction = a.id
WHERE b.date_time BETWEEN a.date_time AND a.expires AND b.price >= coalesce(a.reserve, a.initial_bid, 0)
ORDER BY a.id, b.price DESC, b.date_time, b.extra""",
}

QUERIES = {
    "q0": "SELECT auction, bidder, price, date_time, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, date_time, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 3) = 0",
    "q3": """
SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id
WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')""",
    "q4": """
SELECT q.category, avg(q.final) AS mean FROM (
    SELECT max(b.price) AS final, a.category FROM auction a, bid b
    WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires GROUP BY a.id, a.category) q
GROUP BY q.category""",
    "q5": """
WITH counted AS (
    SELECT b.auction, w.starts, count(*) AS bids FROM bid b,
        generate_series(date_trunc('minute', b.date_time) - interval '4 minutes', date_trunc('minute', b.date_time),
            interval '1 minute') AS w(starts)
    GROUP BY b.auction, w.starts)
SELECT c.auction, c.bids, c.starts FROM counted c
JOIN (SELECT max(bids) AS most, starts FROM counted GROUP BY starts) m ON m.starts = c.starts AND c.bids >= m.most""",
    "q6": """
SELECT seller, id, avg(price) OVER (
    PARTITION BY seller ORDER BY date_time, id ROWS BETWEEN 10 PRECEDING AND CURRENT ROW) AS mean
FROM (
    SELECT a.id, a.seller, b.price, b.date_time,
        row_number() OVER (PARTITION BY a.id, a.seller ORDER BY b.price DESC, b.date_time, b.extra) AS place
    FROM auction a, bid b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) q
WHERE place = 1""",
    "q7": """
SELECT b.auction, b.price, b.bidder, b.date_time, b.extra FROM bid b
JOIN (SELECT max(price) AS most, date_trunc('minute', date_time) AS starts FROM bid GROUP BY 2) m
ON b.price = m.most AND b.date_time >= m.starts AND b.date_time < m.starts + interval '1 minute'""",
    "q8": """
SELECT p.id, p.name, p.starts FROM
    (SELECT id, name, date_trunc('minute', date_time) AS starts FROM person GROUP BY 1, 2, 3) p
JOIN (SELECT seller, date_trunc('minute', date_time) AS starts FROM auction GROUP BY 1, 2) a
ON p.id = a.seller AND p.starts = a.starts""",
    "q9": """
SELECT id, item, seller, category, bidder, price, bid_time FROM (
    SELECT a.*, b.bidder, b.price, b.date_time AS bid_time,
        row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.date_time, b.extra) AS place
    FROM auction a, bid b WHERE a.id = b.auction AND b.date_time BETWEEN a.date_time AND a.expires) q
WHERE place = 1""",
    "q9 lateral": """
SELECT a.id, a.item, w.bidder, w.price FROM auction a LEFT JOIN LATERAL (
    SELECT b.bidder, b.price FROM bid b WHERE b.auction = a.id AND b.date_time BETWEEN a.date_time AND a.expires
    ORDER BY b.price DESC, b.date_time, b.extra LIMIT 1) w ON true""",
    "q10": """
SELECT auction, bidder, price, date_time, extra, to_char(date_time, 'YYYY-MM-DD') AS day,
    to_char(date_time, 'HH24:MI') AS minute FROM bid""",
    "q11": """
SELECT bidder, count(*) AS bids, min(date_time) AS starts, max(date_time) AS ends FROM (
    SELECT bidder, date_time, sum(begins) OVER (PARTITION BY bidder ORDER BY date_time, extra) AS session FROM (
        SELECT bidder, date_time, extra, CASE WHEN date_time - lag(date_time) OVER (
            PARTITION BY bidder ORDER BY date_time, extra) <= interval '10 seconds' THEN 0 ELSE 1 END AS begins
        FROM bid) marked) numbered
GROUP BY bidder, session""",
    "q12": """
SELECT bidder, count(*) AS bids, date_bin('10 seconds', date_time, timestamp '2000-01-01') AS starts FROM bid
GROUP BY bidder, 3""",
    "q13": """
SELECT b.auction, b.bidder, b.price, b.date_time, c.owner, round(b.price * c.fee, 2) AS fee
FROM bid b LEFT JOIN channel c ON c.name = b.channel""",
    "q14": """
SELECT auction, bidder, 0.908 * price AS price, CASE
    WHEN extract(hour FROM date_time) BETWEEN 8 AND 18 THEN 'day'
    WHEN extract(hour FROM date_time) <= 6 OR extract(hour FROM date_time) >= 20 THEN 'night' ELSE 'other' END AS part,
    length(extra) - length(replace(extra, 'c', '')) AS c_counts
FROM bid WHERE 0.908 * price > 100 AND 0.908 * price < 5000""",
    "q15": """
SELECT to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS bids,
    count(*) FILTER (WHERE price < 300) AS low, count(*) FILTER (WHERE price >= 300 AND price < 600) AS middle,
    count(*) FILTER (WHERE price >= 600) AS high, count(DISTINCT bidder) AS bidders,
    count(DISTINCT bidder) FILTER (WHERE price < 300) AS low_bidders,
    count(DISTINCT auction) AS auctions, count(DISTINCT auction) FILTER (WHERE price >= 600) AS high_auctions
FROM bid GROUP BY 1""",
    "q16": """
SELECT channel, to_char(date_time, 'YYYY-MM-DD') AS day, max(to_char(date_time, 'HH24:MI')) AS minute, count(*) AS bids,
    count(*) FILTER (WHERE price < 300) AS low, count(DISTINCT bidder) FILTER (WHERE price >= 300) AS high_bidders,
    count(DISTINCT auction) AS auctions
FROM bid GROUP BY 1, 2""",
    "q17": """
SELECT auction, to_char(date_time, 'YYYY-MM-DD') AS day, count(*) AS bids, count(*) FILTER (WHERE price < 300) AS low,
    min(price), max(price), avg(price), sum(price) FROM bid GROUP BY auction, 2""",
    "q18": """
SELECT auction, bidder, price, channel, date_time, extra FROM (
    SELECT *, row_number() OVER (PARTITION BY bidder, auction ORDER BY date_time DESC, extra) AS place FROM bid) q
WHERE place <= 1""",
    "q19": """
SELECT * FROM (
    SELECT *, row_number() OVER (PARTITION BY auction ORDER BY price DESC, date_time, extra) AS place FROM bid) q
WHERE place <= 3""",
    "q20": """
SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.date_time AS bid_time, a.item, a.expires, a.seller, a.category
FROM bid b INNER JOIN auction a ON b.auction = a.id WHERE a.category = 10""",
    "q21": """
SELECT auction, bidder, price, channel, CASE
    WHEN lower(channel) = 'apple' THEN '0' WHEN lower(channel) = 'google' THEN '1'
    ELSE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] END AS channel_id
FROM bid
WHERE (regexp_match(url, '(&|^)channel_id=([^&]*)'))[2] IS NOT NULL OR lower(channel) IN ('apple', 'google')""",
    "q22": """
SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2,
    split_part(url, '/', 6) AS dir3 FROM bid""",
    # Over the materialized view.
    "closing prices": "SELECT category, avg(price) AS mean, count(*) AS sold FROM winning_bid GROUP BY category",
    "sellers": """
SELECT p.name, p.state, count(w.id) AS sold, coalesce(sum(w.price), 0) AS turnover, max(w.price) AS best
FROM person p LEFT JOIN winning_bid w ON w.seller = p.id GROUP BY p.id, p.name, p.state""",
    "unsold": """
SELECT a.id, a.item, (SELECT count(*) FROM bid b WHERE b.auction = a.id) AS bids FROM auction a
WHERE NOT EXISTS (SELECT 1 FROM winning_bid w WHERE w.id = a.id)""",
    "both sides": """
SELECT name FROM person WHERE id IN (SELECT seller FROM winning_bid) AND id NOT IN (SELECT bidder FROM winning_bid)""",
    "rivals": """
SELECT x.bidder AS one, y.bidder AS other, count(DISTINCT x.auction) AS auctions
FROM bid x JOIN bid y ON x.auction = y.auction AND x.bidder < y.bidder
GROUP BY 1, 2 HAVING count(DISTINCT x.auction) > 1""",
    "league": """
SELECT bidder, sum(price) AS spent, rank() OVER (ORDER BY sum(price) DESC) AS place FROM winning_bid GROUP BY bidder""",
    "cube": """
SELECT category, seller, count(*) AS sold, sum(price) AS turnover, grouping(category, seller) AS level
FROM winning_bid GROUP BY ROLLUP (category, seller)""",
}

# For PostgreSQL, `mz_now()` is replaced by the time of the comparison.
TEMPORAL = {
    "open": "SELECT id, item, expires FROM auction WHERE mz_now() < expires",
    "open with best": """
SELECT a.category, count(*) AS open, max(b.price) AS best FROM auction a LEFT JOIN bid b ON b.auction = a.id
WHERE mz_now() < a.expires GROUP BY a.category""",
    "last seconds": """
SELECT auction, count(*) AS bids, max(price) AS best FROM bid
WHERE mz_now() >= date_time AND mz_now() < date_time + interval '2 seconds' GROUP BY auction""",
    "closed": """
SELECT w.id, w.price, p.name FROM winning_bid w LEFT JOIN person p ON p.id = w.bidder WHERE mz_now() >= w.expires""",
    "not expired, not bid": """
SELECT a.id FROM auction a WHERE mz_now() < a.expires AND NOT EXISTS (
    SELECT 1 FROM bid b WHERE b.auction = a.id AND mz_now() < b.date_time + interval '1 second')""",
}

STATES = ("OR", "ID", "CA", "WA", "AZ")
CITIES = ("Portland", "Boise", "San Francisco", "Kent", "Phoenix")
CHANNELS = ("Google", "Apple", "Facebook", "Baidu", "channel-7")


def text(value: str | None) -> str:
    return "NULL" if value is None else "'" + value.replace("'", "''") + "'"


class History:
    """Random transactions over the tables. Their events are at most half a minute before or after `now`."""

    def __init__(self, draw: Random) -> None:
        self._draw = draw
        self._ids = iter(range(1, 1 << 40))
        self._persons: list[int] = []
        self._auctions: list[int] = []

    def first(self, now: datetime) -> Iterator[str]:
        """Statements that insert the initial rows."""
        yield "INSERT INTO channel VALUES " + ", ".join(
            f"({text(name)}, {text(self._some(name + ' Inc.'))}, 0.0{self._draw.randrange(100, 400)})"
            for name in CHANNELS[:4]
        )
        yield self._new_persons(now, 12)
        yield self._new_auctions(now, 12)
        yield self._new_bids(now, 60)

    def transaction(self, now: datetime) -> list[str]:
        """The statements of one transaction: new rows in several tables, or one correction."""
        if self._draw.random() < 0.55:
            return [
                new(now, self._draw.randrange(1, most))
                for new, most in ((self._new_persons, 3), (self._new_auctions, 3), (self._new_bids, 15))
                if self._draw.random() < 0.7
            ] or [self._new_bids(now, 1)]
        return [self._correction()]

    def _correction(self) -> str:
        auction, person = self._draw.choice(self._auctions), self._draw.choice(self._persons)
        changes = (
            f"UPDATE bid SET price = price + {self._draw.randrange(-200, 200)} WHERE auction = {auction}",
            f"UPDATE bid SET date_time = date_time - interval '{self._draw.randrange(1, 90)} seconds' "
            f"WHERE bidder = {person}",
            f"UPDATE bid SET channel = {text(self._some(self._draw.choice(CHANNELS)))} WHERE bidder = {person}",
            f"DELETE FROM bid WHERE bidder = {person}",
            f"DELETE FROM bid WHERE price > {self._draw.randrange(700, 1000)}",
            f"UPDATE auction SET category = {self._category()} WHERE id = {auction}",
            f"UPDATE auction SET reserve = {self._draw.randrange(100, 900)} WHERE seller = {person}",
            f"UPDATE auction SET expires = expires - interval '{self._draw.randrange(-20, 20)} seconds' "
            f"WHERE id <= {auction}",
            f"DELETE FROM auction WHERE id = {auction}",
            f"UPDATE person SET state = {text(self._draw.choice(STATES))} WHERE id = {person}",
            f"UPDATE person SET id = {self._draw.choice(self._persons)} WHERE id = {person}",
            f"DELETE FROM person WHERE id = {person}",
            f"INSERT INTO bid SELECT * FROM bid WHERE auction = {auction}",
            f"INSERT INTO person SELECT * FROM person WHERE id = {person}",
            f"UPDATE channel SET fee = fee + 0.001, owner = {text(self._some('Someone'))} "
            f"WHERE name = {text(self._draw.choice(CHANNELS))}",
            f"DELETE FROM channel WHERE name = {text(self._draw.choice(CHANNELS))}",
        )
        return self._draw.choice(changes)

    def _new_persons(self, now: datetime, count: int) -> str:
        rows = []
        for _ in range(count):
            self._persons.append(number := next(self._ids))
            place = self._draw.randrange(len(STATES))
            rows.append(
                f"({number}, 'person {number}', {text(self._some(f'{number}@example.com'))}, '{number:016d}', "
                f"'{CITIES[place]}', '{STATES[place]}', {self._time(now)}, NULL)"
            )
        return "INSERT INTO person VALUES " + ", ".join(rows)

    def _new_auctions(self, now: datetime, count: int) -> str:
        rows = []
        for _ in range(count):
            self._auctions.append(number := next(self._ids))
            begins = now + timedelta(seconds=self._draw.randrange(-30, 2))
            ends = now + timedelta(milliseconds=self._draw.randrange(-5_000, 20_000))
            reserve = self._some(str(self._draw.randrange(100, 900))) or "NULL"
            rows.append(
                f"({number}, 'item {number}', NULL, {self._draw.randrange(50, 300)}, {reserve}, '{begins}', '{ends}', "
                f"{self._draw.choice(self._persons)}, {self._category()}, '')"
            )
        return "INSERT INTO auction VALUES " + ", ".join(rows)

    def _new_bids(self, now: datetime, count: int) -> str:
        rows = []
        for _ in range(count):
            channel = self._some(self._draw.choice(CHANNELS))
            url = (
                f"https://www.example.com/{channel or 'none'}/item.htm/a?query=1&channel_id={self._draw.randrange(99)}"
            )
            rows.append(
                f"({self._draw.choice(self._auctions)}, {self._draw.choice(self._persons)}, "
                f"{self._draw.randrange(50, 1000)}, {text(channel)}, {text(self._some(url))}, {self._time(now)}, "
                f"'{self._draw.choice(('abc', 'cc', 'x'))}{next(self._ids)}')"
            )
        return "INSERT INTO bid VALUES " + ", ".join(rows)

    def _category(self) -> str:
        return self._draw.choice(("10", "10", "11", "12", "NULL"))

    def _time(self, now: datetime) -> str:
        return f"'{now + timedelta(milliseconds=self._draw.randrange(-30_000, 2_000))}'"

    def _some(self, value: str) -> str | None:
        return None if self._draw.random() < 0.1 else value
