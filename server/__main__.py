"""The command line: starts and stops a server, and checks data directories."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import resource
import signal
import sys
from pathlib import Path
from typing import Annotated, Any

import structlog
import typer
import uvloop

from server.config import Config, ConfigError, load
from server.runtime.shutdown import end_by_force

# A session creates many short-lived objects and few cycles. Cancelled parses leave cycles: up to about 5,000,000
# objects, 700 MB, wait for a collection of the third generation.
GC_THRESHOLDS = 50_000, 20, 5
DESCRIPTORS_WANTED = 65_536
GRACE_S = 2.0  # how long clients may take at shutdown to read what was written to them

app = typer.Typer(add_completion=False, no_args_is_help=True, help="PostgreSQL on the wire, Spark behind it.")


@app.callback()
def _commands() -> None:
    """PostgreSQL on the wire, Spark behind it: SUBSCRIBE to a query and get every change as it commits."""


@app.command()
def serve(
    listen: Annotated[
        str | None, typer.Option(help="Address for PostgreSQL clients, HOST:PORT.", show_default="127.0.0.1:6875")
    ] = None,
    http_listen: Annotated[
        str | None,
        typer.Option(help="Address for /metrics, /healthz and /readyz; empty for none.", show_default="127.0.0.1:6876"),
    ] = None,
    http_host_names: Annotated[
        str | None,
        typer.Option(
            help="Names under which HTTP requests are answered, besides localhost and IP addresses: NAME,NAME,...",
            show_default="none",
        ),
    ] = None,
    allow_remote: Annotated[
        bool | None,
        typer.Option("--allow-remote", help="Accept an address that other machines can reach. There is no password."),
    ] = None,
    data_dir: Annotated[
        Path | None, typer.Option(help="Where catalog, log and spark.log lie.", show_default="tidewire-data")
    ] = None,
    arrangement_directory: Annotated[
        Path | None,
        typer.Option(
            help="A directory that every executor of Spark reaches under this name, for the state of large queries."
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
        typer.Option(help="How often time moves on while nothing is written, 10ms to 60s.", show_default="1s"),
    ] = None,
    log_format: Annotated[str | None, typer.Option(help="console or json, on stderr.", show_default="console")] = None,
    config: Annotated[
        Path | None, typer.Option(help="TOML file with the same names: listen, data_dir, ...", envvar="TIDEWIRE_CONFIG")
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
        "allow_remote": allow_remote,
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
    _configure_logs(settings.log_format)
    # A py4j thread that computes in Python would otherwise block the event loop for 5 ms at a time.
    sys.setswitchinterval(0.0005)
    # Parsing and planning are recursive, a few frames for each level of nesting in a statement.
    sys.setrecursionlimit(10_000)
    # Each client uses a descriptor. The soft limit, often 1,024, exists for programs that use select().
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = DESCRIPTORS_WANTED if hard == resource.RLIM_INFINITY else min(hard, DESCRIPTORS_WANTED)
    if resource.getrlimit(resource.RLIMIT_NOFILE)[0] < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    failure = uvloop.run(_serve(settings))
    gc.unfreeze()  # DuckDB reports its own objects as leaked if the interpreter cannot collect them at exit
    if failure is not None:
        _die(*failure)


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
    from catalog import check as checks
    from catalog.store import StoreError

    try:
        report = checks.check(data_dir.absolute())
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


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not equals:
        raise typer.BadParameter(f"{text}: use KEY=VALUE", param_hint="--spark-conf")
    return key, value


def _die(message: str, hint: str | None) -> None:
    print(f"tidewire: {message}" + (f"\nHINT: {hint}" if hint else ""), file=sys.stderr)
    raise SystemExit(1)


class _Stderr:
    """Standard error. It may be a file on a full disk or a closed pipe, which must not stop the server."""

    def write(self, text: str) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.write(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            sys.stderr.flush()


def _configure_logs(format: str) -> None:
    renderer: Any = (
        structlog.processors.JSONRenderer()
        if format == "json"
        else structlog.dev.ConsoleRenderer(
            colors=sys.stderr.isatty(), exception_formatter=structlog.dev.plain_traceback
        )
    )
    traces = [structlog.processors.format_exc_info] if format == "json" else []
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *traces,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.INFO),
        logger_factory=structlog.PrintLoggerFactory(_Stderr()),  # type: ignore[arg-type]
    )


async def _serve(config: Config) -> tuple[str, str | None] | None:
    """Runs the server until a signal. Returns the message and hint of a failure that ended it early."""
    from catalog.store import StoreError
    from server.app import App  # imports everything, so only after the arguments are checked

    log = structlog.get_logger()
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    try:
        app = App(config)
    except StoreError as error:
        return str(error), error.hint
    try:
        await app.start()
        try:
            host, port = await app.listen()
        except OSError as error:
            return (
                f"could not listen on {config.listen}: {error.strerror}",
                "Stop whatever uses that port, or choose another with --listen.",
            )
        try:
            http = await app.listen_http()
        except OSError as error:
            return (
                f"could not listen on {config.http_listen} for HTTP: {error.strerror}",
                "Stop whatever uses that port, choose another with --http-listen, or none with --http-listen ''.",
            )
        gc.freeze()
        gc.set_threshold(*GC_THRESHOLDS)
        gc.enable()
        log.info(
            "listening",
            host=host,
            port=port,
            http="off" if http is None else f"http://{http[0]}:{http[1]}",
            psql=f"psql postgres://materialize@{host}:{port}/materialize",
        )
        stopping = asyncio.create_task(stop.wait())
        waiting: list[asyncio.Future[Any]] = [stopping, app.ended]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not stop.is_set():
            failure = app.ended.result()
            message = getattr(failure, "message", str(failure))
            log.error("server must end", reason=message)  # logged now: the shutdown may take long and be forced
            return message, None
        log.info("stopping")
        return None
    finally:
        end_by_force()
        await app.close(GRACE_S)


class _WithoutPandas:
    """An import finder that hides pandas. pyarrow would import it with the first array, which takes half a second."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("the server does not use pandas", name=name)


def main() -> None:
    """The entry point of `tidewire`."""
    gc.disable()  # imports create no garbage; `_serve` enables it when the server listens
    sys.meta_path.insert(0, _WithoutPandas)
    app()


if __name__ == "__main__":
    main()
