-- Promise: a page of what is kept beside the records is compared with them, and with `mend` set by them.
-- Keys: meta, and those of its modules.
-- Args: now · the repair's own name · mend 0|1 · stage · cursor · name of a list
-- Answer: {next cursor ("0": this was the last page), word and id in turn of what is wrong, more}; more is of the stage
--   gates {key, used, held, stuck 0|1} each, of the last step of a count {{counter, found, right} each, total or nil}.
--   {"busy"}: another repair counts.
-- Bounds: 100 entries of a page and the parents, children and ranges of each; 1,024 jobs that are counted; of the stage
--   gates every running job and gate, of the last step of a count every lane and counter.
-- Uses: base record gates_period gates_math sessions_signature wake tx gates gates_events turns lanes gates_wait lanes_due unique find_ledger effect_ending graph hooks enqueue_store notes find_flows effect give_back settle sessions repair repair_lists repair_count
local refused = tx.begin()
if refused then
  return refused
end
local PAGE, CHUNKS, LONGEST = 100, 16, 30000 -- ms that a count may rest before it is over
local name, stage, cursor, list = ARGV[2], ARGV[4], ARGV[5], ARGV[6]

-- True when another repair counts, or this one has rested too long.
local function is_busy(is_first)
  local other, lasts = call("GET", K.repairing), (tx.meta("recount") or 0) > tx.now
  if is_first then
    return other and other ~= name and lasts
  end
  return other ~= name or not lasts
end

-- One step of the count; with the last one all counters are compared.
local function count()
  if is_busy(cursor == "0") then
    return { "busy" }
  end
  if cursor == "0" then
    call("SET", K.repairing, name, "PX", 600000)
    call("DEL", K.recount)
    tx.set_meta("counted", 0)
    tx.trace()
  end
  if not repair_count.count(CHUNKS, tx.now + LONGEST) then
    tx.finish()
    return { "1", repair.found, false }
  end
  tx.set_meta("recount", 0)
  tx.finish()
  local counters, total = repair_count.compare()
  call("DEL", K.recount, K.repairing)
  return { "0", repair.found, { counters, total } }
end

tx.insist()
repair.begin(ARGV[3] == "1")
local more = false
if stage == "count" then
  return count()
elseif stage == "gates" then
  more, cursor = repair.gates(), "0"
elseif list ~= "" then
  cursor = repair_lists[stage](list, cursor, PAGE)
else
  cursor = (repair[stage] or repair_lists[stage])(cursor, PAGE)
end
tx.finish()
return { cursor, repair.found, more }
