"""Tables and queries of Nexmark, in SQL that PostgreSQL and Flink share, except for those in `FLINK`.

Source: https://github.com/nexmark/nexmark, queries q0 to q22. Flink has no q6. Differences from the source:

- Times are milliseconds since 1970, and days are numbers of days, so that both systems can use the same expressions.
- Windows are groups, which are updated while events arrive. Only q11 on Flink, which has no other way, uses its window
  function: a window is complete when the watermark has passed it.
- q10 computes the columns by which the source partitions its files, and writes no files.
- q12 uses the times of the events, not the clock's. q13 joins a table instead of a file.
- The orders of q9 and q19 have one more column, so that each query has one result.
"""

COLUMNS = {
    "person": "id bigint, name varchar, email varchar, credit_card varchar, city varchar, state varchar, ts bigint, "
    "extra varchar",
    "auction": "id bigint, item varchar, description varchar, initial_bid bigint, reserve bigint, ts bigint, "
    "expires bigint, seller bigint, category bigint, extra varchar",
    "bid": "auction bigint, bidder bigint, price bigint, channel varchar, url varchar, ts bigint, extra varchar",
}
SIDE_INPUT = "side_input"  # of q13, complete before the first event
SIDE_COLUMNS = "k bigint, v varchar"

_RANKS = (
    "count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS bids1, "
    "count(*) FILTER (WHERE price >= 10000 AND price < 1000000) AS bids2, "
    "count(*) FILTER (WHERE price >= 1000000) AS bids3"
)
_DISTINCT = ", ".join(
    f"count(DISTINCT {column}) AS {column}s, "
    f"count(DISTINCT {column}) FILTER (WHERE price < 10000) AS {column}s1, "
    f"count(DISTINCT {column}) FILTER (WHERE price >= 10000 AND price < 1000000) AS {column}s2, "
    f"count(DISTINCT {column}) FILTER (WHERE price >= 1000000) AS {column}s3"
    for column in ("bidder", "auction")
)
_HOPS = (
    "SELECT b.auction, b.ts / 2000 - h.n AS w, count(*) AS num "
    "FROM bid b CROSS JOIN (VALUES (0), (1), (2), (3), (4)) AS h(n) GROUP BY b.auction, b.ts / 2000 - h.n"
)
_AUCTION = "a.item, a.description, a.initial_bid, a.reserve, a.ts AS ats, a.expires, a.seller, a.category"
_BID = "auction, bidder, price, channel, url, ts, extra"
_CHANNELS = "'apple', 'google', 'facebook', 'baidu'"
_NUMBERED = "".join(f" WHEN lower(channel) = {name} THEN '{n}'" for n, name in enumerate(_CHANNELS.split(", ")))
_CHANNEL_ID = "(regexp_match(url, '(&|^)channel_id=([^&]*)'))[2]"

