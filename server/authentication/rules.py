"""The rules of client authentication: a file in the form of PostgreSQL's pg_hba.conf.

The first rule that applies to a connection decides how its client must authenticate. No rule applies: it is refused.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from catalog.roles import Through

if TYPE_CHECKING:  # the options are read before Arrow, which the catalog imports, is configured
    from catalog.state import CatalogState


Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

LOOPBACK = tuple(map(ipaddress.ip_network, ("127.0.0.0/8", "::1/128")))


class RulesError(Exception):
    """A faulty rule file. The message has a line per fault, with file and line number."""


class Method(StrEnum):
    """How a client authenticates."""

    TRUST = "trust"
    REJECT = "reject"
    SCRAM = "scram-sha-256"
    PASSWORD = "password"
    CERT = "cert"

    @property
    def needs_tls(self) -> bool:
        return self in (Method.PASSWORD, Method.CERT)


class ClientCertificate(StrEnum):
    """The option `clientcert`: in addition to its method, a client needs a certificate of the server's CA."""

    ANY = "verify-ca"
    OF_USER = "verify-full"


_NO_FILE = 0  # the line of a rule that is in no file
_UNSUPPORTED_METHODS = frozenset(("md5", "gss", "sspi", "ident", "peer", "ldap", "radius", "pam", "bsd"))
_TYPES: dict[str, bool | None] = {"host": None, "hostssl": True, "hostnossl": False}
_UNSUPPORTED_TYPES = ("hostgssenc", "hostnogssenc")
_NAMES_OF_HOSTS = ("samehost", "samenet")
_BLANKS = " \t\r"
_TOKEN = re.compile(rf'"(?P<quoted>(?:[^"]|"")*)"|(?P<plain>[^{_BLANKS},"#]+)')


class Token(NamedTuple):
    """A word of the file. `is_quoted`: begins with a quote. It is no keyword then, and its `+` has no meaning."""

    text: str
    is_quoted: bool

    def is_keyword(self, *words: str) -> bool:
        return not self.is_quoted and self.text in words


class Peer(NamedTuple):
    """What rules are compared with. `address`: None for a connection that has no IP address."""

    address: Address | None
    is_encrypted: bool
    database: str
    user: str


@dataclass(frozen=True, slots=True)
class Rule:
    """One line, counted from 1; 0 for the rule of `--auth`.

    `is_local`: for Unix-domain sockets, which the server does not have. `encrypted`: None for either.
    """

    line: int
    is_local: bool
    encrypted: bool | None
    databases: tuple[Token, ...]
    users: tuple[Token, ...]
    networks: tuple[Network, ...] | None
    """None: all addresses."""
    method: Method
    certificate: ClientCertificate | None = None

    @property
    def accepts_any_user(self) -> bool:
        """Whether a user without a role means `materialize` while this is the only role: with `--auth trust` only."""
        return self.method is Method.TRUST and self.line == _NO_FILE

    def applies(self, peer: Peer, state: CatalogState) -> bool:
        return (
            self.is_local is (peer.address is None)
            and self.encrypted in (None, peer.is_encrypted)
            and (self.networks is None or any(peer.address in network for network in self.networks))
            and any(_is_database(token, peer, state) for token in self.databases)
            and any(_is_user(token, peer.user, state) for token in self.users)
        )


def _is_database(token: Token, peer: Peer, state: CatalogState) -> bool:
    if token.is_keyword("all"):
        return True
    if token.is_keyword("sameuser"):
        return peer.database == peer.user
    if token.is_keyword("samerole", "samegroup"):
        return _is_member(peer.user, peer.database, state)
    return token.text == peer.database and not token.is_keyword("replication")


def _is_user(token: Token, user: str, state: CatalogState) -> bool:
    if token.is_keyword("all"):
        return True
    if not token.is_quoted and token.text.startswith("+"):
        return _is_member(user, token.text[1:], state)
    return token.text == user


def _is_member(user: str, group: str, state: CatalogState) -> bool:
    """As in PostgreSQL, being a superuser makes no one a member."""
    member, of = state.role_named(user), state.role_named(group)
    return member is not None and of is not None and of.id in state.roles_of(member.id, Through.ALL)


