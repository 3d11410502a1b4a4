-- How many jobs may wait in a queue, or of a tenant in it, and whether new ones fit.

enqueue_depth = {}

-- What rules a queue after this call: an operator's word, else what the call declares, else what was declared.
local function rule_of(key, rules)
  local found = gates.get(key)
  if found and found.declared == false then
    return found.rule
  end
  for _, rule in ipairs(rules) do
    if rule.key == key then
      return rule
    end
  end
  return found and found.rule
end

-- The places with a depth that the jobs of these lanes would wait in; each lane's definition gets its own (`crowds`).
function enqueue_depth.crowds(defs, head)
  local all, known = {}, {}
  local function crowd(def, name, most, tenant)
    if not most then
      return
    end
    if not known[name] then
      known[name] = { queue = def.class.queue, tenant = tenant, most = most }
      all[#all + 1] = known[name]
    end
    def.crowds[#def.crowds + 1] = known[name]
  end
  for _, def in ipairs(head.always and {} or defs) do
    local queue = def.class.queue
    local rule = rule_of("queue:" .. queue, head.rules)
    def.crowds = {}
    if rule and (rule.depth or rule.tenant_depth) then
      local tenant = lanes.definition(def.raw)[DEFINITION.tenant]
      crowd(def, queue, rule.depth, nil)
      crowd(def, queue .. "\0" .. (tenant or ""), tenant and rule.tenant_depth, tenant)
    end
  end
  return all
end

-- How many jobs wait there: of a tenant as they are counted, of a queue the sum over its tasks.
local function waiting_in(crowd)
  if crowd.tenant then
    return tonumber(call("HGET", K.waiting_by_tenant, crowd.queue .. "\0" .. crowd.tenant) or 0)
  end
  local fields, seen, sum = {}, {}, 0
  for _, kind in ipairs(call("SMEMBERS", K.gate_classes .. "queue:" .. crowd.queue)) do
    local class = tx.class(kind)
    if class and not seen[class.field] then
      seen[class.field] = true
      for state = BLOCKED, READY do
        fields[#fields + 1] = class.field .. state
      end
    end
  end
  for _, count in ipairs(base.mget(K.counters, fields)) do
    sum = sum + tonumber(count or 0)
  end
  return sum
end

-- The first place where the jobs do not fit, in words for core.limits.depth.queue_full; nil when all do. Without `new` (by id)
-- every job counts.
function enqueue_depth.full(crowds, run_of, ids, new)
  if #crowds == 0 then
    return nil
  end
  local brought, seen = {}, {}
  for i, run in ipairs(run_of) do
    if not new or new[ids[i]] and not seen[ids[i]] then
      seen[ids and ids[i] or i] = true
      for _, crowd in ipairs(run.def.crowds) do
        brought[crowd] = (brought[crowd] or 0) + 1
      end
    end
  end
  for _, crowd in ipairs(crowds) do
    local count, waiting = brought[crowd], waiting_in(crowd)
    if count and waiting + count > crowd.most then
      return { queue = crowd.queue, tenant = crowd.tenant, waiting = waiting, most = crowd.most, brought = count }
    end
  end
  return nil
end
