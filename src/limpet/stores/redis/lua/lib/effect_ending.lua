-- The end of a job: where it is filed, what is written about its runs, and how dead ones are counted by their origin.

effect_ending = {
  cancelled = {}, -- queue -> jobs that were filed as cancelled
}

local MAX_CAUSES = 10000

-- The public form of an id.
function effect_ending.name(id)
  local hex = string.gsub(id, ".", function(c)
    return string.format("%02x", byte(c))
  end)
  return (string.gsub(hex, "^(........)(....)(....)(....)", "%1-%2-%3-%4-"))
end

function effect_ending.class(r)
  return tx.class(lanes.get(r.lane).kind)
end

-- Put a dead or cancelled job where listings and retention find it.
function effect_ending.file(r, state)
  r.state, r.finished = state, tx.now
  call("ZADD", K.finished .. state .. effect_ending.class(r).queue, 0, base.b6(tx.now) .. r.id)
end

-- `count` jobs of a queue were filed as cancelled.
function effect_ending.note_cancelled(queue, count)
  effect_ending.cancelled[queue] = (effect_ending.cancelled[queue] or 0) + count
end

function effect_ending.unfile(r)
  call("ZREM", K.finished .. r.state .. effect_ending.class(r).queue, base.b6(r.finished) .. r.id)
  r.finished = 0
end

-- One more dead job of its origin; the record says why it died.
function effect_ending.bury(r, failure)
  local class, cause, kind, message = effect_ending.class(r), failure.cause, failure.type, failure.message
  cause = cause ~= "" and cause or kind
  local suffix = "\0" .. class.queue .. "\0" .. class.task
  local known = call("HGET", K.causes, cause .. suffix)
  if not known and call("HLEN", K.causes) >= MAX_CAUSES then
    cause = kind -- too many origins to tell apart: the kind of error is still known
    known = call("HGET", K.causes, cause .. suffix)
  end
  local entry = known and unpack_(known) or { 0, kind, "", tx.now }
  local count, type_name, first_at = entry[CAUSE.count] + 1, entry[CAUSE.type], entry[CAUSE.first_at]
  local sample = string.gsub(effect_ending.name(r.id), "%-", "")
  call("HSET", K.causes, cause .. suffix, pack({ count, type_name, message, first_at, tx.now, sample }))
  r.rare[ADDED.reason], r.rare[ADDED.cause], r.rare[ADDED.error_type] = message, cause, kind
end

-- One dead job less of this origin.
function effect_ending.unbury(r)
  local class = effect_ending.class(r)
  local field = (r.rare[ADDED.cause] or "") .. "\0" .. class.queue .. "\0" .. class.task
  local known = call("HGET", K.causes, field)
  local entry = known and unpack_(known)
  if entry and entry[CAUSE.count] > 1 then
    entry[CAUSE.count] = entry[CAUSE.count] - 1
    call("HSET", K.causes, field, pack(entry))
  elseif entry then
    call("HDEL", K.causes, field)
  end
end

-- One run of a job as it is kept for people: `word` says how it ended, the failure or else the message why.
function effect_ending.attempt(r, number, word, session, failure, message)
  local started = number > 0 and r.claimed or tx.now
  local f = failure or { kind = "", type = "", message = message or "", traceback = "", cause = "" }
  local cause = f.cause ~= "" and f.cause or f.type
  return pack({ number, word, started, tx.now, session, f.kind, f.type, f.message, f.traceback, cause })
end

-- -- records that cannot be read

-- Lane("unreadable", "unreadable"), as Python writes it: id, definition, class. Jobs that do not say where they belong are
-- there for people to find.
local NOWHERE = {
  "96eedb8648bee061",
  "d3cbf50646e6d7bc03033e5ad2e5a0ac56646ace8699ea290500" .. "9aaa756e7265616461626c65aa756e7265616461626c6505c0909090c0c0c0",
  "97aa756e7265616461626c65aa756e7265616461626c659090c0c2" .. "aa756e7265616461626c65",
}

local function number_at(raw, at, otherwise)
  return #raw >= at + 5 and base.n6(raw, at) or otherwise
end

-- What lies beside a record says which flags it has.
local function flags_of(id)
  local flags = 0
  for flag, there in pairs({
    [KIDS] = call("EXISTS", K.children .. id), [WATCHED] = call("EXISTS", K.watchers .. id),
    [NOTES] = call("EXISTS", K.notes .. id), [INPUTS] = call("EXISTS", K.parents .. id),
    [BODY] = call("HEXISTS", K.large_args, id), [RESULT] = call("HEXISTS", K.results, id),
    [ATTEMPTS] = call("EXISTS", K.attempts .. id),
  }) do
    flags = flags + (there == 1 and flag or 0)
  end
  return flags
end

