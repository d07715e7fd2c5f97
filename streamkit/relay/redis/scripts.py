"""The scripts that change a run in Redis, each in one step. Their keys are all of one run, so of one slot.

A question is stored as lines: its status, `<epoch>.<which question of that producer>`, when it expires (Unix seconds, or
nothing), what the producer said of it, and its answer. The last two are JSON that no script reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...redis_link import RedisScript

__all__ = ["ANSWER", "APPEND", "CANCEL", "CLAIM", "END", "LIST", "LISTED", "RECORD", "SNAPSHOT", "every_script"]

# Whether the run still belongs to this producer: ARGV[1] is its epoch, ARGV[2] its owner, a random text of its own.
_GUARD = """
local run = redis.call('HMGET', KEYS[1], 'epoch', 'owner', 'status', 'last', 'news')
if not run[1] then return 'gone' end
if run[3] == 'running' then run[3] = 'in_progress' end  -- an earlier version wrote it
if run[1] ~= ARGV[1] or run[2] ~= ARGV[2] then return 'fenced' end
"""

# Close the questions that are open, without an answer.
_CLOSE = """
local function close(key)
  local now = redis.call('TIME')
  local answer = '{"at":' .. now[1] .. '.' .. string.format('%06d', now[2]) .. '}'
  local all = redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    if string.sub(all[i + 1], 1, 8) == 'pending\\n' then
      local lines = string.match(all[i + 1], '^pending(\\n[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n)')
      redis.call('HSET', key, all[i], 'closed' .. lines .. answer)
    end
  end
end
"""


# Become the producer. Arguments: owner, milliseconds of the lease, of the run's lifetime, and for a new run its info (else "").
# Returns `exists`, `none`, or {epoch, last number, the epoch that wrote it, when the run was opened, its info, `busy`}.
CLAIM = RedisScript(
    2,
    """
local run = redis.call('HMGET', KEYS[1], 'epoch', 'status', 'last', 'wrote', 'owner', 'created', 'info', 'busy')
if run[1] and run[5] == ARGV[1] then return {run[1], run[3], run[4], run[6], run[7], run[8] or '0'} end  -- the reply was lost
local epoch = 1
if ARGV[4] ~= '' then
  if run[1] then return 'exists' end
  local now = redis.call('TIME')
  run[3], run[4], run[6], run[7] = '0', '0', now[1] .. '.' .. string.format('%06d', now[2]), ARGV[4]
  redis.call('HSET', KEYS[1], 'info', ARGV[4], 'created', run[6], 'last', '0', 'wrote', '0', 'news', '0', 'beat', '0', 'busy', '0')
else
  if not run[1] or redis.call('EXISTS', KEYS[2]) == 1 then return 'none' end
  if run[2] ~= 'in_progress' and run[2] ~= 'running' and run[2] ~= 'paused' then return 'none' end
  epoch = run[1] + 1
