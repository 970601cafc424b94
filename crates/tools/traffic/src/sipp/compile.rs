//! Compilation of items into steps.

use std::ops::Range;

use super::check::{FlowGraph, target};
use super::reader::{Item, ItemKind, Message, Next, Optional, Reader, Receive};
use super::xml::Element;
use super::{Diagnostic, Login, Role, Scenario, Text};
use crate::script::{ExpectBuilder, Extract, Label, MethodId, Pattern, Policy, SessionResult, Step};

/// The default T1, in ms.
const DEFAULT_T1: f64 = 500.0;
/// Maximum number of messages that may come at any time; each wait contains all of them.
const MAX_GLOBALS: usize = 64;

/// Builds the script from the items that were read.
pub(super) fn scenario(mut reader: Reader<'_>, root: &Element) -> Result<Scenario, Diagnostic> {
    let flow = FlowGraph::of(&reader)?;
    let answers = answers(&reader)?;
    let policy = Policy { follow_routes: false, answer_unexpected: false, acknowledge_unexpected: true };
    reader.builder.policy(policy);
    if let Some(name) = root.attribute("name") {
        reader.builder.name(&name.value);
    }
    let marks: Vec<Label> = (0..=reader.items.len()).map(|_| reader.builder.label()).collect();
    let lost = reader.builder.label();
    let items = std::mem::take(&mut reader.items);
    let receives = |what: fn(&Receive) -> bool| {
        let receives = move |item: &Item| matches!(&item.kind, ItemKind::Receive(receive) if what(receive));
        items.iter().enumerate().filter(move |(_, item)| receives(item)).map(|(index, _)| index)
    };
    let globals: Vec<usize> = receives(|receive| receive.optional == Optional::Global).collect();
    if let Some(item) = globals.get(MAX_GLOBALS).and_then(|index| items.get(*index)) {
        let what = format!("a scenario has at most {MAX_GLOBALS} messages with optional=\"global\"");
        return Err(reader.source.diagnostic(item.at, what));
    }
    let first_route = receives(|receive| receive.route).next().unwrap_or(usize::MAX);
    let mut emitter = Emitter { flow, marks, lost, items: &items, globals, first_route, reader: &mut reader };
    emitter.all()?;
    let Reader { builder, warnings, login, options, tables, t1, role, source, .. } = reader;
    let script = builder.build().map_err(|error| source.diagnostic(root.at, error.to_string()))?;
    let fixed = |text: &str| Text::Fixed(text.to_owned());
    let name = options.auth_user.as_deref().unwrap_or(&options.service);
    let login = login.unwrap_or_else(|| Login { name: fixed(name), password: fixed(&options.auth_password) });
    let t1 = t1.filter(|t1| (t1 - DEFAULT_T1).abs() > f64::EPSILON);
    let t1 = t1.map(|t1| std::time::Duration::from_secs_f64(t1 / 1_000.0));
    Ok(Scenario { script, role, answers, warnings, t1, login, table: tables.first().cloned() })
}

/// Returns the requests that begin a call at the answering end.
fn answers(reader: &Reader<'_>) -> Result<Vec<MethodId>, Diagnostic> {
    let mut verbs = Vec::new();
    if reader.role == Role::Caller {
        return Ok(verbs);
    }
    for item in &reader.items {
        match &item.kind {
            ItemKind::Receive(Receive { message: Message::Requests(requests), optional, .. }) => {
                verbs.extend(requests.iter().filter(|verb| **verb != MethodId::Ack));
                if *optional == Optional::No {
                    break;
                }
            }
            ItemKind::Receive(_) => {
                return Err(reader
                    .source
                    .diagnostic(item.at, "a call cannot begin with receiving a response; begin with <recv request>"));
            }
            // A command of another tool, which is ignored.
            ItemKind::Nothing if item.actions.is_empty() && item.next.is_none() => {}
            _ => {
                let what = "a scenario that answers begins with the <recv> of the request; put this after it";
                return Err(reader.source.diagnostic(item.at, what));
            }
        }
    }
    verbs.sort_unstable();
    verbs.dedup();
    Ok(verbs)
}

struct Emitter<'e, 'a> {
    flow: FlowGraph,
    marks: Vec<Label>,
    /// The target of a timeout without a label.
    lost: Label,
    items: &'e [Item],
    /// The messages that may come at any time.
    globals: Vec<usize>,
    /// The first message that stores the route set.
    first_route: usize,
    reader: &'e mut Reader<'a>,
}

/// Branches placed after a wait: the item, and the target if its branch is not taken.
type Trampolines<'e> = Vec<(Label, &'e Item, Label)>;

