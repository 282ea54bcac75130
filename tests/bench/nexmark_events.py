"""The events of Nexmark, with the proportions, sizes and skew of its generator."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.bench.others.nexmark_queries import COLUMNS, SIDE_COLUMNS, SIDE_INPUT

START_MS = 1_700_000_000_000
CYCLE = ("person", *("auction",) * 3, *("bid",) * 46)
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
CITIES = ("Phoenix", "Los Angeles", "San Francisco", "Boise", "Portland", "Bend", "Redmond", "Seattle", "Kent")
HOT_CHANNELS = ("Google", "Facebook", "Baidu", "Apple")
SIDE_ROWS = 10_000
LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Events:
    """Events as lines of CSV, in their order. `per_ms`: the number of events with one time."""

    def __init__(self, count: int, per_ms: int = 10) -> None:
        self.lines: list[tuple[str, str]] = []  # the table and the line
        self._draw = Random(7)
        self._text = "".join(self._draw.choices(LETTERS, k=100_000))
        self._persons = self._auctions = 0
        for number in range(count):
            table = CYCLE[number % len(CYCLE)]
            now = START_MS + number // per_ms
            line = {"person": self._person, "auction": self._auction, "bid": self._bid}[table](now)
            self.lines.append((table, line + "\n"))
        self.side_input = "".join(f"{k},side {k}\n" for k in range(SIDE_ROWS))

    def write(self, directory: Path) -> None:
        """Writes one file per table."""
        for table in COLUMNS:
            (directory / f"{table}.csv").write_text("".join(line for name, line in self.lines if name == table))
        (directory / f"{SIDE_INPUT}.csv").write_text(self.side_input)

    def write_transactions(self, directory: Path, size: int) -> None:
        """Writes the files for Pathway, see `others/pathway_nexmark.py`, into `directory / "transactions"`."""
        parts = [{SIDE_INPUT: self.side_input.encode()}, *self.transactions(size)]
        for number, lines in enumerate(parts):
            for table, text in lines.items():
                columns = (SIDE_COLUMNS if table == SIDE_INPUT else COLUMNS[table]).split(", ")
                names = [column.split()[0] for column in columns]
                names = ["number" if name == "id" else name for name in names]
                file = directory / "transactions" / table / f"{number:09d}.csv"
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(f"{','.join(names)}\n".encode() + text)

    def transactions(self, size: int) -> list[dict[str, bytes]]:
        """The lines of each table, for each transaction of `size` events."""
        found = []
        for first in range(0, len(self.lines), size):
            part = self.lines[first : first + size]
            lines = {table: "".join(line for name, line in part if name == table).encode() for table in COLUMNS}
            found.append({table: text for table, text in lines.items() if text})
        return found

    def _person(self, now: int) -> str:
        draw, number = self._draw, self._persons
        self._persons += 1
        card = f"{draw.randrange(10**16):016d}"
        line = f"{number},person {number},{self._some(7)}@{self._some(5)}.com,{card}"
        return f"{line},{draw.choice(CITIES)},{draw.choice(STATES)},{now},{self._some(100)}"

    def _auction(self, now: int) -> str:
        draw, number = self._draw, self._auctions
        self._auctions += 1
        seller = self._persons - 1 if draw.random() < 0.25 else self._recent(self._persons, 1_000)
        expires, bid = now + draw.randrange(1_000, 20_000), self._price()
        line = f"{number},item {number},{self._some(50)},{bid},{bid + self._price()},{now},{expires},{seller}"
        return f"{line},{10 + draw.randrange(5)},{self._some(350)}"

    def _bid(self, now: int) -> str:
        draw = self._draw
        auction = self._auctions // 100 * 100 if draw.random() < 0.5 else self._recent(self._auctions, 100)
        bidder = self._persons // 100 * 100 if draw.random() < 0.75 else self._recent(self._persons, 1_000)
        if draw.random() < 0.5:
            channel = draw.choice(HOT_CHANNELS)
            url = f"https://www.nexmark.com/{channel[:3]}/{channel[1:]}/{channel}/item.htm?query=1"
        else:
            number = draw.randrange(10_000)
            channel = f"channel-{number}"
            url = f"https://www.nexmark.com/{self._some(4)}/{self._some(4)}/{self._some(4)}/item.htm?query=1"
            if draw.random() < 0.9:
                url += f"&channel_id={number}"
        line = f"{min(auction, self._auctions - 1)},{bidder},{self._price()},{channel},{url},{now}"
        return f"{line},{self._some(20)}"

    def _price(self) -> int:
        return int(10 ** (self._draw.random() * 6) * 100)

    def _some(self, length: int) -> str:
        first = self._draw.randrange(len(self._text) - length)
        return self._text[first : first + length]

    def _recent(self, count: int, window: int) -> int:
        return max(0, count - 1 - int(self._draw.random() * min(count, window)))
