-- Promise: every verb has the plans it was written for, whatever the tables hold and whatever ANALYZE made of them.
-- Inputs: none. Answer: none. Relies on every verb (and no other function) having settings of its own.
--
-- A verb's statements know a few keys and look each of them up. Statistics can only mislead there: taken of a table that
-- was nearly empty, they make a walk over all of it look cheaper than a look-up, and it is not for long. So whole tables
-- are dear (every row costs as much as several look-ups) and joins go from key to row. Where that is not enough, a
-- statement says it itself: LATERAL (… OFFSET 0) looks up what it is given, and an ORDER BY of an expression (id || '')
-- sorts what was found instead of walking an index that has the order.
DO $$
DECLARE
  v_verb regprocedure;
BEGIN
  FOR v_verb IN
    SELECT p.oid FROM pg_proc AS p WHERE p.pronamespace = 'hf'::regnamespace AND p.proconfig IS NOT NULL
  LOOP
    EXECUTE 'ALTER FUNCTION ' || v_verb
      || ' SET enable_seqscan = off SET enable_bitmapscan = off SET enable_hashjoin = off SET enable_mergejoin = off'
      || ' SET enable_memoize = off SET enable_material = off SET max_parallel_workers_per_gather = 0 SET jit = off'
      || ' SET cpu_tuple_cost = 10 SET cpu_index_tuple_cost = 5 SET cpu_operator_cost = 1'
      || ' SET plan_cache_mode = force_generic_plan';
  END LOOP;
END $$;
