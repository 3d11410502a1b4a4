-- Promise: the tables of layout 2 are those of layout 1 and these beside them; verbs have changed. Inputs: none. Answer:
-- none. Nobody who works waits for it: what few jobs have lies in tables of its own, and no table of jobs is touched.
-- Min client: 1

-- hf.outcome has one more kind: 8 Suspend, with delay_ms (NULL: never by itself) and, as `gate`, the event that it waits for.

-- Jobs of a flow. Those of layout 1 are not here: no release that has it makes flows.
CREATE TABLE hf.flow_job (id bytea NOT NULL PRIMARY KEY, flow bytea NOT NULL);
CREATE INDEX flow_job_flow ON hf.flow_job (flow, id);

-- Jobs by the unique key that they hold or held, whatever their task. Those of layout 1 are only in unique_key, while
-- they are the last that had it.
CREATE TABLE hf.key_job (key bytea NOT NULL, id bytea NOT NULL, PRIMARY KEY (key, id));

-- A job that waits for very many: no parent of it from this one on, in the order of their ids, is waited for any more.
CREATE TABLE hf.dep_far (child bytea NOT NULL PRIMARY KEY, parent bytea NOT NULL) WITH (fillfactor = 10);

-- Where this schema lives: a name of its own among all schemas of all servers (the table's comment, which a caller's
-- transaction can ask for without failing), and the server whose transactions the floor speaks of.
CREATE TABLE hf.home (one boolean NOT NULL PRIMARY KEY DEFAULT true CHECK (one), server bigint NOT NULL);
INSERT INTO hf.home (server) SELECT c.system_identifier FROM pg_control_system() AS c;
DO $$
BEGIN
  EXECUTE 'COMMENT ON TABLE hf.home IS ' || quote_literal(gen_random_uuid());
END $$;
