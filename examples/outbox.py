"""Orders in one database, jobs in another: an order that commits gets its receipt, once, although a relay is killed.

Run it: python examples/outbox.py

The queue would usually be on Redis; a second SQLite file stands in for it, so that nothing needs to be started.
"""

import sqlite3
import subprocess
import sys
from tempfile import TemporaryDirectory

from limpet import Limpet


def relay(app: Limpet, outbox: str, *words: str) -> subprocess.Popen[bytes]:
    """`limpet outbox`: the relay has a process of its own."""
    command = [sys.executable, "-m", "limpet.cli", "outbox", "--url", app.url, "--outbox", outbox, *words]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def main(folder: str) -> None:
    outbox = f"sqlite:///{folder}/shop.db"
    app = Limpet(f"sqlite:///{folder}/queue.db", outbox=outbox)

    @app.task(name="receipt")
    def receipt(order: int) -> None:
        print(f"receipt for order {order}")

    relay(app, outbox, "--create").wait()
    conn = sqlite3.connect(f"{folder}/shop.db")
    conn.execute("CREATE TABLE orders (number INTEGER)")
    for order in (1, 2, 3, 4):
        conn.execute("INSERT INTO orders VALUES (?)", (order,))
        receipt.options(conn=conn).enqueue_sync(order)  # a row in the same transaction
        if order == 2:
            conn.rollback()  # the card was refused: no order, no job
        else:
            conn.commit()
    conn.close()

    victim = relay(app, outbox)
    victim.kill()  # at any point: the next one continues from there
    victim.wait()
    relay(app, outbox, "--once").wait()
    app.run(app.work(until_empty=True, concurrency=1))
    app.run(app.close())


if __name__ == "__main__":
    with TemporaryDirectory() as folder:
        main(folder)
