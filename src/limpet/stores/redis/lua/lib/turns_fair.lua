-- Promise: the sharing of core/limits/fair.py: round robin with weights, number for number.
-- Inputs: a ring is an array of {member = any, left = jobs left of its turn, weight = jobs of a whole turn},
--         least recently served first.
-- Answer: numbers in ring order; places in the order in which new turns are taken.
turns_fair = {}
do
  local floor, min = math.floor, math.min

  -- How many of `count` jobs each participant gets, in ring order: what is left of interrupted turns, then whole turns.
  function turns_fair.share(count, ring)
    local given, total = {}, 0
    for n, turn in ipairs(ring) do
      given[n] = min(count, turn.left)
      count = count - given[n]
      total = total + turn.weight
    end
    if count <= 0 or total == 0 then return given end
    local rounds = floor(count / total)
    count = count - rounds * total
    for n, turn in ipairs(ring) do
      local extra = min(count, turn.weight)
      count = count - extra
      given[n] = given[n] + rounds * turn.weight + extra
    end
    return given
  end

  -- Who stands where after `served`: {member, left, moves} in the order in which those that move take new turns.
  -- A turn cut short keeps its place and remainder; of members whose turn is over, the one with fewer turns is first.
  function turns_fair.places(ring, served)
    local kept, moved = {}, {}
    for n, turn in ipairs(ring) do
      local count = served[n]
      if count >= turn.left then
        local whole = floor((count - turn.left) / turn.weight)
        local over = count - turn.left - whole * turn.weight
        local place = {member = turn.member, left = turn.weight - over, moves = true}
        moved[#moved + 1] = {whole = whole, index = n, place = place}
      elseif count > 0 then
        kept[#kept + 1] = {member = turn.member, left = turn.left - count, moves = false}
      end
    end
    -- table.sort is not stable: the index decides between equals.
    table.sort(moved, function(a, b)
      if a.whole ~= b.whole then return a.whole < b.whole end
      return a.index < b.index
    end)
    for _, one in ipairs(moved) do kept[#kept + 1] = one.place end
    return kept
  end
end
