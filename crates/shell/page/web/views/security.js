// Who has failed to log in, and who is banned.
import { html } from "../html.js";
import { Bans } from "../parts/bans.js";
import { Failures } from "../parts/failures.js";
import { useMay } from "../server.js";

export function Security() {
  return html`
    <${Bans} />
    ${useMay("operator") && html`<${Failures} />`}`;
}
