"""The smallest program: a task, a job, a worker in the same process. Run it: python examples/hello.py"""

from limpet import Limpet

app = Limpet("sqlite://")  # in memory; leave the URL out and the jobs live in limpet.db


@app.task
def greet(name: str) -> str:
    return f"Hello, {name}"


if __name__ == "__main__":
    job = greet.enqueue_sync("Ada")
    app.run(app.work(until_empty=True))
    print(app.run(job.result(timeout=5)))
    app.run(app.close())
