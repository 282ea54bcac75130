"""The server's configuration. Precedence: flags, `TIDEWIRE_*` variables, the config file, defaults."""

from __future__ import annotations

import ipaddress
import re
import tomllib
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, ValidationError, model_validator
from pydantic_settings import (
    BaseSettings,
    NoDecode,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    TomlConfigSettingsSource,
)

from server.authentication.access import AccessConfig
from server.authentication.rules import Method
from server.authentication.tls import TlsFiles
from server.spark.connect.url import ConnectUrl

# Tidewire sets these. With other values results would differ from PostgreSQL's, or would not be returned.
FIXED_CONF = (
    "spark.master",
    "spark.sql.ansi.enabled",
    "spark.sql.caseSensitive",
    "spark.sql.catalogImplementation",
    "spark.sql.groupByOrdinal",
    "spark.sql.orderByOrdinal",
    "spark.sql.session.timeZone",
    "spark.sql.timeType.enabled",
)
_DRIVER_CONF = {  # settings that the driver's JVM needs before Spark reads them, and what to use instead
    "spark.driver.memory": "use spark_memory (--spark-memory)",
    "spark.driver.defaultJavaOptions": "set JAVA_TOOL_OPTIONS in the environment",
    "spark.driver.extraJavaOptions": "set JAVA_TOOL_OPTIONS in the environment",
}
SPARK_MEMORY_MIN_MB = 512
_UNITS_MB = {"m": 1, "mb": 1, "g": 1024, "gb": 1024}
_UNITS_S = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0}


class ConfigError(Exception):
    """The configuration cannot be used. The message says which part and why."""


