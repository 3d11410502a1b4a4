-- Promise: a gate that is stopped as a whole, as core/gate/stop.py has it, number for number; nothing is read or written. Inputs: a gate,
-- the engine's time in ms. Answer: numbers, or the gate as it is afterwards. Relies on: nothing.

-- Admit no job before p_until; a longer hold stays.
CREATE OR REPLACE FUNCTION lp.gate_hold(p_gate lp.gate, p_until bigint) RETURNS lp.gate
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE AS $$
BEGIN
  p_gate.held_until_ms := greatest(p_gate.held_until_ms, p_until);
  RETURN p_gate;
END $$;
