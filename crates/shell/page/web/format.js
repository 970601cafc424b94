// Texts for numbers, times and addresses.

const whole = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const tenths = new Intl.NumberFormat("en", { maximumFractionDigits: 1 });

/// Formats a count: 12,345.
export const number = (value) => whole.format(value ?? 0);

/// Formats a measured value: whole above 100, otherwise with a decimal.
export const measured = (value) => (Math.abs(value) >= 100 ? whole : tenths).format(value);

/// Formats a share from 0 to 1: 42 %.
export const percent = (share) => `${tenths.format(share * 100)} %`;

/// Formats a count with its noun: 1 call, 2 calls.
export const count = (value, one, many = `${one}s`) => `${number(value)} ${value === 1 ? one : many}`;

/// Formats a duration as a clock: 4:07, 1:02:03.
export function clock(seconds) {
  const all = Math.max(0, Math.floor(seconds ?? 0));
  const [hours, minutes, rest] = [Math.floor(all / 3600), Math.floor(all / 60) % 60, all % 60];
  const two = (value) => String(value).padStart(2, "0");
  return hours > 0 ? `${number(hours)}:${two(minutes)}:${two(rest)}` : `${minutes}:${two(rest)}`;
}

/// Formats a long duration by its two largest units: 3 d 4 h.
export function span(seconds) {
  const all = Math.max(0, Math.floor(seconds ?? 0));
  const [days, hours, minutes, rest] = [Math.floor(all / 86400), Math.floor(all / 3600) % 24, Math.floor(all / 60) % 60, all % 60];
  if (days > 0) return `${number(days)} d ${hours} h`;
  if (hours > 0) return `${hours} h ${minutes} min`;
  return minutes > 0 ? `${minutes} min ${rest} s` : `${rest} s`;
}

/// Formats a time in µs in the unit that suits it.
export function micros(value) {
  if (value >= 1e6) return `${tenths.format(value / 1e6)} s`;
  return value >= 1000 ? `${tenths.format(value / 1000)} ms` : `${tenths.format(value)} µs`;
}

/// Formats the time since the first message, which is in ms.
export function elapsed(ms) {
  return ms < 1000 ? `${ms.toFixed(1)} ms` : `${(ms / 1000).toFixed(2)} s`;
}

export function bytes(value) {
  const units = ["B", "kB", "MB", "GB", "TB"];
  let [rest, unit] = [value, 0];
  while (rest >= 1000 && unit < units.length - 1) [rest, unit] = [rest / 1000, unit + 1];
  return `${tenths.format(rest)} ${units[unit]}`;
}

/// Shortens a SIP URI to what names the party: sip:alice@example.com;transport=tcp becomes alice@example.com.
export function party(uri) {
  return String(uri ?? "").replace(/^sips?:/i, "").replace(/[;?].*$/s, "");
}
