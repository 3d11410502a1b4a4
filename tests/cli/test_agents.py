"""Commands of agents: a question and its answer, the skill that setup writes, the state that prime says."""

from __future__ import annotations

import re
from pathlib import Path

from limpet.cli.agents import agent
from limpet.core.endings.transition import Hold
from limpet.core.gate import GateRule
from limpet.ops import Agents
from limpet.stores.base import Store
from tests.cli.conftest import Cli
from tests.ops.making import ANY, claim, job, kill, put

BYTES_A_TOKEN = 4 / 1.06  # by bytes, four to a token, counts were within 6 % of a tokenizer's
SKILL_TOKENS, PRIME_TOKENS = 800, 500


def tokens(text: str) -> float:
    return len(text.encode()) / BYTES_A_TOKEN


async def one(store: Store) -> None:
    await put(store, job())


def claimed(cli: Cli) -> tuple[str, str]:
    got = cli("agent", "claim", "--agent", "a1", "--json").json
    return got["id"], str(got["token"])


def test_a_question_is_asked_listed_answered_and_read(cli: Cli) -> None:
    cli.seed(one)
    id, token = claimed(cli)
    ran = cli("agent", "block", id, "--token", token, "--question", "Which one?", "--json")
    assert (ran.json["answer"], ran.json["state"]) == ("done", "scheduled")
    assert "it waits for an answer to: Which one?" in cli("explain", id).out
    assert "Which one?" in cli("approvals").out
    assert cli("agent", "claim", "--agent", "a1", code=8).out == ""
    assert "continues" in cli("agent", "answer", id, "the second").out
    assert "was answered before" in cli("agent", "answer", id, "the first", code=4).err
    again = cli("agent", "claim", "--agent", "a2")
    assert re.search(r'event answer:1 \{"answer":"the second","by":".+"\}', again.out)
    assert 'question answer:1 {"question":"Which one?","by":"a1"}' in again.out


def test_a_failure_that_needs_a_person_takes_a_timeout(cli: Cli) -> None:
    cli.seed(one)
    id, token = claimed(cli)
    fail = ("agent", "fail", id, "--token", token, "--error", "Which one?")
    assert "a timeout does nothing for transient" in cli(*fail, "--timeout", "1h", code=2).err
    assert "waits for an answer" in cli(*fail, "--class", "needs-human", "--timeout", "1h").out
    assert "its time is over in" in cli("explain", id).out
    assert "asks nothing" in cli("agent", "answer", cli("enqueue", "x").out.strip(), "yes", code=2).err


