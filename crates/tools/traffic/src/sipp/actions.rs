//! `<action>` elements: actions to run when a message comes or a `nop` is reached.

use super::keywords::{TextPosition, prepare};
use super::reader::Reader;
use super::xml::Element;
use super::{Diagnostic, distribution};
use crate::script::{Action, Check, Match, Operand, Place, PosixRegex, Relation, Stop, Variable};

/// The actions of an element, in order, and the target of a jump among them.
#[derive(Debug, Default)]
pub(super) struct Actions {
    pub(super) list: Vec<Action>,
    /// The target message's index, and the position of the jump in the file.
    pub(super) jump: Option<(usize, usize)>,
}

/// Reads all `<action>` children of the message with this index.
pub(super) fn read(reader: &mut Reader<'_>, message: &Element, index: usize) -> Result<Actions, Diagnostic> {
    let mut actions = Actions::default();
    for block in &message.children {
        if block.name != "action" {
            let what = format!(
                "<{}> inside <{}> is not known and is skipped; actions stand inside <action>",
                block.name, message.name
            );
            reader.warn(block.at, what);
            continue;
        }
        for element in &block.children {
            one(reader, element, index, &mut actions)?;
        }
    }
    Ok(actions)
}

fn one(reader: &mut Reader<'_>, element: &Element, index: usize, actions: &mut Actions) -> Result<(), Diagnostic> {
    let list = &mut actions.list;
    match element.name.as_str() {
        "ereg" => list.extend(ereg(reader, element)?),
        "assign" => {
            reader.known(element, &["assign_to", "value", "variable"]);
            list.push(Action::Assign(into(reader, element)?, operand(reader, element)?));
        }
        "add" | "subtract" | "multiply" | "divide" => {
            reader.known(element, &["assign_to", "value", "variable"]);
            let (variable, operand) = (into(reader, element)?, operand(reader, element)?);
            list.push(match element.name.as_str() {
                "add" => Action::Add(variable, operand),
                "subtract" => Action::Subtract(variable, operand),
                "multiply" => Action::Multiply(variable, operand),
                _ => Action::Divide(variable, operand),
            });
        }
        "assignstr" => {
            reader.known(element, &["assign_to", "value"]);
            let variable = into(reader, element)?;
            let template = text(reader, element, "value", index, list)?;
            list.push(Action::Text(variable, template));
        }
        "test" => list.push(test(reader, element)?),
        "strcmp" => {
            reader.known(element, &["assign_to", "variable", "value", "variable2"]);
            let (into, left) = (into(reader, element)?, variable(reader, element, "variable")?);
            let right = match element.attribute("variable2") {
                Some(other) => {
                    let text = format!("[${}]", other.value);
                    fragment(reader, &text, TextPosition { at: other.at, index }, list)?
                }
                None => text(reader, element, "value", index, list)?,
            };
            list.push(Action::Order { into, left, right });
        }
        "todouble" => {
            reader.known(element, &["assign_to", "variable"]);
            let (into, from) = (into(reader, element)?, variable(reader, element, "variable")?);
            list.push(Action::Number { into, from });
        }
        "urlencode" | "urldecode" => {
            reader.known(element, &["variable"]);
            let variable = variable(reader, element, "variable")?;
            let is_escape = element.name == "urlencode";
            list.push(if is_escape { Action::Escape(variable) } else { Action::Unescape(variable) });
        }
        "gettimeofday" => list.push(time_of_day(reader, element)?),
        "sample" => sample(reader, element, list)?,
        "log" | "warning" => {
            reader.known(element, &["message"]);
            let template = text(reader, element, "message", index, list)?;
            list.push(Action::LogTemplate(template));
        }
        "error" => {
            reader.known(element, &["message"]);
            let template = text(reader, element, "message", index, list)?;
            list.extend([Action::LogTemplate(template), Action::Stop(Stop::Now)]);
        }
        "exec" => list.extend(exec(reader, element)?),
        "jump" => actions.jump = Some((jump(reader, element)?, element.at)),
        other => reader.warn(element.at, format!("the action <{other}> is not supported and is skipped")),
    }
    Ok(())
}

