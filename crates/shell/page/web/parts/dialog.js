// Dialogs. The browser keeps the focus in them, closes them with Escape and gives the focus back.
import { html, useEffect, useId, useLayoutEffect, useRef, useState } from "../html.js";
import { Failure } from "./notice.js";

export function Dialog({ title, onClose, children }) {
  const dialog = useRef(null);
  const heading = useId();
  useLayoutEffect(() => {
    const shown = dialog.current;
    shown.showModal();
    // Only `close` gives the focus back, so it comes before the element is removed.
    return () => shown.close();
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${dialog} aria-labelledby=${heading} onCancel=${onCancel}>
    <h2 id=${heading}>${title}</h2>
    ${children}
  </dialog>`;
}

/// A dialog with a form. `onSubmit` may fail; its error is shown in the dialog. `verb` names the button.
export function FormDialog({ title, verb, is_dangerous, onSubmit, onClose, children }) {
  const [error, setError] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const isThere = useIsThere();
  const submit = async (event) => {
    event.preventDefault();
    if (isBusy) return;
    setBusy(true);
    setError(null);
    try {
      await onSubmit();
    } catch (failure) {
      if (isThere.current) setError(failure);
    }
    if (isThere.current) setBusy(false);
  };
  return html`<${Dialog} title=${title} onClose=${onClose}>
    <form onSubmit=${submit}>
      ${children}
      ${error && html`<${Failure} error=${error} />`}
      <div class="actions">
        <button type="button" onClick=${onClose}>Cancel</button>
        <button type="submit" class=${is_dangerous ? "primary danger" : "primary"} aria-disabled=${isBusy}>${isBusy ? "Please wait…" : verb}</button>
      </div>
    </form>
  <//>`;
}

/// Whether the component is still shown when something asynchronous has ended.
function useIsThere() {
  const isThere = useRef(true);
  useEffect(() => {
    isThere.current = true;
    return () => {
      isThere.current = false;
    };
  }, []);
  return isThere;
}
