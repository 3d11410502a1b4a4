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
