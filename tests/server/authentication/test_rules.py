"""The rule file: which rule applies to a connection, and the faults that are reported."""

from __future__ import annotations

from pathlib import Path

import pytest

from catalog.ids import ObjectId
from catalog.roles import MATERIALIZE, Membership, MembershipKey, Role
from catalog.state import CatalogState
from server.authentication.rules import Method as M
from server.authentication.rules import Peer, Rules, RulesError, address_of, parse_rules, read_rules, rules_of

STATE = (
    CatalogState({}, {}, {}, 1)
    .with_role(Role(ObjectId("u1"), "staff"))
    .with_role(Role(ObjectId("u2"), "alice", login=True))
    .with_memberships({MembershipKey(ObjectId("u1"), ObjectId("u2"), MATERIALIZE.id): Membership()})
    .with_role(Role(ObjectId("u3"), "root", login=True, superuser=True))
)


def rules(text: str) -> Rules:
    return parse_rules(text, "hba.conf")


def line(
    found: Rules, address: str | None, user: str = "alice", database: str = "db", *, tls: bool = False
) -> int | None:
    rule = found.find(Peer(address_of(address), tls, database, user), STATE)
    return None if rule is None else rule.line


def test_the_first_rule_that_applies_decides() -> None:
    found = rules(
        """# a comment

hostssl   all       root        all                   cert
hostssl   db,other  "all",bob   10.0.0.0/8            scram-sha-256  # the user whose name is all
hostnossl all       all         10.1.0.0 255.255.0.0  reject
local     all       all                               trust
host      sameuser  +staff      ::1/128               trust
host      samerole  all         fd00::/8              scram-sha-256
host      "db"      +staff      all                   scram-sha-256 \\
"""
    )
    assert line(found, "10.1.2.3", "root", tls=True) == 3
    assert line(found, "10.1.2.3", "root") == 5
    assert line(found, "10.2.2.3", "bob", "other", tls=True) == 4
    assert line(found, "10.2.2.3", "all", tls=True) == 4
    assert line(found, "10.2.2.3", "alice", tls=True) == 9
    assert line(found, "10.2.2.3", "bob", "third", tls=True) is None
    assert line(found, None) == 6
    assert line(found, "::1", "alice", "alice") == 7
    assert line(found, "::1", "alice") == 9
    assert line(found, "fd00::1", "alice", "staff") == 8
    assert line(found, "fd00::1", "alice", "alice") == 8
    assert line(found, "fd00::1", "root", "staff") is None  # a superuser is not a member of every role
    assert line(found, "8.8.8.8", "unknown") is None


def test_quotes() -> None:
    """As in PostgreSQL: only what begins with a quote is neither a keyword nor a group."""
    assert line(rules('host all +"staff" all reject'), "10.0.0.1", "alice") == 1
    assert line(rules('host all "+staff" all reject'), "10.0.0.1", "alice") is None
    assert line(rules('host all "+"staff all reject'), "10.0.0.1", "+staff") == 1
    assert line(rules('host all al"l" all reject'), "10.0.0.1", "alice") == 1
    assert line(rules('host all "a""b" all reject'), "10.0.0.1", 'a"b') == 1
    assert line(rules('host all "a""b" all reject'), "10.0.0.1", "ab") is None
    assert line(rules('host all a"b c",d all reject'), "10.0.0.1", "ab c") == 1
    assert line(rules('host all """" all reject'), "10.0.0.1", '"') == 1


def test_lines_end_with_a_line_feed_only() -> None:
    """A comment must not become a rule, and the numbers of lines must be those that an editor shows."""
    comment = "# all:\x0bhost all all all scram-sha-256\u2028host all all all reject"
    found = rules(f"{comment}\r\nhost all bob all reject\r\n")
    assert line(found, "10.0.0.1", "alice") is None
    assert line(found, "10.0.0.1", "bob") == 2
    assert line(rules("host all a\u00a0b all reject"), "10.0.0.1", "a\u00a0b") == 1


def test_addresses_in_other_forms() -> None:
    found = rules("host all all 10.1.0.0/16 scram-sha-256\nhost all all fe80::/10 scram-sha-256")
    assert line(found, "::ffff:10.1.2.3") == 1
    assert line(found, "fe80::1%eth0") == 2
    assert line(found, "10.2.0.1") is None


