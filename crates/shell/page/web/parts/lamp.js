// A lamp: a state as shape and colour. The text beside it says the same.
import { html } from "../html.js";

const SHAPES = {
  good: html`<circle cx="6" cy="6" r="4.5" />`,
  warn: html`<path d="M6 1 L11.4 10.6 H0.6 Z" />`,
  bad: html`<path d="M1.5 1.5 H10.5 V10.5 H1.5 Z" />`,
  busy: html`<path d="M6 0.8 L11.2 6 L6 11.2 L0.8 6 Z" />`,
  off: html`<circle cx="6" cy="6" r="3.9" class="hollow" />`,
};

/// `kind` is `good`, `warn`, `bad`, `busy` (in progress) or `off`.
export function Lamp({ kind, children }) {
  return html`<span class=${`lamp lamp-${kind}`}>
    <svg viewBox="0 0 12 12" width="12" height="12" aria-hidden="true">${SHAPES[kind]}</svg>
    <span>${children}</span>
  </span>`;
}
