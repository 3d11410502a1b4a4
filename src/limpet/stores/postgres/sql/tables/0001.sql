-- Promise: the tables and types. Inputs: none; `lp.` is replaced by the namespace's own schema. Answer: none.
--
-- A job is one body (job, written once, erased once) and one place, which is its state: a row of `wait` (blocked,
-- scheduled, ready), of `running`, or of `done` (succeeded, dead, cancelled). Moving is DELETE … RETURNING and INSERT
-- in one step, so hot tables stay narrow and short, and nothing wide is ever rewritten.
-- There are no foreign keys on purpose: they lock parents, and an enqueue must lock nothing.
-- The comment above a table and those behind its columns are its page in docs/reference/postgres-tables.md.

-- == Jobs

-- The body of every job that is stored: what was asked.
CREATE TABLE lp.job (
  id bytea NOT NULL PRIMARY KEY, -- a UUID of version 7, as 16 bytes
  lane bigint NOT NULL, -- see `lane`
  policy bigint NOT NULL, -- see `policy`
  enqueued_ms bigint NOT NULL, -- when it was enqueued
  unique_key bytea, -- its task, a zero byte and its idempotency key; NULL: it has none
  unique_states smallint, -- the states in which it holds that key, one bit each
  args bytea NOT NULL, -- arguments, as JSON
  extra bytea -- tags, meta, costs, parents and the like, packed; NULL: all as most jobs have them
);

