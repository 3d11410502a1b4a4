-- Operators' words and declarations reach stored gates here; the arithmetic is gate.change.

gates_change = {}

-- Apply core.gate.GateChange maps in order; the packed gate after each. tx.finish wakes lanes that can run now.
function gates_change.apply(changes)
  local answers = {}
  for i, each in ipairs(changes) do
    answers[i] = gates_math.encode(gates_math.change(gates.edit(each.key), each, tx.now))
  end
  return answers
end

-- Make a limit or breaker that jobs name known (a core.gate.GateRule map); an operator's rule stays.
function gates_change.declare(rule)
  local known = gates.get(rule.key)
  if not known or (known.declared ~= false and not gates_math.same_rule(known.rule, rule)) then
    gates_math.change(gates.edit(rule.key), { key = rule.key, rule = rule, declared = true }, tx.now)
  end
end
