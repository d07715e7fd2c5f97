"""The environment that code gets: this process's own, without its secrets.

A variable is left out if its name or its value matches one of the lists here, which the guide shows as well. In names,
upper and lower case are the same; a word of a name is what stands between other characters than letters.

This keeps secrets from code that prints or sends its environment. It does not hide them from code that looks for them
elsewhere: in files, in a key ring, or in the memory of this process.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

__all__ = ["default_environment", "is_secret"]

# Of names:
ANYWHERE = ("SECRET", "PASSWORD", "PASSWD", "PASSPHRASE", "TOKEN", "CREDENTIAL", "CONNECTION_STRING")
WORD_ENDS = ("KEY", "KEYS", "PASS", "PWD")
WORDS = ("PAT", "JWT", "COOKIE", "COOKIES", "WEBHOOK", "DSN", "AUTHORIZATION")
LAST_WORDS = ("AUTH",)
NAMES = ("PGPASSFILE", "NETRC", "DOCKER_AUTH_CONFIG")
HARMLESS = (
    *("TOKENIZER", "TOKENIZERS", "MONKEY", "TURKEY", "DONKEY", "HOCKEY", "HOTKEY", "HOTKEYS"),
    *("COMPASS", "BYPASS", "ASKPASS"),
)  # words that only look like those above
HARMLESS_NAMES = ("PWD", "OLDPWD")

# Of values: how keys begin, which are at least so many characters long and have a digit.
PREFIXES = (
    *("sk-", "sk_live_", "sk_test_", "rk_live_", "whsec_", "gsk_", "xai-", "hf_", "r8_", "AIza", "ya29."),
    *("ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "npm_", "pypi-", "dop_v1_", "shpat_"),
    *("xoxb-", "xoxp-", "xoxa-", "xoxs-", "xapp-", "AKIA", "ASIA", "SG.", "eyJ"),
)
SHORTEST_KEY = 20
# … and what stands before a key or a password in them, as in `…;Password=…`; before the last, `?` or `&`.
FIELDS = ("password", "passwd", "pwd", "secret", "token", "api_key", "apikey", "access_key", "accountkey", "accesskey")
QUERY_FIELDS = ("key", "sig")

_WORD = re.compile(r"[A-Z]+")
_NUMBER = re.compile(r"[\d.,_]+")
_KEY = re.compile(rf"(?:Bearer )?(?:{'|'.join(map(re.escape, PREFIXES))})[\w.~+/=-]*\d[\w.~+/=-]*")
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY")
_FIELD = re.compile(
    rf"(?:{'|'.join(FIELDS)}|[?&](?:{'|'.join(QUERY_FIELDS)}))\s*=\s*[^\s;&]".replace("_", "[_-]"), re.IGNORECASE
)
_PASSWORD_IN_URL = re.compile(r"://[^/\s:@]*:[^/\s@]+@")


def is_secret(name: str, value: str) -> bool:
    """Whether a variable of the environment looks like a secret."""
    return _is_name_of_secret(name.upper(), value) or _is_value_of_secret(name.upper(), value)


def _is_name_of_secret(name: str, value: str) -> bool:
    if name in NAMES:
        return True
    words = [] if name in HARMLESS_NAMES else [word for word in _WORD.findall(name) if word not in HARMLESS]
    if _NUMBER.fullmatch(value):
        words = [word for word in words if word != "TOKENS"]  # how many there may be
    joined = "_".join(words)
    return any(part in joined for part in ANYWHERE) or any(
        word.endswith(WORD_ENDS) or word in WORDS or (word in LAST_WORDS and word is words[-1]) for word in words
    )


def _is_value_of_secret(name: str, value: str) -> bool:
    """Whether a value is a key, or has one in it. That of a proxy may have a password, for nothing is reached without."""
    if len(value) >= SHORTEST_KEY and _KEY.fullmatch(value):
        return True
    if _PRIVATE_KEY.search(value) or _FIELD.search(value):
        return True
    return not name.endswith("_PROXY") and _PASSWORD_IN_URL.search(value) is not None


def default_environment(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return the environment that a `Computer` gives to code by default.

    To hand on more: `Computer(env={**default_environment(), "HF_TOKEN": token})`, or everything: `Computer(env=os.environ)`.

    Args:
        environ: the environment to take it from; None, the default, is this process's own.

    Returns:
        A new dict, without what looks like a secret.
    """
    variables = os.environ if environ is None else environ
    return {name: value for name, value in variables.items() if not is_secret(name, value)}
