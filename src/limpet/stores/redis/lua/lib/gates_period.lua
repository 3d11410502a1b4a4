-- Promise: the calendar of core/limits/period.py, number for number: minutes, hours, days, weeks and months in UTC.
-- Inputs: the name of a period; an instant in milliseconds since 1970.
-- Answer: instants in milliseconds.
gates_period = {}
do
  local floor = math.floor
  local MINUTE, HOUR, DAY = 60000, 3600000, 86400000
  local began = {}

  -- 1 to 31, for a day counted from 1970.
  local function day_of_month(day)
    local of_era = (day + 719468) % 146097  -- days since a 1 March that begins 400 years
    local year = floor((of_era - floor(of_era / 1460) + floor(of_era / 36524) - floor(of_era / 146096)) / 365)
    local of_year = of_era - (365 * year + floor(year / 4) - floor(year / 100))  -- days since 1 March
    local month = floor((5 * of_year + 2) / 153)
    return of_year - floor((153 * month + 2) / 5) + 1
  end

  function began.minute(now) return now - now % MINUTE end

  function began.hour(now) return now - now % HOUR end

  function began.day(now) return now - now % DAY end

  function began.week(now)
    local day = floor(now / DAY)
    return (day - (day + 3) % 7) * DAY  -- the first day of 1970 was a Thursday
  end

  function began.month(now)
    local day = floor(now / DAY)
    return (day - day_of_month(day) + 1) * DAY
  end

  local LENGTHS = {minute = MINUTE, hour = HOUR, day = DAY, week = 7 * DAY}

  -- True for a name that stands for a period.
  function gates_period.is_known(name) return began[name] ~= nil end

  -- When the period began that `now` is in; weeks begin on Mondays.
  function gates_period.began(name, now) return began[name](now) end

  -- When the period ends that `now` is in: the first instant of the next.
  function gates_period.ends(name, now)
    local first, length = began[name](now), LENGTHS[name]
    return length and first + length or began.month(first + 31 * DAY)  -- in the next month, whatever day that is
  end
end
