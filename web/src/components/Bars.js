// Bars of equal steps, such as the deaths of each of the last 24 hours.
import { html } from "../lib/html.js";

/** @param {{values: readonly number[], kind?: string, class?: string, label?: string}} props without label it is decoration */
export function Bars({ values, kind = "", class: more = "", label }) {
  const most = Math.max(1, ...values);
  const described = label ? { role: "img", "aria-label": label } : { "aria-hidden": "true" };
  return html`<svg
    class="bars ${kind} ${more}"
    viewBox="0 0 ${values.length * 4} 20"
    preserveAspectRatio="none"
    ...${described}
  >
    ${values.map((value, i) => {
      const height = value ? Math.max(3, (value / most) * 20) : 1;
      return html`<rect class=${value ? "" : "off"} x=${i * 4} y=${20 - height} width="3" height=${height} />`;
    })}
  </svg>`;
}

/** A line of values from 0, with its area. @param {{values: readonly number[], kind?: string, class?: string}} props */
export function Spark({ values, kind = "", class: more = "" }) {
  const most = Math.max(1e-9, ...values);
  const step = 100 / Math.max(1, values.length - 1);
  const points = values.map((value, i) => `${(i * step).toFixed(1)} ${(29 - (value / most) * 27).toFixed(1)}`);
  if (points.length < 2) return html`<svg class="spark ${more}" viewBox="0 0 100 30" aria-hidden="true" />`;
  return html`<svg class="spark ${kind} ${more}" viewBox="0 0 100 30" preserveAspectRatio="none" aria-hidden="true">
    <path class="area" d="M0 30L${points.join("L")}L100 30Z" />
    <path d="M${points.join("L")}" />
  </svg>`;
}
