// The lanes of a ladder: one for the server, one for each party. The first party stands left of the server, the others
// right of it, as `strowger ctl trace` draws them.

/// Maximum number of messages kept; the oldest are dropped.
export const MAX_MESSAGES = 500;
/// Maximum number of parties; messages of further ones are counted, not drawn.
const MAX_PARTIES = 6;

export class Ladder {
  constructor() {
    this.messages = [];
    this.left = null;
    this.right = [];
    this.calls = [];
    this.lost = 0;
    this.dropped = 0;
    this.undrawn = 0;
    this.received = 0;
  }

  add(message) {
    const party = `${message.transport} ${message.peer}`;
    if (!this.place(party, message.sent)) {
      this.undrawn += 1;
      return;
    }
    if (!this.calls.includes(message.call_id)) this.calls.push(message.call_id);
    const call = this.calls.indexOf(message.call_id) + 1;
    this.received += 1;
    this.messages.push({ ...message, party, call, id: this.received, label: label(message), kind: kind(message) });
    if (this.messages.length > MAX_MESSAGES) {
      this.messages.shift();
      this.dropped += 1;
    }
  }

  /// Gives the party a lane, if it has none. Returns whether it has one.
  place(party, sent) {
    if (this.left === party || this.right.includes(party)) return true;
    if ((this.left ? 1 : 0) + this.right.length >= MAX_PARTIES) return false;
    // A party that the server contacts first stands right of it.
    if (this.left === null && !sent) this.left = party;
    else this.right.push(party);
    return true;
  }

  /// Returns the parties from left to right; null is the server.
  lanes() {
    return [this.left, null, ...this.right].filter((party, at) => party !== null || at === 1);
  }
}

const status = (message) => /^SIP\/2\.0 (\d{3})/.exec(message.start)?.[1];

/// Returns method and URI of a request, or status of a response, with the method unless it is INVITE.
export function label({ start, cseq }) {
  if (!start.startsWith("SIP/2.0 ")) return start.replace(/ SIP\/2\.0$/, "");
  const text = start.slice("SIP/2.0 ".length).trim();
  const method = String(cseq).split(/\s+/)[1];
  return method && method !== "INVITE" ? `${text} (${method})` : text;
}

/// Returns what a message is: `request`, `progress`, `success`, `failure`.
function kind(message) {
  const code = status(message);
  if (!code) return "request";
  return code < "200" ? "progress" : code < "300" ? "success" : "failure";
}
