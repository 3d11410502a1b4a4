-- Promise: the tables and types. Inputs: none; `lp.` is replaced by the namespace's own schema. Answer: none.
--
-- A job is one body (job, written once, erased once) and one place, which is its state: a row of `wait` (blocked,
-- scheduled, ready), of `running`, or of `done` (succeeded, dead, cancelled). Moving is DELETE … RETURNING and INSERT
-- in one step, so hot tables stay narrow and short, and nothing wide is ever rewritten.
-- State codes follow core/jobs/state.py: 0 blocked 1 scheduled 2 ready 3 running 4 succeeded 5 dead 6 cancelled.
-- There are no foreign keys on purpose: they lock parents, and an enqueue must lock nothing.

CREATE TABLE lp.job (
  id bytea NOT NULL PRIMARY KEY,
  lane bigint NOT NULL,
  policy bigint NOT NULL,
  enqueued_ms bigint NOT NULL,
  unique_key bytea,
  unique_states smallint,
  args bytea NOT NULL,
  extra bytea
);

-- What few jobs have lies in tables of its own: a plain enqueue writes nothing there.

-- Jobs of a flow.
CREATE TABLE lp.flow_job (id bytea NOT NULL PRIMARY KEY, flow bytea NOT NULL);
CREATE INDEX flow_job_flow ON lp.flow_job (flow, id);
-- Jobs by the unique key that they hold or held, whatever their task.
CREATE TABLE lp.key_job (key bytea NOT NULL, id bytea NOT NULL, PRIMARY KEY (key, id));
-- What jobs cost of other units than the plain one: {unit: how much}. Only claims under a gate that counts one look here.
CREATE TABLE lp.cost_job (id bytea NOT NULL PRIMARY KEY, costs jsonb NOT NULL);

