-- Promise: a named record is written over the version that the caller saw, once however often the call is repeated.
-- Keys: meta, controls, weights, hooks, policies, policy_limits, answers.
-- Args: now; the call's own name; kind; name; value; the version expected ("" = any, 0 = not there); weight ("" = it is none);
--   of a hook: the codes of its states, msgpack [[task…], [queue…]], its lane and policy as enqueue.lua has them
-- Answer: the new version; nil when another version is there.
-- Bounds: one record; the published hooks.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
end

-- A hook is for these states from now on; for none, when it was removed or makes no sense.
local function put_hook(name, states, filter, lane, definition, class, policy, policy_json, limits)
  local codes = ""
  if (states or "") == "" then
    call("HDEL", K.hooks, name)
  else
    if call("HSETNX", K.policies, policy, policy_json) == 1 then
      call("HSET", K.policy_limits, policy, limits)
    end
    local tasks, queues = unpack(unpack_(filter))
    call("HSET", K.hooks, name, pack({ states, tasks, queues, lane, definition, class, policy }))
  end
  for _, hook in ipairs(call("HVALS", K.hooks)) do
    codes = codes .. unpack_(hook)[HOOK.states]
  end
  call("HSET", K.meta, "hooks", codes)
end

local kind, name, value, expect, weight = unpack(ARGV, 3, 7)
local answered = tx.answered()
if answered then
  return tonumber(answered)
end
local found = call("HGET", K.controls .. kind, name)
local version = found and struct.unpack(CONTROL.version.format, found) or 0
if expect ~= "" and tonumber(expect) ~= version then
  return false
end
call("HSET", K.controls .. kind, name, struct.pack(CONTROL.version.format, version + 1) .. value)
tx.answer(base.text(version + 1))
if kind == "hook" then
  put_hook(name, unpack(ARGV, 8, 15))
end
if weight == "1" then
  call("HDEL", K.weights, name)
elseif weight ~= "" then
  call("HSET", K.weights, name, weight)
end
return version + 1
