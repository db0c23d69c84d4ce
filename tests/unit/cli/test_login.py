"""Which API and key are used, and why; what `login` stores and what it refuses to."""

from __future__ import annotations

import io
import stat
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.support.stub_api import Answer, StubApi, problem
from tests.unit.cli.conftest import Tickrail
from tests.unit.cli.test_keys import ID, KEY, KEYS, MADE

from tickrail.core.errors import SettingsError
from tickrail.runtime.settings import load_settings
from tickrail_cli import home, profiles
from tickrail_cli.endpoint import Endpoint, file_layer, find_endpoint, masked

HERE, PROD, TEST, FILE = (
    "http://127.0.0.1:8081",
    "https://prod.example",
    "https://t.example",
    "https://f.example",
)
JOBS = Answer(body={"items": [], "next_cursor": None})


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"XDG_CONFIG_HOME": str(tmp_path / "config"), "HOME": str(tmp_path)}


@pytest.fixture
def find(tmp_path: Path, environ: dict[str, str]) -> object:
    """Finds the API of a command line in a folder with its own settings file and data folder."""

    def found(
        flags: Mapping[str, object] | None = None,
        variables: Mapping[str, str] | None = None,
        *,
        file: str = "",
        named: str | None = None,
        file_named: bool = False,
    ) -> tuple[str, str]:
        (tmp_path / "tickrail.toml").write_text(f'data_dir = "{tmp_path}/data"\n{file}')
        everywhere = {**environ, **(variables or {})}
        settings = load_settings(
            flags or {}, environ=everywhere, config_file=tmp_path / "tickrail.toml"
        )
        layer = file_layer(tmp_path / "tickrail.toml", found=not file_named)
        endpoint = find_endpoint(settings, flags or {}, everywhere, named, layer)
        assert isinstance(endpoint, Endpoint)
        return endpoint.url, "refused" if endpoint.refused else endpoint.key

    return found


def log_in(environ: Mapping[str, str]) -> None:
    stored = profiles.Profiles().with_profile("prod", profiles.Profile(PROD, "trk_prod_1"))
    profiles.write_profiles(
        environ, stored.with_profile("test", profiles.Profile(TEST, "trk_test_1"))
    )


URL_IN_FILE = f'api_url = "{FILE}"\n'
IN_FILE = f'api_url = "{FILE}"\napi_key = "trk_file_1"\n'
URL_VARIABLE = {"TICKRAIL_API_URL": "https://v.example"}
KEY_VARIABLE = {"TICKRAIL_API_KEY": "trk_v_1"}


@pytest.mark.parametrize(
    ("given", "login", "up", "expected"),
    [
        ({}, False, False, ("http://127.0.0.1:8080", "")),
        ({}, True, False, (TEST, "trk_test_1")),
        ({}, False, True, (HERE, "trk_up_1")),
        ({}, True, True, (HERE, "trk_up_1")),
        ({"file": IN_FILE}, False, True, (FILE, "trk_file_1")),
        ({"file": IN_FILE}, True, True, (TEST, "trk_test_1")),
        ({"named": "prod", "file": IN_FILE}, True, True, (PROD, "trk_prod_1")),
        (
            {"named": "prod", "variables": URL_VARIABLE | KEY_VARIABLE},
            True,
            True,
            (PROD, "trk_prod_1"),
        ),
        ({"variables": {"TICKRAIL_PROFILE": "prod"}}, True, True, (PROD, "trk_prod_1")),
        (
            {"variables": {"TICKRAIL_PROFILE": "prod"}, "named": "test"},
            True,
            True,
            (TEST, "trk_test_1"),
        ),
        ({"variables": URL_VARIABLE}, True, True, ("https://v.example", "")),
        ({"variables": URL_VARIABLE | KEY_VARIABLE}, True, True, ("https://v.example", "trk_v_1")),
        ({"variables": KEY_VARIABLE}, True, False, (TEST, "trk_v_1")),
        ({"flags": {"api_url": PROD}, "variables": KEY_VARIABLE}, True, True, (PROD, "trk_v_1")),
        ({"flags": {"api_url": TEST + "/"}}, True, False, (TEST + "/", "trk_test_1")),
        ({"flags": {"api_url": PROD}}, True, True, (PROD, "")),
        ({"flags": {"api_key": "trk_f_1"}}, False, True, (HERE, "trk_f_1")),
        # A file that came with the folder gets no key of the user's own.
        ({"file": URL_IN_FILE, "variables": KEY_VARIABLE}, False, False, (FILE, "refused")),
        ({"file": URL_IN_FILE, "flags": {"api_key": "trk_f_1"}}, False, False, (FILE, "refused")),
        ({"file": IN_FILE, "variables": KEY_VARIABLE}, False, False, (FILE, "trk_file_1")),
        ({"file": URL_IN_FILE}, False, False, (FILE, "")),
        ({"file": URL_IN_FILE, "variables": KEY_VARIABLE}, True, False, (TEST, "trk_v_1")),
        (
            {"file": URL_IN_FILE, "variables": KEY_VARIABLE, "file_named": True},
            False,
            False,
            (FILE, "trk_v_1"),
        ),
        (
            {"file": URL_IN_FILE, "variables": KEY_VARIABLE | URL_VARIABLE},
            False,
            False,
            ("https://v.example", "trk_v_1"),
        ),
        (
            {"file": 'api_url = "http://127.0.0.1:9"\n', "variables": KEY_VARIABLE},
            False,
            False,
            ("http://127.0.0.1:9", "trk_v_1"),
        ),
        (
            {"file": 'api_url = "http://127.0.0.1@f.example"\n', "variables": KEY_VARIABLE},
            False,
            False,
            ("http://127.0.0.1@f.example", "refused"),
        ),
    ],
)
def test_the_nearest_that_says_it_counts_and_a_stored_key_is_for_its_address(
    find: object, environ: dict[str, str], tmp_path: Path, given: dict[str, object], login: bool,
    up: bool, expected: tuple[str, str],
) -> None:  # fmt: skip
    if login:
        log_in(environ)
    if up:
        (tmp_path / "data").mkdir()
        home.write_client(tmp_path / "data", api_url=HERE, api_key="trk_up_1")
    assert callable(find)
    assert find(**given) == expected


