-- Makes the jobs of hooks, in the step in which other jobs have ended (tx.ends).

hooks = {}

local QUEUE = "limpet.hooks" -- its own jobs have no hooks; the same name is in core/endings/hook.py
local SMALL = 1024 -- larger arguments lie beside the record: see record.py

local function is_among(list, name)
  for _, each in ipairs(list) do
    if each == name then
      return true
    end
  end
  return #list == 0
end

-- The published hooks, with their names: as many as apps declare.
local function published()
  local found, all = {}, call("HGETALL", K.hooks)
  for i = 1, #all, 2 do
    local hook = unpack_(all[i + 1])
    hook.name, found[#found + 1] = all[i], hook
  end
  return found
end

local function is_for(hook, r, class)
  return string.find(hook[HOOK.states], r.state, 1, true) and is_among(hook[HOOK.tasks], class.task)
    and is_among(hook[HOOK.queues], class.queue)
end

-- What the job of a hook is told, as JSON: the fields of core's Ending.
local function told(r, class)
  local lane, names = lanes.get(r.lane), { [SUCCEEDED] = "succeeded", [DEAD] = "dead", [CANCELLED] = "cancelled" }
  return cjson.encode({
    ending = {
      job = effect_ending.name(r.id), task = class.task, queue = class.queue, priority = lane.prio, state = names[r.state],
      attempt = r.attempt, enqueued_at_ms = r.enq, at_ms = r.finished, tenant = lane.has_tenant and lanes.definition(lane.raw)[DEFINITION.tenant] or nil,
      reason = r.rare[ADDED.reason], error_type = r.rare[ADDED.error_type],
    },
  })
end

-- The id of that job: core's hook_id.
local function id_of(hook, r, token)
  return base.b6(r.finished) .. sub(base.bytes(redis.sha1hex(r.id .. base.text(token) .. "\0" .. hook.name)), 1, ID_BYTES - 6)
end

-- What the jobs of a hook have in common; those with large arguments are runs of their own.
local function run_of(runs, hook, flags)
  local name = hook.name .. "\0" .. flags
  if not runs[name] then
    local def = { id = hook[HOOK.lane], raw = hook[HOOK.definition], class_raw = hook[HOOK.class] }
    runs[name] = enqueue_store.run({ 1, 1, flags, 0, -1, -1, 0 }, { def }, { { id = hook[HOOK.policy] } })
    runs[#runs + 1] = runs[name]
  end
  return runs[name]
end

-- Store a job of each hook for each end that it is for.
function hooks.write()
  local found, runs, made = published(), {}, {}
  for _, each in ipairs(tx.ended) do
    local r, token = each[1], each[2]
    local class = effect_ending.class(r)
    for _, hook in ipairs(class.queue ~= QUEUE and found or {}) do
      if is_for(hook, r, class) then
        made[#made + 1] = { hook, id_of(hook, r, token), told(r, class) }
      end
    end
  end
  local first, ids, stored = tx.next_seq(#made), {}, {}
  for i, each in ipairs(made) do
    local hook, id, args = each[1], each[2], each[3]
    local large = #args > SMALL
    ids[i] = id
    stored[i] = enqueue_store.plain(run_of(runs, hook, large and BODY or 0), id, first + i - 1, (large and "" or args) .. sub(id, -1))
    if stored[i] and large then
      call("HSET", K.large_args, id, args)
    end
  end
  find_ledger.write(first, ids, stored)
  enqueue_store.finish(runs)
end