fn ereg(reader: &mut Reader<'_>, element: &Element) -> Result<Option<Action>, Diagnostic> {
    let known = [
        "regexp",
        "search_in",
        "header",
        "variable",
        "case_indep",
        "occurrence",
        "occurence",
        "start_line",
        "check_it",
        "check_it_inverse",
        "assign_to",
    ];
    reader.known(element, &known);
    let regexp = reader.needed(element, "regexp")?;
    let pattern = PosixRegex::compile(&regexp.value)
        .map_err(|error| reader.source.diagnostic(regexp.at, format!("regexp=\"{}\": {error}", regexp.value)))?;
    let place = place(reader, element)?;
    let (found, not_found) = (reader.flag(element, "check_it")?, reader.flag(element, "check_it_inverse")?);
    let check = match (found, not_found) {
        (true, true) => {
            return Err(reader
                .source
                .diagnostic(element.at, "check_it and check_it_inverse exclude each other; remove one"));
        }
        (true, false) => Check::Found,
        (false, true) => Check::NotFound,
        (false, false) => Check::None,
    };
    // Header fields are found in any case and only at the start of lines, so these two have no effect.
    reader.flag(element, "case_indep")?;
    reader.flag(element, "start_line")?;
    let occurrence = match element.attribute("occurrence").or_else(|| element.attribute("occurence")) {
        None => 1,
        Some(attribute) => attribute.value.trim().parse().ok().filter(|number| *number > 0).ok_or_else(|| {
            reader
                .source
                .diagnostic(attribute.at, format!("{}=\"{}\" is not a number from 1", attribute.name, attribute.value))
        })?,
    };
    let into = match element.attribute("assign_to") {
        Some(attribute) => reader.sets(attribute),
        None => Vec::new(),
    };
    if into.is_empty() && check == Check::None {
        reader.warn(element.at, "this <ereg> has neither assign_to nor check_it: it does nothing and is skipped");
        return Ok(None);
    }
    if into.len() > pattern.groups() {
        let what = format!(
            "assign_to names {} variables, but the expression has {} groups with the whole; the rest stay empty",
            into.len(),
            pattern.groups()
        );
        reader.warn(element.at, what);
    }
    Ok(Some(Action::Match(Box::new(Match { pattern, place, occurrence, into, check }))))
}

fn place(reader: &mut Reader<'_>, element: &Element) -> Result<Place, Diagnostic> {
    let Some(attribute) = element.attribute("search_in") else { return Ok(Place::Message) };
    match attribute.value.as_str() {
        "msg" => Ok(Place::Message),
        "body" => Ok(Place::Body),
        "hdr" => {
            let header = reader.needed(element, "header")?;
            let name = header.value.trim().trim_end_matches(':').trim();
            if name.is_empty() {
                return Err(reader
                    .source
                    .diagnostic(header.at, "header=\"\" names no header field; write header=\"Contact:\""));
            }
            Ok(Place::Header(name.to_owned()))
        }
        "var" => Ok(Place::Variable(variable(reader, element, "variable")?)),
        other => {
            let what = format!("search_in=\"{other}\" is not known; there are msg, hdr, body and var");
            Err(reader.source.diagnostic(attribute.at, what))
        }
    }
}

fn test(reader: &mut Reader<'_>, element: &Element) -> Result<Action, Diagnostic> {
    reader.known(element, &["assign_to", "variable", "variable2", "compare", "value"]);
    let compare = reader.needed(element, "compare")?;
    let relation = match compare.value.as_str() {
        "equal" => Relation::Equal,
        "not_equal" => Relation::NotEqual,
        "greater_than" => Relation::Greater,
        "less_than" => Relation::Less,
        "greater_than_equal" => Relation::AtLeast,
        "less_than_equal" => Relation::AtMost,
        other => {
            let what = format!(
                "compare=\"{other}\" is not known; there are equal, not_equal, greater_than, less_than, greater_than_equal and \
                 less_than_equal"
            );
            return Err(reader.source.diagnostic(compare.at, what));
        }
    };
    let (into, left) = (into(reader, element)?, variable(reader, element, "variable")?);
    let right = match element.attribute("variable2") {
        Some(other) => Operand::Variable(reader.reads(&other.value, other.at)),
        None => Operand::Number(number(reader, element, "value")?),
    };
    Ok(Action::Relate { into, left, relation, right })
}

fn time_of_day(reader: &mut Reader<'_>, element: &Element) -> Result<Action, Diagnostic> {
    reader.known(element, &["assign_to"]);
    let attribute = reader.needed(element, "assign_to")?;
    match *reader.sets(attribute) {
        [seconds, micros] => Ok(Action::WallTime { seconds, micros }),
        _ => Err(reader
            .source
            .diagnostic(attribute.at, "<gettimeofday> needs two variables: assign_to=\"seconds,microseconds\"")),
    }
}

