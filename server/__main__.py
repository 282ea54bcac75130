"""The command line: starts and stops a server, and checks data directories."""

from __future__ import annotations

import gc
import os
import sys
from importlib.metadata import version
from pathlib import Path
from typing import Annotated, Any

import typer

from server.authentication.rules import Method
from server.config import ConfigError, load
from server.process import run
from server.runtime.allocator import configure_allocator
from server.runtime.hidden_pandas import hide_pandas
from server.runtime.logs import configure_logs

app = typer.Typer(add_completion=False, no_args_is_help=True)


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"tidewire {version('tidewire')}")
        raise typer.Exit


@app.callback()
def _commands(
    show_version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Tidewire: a server for PostgreSQL clients that keeps the results of SQL queries up to date.

    Apache Spark computes the queries. SUBSCRIBE sends a client every change of a result as it commits.
    """


@app.command()
def serve(
    listen: Annotated[
        str | None, typer.Option(help="Address for PostgreSQL clients, HOST:PORT.", show_default="127.0.0.1:6875")
    ] = None,
    http_listen: Annotated[
        str | None,
        typer.Option(
            help="Address of the HTTP port: the API, the console, metrics; empty for none.",
            show_default="127.0.0.1:6876",
        ),
    ] = None,
    http_host_names: Annotated[
        str | None,
        typer.Option(
            help="Host names of HTTP requests, in addition to localhost and IP addresses: NAME,NAME,...",
            show_default="none",
        ),
    ] = None,
    http_origins: Annotated[
        str | None,
        typer.Option(
            help="Origins whose web pages may use the HTTP API, in addition to the server's own: "
            "https://app.example,...",
            show_default="none",
        ),
    ] = None,
    auth: Annotated[
        Method | None,
        typer.Option(
            help="How all clients authenticate. trust accepts only clients on this machine. Anything else is required "
            "to listen on an address that other machines can reach.",
            show_default="trust",
        ),
    ] = None,
    hba_file: Annotated[
        Path | None,
        typer.Option(help="Rules of client authentication, in the form of pg_hba.conf; instead of --auth."),
    ] = None,
    tls_cert: Annotated[
        Path | None, typer.Option(help="The server's certificate and its chain, PEM. Enables TLS on both ports.")
    ] = None,
    tls_key: Annotated[Path | None, typer.Option(help="The private key of --tls-cert, PEM, not encrypted.")] = None,
    tls_ca: Annotated[
        Path | None, typer.Option(help="The certificates that may issue those of clients, PEM, for `cert`.")
    ] = None,
    superuser_password_file: Annotated[
        Path | None,
        typer.Option(help="The first line is the password of role materialize, if it has none yet."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Directory of the catalog, the log and spark.log.", show_default="tidewire-data")
    ] = None,
    arrangement_directory: Annotated[
        Path | None,
        typer.Option(
            help="A directory that all executors of Spark can access by the same path, for the state of large queries."
        ),
    ] = None,
    spark_master: Annotated[
        str | None,
        typer.Option(
            help="Where Spark computes, as Spark's --master: local[*], local-cluster[N,CORES,MB], spark://HOST:PORT.",
            show_default="local[*]",
        ),
    ] = None,
    spark_remote: Annotated[
        str | None,
        typer.Option(help="A Spark Connect server that computes instead, sc://HOST:PORT; not with --spark-master."),
    ] = None,
    spark_memory: Annotated[
        str | None,
        typer.Option(help="Largest heap of the JVM that Spark's driver runs in, such as 4GB.", show_default="2GB"),
    ] = None,
    spark_conf: Annotated[
        list[str] | None,
        typer.Option(help="One of Spark's settings, KEY=VALUE; may be repeated.", metavar="KEY=VALUE"),
    ] = None,
    timestamp_interval: Annotated[
        str | None,
        typer.Option(help="How often time advances while nothing is written, 10ms to 60s.", show_default="1s"),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json, on stderr.", show_default="console")] = None,
    config: Annotated[
        Path | None,
        typer.Option(help="TOML file with these settings: listen, data_dir, ...", envvar="TIDEWIRE_CONFIG"),
    ] = None,
) -> None:
    """Runs the server until SIGTERM or SIGINT.

    Every option can also be given as TIDEWIRE_NAME, for instance TIDEWIRE_DATA_DIR. An option wins over the
    environment, the environment over the config file.
    """
    flags: dict[str, Any] = {
        "listen": listen,
        "http_listen": http_listen,
        "http_host_names": http_host_names,
        "http_origins": http_origins,
        "auth": auth,
        "hba_file": hba_file,
        "tls_cert": tls_cert,
        "tls_key": tls_key,
        "tls_ca": tls_ca,
        "superuser_password_file": superuser_password_file,
        "data_dir": data_dir,
        "arrangement_directory": arrangement_directory,
        "spark_master": spark_master,
        "spark_remote": spark_remote,
        "spark_memory": spark_memory,
        "spark_conf": None if not spark_conf else dict(_pair(text) for text in spark_conf),
        "timestamp_interval": timestamp_interval,
        "log_format": log_format,
    }
    try:
        settings = load({name: value for name, value in flags.items() if value is not None}, config)
    except ConfigError as error:
        _die(str(error), None)
    configure_logs(settings.log_format)
    if (failure := run(settings)) is not None:
        _die(failure.message, failure.hint)


@app.command()
def check(
    data_dir: Annotated[
        Path,
        typer.Option(help="The data directory; no server may be using it.", envvar="TIDEWIRE_DATA_DIR"),
    ] = Path("tidewire-data"),
) -> None:
    """Verifies a data directory: the catalog's file, and the checksum of every batch of every relation.

    Changes nothing. Prints a line for each damage; the exit code is 1 if there is any.
    """
    _print_check(data_dir.absolute())


@app.command()
def backup(
    target: Annotated[Path, typer.Argument(help="The directory for the copy; new or empty.")],
    data_dir: Annotated[
        Path, typer.Option(help="The data directory; a server may be using it.", envvar="TIDEWIRE_DATA_DIR")
    ] = Path("tidewire-data"),
) -> None:
    """Copies a data directory as it is at one instant, while its server runs. Then verifies the copy, as check does."""
    from catalog.backup import back_up
    from catalog.store import StoreError

    try:
        back_up(data_dir.absolute(), target.absolute())
    except StoreError as error:
        _die(str(error), error.hint)
    _print_check(target.absolute())


def _print_check(directory: Path) -> None:
    """Checks a data directory and prints the result. The exit code is 1 if anything is damaged."""
    from catalog import check as checks
    from catalog.store import StoreError

    try:
        report = checks.check(directory)
    except StoreError as error:
        _die(str(error), error.hint)
    for line in report.damage:
        print(f"damaged: {line}")
    print(f"checked {report.batches} batches, {report.bytes} bytes: {len(report.damage)} damaged")
    if report.without_checksum:
        print(f"{report.without_checksum} batches were written by an earlier version and have no checksum")
    if report.unused_files:
        print(f"{report.unused_files} payload files are not used; the next start removes them")
    if report.damage:
        raise SystemExit(1)


@app.command()
def top(
    url: Annotated[
        str, typer.Argument(help="The server, postgres://USER@HOST:PORT/DATABASE.", envvar="TIDEWIRE_URL")
    ] = "postgres://materialize@127.0.0.1:6875/materialize",
    interval: Annotated[float, typer.Option(help="Seconds between two readings.", min=0.1)] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print the tables once, and end.")] = False,
) -> None:
    """Shows what a server does: frontiers, dataflows, holds, sources, sinks and sessions. Ctrl-C ends it.

    A rate is the difference between two readings. Superusers see all columns.
    """
    import asyncio

    from rich.console import Console

    from server.top.top import Unreachable, show, show_once

    try:
        asyncio.run(show_once(url, Console()) if once else show(url, interval, Console()))
    except Unreachable as error:
        _die(str(error), None)
    except KeyboardInterrupt:
        pass


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: use KEY=VALUE", param_hint="--spark-conf")
    return key, value


def _die(message: str, hint: str | None) -> None:
    print(f"tidewire: {message}" + (f"\nHINT: {hint}" if hint else ""), file=sys.stderr)
    raise SystemExit(1)


def main() -> None:
    """The entry point of `tidewire`."""
    configure_allocator(os.environ)
    gc.disable()  # imports create no garbage; `process` enables it when the server listens
    hide_pandas()
    app()


if __name__ == "__main__":
    main()