impl<'e> Emitter<'e, '_> {
    fn all(&mut self) -> Result<(), Diagnostic> {
        let begin = std::mem::take(&mut self.reader.begin);
        if !begin.is_empty() {
            match self.reader.role {
                Role::Caller => {
                    self.reader.builder.act(&begin);
                }
                // A call begins with its first message, so the first wait occurs twice: once with the initial
                // actions.
                Role::Callee => {
                    let first =
                        self.items.iter().position(|item| matches!(item.kind, ItemKind::Receive(_))).unwrap_or(0);
                    let again = self.mark(first);
                    let (group, _) = self.group(first);
                    self.wait(group, again, &begin)?;
                }
            }
        }
        let mut index = 0;
        while let Some(item) = self.items.get(index) {
            let end = match item.kind {
                ItemKind::Receive(_) => self.group(index).1,
                _ => index + 1,
            };
            for index in index..end {
                let mark = self.mark(index);
                self.reader.builder.place_label(mark);
            }
            match item.kind {
                ItemKind::Receive(_) => {
                    if end == index + 1 {
                        self.skip(item, end);
                    } else if let Some(item) =
                        self.items.get(index..end).into_iter().flatten().find(|item| item.skip.is_some())
                    {
                        let what = "condexec is not supported on a <recv> next to optional ones and is ignored; use next with test";
                        self.reader.warn(item.at, what);
                    }
                    let mark = self.mark(index);
                    self.wait(index..end, mark, &[])?;
                }
                _ => self.other(item, index)?,
            }
            index = end;
        }
        let (end, lost) = (self.mark(self.items.len()), self.lost);
        self.reader.builder.place_label(end).end(SessionResult::Carried);
        self.reader.builder.place_label(lost).end(SessionResult::Lost);
        Ok(())
    }

    fn mark(&self, index: usize) -> Label {
        self.marks.get(index).copied().unwrap_or(self.lost)
    }

    /// Returns the optional messages from `first` on with the mandatory one after them, and the index after that.
    fn group(&self, first: usize) -> (Range<usize>, usize) {
        let is_last =
            |item: &Item| !matches!(&item.kind, ItemKind::Receive(receive) if receive.optional != Optional::No);
        let rest = self.items.get(first..).unwrap_or(&[]);
        let end = first + rest.iter().position(is_last).unwrap_or(0) + 1;
        (first..end, end)
    }

    /// Skips an item if its condition holds.
    fn skip(&mut self, item: &Item, to: usize) {
        if let Some(condition) = &item.skip {
            let to = self.mark(to);
            self.reader.builder.when(condition.clone(), to);
        }
    }

    fn other(&mut self, item: &Item, index: usize) -> Result<(), Diagnostic> {
        self.skip(item, index + 1);
        match &item.kind {
            ItemKind::Send { template, repeat, prepare, .. } => {
                if !prepare.is_empty() {
                    self.reader.builder.act(prepare);
                }
                self.reader.builder.send_template(*template, *repeat);
            }
            ItemKind::Pause(law) => {
                let after = self.reader.builder.label();
                let globals = self.globals(index);
                if globals.is_empty() {
                    self.reader.builder.step(Step::Pause { law: *law });
                } else {
                    let again = self.mark(index);
                    let (expects, trampolines) = self.awaited(&globals, again, again, &[])?;
                    self.reader.builder.wait_for(&expects, Some((*law, after)));
                    self.trampolines(trampolines)?;
                }
                self.reader.builder.place_label(after);
            }
            ItemKind::PauseFor(variable) => {
                self.reader.builder.step(Step::PauseFor { millis: *variable });
            }
            ItemKind::Nothing | ItemKind::Receive(_) => {}
        }
        if !item.actions.is_empty() {
            self.reader.builder.act(&item.actions);
        }
        if let Some((to, _)) = item.jump {
            let to = self.mark(to);
            self.reader.builder.jump(to);
        } else if let Some(next) = &item.next {
            self.branch(next)?;
        }
        Ok(())
    }

    /// Returns the messages before `index` that may come at any time.
    fn globals(&self, index: usize) -> Vec<usize> {
        self.globals.iter().copied().filter(|global| *global < index).collect()
    }

    /// Waits for a group. `again` labels the wait, and `first` runs before the actions of the received message.
    fn wait(&mut self, group: Range<usize>, again: Label, first: &[crate::script::Action]) -> Result<(), Diagnostic> {
        let after = self.mark(group.end);
        let mut members: Vec<usize> = group.clone().collect();
        members.extend(self.globals(group.start));
        let (expects, trampolines) = self.awaited(&members, again, after, first)?;
        let timed = self.items.get(group).into_iter().flatten().find_map(|item| match &item.kind {
            ItemKind::Receive(receive) => receive.timeout.as_ref(),
            _ => None,
        });
        let timeout = match timed {
            None => None,
            Some((law, None)) => Some((*law, self.lost)),
            Some((law, Some((label, at)))) => {
                let to = target(self.reader, label, *at)?;
                Some((*law, self.mark(to)))
            }
        };
        self.reader.builder.wait_for(&expects, timeout);
        self.trampolines(trampolines)
    }

    /// Returns the expected messages, and the branches to place after the wait.
    fn awaited(
        &mut self,
        members: &[usize],
        again: Label,
        after: Label,
        first: &[crate::script::Action],
    ) -> Result<(Vec<ExpectBuilder>, Trampolines<'e>), Diagnostic> {
        let items = self.items;
        let (mut expects, mut trampolines) = (Vec::new(), Trampolines::new());
        for (index, item) in members.iter().filter_map(|index| Some((*index, items.get(*index)?))) {
            let ItemKind::Receive(receive) = &item.kind else { continue };
            let is_optional = receive.optional != Optional::No;
            let to = match (&item.jump, &item.next) {
                (Some((to, _)), _) => Some(self.mark(*to)),
                (None, Some(Next { label, at, test: None, chance: None })) => {
                    let to = target(self.reader, label, *at)?;
                    Some(self.mark(to))
                }
                (None, Some(_)) => {
                    let mark = self.reader.builder.label();
                    trampolines.push((mark, item, if is_optional { again } else { after }));
                    Some(mark)
                }
                (None, None) if is_optional && first.is_empty() => None,
                (None, None) if is_optional => Some(again),
                (None, None) => Some(after),
            };
            let takes = self.takes(index, receive);
            let actions: Vec<_> = first.iter().chain(&item.actions).cloned().collect();
            for what in self.patterns(index, receive) {
                expects.push(ExpectBuilder { what, takes, to, actions: actions.clone() });
            }
        }
        Ok((expects, trampolines))
    }

    fn trampolines(&mut self, trampolines: Trampolines<'e>) -> Result<(), Diagnostic> {
        if trampolines.is_empty() {
            return Ok(());
        }
        for (mark, item, otherwise) in trampolines {
            self.reader.builder.place_label(mark);
            if let Some(next) = &item.next {
                self.branch(next)?;
            }
            self.reader.builder.jump(otherwise);
        }
        Ok(())
    }

    /// Jumps to a label, subject to its test and chance.
    fn branch(&mut self, next: &Next) -> Result<(), Diagnostic> {
        let to = target(self.reader, &next.label, next.at)?;
        let to = self.mark(to);
        let builder = &mut self.reader.builder;
        match (next.test, next.chance) {
            (None, None) => builder.jump(to),
            (Some(test), None) => builder.when(crate::script::Condition::Set(test), to),
            (None, Some(chance)) => builder.chance(chance, to),
            (Some(test), Some(chance)) => {
                let past = builder.label();
                builder.when(crate::script::Condition::Unset(test), past).chance(chance, to).place_label(past)
            }
        };
        Ok(())
    }

    fn patterns(&self, index: usize, receive: &Receive) -> Vec<Pattern> {
        let response = |status, method| Pattern::Response { low: status, high: status, method };
        match &receive.message {
            Message::Requests(verbs) => verbs.iter().map(|verb| Pattern::Request(*verb)).collect(),
            Message::Response(status, Some(method)) => vec![response(*status, Some(*method))],
            Message::Response(status, None) => match self.flow.open(index) {
                // A response that may come at any time matches any request.
                open if open.is_empty() || receive.optional == Optional::Global => vec![response(*status, None)],
                open => open.into_iter().map(|method| response(*status, Some(method))).collect(),
            },
        }
    }

    /// `rrs` stores the dialog. Before that, the other end's tag is taken from any message, as in SIPp.
    fn takes(&self, index: usize, receive: &Receive) -> Extract {
        let has_tag = match &receive.message {
            Message::Response(status, _) => *status > 100,
            Message::Requests(verbs) => !verbs
                .iter()
                .any(|verb| matches!(verb, MethodId::Ack | MethodId::Bye | MethodId::Cancel | MethodId::Prack)),
        };
        let dialog = receive.route || (self.reader.uses_tag && has_tag && index <= self.first_route);
        Extract { dialog, challenge: receive.challenge, copy: false }
    }
}
