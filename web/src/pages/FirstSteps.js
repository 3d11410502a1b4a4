// What a person sees before the first job: three steps that tick themselves off.
import { html } from "../lib/html.js";
import { useData } from "../lib/answers.js";
import { Copy } from "../components/Copy.js";
import { Icon, Mark } from "../components/Icon.js";

const STEPS = [
  {
    title: "Declare a task",
    text: "A function that runs later, in a worker.",
    code: 'from limpet import Limpet\n\napp = Limpet()\n\n@app.task(name="email.send")\nasync def send(to: str) -> None:\n    print("to", to)',
  },
  {
    title: "Start a worker",
    text: "It takes jobs, as many as there are, and keeps what they say.",
    code: "limpet worker shop:app",
  },
  {
    title: "Ask for a job",
    text: "From your program, the command line, or over HTTP. It shows here at once.",
    code: 'limpet enqueue email.send \'{"to": "a@b.c"}\'',
  },
];

export function FirstSteps() {
  const workers = useData("/workers").value.value?.workers.length ?? 0;
  const tasks = useData("/tasks").value.value?.tasks.length ?? 0;
  const done = [tasks > 0, workers > 0, false];
  return html`<section class="panel narrow" aria-labelledby="hello">
    <div class="hello">
      <${Mark} />
      <div>
        <h2 id="hello">No job has been here yet</h2>
        <p class="mid">Three steps, in any order.</p>
      </div>
    </div>
    <ol class="onboard">
      ${STEPS.map(
        ({ title, text, code }, i) =>
          html`<li>
            <span class="mark ${done[i] ? "done" : ""}"
              >${done[i] ? html`<${Icon} name="tick" /><span class="sr">done</span>` : i + 1}</span
            >
            <div class="stack close">
              <h3>${title}</h3>
              <p class="mid">${text}</p>
              <div class="row">
                <pre class="term grow" tabindex="0">${code}</pre>
                <${Copy} text=${code} what="The example" />
              </div>
            </div>
          </li>`,
      )}
    </ol>
  </section>`;
}
