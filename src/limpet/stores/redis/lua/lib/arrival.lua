-- Takes the jobs of one call in: everything that could refuse them is looked at first, then all are stored.

arrival = {}

local NO_META = { parents = {} }

-- Three arguments at a time, from argument `at` on.
local function triples(at, count)
  local rows = {}
  for i = 1, count do
    rows[i] = { ARGV[at], ARGV[at + 1], ARGV[at + 2] }
    at = at + 3
  end
  return rows, at
end

-- The jobs that the arguments from `from` on describe, as enqueue.lua says; its answer.
function arrival.all(from)
  local head = unpack_(ARGV[from])
  local defs, at = triples(from + 1, head.lanes)
  local policies, jobs_at = triples(at, head.policies)
  local count = (#ARGV - jobs_at + 1) / 3
  local runs, run_of, ids, metas, careful = {}, {}, {}, {}, false

  for _, packed in ipairs(head.runs) do
    local run = storing.run(packed, defs, policies)
    runs[#runs + 1] = run
    for _ = 1, packed[7] do
      run_of[#run_of + 1] = run
    end
  end
  for i = 1, count do
    ids[i] = ARGV[jobs_at + 3 * i - 3]
    local meta = ARGV[jobs_at + 3 * i - 1]
    if meta ~= "" then
      metas[i], careful = storing.meta(meta), true
    end
  end

  -- Places that take no new jobs, of those that these jobs would go to.
  local places, draining, lane_ids = {}, {}, {}
  for i, def in ipairs(defs) do
    lane_ids[i] = def[1]
    def.class = tx.class(sub(def[2], 1, 8), def[3])
    for place = 1, 3 do
      places[#places + 1] = def.class.gates[place]
    end
  end
  gating.load(places)
  for _, key in ipairs(places) do
    local found = gating.get(key)
    if found and found.draining then
      draining[key], careful = true, true
    end
  end

  local crowds = depth.crowds(defs, head)
  if depth.full(crowds, run_of) then
    careful = true
  end

  local gone = call("EXISTS", K.erased_until) == 1 and erasing.remembered(ids) or {}
  local known, alias, taken, replaces, new = {}, {}, {}, {}, {} -- by id, but for `taken` (by key) and `replaces` (by index)
  local state_of = {} -- by id: the states of parents that were stored before, and of new jobs

  -- Everything that could refuse the call is looked at before the first write.
  if careful then
    local stored = record.load_all(ids)
    for i, id in ipairs(ids) do
      if stored[id] ~= nil then
        known[id] = stored[id] and record.state(stored[id]) or DEAD
      elseif gone[id] then
        known[id] = gone[id]
      end
      if alias[id] == nil then
        alias[id] = id
        local meta = metas[i] or NO_META
        if meta.key and not known[id] then
          local holder = taken[meta.key] or unique.holder(meta.key)
          if not holder then
            taken[meta.key] = id
          else
            alias[id], replaces[i] = holder, meta.on_duplicate > 0 or nil
          end
        end
        new[id] = alias[id] == id and not known[id] or nil
      end
    end
    local full = depth.full(crowds, run_of, ids, new)
    if full then
      return { "full", pack(full) }
    end
    local outside = {}
    for i, id in ipairs(ids) do
      for _, parent in ipairs(new[id] and metas[i] and metas[i].parents or {}) do
        if not alias[parent] then
          outside[#outside + 1] = parent
        end
      end
    end
    state_of = record.states(outside)
    for i, id in ipairs(ids) do
      if new[id] then
        for place = 1, 3 do
          local key = run_of[i].def.class.gates[place]
          if draining[key] then
            return { "draining", i, key }
          end
        end
        for _, parent in ipairs((metas[i] or NO_META).parents) do
          if not alias[parent] and state_of[parent] == nil then
            return { "parent", i, parent }
          end
        end
      end
    end
  end

  lanes.load(lane_ids)
  local first, states, seen, stored = tx.next_seq(count), {}, {}, {}

  local function state_now(id)
    local r = not gone[id] and record.load(id)
    -- Erased before its key's window was over: only a job that succeeded holds a key so long.
    return gone[id] or r == nil and SUCCEEDED or r and record.state(r) or DEAD
  end

  local function store(i)
    local id, tail, meta = ids[i], ARGV[jobs_at + 3 * i - 2], metas[i] or NO_META
    if careful and not new[id] or not careful and gone[id] or seen[id] then
      return
    end
    seen[id] = true
    if meta == NO_META then
      if storing.plain(run_of[i], id, first + i - 1, tail) then
        states[i], stored[i], state_of[id] = run_of[i].state, true, run_of[i].state
      end
      return
    end
    local parents = {}
    for at, parent in ipairs(meta.parents) do
      local target = alias[parent] or parent
      local state = state_of[target]
      parents[at] = { target, state == nil and state_now(target) or state or DEAD }
    end
    states[i] = storing.other(run_of[i], id, first + i - 1, tail, meta, parents)
    stored[i], state_of[id] = true, states[i]
  end

  -- Jobs of one flow that came together are one range of arrival numbers.
  local function join(flow, from, to)
    local low, high
    for i = from, to do
      if stored[i] then
        low, high = low or i, i
      end
    end
    if low then
      flows.join(flow, first + low - 1, first + high - 1)
    end
  end

  for _, policy in ipairs(policies) do
    if call("HSETNX", K.policies, policy[1], policy[2]) == 1 then
      call("HSET", K.policy_limits, policy[1], policy[3])
    end
  end
  for _, rule in ipairs(head.rules) do
    change.declare(rule)
  end
  for n = 1, count do
    store(head.order and head.order[n] or n)
  end
  for i, id in ipairs(ids) do
    if replaces[i] then -- what it replaces may be of this very call, and is stored by now
      storing.replace(alias[id], run_of[i], ARGV[jobs_at + 3 * i - 2], metas[i])
    end
  end
  ledger.write(first, ids, stored)
  for _, part in ipairs(head.flows or {}) do
    join(base.bytes(part[1]), part[2], part[3])
  end
  storing.finish(runs)
  tx.finish()

  local answers, others = {}, {}
  for i, id in ipairs(ids) do
    if states[i] then
      answers[i] = char(48 + states[i])
    else
      local target = alias[id] or id
      answers[i] = char(64 + state_now(target))
      if target ~= id then
        others[#others + 1] = i
        others[#others + 1] = target
      end
    end
  end
  return { "ok", table.concat(answers), others, tx.store }
end
