-- The end of a job: where it is filed, what is written about its runs, and how dead ones are counted by their origin.

ending = {
  cancelled = {}, -- queue -> jobs that were filed as cancelled
}

local MAX_CAUSES = 10000

-- The public form of an id.
function ending.name(id)
  local hex = string.gsub(id, ".", function(c)
    return string.format("%02x", byte(c))
  end)
  return (string.gsub(hex, "^(........)(....)(....)(....)", "%1-%2-%3-%4-"))
end

function ending.class(r)
  return tx.class(lanes.get(r.lane).kind)
end

-- Put a dead or cancelled job where listings and retention find it.
function ending.file(r, state)
  r.state, r.finished = state, tx.now
  call("ZADD", P .. "F:" .. state .. ending.class(r).queue, 0, base.b6(tx.now) .. r.id)
end

-- So many jobs of a queue were filed as cancelled.
function ending.note_cancelled(queue, count)
  ending.cancelled[queue] = (ending.cancelled[queue] or 0) + count
end

function ending.unfile(r)
  call("ZREM", P .. "F:" .. r.state .. ending.class(r).queue, base.b6(r.finished) .. r.id)
  r.finished = 0
end

-- One more dead job of its origin; the record says why it died.
function ending.bury(r, failure)
  local class, cause, kind, message = ending.class(r), failure[5], failure[2], failure[3]
  cause = cause ~= "" and cause or kind
  local suffix = "\0" .. class.queue .. "\0" .. class.task
  local known = call("HGET", P .. "ca", cause .. suffix)
  if not known and call("HLEN", P .. "ca") >= MAX_CAUSES then
    cause = kind -- too many origins to tell apart: the kind of error is still known
    known = call("HGET", P .. "ca", cause .. suffix)
  end
  local entry = known and unpack_(known) or { 0, kind, "", tx.now }
  local sample = string.gsub(ending.name(r.id), "%-", "")
  call("HSET", P .. "ca", cause .. suffix, pack({ entry[1] + 1, entry[2], message, entry[4], tx.now, sample }))
  r.rare.r, r.rare.c, r.rare.t = message, cause, kind
end

-- One dead job less of this origin.
function ending.unbury(r)
  local class = ending.class(r)
  local field = (r.rare.c or "") .. "\0" .. class.queue .. "\0" .. class.task
  local known = call("HGET", P .. "ca", field)
  local entry = known and unpack_(known)
  if entry and entry[1] > 1 then
    entry[1] = entry[1] - 1
    call("HSET", P .. "ca", field, pack(entry))
  elseif entry then
    call("HDEL", P .. "ca", field)
  end
end

-- One run of a job as it is kept for people.
function ending.attempt(r, number, outcome, session, failure, message)
  local started = number > 0 and r.claimed or tx.now
  local kind, name, text, trace, cause = unpack(failure or { "", "", message or "", "", "" })
  return pack({ number, outcome, started, tx.now, session, kind, name, text, trace, cause ~= "" and cause or name })
end

-- A record whose head is spoilt becomes one that can be listed: its bytes are kept as arguments.
local function salvage(id, item, lane_id)
  local raw = call("HGET", P .. "J", id)
  if not raw or not item or call("HEXISTS", P .. "run", id) == 1 then
    return nil
  end
  local due, seq = struct.unpack(">I6I6", item)
  return {
    id = id, state = READY, flags = 0, attempt = 0, lost = 0, held = 0, seq = seq, due = due, enq = due,
    lane = lane_id, policy = string.rep("\0", 8), claimed = 0, finished = 0, rare = {}, tail = raw .. sub(id, -1),
  }
end

-- The record of a ready job that cannot be read goes to the dead letters with its bytes. `item` and `lane_id` say where it stood.
function ending.bury_waiting(id, failure, item, lane_id)
  local r = record.load(id) or salvage(id, item, lane_id)
  if not r or r.running or r.state ~= READY then
    return
  end
  call("ZREM", P .. "R:" .. r.lane, record.item(r))
  if r.rare.e then
    call("ZREM", P .. "E", base.b6(r.rare.e) .. id)
  end
  tx.move(ending.class(r), r.state, DEAD)
  lanes.crowd(lanes.get(r.lane), -1)
  ending.bury(r, failure)
  ending.file(r, DEAD)
  r.flags = record.with(r.flags, ATTEMPTS)
  record.save(r)
  call("RPUSH", P .. "at:" .. id, ending.attempt(r, 0, "dead", "", failure))
  graph.after_end(r, DEAD)
end
