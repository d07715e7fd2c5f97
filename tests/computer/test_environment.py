"""The environment of code: this process's own, without its secrets."""

from __future__ import annotations

import itertools
import os
import re
from pathlib import Path

import pytest

from streamkit.computer import Computer, default_environment
from streamkit.computer.environment import (
    ANYWHERE,
    FIELDS,
    HARMLESS,
    HARMLESS_NAMES,
    LAST_WORDS,
    NAMES,
    PREFIXES,
    QUERY_FIELDS,
    WORD_ENDS,
    WORDS,
    is_secret,
)

from .running import LANGUAGES, run

SECRET = [
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    *("AWS_SESSION_TOKEN", "HF_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "AZURE_CLIENT_SECRET", "GITHUB_PAT", "token"),
    *("PASSWORD", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "Smtp_Pass", "KEYRING_PASSPHRASE", "npm_config__auth"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "SLACK_WEBHOOK_URL", "SENTRY_DSN", "SERVICE_APIKEY", "REDISCLI_AUTH"),
    *(
        "SECRET_VALUE",
        "PASSWORD_DB",
        "TOKEN_GITHUB",
        "MYSECRET",
        "APITOKEN",
        "PGPASS",
        "SSHPASS",
        "OPENAIKEY",
        "API_KEY_2",
    ),
    *("apiKey", "dbPwd", "SSH_KEY_PATH", "GITHUB_TOKENS", "AZURE_STORAGE_CONNECTION_STRING", "PGPASSFILE", "X-Api-Key"),
]
PLAIN = [
    *("PATH", "HOME", "PWD", "OLDPWD", "LANG", "SHELL", "SSH_AUTH_SOCK", "XAUTHORITY", "TOKENIZERS_PARALLELISM"),
    *("KEYBOARD", "KEYTIMEOUT", "MONKEY", "COMPASS", "AUTHOR", "GIT_ASKPASS", "BYPASS_CACHE", "COOKIECUTTER_CONFIG"),
    *(
        "VIRTUAL_ENV",
        "PYTHONPATH",
        "OPENAI_BASE_URL",
        "MPLBACKEND",
        "PYTHON_KEYRING_BACKEND",
        "AWS_PROFILE",
        "LS_COLORS",
    ),
]


@pytest.mark.parametrize("name", SECRET)
def test_a_name_like_that_of_a_secret_is_one(name: str) -> None:
    """Wherever the word stands in it."""
    assert is_secret(name, "value")


@pytest.mark.parametrize("name", PLAIN)
def test_other_names_are_none(name: str) -> None:
    """Also where they contain such a word by chance. `SSH_AUTH_SOCK` is a way to a key, which stays where it is."""
    assert not is_secret(name, "value")


def test_how_many_tokens_there_may_be_is_no_secret() -> None:
    """But what the tokens are is one."""
    assert not is_secret("MAX_TOKENS", "4096")
    assert is_secret("MAX_TOKENS", "f4c1a2")


KEYS = [
    *("sk-ant-api03-1234567890abcdefABCDEF", "sk-proj-1234567890abcdef1234", "ghp_1234567890abcdef1234567890abcdef1234"),
    *("github_pat_11ABCDEFG0123456789_abc", "glpat-12345678901234567890", "xoxb-123456789012-abcdefABCDEF", "AKIA1234567890ABCDEF"),
    *("AIzaSyA1234567890abcdefghijklmnopqrstuv", "hf_abcdefghijklmnopqrstuvwxyz0123", "sk_live_51abcdefghijklmnop", "Bearer sk-1234567890abcdef1234"),
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.c2lnbmF0dXJl",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIE",
    '{"type": "service_account", "private_key": "-----BEGIN PRIVATE KEY-----\\nMII"}',
    *("postgres://me:secret@host:5432/data", "redis://:secret@host", "https://host/path?api_key=abc", "https://host/?q=1&key=abc"),
    *("Server=db;User Id=me;Password=abc;", "AccountName=me;AccountKey=abc==", "-Djavax.net.ssl.trustStorePassword=abc"),
    *("Endpoint=sb://host/;SharedAccessKey=abc", "https://host/container?sv=2024&sig=abc", "--access-token=abc"),
]  # fmt: skip
HARMLESS_VALUES = [
    *("sk_SK.UTF-8", "sk-learn", "task-management-system-2024-for-everyone", "/home/me/envs/sk-learn-2024-environment/bin"),
    *("postgres://me@host:5432/data", "https://host:443/a@b", "-----BEGIN CERTIFICATE-----\nMIIE", "token", "ghp_", "/usr/bin:/bin"),
    *("Server=db;Integrated Security=true", "https://host/?monkey=1", "*.key=01;31:*.pem=01;31"),
]  # fmt: skip


@pytest.mark.parametrize("value", KEYS)
def test_a_value_that_looks_like_a_key_is_a_secret(value: str) -> None:
    """Whatever the name."""
    assert is_secret("SETTING", value)


@pytest.mark.parametrize("value", HARMLESS_VALUES)
def test_other_values_are_none(value: str) -> None:
    """Also where they begin or look a bit like one."""
    assert not is_secret("SETTING", value)


def test_a_password_of_a_proxy_is_passed_on() -> None:
    """Code needs it in order to reach anything."""
    assert not is_secret("https_proxy", "http://me:secret@host:3128")


def test_the_guide_shows_the_lists() -> None:
    """All of them, in the code's own order."""
    guide = (Path(__file__).parents[2] / ".docs/computer.md").read_text(encoding="utf-8")
    shown = re.findall(r"`([^`]+)`", guide[guide.index("| in the name") : guide.index("What code needs is handed on")])
    lists = (ANYWHERE, WORD_ENDS, WORDS, LAST_WORDS, NAMES, HARMLESS, HARMLESS_NAMES, PREFIXES, FIELDS, QUERY_FIELDS)
    assert [one for one in shown if one in {*itertools.chain(*lists)}] == [*itertools.chain(*lists)]


PRINT = {
    "python": "import os\nprint(os.environ.get('ACME_API_KEY'), os.environ['ACME_REGION'])",
    "shell": "echo ${ACME_API_KEY:-None} $ACME_REGION",
    "javascript": "console.log(process.env.ACME_API_KEY ?? 'None', process.env.ACME_REGION)",
}


@pytest.mark.parametrize(("name",), LANGUAGES)
def test_code_gets_the_environment_without_secrets(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless they are handed on."""
    monkeypatch.setenv("ACME_API_KEY", "secret")
    monkeypatch.setenv("ACME_REGION", "north")
    with Computer() as computer:
        assert run(computer, name, PRINT[name]).text == "None north\n"
    for env in ({**default_environment(), "ACME_API_KEY": "secret"}, os.environ):
        with Computer(env=env) as computer:
            assert run(computer, name, PRINT[name]).text == "secret north\n"
