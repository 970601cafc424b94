//! Parsing of a scenario's elements into items. Labels and flow are resolved after all are read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::actions::{self, Actions};
use super::csv::Table;
use super::keywords::{TextPosition, number_of_message, prepare};
use super::xml::{Element, Source};
use super::{Diagnostic, Options, Role, distribution};
use crate::law::Law;
use crate::script::{Action, Condition, Kind, MethodId, PosixRegex, ScriptBuilder, share};
use crate::sipp::reader::{Item, ItemKind, Message, Next, Optional, Reader, Receive};

impl<'a> Reader<'a> {
    pub(super) fn new(source: &'a Source, options: &'a Options, tables: &'a [Arc<Table>]) -> Self {
        Self {
            source,
            options,
            tables,
            builder: ScriptBuilder::new("scenario"),
            role: Role::Caller,
            receives_requests: false,
            items: Vec::new(),
            labels: BTreeMap::new(),
            warnings: Vec::new(),
            begin: Vec::new(),
            login: None,
            t1: None,
            uses_tag: false,
            uses_route: None,
            authenticates: None,
            warned: BTreeSet::new(),
            variables: BTreeMap::new(),
            timers: BTreeMap::new(),
            cseq: None,
            call_id: None,
            lines: Vec::new(),
            transactions: BTreeMap::new(),
        }
    }

    /// Reads the whole scenario.
    pub(super) fn scenario(&mut self, root: &Element) -> Result<(), Diagnostic> {
        if root.name != "scenario" {
            let what = format!("the file begins with <{}>; a scenario begins with <scenario>", root.name);
            return Err(self.source.diagnostic(root.at, what));
        }
        self.known(root, &["name", "xmlns:xi"]);
        let first = root.children.iter().find(|element| matches!(element.name.as_str(), "send" | "recv"));
        let first =
            first.ok_or_else(|| self.source.diagnostic(root.at, "the scenario has neither <send> nor <recv>"))?;
        self.role = if first.name == "send" { Role::Caller } else { Role::Callee };
        self.receives_requests =
            root.children.iter().any(|element| element.name == "recv" && element.attribute("request").is_some());
        for (name, value) in &self.options.set {
            let number = self.known_variable(name);
            number.is_set = true;
            let number = number.number;
            self.begin.push(Action::Assign(number, crate::script::Operand::Text(value.clone())));
        }
        for element in &root.children {
            self.element(element)?;
        }
        self.remarks();
        Ok(())
    }

    fn element(&mut self, element: &Element) -> Result<(), Diagnostic> {
        let text = element.text.trim();
        if !text.is_empty() && !matches!(element.name.as_str(), "send" | "sendCmd") {
            let text: String = text.chars().take(30).collect();
            self.warn(
                element.text_at,
                format!("the text '{text}' inside <{}> has no meaning and is skipped", element.name),
            );
        }
        match element.name.as_str() {
            "send" => self.send(element),
            "recv" => self.receive(element),
            "pause" => self.pause(element),
            "timewait" => self.time_wait(element),
            "nop" => {
                self.known(element, &[]);
                self.push(element, ItemKind::Nothing)
            }
            "label" => self.label(element),
            "init" => self.init(element),
            "sendCmd" | "recvCmd" => {
                let what = format!(
                    "<{}> is not supported: there is no second tool to command (3PCC). It is skipped, and what it would set \
                     stays empty",
                    element.name
                );
                self.warn(element.at, what);
                // It keeps its index, for `[msg_index]` and jumps.
                let next = self.next(element)?;
                let skip = self.skip(element)?;
                let item =
                    Item { at: element.at, kind: ItemKind::Nothing, next, skip, actions: Vec::new(), jump: None };
                self.items.push(item);
                Ok(())
            }
            "Reference" | "ResponseTimeRepartition" | "CallLengthRepartition" => Ok(()),
            "Global" | "User" => {
                let what = format!("<{}> variables are not shared here: each call has its own", element.name);
                self.warn(element.at, what);
                Ok(())
            }
            other => {
                self.warn(element.at, format!("<{other}> is not known and is skipped"));
                Ok(())
            }
        }
    }

