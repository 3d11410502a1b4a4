-- Promise: opens or keeps a session, so that its leases stay, and takes the notes that ride on the beat.
-- Keys: meta, session, sessions, controls, and those of its modules.
-- Args: now session ttl_ms sig serves(msgpack [queues, tasks, capabilities]) serves(JSON) info mailbox
--       the call's own name, kind and name of the control that says until when there is a reader, then id token kind name body of each note
-- Answer: fresh(1|0; a repeated call that opened the session did open it), the store's own name, the newest token that it gave out,
--       1 when live events have a reader, the number of the last job that was handed to the session, then id and token of each running job that someone wants cancelled.
-- Bounds: what one session holds; the notes given.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due settle sessions

local refused = tx.begin()
if refused then
  return refused
end
local session, ttl, sig, serves, shown, info, mailbox, name, kind, reader = unpack(ARGV, 2, 11)
local FIRST_NOTE = 12
local key, deadline = K.session .. session, base.text(tx.now + tonumber(ttl))

tx.insist()
-- One that is past its deadline but not yet swept still holds its leases: the beat saves them.
local started, opened_by, handed = unpack(call("HMGET", key, "started", "opened", "handed"))
local fresh = not started or opened_by == name
if not started then
  -- Its numbers begin above those of a session with its name that was lost: a late message is known as such.
  handed = base.text(tx.meta("token") or 0)
  call("HSET", key, "started", base.text(tx.now), "opened", name, "handed", handed)
end
call("HSET", key, "sig", sig, "serves", shown, "info", info, "beat", base.text(tx.now), "deadline", deadline)
if mailbox ~= "" then
  call("HSETNX", key, "mailbox", mailbox) -- a claim knows better than a beat which loop waits
end
call("ZADD", K.sessions, deadline, session)
sessions_signature.meet(sig, serves)
for i = FIRST_NOTE, #ARGV, 5 do
  settle.save(ARGV[i], tonumber(ARGV[i + 1]), ARGV[i + 2], ARGV[i + 3], ARGV[i + 4])
end

-- Add the jobs that the session holds and someone wants cancelled: id and token of each.
local function add_unwanted(answer)
  local ids, held = {}, sessions.jobs(sessions.tokens(session), base.UNLIMITED)
  for i, job in ipairs(held) do
    ids[i] = job.id
  end
  for i, raw in ipairs(base.mget(K.jobs, ids)) do
    if raw and #raw >= RECORD.size and HAS(record.flags(raw), CANCELLING) then
      answer[#answer + 1] = ids[i]
      answer[#answer + 1] = base.text(held[i].token)
    end
  end
end

local function is_listened()
  local found = call("HGET", K.controls .. kind, reader)
  return found and tonumber(sub(found, CONTROL.value)) > tx.now
end

local answer = { fresh and 1 or 0, tx.store, base.text(tx.meta("token") or 0), is_listened() and 1 or 0, handed or "0" }
if not fresh then
  add_unwanted(answer)
end
tx.finish()
answer[2] = tx.store -- made just now, when this is the first that is written
return answer
