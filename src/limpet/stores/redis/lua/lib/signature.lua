-- Which classes a worker can run: decided once per pair of class and signature, and remembered on both sides.

signature = {}

local function includes(list, value)
  for _, each in ipairs(list) do
    if each == value then
      return true
    end
  end
  return false
end

-- True when a worker of that definition may be given jobs of the class; an absent list means any.
local function can(serves, class)
  if serves[1] and not includes(serves[1], class[1]) then
    return false
  end
  if serves[2] and not includes(serves[2], class[2]) then
    return false
  end
  for _, need in ipairs(class[3]) do
    if not includes(serves[3], need) then
      return false
    end
  end
  return true
end

local function match(sig, kind, serves, class)
  if can(serves, class) then
    call("SADD", P .. "sv:" .. sig, kind)
    call("SADD", P .. "cs:" .. kind, sig)
  end
end

-- A class is new: which of the known signatures can run it?
function signature.meet_class(kind, class)
  local body, all = unpack_(class), call("HGETALL", P .. "sd")
  for i = 1, #all, 2 do
    match(all[i], kind, unpack_(all[i + 1]), body)
  end
end

-- The class is gone.
function signature.forget_class(kind)
  for _, sig in ipairs(call("SMEMBERS", P .. "cs:" .. kind)) do
    call("SREM", P .. "sv:" .. sig, kind)
  end
  call("DEL", P .. "cs:" .. kind)
end

-- A signature may be new: which of the known classes can it run?
function signature.meet(sig, serves)
  if call("HSETNX", P .. "sd", sig, serves) == 1 then
    local body, all = unpack_(serves), call("HGETALL", P .. "cl")
    for i = 1, #all, 2 do
      match(sig, all[i], body, unpack_(all[i + 1]))
    end
  end
end

-- Nobody has this signature any more.
function signature.forget(sig)
  for _, kind in ipairs(call("SMEMBERS", P .. "sv:" .. sig)) do
    call("SREM", P .. "cs:" .. kind, sig)
  end
  call("DEL", P .. "sv:" .. sig, P .. "idle:" .. sig)
  call("HDEL", P .. "sd", sig)
  for prio = 0, 9 do
    call("HDEL", P .. "lk", sig .. char(prio))
  end
end
