// A new password: generated, or typed.
import { html, useId, useState } from "../html.js";
import { Account } from "./account.js";

/// No characters that look like others: somebody types it into a phone.
const CHARACTERS = "abcdefghijkmnpqrstuvwxyzABCDEFGHJKLMNPQRSTUVWXYZ23456789";
/// 20 characters of 56 are 116 bits.
const LENGTH = 20;

export function newPassword() {
  const largest = 256 - (256 % CHARACTERS.length);
  let password = "";
  while (password.length < LENGTH) {
    for (const byte of crypto.getRandomValues(new Uint8Array(2 * LENGTH))) {
      // Bytes above would make the first characters more likely.
      if (byte < largest && password.length < LENGTH) password += CHARACTERS[byte % CHARACTERS.length];
    }
  }
  return password;
}

export function PasswordField({ value, onInput }) {
  const id = useId();
  const [isShown, setShown] = useState(true);
  return html`<div class="field">
    <label for=${id}>Password</label>
    <div class="joined">
      <input id=${id} class="mono" type=${isShown ? "text" : "password"} value=${value} required autocomplete="new-password"
        spellcheck="false" autocapitalize="off" aria-describedby=${`${id}-hint`}
        onInput=${(event) => onInput(event.currentTarget.value)} />
      <button type="button" aria-pressed=${!isShown} onClick=${() => setShown(!isShown)}>Hide</button>
      <button type="button" onClick=${() => onInput(newPassword())}>Generate</button>
    </div>
    <p class="hint" id=${`${id}-hint`}>The server keeps only a hash of it. It is shown here and never again.</p>
  </div>`;
}

/// Shows the password that was set, to be copied.
export function PasswordShown({ user, password }) {
  const [isCopied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard.writeText(password);
    setCopied(true);
  };
  return html`
    <p>Enter this in the phone of <strong class="mono">${user}</strong>. The password is not shown again.</p>
    <${Account} user=${user}>
      <div><dt>Password</dt><dd class="joined">
        <output class="secret mono" tabindex="0" aria-label="Password">${password}</output>
        ${navigator.clipboard && html`<button type="button" onClick=${copy}>${isCopied ? "Copied" : "Copy"}</button>`}
      </dd></div>
    <//>`;
}