def test_the_rules_of_one_method() -> None:
    assert line(rules_of(M.TRUST), "127.0.0.1") == 0
    assert line(rules_of(M.TRUST), "::1") == 0
    assert line(rules_of(M.TRUST), "::ffff:127.0.0.1") == 0
    assert line(rules_of(M.TRUST), "10.0.0.1") is None
    assert line(rules_of(M.SCRAM), "10.0.0.1") == 0
    assert line(rules_of(M.PASSWORD), "10.0.0.1", tls=True) == 0
    assert line(rules_of(M.PASSWORD), "127.0.0.1") is None
    assert line(rules_of(M.CERT), "127.0.0.1") is None


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("hots all all all reject", 'invalid connection type "hots"'),
        ("hostgssenc all all all reject", 'connection type "hostgssenc" is not supported'),
        ("host,local all all all reject", "multiple values specified for connection type"),
        ("host", "end-of-line before database specification"),
        ("host all", "end-of-line before role specification"),
        ("host all all", "end-of-line before IP address specification"),
        ("host all all all", "end-of-line before authentication method specification"),
        ("local all all", "end-of-line before authentication method specification"),
        ("host all all 10.0.0.1", "end-of-line before netmask specification"),
        ("host all all 10.0.0.1/33 reject", 'invalid CIDR mask in address "10.0.0.1/33"'),
        ("host all all 10.0.0.1/x reject", 'invalid CIDR mask in address "10.0.0.1/x"'),
        ("host all all 10.0.0.1 255.0.255.0 reject", 'invalid IP mask "255.0.255.0"'),
        ("host all all 10.0.0.1 reject scram-sha-256", 'invalid IP mask "reject"'),
        ("host all all ::1 255.0.0.0 reject", "IP address and mask do not match"),
        ("host all all example.org reject", 'invalid IP address "example.org": host names are not supported'),
        ("host all all samenet reject", '"samenet" is not supported: give the addresses'),
        ("host all @users all reject", '"@users" is not supported: give the names themselves'),
        ("host all /^a all reject", '"/^a" is not supported: give the names themselves'),
        ('host "/^a, b$" all all reject', '"/^a, b$" is not supported: give the names themselves'),
        ("host all all all magic", 'invalid authentication method "magic"'),
        (
            "host all all all md5",
            'authentication method "md5" is not supported: use one of trust, reject, scram-sha-256',
        ),
        ("host all all all trust", 'authentication method "trust" is only supported for loopback addresses'),
        ("host all all 126.0.0.0/7 trust", 'authentication method "trust" is only supported for loopback addresses'),
        ("host all all all password", 'authentication method "password" is only supported on hostssl connections'),
        ("hostnossl all all all cert", 'authentication method "cert" is only supported on hostssl connections'),
        ("host all all all scram-sha-256 clientcert=verify-ca", 'clientcert can only be configured for "hostssl" rows'),
        ("hostssl all all all scram-sha-256 clientcert=1", 'invalid value for clientcert: "1"'),
        ("hostssl all all all scram-sha-256 map=x", 'unrecognized authentication option name: "map"'),
        ("hostssl all all all scram-sha-256 x", "authentication option not in name=value format: x"),
        ('host all "all all reject', "unterminated quoted string"),
        (", all", "a field is empty"),
        ("host all,", "a field ends with a comma"),
    ],
)
def test_a_fault_is_reported_with_file_and_line(text: str, fault: str) -> None:
    with pytest.raises(RulesError) as caught:
        rules(f"# comment\nlocal all all \\\n trust\n{text}\n")
    assert str(caught.value).startswith(f'line 4 of file "hba.conf": {fault}')


def test_all_faults_are_reported() -> None:
    with pytest.raises(RulesError, match=r"line 1 of .*\nline 3 of"):
        rules("x\nlocal all all trust\ny")


def test_files_that_cannot_be_used(tmp_path: Path) -> None:
    with pytest.raises(RulesError, match=r'could not open file ".*none": No such file'):
        read_rules(tmp_path / "none")
    (tmp_path / "empty").write_text("# nothing\n")
    with pytest.raises(RulesError, match="contains no entries"):
        read_rules(tmp_path / "empty")
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(RulesError, match="not valid UTF-8"):
        read_rules(tmp_path / "binary")
