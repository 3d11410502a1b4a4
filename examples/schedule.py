"""Jobs at times: a second hand, and a report that is made up for days without a worker.

Run it: python examples/schedule.py

On the command line: `limpet schedules`, `limpet schedules backfill nightly --from 2026-03-28 --to 2026-03-31`.
"""

import asyncio
from datetime import UTC, datetime

from limpet import Cron, Every, Limpet, current_job

app = Limpet("sqlite://")
stop = asyncio.Event()
seconds: list[datetime] = []
NIGHTLY = Cron("30 2 * * *", tz="Europe/Berlin", overlap="skip", catch_up="last")


@app.schedule(Every(1, overlap="allow", catch_up="all"))
@app.task(name="second_hand")
async def second_hand() -> None:
    tick = current_job().tick
    assert tick is not None
    seconds.append(tick)
    if len(seconds) == 2:
        stop.set()


@app.schedule(NIGHTLY, {"kind": "sales"}, name="nightly")
@app.task(name="report")
async def report(kind: str) -> None:
    print(f"{kind} report for {current_job().tick:%Y-%m-%d %H:%M} UTC")


async def main() -> None:
    async with app:
        await app.work(stop=stop)
        print(f"two ticks, {(seconds[1] - seconds[0]).total_seconds():g} s apart")

        # In Berlin there was no 02:30 on 29 March: the clock jumped from 02:00 to 03:00, and so did the tick.
        print(NIGHTLY.describe())
        await app.schedules.backfill("nightly", datetime(2026, 3, 28, tzinfo=UTC), datetime(2026, 3, 31, tzinfo=UTC))
        await app.work(until_empty=True)


if __name__ == "__main__":
    asyncio.run(main())
