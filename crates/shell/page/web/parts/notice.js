// Boxes for what is loading, empty or wrong.
import { html } from "../html.js";
import { Lamp } from "./lamp.js";
import { Prose } from "./prose.js";

/// A failure with its cause and, where we know one, the remedy.
export function Failure({ error, onRetry }) {
  return html`<div class="notice notice-bad" role="alert">
    <p><${Lamp} kind="bad"><strong>${error.title ?? "This failed"}</strong><//></p>
    <p><${Prose} text=${error.message} /></p>
    ${onRetry && html`<p><button type="button" onClick=${onRetry}>Try again</button></p>`}
  </div>`;
}

/// Something that was done, but not as it was meant.
export function Warning({ title, text }) {
  return html`<div class="notice notice-warn" role="alert">
    <p><${Lamp} kind="warn"><strong>${title}</strong><//></p>
    <p><${Prose} text=${text} /></p>
  </div>`;
}

/// A place without content: says what to do first.
export function Empty({ title, children }) {
  return html`<div class="notice notice-empty">
    <p><strong>${title}</strong></p>
    ${children && html`<div>${children}</div>`}
  </div>`;
}

export function Loading({ what }) {
  return html`<p class="loading" role="status">Loading ${what}…</p>`;
}

/// Shows a polled value: `loading` and `failed` until there is one, later a line above it while asking fails.
export function Polled({ poll, what, children }) {
  if (poll.value === null) {
    return poll.error ? html`<${Failure} error=${poll.error} onRetry=${poll.refresh} />` : html`<${Loading} what=${what} />`;
  }
  const isOld = poll.error && !poll.error.isSilence;
  return html`
    ${isOld && html`<${Failure} error=${poll.error} onRetry=${poll.refresh} />`}
    ${children(poll.value)}`;
}
