// Labelled fields of forms.
import { html, useId } from "../html.js";

/// `hint` is read with the field.
export function Field({ label, hint, value, onInput, ...more }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <input id=${id} value=${value} onInput=${(event) => onInput(event.currentTarget.value)}
      aria-describedby=${hint ? `${id}-hint` : undefined} ...${more} />
    ${hint && html`<p class="hint" id=${`${id}-hint`}>${hint}</p>`}
  </div>`;
}

export function Choice({ label, value, onChange, options, ...more }) {
  const id = useId();
  return html`<div class="field">
    <label for=${id}>${label}</label>
    <select id=${id} value=${value} onChange=${(event) => onChange(event.currentTarget.value)} ...${more}>
      ${options.map(([name, text]) => html`<option value=${name} selected=${name === value} key=${name}>${text}</option>`)}
    </select>
  </div>`;
}
