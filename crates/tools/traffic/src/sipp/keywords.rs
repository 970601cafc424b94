//! Translation of SIPp's keywords into those of [`Template`]s. Most are the same. Numbers with an offset, clocks and
//! the cells of further injection files use variables that are computed just before the message is written.

use std::sync::Arc;

use super::reader::Reader;
use super::{Diagnostic, Login, OWN_COLUMNS, Role, Text};
use crate::script::{
    Action, Check, ClockForm, KeywordExpansion, Match, Operand, Place, PosixRegex, Template, Variable,
};

/// A text in template syntax.
#[derive(Debug, Default)]
pub(super) struct PreparedText {
    text: String,
    /// The texts of `[x0]`, `[x1]` …
    fixed: Vec<String>,
    /// Actions to run before it is written.
    pub(super) actions: Vec<Action>,
}

/// Position of a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct TextPosition {
    /// Its byte offset in the file.
    pub(super) at: usize,
    /// The index of its message in the scenario.
    pub(super) index: usize,
}

impl PreparedText {
    /// Parses the text as a message.
    pub(super) fn message(&self) -> Result<Template, crate::script::TemplateError> {
        Template::compile_with(&self.text, |keyword, _| self.fixed(keyword))
    }

    /// Parses the text as a fragment.
    pub(super) fn fragment(&self) -> Result<Template, crate::script::TemplateError> {
        Template::fragment_with(&self.text, |keyword, _| self.fixed(keyword))
    }

    fn fixed(&self, keyword: &str) -> Option<KeywordExpansion> {
        let number: usize = keyword.strip_prefix('x')?.parse().ok()?;
        self.fixed.get(number).cloned().map(KeywordExpansion::Text)
    }

    fn keep(&mut self, keyword: &str) {
        self.text.push('[');
        self.text.push_str(keyword);
        self.text.push(']');
    }

    /// Appends text that is not parsed for keywords again.
    fn fix(&mut self, text: impl Into<String>) {
        let text = text.into();
        if text.contains(['[', ']']) || text.contains('\n') {
            self.keep(&format!("x{}", self.fixed.len()));
            self.fixed.push(text);
        } else {
            self.text.push_str(&text);
        }
    }

    fn variable(&mut self, variable: Variable) {
        self.keep(&format!("${variable}"));
    }
}

/// Translates the keywords of `text`.
pub(super) fn prepare(reader: &mut Reader<'_>, text: &str, place: TextPosition) -> Result<PreparedText, Diagnostic> {
    let mut out = PreparedText::default();
    let mut rest = text;
    while let Some(found) = rest.find(['[', '\\']) {
        let (before, behind) = rest.split_at(found);
        out.text.push_str(before);
        if let Some(escape) = behind.strip_prefix("\\x") {
            let byte = escape.get(..2).and_then(|hex| u8::from_str_radix(hex, 16).ok()).filter(u8::is_ascii);
            if let Some(byte) = byte {
                out.fix(char::from(byte).to_string());
                rest = escape.get(2..).unwrap_or_default();
                continue;
            }
        }
        if let Some(after) = behind.strip_prefix('\\') {
            out.text.push('\\');
            rest = after;
            continue;
        }
        let offset = text.len() - behind.len();
        let Some((inner, after)) = bracketed(behind) else {
            let what = "a '[' has no ']' on its line; write \\x5b for a bracket that does not begin a keyword";
            return Err(reader.source.diagnostic(place.at + offset, what));
        };
        keyword(reader, inner, TextPosition { at: place.at + offset, ..place }, &mut out)?;
        rest = after;
    }
    out.text.push_str(rest);
    Ok(out)
}

/// Returns the text up to the matching bracket, and the rest. Only keywords with parameters may span lines.
fn bracketed(text: &str) -> Option<(&str, &str)> {
    let is_long = text.starts_with("[authentication") || text.starts_with("[field");
    let mut depth = 0_usize;
    for (at, c) in text.char_indices() {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            '\n' if !is_long => return None,
            _ => {}
        }
        if depth == 0 {
            return Some((text.get(1..at)?, text.get(at + 1..)?));
        }
    }
    None
}

