-- The lists of a repair: what stands in a list stands for a job, or goes.

repair_lists = {}

local tell = repair.tell

local function state_of(id)
  local r = record.load(id)
  return r and record.state(r), r
end

-- Members of a sorted set that stand for no job go.
local function keep_members(key, cursor, count, is_right)
  local page = call("ZSCAN", key, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    if not is_right(page[2][i]) and tell("listed") then
      call("ZREM", key, page[2][i])
    end
  end
  return page[1]
end

function repair_lists.blocked(cursor, count)
  return keep_members(K.blocked, cursor, count, function(id)
    return state_of(id) == BLOCKED
  end)
end

function repair_lists.scheduled(level, cursor, count)
  return keep_members(K.scheduled .. level, cursor, count, function(item)
    local state, r = state_of(sub(item, ITEM.id))
    return state == SCHEDULED and record.item(r) == item
  end)
end

function repair_lists.expiring(cursor, count)
  return keep_members(K.expiring, cursor, count, function(entry)
    local state, r = state_of(sub(entry, EXPIRY.id))
    return state and state <= RUNNING and r.rare[ADDED.expires_ms] == base.n6(entry, EXPIRY.expires.at)
  end)
end

-- The same for jobs that ended: those that did so together share a member.
function repair_lists.filed(name, cursor, count)
  local key, state = K.finished .. name, tonumber(sub(name, 1, 1))
  local page = call("ZSCAN", key, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local member, kept = page[2][i], {}
    local instant, ids = sub(member, ENDED.finished), base.ids(member, ENDED.ids)
    for _, id in ipairs(ids) do
      local found, r = state_of(id)
      if found == state and base.b6(r.finished) == instant and state .. effect_ending.class(r).queue == name then
        kept[#kept + 1] = r.id
      end
    end
    if #kept < #ids and tell("listed") then
      call("ZREM", key, member)
      if #kept > 0 then
        call("ZADD", key, "0", instant .. table.concat(kept))
      end
    end
  end
  return page[1]
end

-- What a hash holds of jobs that are not stored goes.
local function keep_fields(key, cursor, count)
  local page = call("HSCAN", key, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    if call("HEXISTS", K.jobs, page[2][i]) == 0 and tell("listed") then
      call("HDEL", key, page[2][i])
    end
  end
  return page[1]
end

function repair_lists.results(cursor, count)
  return keep_fields(K.results, cursor, count)
end

function repair_lists.large_args(cursor, count)
  return keep_fields(K.large_args, cursor, count)
end

-- What is kept in keys of their own for jobs that are not stored goes. A record that hid it may have been erased without it.
function repair_lists.leftovers(ids)
  for _, id in ipairs(base.ids(ids)) do
    if call("HEXISTS", K.jobs, id) == 0 and tell("leftover", id) then
      graph.leave_parents(id)
      call("DEL", K.notes .. id, K.attempts .. id, K.parents .. id)
    end
  end
  return "0"
end

-- Keys of jobs that are gone: the window of one that was erased may go on, and then it is known when it ends.
function repair_lists.keys(cursor, count)
  local page = call("HSCAN", K.unique_keys, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local key, raw = page[2][i], page[2][i + 1]
    local over = #raw == HOLDER.size and base.n6(raw, HOLDER.window.at) or 0
    local is_stored, has_window = call("HEXISTS", K.jobs, sub(raw, HOLDER.id)) == 1, call("ZSCORE", K.unique_windows, key)
    if not is_stored and not has_window and tell("listed") then
      if over > tx.now then
        call("ZADD", K.unique_windows, base.text(over), key)
      else
        call("HDEL", K.unique_keys, key)
      end
    end
  end
  return page[1]
end

-- Jobs that are said to have held a key before have.
function repair_lists.former(bare, cursor, count)
  local page = call("ZSCAN", K.former_holders .. bare, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    if not unique.is_former(page[2][i], bare) and tell("listed") then
      call("ZREM", K.former_holders .. bare, page[2][i])
    end
  end
  return page[1]
end

-- Ranges of arrivals hold jobs of their flow and no others.
local function range_of(flow, range)
  local kept, from, upto, foreign = {}, nil, nil, false
  local first, last = struct.unpack(RANGE.format, range)
  for seq = first, last do
    local id = find_ledger.at(seq)
    local r = id and record.load(id)
    local own = r and record.extra(r)[PACKED.flow]
    if r and r.seq == seq and own and base.bytes(own) == flow then
      from, upto = from or seq, seq
    elseif r and r.seq == seq then
      foreign = true
      if from then
        kept[#kept + 1] = { from, upto }
        from = nil
      end
    end
  end
  if from then
    kept[#kept + 1] = { from, upto }
  end
  return kept, foreign or not kept[1] or kept[1][1] ~= first
end

function repair_lists.flows(cursor, count)
  local page = call("ZSCAN", K.flows, cursor, "COUNT", count)
  for i = 1, #page[2], 2 do
    local flow = page[2][i]
    local key = K.flow_ranges .. flow
    for _, range in ipairs(call("ZRANGE", key, 0, -1)) do
      local kept, wrong = range_of(flow, range)
      if wrong and tell("listed") then
        call("ZREM", key, range)
        for _, part in ipairs(kept) do
          find_flows.join(flow, part[1], part[2])
        end
      end
    end
    if call("EXISTS", key) == 0 and tell("listed") then
      call("ZREM", K.flows, flow)
    end
  end
  return page[1]
end
