"""What tests draw at random is the same in every run, unless LIMPET_SEED says otherwise."""

from __future__ import annotations

import pytest

from limpet_contract.seeds import VARIABLE, chance_of, seed_of


@pytest.fixture(autouse=True)
def unsaid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)


def test_a_test_has_its_own_seed_and_prints_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert seed_of(7) == 7
    assert capsys.readouterr().out == "seed 7\n"
    assert chance_of(7).random() == chance_of(7).random() != chance_of(8).random()


def test_another_seed_for_all_gives_each_another(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = []
    for said in ("1", "1", "2"):
        monkeypatch.setenv(VARIABLE, said)
        found.append([seed_of(usual) for usual in range(100)])
    assert found[0] == found[1] != found[2]
    assert len({seed for seeds in found for seed in seeds}) == 200
    assert capsys.readouterr().out.endswith(f"seed {found[2][99]}, by LIMPET_SEED=2\n")


def test_each_part_of_a_test_draws_for_itself() -> None:
    assert chance_of(7, "walker 1").random() == chance_of(7, "walker 1").random()
    assert len({chance_of(7, part).random() for part in ("", "walker 1", "walker 2")}) == 3
