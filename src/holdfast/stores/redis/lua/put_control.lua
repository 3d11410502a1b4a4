-- Promise: a named record is written over the version that the caller saw, once however often the call is repeated.
-- Keys: m ct: wgt once:
-- Args: now; the call's own name; kind; name; value; the version expected ("" = any, 0 = not there); weight ("" = it is none)
-- Answer: the new version; nil when another version is there.
-- Bounds: one record.
-- Uses: base record tx

local REMEMBER = 60000 -- a call is repeated within seconds, or not at all

local refused = tx.begin()
if refused then
  return refused
end
local once, kind, name, value, expect, weight = P .. "once:" .. ARGV[2], ARGV[3], ARGV[4], ARGV[5], ARGV[6], ARGV[7]
local done = call("GET", once)
if done then
  return tonumber(done)
end
local found = call("HGET", P .. "ct:" .. kind, name)
local version = found and struct.unpack(">I8", found) or 0
if expect ~= "" and tonumber(expect) ~= version then
  return false
end
call("HSET", P .. "ct:" .. kind, name, struct.pack(">I8", version + 1) .. value)
call("SET", once, base.text(version + 1), "PX", REMEMBER)
if weight == "1" then
  call("HDEL", P .. "wgt", name)
elseif weight ~= "" then
  call("HSET", P .. "wgt", name, weight)
end
return version + 1
