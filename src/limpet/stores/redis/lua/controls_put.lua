-- Promise: a named record is written over the version that the caller saw, once however often the call is repeated.
-- Keys: meta, controls, weights, answers.
-- Args: now; the call's own name; kind; name; value; the version expected ("" = any, 0 = not there); weight ("" = it is none)
-- Answer: the new version; nil when another version is there.
-- Bounds: one record.
-- Uses: base record tx

local refused = tx.begin()
if refused then
  return refused
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
if weight == "1" then
  call("HDEL", K.weights, name)
elseif weight ~= "" then
  call("HSET", K.weights, name, weight)
end
return version + 1
