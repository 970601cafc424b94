// Texts of the server. It puts what is typed or read literally between backticks.
import { html } from "../html.js";

/// Shows what stands between backticks as code.
export function Prose({ text }) {
  const parts = String(text ?? "").split("`");
  // An odd number of backticks is no markup.
  if (parts.length % 2 === 0) return text;
  return parts.map((part, at) => (at % 2 === 0 ? part : html`<code key=${at}>${part}</code>`));
}
