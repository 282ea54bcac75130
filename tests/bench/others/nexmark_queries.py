"""Tables and queries of Nexmark, in SQL that PostgreSQL and Flink share. Times are milliseconds since 1970."""

COLUMNS = {
    "person": "id bigint, name varchar, city varchar, state varchar, ts bigint",
    "auction": "id bigint, item varchar, reserve bigint, ts bigint, expires bigint, seller bigint, category bigint",
    "bid": "auction bigint, bidder bigint, price bigint, channel varchar, ts bigint",
}

QUERIES = {
    "q0": "SELECT auction, bidder, price, ts FROM bid",
    "q1": "SELECT auction, bidder, 908 * price / 1000 AS price, ts FROM bid",
    "q2": "SELECT auction, price FROM bid WHERE mod(auction, 123) = 0",
    "q3": "SELECT p.name, p.city, p.state, a.id FROM auction a JOIN person p ON a.seller = p.id "
    "WHERE a.category = 10 AND p.state IN ('OR', 'ID', 'CA')",
    "q4": "SELECT q.category, avg(q.final) AS m FROM (SELECT max(b.price) AS final, a.category FROM auction a, bid b "
    "WHERE a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires GROUP BY a.id, a.category) q GROUP BY q.category",
    "q7": "SELECT b.auction, b.price, b.bidder, b.ts FROM bid b JOIN (SELECT max(price) AS most, ts / 10000 AS w "
    "FROM bid GROUP BY ts / 10000) m ON b.price = m.most AND b.ts / 10000 = m.w",
    "q8": "SELECT p.id, p.name, p.w "
    "FROM (SELECT id, name, ts / 10000 AS w FROM person GROUP BY id, name, ts / 10000) p "
    "JOIN (SELECT seller, ts / 10000 AS w FROM auction GROUP BY seller, ts / 10000) a ON p.id = a.seller AND p.w = a.w",
    "q9": "SELECT id, item, seller, category, bidder, price, bts FROM (SELECT a.id, a.item, a.seller, a.category, "
    "b.bidder, b.price, b.ts AS bts, row_number() OVER (PARTITION BY a.id ORDER BY b.price DESC, b.ts, b.bidder) AS n "
    "FROM auction a, bid b WHERE a.id = b.auction AND b.ts BETWEEN a.ts AND a.expires) q WHERE n = 1",
    "q15": "SELECT ts / 86400000 AS d, count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS low, "
    "count(*) FILTER (WHERE price >= 1000000) AS high, count(DISTINCT bidder) AS bidders, "
    "count(DISTINCT auction) AS auctions FROM bid GROUP BY ts / 86400000",
    "q17": "SELECT auction, ts / 86400000 AS d, count(*) AS bids, count(*) FILTER (WHERE price < 10000) AS low, "
    "min(price) AS mi, max(price) AS ma, avg(price) AS av, sum(price) AS su FROM bid GROUP BY auction, ts / 86400000",
    "q18": "SELECT auction, bidder, price, ts FROM (SELECT auction, bidder, price, ts, row_number() "
    "OVER (PARTITION BY bidder, auction ORDER BY ts DESC) AS n FROM bid) q WHERE n <= 1",
    "q20": "SELECT b.auction, b.bidder, b.price, b.ts, a.item, a.seller, a.category FROM bid b "
    "JOIN auction a ON b.auction = a.id WHERE a.category = 10",
}