-- What can be read of the parts of a spoilt record: what scripts have added, and the one that holds its flow and its key,
-- as it is stored.
local function parts_of(raw)
  local flags = #raw >= RECORD.size and record.flags(raw) or 0
  local at, rare = RECORD.rest, nil
  if HAS(flags, RARE) then
    rare, at = record.piece(raw, at)
    at = rare and at or #raw + 1
  end
  local extra, over = nil, nil
  if HAS(flags, EXTRA) then
    extra, over = record.piece(raw, at)
  end
  return rare and record.is_rare(rare) and rare or {}, extra and record.is_extra(extra) and sub(raw, at, over - 1) or ""
end

-- The arrival number of a job: one under which the ledger knows it, or a new one.
local function arrival_of(id, raw, item)
  for _, seq in ipairs({ item and base.n6(item, ITEM.seq.at) or 0, number_at(raw, RECORD.seq.at, 0) }) do
    if find_ledger.at(seq) == id then
      return seq
    end
  end
  local seq = tx.next_seq(1)
  find_ledger.write(seq, { id }, { true })
  return seq
end

-- The state that a spoilt record had, as far as it can be told.
local function state_of(id, raw, running, place)
  if running then
    return READY -- as every running job's record says
  elseif call("ZSCORE", K.blocked, id) then
    return BLOCKED
  end
  local state = byte(raw, RECORD.state)
  return place.state or record.is_state(state) and state or READY
end

-- A record that cannot be read as one that can: all of its bytes are its arguments, and what can still be told of it is as
-- it was. `place` says where it was found: item, lane, state, each if known.
function effect_ending.salvage(id, raw, running, place)
  tx.insist()
  local lane_id = sub(raw, RECORD.lane)
  if not lanes.whole(lane_id) then
    lane_id = place.lane
  end
  if not lane_id then
    local id8, definition, class = base.bytes(NOWHERE[1]), base.bytes(NOWHERE[2]), base.bytes(NOWHERE[3])
    lane_id = lanes.remember(id8, definition, class).id
    tx.count_lane(lane_id, 1)
  end
  local rare, extra = parts_of(raw)
  local item = place.item
  local due = item and base.n6(item, ITEM.due.at) or number_at(raw, RECORD.due.at, tx.now)
  return {
    id = id, running = running, spoilt = true, state = state_of(id, raw, running, place),
    flags = flags_of(id) + (extra ~= "" and EXTRA or 0), attempt = 0, lost = 0, held = 0, seq = arrival_of(id, raw, item),
    due = due, enq = number_at(raw, RECORD.enqueued.at, due), lane = lane_id, policy = string.rep("\0", 8), claimed = 0,
    finished = number_at(raw, RECORD.finished.at, 0), rare = rare, tail = extra .. raw .. sub(id, -1),
  }
end

-- Take a job off the list of its state. Its item may stay in its lane: claim drops it.
local function unlist(r)
  local expires = r.rare[ADDED.expires_ms]
  if expires then
    call("ZREM", K.expiring, base.b6(expires) .. r.id)
  end
  if r.state == BLOCKED then
    call("ZREM", K.blocked, r.id)
    graph.leave_parents(r.id)
  elseif r.state == SCHEDULED then
    lanes_due.unschedule(lanes.get(r.lane), record.item(r))
  elseif r.state == READY then
    call("ZREM", K.ready_aside .. r.lane, record.item(r))
  else
    call("ZREM", K.finished .. r.state .. effect_ending.class(r).queue, base.b6(r.finished) .. r.id)
  end
end

-- The record of a job that does not run and cannot be read goes to the dead letters with its bytes; the state it was in,
-- nil when there is no such job. One that has succeeded or was cancelled stays so, and can be read.
function effect_ending.bury_spoilt(id, place)
  local raw = call("HGET", K.jobs, id)
  if not raw then
    return nil
  end
  local r, failure = effect_ending.salvage(id, raw, false, place or {}), MADE.unreadable.failure
  local old = r.state
  if old == SUCCEEDED or old == CANCELLED then
    r.finished = r.finished > 0 and r.finished or tx.now
    record.save(r)
    return old
  end
  unlist(r)
  tx.move(effect_ending.class(r), old, DEAD)
  if old == DEAD then
    effect_ending.unbury(r)
  end
  if old == BLOCKED or old == SCHEDULED or old == READY then
    lanes.crowd(lanes.get(r.lane), -1)
  end
  effect_ending.bury(r, failure)
  effect_ending.file(r, DEAD)
  if old ~= DEAD then
    tx.ends(r)
  end
  r.flags = record.with(r.flags, ATTEMPTS)
  record.save(r)
  call("RPUSH", K.attempts .. id, effect_ending.attempt(r, 0, MADE.unreadable.word, "", failure))
  graph.after_end(r, DEAD)
  return old
end