    fn send(&mut self, element: &Element) -> Result<(), Diagnostic> {
        self.known(element, &["retrans", "lost", "start_txn", "ack_txn"]);
        let index = self.items.len();
        if element.text.trim().is_empty() {
            return Err(self
                .source
                .diagnostic(element.at, "this <send> has no message; put one inside <![CDATA[ … ]]>"));
        }
        let prepared = prepare(self, &element.text, TextPosition { at: element.text_at, index })?;
        let template = prepared.message().map_err(|error| {
            // Blank lines precede the message.
            let blank: usize =
                element.text.split_inclusive('\n').take_while(|line| line.trim().is_empty()).map(str::len).sum();
            let begin: usize = element
                .text
                .get(blank..)
                .unwrap_or_default()
                .split_inclusive('\n')
                .take(error.line - 1)
                .map(str::len)
                .sum();
            let line = element.text.get(blank + begin..).unwrap_or_default();
            let white = line.len() - line.trim_start().len();
            self.source.diagnostic(element.text_at + blank + begin + white, error.what)
        })?;
        self.check_call_id(element);
        let template = match element.attribute("lost") {
            None => template,
            Some(attribute) => {
                let percent = self.number(attribute, 100.0)?;
                template.with_loss(share(percent / 100.0))
            }
        };
        let kind = template.kind();
        for name in ["start_txn", "ack_txn"] {
            let Some(attribute) = element.attribute(name) else { continue };
            match (name, kind) {
                ("start_txn", Kind::Request(verb)) if verb != MethodId::Ack => {
                    self.transactions.insert(attribute.value.clone(), verb);
                }
                ("ack_txn", Kind::Request(MethodId::Ack)) if self.transactions.contains_key(&attribute.value) => {}
                ("ack_txn", Kind::Request(MethodId::Ack)) => {
                    let what = format!("ack_txn=\"{0}\": no <send> before has start_txn=\"{0}\"", attribute.value);
                    return Err(self.source.diagnostic(attribute.at, what));
                }
                _ => {
                    let what = format!("{name} does not fit this message: start_txn is for requests, ack_txn for ACK");
                    return Err(self.source.diagnostic(attribute.at, what));
                }
            }
        }
        let repeat = match element.attribute("retrans") {
            None => false,
            Some(attribute) => {
                let t1 = self.number(attribute, 3_600_000.0)?;
                if t1 > 0.0 {
                    self.t1(t1, attribute.at);
                }
                t1 > 0.0
            }
        };
        let template = self.builder.template(template);
        self.push(element, ItemKind::Send { template, kind, repeat, prepare: prepared.actions })
    }

    /// Sets T1, once for the whole run: the first value counts.
    fn t1(&mut self, t1: f64, at: usize) {
        match self.t1 {
            None => self.t1 = Some(t1),
            Some(first) if (first - t1).abs() > f64::EPSILON => {
                self.warn(
                    at,
                    format!("retrans=\"{t1}\": a run has one T1, here {first} ms, as the first retrans says"),
                );
            }
            Some(_) => {}
        }
    }

    /// Checks that the Call-ID is the session's or the other end's, because responses find their call by it.
    fn check_call_id(&mut self, element: &Element) {
        let mut at = 0;
        for line in element.text.split_inclusive('\n') {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            let is_call_id = ["call-id", "i"].contains(&name.trim().to_ascii_lowercase().as_str());
            if is_call_id && value.trim() != "[call_id]" && !value.trim().starts_with("[$") {
                let white = line.len() - line.trim_start().len();
                let what = "a Call-ID that is not just [call_id]: answers to this message will not be recognised";
                self.warn(element.text_at + at + white, what);
            }
            if at > 0
                && line.trim().is_empty()
                && name.trim().is_empty()
                && element.text.get(..at).is_some_and(|head| !head.trim().is_empty())
            {
                return;
            }
            at += line.len();
        }
    }

    fn receive(&mut self, element: &Element) -> Result<(), Diagnostic> {
        let known = [
            "response",
            "request",
            "optional",
            "timeout",
            "ontimeout",
            "auth",
            "rrs",
            "lost",
            "regexp_match",
            "response_txn",
            "ignoresdp",
        ];
        self.known(element, &known);
        if let Some(attribute) = element.attribute("lost") {
            let what = "lost is not supported on <recv> and is ignored; set it on the <send> of the other end";
            self.warn(attribute.at, what);
        }
        self.flag(element, "ignoresdp")?;
        let message = self.message(element)?;
        let optional = match element.attribute("optional") {
            None => Optional::No,
            Some(attribute) => match attribute.value.as_str() {
                "true" => Optional::Yes,
                "false" => Optional::No,
                "global" => Optional::Global,
                other => {
                    let what = format!("optional=\"{other}\" is not known; there are true, false and global");
                    return Err(self.source.diagnostic(attribute.at, what));
                }
            },
        };
        let ontimeout = element.attribute("ontimeout").map(|attribute| (attribute.value.clone(), attribute.at));
        let timeout = match (element.attribute("timeout"), self.options.receive_timeout) {
            (Some(attribute), _) => {
                let millis = self.number(attribute, 1e9)?;
                let law = self.law_of(millis, attribute)?;
                Some((law, ontimeout))
            }
            (None, Some(limit)) => Some((self.builder.law(Law::constant(limit)), ontimeout)),
            (None, None) => {
                if let Some((label, at)) = ontimeout {
                    self.warn(
                        at,
                        format!("ontimeout=\"{label}\" without timeout=\"…\" (or -recv_timeout) has no effect"),
                    );
                }
                None
            }
        };
        let (route, challenge) = (self.flag(element, "rrs")?, self.flag(element, "auth")?);
        self.push(element, ItemKind::Receive(Receive { message, optional, timeout, route, challenge }))
    }