end
redis.call('HSET', KEYS[1], 'epoch', epoch, 'owner', ARGV[1], 'status', 'in_progress')
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {tostring(epoch), run[3], run[4], run[6], run[7], run[8] or '0'}
""",
)

# Forget the oldest questions that are settled, where there are very many: of a run that never ends.
_FORGET = """
local function forget(key)
  if redis.call('HLEN', key) <= 1125 then return end
  local settled, all = {}, redis.call('HGETALL', key)
  for i = 1, #all, 2 do
    local status, epoch, number = string.match(all[i + 1], '^(%a+)\\n(%d+)%.(%d+)\\n')
    if status ~= 'pending' then settled[#settled + 1] = {epoch * 1000000000 + number, all[i]} end
  end
  table.sort(settled, function(a, b) return a[1] < b[1] end)
  for i = 1, math.min(#settled, #all / 2 - 1000) do redis.call('HDEL', key, settled[i][2]) end
end
"""

# Store a batch, or with no events a heartbeat. Keys: run, log, lease, questions, snapshot. Arguments: epoch, owner, the
# number before the batch, its last number, its events, milliseconds of the lease, of the run's lifetime, `busy`, `beat`, and a
# question's id and value ("" for none). Returns `gone`, `fenced`, `closed`, `at <last number>` where that is not the number
# before the batch, or `ok <count of news>`.
APPEND = RedisScript(
    5,
    _GUARD
    + _FORGET
    + """
if run[3] ~= 'in_progress' then return 'closed' end
if run[4] ~= ARGV[3] then return 'at ' .. run[4] end
redis.call('SET', KEYS[3], ARGV[2], 'PX', ARGV[6])
local asks = ARGV[11] ~= ''
if asks then
  local id, value = ARGV[10], ARGV[11]
  local before = redis.call('HGET', KEYS[4], id)
  if before then
    local status, number, rest = string.match(before, '^(%a+)\\n([^\\n]*)(\\n.*)$')
    local mine = string.match(value, '^%a+\\n([^\\n]*)')
    if number == mine then
      value = before  -- the reply was lost
    elseif string.match(number, '^%d+') ~= ARGV[1] and status ~= 'closed' then
      value = status .. '\\n' .. mine .. rest  -- an earlier producer's, which keeps its answer
      run[5] = redis.call('HINCRBY', KEYS[1], 'news', 1)
    end
  end
  redis.call('HSET', KEYS[4], id, value)
  redis.call('PEXPIRE', KEYS[4], ARGV[7])
  forget(KEYS[4])
end
if ARGV[5] ~= '' then
  redis.call('XADD', KEYS[2], ARGV[1] .. '-' .. ARGV[4], 'b', ARGV[3], 'e', ARGV[5])
  redis.call('HSET', KEYS[1], 'last', ARGV[4], 'wrote', ARGV[1], 'busy', ARGV[8], 'beat', ARGV[9])
  redis.call('PEXPIRE', KEYS[2], ARGV[7])
else
  redis.call('HSET', KEYS[1], 'busy', ARGV[8], 'beat', ARGV[9])
  for i = 2, 5 do redis.call('PEXPIRE', KEYS[i], i == 3 and ARGV[6] or ARGV[7]) end
end
redis.call('PEXPIRE', KEYS[1], ARGV[7])
if asks then
  redis.call('PUBLISH', KEYS[2], '!')  -- the readers look up the question with the events
elseif ARGV[5] ~= '' then
  redis.call('PUBLISH', KEYS[2], ARGV[1] .. ' ' .. ARGV[3] .. ' ' .. ARGV[4] .. '\\n' .. ARGV[5])
end
return 'ok ' .. run[5]
""",
)

# Drop the events up to a snapshot. Keys: run, log, snapshot. Arguments: epoch, owner, the snapshot's position, the position after
# it, the snapshot, milliseconds of the run's lifetime.
SNAPSHOT = RedisScript(
    3,
    _GUARD
    + """
redis.call('HSET', KEYS[3], 'at', ARGV[3], 'data', ARGV[5])
redis.call('PEXPIRE', KEYS[3], ARGV[6])
redis.call('XTRIM', KEYS[2], 'MINID', ARGV[4])
return 'ok ' .. run[5]
""",
)

# Answer a question, or close it. Keys: run, questions, log, news. Arguments: its id, its new status, its answer. Returns
# `gone`, `none`, or {1 if this answer counts, the question}.
ANSWER = RedisScript(
    4,
    """
if redis.call('EXISTS', KEYS[1]) == 0 then return 'gone' end
local before = redis.call('HGET', KEYS[2], ARGV[1])
if not before then return 'none' end
local status, expires = string.match(before, '^(%a+)\\n[^\\n]*\\n([^\\n]*)')
if status ~= 'pending' then return {0, before} end
local lines = string.match(before, '^pending(\\n[^\\n]*\\n[^\\n]*\\n[^\\n]*\\n)')
local now, counts, value = redis.call('TIME'), 1, ARGV[2] .. lines .. ARGV[3]
if expires ~= '' and tonumber(expires) <= now[1] + now[2] / 1000000 then
  counts, value = 0, 'closed' .. lines
end
redis.call('HSET', KEYS[2], ARGV[1], value)
if counts == 1 then
  redis.call('HINCRBY', KEYS[1], 'news', 1)
  redis.call('PUBLISH', KEYS[3], '!')
  redis.call('PUBLISH', KEYS[4], '!')
end
return {counts, value}
""",
)

# Cancel a run. Keys: run, questions, log, news, lease. Argument: the reason. Returns 0 if it has ended or is not there, 2 if
# it has no producer, else 1.
CANCEL = RedisScript(
    5,
    _CLOSE
    + """
local status = redis.call('HGET', KEYS[1], 'status')
if status ~= 'in_progress' and status ~= 'running' and status ~= 'paused' then return 0 end
if redis.call('HSETNX', KEYS[1], 'cancel', ARGV[1]) == 1 then
  close(KEYS[2])
  redis.call('HINCRBY', KEYS[1], 'news', 1)
  redis.call('PUBLISH', KEYS[3], '!')
  redis.call('PUBLISH', KEYS[4], '!')
end
return 2 - redis.call('EXISTS', KEYS[5])
""",
)

# The producer leaves: the run ends, or is paused; or with the status `in_progress`, only its lease. Keys: run, log, lease,
# questions, snapshot. Arguments: epoch, owner, the number of the last event, the status, the error ("" for none),
# milliseconds of the run's lifetime from now on, what is added to its info ("" for nothing), and anything if
# this ends the run of a dead producer. Returns as APPEND.
END = RedisScript(
    5,
    _GUARD
    + _CLOSE
    + """
if ARGV[8] and redis.call('EXISTS', KEYS[3]) == 1 then return 'leased' end
if run[3] ~= 'in_progress' then return run[3] == ARGV[4] and 'ok ' .. run[5] or 'closed' end  -- the reply was lost
if ARGV[4] ~= 'in_progress' and run[4] ~= ARGV[3] then return 'at ' .. run[4] end
redis.call('DEL', KEYS[3])
if ARGV[4] == 'in_progress' then
  redis.call('HSET', KEYS[1], 'released', ARGV[1])
else
  redis.call('HSET', KEYS[1], 'status', ARGV[4])
  if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'result', ARGV[7]) end
  if ARGV[4] ~= 'paused' then
    local now = redis.call('TIME')
    redis.call('HSET', KEYS[1], 'ended', now[1] .. '.' .. string.format('%06d', now[2]), 'error', ARGV[5])
    close(KEYS[4])
  end
  for i = 1, 5 do redis.call('PEXPIRE', KEYS[i], ARGV[6]) end
end
redis.call('PUBLISH', KEYS[2], '!')
return 'ok ' .. run[5]
""",
)


# All that the record of a run is made of. Keys: run, lease, questions, readers. Argument: now, as readers' clocks have it.
# Returns the fields of the run, whether it has a producer, its questions, and its readers.
RECORD = RedisScript(
    4,
    """
return {
  redis.call('HGETALL', KEYS[1]),
  redis.call('EXISTS', KEYS[2]),
  redis.call('HGETALL', KEYS[3]),
  redis.call('ZRANGEBYSCORE', KEYS[4], ARGV[1], '+inf'),
}
""",
)

# Remove the entries that have expired from a list. Returns the time.
_SWEEP = """
local function sweep()
  local time = redis.call('TIME')
  local now = time[1] * 1000 + math.floor(time[2] / 1000)
  while true do
    local gone = redis.call('ZRANGEBYSCORE', KEYS[2], '-inf', now, 'LIMIT', 0, 1000)
    if #gone == 0 then return now end
    for i = 1, 3 do redis.call('ZREM', KEYS[i], unpack(gone)) end
  end
end
"""

# Enter a run in a list, or renew its entry. Keys: those of `ListKeys`. Arguments: its id, when it was opened, milliseconds for
# which the entry is kept (0 removes it), and 1 if it has not ended.
LISTED = RedisScript(
    3,
    _SWEEP
    + """
local now, lifetime = sweep(), tonumber(ARGV[3])
if lifetime == 0 then
  for i = 1, 3 do redis.call('ZREM', KEYS[i], ARGV[1]) end
  return 'ok'
end
redis.call('ZADD', KEYS[1], ARGV[2], ARGV[1])
redis.call('ZADD', KEYS[2], now + lifetime, ARGV[1])
if ARGV[4] == '1' then redis.call('ZADD', KEYS[3], ARGV[2], ARGV[1]) else redis.call('ZREM', KEYS[3], ARGV[1]) end
for i = 1, 3 do
  if redis.call('PTTL', KEYS[i]) < lifetime then redis.call('PEXPIRE', KEYS[i], lifetime) end
end
return 'ok'
""",
)

# Some entries of a list, the newest first. Keys: those of `ListKeys`. Arguments: 1 for open runs only, how many (1 or more),
# and the run before them, or "".
LIST = RedisScript(
    3,
    _SWEEP
    + """
sweep()
local key, start = KEYS[ARGV[1] == '1' and 3 or 1], 0
if ARGV[3] ~= '' then
  local rank, opened = redis.call('ZREVRANK', key, ARGV[3]), redis.call('ZSCORE', KEYS[1], ARGV[3])
  if rank then
    start = rank + 1
  elseif opened then
    start = redis.call('ZCOUNT', key, opened, '+inf')
  else
    return {}
  end
end
return redis.call('ZREVRANGE', key, start, start + ARGV[2] - 1)
""",
)


def every_script() -> Sequence[RedisScript]:
    """Return all of them, to be loaded together."""
    return (CLAIM, APPEND, SNAPSHOT, ANSWER, CANCEL, END, RECORD, LISTED, LIST)
