"""Transfers between accounts, with SQLAlchemy on PostgreSQL: money moves once, whatever is killed when.

A transfer and the job that carries it out are stored in one transaction. The job moves the money, notes that it did and
ends in another one. So there is no moment at which a kill -9 could leave a transfer without a job, or do it twice.

    BANK_URL=postgresql://me@localhost/bank python examples/bank.py

Run it again, kill it in between: it continues where it was. It prints the balance of each account and the state of each
transfer.
"""

from __future__ import annotations

import asyncio
import os

from sqlalchemy import create_engine
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column

from limpet import Limpet, current_job

URL = os.environ.get("BANK_URL", "postgresql://localhost/bank")
app = Limpet(URL)
engine = create_engine(URL.replace("postgresql:", "postgresql+psycopg:", 1))


class Table(DeclarativeBase):
    pass


class Account(Table):
    __tablename__ = "account"
    name: Mapped[str] = mapped_column(primary_key=True)
    balance: Mapped[int]


class Transfer(Table):
    __tablename__ = "transfer"
    id: Mapped[int] = mapped_column(primary_key=True)
    source: Mapped[str]
    target: Mapped[str]
    amount: Mapped[int]
    state: Mapped[str] = mapped_column(default="asked")


@app.task
def carry_out(transfer_id: int) -> str:
    with Session(engine) as session, session.begin():
        transfer = session.get_one(Transfer, transfer_id)
        # In the order of their names, so that two transfers never wait for each other.
        accounts = {
            name: session.get_one(Account, name, with_for_update=True)
            for name in sorted((transfer.source, transfer.target))
        }
        if accounts[transfer.source].balance < transfer.amount:
            transfer.state = "refused"
        else:
            accounts[transfer.source].balance -= transfer.amount
            accounts[transfer.target].balance += transfer.amount
            transfer.state = "done"
        session.flush()
        current_job().complete_sync(session, transfer.state)
        return transfer.state


def ask(id: int, source: str, target: str, amount: int) -> None:
    """Store a transfer and its job, both or neither; asked again, it is the same transfer."""
    with Session(engine) as session, session.begin():
        if session.get(Transfer, id) is None:
            session.add(Transfer(id=id, source=source, target=target, amount=amount))
            session.flush()
            carry_out.options(conn=session).enqueue_sync(id)


def open_bank() -> None:
    Table.metadata.create_all(engine)
    with Session(engine) as session, session.begin():
        for name in ("ada", "bob"):
            if session.get(Account, name) is None:
                session.add(Account(name=name, balance=100))


def main() -> None:
    open_bank()
    ask(1, "ada", "bob", 70)
    ask(2, "bob", "ada", 50)
    ask(3, "ada", "bob", 500)
    asyncio.run(app.work(until_empty=True))
    with Session(engine) as session:
        for account in session.query(Account).order_by(Account.name):
            print(f"{account.name} has {account.balance}")
        for transfer in session.query(Transfer).order_by(Transfer.id):
            print(f"{transfer.amount} from {transfer.source} to {transfer.target}: {transfer.state}")


if __name__ == "__main__":
    main()