class Rules:
    """The rules in their order."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = tuple(rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def find(self, peer: Peer, state: CatalogState) -> Rule | None:
        """Returns the first rule that applies."""
        return next((rule for rule in self._rules if rule.applies(peer, state)), None)

    def use(self, *methods: Method) -> bool:
        """Whether a rule has one of these methods."""
        return any(rule.method in methods for rule in self._rules)

    @property
    def need_client_certificates(self) -> bool:
        return any(rule.method is Method.CERT or rule.certificate is not None for rule in self._rules)

    @property
    def use_tls(self) -> bool:
        """Whether a rule applies only to connections with TLS."""
        return any(rule.encrypted for rule in self._rules)


def rules_of(method: Method) -> Rules:
    """The rules of `--auth`: one method for all clients; `trust` only for those on this machine."""
    all = (Token("all", False),)
    networks = LOOPBACK if method is Method.TRUST else None
    return Rules((Rule(_NO_FILE, False, True if method.needs_tls else None, all, all, networks, method),))


def address_of(text: str | None) -> Address | None:
    """The address of a peer. An IPv4 address in the form of IPv6 (::ffff:10.1.2.3) is returned as IPv4."""
    if text is None:
        return None
    address = ipaddress.ip_address(text.partition("%")[0])
    return (address.ipv4_mapped or address) if isinstance(address, ipaddress.IPv6Address) else address


# -- the file --------------------------------------------------------------------------------------------------


class _Fault(Exception):
    """What is wrong with a line."""


def read_rules(path: Path) -> Rules:
    """RulesError with all faults of the file, even if it cannot be read."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise RulesError(f'could not open file "{path}": {error.strerror}') from error
    except UnicodeDecodeError as error:
        raise RulesError(f'file "{path}" is not valid UTF-8: {error.reason}') from error
    return parse_rules(text, str(path))


