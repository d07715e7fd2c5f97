"""The connections to Redis, of a relay or a store: commands and scripts in pipelines, on one server or on the nodes of a
Cluster, and what is tried again while a server is away."""

from .connect import connect
from .link import FIRST_PAUSE, LONGEST_PAUSE, Link
from .server import Away, Script, Server

__all__ = ["FIRST_PAUSE", "LONGEST_PAUSE", "Away", "Link", "Script", "Server", "connect"]
