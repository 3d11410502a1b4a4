"""Reads everything that a schema holds and says where two places of it disagree, in one snapshot."""

from __future__ import annotations

import contextlib
import time
from typing import Any, Final

import psycopg

from limpet.stores.postgres.wire import in_schema
from tests.servers.postgres import PostgresServer

SHOWN: Final = 5

# Views of what the faults below ask about. Nobody has analysed these tables: it would choose nested loops over them.
WORDS: Final = """
SET LOCAL enable_nestloop = off;
SET LOCAL jit = off;
CREATE TEMP VIEW place AS
  SELECT id, lane, state, priority, flags FROM lp.wait
  UNION ALL SELECT id, lane, 3, priority, flags FROM lp.running
  UNION ALL SELECT id, lane, state, priority, flags FROM lp.done;
CREATE TEMP VIEW ready AS SELECT id, lane, due_ms FROM lp.wait WHERE state = 2;
CREATE TEMP VIEW named AS -- lanes, stored or only posted
  SELECT id, queue, task, tenant FROM lp.lane
  UNION SELECT p.lane, b.body ->> 'queue', b.body ->> 'task', b.body ->> 'tenant' FROM lp.post AS p
  CROSS JOIN LATERAL (SELECT convert_from(p.body, 'UTF8')::jsonb AS body) AS b WHERE p.kind = 0 AND p.body IS NOT NULL;
CREATE TEMP VIEW charge AS
  SELECT r.id, r.token, r.claimed_ms, c ->> 0 AS gate, (c -> 1)::boolean AS slot, (c -> 2)::bigint AS cost,
    (c -> 3)::boolean AS probe
  FROM lp.running AS r CROSS JOIN LATERAL jsonb_array_elements(r.charged) AS c;
CREATE TEMP VIEW counted AS
  SELECT queue, task, what::integer, n FROM lp.count
  UNION ALL
  SELECT CASE WHEN u.what < 10 THEN l.queue ELSE '' END, CASE WHEN u.what < 10 THEN l.task ELSE '' END, u.what, u.n
  FROM lp.tally AS t CROSS JOIN LATERAL unnest(t.whats, t.ns) AS u (what, n) LEFT JOIN named AS l ON l.id = t.lane
  WHERE u.what < 20;
CREATE TEMP VIEW open_dep AS
  SELECT d.child, d.parent, d.mode, c.state AS child_state, p.state AS parent_state FROM lp.dep AS d
  LEFT JOIN place AS c ON c.id = d.child LEFT JOIN place AS p ON p.id = d.parent WHERE NOT d.done;
CREATE TEMP VIEW shut AS -- lanes that wait at a gate, and what there is to say about that gate
  SELECT l.id, l.class, l.gate, g.key, g.opens_ms,
    lp.gate_room(g, {now}) AS room, lp.gate_opens_at(g, {now}) AS opens_at,
    EXISTS (SELECT FROM lp.post AS p WHERE p.kind = 1 AND p.gate = l.gate) AS posted,
    (SELECT count(*) FROM lp.lane_now AS a JOIN lp.lane AS d ON d.id = a.id
     WHERE a.state = 1 AND a.class = l.class AND l.gate = ANY (d.lane_gates)) AS carriers
  FROM lp.lane_now AS l LEFT JOIN lp.gate AS g ON g.key = l.gate WHERE l.state = 2
"""