    fn message(&mut self, element: &Element) -> Result<Message, Diagnostic> {
        let is_expression = self.flag(element, "regexp_match")?;
        match (element.attribute("response"), element.attribute("request")) {
            (Some(response), None) => {
                let status = response.value.trim().parse().ok().filter(|status| (100..700).contains(status));
                let status = status.ok_or_else(|| {
                    let what = format!("response=\"{}\" is not a status of three digits, 100 to 699", response.value);
                    self.source.diagnostic(response.at, what)
                })?;
                let transaction = match element.attribute("response_txn") {
                    None => None,
                    Some(attribute) => Some(*self.transactions.get(&attribute.value).ok_or_else(|| {
                        let what =
                            format!("response_txn=\"{0}\": no <send> before has start_txn=\"{0}\"", attribute.value);
                        self.source.diagnostic(attribute.at, what)
                    })?),
                };
                Ok(Message::Response(status, transaction))
            }
            (None, Some(request)) if is_expression => {
                let pattern = PosixRegex::compile(&request.value).map_err(|error| {
                    self.source.diagnostic(request.at, format!("request=\"{}\": {error}", request.value))
                })?;
                let verbs: Vec<MethodId> = MethodId::ALL
                    .into_iter()
                    .filter(|verb| *verb != MethodId::Other && pattern.is_in(verb.as_str().as_bytes()))
                    .collect();
                if verbs.is_empty() {
                    let what = format!(
                        "request=\"{}\" matches none of the methods that are distinguished here",
                        request.value
                    );
                    return Err(self.source.diagnostic(request.at, what));
                }
                Ok(Message::Requests(verbs))
            }
            (None, Some(request)) => {
                let verb = MethodId::of(strowger_message::Method::from_token(request.value.trim().as_bytes()));
                if verb == MethodId::Other {
                    let what = format!(
                        "request=\"{}\": methods with other names are not distinguished; any of them matches",
                        request.value
                    );
                    self.warn(request.at, what);
                }
                Ok(Message::Requests(vec![verb]))
            }
            _ => Err(self.source.diagnostic(element.at, "<recv> needs either response=\"200\" or request=\"INVITE\"")),
        }
    }

    fn pause(&mut self, element: &Element) -> Result<(), Diagnostic> {
        let mut known = distribution::NAMES.to_vec();
        known.push("variable");
        self.known(element, &known);
        if let Some(attribute) = element.attribute("variable") {
            let variable = self.reads(&attribute.value, attribute.at);
            return self.push(element, ItemKind::PauseFor(variable));
        }
        let law = distribution::law(self, element)?.unwrap_or_else(|| Law::constant(self.options.pause));
        let law = self.builder.law(law);
        self.push(element, ItemKind::Pause(law))
    }

    fn time_wait(&mut self, element: &Element) -> Result<(), Diagnostic> {
        self.known(element, &distribution::NAMES);
        let Some(law) = distribution::law(self, element)? else {
            return Err(self.source.diagnostic(element.at, "<timewait> needs milliseconds=\"…\""));
        };
        let law = self.builder.law(law);
        self.push(element, ItemKind::Pause(law))
    }

    fn label(&mut self, element: &Element) -> Result<(), Diagnostic> {
        self.known(element, &["id"]);
        let id = self.needed(element, "id")?;
        if id.value == "_unexp.main" {
            self.warn(element.at, "unexpected messages do not go to the label _unexp.main here: they fail the call");
        }
        match self.labels.insert(id.value.clone(), (self.items.len(), element.at)) {
            None => Ok(()),
            Some((_, first)) => {
                let line = self.source.diagnostic(first, "").line;
                let what = format!("the label '{}' is already on line {line}; give this one another id", id.value);
                Err(self.source.diagnostic(id.at, what))
            }
        }
    }

