from __future__ import annotations

from pathlib import Path

import pytest

from tickrail.core.errors import SettingsError
from tickrail.runtime.settings import load_settings
from tickrail.runtime.settings_fields import Settings
from tickrail.runtime.settings_table import settings_table
from tickrail.runtime.settings_types import mask_url


def refused(
    flags: dict[str, object] | None = None,
    environ: dict[str, str] | None = None,
    file: Path | None = None,
) -> list[tuple[str, str, str]]:
    with pytest.raises(SettingsError) as e:
        load_settings(flags or {}, environ=environ or {}, config_file=file)
    return [(p.pointer, p.message, p.expected) for p in e.value.problems]


def test_flags_come_before_variables_before_the_file_before_defaults(tmp_path: Path) -> None:
    file = tmp_path / "tickrail.toml"
    file.write_text('api_port = 1\nstatus_port = 1\nlease_ttl = 30\n[kafka]\nbootstrap = "k:1"\n')
    environ = {"TICKRAIL_API_PORT": "2", "TICKRAIL_STATUS_PORT": "2", "PATH": "/bin"}
    found = load_settings({"api_port": 3, "name": None}, environ=environ, config_file=file)
    assert (found.api_port, found.status_port, found.lease_ttl) == (3, 2, 30)
    assert found.kafka_bootstrap == "k:1"
    assert found.log_format == "auto"
    assert found.name


def test_lists_and_durations_are_read_from_text() -> None:
    environ = {
        "TICKRAIL_EGRESS_ALLOW": "127.0.0.0/8, hooks.internal,",
        "TICKRAIL_DRAIN_GRACE": "1m30s",
        "TICKRAIL_RENEW_EVERY": "2.5",
        "TICKRAIL_PREPARE_STATEMENTS": "false",
    }
    found = load_settings({}, environ=environ)
    assert found.egress_allow == ("127.0.0.0/8", "hooks.internal")
    assert (found.drain_grace, found.renew_every) == (90.0, 2.5)
    assert not found.prepare_statements


def test_an_empty_variable_is_not_given_but_empties_a_list(tmp_path: Path) -> None:
    file = tmp_path / "t.toml"
    file.write_text('egress_allow = ["10.0.0.0/8"]\napi_host = "0.0.0.0"\n')
    environ = {"TICKRAIL_EGRESS_ALLOW": "", "TICKRAIL_API_HOST": ""}
    found = load_settings({}, environ=environ, config_file=file)
    assert (found.egress_allow, found.api_host) == ((), "0.0.0.0")


@pytest.mark.parametrize(
    ("environ", "pointer", "expected"),
    [
        ({"TICKRAIL_API_PORT": "80a"}, "TICKRAIL_API_PORT", "a whole number from 0 to 65535"),
        ({"TICKRAIL_API_PORT": "70000"}, "TICKRAIL_API_PORT", "a whole number from 0 to 65535"),
        ({"TICKRAIL_DRAIN_GRACE": "soon"}, "TICKRAIL_DRAIN_GRACE", "a duration such as"),
        ({"TICKRAIL_LOG_FORMAT": "xml"}, "TICKRAIL_LOG_FORMAT", "one of auto, json, color"),
        ({"TICKRAIL_PREPARE_STATEMENTS": "so"}, "TICKRAIL_PREPARE_STATEMENTS", "true or false"),
        ({"TICKRAIL_WORKER_TARGETS": "x,y"}, "TICKRAIL_WORKER_TARGETS", "any of webhook, kafka"),
        ({"TICKRAIL_KAFKA_BOOTSTRAP": "host"}, "TICKRAIL_KAFKA_BOOTSTRAP", "such as host:9092"),
        ({"TICKRAIL_DATABASE_URL": "mysql://x"}, "TICKRAIL_DATABASE_URL", "such as postgresql://"),
        ({"TICKRAIL_API_URL": "localhost"}, "TICKRAIL_API_URL", "such as https://"),
        ({"TICKRAIL_TOPIC_PREFIX": "a b"}, "TICKRAIL_TOPIC_PREFIX", "such as tickrail"),
        ({"TICKRAIL_ETCD_PREFIX": "tick"}, "TICKRAIL_ETCD_PREFIX", "such as /tickrail/default/"),
        (
            {"TICKRAIL_NAME": "a/b"},
            "TICKRAIL_NAME",
            "1 to 200 characters without spaces and slashes, such as scheduler-1",
        ),
        (
            {"TICKRAIL_MEMBER_WEIGHT": "-1"},
            "TICKRAIL_MEMBER_WEIGHT",
            "a number from 0 to 100, such as 2",
        ),
        ({"TICKRAIL_PARTITIONS": "0"}, "TICKRAIL_PARTITIONS", "a whole number from 1 to 4096"),
    ],
)
def test_a_wrong_value_is_refused_in_the_form_it_was_given(
    environ: dict[str, str], pointer: str, expected: str
) -> None:
    [(where, message, right)] = refused(environ=environ)
    assert where == pointer
    assert next(iter(environ.values())) in message
    assert right.startswith(expected)


