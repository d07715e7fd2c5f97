"""The environment that code gets: this process's own, without its secrets.

A variable is a secret if one of these holds; upper and lower case are the same:

- its name is or ends in one of `SUFFIXES`, after an underscore or at its start: `OPENAI_API_KEY`, `HF_TOKEN`, `PASSWORD`;
- its name is one of `NAMES`, which look like nothing;
- its value is a URL with a password in it, unless it is that of a proxy: `postgres://me:secret@host/data`.

This keeps secrets from code that prints or sends its environment. It does not hide them from code that looks for them
elsewhere: in files, in a key ring, or in the memory of this process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

__all__ = ["default_environment", "is_secret"]

SUFFIXES = (
    *("KEY", "APIKEY", "KEY_ID", "SECRET", "SECRETS", "TOKEN", "PAT", "JWT"),
    *("PASSWORD", "PASSWD", "PASS", "PASSPHRASE"),
    *("CREDENTIAL", "CREDENTIALS", "AUTH", "COOKIE", "WEBHOOK", "WEBHOOK_URL", "DSN"),
)
NAMES = frozenset(
    (
        *("PGPASSWORD", "PGPASSFILE", "MYSQL_PWD", "SSHPASS", "REDISCLI_AUTH", "NETRC", "DOCKER_AUTH_CONFIG"),
        *("AZURE_STORAGE_CONNECTION_STRING", "GOOGLE_APPLICATION_CREDENTIALS_JSON", "AWS_SHARED_CREDENTIALS_FILE"),
    )
)
_SUFFIX = re.compile(rf"(?:^|_)(?:{'|'.join(SUFFIXES)})$", re.IGNORECASE)
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment looks like a secret."""
    if _SUFFIX.search(name) or name.upper() in NAMES:
        return True
    return not name.upper().endswith("_PROXY") and _PASSWORD_IN_URL.search(value) is not None


def default_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that a `Computer` gives to code by default.

    To hand on more: `Computer(env={**default_environment(), "HF_TOKEN": token})`, or everything: `Computer(env=os.environ)`.

    Args:
        environ: the environment to take it from; None, the default, is this process's own.

    Returns:
        A new dict, without what looks like a secret.
    """
    variables = os.environ if environ is None else environ
    return {name: value for name, value in variables.items() if not is_secret(name, value)}
