-- Promise: a page of what is kept beside the records is compared with them, and with `mend` set by them; see mending and listing.
-- Keys: meta, and those of its modules.
-- Args: now · the repair's own name · mend 0|1 · stage · cursor · name of a list
-- Answer: {next cursor ("0": this was the last page), word and id in turn of what is wrong, more}; more is of the stage gates
--   {key, used, held, stuck 0|1} each, of the last step of a count {{counter, found, right} each, total or nil}. {"busy"}: another repair counts.
-- Bounds: 100 entries of a page and the parents, children and ranges of each; 1,024 jobs that are counted; of the stage gates
--   every running job and gate, of the last step of a count every lane and counter.
-- Uses: base record period gate signature wake tx gating news seats lanes waiting calendar unique ledger ending graph noting flows effect give_back settle holding mending listing
local refused = tx.begin()
if refused then
  return refused
end
local PAGE, CHUNKS, LONGEST = 100, 16, 30000 -- ms that a count may rest before it is over
local name, stage, cursor, list, more = ARGV[2], ARGV[4], ARGV[5], ARGV[6], false
tx.insist()
mending.begin(ARGV[3] == "1")
if stage == "count" then
  local other = call("GET", K.repairing)
  if cursor == "0" then
    if other and other ~= name and (tx.meta("recount") or 0) > tx.now then
      return { "busy" }
    end
    call("SET", K.repairing, name, "PX", 600000)
    call("DEL", K.recount)
    tx.set_meta("counted", 0)
    tx.trace()
  elseif other ~= name or (tx.meta("recount") or 0) <= tx.now then
    return { "busy" }
  end
  cursor = listing.count(CHUNKS, tx.now + LONGEST) and "0" or "1"
  if cursor == "0" then
    tx.set_meta("recount", 0)
    tx.finish()
    local counters, total = listing.compare()
    call("DEL", K.recount, K.repairing)
    return { cursor, mending.found, { counters, total } }
  end
elseif stage == "gates" then
  more, cursor = mending.gates(), "0"
elseif list ~= "" then
  cursor = listing[stage](list, cursor, PAGE)
else
  cursor = (mending[stage] or listing[stage])(cursor, PAGE)
end
tx.finish()
return { cursor, mending.found, more }