def test_the_lease_must_hold_two_renewals_and_the_margin() -> None:
    [(where, message, _)] = refused(environ={"TICKRAIL_LEASE_TTL": "5"})
    assert where == "TICKRAIL_LEASE_TTL"
    assert "two renewals" in message


def test_an_unknown_variable_is_refused_with_the_nearest_name() -> None:
    assert refused(environ={"TICKRAIL_DATABSE_URL": "x"}) == [
        ("TICKRAIL_DATABSE_URL", "there is no such setting", "did you mean TICKRAIL_DATABASE_URL?")
    ]


def test_an_unknown_key_of_the_file_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    file = tmp_path / "tickrail.toml"
    file.write_text("[kafka]\nbootstrp = 'x:1'\n[api]\nport = 'x'\n")
    assert refused(file=file) == [
        (
            "tickrail.toml: kafka.bootstrp",
            "there is no such setting",
            "did you mean tickrail.toml: kafka_bootstrap?",
        ),
        ("tickrail.toml: api.port", "'x' is not right", "a whole number from 0 to 65535"),
    ]


def test_a_flag_is_named_as_a_flag() -> None:
    assert refused({"api_port": "x", "api_prt": 1}) == [
        ("--api-prt", "there is no such setting", "did you mean --api-port?"),
        ("--api-port", "'x' is not right", "a whole number from 0 to 65535"),
    ]


def test_variables_of_a_run_and_of_tests_are_no_settings() -> None:
    environ = {
        "TICKRAIL_LAUNCH_ID": "x",
        "TICKRAIL_PAYLOAD": "{}",
        "TICKRAIL_CLAIM": "4",
        "TICKRAIL_TEST_SERVERS": "local",
        "TICKRAIL_CONFIG": "f",
    }
    assert load_settings({}, environ=environ).api_port == 8080


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"a = = 1", "not valid TOML"),
        (b"\xff\xfe", "not UTF-8"),
        (None, "cannot be read (No such file"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(
    tmp_path: Path, content: bytes | None, said: str
) -> None:
    file = tmp_path / "t.toml"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(SettingsError) as e:
        load_settings({}, environ={}, config_file=file)
    assert str(file) in e.value.detail
    assert said in e.value.detail


def test_no_password_is_shown() -> None:
    environ = {
        "TICKRAIL_DATABASE_URL": "postgresql://u:hush1@h/d",
        "TICKRAIL_KAFKA_SASL_PASSWORD": "hush2",
        "TICKRAIL_ETCD_PASSWORD": "hush3",
        "TICKRAIL_KEY_PEPPER": "hush4",
        "TICKRAIL_API_KEY": "trk_a_hush5",
        "TICKRAIL_KAFKA_KEY_PASSWORD": "hush6",
    }
    found = load_settings({}, environ=environ)
    assert "hush" not in repr(found) + str(found)
    assert found.database_url.endswith("hush1@h/d")
    assert found.group("kafka")["sasl_password"] == "hush2"


def test_a_wrong_secret_is_refused_without_showing_it() -> None:
    problems = refused(
        environ={"TICKRAIL_API_KEY": "hush one", "TICKRAIL_DATABASE_URL": "x://u:hush@h"}
    )
    assert {where for where, _, _ in problems} == {"TICKRAIL_API_KEY", "TICKRAIL_DATABASE_URL"}
    assert "hush" not in str(problems)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://u:pw@h/d?x=1", "postgresql://u:***@h/d?x=1"),
        ("host=h password='p w\\'x' dbname=d", "host=h password=*** dbname=d"),
        ("host=h password=pw dbname=d", "host=h password=*** dbname=d"),
        ("https://h/?password=pw&x=1", "https://h/?password=***&x=1"),
        ("https://user@h/", "https://user@h/"),
        ("mail@example.org", "mail@example.org"),
    ],
)
def test_passwords_in_urls_are_masked(text: str, shown: str) -> None:
    assert mask_url(text) == shown


def test_a_group_is_named_without_its_prefix() -> None:
    found = load_settings({}, environ={}).group("etcd")
    assert found == {
        "endpoints": ("127.0.0.1:2379",),
        "ca_file": None,
        "cert_file": None,
        "key_file": None,
        "username": None,
        "password": None,
        "prefix": "/tickrail/default/",
    }


def test_settings_travel_to_another_process_as_variables() -> None:
    flags: dict[str, object] = {
        "worker_targets": "noop,command",
        "prepare_statements": False,
        "drain_grace": "5s",
        "partitions": 4,
        "etcd_password": None,
    }
    first = load_settings(flags, environ={})
    second = load_settings({}, environ=first.variables())
    assert first.variables()["TICKRAIL_PREPARE_STATEMENTS"] == "false"
    assert {n: getattr(second, n) for n in first.model_fields_set} == {
        n: getattr(first, n) for n in first.model_fields_set
    }


def test_every_setting_has_a_row_and_a_meaning() -> None:
    rows = settings_table().splitlines()[2:]
    assert len(rows) == len(Settings.model_fields)
    assert all(row.count("|") == 4 and row.split("|")[3].strip() for row in rows)
