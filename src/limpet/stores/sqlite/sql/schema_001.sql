-- Promise: layout 1, the whole of it. A later layout is a file of its own with the next number. It only adds; one that
-- does not says "Min client:" with the lowest layout whose releases may work on.
-- Inputs: none; `limpet_` is replaced by the namespace's prefix. Answer: none.
-- A job is one row (limpet_job) whose state is a column, so it is in exactly one. Every change of state rewrites the
-- row, so arguments of more than 512 bytes lie apart (limpet_body), where they are written once.
-- State codes follow core/jobs/state.py: 0 blocked 1 scheduled 2 ready 3 running 4 succeeded 5 dead 6 cancelled.
-- Lane codes: 0 idle, 1 active, 2 waiting at a gate.

CREATE TABLE limpet_meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;

-- One row: the store's own name, drawn when it was made, the last fencing token, the last turn, when leases were last
-- swept, until when none may expire, and how many transactions of callers' own have enqueued.
CREATE TABLE limpet_clock (
  one INTEGER PRIMARY KEY CHECK (one = 1),
  store TEXT NOT NULL,
  token INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  swept_at_ms INTEGER,
  calm_until_ms INTEGER NOT NULL,
  guests INTEGER NOT NULL
);
INSERT INTO limpet_clock VALUES (1, lower(hex(randomblob(8))), 0, 0, NULL, 0, 0);

CREATE TABLE limpet_job (
  id BLOB NOT NULL PRIMARY KEY,
  state INTEGER NOT NULL CHECK (state BETWEEN 0 AND 6),
  lane INTEGER NOT NULL,
  priority INTEGER NOT NULL CHECK (priority BETWEEN 0 AND 9),
  due_ms INTEGER NOT NULL,
  enqueued_ms INTEGER NOT NULL,
  attempt INTEGER NOT NULL DEFAULT 0,
  lost INTEGER NOT NULL DEFAULT 0,
  flags INTEGER NOT NULL DEFAULT 0,
  token INTEGER,
  claimed_ms INTEGER,
  finished_ms INTEGER,
  expires_ms INTEGER,
  held INTEGER NOT NULL DEFAULT 0,
  held_since_ms INTEGER,
  charged BLOB,
  reason TEXT,
  cause TEXT,
  error_type TEXT,
  policy INTEGER NOT NULL,
  flow BLOB,
  unique_key TEXT,
  args BLOB,
  extra BLOB,
  CHECK ((state = 3) = (token IS NOT NULL)),
  CHECK ((state >= 4) = (finished_ms IS NOT NULL))
) WITHOUT ROWID;
CREATE INDEX limpet_job_ready ON limpet_job (lane, due_ms, id) WHERE state = 2;
CREATE INDEX limpet_job_scheduled ON limpet_job (priority, due_ms, id) WHERE state = 1;
CREATE INDEX limpet_job_running ON limpet_job (token, id) WHERE state = 3;
CREATE INDEX limpet_job_finished ON limpet_job (state, finished_ms, id) WHERE state >= 4;
CREATE INDEX limpet_job_blocked ON limpet_job (id) WHERE state = 0;
CREATE INDEX limpet_job_expires ON limpet_job (expires_ms) WHERE expires_ms IS NOT NULL AND state < 3;
-- With the state in it, so that counting the jobs of a flow reads nothing else.
CREATE INDEX limpet_job_flow ON limpet_job (flow, id, state) WHERE flow IS NOT NULL;
CREATE INDEX limpet_job_unique ON limpet_job (unique_key, id) WHERE unique_key IS NOT NULL;

CREATE TABLE limpet_body (id BLOB NOT NULL PRIMARY KEY, args BLOB NOT NULL) WITHOUT ROWID;

CREATE TABLE limpet_policy (id INTEGER PRIMARY KEY, body BLOB NOT NULL);

-- `jobs` counts the stored jobs of the lane, finished ones included: a lane row outlives its jobs.
-- `turn` orders the lanes that wait at one gate; `served_ms` those that are active for one member.
CREATE TABLE limpet_lane (
  id INTEGER PRIMARY KEY,
  class INTEGER NOT NULL,
  member INTEGER NOT NULL,
  ring INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  turn INTEGER NOT NULL DEFAULT 0,
  served_ms INTEGER NOT NULL DEFAULT 0,
  state INTEGER NOT NULL DEFAULT 0 CHECK (state BETWEEN 0 AND 2),
  gate TEXT,
  jobs INTEGER NOT NULL DEFAULT 0,
  queue TEXT NOT NULL,
  task TEXT NOT NULL,
  scope TEXT NOT NULL, -- the name by which the gate of the task goes
  tenant TEXT,
  body BLOB NOT NULL,
  CHECK ((state = 2) = (gate IS NOT NULL))
);
CREATE INDEX limpet_lane_active ON limpet_lane (class, member, served_ms, id) WHERE state = 1;
CREATE INDEX limpet_lane_waiting ON limpet_lane (gate, class, priority, turn) WHERE state = 2;
CREATE INDEX limpet_lane_member ON limpet_lane (member, state);
CREATE INDEX limpet_lane_empty ON limpet_lane (id) WHERE jobs <= 0;
CREATE INDEX limpet_lane_queue ON limpet_lane (queue, task, scope);

