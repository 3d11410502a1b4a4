-- Chooses the lanes that a claim is served from next: those of the best priority that has any for this worker, least
-- recently served first, without reading more of very many classes and queues than one claim can use.

local PAGE = 256 -- active classes that are read together, and that one look considers

choose = {}
local t = take.claim -- the claim that is being filled

-- Which classes of `entries` the worker can run, asked once per class.
local function learn(entries)
  local asked = {}
  for _, entry in ipairs(entries) do
    local kind = sub(entry, ACTIVE.kind)
    if t.serves[kind] == nil then
      t.serves[kind] = false
      asked[#asked + 1] = kind
    end
  end
  for i = 1, #asked, MANY do
    local answer = call("SMISMEMBER", K.signature_classes .. t.sig, unpack(asked, i, min(i + MANY - 1, #asked)))
    for j, yes in ipairs(answer) do
      t.serves[asked[i + j - 1]] = yes == 1
    end
  end
end

local function class_is_open(class)
  if take.room(take.class_gates(class)) > 0 and (t.slots > 0 or not take.must_start(class)) then
    return true
  end
  take.skip_class(class)
  return false
end

-- The lanes of these classes at one priority that were not met before.
local function unmet(entries, prio, rings)
  -- Without weights each of several queues gets an equal part at most.
  local part = (rings == 1 or turns.weighed()) and t.left or floor(t.left / rings) + 1
  local found, horizons, asked = {}, {}, part + t.skipped_count + 1
  for _, entry in ipairs(entries) do
    local ring = sub(entry, ACTIVE.ring)
    local line, last = turns.line(sub(entry, ACTIVE.kind), prio, asked, t.met)
    if last then -- cut off: members beyond this turn may be seen with only some of their lanes
      horizons[ring] = min(last, horizons[ring] or last)
    end
    for _, each in ipairs(line) do
      if not t.skipped_lanes[each.id] then
        each.ring = ring
        found[#found + 1] = each
      end
    end
  end
  t.cut = next(horizons) ~= nil
  if not t.cut then
    return found
  end
  local seen = {}
  for _, each in ipairs(found) do
    if each.turn <= (horizons[each.ring] or each.turn) then
      seen[#seen + 1] = each
    end
  end
  return seen
end

-- Whether the claim takes jobs of a class: it may ask only for those that need a capability.
local function is_asked_for(class)
  local needing = t.options.needing
  if not needing then
    return true
  end
  for _, need in ipairs(class.needs) do
    if need == needing then
      return true
    end
  end
  return false
end

-- The entries of a page of active classes that may have something for this worker; what is asked about them is read.
local function of_interest(page)
  local wanted, kinds, keys = {}, {}, {}
  learn(page)
  for _, entry in ipairs(page) do
    local kind = sub(entry, ACTIVE.kind)
    if t.serves[kind] and not t.skipped[kind] and byte(entry, ACTIVE.prio) >= (t.floors[kind] or 0) then
      wanted[#wanted + 1], kinds[#wanted + 1] = entry, kind
    end
  end
  local unread = {}
  for _, kind in ipairs(kinds) do
    if not t.read[kind] then
      unread[#unread + 1], t.read[kind] = kind, true
    end
  end
  for i, raw in ipairs(base.mget(K.classes, unread)) do
    tx.class(unread[i], raw)
  end
  for _, kind in ipairs(kinds) do
    local class = tx.class(kind)
    for _, key in ipairs((not class or class.found) and {} or class.gates) do
      keys[#keys + 1] = key
    end
    t.skipped[kind] = t.skipped[kind] or not class or not is_asked_for(class) -- one whose definition is gone gives nothing
  end
  gates.load(keys)
  return wanted
end

-- Add active classes between two places, of one priority and with open gates, to `open`; true when it is full.
local function look(from, to, open)
  while true do
    local page = call("ZRANGEBYLEX", K.active_classes, from, to, "LIMIT", 0, PAGE)
    for _, entry in ipairs(of_interest(page)) do
      local kind = sub(entry, ACTIVE.kind)
      if open[1] and byte(entry, ACTIVE.prio) ~= byte(open[1], ACTIVE.prio) then
        return false
      elseif not t.skipped[kind] and class_is_open(tx.class(kind)) then
        if #open == PAGE then
          return true
        end
        open[#open + 1] = entry
      end
    end
    if #page < PAGE then
      return false
    end
    from = "(" .. page[PAGE]
  end
end

-- There are more classes than one round considers: begin where the last such round of this sort of worker has ended.
local function next_page(open, prio)
  local field, level = t.sig .. char(prio), char(prio)
  local at = call("HGET", K.page_marks, field)
  if at then
    open = {}
    if not look("(" .. at, "(" .. char(prio + 1), open) then
      look("[" .. level, "[" .. at, open)
    end
  end
  local last = sub(open[#open], ACTIVE.ring)
  if sub(open[1], ACTIVE.ring) ~= last then -- a queue is seen with all its classes, or not at all
    while sub(open[#open], ACTIVE.ring) == last do
      open[#open] = nil
    end
  end
  call("HSET", K.page_marks, field, open[#open])
  return open
end

-- At most as many queues as there are jobs to give can get one: the queues that were served least recently.
local function next_rings(open)
  local rings, seen = {}, {}
  for _, entry in ipairs(open) do
    local ring = sub(entry, ACTIVE.ring)
    if not seen[ring] then
      rings[#rings + 1], seen[ring] = ring, #rings + 1
    end
  end
  t.chosen = #rings > t.left
  if not t.chosen then
    return open, #rings
  end
  turns.load_turns(rings)
  table.sort(rings, function(a, b)
    local first, second = turns.turn(a), turns.turn(b)
    first, second = first and first.turn or 0, second and second.turn or 0
    return first < second or (first == second and seen[a] < seen[b])
  end)
  local chosen, entries = {}, {}
  for i = 1, t.left do
    chosen[rings[i]] = true
  end
  for _, entry in ipairs(open) do
    if chosen[sub(entry, ACTIVE.ring)] then
      entries[#entries + 1] = entry
    end
  end
  return entries, t.left
end

local function count_rings(list)
  local count, seen = 0, {}
  for _, each in ipairs(list) do
    count = count + (seen[each.ring] and 0 or 1)
    seen[each.ring] = true
  end
  return count
end

-- Active lanes of the best priority that has any for this worker.
function choose.candidates()
  local from = "[" .. char(t.most)
  while true do
    local open = {}
    local more, prio = look(from, "(" .. char(t.least + 1), open), nil
    if #open == 0 then
      return {}
    end
    prio = byte(open[1], ACTIVE.prio)
    if more then
      open = next_page(open, prio)
    end
    local entries, rings = next_rings(open)
    local found = unmet(entries, prio, rings)
    if #found > 0 and rings > 1 then
      local having = count_rings(found)
      found = having < rings and unmet(entries, prio, having) or found -- fewer queues: each gets more
    end
    if #found > 0 then
      return found, prio
    end
    for _, entry in ipairs(entries) do
      t.floors[sub(entry, ACTIVE.kind)] = prio + 1
    end
    from = "[" .. char(prio)
  end
end