def test_a_folder_of_somebody_else_s_does_not_get_the_key(find: object, tmp_path: Path) -> None:
    """What `up` keeps may come with a repository, too."""
    (tmp_path / "data").mkdir()
    home.write_client(tmp_path / "data", api_url=FILE, api_key="trk_theirs_1")
    assert callable(find)
    assert find(variables=KEY_VARIABLE) == (FILE, "trk_theirs_1")


def test_a_login_to_the_installation_of_this_folder_counts_here(
    find: object, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "data").mkdir()
    home.write_client(tmp_path / "data", api_url=HERE, api_key="trk_up_1")
    mine = profiles.Profile(HERE, "trk_acme_1")
    profiles.write_profiles(environ, profiles.Profiles().with_profile("acme", mine))
    assert callable(find)
    assert find() == (HERE, "trk_acme_1")
    assert find(flags={"api_url": PROD}) == (PROD, "")


def test_a_profile_that_is_not_there_is_told_with_those_that_are(
    find: object, environ: dict[str, str]
) -> None:
    assert callable(find)
    with pytest.raises(SettingsError, match=r"no profile 'prd' \(none is stored"):
        find(named="prd")
    log_in(environ)
    with pytest.raises(
        SettingsError, match=r"no profile 'prd' \(one of prod, test; `tickrail login"
    ):
        find(named="prd")


def test_what_is_stored_is_read_back_and_its_owners_alone(environ: dict[str, str]) -> None:
    odd = profiles.Profile('https://ü.example/"x"', "trk_a_\\b")
    file = profiles.write_profiles(environ, profiles.Profiles().with_profile("a.b", odd))
    assert profiles.read_profiles(environ) == profiles.Profiles({"a.b": odd}, "a.b")
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert stat.S_IMODE(file.parent.stat().st_mode) == 0o700
    assert profiles.read_profiles({"HOME": "/nonexistent"}) == profiles.Profiles()
    assert profiles.folder({"HOME": "/h", "XDG_CONFIG_HOME": "relative"}) == Path(
        "/h/.config/tickrail"
    )


@pytest.mark.parametrize("text", ["[", "\xff", '[profiles.a]\napi_url = "x"', "profiles.a = 3"])
def test_a_damaged_file_is_told(environ: dict[str, str], text: str) -> None:
    file = profiles.file_of(environ)
    file.parent.mkdir(parents=True)
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(SettingsError) as told:
        profiles.read_profiles(environ)
    assert str(file) in str(told.value)


@pytest.mark.parametrize(
    ("key", "shown"), [("", "none"), ("trk_ab_secret", "trk_ab_..."), ("eyJh.x_y.z", "...")]
)
def test_a_key_is_shown_without_its_secret(key: str, shown: str) -> None:
    assert masked(key) == shown


def test_a_token_of_an_issuer_is_taken_where_a_key_is() -> None:
    token = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJhIn0.c2lnbmVk-_x"
    assert load_settings({"api_key": token}, environ={}).api_key == token
    for wrong in ("secret", "a.b", f"{token}.x", f"{token} "):
        with pytest.raises(SettingsError):
            load_settings({"api_key": wrong}, environ={})


