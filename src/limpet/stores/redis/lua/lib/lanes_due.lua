-- What time alone brings: scheduled jobs that become due, and gates that open.

local GATES = 64 -- due gates and levels that one step opens
local PROMOTE = 512 -- due jobs that one step makes ready

lanes_due = {}

-- Put a job on the schedule.
function lanes_due.schedule(lane, item)
  local due = base.n6(item, ITEM.due.at)
  call("ZADD", K.scheduled .. lane.prio, 0, item)
  if due < NEVER then
    call("ZADD", K.timers, "LT", due, TIMER_LEVEL .. lane.prio)
    tx.note_timer(lane.id, due)
  end
end

-- Look at a level again when its first job is due; what is due never needs no look.
local function arm(level)
  local first = call("ZRANGE", K.scheduled .. level, 0, 0)[1]
  local due = first and base.n6(first, ITEM.due.at) or NEVER
  if due < NEVER then
    call("ZADD", K.timers, due, TIMER_LEVEL .. level)
  else
    call("ZREM", K.timers, TIMER_LEVEL .. level)
  end
end

-- Take a job off the schedule.
function lanes_due.unschedule(lane, item)
  call("ZREM", K.scheduled .. lane.prio, item)
  arm(lane.prio)
end

-- Open what is due: gates whose time has come, and scheduled jobs, urgent ones first; those from the level `first` on may
-- pass the others. True when more is due.
function lanes_due.open_due(first)
  local due = call("ZRANGEBYSCORE", K.timers, "-inf", base.text(tx.now), "LIMIT", 0, GATES)
  local levels, keys = {}, {}
  for _, name in ipairs(due) do
    if base.begins(name, TIMER_LEVEL) then
      levels[#levels + 1] = tonumber(sub(name, 2))
    else
      keys[#keys + 1] = sub(name, 2)
    end
  end
  if #keys > 0 then
    gates.load(keys)
    gates_wait.wake_now(keys)
  end
  table.sort(levels)
  local left, passing = PROMOTE, first > 0 and PROMOTE or 0
  for _, level in ipairs(levels) do
    if level >= first then
      passing = passing - lanes_due.promote(level, passing)
    end
  end
  for _, level in ipairs(levels) do
    left = left - lanes_due.promote(level, left)
  end
  return #due == GATES or left <= 0
end

-- Make at most `limit` due jobs of one level ready; how many it looked at.
function lanes_due.promote(level, limit)
  if limit <= 0 then
    return 0
  end
  local key = K.scheduled .. level
  local items = call("ZRANGEBYLEX", key, "-", "(" .. base.b6(tx.now + 1), "LIMIT", 0, limit)
  local ids, by_lane = {}, {}
  for i, item in ipairs(items) do
    ids[i] = sub(item, ITEM.id)
  end
  base.chunked("ZREM", key, items)
  local found = record.load_all(ids)
  for i, id in ipairs(ids) do
    local r = found[id]
    if r and r.state == SCHEDULED and not r.running and r.due == base.n6(items[i], ITEM.due.at) then
      r.state = READY
      record.save(r)
      local heap = by_lane[r.lane] or {}
      heap[#heap + 1], by_lane[r.lane] = items[i], heap
    elseif r == false then
      effect_ending.bury_spoilt(id, { item = items[i], state = SCHEDULED })
    end
  end
  for lane_id, heap in pairs(by_lane) do
    local lane = lanes.get(lane_id)
    tx.move(tx.class(lane.kind), SCHEDULED, READY, #heap)
    lanes.add(lane, heap)
  end
  arm(level)
  return #items
end

-- The earliest instant at which time alone makes something runnable; nil when there is none.
function lanes_due.next_instant()
  return tonumber(call("ZRANGE", K.timers, 0, 0, "WITHSCORES")[2])
end
