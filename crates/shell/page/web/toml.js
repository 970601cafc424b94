// Writes a configuration, which the API gives as JSON, as the file would have it.

/// Returns TOML for an object of sections.
export function toToml(configuration) {
  const sections = Object.entries(configuration).filter(([, value]) => !isEmpty(value));
  const plain = sections.filter(([, value]) => !isTable(value) && !isTables(value));
  const lines = plain.map(([key, value]) => `${key} = ${inline(value)}`);
  const parts = lines.length > 0 ? [lines.join("\n")] : [];
  for (const [name, value] of sections) {
    if (isTable(value)) parts.push(section(`[${name}]`, value));
    if (isTables(value)) parts.push(...value.map((one) => section(`[[${name}]]`, one)));
  }
  return parts.join("\n\n");
}

const isTable = (value) => typeof value === "object" && value !== null && !Array.isArray(value);
const isTables = (value) => Array.isArray(value) && value.length > 0 && value.every(isTable);
const isEmpty = (value) => value === null || value === undefined || (Array.isArray(value) && value.length === 0);

function section(heading, table) {
  const entries = Object.entries(table).filter(([, value]) => !isEmpty(value));
  const width = Math.max(0, ...entries.map(([key]) => key.length));
  return [heading, ...entries.map(([key, value]) => `${key.padEnd(width)} = ${inline(value)}`)].join("\n");
}

function inline(value) {
  if (Array.isArray(value)) return `[${value.map(inline).join(", ")}]`;
  if (!isTable(value)) return JSON.stringify(value);
  const entries = Object.entries(value).filter(([, inner]) => !isEmpty(inner));
  return `{ ${entries.map(([key, inner]) => `${key} = ${inline(inner)}`).join(", ")} }`;
}