-- The place of a job that is blocked, scheduled or ready.
CREATE TABLE lp.wait (
  id bytea NOT NULL PRIMARY KEY, -- the job
  lane bigint NOT NULL, -- see `lane`
  due_ms bigint NOT NULL, -- ready from then on; orders the jobs of a lane
  expires_ms bigint, -- cancelled if it has not started by then
  held_since_ms bigint, -- since when it is put off again and again
  attempt integer NOT NULL DEFAULT 0, -- attempts so far
  lost integer NOT NULL DEFAULT 0, -- leases that it has lost
  held integer NOT NULL DEFAULT 0, -- how often it was put off
  cost integer NOT NULL DEFAULT 1, -- what it costs of the plain unit
  state smallint NOT NULL CHECK (state BETWEEN :BLOCKED AND :READY), -- :BLOCKED, :SCHEDULED or :READY
  priority smallint NOT NULL CHECK (priority BETWEEN 0 AND :LEAST_URGENT), -- 0 is the most urgent
  flags smallint NOT NULL DEFAULT 0, -- bits: :CANCELLING (asked to stop), :NOTES and :INPUTS (it has some), :BY_PARENT (a parent's death cancelled it)
  reason text COLLATE "C", -- why it waits, for people
  cause text COLLATE "C", -- the origin of its last failure
  error_type text COLLATE "C" -- the type of its last failure
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX wait_ready ON lp.wait (lane, due_ms, id) WHERE state = :READY;
CREATE INDEX wait_scheduled ON lp.wait (priority, due_ms, id) WHERE state = :SCHEDULED;
CREATE INDEX wait_expires ON lp.wait (expires_ms) WHERE expires_ms IS NOT NULL;
CREATE INDEX wait_blocked ON lp.wait (id) WHERE state = :BLOCKED;

-- The place of a job that is running.
CREATE TABLE lp.running (
  id bytea NOT NULL PRIMARY KEY, -- the job
  token bigint NOT NULL, -- its lease: only the owner of this token can end the attempt
  lane bigint NOT NULL, -- see `lane`
  due_ms bigint NOT NULL, -- as in `wait`
  claimed_ms bigint NOT NULL, -- when it was claimed
  expires_ms bigint, -- as in `wait`
  held_since_ms bigint, -- as in `wait`
  attempt integer NOT NULL, -- the number of this attempt
  lost integer NOT NULL, -- as in `wait`
  held integer NOT NULL, -- as in `wait`
  cost integer NOT NULL, -- as in `wait`
  priority smallint NOT NULL, -- as in `wait`
  flags smallint NOT NULL, -- as in `wait`
  charged jsonb, -- what it took of gates, and all that is given back: [[gate, slot, cost, probe, own, concurrency], …]
  reason text COLLATE "C", -- why it was asked to stop, or why it waited before
  cause text COLLATE "C", -- as in `wait`
  error_type text COLLATE "C" -- as in `wait`
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 20000);
CREATE INDEX running_token ON lp.running (token);

-- The place of a job that has ended.
CREATE TABLE lp.done (
  id bytea NOT NULL PRIMARY KEY, -- the job
  lane bigint NOT NULL, -- see `lane`
  finished_ms bigint NOT NULL, -- when it ended
  due_ms bigint NOT NULL, -- as in `wait`
  claimed_ms bigint, -- when its last attempt was claimed; NULL: it never ran
  expires_ms bigint, -- as in `wait`
  attempt integer NOT NULL, -- attempts in all
  lost integer NOT NULL, -- as in `wait`
  held integer NOT NULL, -- as in `wait`
  cost integer NOT NULL, -- as in `wait`
  state smallint NOT NULL CHECK (state BETWEEN :SUCCEEDED AND :CANCELLED), -- :SUCCEEDED, :DEAD or :CANCELLED
  priority smallint NOT NULL, -- as in `wait`
  flags smallint NOT NULL, -- as in `wait`
  reason text COLLATE "C", -- why it ended so, for people
  cause text COLLATE "C", -- the origin of the failure that it died of
  error_type text COLLATE "C" -- the type of that failure
);
CREATE INDEX done_finished ON lp.done (state, finished_ms, id);

-- What few jobs have lies in tables of its own: a plain enqueue writes nothing there.

-- Jobs of a flow.
CREATE TABLE lp.flow_job (
  id bytea NOT NULL PRIMARY KEY, -- the job
  flow bytea NOT NULL -- its flow
);
CREATE INDEX flow_job_flow ON lp.flow_job (flow, id);

-- Jobs by the unique key that they hold or held, whatever their task.
CREATE TABLE lp.key_job (
  key bytea NOT NULL, -- the key without its task
  id bytea NOT NULL, -- the job
  PRIMARY KEY (key, id)
);

-- What jobs cost of other units than the plain one. Only claims under a gate that counts such a unit look here.
CREATE TABLE lp.cost_job (
  id bytea NOT NULL PRIMARY KEY, -- the job
  costs jsonb NOT NULL -- {unit: how much}
);

-- The results of jobs that have succeeded. A result of null has no row.
CREATE TABLE lp.result (
  id bytea NOT NULL PRIMARY KEY, -- the job
  body bytea NOT NULL -- its result, as JSON
);

-- What is kept with a job for its next attempt or for people, one of each kind and name.
CREATE TABLE lp.note (
  job bytea NOT NULL, -- the job
  kind text COLLATE "C" NOT NULL, -- checkpoint, step, progress, log, spent; event (signalled); waiting (for that event); stands_for
  name text COLLATE "C" NOT NULL, -- the name of the step, event and so on
  body bytea NOT NULL, -- its value
  PRIMARY KEY (job, kind, name)
);

-- Attempts that have ended: all but the first of a job that succeeded with it.
CREATE TABLE lp.attempt (
  job bytea NOT NULL, -- the job
  seq integer NOT NULL, -- counts the rows of a job
  number integer NOT NULL, -- which attempt it was
  started_ms bigint NOT NULL, -- when it was claimed
  finished_ms bigint NOT NULL, -- when it ended
  outcome text COLLATE "C" NOT NULL, -- succeeded, retried, dead, cancelled, released, snoozed, held, lost, refused
  session text COLLATE "C" NOT NULL, -- the session that ran it
  kind text COLLATE "C", -- of its failure: transient, permanent, timeout, lost …; NULL: none
  type text COLLATE "C" NOT NULL DEFAULT '', -- the type of the failure
  message text COLLATE "C" NOT NULL DEFAULT '', -- its message
  traceback text COLLATE "C" NOT NULL DEFAULT '', -- its traceback
  cause text COLLATE "C" NOT NULL DEFAULT '', -- its origin
  PRIMARY KEY (job, seq)
);

-- Idempotency keys. A key is held while its job is in one of `states`, and until `until_ms`.
CREATE TABLE lp.unique_key (
  key bytea NOT NULL PRIMARY KEY, -- task, a zero byte, key
  job bytea NOT NULL, -- the job that holds it
  states smallint NOT NULL, -- one bit for each state; 0: the job is gone, and only the window holds the key
  until_ms bigint -- the end of the window; NULL: there is none
);
CREATE INDEX unique_key_orphan ON lp.unique_key (until_ms) WHERE states = 0;

-- Ids of jobs that are no longer stored, so that a late repeat of their enqueue is still the same job.
CREATE TABLE lp.gone (
  id bytea NOT NULL PRIMARY KEY, -- the job
  state smallint NOT NULL, -- in which it ended
  until_ms bigint NOT NULL -- remembered until then
);
CREATE INDEX gone_until ON lp.gone (until_ms);

-- == Parents and children

-- Which job waits for which.
CREATE TABLE lp.dep (
  child bytea NOT NULL, -- the job that waits
  parent bytea NOT NULL, -- the job that it waits for
  mode smallint NOT NULL, -- what a failure of the parent means: :IF_FAILED_CANCEL, :IF_FAILED_RUN or :IF_FAILED_WAIT
  done boolean NOT NULL DEFAULT false, -- it waits for this parent no more
  result bytea, -- what the parent left
  failed text COLLATE "C", -- why it left nothing
  PRIMARY KEY (child, parent)
);
CREATE INDEX dep_parent ON lp.dep (parent, child);
CREATE INDEX dep_waiting ON lp.dep (parent, child) WHERE NOT done;
-- Said in another way, and asked in that way: a planner takes indexes of one condition for each other.
CREATE INDEX dep_open ON lp.dep (child) WHERE done::integer = 0;

-- Of jobs that wait for very many: how far their parents were looked at.
CREATE TABLE lp.dep_far (
  child bytea NOT NULL PRIMARY KEY, -- the job that waits
  parent bytea NOT NULL -- it waits for no parent from this one on, in the order of ids
) WITH (fillfactor = 10);

-- Jobs that succeeded with more children than one step releases.
CREATE TABLE lp.fan (
  parent bytea NOT NULL PRIMARY KEY -- the job
);

-- == Definitions

-- How jobs may fail, named by their content. Policies stay.
CREATE TABLE lp.policy (
  id bigint NOT NULL PRIMARY KEY, -- a hash of the definition
  hard_timeout_ms bigint, -- after which an attempt is killed, or given up
  max_lost integer NOT NULL, -- leases that a job may lose before it counts as poison
  body bytea NOT NULL -- the whole definition, as JSON
);

-- Lanes: jobs that become eligible together. A lane outlives its jobs by an hour or so.
CREATE TABLE lp.lane (
  id bigint NOT NULL PRIMARY KEY, -- a hash of the definition
  class bigint NOT NULL, -- lanes that a worker serves, and gates stop, together
  member bigint NOT NULL, -- which takes turns with others: a tenant, all jobs without one, or a lane with a key
  ring bigint NOT NULL, -- the members that take turns: of a queue at a priority
  priority smallint NOT NULL, -- 0 is the most urgent
  limited boolean NOT NULL, -- a limit or a breaker rules it
  queue text COLLATE "C" NOT NULL, -- its queue
  task text COLLATE "C" NOT NULL, -- its task
  tenant text COLLATE "C", -- its tenant, if it has one
  needs text[] NOT NULL, -- capabilities that a worker must have
  class_gates text[] NOT NULL, -- gates of the whole class: all, queue, task, limits, breaker
  lane_gates text[] NOT NULL, -- gates of this lane alone: limits with a key, then a breaker with a key
  body bytea NOT NULL -- the whole definition, as JSON
);
CREATE INDEX lane_queue ON lp.lane (queue, task);

-- Which lanes a limit or breaker rules: its gate is forgotten only after the last of them; but a breaker by key is not here.
CREATE TABLE lp.lane_gate (
  gate text COLLATE "C" NOT NULL, -- the key of the gate
  lane bigint NOT NULL, -- the lane
  PRIMARY KEY (gate, lane)
);
CREATE INDEX lane_gate_lane ON lp.lane_gate (lane);

-- Gates: the rule and the level of each, as core/gate/record.py has them.
CREATE TABLE lp.gate (
  key text COLLATE "C" NOT NULL PRIMARY KEY, -- all, queue:Q, task:T, limit:KEY or breaker:NAME
  concurrency bigint, -- rule: how many jobs may run at once; NULL: any number
  interval_us bigint, -- rule: microseconds per token of the rate; NULL: no rate
  burst bigint NOT NULL DEFAULT 1, -- rule: tokens that the bucket of the rate holds
  default_for_429 boolean NOT NULL DEFAULT false, -- rule: a 429 without a key holds this limit
  breaker_failures bigint, -- rule: failures that open the breaker; NULL: no breaker
  breaker_within_ms bigint, -- rule: within this time
  breaker_cooldown_ms bigint, -- rule: open for so long after a probe failed
  breaker_probe_after_ms bigint, -- rule: open for so long before the first probe
  breaker_rate double precision, -- rule: the part of calls that must fail, in place of a number
  breaker_min_calls bigint, -- rule: calls before a rate counts
  unit text COLLATE "C" NOT NULL DEFAULT '', -- rule: which of a job's costs counts here; '' is the plain one
  floor bigint, -- rule: the slowest pace, in thousandths; NULL: it does not adapt
  climb_ms bigint NOT NULL DEFAULT 60000, -- rule: from a standstill to full pace
  cap bigint, -- rule: a budget of so much in each period; NULL: no budget
  period text COLLATE "C", -- rule: the period of the budget
  depth bigint, -- rule of a queue: how many jobs may wait in it; NULL: any number
  tenant_depth bigint, -- rule of a queue: the same for each tenant of its jobs
  declared boolean NOT NULL DEFAULT true, -- false: an operator's rule, which declarations do not overwrite
  paused_at_ms bigint, -- since when it is paused; NULL: it is not
  paused_by text COLLATE "C", -- by which person
  paused_reason text COLLATE "C", -- and why
  draining boolean NOT NULL DEFAULT false, -- it takes no new jobs, and is paused when the last has ended
  used bigint NOT NULL DEFAULT 0, -- jobs that run under it
  full_at_us bigint NOT NULL DEFAULT 0, -- when the bucket of its rate is full again
  held_until_ms bigint NOT NULL DEFAULT 0, -- no job passes before
  failed_at_ms bigint[] NOT NULL DEFAULT '{}', -- breaker: the newest failures
  calls bigint[] NOT NULL DEFAULT '{0,0,0,0}', -- breaker with a rate: window, calls, failures, calls and failures before it
  open_until_ms bigint NOT NULL DEFAULT 0, -- breaker: open until then; 0: closed; in the past: it waits for a probe
  probe_token bigint NOT NULL DEFAULT 0, -- breaker: the lease of the job that probes; 0: none does
  opened bigint NOT NULL DEFAULT 0, -- breaker: how often it was opened
  pace bigint NOT NULL DEFAULT :FULL_PACE, -- the pace after the last pushback, in thousandths
  paced_at_ms bigint NOT NULL DEFAULT 0, -- from when on it climbs
  ceiling bigint NOT NULL DEFAULT :FULL_PACE, -- the fastest pace that an operator allows, in thousandths
  last_cut_token bigint NOT NULL DEFAULT 0, -- jobs with an older token slow it down no more
  period_ms bigint NOT NULL DEFAULT 0, -- budget: when the period began that is counted
  spent bigint NOT NULL DEFAULT 0, -- budget: spent or reserved in it
  reserved_for bigint NOT NULL DEFAULT 0, -- budget: what the first job that did not fit needs; 0: none
  rule_changed_at_ms bigint NOT NULL DEFAULT 0, -- when the rule was last changed
  announced_marks bigint NOT NULL DEFAULT 0, -- budget: events of this period that are logged, one bit each
  by_hand boolean NOT NULL DEFAULT false, -- breaker: an operator opened it
  opens_ms bigint -- when lanes that wait here may go on; NULL: not known, or none waits
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX gate_opens ON lp.gate (opens_ms) WHERE opens_ms IS NOT NULL;
CREATE INDEX gate_open ON lp.gate (key) WHERE open_until_ms <> 0;
CREATE INDEX gate_counting ON lp.gate (key) WHERE open_until_ms = 0 AND (failed_at_ms <> '{}' OR calls[2] > 0);
CREATE INDEX gate_closed ON lp.gate (key)
  WHERE open_until_ms = 0 AND failed_at_ms = '{}' AND calls[2] <= 0 AND key >= 'breaker:' AND key < 'breaker;';
CREATE INDEX gate_drains ON lp.gate (key) WHERE draining AND paused_at_ms IS NULL;

-- Gates that were forgotten a moment ago, with the columns of `gate`. An enqueue that saw its gate before it went declares
-- nothing: its lane, once its post is applied, calls the gate back. `seen` is the last column: a gate is written here by
-- the places of its own.
CREATE TABLE lp.gate_old (
  LIKE lp.gate INCLUDING DEFAULTS,
  seen xid8, -- every transaction that can have seen the gate is older; NULL: not known yet
  PRIMARY KEY (key)
);

-- == The floor

-- What only a claim may change, and one claim at a time (lock FLOOR); all other steps post. One row: how far posts are applied.
-- That is a snapshot and not a number, since transactions commit in any order: posts that it could see are done.
CREATE TABLE lp.floor (
  one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), -- the only row
  filed pg_snapshot NOT NULL DEFAULT '1:1:', -- posts that it could see are applied
  pass pg_snapshot, -- what will be applied when the pass over posts that is under way is over; it may take several claims
  at_xid xid8 NOT NULL DEFAULT '0', -- how far that pass is
  at_seq bigint NOT NULL DEFAULT 0 -- and within that transaction
) WITH (fillfactor = 10);
INSERT INTO lp.floor DEFAULT VALUES;
-- Counters that a claim moves: no row of theirs has versions, so an old snapshot cannot make them slow. Gaps are fine.
CREATE SEQUENCE lp.tokens MINVALUE 0 START 0;
CREATE SEQUENCE lp.turns; -- places at the end of a round
-- How many breakers there are, or more: each that a failure makes is counted, and all of them again by each prune.
CREATE SEQUENCE lp.breakers MINVALUE 0 START 0;

-- What happened elsewhere and concerns the floor, written by any number of transactions that never wait for each other.
CREATE TABLE lp.post (
  xid xid8 NOT NULL DEFAULT pg_current_xact_id(), -- the transaction that posted it
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY, -- orders the posts of a transaction
  kind smallint NOT NULL, -- :POST_LANE, :POST_GATE (it may have room), :POST_CHILD (its parents must be looked at), :POST_RULE, :POST_POLICY, :POST_EVENT
  n integer NOT NULL DEFAULT 0, -- of a lane: how many more jobs are ready; 0: it has a timer, or is only defined
  lane bigint, -- the lane, or the policy
  due_ms bigint, -- of a lane: no ready job lies before, or its timer rings then; of a gate: what a job that is gone needed
  id bytea, -- the job before which none of these is ready; the child
  class bigint, -- of a lane that may be new, as in `lane`
  member bigint, -- the same
  ring bigint, -- the same
  gate text COLLATE "C", -- the gate, the key of the rule, or the kind of the event
  body bytea, -- the definition of a lane that may be new, the rule, the policy, or the data of the event
  PRIMARY KEY (xid, seq)
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX post_lane ON lp.post (lane) WHERE body IS NOT NULL;

-- Where a lane is: idle, active (its member has a seat), or waiting at a gate.
CREATE TABLE lp.lane_now (
  id bigint NOT NULL PRIMARY KEY, -- the lane
  class bigint NOT NULL, -- as in `lane`
  member bigint NOT NULL, -- as in `lane`
  turn bigint NOT NULL DEFAULT 0, -- orders the lanes that wait at one gate
  served_ms bigint NOT NULL DEFAULT 0, -- orders the active lanes of one member
  floor_ms bigint NOT NULL DEFAULT 0, -- no ready job of the lane lies before (floor_ms, floor_id)
  jobs bigint NOT NULL DEFAULT 0, -- stored jobs, finished ones included, as far as they are summed up
  state smallint NOT NULL DEFAULT :IDLE CHECK (state BETWEEN :IDLE AND :WAITING), -- :IDLE, :ACTIVE or :WAITING
  priority smallint NOT NULL, -- as in `lane`
  floor_id bytea NOT NULL DEFAULT '\x', -- see floor_ms
  gate text COLLATE "C", -- the gate that it waits at
  CHECK ((state = :WAITING) = (gate IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX lane_now_active ON lp.lane_now (class, member, served_ms, id) WHERE state = :ACTIVE;
CREATE INDEX lane_now_waiting ON lp.lane_now (gate, class, priority, turn) WHERE state = :WAITING;
CREATE INDEX lane_now_member ON lp.lane_now (member);
CREATE INDEX lane_now_empty ON lp.lane_now (id) WHERE jobs <= 0;

-- What takes turns: rings (a queue at a priority) and, within one, members (a tenant, or all jobs without one).
CREATE TABLE lp.turn (
  id bigint NOT NULL PRIMARY KEY, -- the ring or member
  turn bigint NOT NULL, -- its place in the round: the smallest is served next
  left_n integer NOT NULL, -- jobs that are left of its turn
  weight integer NOT NULL, -- jobs of a whole turn
  name text COLLATE "C" NOT NULL -- queue:Q or tenant:T, for its weight
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX turn_name ON lp.turn (name);

-- The place of a member in the line of one class: there while it has active lanes of that class.
CREATE TABLE lp.seat (
  class bigint NOT NULL, -- the class
  priority smallint NOT NULL, -- its priority
  member bigint NOT NULL, -- the member
  ring bigint NOT NULL, -- the ring of the member
  turn bigint NOT NULL, -- the turn of the member
  lane bigint NOT NULL, -- any of these lanes: they differ in nothing that concerns the class
  PRIMARY KEY (class, priority, member)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX seat_turn ON lp.seat (class, priority, turn, member);
CREATE INDEX seat_member ON lp.seat (member);
CREATE INDEX seat_ring ON lp.seat (ring);

-- == Workers

-- Processes that work: there while they beat.
CREATE TABLE lp.session (
  id text COLLATE "C" NOT NULL PRIMARY KEY, -- its name
  started_ms bigint NOT NULL, -- when it began
  beat_ms bigint NOT NULL, -- its last beat
  deadline_ms bigint NOT NULL, -- silent from then on: what it holds is taken back
  queues text[], -- that it serves; NULL: any
  tasks text[], -- that it serves; NULL: any
  capabilities text[] NOT NULL, -- that it has
  channel text COLLATE "C", -- on which it listens; NULL: none
  serves bytea NOT NULL, -- queues, tasks and capabilities for Python
  info bytea NOT NULL -- host, process and the like, for people
) WITH (fillfactor = 50);
CREATE INDEX session_deadline ON lp.session (deadline_ms);

-- A session whose last claim found nothing, with what it asked for: there until it is woken or claims again.
CREATE TABLE lp.sleeper (
  session text COLLATE "C" NOT NULL PRIMARY KEY, -- the session
  next_ms bigint, -- it wakes by itself then
  slots integer NOT NULL, -- free places for jobs that must start at once
  queues text[], -- as in `session`
  tasks text[], -- as in `session`
  capabilities text[] NOT NULL, -- as in `session`
  channel text COLLATE "C" -- as in `session`
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);

-- Leases: the right to run jobs. Jobs of one claim that end together share one.
CREATE TABLE lp.lease (
  token bigint NOT NULL PRIMARY KEY, -- grows with every claim
  session text COLLATE "C" NOT NULL, -- the session that holds it
  hard_until_ms bigint, -- taken back then, whether or not the session is alive
  left_n integer NOT NULL -- jobs that still run under it
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX lease_session ON lp.lease (session);
CREATE INDEX lease_hard ON lp.lease (hard_until_ms) WHERE hard_until_ms IS NOT NULL;

-- The last answer to each caller, for a call that is repeated since its answer was lost.
CREATE TABLE lp.receipt (
  session text COLLATE "C" NOT NULL, -- the session; '' for calls with a name of their own
  claimer text COLLATE "C" NOT NULL, -- the claimer, settle, beat, or the name of the call
  seq bigint NOT NULL, -- which call of the caller
  at_ms bigint NOT NULL, -- when it was answered
  tokens bigint[], -- of a claim: its leases; of a named call: its answers
  answers smallint[], -- of a settlement: its codes
  shut text, -- of a settlement: gates that it shut
  PRIMARY KEY (session, claimer)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);
CREATE INDEX receipt_at ON lp.receipt (at_ms);

-- Successes that handlers noted in their own transactions: the step that ends such a lease finds it, and the job has succeeded.
CREATE TABLE lp.settled (
  id bytea NOT NULL, -- the job
  token bigint NOT NULL, -- its lease
  at_ms bigint NOT NULL, -- when it was noted
  result bytea, -- its result
  PRIMARY KEY (id, token)
);

-- One row about the search for silent sessions.
CREATE TABLE lp.sweep (
  one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), -- the only row
  swept_at_ms bigint, -- when it was last done
  calm_until_ms bigint NOT NULL DEFAULT 0 -- no session loses anything before
) WITH (fillfactor = 10);
INSERT INTO lp.sweep DEFAULT VALUES;

-- Channels that wait for the end of a job.
CREATE TABLE lp.watch (
  job bytea NOT NULL, -- the job
  channel text COLLATE "C" NOT NULL, -- where the end is told
  PRIMARY KEY (job, channel)
);

-- == Counters

-- Counting only inserts; a janitor sums these rows up into `count`.
CREATE TABLE lp.tally (
  lane bigint NOT NULL, -- the lane
  whats smallint[] NOT NULL, -- what is counted, as in `count`; also :ERASED from and :MOVED into this lane
  ns integer[] NOT NULL -- and how many of each
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 5000);

-- Sums by queue and task.
CREATE TABLE lp.count (
  queue text COLLATE "C" NOT NULL, -- the queue; '' for sums over all
  task text COLLATE "C" NOT NULL, -- the task, or the tenant; '' for sums over all
  what smallint NOT NULL, -- jobs in a state; ever: :ENQUEUED :EVER_SUCCEEDED :EVER_CANCELLED :DISCARDED :EVER_LOST :STALE; of a tenant: :TENANT_WAITING :TENANT_RUNNING
  n bigint NOT NULL, -- how many
  PRIMARY KEY (queue, task, what)
);

-- Of queues, and of tenants in them, whose depth is bounded: how many jobs wait or run there at most.
CREATE TABLE lp.depth (
  place text COLLATE "C" NOT NULL, -- q and the queue; t, the length of the queue's name, a colon, queue and tenant
  n bigint NOT NULL, -- that waited or ran when it was counted, or that were added since
  waiting bigint, -- how many only waited when it was counted
  counted_at timestamptz -- when it was counted; NULL: added since
) WITH (autovacuum_vacuum_scale_factor = 0.0, autovacuum_vacuum_threshold = 1000);
CREATE INDEX depth_place ON lp.depth (place);

-- Dead jobs of one origin: one more or one less. A janitor sums these rows up into `cause`.
CREATE TABLE lp.cause_tally (
  cause text COLLATE "C" NOT NULL, -- the origin
  queue text COLLATE "C" NOT NULL, -- the queue
  task text COLLATE "C" NOT NULL, -- the task
  n integer NOT NULL, -- 1, or -1
  type text COLLATE "C" NOT NULL, -- the type of the failure
  message text COLLATE "C" NOT NULL, -- its message
  at_ms bigint NOT NULL, -- when the job died
  sample bytea NOT NULL -- the job
);

-- Dead jobs by origin, queue and task.
CREATE TABLE lp.cause (
  cause text COLLATE "C" NOT NULL, -- the origin
  queue text COLLATE "C" NOT NULL, -- the queue
  task text COLLATE "C" NOT NULL, -- the task
  n bigint NOT NULL, -- how many
  type text COLLATE "C" NOT NULL, -- the type of the first failure
  message text COLLATE "C" NOT NULL, -- the message of the last
  first_ms bigint NOT NULL, -- when the first died
  last_ms bigint NOT NULL, -- when the last died
  sample bytea NOT NULL, -- the last of these jobs
  PRIMARY KEY (cause, queue, task)
);

-- == Housekeeping

-- Where the last step of pruning ended, so that the next does not walk over what that one removed: only VACUUM takes it away.
CREATE TABLE lp.pruned (
  what text NOT NULL PRIMARY KEY, -- the code of a state, gone, or gate
  at_ms bigint NOT NULL DEFAULT 0, -- the time at which it ended
  key text NOT NULL DEFAULT '' -- the key at which it ended
) WITH (fillfactor = 10);
INSERT INTO lp.pruned (what) VALUES (':SUCCEEDED'), (':DEAD'), (':CANCELLED'), ('gone'), ('gate');

-- The same for jobs of single queues, whose index they share with all: how far each walk over it has come.
CREATE TABLE lp.walked (
  name text COLLATE "C" NOT NULL PRIMARY KEY, -- the walk
  at_ms bigint NOT NULL DEFAULT -1, -- the end of the last job that it saw
  id bytea NOT NULL DEFAULT '', -- that job
  since_ms bigint NOT NULL -- when it began
) WITH (fillfactor = 10);

-- Named records: schedules, weights, declarations, marks of outboxes.
CREATE TABLE lp.control (
  kind text COLLATE "C" NOT NULL, -- its kind
  name text COLLATE "C" NOT NULL, -- its name
  version bigint NOT NULL, -- grows with every change
  value bytea NOT NULL, -- as JSON
  PRIMARY KEY (kind, name)
);

-- Hooks that are for some state: what the step that ends a job must know to make their jobs.
CREATE TABLE lp.hook (
  name text COLLATE "C" NOT NULL PRIMARY KEY, -- its name, which is that of its task
  states smallint[] NOT NULL, -- the states that it is for: :SUCCEEDED, :DEAD, :CANCELLED
  tasks text[] NOT NULL, -- the tasks that it is for; empty: all
  queues text[] NOT NULL, -- the same for queues
  lane bigint NOT NULL UNIQUE, -- the lane of its jobs, and what is posted of it
  class bigint NOT NULL, -- as in `lane`
  member bigint NOT NULL, -- as in `lane`
  ring bigint NOT NULL, -- as in `lane`
  priority smallint NOT NULL, -- as in `lane`
  body bytea NOT NULL, -- as in `lane`
  policy bigint NOT NULL -- the policy of its jobs
);

-- The two logs: what people did (audit), and what happened (event).
CREATE TABLE lp.log (
  seq bigint NOT NULL GENERATED ALWAYS AS IDENTITY PRIMARY KEY, -- the order of lines
  at_ms bigint NOT NULL, -- when
  log text COLLATE "C" NOT NULL, -- audit or event
  kind text COLLATE "C" NOT NULL, -- what happened
  actor text COLLATE "C" NOT NULL, -- which person or program did it
  reason text COLLATE "C" NOT NULL, -- why
  job bytea, -- the job that it is about
  data bytea NOT NULL -- facts, as JSON
);
CREATE INDEX log_by ON lp.log (log, seq);

-- Where this schema lives. Its name among all schemas of all servers is the comment of this table, which the transaction of a
-- caller can ask for without failing.
CREATE TABLE lp.home (
  one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), -- the only row
  server bigint NOT NULL -- the server whose transactions the floor speaks of
);
INSERT INTO lp.home (server) SELECT c.system_identifier FROM pg_control_system() AS c;
DO $$
BEGIN
  EXECUTE 'COMMENT ON TABLE lp.home IS ' || quote_literal(gen_random_uuid());
END $$;

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
  children bytea[], parents bytea[], modes smallint[], -- the dependencies, and what a failure of the parent means; NULL: none
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
  options jsonb, -- which jobs it takes: core.jobs.lease.ClaimOptions; a field left out has its default
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
  n integer, spent bigint, -- taken: the number of jobs, and their total cost
  first integer, -- the place of the first of them among all jobs that the claim takes; NULL: none yet
  reserved_for bigint, -- what a job that did not fit its budget needs; NULL: all did
  must boolean, -- jobs that pass must start at once; NULL: its row is not locked
  held boolean, -- another transaction has locked it
  key text,
  unit text, -- which of a job's costs it counts
  charge jsonb, -- what a job of cost 1 is charged; NULL: nothing
  slow lp.gate -- its row as it is after that, where its rate goes slower than declared
);

-- A lane that a claim asks for jobs, with its gates.
CREATE TYPE lp.lane_ask AS (
  lane bigint, n integer, -- for this number of jobs
  must boolean, -- its jobs must start at once
  gates integer[], -- which of the claim's gates rule it
  charge jsonb, units text[], -- what a job of cost 1 is charged, and the unit of each of these charges
  first integer, passed integer, -- what came of it: the place of its first job among those seen, and how many pass
  sums bigint[], -- what those cost together at each of its gates; NULL: 1 each
  reserved_for bigint[] -- what the next job needs of each of its budgets, where nothing else stops it
);

-- Running jobs as a worker needs them.
CREATE TYPE lp.handed AS (
  ids bytea[], tokens bigint[], attempts integer[], losts integer[], lanes bigint[], policies bigint[], args bytea[],
  extras bytea[], enqueued bigint[], dues bigint[], claimed bigint[], helds integer[], held_sinces bigint[],
  costs integer[], probes boolean[], togethers integer[],
  input_jobs bytea[], input_parents bytea[], input_results bytea[], input_failed text[],
  note_jobs bytea[], note_kinds text[], note_names text[], note_bodies bytea[]
);

-- One attempt's error, as it is kept for people.
CREATE TYPE lp.failure AS (kind text, type text, message text, traceback text, cause text);

-- A lane that a running job is moved to: its ids, and its definition as JSON.
CREATE TYPE lp.new_lane AS (id bigint, class bigint, member bigint, ring bigint, body text);

-- What is done to one running job: core/endings/effect.py names and explains the fields, and makes all of it.
CREATE TYPE lp.effect AS (
  state smallint, word text, record text, delay_ms bigint, events text[], unspent boolean, unstarted boolean, held text,
  lost boolean, reason text, own_reason boolean, failure lp.failure, hides_failure boolean, blame boolean, verdict text,
  refund text, gate text, gate_ms bigint, trips boolean, if_cancelling text, if_lost_too_often jsonb, if_foreign_gate jsonb,
  if_signalled jsonb, lane lp.new_lane
);

-- A job that leaves `running`.
CREATE TYPE lp.leaving AS (
  at integer, -- its place in the call
  head lp.running, effect lp.effect, -- its row, and what is done to it; when that is done, both as they are written
  result bytea, -- NULL: none
  spent jsonb -- its actual cost, {unit: how much}; NULL: not reported
);

-- Charges of one kind at a gate, of jobs that ended alike.
CREATE TYPE lp.charge_end AS (
  gate text, taken jsonb, -- one of them, as `running.charged` has it
  verdict text, refund text, spent jsonb, -- see lp.effect and lp.leaving
  n integer -- how many
);