/// Returns the value of `name=` in a keyword's parameters, without quotes.
pub(super) fn parameter(text: &str, name: &str) -> Option<String> {
    let mut rest = text;
    loop {
        let found = rest.find(name)?;
        let begins = rest.get(..found)?.chars().next_back().is_none_or(char::is_whitespace);
        let behind = rest.get(found + name.len()..)?;
        let Some(value) = behind.strip_prefix('=').filter(|_| begins) else {
            rest = behind;
            continue;
        };
        if let Some(quoted) = value.strip_prefix('"') {
            return Some(quoted.split('"').next().unwrap_or_default().to_owned());
        }
        if value.starts_with('[')
            && let Some((inner, _)) = bracketed(value)
        {
            return Some(format!("[{inner}]"));
        }
        return Some(value.split(|c: char| c.is_whitespace() || c == ']').next().unwrap_or_default().to_owned());
    }
}

/// Splits a name and its offset: `cseq+1`.
fn with_offset(text: &str) -> (&str, i32) {
    match text.rfind(['+', '-']) {
        Some(at) if at > 0 => match text.get(at..).unwrap_or_default().parse() {
            Ok(offset) => (text.get(..at).unwrap_or(text), offset),
            Err(_) => (text, 0),
        },
        _ => (text, 0),
    }
}

fn keyword(
    reader: &mut Reader<'_>,
    inner: &str,
    place: TextPosition,
    out: &mut PreparedText,
) -> Result<(), Diagnostic> {
    let (word, parameters) = inner.split_once(char::is_whitespace).unwrap_or((inner, ""));
    let is_address = inner.contains(':') && inner.bytes().all(|b| b.is_ascii_hexdigit() || b == b':' || b == b'.');
    if is_address {
        out.fix(format!("[{inner}]"));
        return Ok(());
    }
    let (name, offset) = with_offset(word);
    let options = reader.options;
    match name {
        "call_id" if offset == 0 && reader.role == Role::Callee => {
            let variable = reader.call_id_variable();
            out.variable(variable);
        }
        "service" | "remote_ip" | "transport" | "call_id" | "local_ip" | "userid" | "last_message" if offset == 0 => {
            out.keep(name);
        }
        "len" if offset == 0 => out.keep("len"),
        "peer_tag_param" => {
            reader.uses_tag = true;
            out.keep(name);
        }
        "routes" | "next_url" => {
            reader.uses_route.get_or_insert(place.at);
            out.keep(name);
        }
        "server_ip" => out.keep("local_ip"),
        "remote_host" => match &options.remote_host {
            Some(host) => out.fix(host.as_str()),
            None => out.keep("remote_ip"),
        },
        "local_ip_type" | "media_ip_type" => out.fix(if options.is_ipv6 { "6" } else { "4" }),
        "media_ip" => match &options.media_ip {
            Some(ip) => out.fix(ip.as_str()),
            None => out.keep("media_ip"),
        },
        "media_port" | "auto_media_port" | "rtpstream_audio_port" | "rtpstream_video_port" => {
            if name != "media_port" {
                reader.warn(
                    place.at,
                    format!("[{name}] is the same port in all calls, as [media_port]: no media is sent"),
                );
            }
            out.fix((i64::from(options.media_port) + i64::from(offset)).to_string());
        }
        "local_port" | "remote_port" | "call_number" => plus(reader, name, offset, out),
        "cseq" => cseq(reader, offset, out),
        "last_cseq_number" => last_number(reader, offset, out),
        "last_Request_URI" => last_uri(reader, out),
        "branch" => branch(reader, offset, place, out)?,
        "pid" => out.fix(options.pid.to_string()),
        "msg_index" => out.fix(place.index.to_string()),
        "users" => out.fix(options.users.to_string()),
        "sipp_version" => out.fix(concat!("strowger ", env!("CARGO_PKG_VERSION"))),
        "timestamp" => clock(reader, ClockForm::Stamp, out),
        "date" => clock(reader, ClockForm::Date, out),
        "clock_tick" => clock(reader, ClockForm::Ticks, out),
        "authentication" => authentication(reader, parameters, place, out)?,
        _ => return other(reader, inner, word, parameters, place, out),
    }
    Ok(())
}

