//! State while a scenario is read: warnings, variables and timers, and the parsing of attributes.

use std::sync::Arc;

use super::csv::Table;
use super::keywords::{number_of_message, search};
use super::reader::{Item, ItemKind, Message, Reader, Receive};
use super::xml::{Attribute, Element};
use super::{Diagnostic, Login};
use crate::law::Law;
use crate::script::{Action, Kind, MethodId, Variable};
use crate::sipp::reader::{Timer, VariableState};

/// Maximum number of timers in reports.
const MAX_TIMERS: usize = 16;

/// Attributes of all message commands.
const COMMON: [&str; 12] = [
    "start_rtd",
    "rtd",
    "repeat_rtd",
    "crlf",
    "next",
    "test",
    "chance",
    "condexec",
    "condexec_inverse",
    "counter",
    "hide",
    "display",
];

impl Reader<'_> {
    /// Returns the timer that an attribute names.
    pub(super) fn timer(&mut self, attribute: &Attribute, begins: bool) -> Option<u8> {
        if !self.timers.contains_key(&attribute.value) {
            let number = u8::try_from(self.timers.len()).ok().filter(|number| usize::from(*number) < MAX_TIMERS);
            let Some(number) = number else {
                self.warn(
                    attribute.at,
                    format!("there are {MAX_TIMERS} timers; '{}' is one more and is not measured", attribute.value),
                );
                return None;
            };
            self.timers.insert(attribute.value.clone(), Timer { number, is_begun: false });
        }
        let timer = self.timers.get_mut(&attribute.value)?;
        timer.is_begun |= begins;
        Some(timer.number)
    }

    pub(super) fn warn(&mut self, at: usize, what: impl Into<String>) {
        let what = what.into();
        if self.warned.insert((at, what.clone())) {
            self.warnings.push(self.source.diagnostic(at, what));
        }
    }

    /// Warns of unknown attributes.
    pub(super) fn known(&mut self, element: &Element, own: &[&str]) {
        let is_message = matches!(element.name.as_str(), "send" | "recv" | "pause" | "nop" | "timewait");
        for attribute in &element.attributes {
            let name = attribute.name.as_str();
            let is_common = is_message && COMMON.contains(&name);
            if !is_common && !own.contains(&name) {
                let what = format!("the attribute {name} of <{}> is not known and is ignored", element.name);
                self.warn(attribute.at, what);
            }
        }
    }

    pub(super) fn needed<'e>(&self, element: &'e Element, name: &str) -> Result<&'e Attribute, Diagnostic> {
        let missing = || self.source.diagnostic(element.at, format!("<{}> needs {name}=\"…\"", element.name));
        element.attribute(name).ok_or_else(missing)
    }

    pub(super) fn flag(&self, element: &Element, name: &str) -> Result<bool, Diagnostic> {
        match element.attribute(name).map(|attribute| (attribute, attribute.value.as_str())) {
            None | Some((_, "false")) => Ok(false),
            Some((_, "true")) => Ok(true),
            Some((attribute, other)) => {
                Err(self.source.diagnostic(attribute.at, format!("{name}=\"{other}\" is neither true nor false")))
            }
        }
    }

    pub(super) fn number(&self, attribute: &Attribute, most: f64) -> Result<f64, Diagnostic> {
        let number = attribute.value.trim().parse::<f64>().ok().filter(|number| (0.0..=most).contains(number));
        number.ok_or_else(|| {
            let what = format!("{}=\"{}\" is not a number from 0 to {most}", attribute.name, attribute.value);
            self.source.diagnostic(attribute.at, what)
        })
    }

    pub(super) fn law_of(&mut self, millis: f64, attribute: &Attribute) -> Result<u16, Diagnostic> {
        let law = Law::parse(&format!("{millis}ms"))
            .map_err(|error| self.source.diagnostic(attribute.at, error.to_string()))?;
        Ok(self.builder.law(law))
    }

    /// Returns the variables that an attribute names, and marks them as set.
    pub(super) fn sets(&mut self, attribute: &Attribute) -> Vec<Variable> {
        let names = attribute.value.split(',').map(str::trim).filter(|name| !name.is_empty());
        names
            .map(|name| {
                let known = self.known_variable(name);
                known.is_set = true;
                known.number
            })
            .collect()
    }

    /// Returns the variable that is used at `at`.
    pub(super) fn reads(&mut self, name: &str, at: usize) -> Variable {
        let known = self.known_variable(name.trim());
        known.read_at.get_or_insert(at);
        known.number
    }

    pub(super) fn known_variable(&mut self, name: &str) -> &mut VariableState {
        let builder = &mut self.builder;
        let new = || VariableState { number: builder.variable(), is_set: false, read_at: None };
        self.variables.entry(name.to_owned()).or_insert_with(new)
    }

    /// Returns the variable with the CSeq number of the last request received. Every `<recv request>` sets it.
    pub(super) fn cseq_variable(&mut self) -> Variable {
        if let Some(variable) = self.cseq {
            return variable;
        }
        let variable = self.builder.variable();
        self.begin.push(Action::Assign(variable, crate::script::Operand::Number(f64::from(self.options.base_cseq))));
        for item in &mut self.items {
            if matches!(item.kind, ItemKind::Receive(Receive { message: Message::Requests(_), .. })) {
                item.actions.splice(0..0, number_of_message(variable));
            }
        }
        self.cseq = Some(variable);
        variable
    }

    /// Returns the variable with the Call-ID of a call that the other end began.
    pub(super) fn call_id_variable(&mut self) -> Variable {
        if let Some(variable) = self.call_id {
            return variable;
        }
        let variable = self.builder.variable();
        self.begin.extend(search(".*", "Call-ID", vec![variable]));
        self.call_id = Some(variable);
        variable
    }

    /// Returns the variable with the number of the call's line of `table`.
    pub(super) fn line_of(&mut self, table: &Arc<Table>) -> Variable {
        if let Some((_, variable)) = self.lines.iter().find(|(known, _)| Arc::ptr_eq(known, table)) {
            return *variable;
        }
        let variable = self.builder.variable();
        self.begin.push(Action::Line { into: variable, table: table.clone() });
        self.lines.push((table.clone(), variable));
        variable
    }

    /// Sets the user name and password, one pair for the whole scenario.
    pub(super) fn login(&mut self, login: Login, at: usize) {
        match &self.login {
            None => self.login = Some(login),
            Some(first) if *first != login => {
                self.warn(
                    at,
                    "a scenario has one name and password, here those of its first [authentication]; use two scenarios",
                );
            }
            Some(_) => {}
        }
    }

    /// Returns the number of branches between the item `target`, which sends a request, and the next item.
    pub(super) fn branches_since(&self, target: usize) -> Option<usize> {
        let sent = |item: &Item| match item.kind {
            ItemKind::Send { kind: Kind::Request(verb), .. } => Some(verb),
            _ => None,
        };
        sent(self.items.get(target)?)?;
        let later = self.items.get(target + 1..)?.iter().filter_map(sent);
        Some(later.filter(|verb| *verb != MethodId::Cancel).count() + 1)
    }
}
