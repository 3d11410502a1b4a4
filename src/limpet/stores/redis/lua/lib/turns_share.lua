-- Shares a claim between queues and, within one, between its members: each has its turn.

turns_share = {}

local function take_lanes(members_lanes, count)
  if #members_lanes == 1 then
    return take.lane(lanes.get(members_lanes[1].id), count)
  end
  return take_merge.take(members_lanes, count)
end

local function by(list, field)
  local groups, order = {}, {}
  for _, each in ipairs(list) do
    local key = each[field]
    if not groups[key] then
      groups[key] = {}
      order[#order + 1] = key
    end
    local group = groups[key]
    group[#group + 1] = each
  end
  return groups, order
end

-- Members or rings in the order of their turns, with what their turns are worth.
local function ring_of(ids, name_of)
  local ring = {}
  turns.load_turns(ids)
  for i, id in ipairs(ids) do
    local turn, weight = turns.turn(id) or { turn = 0, left = 1 }, turns.weight(name_of(id))
    ring[i] = { member = id, turn = turn.turn, left = max(1, min(turn.left, weight)), weight = weight, at = i }
  end
  table.sort(ring, function(a, b)
    return a.turn < b.turn or (a.turn == b.turn and a.at < b.at)
  end)
  return ring
end

-- Who has had its turn goes to the end; what was moved is answered as turn, member, turn, member…
local function advance(ring, served)
  local moves = {}
  for _, place in ipairs(turns_fair.places(ring, served)) do
    local turn = turns.turn(place.member)
    if turn then
      local at, n = turn.turn, #moves
      if place.moves then
        at = tx.next_turn()
        moves[n + 1], moves[n + 2] = at, place.member
      end
      turns.put_turn(place.member, { turn = at, left = place.left, seats = turn.seats })
    end
  end
  return moves
end

-- How much may be shared at once: when a gate leaves less than is asked, everyone gets a part of that.
local function scarce(list, count)
  local t = take.claim
  local most, least, seen = 0, count, {}
  for _, each in ipairs(list) do
    if not seen[each.kind] then
      seen[each.kind] = true
      local class = tx.class(each.kind)
      local free = take.room(take.class_gates(class))
      if take.must_start(class) then
        free = min(free, t.slots)
      end
      most, least = max(most, free), min(least, free)
    end
  end
  return most < count and max(1, least) or count
end

-- Take from each of a ring what it is given; how much each gave, and all of them.
local function in_turn(ring, given, take_from)
  local t = take.claim
  local first, served, total, parts, longest = #t.rows, {}, 0, {}, 0
  for i, turn in ipairs(ring) do
    local before = #t.rows
    served[i] = given[i] > 0 and take_from(turn.member, given[i]) or 0
    total = total + served[i]
    parts[i] = { at = before, size = #t.rows - before }
    longest = max(longest, parts[i].size)
  end
  if #ring > 1 then
    -- One of each in turn, so that no member's jobs wait behind a whole share of another member.
    local mixed = {}
    for n = 1, longest do
      for _, part in ipairs(parts) do
        if n <= part.size then
          mixed[#mixed + 1] = t.rows[part.at + n]
        end
      end
    end
    for i, row in ipairs(mixed) do
      t.rows[first + i] = row
    end
  end
  return served, total
end

local function take_from_ring(list, count, prio)
  local members, ids = by(list, "member")
  local ring = ring_of(ids, function(id)
    return turns.weighed() and lanes.tenant(lanes.get(members[id][1].id)) or ""
  end)
  local given, ahead = turns_fair.share(scarce(list, count), ring), {}
  for i, turn in ipairs(ring) do
    local own = members[turn.member]
    if given[i] > 0 and #own == 1 and not lanes.get(own[1].id).keyed then
      ahead[#ahead + 1] = { lane = lanes.get(own[1].id), n = given[i] }
    end
  end
  take_front.look(ahead)
  local served, total = in_turn(ring, given, function(member, part)
    return take_lanes(members[member], part)
  end)
  if #ring > 1 or take.claim.cut then
    turns.move(list[1].ring, prio, advance(ring, served))
  end
  return total
end

-- Share the rest of the claim between queues, then between the members of each.
function turns_share.fairly(list, prio)
  local t = take.claim
  local rings, ids = by(list, "ring")
  local ring = ring_of(ids, function(id)
    return "queue:" .. tx.class(rings[id][1].kind).queue
  end)
  local served = in_turn(ring, turns_fair.share(scarce(list, t.left), ring), function(queue, part)
    return take_from_ring(rings[queue], part, prio)
  end)
  if #ring > 1 or t.chosen then
    advance(ring, served)
  end
end
