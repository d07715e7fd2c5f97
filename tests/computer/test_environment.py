"""The environment of code: this process's own, without its secrets."""

from __future__ import annotations

import os

import pytest

from streamkit.computer import Computer, default_environment
from streamkit.computer.environment import is_secret

from .running import LANGUAGES, run

SECRET = [
    *("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "GEMINI_API_KEY", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY_ID"),
    *("AWS_SESSION_TOKEN", "HF_TOKEN", "GITHUB_TOKEN", "GH_TOKEN", "AZURE_CLIENT_SECRET", "GITHUB_PAT", "token"),
    *("PASSWORD", "DB_PASSWORD", "PGPASSWORD", "MYSQL_PWD", "Smtp_Pass", "KEYRING_PASSPHRASE", "npm_config__auth"),
    *("GOOGLE_APPLICATION_CREDENTIALS", "SLACK_WEBHOOK_URL", "SENTRY_DSN", "SERVICE_APIKEY"),
]
PLAIN = [
    *("PATH", "HOME", "PWD", "OLDPWD", "LANG", "SHELL", "SSH_AUTH_SOCK", "MAX_TOKENS", "TOKENIZERS_PARALLELISM"),
    *("KEYBOARD", "MONKEY", "COMPASS", "AUTHOR", "VIRTUAL_ENV", "PYTHONPATH", "OPENAI_BASE_URL", "MPLBACKEND"),
]


@pytest.mark.parametrize("name", SECRET)
def test_a_name_like_that_of_a_secret_is_one(name: str) -> None:
    """Those of providers, and what ends as they do."""
    assert is_secret(name, "value")


@pytest.mark.parametrize("name", PLAIN)
def test_other_names_are_none(name: str) -> None:
    """Also where they contain such a word."""
    assert not is_secret(name, "value")


def test_a_password_in_a_url_is_a_secret() -> None:
    """Except in that of a proxy, which code needs in order to reach anything."""
    assert is_secret("DATABASE_URL", "postgres://me:secret@host:5432/data")
    assert is_secret("CELERY_BROKER", "redis://:secret@host")
    assert not is_secret("DATABASE_URL", "postgres://me@host:5432/data")
    assert not is_secret("HOMEPAGE", "https://host:443/a@b")
    assert not is_secret("https_proxy", "http://me:secret@host:3128")


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