def parse_rules(text: str, name: str) -> Rules:
    """Parses the text of the file `name`. RulesError."""
    rules, faults = [], []
    for number, line in _logical_lines(text):
        try:
            if fields := _fields(line):
                rules.append(_rule(number, fields))
        except _Fault as fault:
            faults.append(f'line {number} of file "{name}": {fault}')
    if not rules and not faults:
        faults = [f'file "{name}" contains no entries']
    if faults:
        raise RulesError("\n".join(faults))
    return Rules(rules)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yields the lines with the number of their first one. A backslash at the end of a line continues it."""
    number, parts = 0, []
    for at, raw in enumerate(text.split("\n"), start=1):  # a comment may contain other characters that end lines
        line = raw.rstrip("\r")
        number = number or at
        parts.append(line.removesuffix("\\"))
        if not line.endswith("\\"):
            yield number, "".join(parts)
            number, parts = 0, []
    if parts:
        yield number, "".join(parts)


def _fields(line: str) -> list[tuple[Token, ...]]:
    """The fields of a line. Blanks separate them, and commas separate the tokens of a field.

    A token may be quoted in parts. A quote is written twice in quotes.
    """
    fields: list[tuple[Token, ...]] = []
    at, continues = 0, False
    while at < len(line):
        if line[at] in _BLANKS:
            at += 1
            continue
        if line[at] == "#":
            break
        if line[at] == ",":
            if not fields:
                raise _Fault("a field is empty")
            continues, at = True, at + 1
            continue
        pieces, is_quoted = [], line[at] == '"'
        while match := _TOKEN.match(line, at):
            pieces.append(match["plain"] if match["quoted"] is None else match["quoted"].replace('""', '"'))
            at = match.end()
        if not pieces:
            raise _Fault("unterminated quoted string")
        token = Token("".join(pieces), is_quoted)
        # A regular expression of PostgreSQL may be quoted, which a comma or a blank in it requires.
        if token.text.startswith("/") or (token.text.startswith("@") and not is_quoted):
            raise _Fault(f'"{token.text}" is not supported: give the names themselves')
        if continues:
            fields[-1] = (*fields[-1], token)
        else:
            fields.append((token,))
        continues = False
    if continues:
        raise _Fault("a field ends with a comma")
    return fields


def _rule(number: int, fields: Sequence[tuple[Token, ...]]) -> Rule:
    rest = iter(fields)
    type = _single(next(rest), "connection type")
    if type in _UNSUPPORTED_TYPES:
        raise _Fault(f'connection type "{type}" is not supported')
    if type not in (*_TYPES, "local"):
        raise _Fault(f'invalid connection type "{type}"')
    databases = _next(rest, "database")
    users = _next(rest, "role")
    networks = None if type == "local" else _networks(rest)
    method = _method(_single(_next(rest, "authentication method"), "authentication method"))
    certificate = None
    for option in rest:
        certificate = _option(_single(option, "authentication option"), certificate)
    is_encrypted = _TYPES.get(type)
    if method.needs_tls and not is_encrypted:
        raise _Fault(f'authentication method "{method}" is only supported on hostssl connections')
    if certificate is not None and not is_encrypted:
        raise _Fault('clientcert can only be configured for "hostssl" rows')
    if method is Method.TRUST and type != "local" and not _are_loopback(networks):
        raise _Fault('authentication method "trust" is only supported for loopback addresses')
    return Rule(number, type == "local", is_encrypted, databases, users, networks, method, certificate)


def _next(rest: Iterator[tuple[Token, ...]], what: str) -> tuple[Token, ...]:
    field = next(rest, None)
    if field is None:
        raise _Fault(f"end-of-line before {what} specification")
    return field


def _single(field: tuple[Token, ...], what: str) -> str:
    if len(field) > 1:
        raise _Fault(f"multiple values specified for {what}")
    return field[0].text


def _networks(rest: Iterator[tuple[Token, ...]]) -> tuple[Network, ...] | None:
    """The address, with its mask in the same or in the next field. None for `all`."""
    field = _next(rest, "IP address")
    text = _single(field, "host address")
    if field[0].is_keyword("all"):
        return None
    if field[0].is_keyword(*_NAMES_OF_HOSTS):
        raise _Fault(f'"{text}" is not supported: give the addresses')
    host, slash, bits = text.partition("/")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        raise _Fault(f'invalid IP address "{host}": host names are not supported') from None
    if slash:
        if not bits.isascii() or not bits.isdigit() or int(bits) > address.max_prefixlen:
            raise _Fault(f'invalid CIDR mask in address "{text}"')
        return (ipaddress.ip_network(f"{host}/{int(bits)}", strict=False),)
    mask = _single(_next(rest, "netmask"), "netmask")
    return (_network_with(address, mask),)


def _network_with(address: Address, mask: str) -> Network:
    try:
        number = int(ipaddress.ip_address(mask))
        same = ipaddress.ip_address(mask).version == address.version
    except ValueError:
        raise _Fault(f'invalid IP mask "{mask}"') from None
    if not same:
        raise _Fault("IP address and mask do not match")
    bits = bin(number).count("1")
    length = address.max_prefixlen
    if number != (1 << length) - (1 << (length - bits)):
        raise _Fault(f'invalid IP mask "{mask}"')
    return ipaddress.ip_network(f"{address}/{bits}", strict=False)


def _method(name: str) -> Method:
    try:
        return Method(name)
    except ValueError:
        if name in _UNSUPPORTED_METHODS:
            known = ", ".join(Method)
            raise _Fault(f'authentication method "{name}" is not supported: use one of {known}') from None
        raise _Fault(f'invalid authentication method "{name}"') from None


def _option(text: str, before: ClientCertificate | None) -> ClientCertificate:
    name, equals, value = text.partition("=")
    if not equals:
        raise _Fault(f"authentication option not in name=value format: {text}")
    if name != "clientcert":
        raise _Fault(f'unrecognized authentication option name: "{name}"')
    try:
        return ClientCertificate(value)
    except ValueError:
        raise _Fault(f'invalid value for clientcert: "{value}"') from None


def _are_loopback(networks: tuple[Network, ...] | None) -> bool:
    return networks is not None and all(
        any(network.version == own.version and network.subnet_of(own) for own in LOOPBACK)  # type: ignore[arg-type]
        for network in networks
    )