    fn init(&mut self, element: &Element) -> Result<(), Diagnostic> {
        self.warn(element.at, "<init> is done at the beginning of each call, not once before all of them");
        for child in &element.children {
            if child.name != "nop" {
                self.warn(child.at, format!("<{}> inside <init> is not supported and is skipped", child.name));
                continue;
            }
            let Actions { list, jump } = actions::read(self, child, 0)?;
            if let Some((_, at)) = jump {
                self.warn(at, "<jump> inside <init> is not supported and is skipped");
            }
            self.begin.extend(list);
        }
        Ok(())
    }

    /// Adds an item with the common attributes.
    fn push(&mut self, element: &Element, what: ItemKind) -> Result<(), Diagnostic> {
        let Actions { list, jump } = actions::read(self, element, self.items.len())?;
        let mut actions = Vec::new();
        for (name, begins) in [("start_rtd", true), ("rtd", false)] {
            let Some(attribute) = element.attribute(name) else { continue };
            if let Some(number) = self.timer(attribute, begins) {
                actions.push(if begins { Action::BeginTimer(number) } else { Action::EndTimer(number) });
            }
        }
        for name in ["repeat_rtd", "crlf", "hide"] {
            self.flag(element, name)?;
        }
        if let Some(attribute) = element.attribute("counter") {
            self.warn(attribute.at, "user-defined counters are not supported: the report counts every message");
        }
        let is_request = matches!(what, ItemKind::Receive(Receive { message: Message::Requests(_), .. }));
        if let (true, Some(cseq)) = (is_request, self.cseq) {
            actions.extend(number_of_message(cseq));
        }
        actions.extend(list);
        let (next, skip) = (self.next(element)?, self.skip(element)?);
        self.items.push(Item { at: element.at, kind: what, next, skip, actions, jump });
        Ok(())
    }

    fn next(&mut self, element: &Element) -> Result<Option<Next>, Diagnostic> {
        let test = element.attribute("test").map(|attribute| self.reads(&attribute.value, attribute.at));
        let chance = match element.attribute("chance") {
            None => None,
            Some(attribute) => Some(self.number(attribute, 1.0)?),
        };
        let Some(next) = element.attribute("next") else {
            if let Some(attribute) = element.attribute("test").or_else(|| element.attribute("chance")) {
                self.warn(attribute.at, format!("{} without next=\"…\" has no effect", attribute.name));
            }
            return Ok(None);
        };
        Ok(Some(Next { label: next.value.clone(), at: next.at, test, chance }))
    }

    fn skip(&mut self, element: &Element) -> Result<Option<Condition>, Diagnostic> {
        let is_inverse = self.flag(element, "condexec_inverse")?;
        let Some(attribute) = element.attribute("condexec") else { return Ok(None) };
        let variable = self.reads(&attribute.value, attribute.at);
        Ok(Some(if is_inverse { Condition::Set(variable) } else { Condition::Unset(variable) }))
    }

    /// Adds warnings that need the whole scenario.
    fn remarks(&mut self) {
        let timers: Vec<u8> = self.timers.values().filter(|timer| !timer.is_begun).map(|timer| timer.number).collect();
        // A timer without a start is measured from the beginning of the call.
        self.begin.extend(timers.into_iter().map(Action::BeginTimer));
        let unset = self.variables.iter().filter(|(_, known)| !known.is_set);
        let unset: Vec<_> = unset.filter_map(|(name, known)| Some((name.clone(), known.read_at?))).collect();
        for (name, at) in unset {
            self.warn(at, format!("the variable '{name}' is never given a value: it is always empty"));
        }
        let receives = |what: fn(&Receive) -> bool| {
            self.items.iter().any(|item| matches!(&item.kind, ItemKind::Receive(receive) if what(receive)))
        };
        let (has_route, has_challenge) = (receives(|receive| receive.route), receives(|receive| receive.challenge));
        if let Some(at) = self.uses_route.filter(|_| !has_route) {
            self.warn(at, "[routes] and [next_url] are empty unless a <recv> before has rrs=\"true\"");
        }
        if let Some(at) = self.authenticates.filter(|_| !has_challenge) {
            self.warn(at, "[authentication] is empty unless a <recv> before has auth=\"true\"");
        }
    }
}
