"""Functions in Lua and SQL stay short: no linter measures them, so these tests do."""

from __future__ import annotations

from typing import Final

import pytest

from tests.arch.functions import functions_of, lua_functions, sql_functions
from tests.arch.tree import PACKAGE, written_files

LONGEST: Final = 60
LONG: Final = 40

# Longer ones, with their lengths: they may shrink and not grow, and none may join them.
EXCEPTIONS: Final[dict[str, dict[str, int]]] = {
    ".lua": {},
    ".sql": {},
}
FEW: Final = {".lua": 3, ".sql": 18}  # functions of more than LONG lines: the number may fall and not rise


def lengths(suffix: str) -> dict[str, int]:
    """Every function of the package, by its file and name."""
    files = [path for path in written_files(PACKAGE) if path.suffix == suffix]
    return {f"{path.name}: {each.name}": each.length for path in files for each in functions_of(path)}


@pytest.mark.parametrize("suffix", [".lua", ".sql"])
def test_no_function_is_longer_than_a_page(suffix: str) -> None:
    too_long = {name: length for name, length in lengths(suffix).items() if length > LONGEST}
    allowed = EXCEPTIONS[suffix]
    assert {name: length for name, length in too_long.items() if length > allowed.get(name, 0)} == {}
    assert sorted(allowed.keys() - too_long.keys()) == [], "they are short by now: take them off the list"


@pytest.mark.parametrize("suffix", [".lua", ".sql"])
def test_few_functions_are_long(suffix: str) -> None:
    long = sorted(name for name, length in lengths(suffix).items() if length > LONG)
    assert len(long) <= FEW[suffix], long


def test_lua_is_measured_by_its_lines_of_code() -> None:
    text = """-- A comment with function and end.
local function first(x) -- if
  for i = 1, x do

    if i > 2 then return "end" end
  end
  repeat
    x = x - 1
  until x == 0
end

function base.second()
  return function()
    return 1
  end
end

waits[1] = function(r)
  return r
end
return first(1)
"""
    found = {each.name: each.length for each in lua_functions(text)}
    assert found == {"first": 8, "base.second": 5, "(line 13)": 3, "waits[1]": 3, "(top)": 1}


def test_sql_is_measured_by_its_lines_of_code() -> None:
    text = """-- CREATE FUNCTION in a comment
CREATE FUNCTION lp.one(a int) RETURNS int
LANGUAGE sql AS $$
  -- nothing

  SELECT a
$$;
CREATE OR REPLACE PROCEDURE lp.two() LANGUAGE plpgsql AS $body$
BEGIN
  PERFORM $$ x $$;
END
$body$;
"""
    assert {each.name: each.length for each in sql_functions(text)} == {"lp.one": 4, "lp.two": 5}
