-- Promise: the events of core/text/gate_events.py: a breaker that opened or closed, a hold, a slower pace, a budget that runs out.
-- Inputs: the gate before a script changed it (nil when it is new) and after it, the instant.
-- Answer: events as {kind, facts}; facts are the text of a JSON object. A budget notes which marks were announced.
gates_events = {}

local function event(kind, g, names, ...)
  local facts = { '{"gate":' .. cjson.encode(g.rule.key) }
  for i, name in ipairs(names) do
    facts[i + 1] = '"' .. name .. '":' .. base.text(select(i, ...))
  end
  return { kind, table.concat(facts, ",") .. "}" }
end

-- What has been spent when a budget is at each of the marks, rounded up: exact for every number that can be stored.
local function levels(cap)
  return { { 50, cap - floor(cap / 2) }, { 80, cap - floor(cap / 5) }, { 100, cap } }
end

local SHORT = 8 -- the bit of `announced_marks` for a budget with a waiting job; 1, 2 and 4 are for the marks

-- Each mark is announced once in a period, while the cap stays: what jobs reserve and give back lets a busy budget pass its
-- marks up and down all day.
local function of_budget(before, g, now, found)
  local cap, spent = g.rule.cap, g.rule.cap - gates_math.budget_left(g, now)
  local same = before.rule and before.rule.cap == cap
  if same and (before.period_ms or 0) == (g.period_ms or 0) and (before.spent or 0) == (g.spent or 0)
    and (before.reserved_for or 0) == (g.reserved_for or 0)
  then
    return
  end
  local announced = (before.period_ms or 0) == (g.period_ms or 0) and before.announced_marks or 0
  local marks = same and announced or 0
  for i, mark in ipairs(levels(cap)) do
    if mark[2] <= spent then
      local mask = 2 ^ (i - 1)
      marks = bit.bor(marks, mask)
      if bit.band(announced, mask) == 0 then
        found[#found + 1] = event("budget.reached", g, { "percent", "spent", "cap" }, mark[1], spent, cap)
      end
    end
  end
  if (g.reserved_for or 0) ~= 0 then
    marks = bit.bor(marks, SHORT)
    if bit.band(announced, SHORT) == 0 then
      found[#found + 1] = event("budget.short", g, { "wants", "spent", "cap" }, g.reserved_for, spent, cap)
    end
  end
  g.announced_marks = marks
end

-- The events of one script that changed a gate.
function gates_events.of(before, g, now)
  local found, open_until, held = {}, g.open_until_ms or 0, g.held_until_ms or 0
  before = before or {}
  if (g.opened or 0) > (before.opened or 0) then
    found[1] = event("breaker.opened", g, { "until_ms" }, open_until)
  elseif (before.open_until_ms or 0) ~= 0 and open_until == 0 then
    found[1] = event("breaker.closed", g, {})
  end
  if held > now and now >= (before.held_until_ms or 0) then
    found[#found + 1] = event("limit.held", g, { "until_ms" }, held)
  end
  if g.rule.floor and (g.last_cut_token or 0) > (before.last_cut_token or 0) then
    found[#found + 1] = event("limit.slowed", g, { "pace" }, g.pace)
  end
  if g.rule.cap then
    of_budget(before, g, now, found)
  end
  return found
end

-- Add events to their log, as append.lua does with what it is given.
function gates_events.log(events)
  local last = call("HINCRBY", K.meta, "log", #events)
  for i, each in ipairs(events) do
    local kind, facts = each[1], each[2]
    -- A line is an array of six whose last value is bytes, which cmsgpack does not know: 0xc6, their number, they.
    local line = "\150" .. pack(tx.now, kind, "", nil, "") .. "\198" .. struct.pack(">I4", #facts) .. facts
    call("XADD", K.logs .. "event", base.text(last - #events + i) .. "-0", "t", base.text(tx.now), "v", line)
  end
end
