-- What sessions hold: the jobs of their leases that still run under the lease's own token.

sessions = {}

-- The tokens of a session's leases, oldest first.
function sessions.tokens(session)
  local tokens = call("SMEMBERS", K.session_leases .. session)
  table.sort(tokens, function(a, b)
    return tonumber(a) < tonumber(b)
  end)
  return tokens
end

-- The jobs that those leases still hold, at most `most`: {id, token} each, in the order in which they were given.
function sessions.jobs(tokens, most)
  local ids, owners, held = {}, {}, {}
  for _, token in ipairs(tokens) do
    for _, id in ipairs(base.ids(call("GET", K.lease_jobs .. token) or "")) do
      ids[#ids + 1], owners[#ids + 1] = id, tonumber(token)
    end
  end
  for i, running in ipairs(base.mget(K.running, ids)) do
    if #held >= most then
      break
    end
    if running and record.hold(running) == owners[i] then
      held[#held + 1] = { id = ids[i], token = owners[i] }
    end
  end
  return held
end

-- Their records; one that cannot be read is left out.
function sessions.records(tokens, most)
  local ids, records = {}, {}
  for i, job in ipairs(sessions.jobs(tokens, most)) do
    ids[i] = job.id
  end
  local found = record.load_all(ids)
  for _, id in ipairs(ids) do
    records[#records + 1] = found[id] or nil
  end
  return records
end

-- The same with those that cannot be read, as far as they can be told; and {id, entry in run} of those that are not stored.
function sessions.all(tokens, most)
  local ids, records, vanished = {}, {}, {}
  for i, job in ipairs(sessions.jobs(tokens, most)) do
    ids[i] = job.id
  end
  local found = record.load_all(ids)
  for _, id in ipairs(ids) do
    if found[id] == nil then
      vanished[#vanished + 1] = { id, call("HGET", K.running, id) }
    else
      records[#records + 1] = found[id] or effect_ending.salvage(id, call("HGET", K.jobs, id), call("HGET", K.running, id), {})
    end
  end
  return records, vanished
end

-- Remove a session that holds nothing.
function sessions.forget(session)
  local key = K.session .. session
  local known = call("HMGET", key, "sig", "asked")
  call("ZREM", K.sessions, session)
  call("HDEL", K.sleeps_until, session)
  for _, sig in pairs(known) do
    if sig then
      call("ZREM", K.sleepers .. sig, session)
    end
  end
  call("DEL", key, K.session_leases .. session, K.receipts .. session)
end
