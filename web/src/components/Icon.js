// Draws the icons of controls and places: one line, in the colour of the text around it.
import { html } from "../lib/html.js";

/** @type {Record<string, any>} */
const ICONS = {
  overview: html`<path d="M2.5 13V8.500M6.200 13V3M9.800 13V6.500M13.500 13V9.500" />`,
  queues: html`<rect x="2.2" y="2.8" width="11.6" height="2.8" rx="1" /><rect
      x="2.2"
      y="6.8"
      width="9"
      height="2.8"
      rx="1"
    /><rect x="2.2" y="10.8" width="6" height="2.8" rx="1" />`,
  jobs: html`<path d="M5.8 4h8M5.8 8h8M5.8 12h8" /><path d="M2.4 4h.2M2.4 8h.2M2.4 12h.2" stroke-width="2" />`,
  tasks: html`<path d="M5.400 4.400 2.200 8l3.200 3.600M10.600 4.400 13.800 8l-3.200 3.600M9.200 3 6.800 13" />`,
  flows: html`<rect x="1.8" y="6" width="4" height="4" rx="1" /><rect x="10.2" y="2" width="4" height="4" rx="1" /><rect
      x="10.2"
      y="10"
      width="4"
      height="4"
      rx="1"
    /><path d="M5.8 8h2.2M10.2 4H9a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h1.2" />`,
  schedules: html`<rect x="2.2" y="3" width="11.6" height="10.6" rx="1.5" /><path
      d="M2.2 6.4h11.600M5.4 1.8v2.4M10.6 1.8v2.4"
    /><path d="M8 8.4v2l1.3.8" />`,
  dead: html`<path d="M2 9.2h3.2l1 1.800h3.600l1-1.800H14" /><path
      d="M2 9.2 4 3.4h8l2 5.8v3a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1Z"
    />`,
  approvals: html`<circle cx="6.2" cy="5" r="2.6" /><path
      d="M1.8 13.4c.4-2.6 2.2-4 4.4-4 1 0 1.900.3 2.600.8M9.800 12l1.500 1.500 3-3.200"
    />`,
  limits: html`<path d="M2.300 11.800a6.200 6.200 0 1 1 11.400 0" /><path d="M8 9.400 10.800 5.800" /><circle
      cx="8"
      cy="9.600"
      r=".9"
    />`,
  workers: html`<rect x="3.6" y="3.6" width="8.8" height="8.8" rx="1.5" /><rect
      x="6.3"
      y="6.3"
      width="3.4"
      height="3.4"
      rx=".6"
    /><path d="M6 1.600v2M10 1.600v2M6 12.400v2M10 12.400v2M1.600 6h2M1.600 10h2M12.400 6h2M12.400 10h2" />`,
  agents: html`<rect x="2.6" y="5.2" width="10.8" height="8" rx="2" /><path d="M8 5.200V2.600M6 9v.6M10 9v.6" /><circle
      cx="8"
      cy="2.2"
      r=".7"
    />`,
  audit: html`<path d="M4 1.900h5.500L12.600 5v9H4Z" /><path d="M6.300 7h4M6.300 9.400h4M6.300 11.800h2.400" />`,
  settings: html`<path d="M2 4.600h6M12 4.600h2M2 11.400h2M8 11.400h6" /><circle cx="10" cy="4.6" r="1.8" /><circle
      cx="6"
      cy="11.4"
      r="1.8"
    />`,
  operations: html`<path d="M2.600 4.400h7M2.600 8h5M2.600 11.600h3" /><path d="M9.600 8.400v4.800l3.800-2.400Z" />`,
  search: html`<circle cx="7" cy="7" r="4.5" /><path d="m10.400 10.400 3.400 3.400" />`,
  moon: html`<path d="M13.400 9.600A5.800 5.800 0 0 1 6.400 2.600a5.800 5.800 0 1 0 7 7Z" />`,
  help: html`<circle cx="8" cy="8" r="6" /><path
      d="M6.200 6.300a1.900 1.900 0 1 1 2.600 1.900c-.5.2-.8.5-.8 1v.3M8 11.400v.1"
    />`,
  pause: html`<path d="M5.400 3.400v9.200M10.600 3.400v9.200" stroke-width="2" />`,
  more: html`<path d="M2.600 4.400h10.800M2.600 8h10.800M2.600 11.600h10.800" />`,
  right: html`<path d="m6 4 4 4-4 4" />`,
  down: html`<path d="M8 3v10M4.500 9.500 8 13l3.500-3.500" />`,
  play: html`<path d="M4.800 3.200v9.600l7.600-4.800Z" />`,
  plus: html`<path d="M8 3.200v9.600M3.200 8h9.600" />`,
  close: html`<path d="m4 4 8 8M12 4l-8 8" />`,
  copy: html`<rect x="5.4" y="5.4" width="8" height="8" rx="1.4" /><path
      d="M10.600 5.400V3.800a1 1 0 0 0-1-1H3.600a1 1 0 0 0-1 1v6a1 1 0 0 0 1 1h1.800"
    />`,
  retry: html`<path d="M13 8a5 5 0 1 1-1.600-3.700" /><path d="M13.200 2.200v2.900h-2.900" />`,
  edit: html`<path d="M3 13h2.300l7.300-7.300-2.300-2.300L3 10.700Z" />`,
  cancel: html`<circle cx="8" cy="8" r="5.6" /><path d="m4.200 11.800 7.600-7.600" />`,
  bolt: html`<path d="M8.800 1.800 3.600 9h3.800l-.4 5.200L12.400 7H8.500Z" />`,
  snooze: html`<path d="M5 5h6l-6 6h6" />`,
  person: html`<circle cx="8" cy="5.4" r="2.8" /><path
      d="M2.800 13.600c.5-2.900 2.600-4.400 5.200-4.400s4.700 1.500 5.200 4.400"
    />`,
  trash: html`<path d="M2.800 4.400h10.400M6 4.400V2.800h4v1.600M4.200 4.400l.6 8.800h6.400l.6-8.800" />`,
  tick: html`<path d="m3.200 8.400 3.200 3.200 6.400-7" />`,
  plug: html`<path d="M6 1.800v3M10 1.800v3M4 4.800h8v2.600a4 4 0 0 1-8 0ZM8 11.400v2.800" />`,
  lock: html`<rect x="3.4" y="7" width="9.2" height="6.6" rx="1.4" /><path
      d="M5.400 7V5a2.600 2.600 0 0 1 5.200 0v2"
    />`,
};

/** @param {{name: string, class?: string}} props */
export function Icon({ name, class: more = "" }) {
  return html`<svg class="i ${more}" viewBox="0 0 16 16" aria-hidden="true">${ICONS[name]}</svg>`;
}

/** The mark: a limpet's shell, seen from the side. */
export function Mark() {
  return html`<svg
    viewBox="0 0 20 20"
    aria-hidden="true"
    fill="none"
    stroke="currentColor"
    stroke-linecap="round"
    stroke-linejoin="round"
  >
    <path
      stroke-width="1.7"
      d="M1.800 15.600C3.400 10.600 6.600 4.400 9.200 3.200c.5-.3 1.100-.3 1.600 0 2.600 1.200 5.800 7.400 7.400 12.400-4.600 1.900-11.800 1.900-16.400 0Z"
    />
    <path
      stroke-width="1.2"
      d="M9.700 5.600 5.600 14.300M9.900 5.600 8.400 15M10.100 5.600 11.600 15M10.300 5.600 14.400 14.300"
    />
  </svg>`;
}
