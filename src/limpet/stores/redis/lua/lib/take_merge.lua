-- The jobs of a member with several lanes, in order of (due, arrival) across them: a merge that reads as little as it can.

local FIRST_PIECE = 4

take_merge = {}

-- A stream gives the rows of one lane in order, read in growing pieces: with many lanes most need only their first.
local function refill(stream)
  local size = min(stream.size, stream.most)
  local rows, all = take_front.seen(stream.lane, size)
  stream.rows, stream.all, stream.size = rows, all, stream.size * 4
end

local function head(stream)
  local row = stream.rows[stream.at]
  if not row and not stream.all and #stream.rows < stream.most then
    refill(stream)
    row = stream.rows[stream.at]
  end
  if not row then
    return false
  end
  stream.due, stream.seq = struct.unpack(ITEM.due_to_seq.format, row.item)
  return true
end

local function sooner(a, b)
  return a.due < b.due or (a.due == b.due and a.seq < b.seq)
end

-- Keep the heap in order after its first element has changed.
local function sift(heap)
  local at, size = 1, #heap
  while true do
    local least = at
    for child = 2 * at, min(2 * at + 1, size) do
      if sooner(heap[child], heap[least]) then
        least = child
      end
    end
    if least == at then
      return
    end
    heap[at], heap[least], at = heap[least], heap[at], least
  end
end

-- Read the gates of several lanes together.
local function load_gates(members_lanes)
  local keys = {}
  for _, each in ipairs(members_lanes) do
    for _, key in ipairs(lanes.gates(lanes.get(each.id))) do
      keys[#keys + 1] = key
    end
  end
  gates.load(keys)
end

-- A stream for each lane that may give something, with its first piece read.
local function streams_of(members_lanes, count)
  local streams, firsts = {}, {}
  for _, each in ipairs(members_lanes) do
    local lane = lanes.get(each.id)
    local most = take.allowance(lane, count)
    if most > 0 then
      streams[#streams + 1] = { lane = lane, most = most, size = FIRST_PIECE, at = 1, rows = {}, chosen = 0 }
      firsts[#firsts + 1] = { lane = lane, n = min(FIRST_PIECE, most) }
    end
  end
  take_front.look(firsts)
  return streams
end

-- Count the rows of each stream that are among the first `count` of all.
local function count_chosen(streams, count)
  local heap = {}
  for _, stream in ipairs(streams) do
    if head(stream) then
      heap[#heap + 1] = stream
    end
  end
  table.sort(heap, sooner)
  for _ = 1, count do
    local stream = heap[1]
    if not stream then
      break
    end
    stream.chosen, stream.at = stream.chosen + 1, stream.at + 1
    if not head(stream) then
      heap[1] = heap[#heap]
      heap[#heap] = nil
    end
    sift(heap)
  end
end

-- Take what was chosen of a lane; how many its gates admitted.
local function take_chosen(stream)
  local lane, chosen = stream.lane, {}
  for i = 1, stream.chosen do
    chosen[i] = stream.rows[i]
  end
  local given = #chosen > 0 and take.start(lane, chosen) or 0
  if given > 0 and lane.multi then
    call("ZADD", K.member_lanes .. lane.kind .. lane.member, "XX", tx.now, lane.id)
  end
  if stream.all and lanes.empty(lane) then
    take.rest(lane)
  end
  return given
end

-- Put the rows from `first` on into the order of their items.
local function sort_rows(rows, first)
  local mine = {}
  for i = first, #rows do
    mine[#mine + 1] = rows[i]
  end
  table.sort(mine, function(a, b)
    return base.before(a.item, b.item)
  end)
  for i, row in ipairs(mine) do
    rows[first + i - 1] = row
  end
end

-- Take up to `count` jobs of a member that has several lanes; how many it was.
function take_merge.take(members_lanes, count)
  local rows = take.claim.rows
  local first, taken = #rows + 1, 0
  load_gates(members_lanes)
  local streams = streams_of(members_lanes, count)
  count_chosen(streams, count)
  for _, stream in ipairs(streams) do
    taken = taken + take_chosen(stream)
  end
  sort_rows(rows, first)
  return taken
end
