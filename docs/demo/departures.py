"""The demo's command line: a live departures board of New York's airports in 2013, maintained by Tidewire.

The demo is an external client: it imports nothing from the server, starts it as a program, and uses PostgreSQL's
protocol. `play.py` runs the demo. Its imports take a second; signals are caught before them, so that Ctrl-C shows no
traceback.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path

from interrupts import Interrupts, exit_code

DAY = date(
    2013, 7, 10
)  # thunderstorms: 121 of 1,004 flights were cancelled, the others were 53 minutes late on average
SPEED = 60.0


def main() -> int:
    """The exit code: 0; 1 after a failure or a difference; 128 + the number of the signal that ended the demo."""
    interrupts = Interrupts()
    try:
        arguments = _arguments()
        import psycopg
        from flights import DataMissing
        from local_server import ServerFailed
        from play import Demo, Options
        from replay import NotOurs
        from subscription import SubscriptionFailed
    except KeyboardInterrupt as interrupt:
        return exit_code(interrupt)
    except ImportError as error:
        print(f"demo: {error}; `make demo` installs what it needs", file=sys.stderr)
        return 1
    demo = Demo(Options(**vars(arguments)), interrupts)
    try:
        return demo.run()
    except KeyboardInterrupt as interrupt:
        print(f"\nStopped while {demo.doing}. {demo.remains}", file=sys.stderr)
        return exit_code(interrupt)
    except (DataMissing, ServerFailed, SubscriptionFailed, NotOurs, psycopg.Error, OSError) as error:
        print(f"demo: failed while {demo.doing}: {error}\n{demo.remains}", file=sys.stderr)
        return 1


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description="Replays a day of New York's flights of 2013 through Tidewire and draws the departures board that "
        "two SUBSCRIBEs keep up to date. Starts a server of its own, and stops it at the end.",
    )
    parser.add_argument("--day", type=_day, default=DAY, metavar="YYYY-MM-DD", help=f"a day of 2013 [default: {DAY}]")
    parser.add_argument(
        "--speed",
        type=_positive(float),
        default=SPEED,
        metavar="N",
        help=f"seconds of the day that pass in one second; --once knows no pauses [default: {SPEED:g}]",
    )
    parser.add_argument(
        "--once",
        action="store_true",
        help="as fast as it goes, in plain lines; then check the rows against pandas and leave, with exit code 1 if "
        "they differ",
    )
    parser.add_argument(
        "--minutes",
        type=_positive(int),
        metavar="N",
        help="stop after the day's first N minutes in which something happens [default: the whole day]",
    )
    parser.add_argument(
        "--no-history",
        dest="history",
        action="store_false",
        help="do not load the table of all 336,776 flights of the year, which the replay itself does not need",
    )
    parser.add_argument("--url", metavar="DSN", help="use this running server [default: start one]")
    parser.add_argument(
        "--data-dir",
        type=Path,
        metavar="DIR",
        help="of the server that is started [default: tidewire-data/demo; with --once a temporary one]",
    )
    return parser.parse_args()


def _day(text: str) -> date:
    try:
        day = date.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError("write it as 2013-07-10") from error
    if day.year != 2013:
        raise argparse.ArgumentTypeError("the flights are of 2013")
    return day


def _positive(kind: type[int] | type[float]) -> Callable[[str], int | float]:
    def read(text: str) -> int | float:
        try:
            value = kind(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError("must be a number") from error
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError("must be greater than 0")
        return value

    return read


if __name__ == "__main__":
    sys.exit(main())