/// Translates keywords with a variable part in the name, and user-defined ones.
fn other(
    reader: &mut Reader<'_>,
    inner: &str,
    word: &str,
    parameters: &str,
    place: TextPosition,
    out: &mut PreparedText,
) -> Result<(), Diagnostic> {
    if let Some((_, value)) = reader.options.keys.iter().find(|(key, _)| key == word) {
        out.fix(value.as_str());
        return Ok(());
    }
    if let Some(name) = word.strip_prefix('$').filter(|name| !name.is_empty()) {
        let variable = reader.reads(name, place.at);
        out.variable(variable);
        return Ok(());
    }
    if let Some(column) = word.strip_prefix("field").and_then(|column| column.parse().ok()) {
        return field(reader, column, parameters, place, out);
    }
    let header = word.strip_prefix("last_").map(|name| name.trim_end_matches(':'));
    let is_header =
        |name: &&str| !name.is_empty() && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-!%*_+`'~".contains(&b));
    if let Some(name) = header.filter(is_header) {
        out.keep(&format!("last_{name}:"));
        return Ok(());
    }
    let what = match word {
        "tdmmap" | "dynamic_id" | "fill" | "file" => {
            format!("the keyword [{word}] is not supported; the option -key {word} VALUE gives it a fixed value")
        }
        _ => format!(
            "the keyword [{inner}] is not known; -key {word} VALUE defines your own, and \\x5b is a bracket that does not begin a keyword"
        ),
    };
    Err(reader.source.diagnostic(place.at, what))
}

/// Writes a number of the session plus an offset.
fn plus(reader: &mut Reader<'_>, name: &str, offset: i32, out: &mut PreparedText) {
    if offset == 0 {
        return out.keep(name);
    }
    // Templates know this keyword.
    let Ok(template) = Template::fragment_with(&format!("[{name}]"), |_, _| None) else { return };
    let (variable, template) = (reader.builder.variable(), reader.builder.template(template));
    out.actions.push(Action::Text(variable, template));
    out.actions.push(Action::Add(variable, Operand::Number(f64::from(offset))));
    out.variable(variable);
}

/// Writes the number of the last request received, or the base before there is one, as SIPp does.
fn cseq(reader: &mut Reader<'_>, offset: i32, out: &mut PreparedText) {
    if !reader.receives_requests {
        return out.fix((i64::from(reader.options.base_cseq) + i64::from(offset)).to_string());
    }
    let last = reader.cseq_variable();
    if offset == 0 {
        return out.variable(last);
    }
    let variable = reader.builder.variable();
    out.actions.push(Action::Assign(variable, Operand::Variable(last)));
    out.actions.push(Action::Add(variable, Operand::Number(f64::from(offset))));
    out.variable(variable);
}

fn last_number(reader: &mut Reader<'_>, offset: i32, out: &mut PreparedText) {
    let variable = reader.builder.variable();
    out.actions.extend(number_of_message(variable));
    if offset != 0 {
        out.actions.push(Action::Add(variable, Operand::Number(f64::from(offset))));
    }
    out.variable(variable);
}

/// Returns the action that stores a message's CSeq number in a variable.
pub(super) fn number_of_message(variable: Variable) -> Option<Action> {
    search("^[0-9]+", "CSeq", vec![variable])
}

/// Writes the address in To, in SIPp's form.
fn last_uri(reader: &mut Reader<'_>, out: &mut PreparedText) {
    let (whole, variable) = (reader.builder.variable(), reader.builder.variable());
    out.actions.extend(search("<([^>]*)>", "To", vec![whole, variable]));
    out.variable(variable);
}

/// Returns the action that searches a message's header field.
pub(super) fn search(pattern: &str, header: &str, into: Vec<Variable>) -> Option<Action> {
    let pattern = PosixRegex::compile(pattern).ok()?;
    let place = Place::Header(header.to_owned());
    Some(Action::Match(Box::new(Match { pattern, place, occurrence: 1, into, check: Check::None })))
}

fn clock(reader: &mut Reader<'_>, form: ClockForm, out: &mut PreparedText) {
    let variable = reader.builder.variable();
    out.actions.push(Action::Clock { into: variable, form });
    out.variable(variable);
}

/// Translates an offset in messages, as SIPp counts, to an offset in branches, as templates count.
fn branch(reader: &Reader<'_>, offset: i32, place: TextPosition, out: &mut PreparedText) -> Result<(), Diagnostic> {
    if offset == 0 {
        out.keep("branch");
        return Ok(());
    }
    let back = usize::try_from(offset.unsigned_abs()).unwrap_or(usize::MAX);
    let target = place.index.checked_sub(back).filter(|_| offset < 0);
    let Some(branches) = target.and_then(|target| reader.branches_since(target)) else {
        let what =
            format!("[branch{offset:+}] names no request that is sent before this message; count back with [branch-N]");
        return Err(reader.source.diagnostic(place.at, what));
    };
    out.keep(&format!("branch-{branches}"));
    Ok(())
}

fn field(
    reader: &mut Reader<'_>,
    column: u16,
    parameters: &str,
    place: TextPosition,
    out: &mut PreparedText,
) -> Result<(), Diagnostic> {
    let file = parameter(parameters, "file");
    let table = match &file {
        None => reader.tables.first(),
        Some(file) => reader.tables.iter().find(|table| table.is_called(file)),
    };
    let Some(table) = table.cloned() else {
        let what = match file {
            Some(file) => format!("no injection file is called '{file}'; name it with -inf"),
            None => format!("[field{column}] needs an injection file; name it with -inf"),
        };
        return Err(reader.source.diagnostic(place.at, what));
    };
    if column >= table.columns() {
        let what =
            format!("[field{column}]: the lines of {} have {} fields, from field0 on", table.name(), table.columns());
        return Err(reader.source.diagnostic(place.at, what));
    }
    let is_first = reader.tables.first().is_some_and(|first| Arc::ptr_eq(first, &table));
    if table.cell(0, column).starts_with("[authentication") {
        let (name, password) = (Text::Inside(column, "username"), Text::Inside(column, "password"));
        if !is_first {
            let what = format!("{} holds [authentication …]: this works with the first -inf file only", table.name());
            return Err(reader.source.diagnostic(place.at, what));
        }
        reader.login(Login { name, password }, place.at);
        reader.authenticates.get_or_insert(place.at);
        out.keep("authentication");
        return Ok(());
    }
    let line = parameter(parameters, "line");
    if is_first && line.is_none() && reader.role == Role::Caller {
        out.keep(&format!("field{}", column.saturating_add(OWN_COLUMNS)));
        return Ok(());
    }
    let line = match line {
        None => Operand::Variable(reader.line_of(&table)),
        Some(line) => match line.trim_matches(['[', ']']).strip_prefix('$') {
            Some(name) => Operand::Variable(reader.reads(name, place.at)),
            None => Operand::Number(line.parse::<u32>().map(f64::from).map_err(|_| {
                reader.source.diagnostic(place.at, format!("line={line} is neither a number nor [$variable]"))
            })?),
        },
    };
    let variable = reader.builder.variable();
    out.actions.push(Action::Cell { into: variable, table, line, column });
    out.variable(variable);
    Ok(())
}

fn authentication(
    reader: &mut Reader<'_>,
    parameters: &str,
    place: TextPosition,
    out: &mut PreparedText,
) -> Result<(), Diagnostic> {
    let options = reader.options;
    let read = |name: &str, otherwise: String| -> Result<Text, Diagnostic> {
        let Some(value) = parameter(parameters, name) else { return Ok(Text::Fixed(otherwise)) };
        let Some(keyword) = value.strip_prefix('[').and_then(|value| value.strip_suffix(']')) else {
            return Ok(Text::Fixed(value));
        };
        if let Some((_, value)) = options.keys.iter().find(|(key, _)| key == keyword) {
            return Ok(Text::Fixed(value.clone()));
        }
        match (keyword, keyword.strip_prefix("field").and_then(|column| column.parse().ok())) {
            ("service", _) => Ok(Text::Fixed(options.service.clone())),
            (_, Some(column)) if !reader.tables.is_empty() => Ok(Text::Cell(column)),
            (_, Some(column)) => {
                let what = format!("[field{column}] needs an injection file; name it with -inf");
                Err(reader.source.diagnostic(place.at, what))
            }
            _ => {
                let what = format!("{name}=[{keyword}] is not supported; write the name, or a field of the -inf file");
                Err(reader.source.diagnostic(place.at, what))
            }
        }
    };
    let name = read("username", options.auth_user.clone().unwrap_or_else(|| options.service.clone()))?;
    let password = read("password", options.auth_password.clone())?;
    for known in parameters.split_whitespace().filter_map(|word| word.split_once('=')).map(|(name, _)| name) {
        if !matches!(known, "username" | "password") {
            reader.warn(place.at, format!("[authentication {known}=…] is not supported and is ignored"));
        }
    }
    reader.login(Login { name, password }, place.at);
    reader.authenticates.get_or_insert(place.at);
    out.keep("authentication");
    Ok(())
}