fn sample(reader: &mut Reader<'_>, element: &Element, list: &mut Vec<Action>) -> Result<(), Diagnostic> {
    let mut known = distribution::NAMES.to_vec();
    known.push("assign_to");
    reader.known(element, &known);
    let variable = into(reader, element)?;
    let Some(law) = distribution::law(reader, element)? else {
        return Err(reader.source.diagnostic(element.at, "<sample> needs distribution=\"…\" and its parameters"));
    };
    let law = reader.builder.law(law);
    list.push(Action::Assign(variable, Operand::Law(law)));
    // Laws are in seconds; SIPp's numbers are in milliseconds.
    list.push(Action::Multiply(variable, Operand::Number(1_000.0)));
    Ok(())
}

fn exec(reader: &mut Reader<'_>, element: &Element) -> Result<Option<Action>, Diagnostic> {
    let mut action = None;
    for attribute in &element.attributes {
        if attribute.name != "int_cmd" {
            reader.warn(attribute.at, format!("<exec {}=…> is not supported and is skipped", attribute.name));
            continue;
        }
        action = Some(Action::Stop(match attribute.value.as_str() {
            "stop_call" => Stop::Call,
            "stop_gracefully" => Stop::Gracefully,
            "stop_now" => Stop::Now,
            other => {
                let what =
                    format!("int_cmd=\"{other}\" is not known; there are stop_call, stop_gracefully and stop_now");
                return Err(reader.source.diagnostic(attribute.at, what));
            }
        }));
    }
    Ok(action)
}

fn jump(reader: &mut Reader<'_>, element: &Element) -> Result<usize, Diagnostic> {
    reader.known(element, &["value"]);
    let Some(value) = element.attribute("value") else {
        let what = "<jump> needs value=\"N\", the index of a message from 0; a variable is not supported, use next=\"label\" with test";
        return Err(reader.source.diagnostic(element.at, what));
    };
    value.value.trim().parse().map_err(|_| {
        let what = format!(
            "value=\"{}\" is not an index of a message (from 0); to go to a label, use next=\"…\"",
            value.value
        );
        reader.source.diagnostic(value.at, what)
    })
}

/// Returns the variable of `assign_to`.
fn into(reader: &mut Reader<'_>, element: &Element) -> Result<Variable, Diagnostic> {
    let attribute = reader.needed(element, "assign_to")?;
    match *reader.sets(attribute) {
        [variable] => Ok(variable),
        _ => Err(reader.source.diagnostic(attribute.at, format!("<{}> needs one variable in assign_to", element.name))),
    }
}

fn variable(reader: &mut Reader<'_>, element: &Element, name: &str) -> Result<Variable, Diagnostic> {
    let attribute = reader.needed(element, name)?;
    Ok(reader.reads(&attribute.value, attribute.at))
}

/// Returns a `variable`, or the number in `value`.
fn operand(reader: &mut Reader<'_>, element: &Element) -> Result<Operand, Diagnostic> {
    match element.attribute("variable") {
        Some(attribute) => Ok(Operand::Variable(reader.reads(&attribute.value, attribute.at))),
        None => Ok(Operand::Number(number(reader, element, "value")?)),
    }
}

fn number(reader: &Reader<'_>, element: &Element, name: &str) -> Result<f64, Diagnostic> {
    let attribute = reader.needed(element, name)?;
    attribute.value.trim().parse::<f64>().ok().filter(|number| number.is_finite()).ok_or_else(|| {
        let what = format!(
            "{name}=\"{}\" is not a number; texts are set by <assignstr> and compared by <strcmp>",
            attribute.value
        );
        reader.source.diagnostic(attribute.at, what)
    })
}

/// Returns the template of an attribute's text. Actions to run before it is used are added to `list`.
fn text(
    reader: &mut Reader<'_>,
    element: &Element,
    name: &str,
    index: usize,
    list: &mut Vec<Action>,
) -> Result<u16, Diagnostic> {
    let attribute = reader.needed(element, name)?;
    fragment(reader, &attribute.value, TextPosition { at: attribute.at, index }, list)
}

fn fragment(reader: &mut Reader<'_>, text: &str, at: TextPosition, list: &mut Vec<Action>) -> Result<u16, Diagnostic> {
    // The position of an attribute is not that of its text, but close enough on one line.
    let prepared = prepare(reader, text, at)?;
    let template = prepared.fragment().map_err(|error| reader.source.diagnostic(at.at, error.what))?;
    list.extend(prepared.actions);
    Ok(reader.builder.template(template))
}