def test_the_skill_is_short_and_names_commands_that_there_are(cli: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "skills" / "limpet"
    assert cli("agent", "setup", "--folder", str(folder), "--json").json == {"path": str(folder / "SKILL.md")}
    text = (folder / "SKILL.md").read_text()
    assert 400 < tokens(text) < SKILL_TOKENS
    named = set(re.findall(r"(?:limpet agent |\| `)([a-z]+) ", text))
    assert named <= set(agent.commands), named - set(agent.commands)
    assert {"claim", "heartbeat", "checkpoint", "complete", "fail", "release", "block"} <= named
    cli("agent", "setup", "--folder", str(folder))
    (folder / "SKILL.md").write_text("mine")
    assert "says something else" in cli("agent", "setup", "--folder", str(folder), code=2).err
    cli("agent", "setup", "--folder", str(folder), "--force")
    assert (folder / "SKILL.md").read_text() == text


def test_prime_says_how_the_queue_stands_and_what_the_agent_holds(cli: Cli) -> None:
    cli.seed(one)
    id, token = claimed(cli)
    out = cli("agent", "prime", "--agent", "a1").out
    assert f"you hold {id} --token {token}: send, attempt 1, lease ends in" in out
    assert "queue mail: 0 ready, 1 running, 0 later" in out
    assert "you hold" not in cli("agent", "prime", "--agent", "a2").out
    assert "you hold" not in cli("agent", "prime").out


async def crowded(store: Store) -> None:
    """More of everything than prime has room for, all with long names."""
    names = [f"{n:02}-{'a-long-name-' * 8}" for n in range(12)]
    for n, name in enumerate(names, 1):
        await put(store, job(name, name, limits=(name,)), rules=(GateRule(f"limit:{name}", concurrency=9),))
        (held,) = await claim(store)
        await store.settle("w1", n, [Hold(held.id, held.token, f"limit:{name}", 3_600_000)])
    await kill(store, job())
    await put(store, *(job(name, name) for name in names))
    agents = Agents(store)
    (asked,) = await agents.claim("a2", ANY)
    await agents.block(asked.id, asked.token, "Which one?")
    await agents.claim("a1", ANY, most=6)


def test_prime_stays_short(cli: Cli) -> None:
    cli.seed(crowded)
    ran = cli("agent", "prime", "--agent", "a1")
    assert tokens(ran.out) < PRIME_TOKENS, ran.out
    assert "1 jobs wait for a person" in ran.out
    assert "dead jobs wait" in ran.out
    shape = cli("agent", "prime", "--agent", "a1", "--json").json
    assert [len(shape[name]) for name in ("holds", "queues", "limits")] == [5, 5, 5]


TOML = """
[types."eng.api"]
queue = "eng"
capabilities = ["eng-backend"]
lease = "20m"
arguments = { required = ["ticket"] }
result = { type = "object", required = ["decision"] }
"""


def test_types_of_the_file_are_kept_to_from_the_first_job_on(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text(TOML)
    assert "ticket is missing" in cli("enqueue", "eng.api", code=2).err
    ran = cli("enqueue", "eng.api", '{"ticket": "T-1"}')
    assert "only JSON and size were checked" not in ran.err
    got = cli("agent", "claim", "--agent", "a1", "--capability", "eng-backend")
    assert 'the result must fit {"required":["decision"],"type":"object"}' in got.out
    id, token = got.out.split()[0], got.out.split()[2]
    refused = cli("agent", "complete", id, "--token", token, "--result", "{}", code=2)
    assert "decision is missing" in refused.err
    assert "complete it again" in refused.err
    cli("agent", "complete", id, "--token", token, "--result", '{"decision": "ship"}')
    assert cli("types").out.split()[-8:] == ["eng.api", "eng", "normal", "(5)", "eng-backend", "20m", "yes", "file"]


def test_types_are_changed_at_run_time(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text(TOML)
    cli("migrate")
    assert cli("types", "apply", "--json").json == {"types": ["eng.api"], "written": 1}
    ran = cli("types", "set", "eng.api", '{"lease": "1h"}', "--reason", "long")
    assert "lease_s" in ran.out
    assert "changed: lease" in ran.err
    assert cli("types", "show", "eng.api", "--json").json["set_by"]["lease"] == "operator"
    assert cli("types", "reset", "eng.api", "--json").json["lease_s"] == 1_200
    cli("types", "remove", "eng.api")
    assert "there is no type" in cli("types", "show", "eng.api", code=3).err


def test_an_unknown_key_of_a_type_is_an_error_of_every_command(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "limpet.toml").write_text('[types."eng.api"]\nquue = "eng"')
    ran = cli("jobs", code=2)
    assert "unknown key 'quue'" in ran.err
    assert "did you mean 'queue'" in ran.err


async def pushed_back(store: Store) -> None:
    await put(store, job(limits=("openai",)), rules=(GateRule("limit:openai", concurrency=9),))
    (held,) = await Agents(store).claim("a1", ANY)
    await Agents(store).fail(held.id, held.token, "429", kind="rate-limited", retry_after_ms=3_600_000)


def test_a_claim_that_finds_nothing_says_that_a_limit_is_held(cli: Cli) -> None:
    cli.seed(pushed_back)
    told = cli("agent", "claim", "--agent", "a2", code=8).err
    assert "nothing to claim; slow down, the provider holds back: openai for" in told
    shape = cli("agent", "claim", "--agent", "a2", "--json", code=8).json
    assert [one["limit"] for one in shape["held_limits"]] == ["openai"]
