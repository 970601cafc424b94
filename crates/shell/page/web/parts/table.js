// A table that becomes a list of cards in a narrow window.
import { html } from "../html.js";

/// `columns` are `{ name, cell(row), is_head, is_number, class, hides_name }`; one is the head of its row. The caption is
/// read by screen readers and shown unless `hides_caption`. Roles are explicit: the cards have no table layout.
export function Table({ caption, hides_caption, columns, rows, id }) {
  return html`<table class="table" role="table">
    <caption class=${hides_caption ? "unseen" : ""}>${caption}</caption>
    <thead role="rowgroup">
      <tr role="row">
        ${columns.map((column) => html`<th scope="col" role="columnheader" class=${column.is_number ? "number" : undefined} key=${column.name}>
          <span class=${column.hides_name ? "unseen" : ""}>${column.name}</span>
        </th>`)}
      </tr>
    </thead>
    <tbody role="rowgroup">
      ${rows.map((row) => html`<tr role="row" key=${id(row)}>${columns.map((column) => cell(column, row))}</tr>`)}
    </tbody>
  </table>`;
}

function cell(column, row) {
  const label = column.hides_name ? undefined : column.name;
  const content = html`<span class="cell">${column.cell(row)}</span>`;
  return column.is_head
    ? html`<th scope="row" role="rowheader" class=${classes(column)} data-label=${label} key=${column.name}>${content}</th>`
    : html`<td role="cell" class=${classes(column)} data-label=${label} key=${column.name}>${content}</td>`;
}

const classes = (column) => [column.is_number && "number", column.class].filter(Boolean).join(" ") || undefined;
