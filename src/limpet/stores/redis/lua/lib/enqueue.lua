-- Takes the jobs of one call in: everything that could refuse them is looked at first, then all are stored.

enqueue = {}

local NO_META = { parents = {} }
local PLACES = 3 -- of the gates of a class: the store, its queue, its task

local c -- the call that is taken in: see `read` for what it says, and `meet` for what is found out about its jobs

-- -- what the call says

-- The lanes and policies that a call names, from argument `at` on; and where its jobs begin. Tables have all their fields
-- from the start: one that grows is allocated again.
local function read_definitions(head, at)
  local defs, policies = {}, {}
  for i = 1, head.lanes do
    defs[i] = { id = ARGV[at], raw = ARGV[at + 1], class_raw = ARGV[at + 2], class = false, crowds = false }
    at = at + 3
  end
  for i = 1, head.policies do
    policies[i] = { id = ARGV[at], json = ARGV[at + 1], limits = ARGV[at + 2] }
    at = at + 3
  end
  return defs, policies, at
end

-- The call that the arguments from `from` on describe, as enqueue.lua says.
local function read(from)
  local head = unpack_(ARGV[from])
  local defs, policies, jobs_at = read_definitions(head, from + 1)
  local count, runs, run_of, ids, metas = (#ARGV - jobs_at + 1) / 3, {}, {}, {}, {}
  for _, packed in ipairs(head.runs) do
    local run = enqueue_store.run(packed, defs, policies)
    runs[#runs + 1] = run
    for _ = 1, packed[RUN.jobs] do
      run_of[#run_of + 1] = run
    end
  end
  for i = 1, count do
    ids[i] = ARGV[jobs_at + 3 * i - 3]
    local meta = ARGV[jobs_at + 3 * i - 1]
    if meta ~= "" then
      metas[i] = enqueue_store.meta(meta)
    end
  end
  c = {
    head = head, defs = defs, policies = policies, runs = runs, count = count, tails_at = jobs_at + 1,
    run_of = run_of, ids = ids, metas = metas, -- by place in the call
    careful = next(metas) ~= nil, -- the jobs must be looked at one by one before any is stored
    gone = {}, known = {}, alias = {}, new = {}, state_of = {}, -- by id
    replaces = {}, states = {}, stored = {}, -- by place
    draining = {}, crowds = false,
  }
end

-- The gates of all places that these jobs would go to, of which some may take no new jobs.
local function find_drains()
  local places = {}
  for _, def in ipairs(c.defs) do
    def.class = tx.class(sub(def.raw, LANE.kind), def.class_raw)
    for place = 1, PLACES do
      places[#places + 1] = def.class.gates[place]
    end
  end
  gates.load(places)
  for _, key in ipairs(places) do
    local found = gates.get(key)
    if found and found.draining then
      c.draining[key], c.careful = true, true
    end
  end
end

-- -- what could refuse it

-- Which jobs are new. An id that is stored, or was erased a while ago, is the same job; a key that is held stands for the
-- job that holds it.
local function meet()
  local stored, taken = record.load_all(c.ids), {} -- by key: the job of this call that gets it
  local known, alias = c.known, c.alias
  for i, id in ipairs(c.ids) do
    if stored[id] ~= nil then
      known[id] = stored[id] and record.state(stored[id]) or DEAD
    elseif c.gone[id] then
      known[id] = c.gone[id]
    end
    if alias[id] == nil then
      alias[id] = id
      local meta = c.metas[i] or NO_META
      local holder = meta.key and not known[id] and (taken[meta.key] or unique.holder(meta.key))
      if holder then
        alias[id], c.replaces[i] = holder, meta.on_duplicate ~= enqueue_store.EXISTING or nil
      elseif meta.key and not known[id] then
        taken[meta.key] = id
      end
      c.new[id] = alias[id] == id and not known[id] or nil
    end
  end
end

-- The parents of new jobs that are not of this call.
local function parents_outside()
  local outside = {}
  for i, id in ipairs(c.ids) do
    for _, parent in ipairs(c.new[id] and c.metas[i] and c.metas[i].parents or {}) do
      if not c.alias[parent] then
        outside[#outside + 1] = parent
      end
    end
  end
  return outside
end

-- Why a new job cannot be stored, as the call answers it; nil when it can.
local function refusal_of(i)
  for place = 1, PLACES do
    local key = c.run_of[i].def.class.gates[place]
    if c.draining[key] then
      return { "draining", i, key }
    end
  end
  for _, parent in ipairs((c.metas[i] or NO_META).parents) do
    if not c.alias[parent] and c.state_of[parent] == nil then
      return { "parent", i, parent }
    end
  end
end

-- The answer of a call of which nothing is stored; nil when nothing refuses it.
local function refusal()
  local full = enqueue_depth.full(c.crowds, c.run_of, c.ids, c.new)
  if full then
    return { "full", pack(full) }
  end
  c.state_of = record.states(parents_outside())
  for i, id in ipairs(c.ids) do
    local refused = c.new[id] and refusal_of(i)
    if refused then
      return refused
    end
  end
end

-- -- storing

local function declare()
  for _, policy in ipairs(c.policies) do
    if call("HSETNX", K.policies, policy.id, policy.json) == 1 then
      call("HSET", K.policy_limits, policy.id, policy.limits)
    end
  end
  for _, rule in ipairs(c.head.rules) do
    gates_change.declare(rule)
  end
end

local function state_now(id)
  local r = not c.gone[id] and record.load(id)
  -- Erased before its key's window was over: only a job that succeeded holds a key so long.
  return c.gone[id] or r == nil and SUCCEEDED or r and record.state(r) or DEAD
end

-- The jobs that a new one waits for: {id, state} each.
local function parents_of(meta)
  local parents = {}
  for at, parent in ipairs(meta.parents) do
    local target = c.alias[parent] or parent
    local state = c.state_of[target]
    parents[at] = { target, state == nil and state_now(target) or state or DEAD }
  end
  return parents
end

-- Store the jobs that are new, parents first.
local function store_all(first)
  local ids, order, careful, seen = c.ids, c.head.order, c.careful, {}
  for n = 1, c.count do
    local i = order and order[n] or n
    local id = ids[i]
    local is_new = not seen[id] and (careful and c.new[id] or not careful and not c.gone[id])
    seen[id] = true
    if is_new then
      local run, tail, meta, state = c.run_of[i], ARGV[c.tails_at + 3 * i - 3], c.metas[i], nil
      if meta then
        state = enqueue_store.other(run, id, first + i - 1, tail, meta, parents_of(meta))
      elseif enqueue_store.plain(run, id, first + i - 1, tail) then
        state = run.state
      end
      c.states[i], c.stored[i], c.state_of[id] = state, state and true, state
    end
  end
end

-- What a job replaces may be of this very call, and is stored by now.
local function replace_all()
  for i, id in ipairs(c.ids) do
    if c.replaces[i] then
      enqueue_store.replace(c.alias[id], c.run_of[i], ARGV[c.tails_at + 3 * i - 3], c.metas[i])
    end
  end
end

-- Jobs of one flow that came together are one range of arrival numbers.
local function join_flows(first)
  for _, part in ipairs(c.head.flows or {}) do
    local flow, low, high = base.bytes(part[1]), nil, nil
    for i = part[2], part[3] do
      if c.stored[i] then
        low, high = low or i, i
      end
    end
    if low then
      find_flows.join(flow, first + low - 1, first + high - 1)
    end
  end
end

local function answer()
  local answers, others = {}, {}
  for i, id in ipairs(c.ids) do
    if c.states[i] then
      answers[i] = char(48 + c.states[i])
    else
      local target = c.alias[id] or id
      answers[i] = char(64 + state_now(target))
      if target ~= id then
        others[#others + 1] = i
        others[#others + 1] = target
      end
    end
  end
  return { "ok", table.concat(answers), others, tx.store }
end

-- The jobs that the arguments from `from` on describe; its answer.
function enqueue.all(from)
  read(from)
  find_drains()
  c.crowds = enqueue_depth.crowds(c.defs, c.head)
  c.careful = c.careful or enqueue_depth.full(c.crowds, c.run_of) ~= nil
  c.gone = call("EXISTS", K.erased_until) == 1 and prune.remembered(c.ids) or {}
  if c.careful then
    meet()
    local refused = refusal()
    if refused then
      return refused
    end
  end

  local lane_ids = {}
  for i, def in ipairs(c.defs) do
    lane_ids[i] = def.id
  end
  lanes.load(lane_ids)
  local first = tx.next_seq(c.count)
  declare()
  store_all(first)
  replace_all()
  find_ledger.write(first, c.ids, c.stored)
  join_flows(first)
  enqueue_store.finish(c.runs)
  tx.finish()
  return answer()
end