-- Which lanes a limit or breaker rules: its gate is forgotten only after the last of them; but a breaker by key is not here.
CREATE TABLE limpet_lane_gate (gate TEXT NOT NULL, lane INTEGER NOT NULL, PRIMARY KEY (gate, lane)) WITHOUT ROWID;
CREATE INDEX limpet_lane_gate_lane ON limpet_lane_gate (lane);

-- Who takes turns: rings (a queue at a priority) and, within one, members (a tenant, or all jobs without one).
CREATE TABLE limpet_turn (
  id INTEGER PRIMARY KEY,
  turn INTEGER NOT NULL,
  left INTEGER NOT NULL DEFAULT 1,
  weight INTEGER NOT NULL DEFAULT 1,
  name TEXT NOT NULL
);
CREATE INDEX limpet_turn_name ON limpet_turn (name);

-- A member's place in the line of one class: there while it has active lanes of that class. However many lanes a
-- member has, its turn moves with a few seats. `lane` is any of them: they differ in nothing that concerns the class.
CREATE TABLE limpet_seat (
  class INTEGER NOT NULL,
  priority INTEGER NOT NULL,
  member INTEGER NOT NULL,
  ring INTEGER NOT NULL,
  turn INTEGER NOT NULL,
  lane INTEGER NOT NULL,
  PRIMARY KEY (class, priority, member)
) WITHOUT ROWID;
CREATE INDEX limpet_seat_turn ON limpet_seat (class, priority, turn, member);
CREATE INDEX limpet_seat_member ON limpet_seat (member);
CREATE INDEX limpet_seat_ring ON limpet_seat (ring);

-- `rank`: where a list of breakers has it (core/gate/breaker.py): 0 open, 1 counting, 2 closed, NULL no breaker.
CREATE TABLE limpet_gate (key TEXT PRIMARY KEY, body BLOB NOT NULL, opens_ms INTEGER, rank INTEGER) WITHOUT ROWID;
CREATE INDEX limpet_gate_opens ON limpet_gate (opens_ms) WHERE opens_ms IS NOT NULL;
CREATE INDEX limpet_gate_rank ON limpet_gate (rank, key) WHERE rank IS NOT NULL;

-- An idle session is one whose last claim found nothing: `asked` and `slots` say what it asked for (a worker whose
-- threads are all busy asks for less than it serves), so that it is woken for that and for nothing else.
CREATE TABLE limpet_session (
  id TEXT PRIMARY KEY,
  serves BLOB NOT NULL,
  info BLOB NOT NULL,
  started_ms INTEGER NOT NULL,
  beat_ms INTEGER NOT NULL,
  deadline_ms INTEGER NOT NULL,
  idle INTEGER NOT NULL DEFAULT 0,
  next_ms INTEGER,
  asked BLOB,
  slots INTEGER NOT NULL DEFAULT 0,
  takes INTEGER NOT NULL DEFAULT 0,
  takes_urgent INTEGER NOT NULL DEFAULT 0,
  slept_at_token INTEGER NOT NULL DEFAULT 0,
  handed INTEGER NOT NULL DEFAULT 0,
  ear TEXT
) WITHOUT ROWID;
CREATE INDEX limpet_session_idle ON limpet_session (id) WHERE idle = 1;
CREATE INDEX limpet_session_deadline ON limpet_session (deadline_ms);

CREATE TABLE limpet_lease (
  token INTEGER PRIMARY KEY,
  session TEXT NOT NULL,
  hard_until_ms INTEGER,
  left INTEGER NOT NULL,
  handed INTEGER
);
CREATE INDEX limpet_lease_session ON limpet_lease (session);
CREATE INDEX limpet_lease_handed ON limpet_lease (session) WHERE handed IS NOT NULL;
CREATE INDEX limpet_lease_hard ON limpet_lease (hard_until_ms) WHERE hard_until_ms IS NOT NULL;

