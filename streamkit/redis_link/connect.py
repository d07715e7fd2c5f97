"""The link to what a user names: the URL of a server or of a Cluster, or a client of redis-py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..errors import UsageError
from .cluster import Address, ClusterLink
from .link import Link, ServerLink
from .permissions import CheckedServer
from .server import RedisScript, RedisServer

__all__ = ["connect"]

CONNECTIONS = 10  # to one server, the subscriber's included
_TIMEOUT = 5.0  # seconds for which one reply, or a free connection, is waited for
_CLUSTER = ("redis+cluster://", "rediss+cluster://")

# Settings of a client that are not for a connection: of its pool, and of the client of a Cluster.
_OF_ITS_POOL = ("maint_notifications", "oss_cluster", "orig_", "event_dispatcher", "redis_connect_func")


def connect(target: Any, scripts: Sequence[RedisScript], prefix: str) -> Link:
    """Return the link to a server, or to a Cluster. It connects when it is used first.

    Args:
        target: a URL, `redis://…` or `redis+cluster://…` with any of its nodes; or a `redis.Redis` (Sentinel's too) or a
            `redis.RedisCluster`, whose settings are used for connections of its own.
        scripts: those that are called.
        prefix: what the keys begin with.

    Raises:
        UsageError: redis-py is not installed; or it is none of these.
    """
    redis = _redis_py()
    failures = (redis.exceptions.RedisError, OSError)
    if isinstance(target, str) and target.startswith(_CLUSTER):
        return _cluster_at(redis, target, scripts, failures)
    if isinstance(target, redis.RedisCluster):
        return _cluster_of(redis, target, scripts, failures)
    return ServerLink(CheckedServer(redis, _pool(redis, target), scripts, prefix), target, failures)


def _redis_py() -> Any:
    try:
        import redis
    except ImportError as error:
        raise UsageError("Redis needs the package `redis`: pip install 'streamkit-sdk[redis]'") from error
    return redis


def _cluster_at(redis: Any, url: str, scripts: Sequence[RedisScript], failures: Any) -> ClusterLink:
    try:
        client = redis.Redis.from_url(url.replace("+cluster", "", 1))
    except ValueError as error:
        raise UsageError(f"the URL of a Redis Cluster is like redis+cluster://localhost:7000: {error}") from error
    settings: dict[str, Any] = client.connection_pool.connection_kwargs
    if settings.get("db"):
        raise UsageError(f"a Redis Cluster has no database but 0, not {settings['db']!r}")

    def server(address: Address) -> RedisServer:
        return RedisServer(redis, _pool(redis, client, address), [script.sharded() for script in scripts])

    return ClusterLink(server, [(settings.get("host", "localhost"), settings.get("port", 6379))], scripts, failures)


def _cluster_of(redis: Any, cluster: Any, scripts: Sequence[RedisScript], failures: Any) -> ClusterLink:
    nodes: Any = cluster.nodes_manager
    settings = {name: value for name, value in nodes.connection_kwargs.items() if not name.startswith(_OF_ITS_POOL)}

    def server(address: Address) -> RedisServer:
        host, port = nodes.remap_host_port(*address)
        client = redis.Redis(**{**settings, "host": host, "port": port})
        return RedisServer(redis, _pool(redis, client), [script.sharded() for script in scripts])

    seeds = [(node.host, node.port) for node in nodes.startup_nodes.values()]
    return ClusterLink(server, seeds, scripts, failures)


def _pool(redis: Any, target: Any, address: Address | None = None) -> Any:
    """Return a pool of connections of our own: it waits for a free one, and a lost connection is an error at once."""
    from redis.backoff import NoBackoff
    from redis.retry import Retry

    options: dict[str, Any] = {"socket_timeout": _TIMEOUT, "socket_connect_timeout": _TIMEOUT}
    if isinstance(target, str):
        own: Callable[..., Any] = redis.BlockingConnectionPool.from_url
        arguments: tuple[Any, ...] = (target,)
    elif isinstance(target, redis.Redis):
        pool: Any = target.connection_pool
        own, arguments = redis.BlockingConnectionPool, ()
        lent = {name: value for name, value in pool.connection_kwargs.items() if not name.startswith(_OF_ITS_POOL)}
        options = {**lent, **options, "connection_class": pool.connection_class}
    else:
        raise UsageError(
            f"expected the URL of a Redis server or Cluster, a `redis.Redis` or a `redis.RedisCluster`, not {target!r}"
        )
    if address is not None:
        options["host"], options["port"] = address
    options.update(encoding="utf-8", encoding_errors="surrogatepass", decode_responses=False)
    options.update(max_connections=CONNECTIONS, timeout=_TIMEOUT, retry=Retry(NoBackoff(), 0), protocol=2)
    try:
        return own(*arguments, **options)
    except ValueError as error:
        raise UsageError(f"the URL of a Redis server is like redis://localhost:6379/0: {error}") from error
