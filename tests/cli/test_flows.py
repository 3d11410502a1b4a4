"""Commands about flows: the list, the tree, cancelling and running again."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from limpet import Dead, Limpet, chain, chord
from limpet.cli.tree import Line, Node, drawn
from tests.cli.conftest import Cli


def report(cli: Cli, *, bad: str = "stock") -> str:
    """A flow of five, one of which dies unless `bad` names none of them; its id."""
    app = Limpet(f"sqlite:///{cli.path}?sync=normal")

    @app.task(name="shop.fetch", retry=1)
    async def fetch(what: str) -> str:
        if what == bad:
            raise Dead(f"no {what}")
        return what

    @app.task(name="shop.join", retry=1)
    async def join(a: Any, b: Any = None) -> Any:
        return [a, b]

    async def whole() -> str:
        async with app:
            flow = app.flow("report")
            sales, stock = (flow.add(fetch.job(what), name=what) for what in ("sales", "stock"))
            render = flow.add(join.job(sales, stock), name="render")
            side = flow.add(join.job(sales), name="side")
            flow.add(join.options(if_parent_fails="run").job(render, side), name="mail")
            await flow.enqueue()
            await app.work(until_empty=True)
            return flow.id

    return asyncio.run(whole())


def waiting(cli: Cli, count: int = 3) -> str:
    """A chord that nobody has begun with; its id."""
    app = Limpet(f"sqlite:///{cli.path}?sync=normal")

    @app.task(name="shop.resize")
    def resize(n: int) -> int:
        return n

    @app.task(name="shop.album")
    def album(all: list[int]) -> int:
        return len(all)

    async def whole() -> str:
        async with app:
            parts = [chain(resize.job(n), resize.job()) for n in range(count)]
            return (await chord(parts, album.job(), name="album").enqueue()).flow.id

    return asyncio.run(whole())


def test_flows_are_listed_newest_first(cli: Cli) -> None:
    first, second = report(cli), waiting(cli)
    shapes = cli("flows", "--json").json["flows"]
    assert [shape["id"] for shape in shapes] == [second, first]
    assert shapes[1] | {"enqueued_at": None} == {
        "id": first,
        "name": "report",
        "state": "dead",
        "done": 5,
        "total": 5,
        "counts": {"succeeded": 3, "dead": 1, "cancelled": 1},
        "enqueued_at": None,
    }
    out = cli("flows").out.splitlines()
    assert out[0].split()[:4] == ["ID", "NAME", "STATE", "DONE"]
    assert out[2].split()[:4] == [first, "report", "dead", "5/5"]
    page = cli("flows", "-n", "1")
    assert f"more: --before {second}" in page.err
    assert [msgspec.json.decode(line)["id"] for line in cli("flows", "--before", second, "--jsonl").out.split()] == [
        first
    ]


def test_no_flows(cli: Cli) -> None:
    cli("migrate")
    assert cli("flows", "--json").json == {"flows": []}
    assert "no flows" in cli("flows").err
    cli("flow", "01900000-0000-7000-8000-000000000000", code=3)


def test_a_flow_is_drawn_as_a_tree_with_the_names_of_its_nodes(cli: Cli) -> None:
    id = report(cli)
    lines = cli("flow", id).out.splitlines()
    assert lines[:2] == [f"flow {id}", "report: dead, 5 of 5 done (3 succeeded, 1 dead, 1 cancelled)"]
    words = [line.split("  ")[0] if "  " in line else line for line in lines[2:]]
    assert words[0] == "├─ sales"
    assert any(line.startswith("└─ stock") and "dead" in line and "limpet.Dead: no stock" in line for line in lines)
    assert any("render" in line and "cancelled" in line and "parent stock is dead" in line for line in lines)
    assert any("mail" in line and "after render, side" in line for line in lines)
    shape = cli("flow", id[-8:], "--json").json
    assert shape["id"] == id
    assert [node["node"] for node in shape["nodes"]] == ["sales", "stock", "render", "side", "mail"]
    assert shape["nodes"][2]["after"] == ["sales", "stock"]
    assert cli("flow", "show", shape["nodes"][0]["id"], "--json").json == shape


def test_a_flow_is_retried_where_it_died(cli: Cli) -> None:
    id = report(cli)
    assert "would retry 1 job" in cli("flow", "retry", id, "--dry-run").out
    assert cli("flow", "retry", id, "--reason", "fixed", "--json").json["answers"] == {"retried": 1}
    assert cli("flow", id, "--json").json["state"] == "running"
    (entry,) = cli("audit", "--json").json["entries"]
    assert (entry["kind"], entry["reason"], entry["data"]["flow"]) == ("flow.retry", "fixed", id)
    assert id in cli("audit").out


def test_a_flow_runs_again_from_a_node_on(cli: Cli) -> None:
    id = report(cli, bad="")
    assert "run again: 3 enqueued" in cli("flow", "retry", id, "--from", "stock").out
    shape = cli("flow", id, "--json").json
    assert [(node["node"], node["run"], node["state"]) for node in shape["nodes"]] == [
        ("sales", 1, "succeeded"),
        ("stock", 2, "ready"),
        ("render", 2, "blocked"),
        ("side", 1, "succeeded"),
        ("mail", 2, "blocked"),
    ]
    assert [node["node"] for node in shape["past"]] == ["stock", "render", "mail"]
    assert "3 earlier runs" in cli("flow", id).out
    wrong = cli("flow", "retry", id, "--from", "stok", code=2)
    assert "did you mean 'stock'" in wrong.err


def test_a_flow_is_cancelled(cli: Cli) -> None:
    id = waiting(cli)
    assert "would cancel 7 jobs" in cli("flow", "cancel", id, "--dry-run").out
    assert "cancel: 7 cancelled" in cli("flow", "cancel", id, "--reason", "not wanted").out
    shape = cli("flow", id, "--json").json
    assert {(node["state"], node["reason"]) for node in shape["nodes"]} == {("cancelled", "not wanted")}
    assert "no job matched" in cli("flow", "cancel", id).out


def test_somebody_may_wait_for_a_flow(cli: Cli) -> None:
    done, dead, unbegun = report(cli, bad=""), report(cli), waiting(cli)
    cli("flow", done, "--wait")
    cli("flow", dead, "--wait", code=1)
    cli("flow", unbegun, "--wait", "--timeout", "10ms", code=7)


def test_a_command_that_is_none_is_taken_for_an_id(cli: Cli) -> None:
    waiting(cli)
    assert "not a job id" in cli("flow", "cancle", code=3).err
    assert "Usage: limpet flow" in cli("flow", "--help").out


# -- the drawing


def node(name: str, *after: str, task: str = "t", state: str = "succeeded", **more: object) -> Node:
    plain = {"id": name, "attempt": 1, "run": 1, "after_jobs": [], "error": None, "reason": None, "took_s": None}
    return {"node": name, "after": list(after), "task": task, "state": state, **plain, **more}


def text(*nodes: Node, everything: bool = False) -> list[str]:
    return [f"{line.branch}{line.name}" for line in drawn(nodes, everything=everything)]


@pytest.mark.parametrize(
    ("nodes", "expected"),
    [
        ([node("a")], ["└─ a"]),
        ([node("a"), node("b", "a"), node("c", "b")], ["└─ a", "   └─ b", "      └─ c"]),
        ([node("a"), node("b", "a"), node("c", "a")], ["└─ a", "   ├─ b", "   └─ c"]),
        ([node("c", "a", "b"), node("b"), node("a")], ["├─ a", "└─ b", "   └─ c"]),
        ([node("a"), node("b", "elsewhere")], ["├─ a", "└─ b"]),
    ],
)
def test_each_node_stands_once_below_the_last_it_waits_for(nodes: list[Node], expected: list[str]) -> None:
    assert text(*nodes) == expected


def test_many_like_nodes_are_summed_up() -> None:
    nodes = [node(f"n{number}") for number in range(10)] + [node(f"m{number}", f"n{number}") for number in range(9)]
    assert text(*nodes, node("end", "n9", task="end")) == [
        "├─ n0",
        "│  └─ m0",
        "├─ n1",
        "│  └─ m1",
        "├─ n2",
        "│  └─ m2",
        "├─ … 6 more of t like these, succeeded",
        "└─ n9",
        "   └─ end",
    ]
    assert len(text(*nodes, everything=True)) == 19


def test_a_line_says_what_there_is_to_say() -> None:
    (line,) = drawn(
        [node("x", state="dead", took_s=1.5, attempt=2, run=3, error="ValueError", reason="no", after_jobs=["j"])]
    )
    assert line == Line("└─ ", "x", "dead", "1.5s; attempt 2; run 3; after job j; ValueError: no")


def test_a_chain_of_thousands_needs_no_deep_stack() -> None:
    nodes = [node("0")] + [node(str(n), str(n - 1)) for n in range(1, 5_000)]
    assert len(text(*nodes)) == 5_000
    assert len(text(*reversed(nodes))) == 5_000