-- Noted by a handler in its own transaction, together with a bit in limpet_job.flags: the job has succeeded, whatever ends
-- its lease. There while the job runs.
CREATE TABLE limpet_settled (id BLOB NOT NULL PRIMARY KEY, token INTEGER NOT NULL, result BLOB) WITHOUT ROWID;

CREATE TABLE limpet_receipt (
  session TEXT NOT NULL,
  claimer TEXT NOT NULL,
  seq INTEGER NOT NULL,
  answer BLOB NOT NULL,
  at_ms INTEGER NOT NULL,
  PRIMARY KEY (session, claimer)
) WITHOUT ROWID;

CREATE TABLE limpet_unique (
  key TEXT PRIMARY KEY,
  job BLOB NOT NULL,
  states INTEGER NOT NULL,
  until_ms INTEGER
) WITHOUT ROWID;

-- A key whose job was removed before its window was over keeps states = 0.
CREATE INDEX limpet_unique_orphan ON limpet_unique (until_ms) WHERE states = 0;

-- mode: what becomes of the child when the parent fails: 0 cancel, 1 run, 2 wait.
CREATE TABLE limpet_dep (
  child BLOB NOT NULL,
  parent BLOB NOT NULL,
  mode INTEGER NOT NULL,
  done INTEGER NOT NULL DEFAULT 0,
  result BLOB,
  failed TEXT,
  PRIMARY KEY (child, parent)
) WITHOUT ROWID;
CREATE INDEX limpet_dep_parent ON limpet_dep (parent, child);
CREATE INDEX limpet_dep_open ON limpet_dep (child) WHERE done = 0;
CREATE INDEX limpet_dep_waiting ON limpet_dep (parent) WHERE done = 0;

-- Parents that succeeded and have more children to release than one step takes.
CREATE TABLE limpet_fan (parent BLOB NOT NULL PRIMARY KEY) WITHOUT ROWID;

CREATE TABLE limpet_result (id BLOB NOT NULL PRIMARY KEY, body BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE limpet_note (
  job BLOB NOT NULL, kind TEXT NOT NULL, name TEXT NOT NULL, body BLOB NOT NULL, PRIMARY KEY (job, kind, name)
) WITHOUT ROWID;
CREATE TABLE limpet_attempt (
  job BLOB NOT NULL,
  seq INTEGER NOT NULL,
  number INTEGER NOT NULL,
  outcome TEXT NOT NULL,
  started_ms INTEGER NOT NULL,
  finished_ms INTEGER NOT NULL,
  session TEXT NOT NULL,
  kind TEXT,
  type TEXT NOT NULL DEFAULT '',
  message TEXT NOT NULL DEFAULT '',
  traceback TEXT NOT NULL DEFAULT '',
  cause TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (job, seq)
) WITHOUT ROWID;

-- Dead jobs of one origin, counted as they come and go.
CREATE TABLE limpet_cause (
  cause TEXT NOT NULL, queue TEXT NOT NULL, task TEXT NOT NULL, n INTEGER NOT NULL,
  type TEXT NOT NULL, message TEXT NOT NULL, first_ms INTEGER NOT NULL, last_ms INTEGER NOT NULL, sample BLOB NOT NULL,
  PRIMARY KEY (cause, queue, task)
) WITHOUT ROWID;

CREATE TABLE limpet_count (
  queue TEXT NOT NULL, task TEXT NOT NULL, what INTEGER NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (queue, task, what)
) WITHOUT ROWID;

-- Ids of jobs that are no longer stored, so that a late repeat of their enqueue is still the same job.
CREATE TABLE limpet_gone (id BLOB NOT NULL PRIMARY KEY, state INTEGER NOT NULL, until_ms INTEGER NOT NULL) WITHOUT ROWID;
CREATE INDEX limpet_gone_until ON limpet_gone (until_ms);

CREATE TABLE limpet_watch (job BLOB NOT NULL, ear TEXT NOT NULL, PRIMARY KEY (job, ear)) WITHOUT ROWID;
CREATE TABLE limpet_control (
  kind TEXT NOT NULL, name TEXT NOT NULL, value BLOB NOT NULL, version INTEGER NOT NULL, PRIMARY KEY (kind, name)
) WITHOUT ROWID;
CREATE TABLE limpet_log (
  seq INTEGER PRIMARY KEY AUTOINCREMENT,
  log TEXT NOT NULL,
  at_ms INTEGER NOT NULL,
  kind TEXT NOT NULL,
  actor TEXT NOT NULL,
  job BLOB,
  reason TEXT NOT NULL,
  data BLOB NOT NULL
);
CREATE INDEX limpet_log_by ON limpet_log (log, seq);
