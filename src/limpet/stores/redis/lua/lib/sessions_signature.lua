-- Which classes a worker can run: decided once per pair of class and signature, and remembered on both sides.

sessions_signature = {}

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
  local queues, tasks = serves[SERVES.queues], serves[SERVES.tasks]
  if queues and not includes(queues, class[CLASS.queue]) then
    return false
  end
  if tasks and not includes(tasks, class[CLASS.task]) then
    return false
  end
  for _, need in ipairs(class[CLASS.needs]) do
    if not includes(serves[SERVES.capabilities], need) then
      return false
    end
  end
  return true
end

local function match(sig, kind, serves, class)
  if can(serves, class) then
    call("SADD", K.signature_classes .. sig, kind)
    call("SADD", K.class_signatures .. kind, sig)
  end
end

-- A class is new: which of the known signatures can run it?
function sessions_signature.meet_class(kind, class)
  local body, all = unpack_(class), call("HGETALL", K.signatures)
  for i = 1, #all, 2 do
    match(all[i], kind, unpack_(all[i + 1]), body)
  end
end

-- The class is gone.
function sessions_signature.forget_class(kind)
  for _, sig in ipairs(call("SMEMBERS", K.class_signatures .. kind)) do
    call("SREM", K.signature_classes .. sig, kind)
  end
  call("DEL", K.class_signatures .. kind)
end

-- A signature may be new: which of the known classes can it run?
function sessions_signature.meet(sig, serves)
  if call("HSETNX", K.signatures, sig, serves) == 1 then
    local body, all = unpack_(serves), call("HGETALL", K.classes)
    for i = 1, #all, 2 do
      match(sig, all[i], body, unpack_(all[i + 1]))
    end
  end
end

-- No session has this signature any more.
function sessions_signature.forget(sig)
  for _, kind in ipairs(call("SMEMBERS", K.signature_classes .. sig)) do
    call("SREM", K.class_signatures .. kind, sig)
  end
  call("DEL", K.signature_classes .. sig, K.sleepers .. sig)
  call("HDEL", K.signatures, sig)
  for prio = 0, 9 do
    call("HDEL", K.page_marks, sig .. char(prio))
  end
end
