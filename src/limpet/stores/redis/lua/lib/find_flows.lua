-- Remembers which jobs are of which flow: ranges of arrival numbers (RANGE), whose ids the ledger knows. What is
-- blank there has left its flow. The first job of a range is stored, so a flow without ranges has no jobs and is gone.

find_flows = {}

-- The jobs that arrived under these numbers are of this flow; at least the first is stored.
function find_flows.join(flow, first, last)
  call("ZADD", K.flow_ranges .. flow, 0, base.b6(first) .. base.b6(last))
  call("ZADD", K.flows, 0, flow)
end

-- A range begins with a job that is stored, or is no more; the last number of it.
local function tidy(key, range)
  local first, last = struct.unpack(RANGE.format, range)
  local stored = find_ledger.first(first, last)
  if stored ~= first then
    call("ZREM", key, range)
    if stored then
      call("ZADD", key, 0, base.b6(stored) .. base.b6(last))
    end
  end
  return last
end

-- True when a job of this flow that arrived under this number is found there. With `mend` it is then.
function find_flows.knows(flow, seq, mend)
  local range = call("ZREVRANGEBYLEX", K.flow_ranges .. flow, "(" .. base.b6(seq + 1), "-", "LIMIT", 0, 1)[1]
  local known = range and base.n6(range, RANGE.last.at) >= seq and call("ZSCORE", K.flows, flow)
  if not known and mend then
    find_flows.join(flow, seq, seq)
  end
  return known and true or false
end

-- Jobs of this flow that had these numbers are erased, and blank in the ledger.
function find_flows.leave(flow, seqs)
  local key, seen = K.flow_ranges .. flow, 0
  table.sort(seqs)
  for _, seq in ipairs(seqs) do
    if seq > seen then
      local range = call("ZREVRANGEBYLEX", key, "(" .. base.b6(seq + 1), "-", "LIMIT", 0, 1)[1]
      seen = range and tidy(key, range) or seen
    end
  end
  if call("EXISTS", key) == 0 then -- a flow without jobs is forgotten
    call("ZREM", K.flows, flow)
  end
end
