// The administration API. Everything that the page asks of the server goes through this file.

const BASE = "/api/v1";
/// Time after which a server that says nothing counts as gone, ms. Changes have no limit: a backup takes long.
const PATIENCE_MS = 10_000;

/// A refusal of the server, or its silence.
export class ApiError extends Error {
  /// `status` is 0 if the server does not answer. `field` names the value that is wrong, if one is.
  constructor(status, title, detail, field) {
    super(detail || title);
    this.name = "ApiError";
    this.status = status;
    this.title = title;
    this.detail = detail;
    this.field = field;
  }

  get isSilence() {
    return this.status === 0;
  }
}

/// Joins the parts of a path. Each may have any characters: user names and Call-IDs are written by others.
export function path(...parts) {
  const encoded = parts.map((part) => {
    const text = String(part);
    // A browser would take these for folders, however they are written.
    if (text === "." || text === ".." || text === "") throw new ApiError(404, "Not found", `"${text}" cannot be addressed.`);
    return encodeURIComponent(text);
  });
  return `/${encoded.join("/")}`;
}

/// Returns a path with those parameters that have a value.
export function query(base, parameters) {
  const given = Object.entries(parameters).filter(([, value]) => value !== undefined && value !== null && value !== "");
  return given.length === 0 ? base : `${base}?${new URLSearchParams(given)}`;
}

export class Api {
  /// `onRefused` is called when the server does not accept the token any more.
  constructor(token, onRefused = () => {}) {
    this.token = token;
    this.onRefused = onRefused;
  }

  get(path, signal) {
    const limit = AbortSignal.timeout(PATIENCE_MS);
    return this.ask("GET", path, undefined, signal ? AbortSignal.any([signal, limit]) : limit);
  }

  post(path, body) {
    return this.ask("POST", path, body);
  }

  put(path, body) {
    return this.ask("PUT", path, body);
  }

  patch(path, body) {
    return this.ask("PATCH", path, body);
  }

  delete(path) {
    return this.ask("DELETE", path);
  }

  /// Asks for JSON. Returns null for an answer without a body.
  async ask(method, path, body, signal) {
    const answer = await this.fetch(method, path, body, signal);
    const text = await answer.text().catch(silence);
    if (text === "") return null;
    try {
      return JSON.parse(text);
    } catch {
      throw new ApiError(answer.status, "Unexpected answer", "The server's answer is not JSON. Is a proxy in between?");
    }
  }

  /// Reads a stream of events until it ends. `onEvent` gets the name and the data of each.
  async stream(path, onEvent, signal) {
    const answer = await this.fetch("GET", path, undefined, signal, "text/event-stream");
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    const events = new EventReader(onEvent);
    for (;;) {
      const { done, value } = await reader.read().catch(silence);
      if (done) return;
      events.read(value);
    }
  }

  async fetch(method, path, body, signal, accept = "application/json") {
    const headers = { Accept: accept, Authorization: `Bearer ${this.token}` };
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const options = { method, headers, signal, cache: "no-store", credentials: "omit", redirect: "error" };
    if (body !== undefined) options.body = JSON.stringify(body);
    const answer = await fetch(BASE + path, options).catch(silence);
    if (answer.ok) return answer;
    const error = await problem(answer);
    if (error.status === 401) this.onRefused(error);
    throw error;
  }
}

/// Splits a stream into events (WHATWG HTML, server-sent events).
export class EventReader {
  constructor(onEvent) {
    this.onEvent = onEvent;
    this.rest = "";
    this.name = "";
    this.data = [];
  }

  read(text) {
    const lines = (this.rest + text).split(/\r\n|\n|\r(?!$)/);
    this.rest = lines.pop();
    lines.forEach((line) => this.line(line));
  }

  line(line) {
    if (line === "") {
      if (this.data.length > 0) this.onEvent(this.name || "message", this.data.join("\n"));
      this.name = "";
      this.data = [];
      return;
    }
    const [field, value] = splitOnce(line, ":");
    if (field === "event") this.name = value.replace(/^ /, "");
    if (field === "data") this.data.push(value.replace(/^ /, ""));
  }
}

function splitOnce(text, separator) {
  const at = text.indexOf(separator);
  return at < 0 ? [text, ""] : [text.slice(0, at), text.slice(at + separator.length)];
}

/// Turns a failure of the connection, or a time-out, into an error. A request that we ended ourselves stays an AbortError.
function silence(error) {
  if (error.name === "AbortError") throw error;
  throw new ApiError(0, "No answer", "The server does not answer. It may be restarting, or the network is down.");
}

/// What a status means to one who has not asked for a status.
const TITLES = {
  401: "The token is not accepted",
  403: "You may not do this",
  404: "Not found",
  409: "This conflicts with what exists",
  413: "This is too long",
  422: "This cannot be used",
  429: "Too many requests",
  503: "The server is busy",
};

/// Reads a refusal (RFC 9457).
async function problem(answer) {
  const body = await answer.json().catch(() => ({}));
  const title = TITLES[answer.status] ?? (answer.status >= 500 ? "The server failed" : "The server refuses this");
  const detail = typeof body.detail === "string" ? body.detail : usualDetail(answer);
  return new ApiError(answer.status, title, detail, typeof body.field === "string" ? body.field : undefined);
}

function usualDetail(answer) {
  const wait = answer.headers.get("Retry-After");
  switch (answer.status) {
    case 401: return "The token is wrong, has expired or was removed.";
    case 403: return "The role of your token does not allow this.";
    case 404: return "The server does not know it. It may have been removed meanwhile.";
    case 429: return `Too many requests. Try again in ${wait ?? "some"} seconds.`;
    case 503: return "The server is busy. Try again in a moment.";
    default: return `The server answered ${answer.status}. Its log has the reason.`;
  }
}
