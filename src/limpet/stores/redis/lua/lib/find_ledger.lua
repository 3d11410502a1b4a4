-- Remembers every stored job in the order of arrival: chunks of 64 ids, so that a listing can walk all jobs.

find_ledger = {}

local BLANK = string.rep("\0", ID_BYTES)

-- Write new ids from arrival number `first` on; one that was not stored (no `stored[i]`) leaves its slot empty.
function find_ledger.write(first, ids, stored)
  local at, count = 1, #ids
  while at <= count do
    local seq = first + at - 1
    local slot = seq % SLOTS
    local size, live, parts = min(SLOTS - slot, count - at + 1), 0, {}
    for i = 1, size do
      if stored[at + i - 1] then
        parts[i], live = ids[at + i - 1], live + 1
      else
        parts[i] = BLANK
      end
    end
    if live > 0 then
      local chunk = base.text(floor(seq / SLOTS))
      call("SETRANGE", K.ledger .. chunk, slot * ID_BYTES, table.concat(parts))
      if call("HINCRBY", K.ledger_counts, chunk, live) == live then
        call("ZADD", K.ledger_chunks, chunk, chunk)
      end
    end
    at = at + size
  end
end

-- Who arrived under this number; nil when the slot is blank.
function find_ledger.at(seq)
  local slot = seq % SLOTS
  local id = call("GETRANGE", K.ledger .. base.text(floor(seq / SLOTS)), slot * ID_BYTES, (slot + 1) * ID_BYTES - 1)
  return #id == ID_BYTES and id ~= BLANK and id or nil
end

-- True when the ids of a chunk are as many as its number says. With `mend` they are then.
function find_ledger.counts(number, mend)
  local chunk, live = base.text(number), 0
  for _, id in ipairs(base.ids(call("GETRANGE", K.ledger .. chunk, 0, -1))) do
    live = live + (id ~= BLANK and 1 or 0)
  end
  local counted, is_listed = tonumber(call("HGET", K.ledger_counts, chunk) or 0), call("ZSCORE", K.ledger_chunks, chunk)
  if live == counted and (live > 0) == (is_listed and true or false) then
    return true
  end
  if mend and live > 0 then
    call("HSET", K.ledger_counts, chunk, base.text(live))
    call("ZADD", K.ledger_chunks, chunk, chunk)
  elseif mend then
    call("DEL", K.ledger .. chunk)
    call("HDEL", K.ledger_counts, chunk)
    call("ZREM", K.ledger_chunks, chunk)
  end
  return false
end

-- The first arrival number from `first` to `last` whose job is stored; nil when there is none.
function find_ledger.first(first, last)
  local seq = first
  while seq <= last do
    local chunk, slot = base.text(floor(seq / SLOTS)), seq % SLOTS
    local size = min(SLOTS - slot, last - seq + 1)
    local packed = call("GETRANGE", K.ledger .. chunk, slot * ID_BYTES, (slot + size) * ID_BYTES - 1)
    for i, id in ipairs(base.ids(packed)) do
      if id ~= BLANK then
        return seq + i - 1
      end
    end
    seq = seq + size
  end
end

local function wipe_slots(key, slots)
  table.sort(slots)
  local from = 1
  for i = 1, #slots do
    if slots[i + 1] ~= slots[i] + 1 then -- the end of a run of neighbours
      call("SETRANGE", key, slots[from] * ID_BYTES, string.rep(BLANK, i - from + 1))
      from = i + 1
    end
  end
end

-- Jobs with these arrival numbers are erased; a chunk goes with the last of its jobs.
function find_ledger.wipe(seqs)
  local chunks = {}
  for _, seq in ipairs(seqs) do
    local number = floor(seq / SLOTS)
    local slots = chunks[number]
    if not slots then
      slots = {}
      chunks[number] = slots
    end
    slots[#slots + 1] = seq % SLOTS
  end
  for number, slots in pairs(chunks) do
    local chunk = base.text(number)
    if call("HINCRBY", K.ledger_counts, chunk, -#slots) > 0 then
      wipe_slots(K.ledger .. chunk, slots)
    else
      call("DEL", K.ledger .. chunk)
      call("HDEL", K.ledger_counts, chunk)
      call("ZREM", K.ledger_chunks, chunk)
    end
  end
end
