// Asks before something that cannot be undone.
import { html } from "../html.js";
import { FormDialog } from "./dialog.js";

export function Confirm({ title, verb, is_harmless, onConfirm, onClose, children }) {
  return html`<${FormDialog} title=${title} verb=${verb} is_dangerous=${!is_harmless} onSubmit=${onConfirm} onClose=${onClose}>
    ${children}
  <//>`;
}