# What must not be found, and how it would be: one row for each case.
FAULTS: Final = {
    # -- jobs and their places
    "a job is in more than one place": "SELECT id FROM place GROUP BY id HAVING count(*) > 1",
    "a job is nowhere": "SELECT id FROM lp.job EXCEPT SELECT id FROM place",
    "a place is of no job": "SELECT id FROM place EXCEPT SELECT id FROM lp.job",
    "a job is in a place of another lane": (
        "SELECT j.id, j.lane, p.lane FROM lp.job AS j JOIN place AS p ON p.id = j.id WHERE j.lane <> p.lane"
    ),
    "a job that is stored counts as gone": "SELECT g.id FROM lp.gone AS g JOIN lp.job AS j ON j.id = g.id",
    "something is kept of a job that is not stored": """
        SELECT k.what, k.id FROM (
          SELECT 'result' AS what, id FROM lp.result UNION ALL SELECT 'note', job FROM lp.note
          UNION ALL SELECT 'attempt', job FROM lp.attempt UNION ALL SELECT 'dep', child FROM lp.dep
          UNION ALL SELECT 'watch', job FROM lp.watch UNION ALL SELECT 'settled', id FROM lp.settled
          UNION ALL SELECT 'flow', id FROM lp.flow_job UNION ALL SELECT 'key', id FROM lp.key_job
          UNION ALL SELECT 'far', child FROM lp.dep_far UNION ALL SELECT 'cost', id FROM lp.cost_job
        ) AS k LEFT JOIN lp.job AS j ON j.id = k.id WHERE j.id IS NULL""",
    "notes are there without the flag that says so": """
        SELECT p.id FROM place AS p WHERE p.flags & 8 = 0 AND EXISTS (SELECT FROM lp.note AS n WHERE n.job = p.id)""",
    "notes are left of a wait before": (
        "SELECT job FROM lp.note WHERE kind = 'waiting' GROUP BY job HAVING count(DISTINCT body) > 1"
    ),
    "a job waits for an event that has come": """
        SELECT w.id, n.name FROM lp.wait AS w JOIN lp.note AS n ON n.job = w.id AND n.kind = 'waiting'
        JOIN lp.note AS e ON e.job = w.id AND e.kind = 'event' AND e.name = n.name
        WHERE w.state = 1 AND n.body = convert_to(w.due_ms::text, 'UTF8')""",
    "somebody watches a job that has ended": (
        "SELECT w.job, d.state FROM lp.watch AS w JOIN lp.done AS d ON d.id = w.job"
    ),
    # -- definitions
    "a lane is not known": "SELECT lane FROM lp.job EXCEPT SELECT id FROM named",
    "a policy is not known": """
        SELECT policy FROM lp.job EXCEPT (SELECT id FROM lp.policy UNION SELECT lane FROM lp.post WHERE kind = 4)""",
    "a lane is half stored": """
        SELECT coalesce(l.id, n.id) FROM lp.lane AS l FULL JOIN lp.lane_now AS n ON n.id = l.id
        WHERE (l.class, l.member, l.priority) IS DISTINCT FROM (n.class, n.member, n.priority)""",
    "a job waits at another priority than its lane": """
        SELECT w.id FROM lp.wait AS w JOIN lp.lane AS l ON l.id = w.lane WHERE w.priority <> l.priority""",
    "the gates of a lane are not those it names": """
        SELECT coalesce(g.gate, k.gate), coalesce(g.lane, k.id) FROM lp.lane_gate AS g FULL JOIN (
          SELECT DISTINCT l.id, u.gate FROM lp.lane AS l
          CROSS JOIN LATERAL (SELECT convert_from(l.body, 'UTF8')::jsonb ->> 'breaker_key') AS d (key)
          CROSS JOIN LATERAL unnest(l.class_gates[4:] || array_remove(l.lane_gates, 'breaker:' || d.key)) AS u (gate)
        ) AS k ON k.gate = g.gate AND k.id = g.lane WHERE g.gate IS NULL OR k.gate IS NULL""",
    # -- the floor
    "a post counts as filed": """
        SELECT p.xid, p.seq, p.kind FROM lp.post AS p CROSS JOIN lp.floor AS f
        WHERE pg_visible_in_snapshot(p.xid, f.filed)
          OR f.pass IS NOT NULL AND pg_visible_in_snapshot(p.xid, f.pass) AND (p.xid, p.seq) <= (f.at_xid, f.at_seq)""",
    "a lane has ready jobs and is idle": """
        SELECT DISTINCT r.lane, l.state FROM ready AS r LEFT JOIN lp.lane_now AS l ON l.id = r.lane
        WHERE coalesce(l.state, 0) = 0
          AND NOT EXISTS (SELECT FROM lp.post AS p WHERE p.kind = 0 AND p.lane = r.lane AND p.n > 0)""",
    "a ready job lies before its lane's floor": """
        SELECT r.id, r.due_ms, l.floor_ms FROM ready AS r JOIN lp.lane_now AS l ON l.id = r.lane
        WHERE (r.due_ms, r.id) < (l.floor_ms, l.floor_id) AND NOT EXISTS (
          SELECT FROM lp.post AS p
          WHERE p.kind = 0 AND p.lane = r.lane AND p.n > 0 AND (p.due_ms, p.id) <= (r.due_ms, r.id)
        )""",
    "a lane waits at a gate that is not there": "SELECT id, gate FROM shut WHERE key IS NULL AND NOT posted",
    "a lane waits at a gate that will not call it": """
        SELECT id, gate, opens_at, opens_ms FROM shut WHERE room <= 0 AND NOT posted
          AND opens_at IS NOT NULL AND coalesce(opens_ms > opens_at, true)""",
    "a lane waits at a gate that has room for it": """
        SELECT id, gate, room, carriers FROM shut WHERE room > 0 AND NOT posted
          AND coalesce(opens_ms > {now}, true) AND carriers < least(room, 256)""",
    "an active lane has no seat": """
        SELECT l.id FROM lp.lane_now AS l LEFT JOIN lp.seat AS s
        ON s.class = l.class AND s.priority = l.priority AND s.member = l.member
        WHERE l.state = 1 AND s.class IS NULL""",
    "a seat is of no active lane": """
        SELECT s.class, s.member FROM lp.seat AS s WHERE NOT EXISTS (
          SELECT FROM lp.lane_now AS l
          WHERE l.state = 1 AND l.class = s.class AND l.priority = s.priority AND l.member = s.member)""",
    "a seat names a lane that is not of its class": """
        SELECT s.lane FROM lp.seat AS s LEFT JOIN lp.lane AS l ON l.id = s.lane WHERE
          (l.class, l.priority, l.member, l.ring) IS DISTINCT FROM (s.class, s.priority, s.member, s.ring)""",
    "a seat and the turn of its member differ": """
        SELECT s.member, s.turn, t.turn FROM lp.seat AS s LEFT JOIN lp.turn AS t ON t.id = s.member
        WHERE s.turn IS DISTINCT FROM t.turn""",
    "a ring takes no turns": "SELECT ring FROM lp.seat EXCEPT SELECT id FROM lp.turn",
    "a turn that has no end": "SELECT id, left_n, weight FROM lp.turn WHERE left_n NOT BETWEEN 1 AND weight",
    # -- leases
    "a lease does not count what it holds": """
        SELECT coalesce(l.token, r.token), l.left_n, r.n FROM lp.lease AS l
        FULL JOIN (SELECT token, count(*) AS n FROM lp.running GROUP BY token) AS r ON r.token = l.token
        WHERE l.left_n IS DISTINCT FROM r.n""",
    "a lease is of nobody": "SELECT token, session FROM lp.lease WHERE session NOT IN (SELECT id FROM lp.session)",
    "a token was given that may be given again": (
        "SELECT token FROM lp.lease WHERE token > (SELECT last_value FROM lp.tokens)"
    ),
    "a session that is gone sleeps": "SELECT session FROM lp.sleeper EXCEPT SELECT id FROM lp.session",
    "a success is noted under no lease": """
        SELECT s.id, s.token FROM lp.settled AS s LEFT JOIN lp.running AS r ON r.id = s.id AND r.token = s.token
        WHERE r.id IS NULL""",
    # -- gates
    "a gate does not count its slots": """
        SELECT g.key, g.used, count(c.id) FROM lp.gate AS g LEFT JOIN charge AS c ON c.gate = g.key AND c.slot
        GROUP BY g.key, g.used HAVING g.used <> count(c.id)""",
    "slots are taken of a gate that is not there": (
        "SELECT c.id, c.gate FROM charge AS c WHERE c.slot AND c.gate NOT IN (SELECT key FROM lp.gate)"
    ),
    "a budget does not count what is reserved of it": """
        SELECT g.key, g.spent, sum(c.cost) FROM lp.gate AS g JOIN charge AS c ON c.gate = g.key
        WHERE g.cap IS NOT NULL AND lp.period_began(g.period, c.claimed_ms) = g.period_ms
        GROUP BY g.key, g.spent HAVING g.spent < sum(c.cost)""",
    "a breaker waits for a probe that nobody runs": """
        SELECT g.key, g.probe_token FROM lp.gate AS g WHERE g.probe_token <> 0
          AND NOT EXISTS (SELECT FROM charge AS c WHERE c.gate = g.key AND c.probe AND c.token = g.probe_token)""",
    # -- unique keys
    "a key is held by a job that is not its own": """
        SELECT u.key, u.job FROM lp.unique_key AS u LEFT JOIN lp.job AS j ON j.id = u.job
        WHERE (j.id IS NULL) <> (u.states = 0) OR j.id IS NOT NULL AND j.unique_key IS DISTINCT FROM u.key""",
    "a job that lives does not hold its key": """
        SELECT j.id, j.unique_key FROM lp.job AS j JOIN place AS p ON p.id = j.id AND p.state <= 3
        LEFT JOIN lp.unique_key AS u ON u.key = j.unique_key
        WHERE j.unique_key IS NOT NULL AND j.unique_states & 15 = 15 AND u.job IS DISTINCT FROM j.id""",
    "a job is found by a key that is not its own": """
        SELECT k.id, k.key FROM lp.key_job AS k JOIN lp.job AS j ON j.id = k.id
        WHERE lp.bare_key(j.unique_key) IS DISTINCT FROM k.key""",
    "a job is not found by its key": """
        SELECT j.id, j.unique_key FROM lp.job AS j LEFT JOIN lp.key_job AS k ON k.id = j.id
        WHERE j.unique_key IS NOT NULL AND k.id IS NULL""",
    # -- who waits for whom
    "a job is blocked by nobody": """
        SELECT w.id FROM lp.wait AS w WHERE w.state = 0
          AND NOT EXISTS (SELECT FROM open_dep AS d WHERE d.child = w.id)""",
    "a job goes on though a parent has not ended": (
        "SELECT child, parent, child_state FROM open_dep WHERE child_state BETWEEN 1 AND 4"
    ),
    "a job waits for a parent that will not release it": """
        SELECT d.child, d.parent, d.mode, d.parent_state FROM open_dep AS d WHERE d.child_state = 0
          AND NOT EXISTS (SELECT FROM lp.post AS p WHERE p.kind = 2 AND p.id = d.child)
          AND (
            d.parent_state IS NULL OR d.parent_state IN (5, 6) AND d.mode <> 2
            OR d.parent_state = 4 AND d.parent NOT IN (SELECT parent FROM lp.fan)
          )""",
    "a job waits for a parent that it does not look for any more": """
        SELECT d.child, d.parent FROM open_dep AS d JOIN lp.dep_far AS f ON f.child = d.child
        WHERE d.parent >= f.parent""",
    # -- counting
    "counts differ from what is stored": """
        SELECT coalesce(c.queue, f.queue), coalesce(c.task, f.task), coalesce(c.what, f.state), c.n, f.n FROM (
          SELECT queue, task, what, sum(n) AS n FROM counted WHERE what < 10
          GROUP BY queue, task, what HAVING sum(n) <> 0
        ) AS c FULL JOIN (
          SELECT l.queue, l.task, p.state, count(*) AS n FROM place AS p JOIN named AS l ON l.id = p.lane
          GROUP BY l.queue, l.task, p.state
        ) AS f ON (f.queue, f.task, f.state) = (c.queue, c.task, c.what) WHERE c.n IS DISTINCT FROM f.n""",
    "a tenant does not count its jobs": """
        SELECT x.queue, x.tenant, x.what, sum(x.n), sum(x.jobs) FROM (
          SELECT queue, task AS tenant, what, n, 0 AS jobs FROM lp.count WHERE what IN (22, 23)
          UNION ALL
          SELECT l.queue, l.tenant, CASE u.what WHEN 3 THEN 23 ELSE 22 END, u.n, 0 FROM lp.tally AS t
          CROSS JOIN LATERAL unnest(t.whats, t.ns) AS u (what, n) JOIN named AS l ON l.id = t.lane
          WHERE u.what <= 3 AND l.tenant IS NOT NULL
          UNION ALL
          SELECT l.queue, l.tenant, CASE p.state WHEN 3 THEN 23 ELSE 22 END, 0, 1 FROM place AS p
          JOIN named AS l ON l.id = p.lane WHERE p.state <= 3 AND l.tenant IS NOT NULL
        ) AS x GROUP BY x.queue, x.tenant, x.what HAVING sum(x.n) <> sum(x.jobs)""",
    "not all that was enqueued is accounted for": """
        SELECT e.n, s.n, x.n FROM (SELECT coalesce(sum(n), 0) AS n FROM counted WHERE what = 10) AS e,
          (SELECT count(*) AS n FROM place WHERE state NOT IN (4, 6)) AS s,
          (SELECT coalesce(sum(n), 0) AS n FROM counted WHERE what IN (11, 12, 13)) AS x WHERE e.n <> s.n + x.n""",
    "a lane does not count its jobs": """
        SELECT n.id, n.jobs, t.n, j.n FROM lp.lane_now AS n
        LEFT JOIN (SELECT lane, count(*) AS n FROM lp.job GROUP BY lane) AS j ON j.lane = n.id
        LEFT JOIN (
          SELECT y.lane, sum(CASE u.what WHEN 20 THEN -u.n ELSE u.n END) AS n FROM lp.tally AS y
          CROSS JOIN LATERAL unnest(y.whats, y.ns) AS u (what, n) WHERE u.what IN (10, 20, 21) GROUP BY y.lane
        ) AS t ON t.lane = n.id WHERE n.jobs + coalesce(t.n, 0) <> coalesce(j.n, 0)""",
    "causes differ from the dead": """
        SELECT coalesce(c.cause, d.cause), c.n, d.n FROM (
          SELECT cause, queue, task, sum(n) AS n FROM (
            SELECT cause, queue, task, n FROM lp.cause UNION ALL SELECT cause, queue, task, n FROM lp.cause_tally
          ) AS a GROUP BY cause, queue, task HAVING sum(n) <> 0
        ) AS c FULL JOIN (
          SELECT o.cause, l.queue, l.task, count(*) AS n FROM lp.done AS o JOIN named AS l ON l.id = o.lane
          WHERE o.state = 5 GROUP BY o.cause, l.queue, l.task
        ) AS d ON (d.cause, d.queue, d.task) = (c.cause, c.queue, c.task) WHERE c.n IS DISTINCT FROM d.n""",
}  # fmt: skip


def faults_on(line: psycopg.Connection[Any], schema: str, now_ms: int) -> list[str]:
    """Where the places of a schema disagree, as this connection's transaction sees them; nothing in a sound one."""

    def sql(text: str) -> bytes:
        return in_schema(text, schema).replace("{now}", str(now_ms)).encode()

    found = []
    with line.transaction(force_rollback=True):
        line.execute(sql(WORDS))
        for what, query in FAULTS.items():
            rows = line.execute(sql(query)).fetchall()
            if rows:
                shown = "; ".join(", ".join(_shown(value) for value in row) for row in rows[:SHOWN])
                found.append(f"{what}: {shown}" + (f" and {len(rows) - SHOWN} more" if len(rows) > SHOWN else ""))
    return found


def faults(server: PostgresServer, schema: str, now_ms: int | None = None) -> list[str]:
    """The same in a snapshot of its own; without a time, it is the server's."""
    with contextlib.closing(psycopg.connect(server.url, autocommit=True)) as line:
        line.isolation_level = psycopg.IsolationLevel.REPEATABLE_READ
        return faults_on(line, schema, int(time.time() * 1000) if now_ms is None else now_ms)


def _shown(value: object) -> str:
    return value.hex() if isinstance(value, bytes) else str(value)
