-- Promise: the tables of layout 2 are those of layout 1 and these beside them, and gates count more; verbs have changed.
-- Inputs: none. Answer: none. What few jobs have lies in tables of its own, and no table of jobs is touched; who works
-- waits for a moment, while `gate` gets its columns.
-- Min client: 1

-- lp.outcome has more kinds: 8 Suspend, with delay_ms (NULL: never by itself) and, as `gate`, the event that it waits for;
-- 9 Hold that trips: as 6, and the gate is opened as a breaker.
-- lp.post has one more kind: 5 an event (its kind as `gate`, its data as `body`) that found the log in somebody's hands.

-- Gates may count another unit than a job's plain cost, and budgets so much of it in each period; those that were pushed
-- back go slower for a while, and adaptive ones learn how fast they may go (core/gate.py). Both tables have
-- their columns in one order; who waits for a transaction to end (`seen`) does so anew. First the one that is seldom used:
-- whoever has one of them and comes for the other makes this give up, not fail.
LOCK TABLE lp.gate_old, lp.gate;
ALTER TABLE lp.gate
  ADD COLUMN unit text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN cap bigint, -- NULL: no budget
  ADD COLUMN period text COLLATE "C",
  ADD COLUMN period_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN spent bigint NOT NULL DEFAULT 0,
  ADD COLUMN wants bigint NOT NULL DEFAULT 0,
  ADD COLUMN floor bigint, -- NULL: does not adapt
  ADD COLUMN climb_ms bigint NOT NULL DEFAULT 60000,
  ADD COLUMN pace bigint NOT NULL DEFAULT 1000,
  ADD COLUMN paced_at_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN ceiling bigint NOT NULL DEFAULT 1000,
  ADD COLUMN cut_token bigint NOT NULL DEFAULT 0,
  ADD COLUMN ruled_at_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN told bigint NOT NULL DEFAULT 0; -- written by log_news_1 alone
ALTER TABLE lp.gate_old
  DROP COLUMN seen,
  ADD COLUMN unit text COLLATE "C" NOT NULL DEFAULT '',
  ADD COLUMN cap bigint,
  ADD COLUMN period text COLLATE "C",
  ADD COLUMN period_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN spent bigint NOT NULL DEFAULT 0,
  ADD COLUMN wants bigint NOT NULL DEFAULT 0,
  ADD COLUMN floor bigint,
  ADD COLUMN climb_ms bigint NOT NULL DEFAULT 60000,
  ADD COLUMN pace bigint NOT NULL DEFAULT 1000,
  ADD COLUMN paced_at_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN ceiling bigint NOT NULL DEFAULT 1000,
  ADD COLUMN cut_token bigint NOT NULL DEFAULT 0,
  ADD COLUMN ruled_at_ms bigint NOT NULL DEFAULT 0,
  ADD COLUMN told bigint NOT NULL DEFAULT 0,
  ADD COLUMN seen xid8;

-- What jobs cost of other units than the plain one: {unit: how much}. Only claims under a gate that counts one look here.
CREATE TABLE lp.cost_job (id bytea NOT NULL PRIMARY KEY, costs jsonb NOT NULL);

-- Jobs of a flow. Those of layout 1 are not here: no release that has it makes flows.
CREATE TABLE lp.flow_job (id bytea NOT NULL PRIMARY KEY, flow bytea NOT NULL);
CREATE INDEX flow_job_flow ON lp.flow_job (flow, id);

-- Jobs by the unique key that they hold or held, whatever their task. Those of layout 1 are only in unique_key, while
-- they are the last that had it.
CREATE TABLE lp.key_job (key bytea NOT NULL, id bytea NOT NULL, PRIMARY KEY (key, id));

-- A job that waits for very many: no parent of it from this one on, in the order of their ids, is waited for any more.
CREATE TABLE lp.dep_far (child bytea NOT NULL PRIMARY KEY, parent bytea NOT NULL) WITH (fillfactor = 10);

-- Where this schema lives: a name of its own among all schemas of all servers (the table's comment, which a caller's
-- transaction can ask for without failing), and the server whose transactions the floor speaks of.
CREATE TABLE lp.home (one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), server bigint NOT NULL);
INSERT INTO lp.home (server) SELECT c.system_identifier FROM pg_control_system() AS c;
DO $$
BEGIN
  EXECUTE 'COMMENT ON TABLE lp.home IS ' || quote_literal(gen_random_uuid());
END $$;