QUERIES = {
    "q0": "SELECT auction, bidder, price, ts, extra FROM bid",
    "q1": "SELECT auction, bidder, 0.908 * price AS price, ts, extra FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT q.category, avg(q.final) AS m FROM (SELECT max(b.price) AS final, a.category FROM auction a, bid b "
    "WHERE a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category) q GROUP BY q.category",
    "q5": f"SELECT c.auction, c.num FROM ({_HOPS}) c JOIN (SELECT max(num) AS most, w FROM ({_HOPS}) n GROUP BY w) m "
    "ON c.w = m.w AND c.num >= m.most",
    "q7": "SELECT b.auction, b.price, b.bidder, b.ts, b.extra FROM bid b JOIN (SELECT max(price) AS most, "
    "ts / 10000 AS w FROM bid GROUP BY ts / 10000) m ON b.price = m.most AND b.ts / 10000 = m.w",
    "q8": "SELECT p.id, p.name, p.w "
    "FROM (SELECT id, name, ts / 10000 AS w FROM person GROUP BY id, name, ts / 10000) p "
    "JOIN (SELECT seller, ts / 10000 AS w FROM auction GROUP BY seller, ts / 10000) a ON p.id = a.seller AND p.w = a.w",
    "q9": "SELECT id, item, description, initial_bid, reserve, ats, expires, seller, category, aextra, bidder, price, "
    f"bts, bextra FROM (SELECT a.id, {_AUCTION}, a.extra AS aextra, b.bidder, b.price, b.ts AS bts, "
    "b.extra AS bextra, row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.bidder) AS n "
    "FROM auction a, bid b WHERE a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires) q WHERE n <= 1",
    "q10": "SELECT auction, bidder, price, ts, extra, "
    "to_char(timestamp 'epoch' + ts * interval '1 millisecond', 'YYYY-MM-DD') AS d, "
    "to_char(timestamp 'epoch' + ts * interval '1 millisecond', 'HH24:MI') AS m FROM bid",
    "q11": "SELECT bidder, count(*) AS bids, min(ts) AS starts, max(ts) AS ends FROM (SELECT bidder, ts, "
    "sum(begins) OVER (PARTITION BY bidder ORDER BY ts) AS session FROM (SELECT bidder, ts, CASE WHEN ts - "
    "lag(ts) OVER (PARTITION BY bidder ORDER BY ts) <= 10000 THEN 0 ELSE 1 END AS begins FROM bid) b) n "
    "GROUP BY bidder, session",
    "q12": "SELECT bidder, count(*) AS bids, ts / 10000 AS w FROM bid GROUP BY bidder, ts / 10000",
    "q13": "SELECT b.auction, b.bidder, b.price, b.ts, s.v FROM bid b JOIN side_input s ON mod(b.auction, 10000) = s.k",
    "q14": "SELECT auction, bidder, 0.908 * price AS price, CASE "
    "WHEN mod(ts / 3600000, 24) >= 8 AND mod(ts / 3600000, 24) <= 18 THEN 'dayTime' "
    "WHEN mod(ts / 3600000, 24) <= 6 OR mod(ts / 3600000, 24) >= 20 THEN 'nightTime' ELSE 'otherTime' END AS part, "
    "ts, extra, char_length(extra) - char_length(replace(extra, 'c', '')) AS c_counts "
    "FROM bid WHERE 0.908 * price > 1000000 AND 0.908 * price < 50000000",
    "q15": f"SELECT ts / 86400000 AS d, {_RANKS}, {_DISTINCT} FROM bid GROUP BY ts / 86400000",
    "q16": f"SELECT channel, ts / 86400000 AS d, max(mod(ts / 60000, 1440)) AS m, {_RANKS}, {_DISTINCT} FROM bid "
    "GROUP BY channel, ts / 86400000",
    "q17": f"SELECT auction, ts / 86400000 AS d, {_RANKS}, min(price) AS mi, max(price) AS ma, avg(price) AS av, "
    "sum(price) AS su FROM bid GROUP BY auction, ts / 86400000",
    "q18": f"SELECT {_BID} FROM (SELECT {_BID}, row_number() OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS n "
    "FROM bid) q WHERE n <= 1",
    "q19": f"SELECT {_BID}, n FROM (SELECT {_BID}, row_number() OVER (PARTITION BY auction ORDER BY price DESC, ts) "
    "AS n FROM bid) q WHERE n <= 10",
    "q20": f"SELECT b.auction, b.bidder, b.price, b.channel, b.url, b.ts, b.extra, {_AUCTION}, a.extra AS aextra "
    "FROM bid b JOIN auction a ON b.auction = a.id WHERE a.category = 10",
    "q21": f"SELECT auction, bidder, price, channel, CASE{_NUMBERED} ELSE {_CHANNEL_ID} END AS channel_id FROM bid "
    f"WHERE {_CHANNEL_ID} IS NOT NULL OR lower(channel) IN ({_CHANNELS})",
    "q22": "SELECT auction, bidder, price, channel, split_part(url, '/', 4) AS dir1, split_part(url, '/', 5) AS dir2, "
    "split_part(url, '/', 6) AS dir3 FROM bid",
}

# Where Flink's SQL differs. Its avg() of integers is an integer.
FLINK = QUERIES | {
    "q10": "SELECT auction, bidder, price, ts, extra, DATE_FORMAT(TO_TIMESTAMP_LTZ(ts, 3), 'yyyy-MM-dd') AS d, "
    "DATE_FORMAT(TO_TIMESTAMP_LTZ(ts, 3), 'HH:mm') AS m FROM bid",
    "q11": "SELECT bidder, count(*) AS bids, min(ts) AS starts, max(ts) AS ends FROM TABLE(SESSION("
    "TABLE timed_bid PARTITION BY bidder, DESCRIPTOR(row_time), INTERVAL '10' SECOND)) "
    "GROUP BY bidder, window_start, window_end",
    "q21": QUERIES["q21"].replace(_CHANNEL_ID, "REGEXP_EXTRACT(url, '(&|^)channel_id=([^&]*)', 2)"),
    "q22": "SELECT auction, bidder, price, channel, SPLIT_INDEX(url, '/', 3) AS dir1, "
    "SPLIT_INDEX(url, '/', 4) AS dir2, SPLIT_INDEX(url, '/', 5) AS dir3 FROM bid",
}
