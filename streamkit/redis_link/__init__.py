"""The connections to Redis, of a relay or a store: commands and scripts in pipelines, on one server or on the nodes of a
Cluster, and what is tried again while a server is away."""

from .connect import connect
from .link import FIRST_PAUSE, LONGEST_PAUSE, Link, words_of
from .server import Away, RedisScript, RedisServer
from .text import check_prefix, ids_of, tag_of, text_from, text_to_bytes

__all__ = [
    "FIRST_PAUSE",
    "LONGEST_PAUSE",
    "Away",
    "Link",
    "RedisScript",
    "RedisServer",
    "check_prefix",
    "connect",
    "ids_of",
    "tag_of",
    "text_from",
    "text_to_bytes",
    "words_of",
]
