"""The relay on a Redis server, for producers and readers in any number of processes. It needs the extra `redis`."""

from .relay import RedisRelay

__all__ = ["RedisRelay"]