def _seconds(value: object) -> object:
    """Parses `500ms`, `1s`, or a number of seconds."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*(us|ms|s|min)?\s*", value)
        if match is None:
            raise ValueError("use a number with a unit, such as 500ms or 1s")
        return float(match[1]) * _UNITS_S[match[2] or "s"]
    return value


def _interval(value: float) -> float:
    if not 0.01 <= value <= 60:
        raise ValueError("must be between 10ms and 60s")
    return value


def _megabytes(value: object) -> object:
    """Parses text such as `2GB`, `2g` or `1536MB`. Returns megabytes."""
    if isinstance(value, str):
        match = re.fullmatch(r"\s*(\d+)\s*([a-zA-Z]+)\s*", value)
        if match is None or match[2].lower() not in _UNITS_MB:
            raise ValueError("use a number with a unit, such as 2GB or 1536MB")
        return int(match[1]) * _UNITS_MB[match[2].lower()]
    return value


def _heap(value: int) -> int:
    if value < SPARK_MEMORY_MIN_MB:
        raise ValueError(f"must be at least {SPARK_MEMORY_MIN_MB}MB")
    return value


def _address(value: str) -> str:
    host, colon, port = value.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65_535:
        raise ValueError("use HOST:PORT, such as 127.0.0.1:6875")
    return value


def _address_or_none(value: str) -> str:
    return value and _address(value)


def _absolute_or_none(value: Path | None) -> Path | None:
    return value and value.absolute()


def _connect_url(value: str | None) -> str | None:
    if value is not None:
        ConnectUrl.parse(value)
    return value


def _pairs(value: object) -> object:
    """Splits text such as `KEY=VALUE,KEY=VALUE`, the form in the environment.

    A comma separates pairs only if a key follows: values may contain commas.
    """
    if not isinstance(value, str):
        return value
    pairs = {}
    for text in re.split(r"[,\s]+(?=spark\.[\w.-]+=)", value.strip()) if value.strip() else ():
        key, equals, one = text.partition("=")
        if not equals:
            raise ValueError(f"{text}: use KEY=VALUE, and a comma between several")
        pairs[key.strip()] = one.strip()
    return pairs


def _host_names(value: object) -> object:
    """Splits text such as `tidewire.example,metrics.example`."""
    return [name for name in re.split(r"[,\s]+", value) if name] if isinstance(value, str) else value


def _origins(value: list[str]) -> list[str]:
    for origin in value:
        if re.fullmatch(r"https?://[^/?#@\s]+", origin) is None:
            raise ValueError(f"{origin}: use the form of the header Origin, such as https://app.example")
    return [origin.lower() for origin in value]


def _spark_conf(value: dict[str, str]) -> dict[str, str]:
    for key in value:
        if key in _DRIVER_CONF:
            raise ValueError(f"{key} has no effect here: {_DRIVER_CONF[key]}")
        if key in FIXED_CONF:
            raise ValueError(f"{key} is set by Tidewire")
        if not key.startswith("spark."):
            raise ValueError(f"{key} is not a setting of Spark: their names begin with spark.")
    return value


class Config(BaseSettings):
    """The configuration of `tidewire serve`. `serve --help` describes each field."""

    model_config = SettingsConfigDict(env_prefix="TIDEWIRE_", extra="forbid")

    listen: Annotated[str, AfterValidator(_address)] = "127.0.0.1:6875"
    http_listen: Annotated[str, AfterValidator(_address_or_none)] = "127.0.0.1:6876"
    http_host_names: Annotated[list[str], NoDecode, BeforeValidator(_host_names)] = []
    http_origins: Annotated[list[str], NoDecode, BeforeValidator(_host_names), AfterValidator(_origins)] = []
    auth: Method | None = None
    hba_file: Annotated[Path | None, AfterValidator(_absolute_or_none)] = None
    tls_cert: Annotated[Path | None, AfterValidator(_absolute_or_none)] = None
    tls_key: Annotated[Path | None, AfterValidator(_absolute_or_none)] = None
    tls_ca: Annotated[Path | None, AfterValidator(_absolute_or_none)] = None
    superuser_password_file: Annotated[Path | None, AfterValidator(_absolute_or_none)] = None
    data_dir: Annotated[Path, AfterValidator(Path.absolute)] = Path("tidewire-data").absolute()
    arrangement_directory: Annotated[Path | None, AfterValidator(_absolute_or_none)] = None
    spark_master: str = "local[*]"
    spark_remote: Annotated[str | None, AfterValidator(_connect_url)] = None
    spark_memory: Annotated[int, BeforeValidator(_megabytes), AfterValidator(_heap)] = 2048
    """The maximum heap size of the JVM that the server starts, in megabytes."""
    spark_conf: Annotated[dict[str, str], NoDecode, BeforeValidator(_pairs), AfterValidator(_spark_conf)] = {}
    timestamp_interval: Annotated[float, BeforeValidator(_seconds), AfterValidator(_interval)] = 1.0
    log_format: Literal["console", "json"] = "console"

    @property
    def host(self) -> str:
        return split_address(self.listen)[0]

    @property
    def port(self) -> int:
        return split_address(self.listen)[1]

    @property
    def http_names(self) -> tuple[str, ...]:
        """The host names for which HTTP requests are answered, in addition to those of every `HttpPort`."""
        host = split_address(self.http_listen)[0] if self.http_listen else ""
        return (*self.http_host_names, *filter(None, [host]))

    @property
    def http_address(self) -> tuple[str, int] | None:
        """Host and port for HTTP; None if HTTP is off."""
        return split_address(self.http_listen) if self.http_listen else None

    @model_validator(mode="after")
    def _one_spark(self) -> Config:
        for name in ("spark_master", "spark_memory"):
            if self.spark_remote is not None and name in self.model_fields_set:
                raise ValueError(f"{name} and spark_remote cannot both be given")
        return self

    @model_validator(mode="after")
    def _one_access(self) -> Config:
        if self.auth is not None and self.hba_file is not None:
            raise ValueError("auth and hba_file cannot both be given")
        if (self.tls_cert is None) is not (self.tls_key is None):
            raise ValueError("tls_cert and tls_key must be given together")
        if self.tls_ca is not None and self.tls_cert is None:
            raise ValueError("tls_ca requires tls_cert and tls_key")
        return self

    @property
    def access(self) -> AccessConfig:
        files = None
        if self.tls_cert is not None and self.tls_key is not None:
            files = TlsFiles(self.tls_cert, self.tls_key, self.tls_ca)
        return AccessConfig(self.hba_file or self.auth or Method.TRUST, files)

    def check_address(self) -> None:
        """ConfigError if an address is reachable from other machines and clients would not authenticate."""
        if self.hba_file is not None or self.auth not in (None, Method.TRUST):
            return
        for address in filter(None, (self.listen, self.http_listen)):
            host, _ = split_address(address)
            try:
                loopback = ipaddress.ip_address(host).is_loopback
            except ValueError:
                loopback = host == "localhost"
            if not loopback:
                raise ConfigError(
                    f"{address} can be reached from other machines, and clients would not authenticate: listen on "
                    "127.0.0.1, or use --auth scram-sha-256 or --hba-file, with --tls-cert and --tls-key for "
                    "encryption and --superuser-password-file for the first password"
                )


def split_address(address: str) -> tuple[str, int]:
    """Splits HOST:PORT. The brackets of an IPv6 host are removed."""
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def load(flags: dict[str, Any], file: Path | None) -> Config:
    """Returns the configuration. `flags` are those that were given. ConfigError names the setting that is wrong."""

    class FromFile(Config):
        model_config = SettingsConfigDict(env_prefix="TIDEWIRE_", extra="forbid", toml_file=file)

        @classmethod
        def settings_customise_sources(
            cls, settings_cls: type[BaseSettings], init_settings: PydanticBaseSettingsSource, *others: Any, **named: Any
        ) -> tuple[PydanticBaseSettingsSource, ...]:
            return init_settings, named["env_settings"], TomlConfigSettingsSource(settings_cls)

    try:
        if file is not None and not file.is_file():
            raise ConfigError(f'config file "{file}" does not exist')
        config = FromFile(**flags)
    except OSError as error:
        raise ConfigError(f'config file "{file}" cannot be read: {error.strerror}') from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f'config file "{file}" is not valid TOML: {error}') from error
    except ValidationError as error:
        lines = (": ".join(filter(None, (".".join(map(str, e["loc"])), e["msg"]))) for e in error.errors())
        raise ConfigError("; ".join(lines)) from error
    config.check_address()
    return config
