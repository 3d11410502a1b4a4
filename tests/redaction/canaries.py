"""An app into which secrets are planted wherever a user's secret can be: each one says where it was."""

from __future__ import annotations

import logging
import secrets
from contextlib import suppress
from typing import Any, Final

from limpet import Dead, Every, JobRecord, Limpet, Secret, Snooze, StepFailed, chain, current_job
from limpet.client.handle import JobHandle

LOG: Final = logging.getLogger("shop")


class Canaries(dict[str, str]):
    """Secrets by where they are planted. Each has a core that no quoting, cutting or encoding changes."""

    def plant(self, where: str) -> str:
        """A new secret, with what is hard to find again in it."""
        core = self[where] = secrets.token_hex(8)
        return f"c'\"{core}\\é/&"

    def sung(self, text: str) -> set[str]:
        """Where the secrets were planted that can be seen in the text."""
        return {where for where, core in self.items() if core in text or core[:9] in text or core[-9:] in text}


def refuse(pin: str) -> None:
    raise ValueError(f"the step refused {pin}")


class Shop:
    """The app with its tasks, and what its hook was told."""

    def __init__(self, url: str, namespace: str) -> None:
        self.canaries = Canaries()
        self.told: list[dict[str, Any]] = []
        self.jobs: dict[str, JobHandle[Any]] = {}
        self.app = app = Limpet(
            url, namespace=namespace, redact=["password", "card.number", "*token*", "meta.session", "args.pem"]
        )
        plant = self.canaries.plant

        @app.task(name="login", retry=[0])
        async def login(user: str, pin: Secret[str], form: dict[str, Any], pem: str = "") -> None:
            job, secret = current_job(), pin.get_secret_value()
            job.log(f"pin {secret}, password {form['password']}")
            job.log("x" * 1_990 + secret)  # cut in its middle
            job.progress(1, 2, f"trying {secret!r}")
            LOG.warning("pin is %s and %r", secret, pin)
            LOG.error("the password is %r", form["password"], extra={"card": form["cards"][0]["card"]["number"]})
            await job.save({"token": plant("checkpoint"), "seen": secret if user == "ada" else ""})
            step = await job.step("charge", lambda: {"token": plant("step"), "seen": secret if user == "ada" else ""})
            with suppress(StepFailed):
                await job.step.options(on_error="keep")("kept", refuse, secret)
            try:
                raise KeyError(secret)
            except KeyError as error:
                raise (
                    Dead(f"{'y' * 1_985}{secret} {step['token']}")
                    if user == "long"
                    else ValueError(f"bad {secret} {step['token']} {form!r} {pem.splitlines()[1]}")
                ) from error

        @app.task(name="issue", redact=["result.key"])
        async def issue(pin: Secret[str]) -> dict[str, str]:
            return {"token": plant("result"), "key": plant("result key"), "echo": pin.get_secret_value()}

        @app.task(name="use", retry=1)
        async def use(issued: dict[str, str]) -> None:
            raise ValueError(f"refused {issued['token']}")

        @app.task(name="pay")
        async def pay(pin: Secret[str]) -> None:
            said = await current_job().approval(f"pay with {pin.get_secret_value()}?")
            raise ValueError(said.comment)

        @app.task(name="wait")
        async def wait(pin: Secret[str]) -> None:
            raise Snooze(3_600, f"not now: {pin.get_secret_value()}")

        @app.schedule(Every("1h"), {"pin": plant("schedule"), "password": plant("schedule key")})
        @app.task(name="tick")
        async def tick(pin: Secret[str], password: str) -> Secret[str]:
            return Secret(plant("secret result"))

        @app.on_dead
        async def alert(job: JobRecord) -> None:
            self.told.append(job.to_dict())

        self.login, self.issue, self.use, self.pay, self.wait, self.tick = login, issue, use, pay, wait, tick

    def form(self, where: str) -> dict[str, Any]:
        """An argument with secrets inside."""
        plant = self.canaries.plant
        cards = [{"card": {"number": plant(f"{where} list item"), "name": "Ada"}}]
        return {"password": plant(f"{where} nested"), "cards": cards, "API_Token": plant(f"{where} pattern")}

    async def play(self) -> None:
        """Enqueue and run all of it."""
        plant = self.canaries.plant
        pin, pem = plant("pin"), f"-----BEGIN-----\n{plant('pem line')}{plant('pem end')}\n-----END-----"
        asked = self.login.options(meta={"session": plant("meta"), "pin": pin})
        self.jobs["login"] = await asked.enqueue("ada", Secret(pin), self.form("args"), pem)
        named = {"user": "long", "pin": plant("by name"), "form": self.form("named"), "pem": pem}
        self.jobs["long"] = await self.app.enqueue("login", named)
        self.jobs["issue"] = await self.issue.enqueue(Secret(plant("issue")))
        self.jobs["use"] = await chain(self.issue.job(Secret(plant("chain"))), self.use.job()).enqueue()
        self.jobs["pay"] = await self.pay.enqueue(Secret(plant("approval")))
        self.jobs["wait"] = await self.wait.enqueue(Secret(plant("snooze")))
        self.jobs["tick"] = await self.tick.enqueue(Secret(plant("tick")), plant("tick key"))
        await self.app.work(until_empty=True)
        await self.jobs["wait"].signal("paid", {"password": plant("signal")})
