//! Frame that is common to all pages.

use std::fmt::Write as _;

use super::plot::escape;

const STYLE: &str = include_str!("page.css");

/// A page written from top to bottom. Arguments named `html` are markup; all others are text.
#[derive(Debug)]
pub(crate) struct Page {
    html: String,
}

/// Rating of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Tone {
    Good,
    Fair,
    Bad,
}

impl Page {
    /// Begins a page about `name`; `facts` are the conditions of the run.
    pub(crate) fn new(kind: &str, name: &str, facts: &[String]) -> Self {
        let (kind, name) = (escape(kind), escape(name));
        let facts: String =
            facts.iter().filter(|fact| !fact.is_empty()).map(|fact| format!("<span>{}</span>", escape(fact))).collect();
        let html = format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head><meta charset=\"utf-8\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <title>{name}: {kind}</title><style>\n{STYLE}</style></head>\n<body><main>\n\
             <header><p class=\"kind\">{kind}</p><h1>{name}</h1><p class=\"facts\">{facts}</p></header>\n"
        );
        Self { html }
    }

    /// Writes the main sentence and remarks on it.
    pub(crate) fn verdict(&mut self, tone: Tone, sentence: &str, more: &[String]) {
        let class = match tone {
            Tone::Good => "good",
            Tone::Fair => "fair",
            Tone::Bad => "bad",
        };
        let more: String = more.iter().map(|line| format!("<p>{}</p>", escape(line))).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(
            self.html,
            "<section class=\"verdict {class}\"><i></i><div><p><b>{}</b></p>{more}</div></section>",
            escape(sentence)
        );
    }

    /// Writes a few figures in large type: name, value, note.
    pub(crate) fn tiles(&mut self, tiles: &[(&str, String, String)]) {
        self.html.push_str("<div class=\"tiles\">\n");
        for (name, value, note) in tiles {
            let _ = writeln!(
                self.html,
                "<div class=\"tile\"><span>{}</span><b>{}</b><small>{}</small></div>",
                escape(name),
                escape(value),
                escape(note)
            );
        }
        self.html.push_str("</div>\n");
    }

    /// Writes cards side by side, as many as fit: title and HTML. Cards without content are left out.
    pub(crate) fn cards(&mut self, cards: Vec<(String, Option<String>)>) {
        self.html.push_str("<div class=\"cards\">\n");
        for (title, body) in cards {
            if let Some(body) = body {
                self.card(&title, "", &body);
            }
        }
        self.html.push_str("</div>\n");
    }

    /// Writes a card across the page.
    pub(crate) fn wide(&mut self, title: &str, html: &str) {
        self.card(title, " wide", html);
    }

    fn card(&mut self, title: &str, class: &str, html: &str) {
        let title = escape(title);
        let _ = writeln!(
            self.html,
            "<section class=\"card{class}\"><h2>{title}</h2><div class=\"scroll\">{html}</div></section>"
        );
    }

    /// Writes a heading between groups of cards.
    pub(crate) fn heading(&mut self, text: &str) {
        let _ = writeln!(self.html, "<h2 class=\"group\">{}</h2>", escape(text));
    }

    /// Ends the page.
    pub(crate) fn end(mut self, note: &str) -> String {
        let version = env!("CARGO_PKG_VERSION");
        let _ = write!(
            self.html,
            "<footer><p>{}</p><p>Made by strowger load {version}.</p></footer>\n</main></body></html>\n",
            escape(note)
        );
        self.html
    }
}

/// Returns a table of names and values.
pub(crate) fn pairs<'a>(rows: impl Iterator<Item = (&'a str, String)>) -> String {
    let rows: String =
        rows.map(|(name, value)| format!("<tr><td>{}</td><td>{}</td></tr>", escape(name), escape(&value))).collect();
    format!("<table class=\"pairs\">{rows}</table>")
}

/// Returns a table with a head; `None` without rows. Cells are text.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> Option<String> {
    if rows.is_empty() {
        return None;
    }
    let head: String = head.iter().map(|name| format!("<th>{}</th>", escape(name))).collect();
    let mut html = format!("<table><tr>{head}</tr>");
    for row in rows {
        let cells: String = row.iter().map(|cell| format!("<td>{}</td>", escape(cell))).collect();
        let _ = write!(html, "<tr>{cells}</tr>");
    }
    html.push_str("</table>");
    Some(html)
}
