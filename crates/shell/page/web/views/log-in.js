// Log in with a token.
import { html, useEffect, useRef, useState } from "../html.js";
import { Api } from "../api.js";
import { Failure } from "../parts/notice.js";
import { keptToken } from "../session.js";

const UNREADABLE = "A token has only letters, digits, - and _.";

export function LogIn({ onSuccess, refusal }) {
  const [token, setToken] = useState("");
  const [error, setError] = useState(refusal);
  const [isBusy, setBusy] = useState(false);
  const field = useRef(null);
  const enter = async (token) => {
    setBusy(true);
    setError(null);
    const api = new Api(token);
    try {
      // A field of HTTP cannot have other characters.
      if (!/^[\x21-\x7e]+$/.test(token)) throw { title: "This is not a token", message: UNREADABLE };
      onSuccess(api, await api.get("/session"));
    } catch (failure) {
      if (failure.status === 401) keptToken.write(null);
      setError(failure.status === 401 ? { title: "The server does not accept this token", message: failure.message } : failure);
      setBusy(false);
    }
  };
  useEffect(() => {
    document.title = "Log in – Strowger";
    const kept = keptToken.read();
    if (kept) enter(kept);
    else field.current.focus();
  }, []);
  const submit = (event) => {
    event.preventDefault();
    if (token.trim() === "") field.current.focus();
    else if (!isBusy) enter(token.trim());
  };
  return html`<main class="start">
    <form class="log-in" onSubmit=${submit}>
      <h1>Strowger</h1>
      <p class="lead">Administration of this SIP server.</p>
      <div class="field">
        <label for="token">Token</label>
        <input id="token" ref=${field} class="mono" type="password" value=${token} autocomplete="current-password" spellcheck="false"
          autocapitalize="off" aria-describedby="token-hint" onInput=${(event) => setToken(event.currentTarget.value)} />
      </div>
      ${error && html`<${Failure} error=${error} />`}
      <button type="submit" class="primary wide" aria-disabled=${isBusy}>${isBusy ? "Please wait…" : "Log in"}</button>
      <div class="hint" id="token-hint">
        <p>No token yet? Make one on the server:</p>
        <pre><code>strowger token add NAME --role administrator</code></pre>
        <p>Roles: <b>viewer</b> looks, <b>operator</b> also drains and traces, <b>administrator</b> also changes users and targets.
          This window forgets the token when you close it.</p>
      </div>
    </form>
  </main>`;
}