@pytest.fixture
def alone(tickrail: Tickrail, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]) -> Tickrail:
    """A command line of somebody who has set nothing."""
    for name in ("TICKRAIL_API_URL", "TICKRAIL_API_KEY", "TICKRAIL_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    return tickrail


def test_login_tries_the_key_stores_it_and_uses_it(
    alone: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    api.on("GET", "/v1/jobs", JOBS)
    monkeypatch.setattr(sys, "stdin", io.StringIO("trk_abc_secret\n"))
    said = alone("login", "--url", api.url)
    assert said.code == 0
    assert "as the profile default, with the key trk_abc_..." in said.out
    assert "secret" not in said.out + said.err
    assert profiles.read_profiles(environ).found["default"].key == "trk_abc_secret"
    assert alone("jobs", "list").code == 0
    assert [asked.headers["authorization"] for asked in api.asked] == ["Bearer trk_abc_secret"] * 2
    rows = {row["setting"]: row for row in alone("config", "--output", "json").json()["items"]}
    assert rows["api_key"]["value"] == "trk_abc_..."
    assert rows["api_url"]["from"] == "the profile default (the last login)"
    assert alone("logout").out == "Forgot default.\n"
    assert profiles.read_profiles(environ) == profiles.Profiles()
    assert alone("logout").code == 1


def test_a_key_that_is_not_taken_is_not_stored(
    alone: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str]
) -> None:
    api.on("GET", "/v1/jobs", problem(401, "unauthenticated", "The key is not valid."))
    monkeypatch.setattr(sys, "stdin", io.StringIO("trk_abc_wrong\n"))
    said = alone("login", "--url", api.url, "--profile", "p")
    assert (said.code, "nothing was stored" in said.err) == (1, True)
    monkeypatch.setattr(sys, "stdin", io.StringIO("trk_abc_wrong\n"))
    assert alone("login", "--url", "http://127.0.0.1:1").code == 3
    monkeypatch.setattr(sys, "stdin", io.StringIO(""))
    assert alone("login", "--url", api.url).code == 1
    assert alone("login").code == 2
    assert alone("login", "--url", api.url, "--profile", "a b").code == 2
    assert not profiles.file_of(environ).exists()


def test_a_key_that_is_not_sent_is_told_with_what_to_do(
    alone: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    there = tmp_path / "cloned"
    there.mkdir()
    monkeypatch.chdir(there)
    (there / "tickrail.toml").write_text(f'api_url = "{FILE}"\n')
    monkeypatch.setenv("TICKRAIL_API_KEY", "trk_mine_secret")
    said = alone("jobs", "list")
    assert said.code == 2
    assert f"--url {FILE}" in said.err
    assert "came with this folder" in said.err
    assert "trk_mine_secret" not in said.out + said.err
    shown = alone("config", "--output", "json")
    rows = {row["setting"]: row for row in shown.json()["items"]}
    assert (rows["api_url"]["value"], rows["api_key"]["value"]) == (FILE, "none")
    assert "is not sent there" in shown.err
    api.on("GET", "/v1/jobs", JOBS)
    (there / "tickrail.toml").write_text(f'api_url = "{api.url}"\n')
    assert alone("jobs", "list").code == 0


def test_profiles_stand_side_by_side(
    alone: Tickrail, api: StubApi, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.on("GET", "/v1/jobs", problem(403, "forbidden", "This key lacks the scope read."))
    for name in ("a", "b"):
        monkeypatch.setattr(sys, "stdin", io.StringIO(f"trk_{name}_secret\n"))
        assert alone("login", "--url", api.url, "--profile", name).code == 0
    api.on("GET", "/v1/jobs", JOBS)
    alone("jobs", "list")
    alone("jobs", "list", "--profile", "a")
    alone("config", "--use", "a")
    alone("jobs", "list")
    keys = [asked.headers["authorization"].split("_")[1] for asked in api.asked]
    assert keys == ["a", "b", "b", "a", "a"]
    assert alone("jobs", "list", "--profile", "c").code == 2
    assert alone("config", "--use", "c").code == 2
    assert "Forgot a, b" in alone("logout", "--all").out


def test_a_rotation_of_the_key_in_use_goes_into_its_profile(
    alone: Tickrail, api: StubApi, environ: dict[str, str]
) -> None:
    old = f"trk_{ID}_old"
    mine = profiles.Profiles().with_profile("acme", profiles.Profile(api.url, old))
    profiles.write_profiles(
        environ, mine.with_profile("other", profiles.Profile(api.url, "trk_o_1"))
    )
    api.on("GET", f"{KEYS}/{ID}", Answer(body=KEY))
    api.on("POST", f"{KEYS}/{ID}/rotate", Answer(201, MADE))
    said = alone("keys", "rotate", "--profile", "acme")
    assert said.code == 0
    assert said.out.splitlines()[-1] == "The profile acme uses it from now on."
    stored = profiles.read_profiles(environ)
    assert (stored.found["acme"].key, stored.current) == (MADE["token"], "other")
    assert stored.found["other"].key == "trk_o_1"
