-- Numbers and bytes that every script shares. Other names in capitals (K.jobs, RECORD.lane, READY, HAS) are no Lua: keys.py
-- and fields.py say what they stand for, and names.py puts it in when a script is built.

local call, sub, byte, char = redis.call, string.sub, string.byte, string.char
local floor, max, min = math.floor, math.max, math.min
local pack, unpack_ = cmsgpack.pack, cmsgpack.unpack

local P = sub(KEYS[1], 1, -2) -- every key begins with the namespace's hash tag; KEYS[1] is K.meta

local MANY = 4000 -- values that one variadic call takes

-- The modules, which refer to each other. Each is loaded when something in it is first asked for: most calls use few of
-- them, and making all their functions for each call would take longer than most calls do.
local base, record, tx = {}
local enqueue, enqueue_store, unique, enqueue_depth, graph, notes, hooks
local lanes, lanes_due, turns, turns_share, turns_fair, wake
local choose, take, take_front, take_merge, sessions, sessions_signature
local gates, gates_math, gates_period, gates_change, gates_events, gates_wait
local settle, effect, give_back, effect_ending, prune, find_ledger, find_flows
local repair, repair_lists, repair_count

-- What stands for a module until then (see scripts.py): its first element loads it.
local lazy = setmetatable
local on_first_use = {
  __index = function(module, name)
    return module[1]()[name]
  end,
}

-- Here and not as locals: of those a function can reach 60, and the largest scripts do.
base.LAYOUT = 1 -- of this release; a namespace keeps the highest that a script has written there
base.MIN_CLIENT = 1 -- the lowest layout whose releases can work on with this one; a lower one is refused
base.URGENT = 3 -- critical and high
base.UNLIMITED = 1073741824
base.TOGETHER = 64 -- ids in one entry of the index of finished jobs

-- A number below 2^48 as six bytes whose order is the order of the numbers.
function base.b6(n)
  return struct.pack(">I6", n)
end

function base.n6(s, at)
  return (struct.unpack(">I6", s, at))
end

-- A whole number as text: tostring would write large ones with an exponent.
function base.text(n)
  return string.format("%.0f", n)
end

function base.begins(text, with)
  return sub(text, 1, #with) == with
end

-- The bytes that hex digits stand for.
function base.bytes(hex)
  return (string.gsub(hex, "..", function(digits)
    return char(tonumber(digits, 16))
  end))
end

-- The ids that lie one after the other in a string, from the place `at` on.
function base.ids(packed, at)
  local ids = {}
  for first = at or 1, #packed, ID_BYTES do
    ids[#ids + 1] = sub(packed, first, first + ID_BYTES - 1)
  end
  return ids
end

-- The list under a name, made when it is missing.
function base.heap(lists, name)
  local list = lists[name]
  if not list then
    list = {}
    lists[name] = list
  end
  return list
end

-- The instant of this call: the one that was given, or the server's. Clocks jump back after a failover: none is before
-- the last claim (its token) or sweep.
function base.now(token, swept)
  local given = tonumber(ARGV[1])
  if given then
    return given
  end
  local time = call("TIME")
  local real = time[1] * 1000 + floor(time[2] / 1000)
  return max(real, floor(tonumber(token or 0) / 2048), tonumber(swept or 0))
end

-- A variadic command in parts of at most MANY values (an even number, so pairs stay together).
function base.chunked(command, key, values)
  for i = 1, #values, MANY do
    call(command, key, unpack(values, i, min(i + MANY - 1, #values)))
  end
end

-- A variadic read in parts; answers come in order.
function base.mget(key, fields)
  if #fields <= MANY then
    return #fields > 0 and call("HMGET", key, unpack(fields)) or {}
  end
  local found = {}
  for i = 1, #fields, MANY do
    for _, value in ipairs(call("HMGET", key, unpack(fields, i, min(i + MANY - 1, #fields)))) do
      found[#found + 1] = value
    end
  end
  return found
end

-- The order of items is that of (due, seq). Lua's own < follows the locale.
function base.before(a, b)
  local due_a, seq_a = struct.unpack(ITEM.due_to_seq.format, a)
  local due_b, seq_b = struct.unpack(ITEM.due_to_seq.format, b)
  if due_a ~= due_b then
    return due_a < due_b
  end
  return seq_a < seq_b
end
