-- Promise: every verb has the plans it was written for, whatever the tables hold and whatever ANALYZE made of them.
-- Inputs: none. Answer: none. Relies on every verb having plan_cache_mode among its own settings.
--
-- A verb's statements know a few keys and look each of them up. Statistics can only mislead there: taken of a table that
-- was nearly empty, they make a walk over all of it look cheaper than look-ups, and a plan outlives the moment. So rows
-- are dear here, and statements leave no choice:
--   LATERAL (SELECT … WHERE t.id = k.id OFFSET 0)   looks up each key; it is never turned into a join in the other direction
--   t.id BETWEEN k.id AND k.id, = ANY (ARRAY[k.id]) the same where a table is changed: no plain equality, so no merge
--                                                   join could use it, and no walk in the order of the index is thought of
--   NOT EXISTS (… OFFSET 0)                         asks for each row, and is never turned into an anti-join
--   t.token + 0 = k.token, ORDER BY t.key || ''     not by that index
DO $$
DECLARE
  v_verb regprocedure;
BEGIN
  FOR v_verb IN
    SELECT p.oid FROM pg_proc AS p
    WHERE p.pronamespace = 'lp'::regnamespace AND p.proconfig @> '{plan_cache_mode=force_generic_plan}'
  LOOP
    EXECUTE 'ALTER FUNCTION ' || v_verb
      || ' SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = on SET enable_mergejoin = off'
      || ' SET max_parallel_workers_per_gather = 0 SET jit = off SET plan_cache_mode = force_generic_plan'
      || ' SET cpu_tuple_cost = 10 SET cpu_index_tuple_cost = 5';
  END LOOP;
END $$;