CREATE TABLE lp.wait (
  id bytea NOT NULL PRIMARY KEY,
  lane bigint NOT NULL,
  due_ms bigint NOT NULL,
  expires_ms bigint,
  held_since_ms bigint,
  attempt integer NOT NULL DEFAULT 0,
  lost integer NOT NULL DEFAULT 0,
  held integer NOT NULL DEFAULT 0,
  cost integer NOT NULL DEFAULT 1,
  state smallint NOT NULL CHECK (state BETWEEN :BLOCKED AND :READY),
  priority smallint NOT NULL CHECK (priority BETWEEN 0 AND :LEAST_URGENT),
  flags smallint NOT NULL DEFAULT 0, -- 4 cancelling, 8 has notes, 16 has inputs, 32 cancelled by its parent's death
  reason text COLLATE "C",
  cause text COLLATE "C",
  error_type text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX wait_ready ON lp.wait (lane, due_ms, id) WHERE state = :READY;
CREATE INDEX wait_scheduled ON lp.wait (priority, due_ms, id) WHERE state = :SCHEDULED;
CREATE INDEX wait_expires ON lp.wait (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX wait_blocked ON lp.wait (id) WHERE state = :BLOCKED;

CREATE TABLE lp.running (
  id bytea NOT NULL PRIMARY KEY,
  token bigint NOT NULL,
  lane bigint NOT NULL,
  due_ms bigint NOT NULL,
  claimed_ms bigint NOT NULL,
  expires_ms bigint,
  held_since_ms bigint,
  attempt integer NOT NULL,
  lost integer NOT NULL,
  held integer NOT NULL,
  cost integer NOT NULL,
  priority smallint NOT NULL,
  flags smallint NOT NULL,
  charged jsonb, -- [[gate, slot, cost, probe, concurrency], …]: what it took, and all that is given back
  reason text COLLATE "C",
  cause text COLLATE "C",
  error_type text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX running_token ON lp.running (token);

CREATE TABLE lp.done (
  id bytea NOT NULL PRIMARY KEY,
  lane bigint NOT NULL,
  finished_ms bigint NOT NULL,
  due_ms bigint NOT NULL,
  claimed_ms bigint,
  expires_ms bigint,
  attempt integer NOT NULL,
  lost integer NOT NULL,
  held integer NOT NULL,
  cost integer NOT NULL,
  state smallint NOT NULL CHECK (state BETWEEN :SUCCEEDED AND :CANCELLED),
  priority smallint NOT NULL,
  flags smallint NOT NULL,
  reason text COLLATE "C",
  cause text COLLATE "C",
  error_type text COLLATE "C"
);
CREATE INDEX done_finished ON lp.done (state, finished_ms, id);

-- Definitions, named by their content. A lane outlives its jobs by an hour or so; policies stay.
CREATE TABLE lp.policy (id bigint NOT NULL PRIMARY KEY, hard_timeout_ms bigint, max_lost integer NOT NULL, body bytea NOT NULL);
CREATE TABLE lp.lane (
  id bigint NOT NULL PRIMARY KEY,
  class bigint NOT NULL,
  member bigint NOT NULL,
  ring bigint NOT NULL,
  priority smallint NOT NULL,
  limited boolean NOT NULL,
  queue text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL,
  grp text COLLATE "C",
  needs text[] NOT NULL,
  class_gates text[] NOT NULL,
  lane_gates text[] NOT NULL,
  body bytea NOT NULL
);
CREATE INDEX lane_queue ON lp.lane (queue, task);

-- The floor: what only the one who claims may change, one at a time (lock 1, see lock). Everyone else posts.
-- How far posts are filed is a snapshot, not a number: transactions commit in any order. Posts that it could see are
-- done; a pass over the others may take several claims, and says how far it is.
CREATE TABLE lp.floor (
  one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one),
  filed pg_snapshot NOT NULL DEFAULT '1:1:',
  pass pg_snapshot, -- what will be filed when this pass is over
  at_xid xid8 NOT NULL DEFAULT '0',
  at_seq bigint NOT NULL DEFAULT 0
) WITH (fillfactor = 10);
INSERT INTO lp.floor DEFAULT VALUES;
-- Counters that a claim moves: no row of theirs has versions, so an old snapshot cannot make them slow. Gaps are fine.
CREATE SEQUENCE lp.tokens MINVALUE 0 START 0;
CREATE SEQUENCE lp.turns; -- places at the end of a round

-- Where this schema lives: a name of its own among all schemas of all servers (the table's comment, which a caller's
-- transaction can ask for without failing), and the server whose transactions the floor speaks of.
CREATE TABLE lp.home (one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), server bigint NOT NULL);
INSERT INTO lp.home (server) SELECT c.system_identifier FROM pg_control_system() AS c;
DO $$
BEGIN
  EXECUTE 'COMMENT ON TABLE lp.home IS ' || quote_literal(gen_random_uuid());
END $$;

-- What happened elsewhere and concerns the floor, in any number of transactions that never wait for each other.
-- kind 0: a lane has `n` more ready jobs, none before (due_ms, id); n = 0: it has a timer at due_ms, or is only defined.
-- kind 1: a gate may have room for those who wait at it. kind 2: a child was enqueued whose parents must be looked at.
-- kind 3: a rule is declared. kind 4: a policy is used for the first time. kind 5: an event (its kind as `gate`, its data
-- as `body`) for the log, which was in somebody's hands.
CREATE TABLE lp.post (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY,
  kind smallint NOT NULL,
  n integer NOT NULL DEFAULT 0,
  lane bigint,
  due_ms bigint,
  id bytea,
  class bigint,
  member bigint,
  ring bigint,
  gate text COLLATE "C",
  body bytea, -- kind 0: the lane's definition, where it may be new; kind 3: the rule; kind 4: the policy (lane = its id)
  PRIMARY KEY (xid, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX post_lane ON lp.post (lane) WHERE body IS NOT NULL;

-- state: 0 idle, 1 active (its member has a seat), 2 waiting at `gate`. No ready job of the lane lies before its floor.
CREATE TABLE lp.lane_now (
  id bigint NOT NULL PRIMARY KEY,
  class bigint NOT NULL,
  member bigint NOT NULL,
  turn bigint NOT NULL DEFAULT 0, -- orders those who wait at one gate
  served_ms bigint NOT NULL DEFAULT 0, -- orders those who are active for one member
  floor_ms bigint NOT NULL DEFAULT 0,
  jobs bigint NOT NULL DEFAULT 0, -- stored jobs, finished ones included, as far as they are folded
  state smallint NOT NULL DEFAULT :IDLE CHECK (state BETWEEN :IDLE AND :WAITING),
  priority smallint NOT NULL,
  floor_id bytea NOT NULL DEFAULT '\x',
  gate text COLLATE "C",
  CHECK ((state = :WAITING) = (gate IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX lane_now_active ON lp.lane_now (class, member, served_ms, id) WHERE state = :ACTIVE;
CREATE INDEX lane_now_waiting ON lp.lane_now (gate, class, priority, turn) WHERE state = :WAITING;
CREATE INDEX lane_now_member ON lp.lane_now (member);
CREATE INDEX lane_now_empty ON lp.lane_now (id) WHERE jobs <= 0;

-- Which lanes a limit or breaker rules: its gate is forgotten only after the last of them.
CREATE TABLE lp.lane_gate (gate text COLLATE "C" NOT NULL, lane bigint NOT NULL, PRIMARY KEY (gate, lane));
CREATE INDEX lane_gate_lane ON lp.lane_gate (lane);

-- Who takes turns: rings (a queue at a priority) and, within one, members (a group, or all ungrouped jobs).
CREATE TABLE lp.turn (
  id bigint NOT NULL PRIMARY KEY,
  turn bigint NOT NULL,
  left_n integer NOT NULL,
  weight integer NOT NULL,
  name text COLLATE "C" NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX turn_name ON lp.turn (name);

-- A member's place in the line of one class: there while it has active lanes of that class.
CREATE TABLE lp.seat (
  class bigint NOT NULL,
  priority smallint NOT NULL,
  member bigint NOT NULL,
  ring bigint NOT NULL,
  turn bigint NOT NULL,
  lane bigint NOT NULL, -- any of them: they differ in nothing that concerns the class
  PRIMARY KEY (class, priority, member)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX seat_turn ON lp.seat (class, priority, turn, member);
CREATE INDEX seat_member ON lp.seat (member);
CREATE INDEX seat_ring ON lp.seat (ring);

-- A gate's rule and level, as core/gate/record.py has them. `opens_ms`: when those who wait at it may go on.
CREATE TABLE lp.gate (
  key text COLLATE "C" NOT NULL PRIMARY KEY,
  concurrency bigint,
  interval_us bigint,
  burst bigint NOT NULL DEFAULT 1,
  learns boolean NOT NULL DEFAULT false,
  breaker_failures bigint, -- NULL: no breaker
  breaker_within_ms bigint,
  breaker_cooldown_ms bigint,
  breaker_probe_after_ms bigint,
  breaker_rate double precision,
  breaker_min_calls bigint,
  unit text COLLATE "C" NOT NULL DEFAULT '',
  floor bigint, -- NULL: does not adapt
  climb_ms bigint NOT NULL DEFAULT 60000,
  cap bigint, -- NULL: no budget
  period text COLLATE "C",
  depth bigint, -- of a queue: how many jobs may wait in it; NULL: any number
  group_depth bigint, -- of a queue: the same for each group of its jobs
  declared boolean NOT NULL DEFAULT true,
  paused_at_ms bigint, -- NULL: not paused
  paused_by text COLLATE "C",
  paused_reason text COLLATE "C",
  draining boolean NOT NULL DEFAULT false,
  used bigint NOT NULL DEFAULT 0,
  full_at_us bigint NOT NULL DEFAULT 0,
  held_until_ms bigint NOT NULL DEFAULT 0,
  failed_at_ms bigint[] NOT NULL DEFAULT '{}',
  calls bigint[] NOT NULL DEFAULT '{0,0,0,0}',
  open_until_ms bigint NOT NULL DEFAULT 0,
  probe_token bigint NOT NULL DEFAULT 0,
  opened bigint NOT NULL DEFAULT 0,
  pace bigint NOT NULL DEFAULT :FULL,
  paced_at_ms bigint NOT NULL DEFAULT 0,
  ceiling bigint NOT NULL DEFAULT :FULL,
  cut_token bigint NOT NULL DEFAULT 0,
  period_ms bigint NOT NULL DEFAULT 0,
  spent bigint NOT NULL DEFAULT 0,
  wants bigint NOT NULL DEFAULT 0,
  ruled_at_ms bigint NOT NULL DEFAULT 0,
  told bigint NOT NULL DEFAULT 0, -- written by log_gate_events alone
  by_hand boolean NOT NULL DEFAULT false, -- somebody opened it
  opens_ms bigint
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX gate_opens ON lp.gate (opens_ms) WHERE opens_ms IS NOT NULL;
CREATE INDEX gate_drains ON lp.gate (key) WHERE draining AND paused_at_ms IS NULL;

-- Gates that were forgotten a moment ago. An enqueue that saw its gate before it went declares nothing: its lane, once
-- filed, calls the gate back. `seen`: every transaction that can have seen the gate is older; NULL: not known yet. It is
-- the last column: a gate is written here by the places of its own.
CREATE TABLE lp.gate_old (LIKE lp.gate INCLUDING DEFAULTS, seen xid8, PRIMARY KEY (key));

CREATE TABLE lp.session (
  id text COLLATE "C" NOT NULL PRIMARY KEY,
  started_ms bigint NOT NULL,
  beat_ms bigint NOT NULL,
  deadline_ms bigint NOT NULL,
  queues text[], -- NULL: any
  tasks text[], -- NULL: any
  capabilities text[] NOT NULL,
  ear text COLLATE "C",
  serves bytea NOT NULL, -- the same three for Python
  info bytea NOT NULL
) WITH (fillfactor = 50);
CREATE INDEX session_deadline ON lp.session (deadline_ms);

-- A session whose last claim found nothing, with what it asked for: there until it is woken or claims again.
CREATE TABLE lp.sleeper (
  session text COLLATE "C" NOT NULL PRIMARY KEY,
  next_ms bigint, -- it wakes by itself then
  slots integer NOT NULL,
  queues text[],
  tasks text[],
  capabilities text[] NOT NULL,
  ear text COLLATE "C"
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

CREATE TABLE lp.lease (
  token bigint NOT NULL PRIMARY KEY,
  session text COLLATE "C" NOT NULL,
  hard_until_ms bigint,
  left_n integer NOT NULL
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX lease_session ON lp.lease (session);
CREATE INDEX lease_hard ON lp.lease (hard_until_ms) WHERE hard_until_ms IS NOT NULL;

-- The last answer of each claimer (tokens) and of each settler (answer and state codes, shut gates), for whoever asks again.
CREATE TABLE lp.receipt (
  session text COLLATE "C" NOT NULL,
  claimer text COLLATE "C" NOT NULL,
  seq bigint NOT NULL,
  at_ms bigint NOT NULL,
  tokens bigint[],
  answers smallint[],
  shut text,
  PRIMARY KEY (session, claimer)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX receipt_at ON lp.receipt (at_ms);

-- Noted by a handler in its own transaction: whatever ends that lease finds this and makes it a success.
CREATE TABLE lp.settled (id bytea NOT NULL, token bigint NOT NULL, at_ms bigint NOT NULL, result bytea, PRIMARY KEY (id, token));

-- One row: when silent sessions were last looked for, and until when none may lose anything.
CREATE TABLE lp.sweep (one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), swept_at_ms bigint, calm_until_ms bigint NOT NULL DEFAULT 0) WITH (fillfactor = 10);
INSERT INTO lp.sweep DEFAULT VALUES;

-- Held while its job is in one of `states`, and until `until_ms`; states = 0: the job is gone, only the window holds.
CREATE TABLE lp.unique_key (key bytea NOT NULL PRIMARY KEY, job bytea NOT NULL, states smallint NOT NULL, until_ms bigint);
CREATE INDEX unique_key_orphan ON lp.unique_key (until_ms) WHERE states = 0;

-- mode: what becomes of the child when the parent fails: 0 cancel, 1 run, 2 wait.
CREATE TABLE lp.dep (
  child bytea NOT NULL,
  parent bytea NOT NULL,
  mode smallint NOT NULL,
  done boolean NOT NULL DEFAULT false,
  result bytea,
  failed text COLLATE "C",
  PRIMARY KEY (child, parent)
);
CREATE INDEX dep_parent ON lp.dep (parent, child);
CREATE INDEX dep_waiting ON lp.dep (parent, child) WHERE NOT done;
-- Said in another way, and asked in that way: a planner takes indexes of one condition for each other.
CREATE INDEX dep_open ON lp.dep (child) WHERE done::integer = 0;
-- A job that waits for very many: no parent of it from this one on, in the order of their ids, is waited for any more.
CREATE TABLE lp.dep_far (child bytea NOT NULL PRIMARY KEY, parent bytea NOT NULL) WITH (fillfactor = 10);
CREATE TABLE lp.fan (parent bytea NOT NULL PRIMARY KEY); -- succeeded, with more children than one step releases

CREATE TABLE lp.result (id bytea NOT NULL PRIMARY KEY, body bytea NOT NULL);
CREATE TABLE lp.note (job bytea NOT NULL, kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, body bytea NOT NULL, PRIMARY KEY (job, kind, name));
CREATE TABLE lp.attempt (
  job bytea NOT NULL,
  seq integer NOT NULL,
  number integer NOT NULL,
  started_ms bigint NOT NULL,
  finished_ms bigint NOT NULL,
  outcome text COLLATE "C" NOT NULL,
  session text COLLATE "C" NOT NULL,
  kind text COLLATE "C",
  type text COLLATE "C" NOT NULL DEFAULT '',
  message text COLLATE "C" NOT NULL DEFAULT '',
  traceback text COLLATE "C" NOT NULL DEFAULT '',
  cause text COLLATE "C" NOT NULL DEFAULT '',
  PRIMARY KEY (job, seq)
);

-- Counting only inserts; the janitor folds. what: 0-6 states; 10 enqueued 11 succeeded 12 cancelled 13 discarded
-- 14 lost 15 stale, ever, over all lanes; 20 erased from, 21 moved into this lane. In `count` also 22 waiting, 23 running of
-- a group, which stands there as task.
CREATE TABLE lp.tally (lane bigint NOT NULL, whats smallint[] NOT NULL, ns integer[] NOT NULL)
  WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE TABLE lp.count (queue text COLLATE "C" NOT NULL, task text COLLATE "C" NOT NULL, what smallint NOT NULL, n bigint NOT NULL, PRIMARY KEY (queue, task, what));

-- Of queues, and of groups in them, whose depth is bounded: how many jobs waited or ran there when that was last counted
-- (`waiting`: how many only waited), and what has been added since (counted_at NULL).
CREATE TABLE lp.depth (place text COLLATE "C" NOT NULL, n bigint NOT NULL, waiting bigint, counted_at timestamptz)
  WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX depth_place ON lp.depth (place);

-- Dead jobs of one origin: counted like everything, by rows that are folded.
CREATE TABLE lp.cause_tally (cause text COLLATE "C" NOT NULL, queue text COLLATE "C" NOT NULL, task text COLLATE "C" NOT NULL, n integer NOT NULL, type text COLLATE "C" NOT NULL, message text COLLATE "C" NOT NULL, at_ms bigint NOT NULL, sample bytea NOT NULL);
CREATE TABLE lp.cause (
  cause text COLLATE "C" NOT NULL,
  queue text COLLATE "C" NOT NULL,
  task text COLLATE "C" NOT NULL,
  n bigint NOT NULL,
  type text COLLATE "C" NOT NULL,
  message text COLLATE "C" NOT NULL,
  first_ms bigint NOT NULL,
  last_ms bigint NOT NULL,
  sample bytea NOT NULL,
  PRIMARY KEY (cause, queue, task)
);

-- Ids of jobs that are no longer stored, so that a late repeat of their enqueue is still the same job.
CREATE TABLE lp.gone (id bytea NOT NULL PRIMARY KEY, state smallint NOT NULL, until_ms bigint NOT NULL);
CREATE INDEX gone_until ON lp.gone (until_ms);

-- Where the last step of pruning ended, so that the next does not walk over what that one removed: only VACUUM takes
-- it away.
CREATE TABLE lp.pruned (what text NOT NULL PRIMARY KEY, at_ms bigint NOT NULL DEFAULT 0, key text NOT NULL DEFAULT '')
  WITH (fillfactor = 10);
INSERT INTO lp.pruned (what) VALUES (':SUCCEEDED'), (':DEAD'), (':CANCELLED'), ('gone'), ('gate');

-- The same for jobs of single queues, whose index they share with all: how far each walk over it has come, and when it began.
CREATE TABLE lp.walked (
  name text COLLATE "C" NOT NULL PRIMARY KEY, at_ms bigint NOT NULL DEFAULT -1, id bytea NOT NULL DEFAULT '', since_ms bigint NOT NULL
) WITH (fillfactor = 10);

CREATE TABLE lp.watch (job bytea NOT NULL, ear text COLLATE "C" NOT NULL, PRIMARY KEY (job, ear));
CREATE TABLE lp.control (kind text COLLATE "C" NOT NULL, name text COLLATE "C" NOT NULL, version bigint NOT NULL, value bytea NOT NULL, PRIMARY KEY (kind, name));
CREATE TABLE lp.log (
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  at_ms bigint NOT NULL,
  log text COLLATE "C" NOT NULL,
  kind text COLLATE "C" NOT NULL,
  actor text COLLATE "C" NOT NULL,
  reason text COLLATE "C" NOT NULL,
  job bytea,
  data bytea NOT NULL
);
CREATE INDEX log_by ON lp.log (log, seq);

-- What verbs hand each other. A type is never changed: callers of two releases name its fields by their places.

-- What an enqueue stores: lanes and policies once each, jobs as parallel arrays that index them from 1.
CREATE TYPE lp.batch AS (
  lanes bigint[], classes bigint[], members bigint[], rings bigint[], priorities smallint[], bodies bytea[],
  places text[], -- every all, queue:Q and task:T that these lanes name
  policies bigint[], policy_bodies bytea[],
  ids bytea[], lane_of integer[], policy_of integer[], args bytea[], extras bytea[], costs integer[],
  delays bigint[], dues bigint[], expires bigint[],
  flows bytea[], unit_costs jsonb, -- by job: its flow; what it costs of other units, {unit: how much}; NULL: no job has any
  unique_keys bytea[], unique_states smallint[], unique_for bigint[], on_duplicate smallint[], -- NULL: no job has a key
  children bytea[], parents bytea[], modes smallint[], -- who waits for whom, and what a failure of it means; NULL: nobody
  positions integer[], -- where each job stands in the caller's list, for words about it
  rules jsonb,
  guest boolean, -- inside a transaction of the caller's own
  always boolean -- no depth refuses them
);

-- What a claim may take and has taken so far.
CREATE TYPE lp.taking AS (
  now bigint,
  left_n integer, -- how many it may still take
  slots integer, -- how many of them may be ones that must start at once
  least smallint, -- and of which priorities
  queues text[], tasks text[], capabilities text[],
  token bigint, -- the last one given
  tokens bigint[], hards bigint[], -- tokens of this claim, and the hard timeout (-1: none) that the jobs of each share
  shared boolean[], -- whether further jobs may join that token: a suspect's lease is its own
  skipped bigint[], -- classes that give nothing to this claim
  skipped_lanes bigint[],
  floor_classes bigint[], floor_priorities smallint[], -- classes that have given all above this priority
  reopening bigint, -- when the first of the shut classes may go on
  cut boolean, -- the lanes in view are only the first of more
  again boolean
);

-- Ready jobs that this claim has locked, in order.
CREATE TYPE lp.popped AS (
  places tid[], ids bytea[], lanes bigint[], dues bigint[], costs integer[], losts integer[], expires bigint[], hards bigint[],
  odd boolean -- some are suspects, or came too late
);

-- A lane that a claim may take from next.
CREATE TYPE lp.candidate AS (
  lane bigint, member bigint, ring bigint, class bigint,
  plain boolean -- no gate rules it
);

-- A gate as one claim sees it: what it has left (NULL: no matter), and what the claim has taken there so far.
CREATE TYPE lp.claim_gate AS (
  places bigint, tokens bigint, money bigint, -- how many jobs, starts and how much of its budget
  n integer, spent bigint, -- taken: so many jobs, which cost so much together
  first integer, -- the place of the first of them among all jobs that the claim takes; NULL: none yet
  wants bigint, -- what a job that did not fit its budget needs; NULL: all did
  must boolean, -- jobs that pass must start at once; NULL: its row is not locked
  held boolean, -- another transaction has locked it
  key text,
  unit text, -- which of a job's costs it counts
  charge jsonb, -- what a job of cost 1 is charged; NULL: nothing
  slow lp.gate -- its row as it is after that, where its rate goes slower than declared
);

-- A lane that a claim asks for jobs, with its gates.
CREATE TYPE lp.lane_ask AS (
  lane bigint, n integer, -- for so many
  must boolean, -- its jobs must start at once
  gates integer[], -- which of the claim's gates rule it
  charge jsonb, units text[], -- what a job of cost 1 is charged, and the unit of each of these charges
  first integer, passed integer, -- what came of it: the place of its first job among those seen, and how many pass
  sums bigint[], -- what those cost together at each of its gates; NULL: 1 each
  wants bigint[] -- what the next job needs of each of its budgets, where nothing else stops it
);

-- Running jobs as a worker needs them.
CREATE TYPE lp.handed AS (
  ids bytea[], tokens bigint[], attempts integer[], losts integer[], lanes bigint[], policies bigint[], args bytea[],
  extras bytea[], enqueued bigint[], dues bigint[], claimed bigint[], helds integer[], held_sinces bigint[],
  costs integer[], probes boolean[], togethers integer[],
  input_jobs bytea[], input_parents bytea[], input_results bytea[], input_failed text[],
  note_jobs bytea[], note_kinds text[], note_names text[], note_bodies bytea[]
);

-- What is asked for a running job. kind: 0 Succeed 1 RetryAfter 2 Bury 3 Drop 4 Release 5 Snooze 6 Hold 7 Lose, and the
-- fields of those records; 8 Suspend, with delay_ms (NULL: never by itself) and, as `gate`, the event that it waits for;
-- 9 Hold that trips: as 6, and the gate is opened as a breaker.
CREATE TYPE lp.outcome AS (
  kind smallint, result bytea, delay_ms bigint, started boolean, proven boolean, gate text, reason text,
  f_kind text, f_type text, f_message text, f_traceback text, f_cause text
);

-- What is to be written about a job that leaves `running`: its new place, what its end says to its gates, and its
-- attempt, if it counts.
CREATE TYPE lp.fate AS (
  id bytea, lane bigint, state smallint, due_ms bigint, claimed_ms bigint, expires_ms bigint, held_since_ms bigint,
  attempt integer, lost integer, held integer, cost integer, priority smallint, flags smallint,
  reason text, cause text, error_type text, result bytea,
  token bigint, charged jsonb, verdict text, unstarted boolean, hold_gate text, hold_until bigint, was_lost boolean,
  a_how text, a_number integer, a_kind text, a_type text, a_message text, a_traceback text, a_cause text
);
