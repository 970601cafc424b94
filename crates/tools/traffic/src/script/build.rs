//! Construction of scripts: steps that refer to labels, checked and completed when the script is built.

use super::{
    Action, Expect, Extract, Kind, Pattern, Policy, Script, SessionResult, Step, StepIndex, Template, TemplateError,
};
use crate::law::Law;

/// A label in a script under construction; it may be placed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(u16);

/// Why a script cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// A message is invalid.
    Template {
        /// Number of the message, from 1.
        number: usize,
        /// Error in the message.
        error: TemplateError,
    },
    /// A label that a step refers to was never placed.
    NoSuchPlace,
    /// More than 65,535 steps, messages, expected messages, laws or actions.
    TooLong,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Template { number, error } => write!(f, "message {number}: {error}"),
            Self::NoSuchPlace => f.write_str("a step refers to a label that was never placed"),
            Self::TooLong => f.write_str("a script has at most 65,535 steps, messages and laws"),
        }
    }
}

impl std::error::Error for ScriptError {}

/// Builds a [`Script`] step by step. [`label`](Self::label) creates a [`Label`], [`place_label`](Self::place_label)
/// puts it before the next step. Steps may refer to labels that are not placed yet.
#[derive(Debug)]
pub struct ScriptBuilder {
    script: Script,
    marks: Vec<Option<StepIndex>>,
    error: Option<ScriptError>,
}

/// An expected message before it is built: see [`Expect`].
#[derive(Clone, Debug)]
pub struct ExpectBuilder {
    /// Messages that match.
    pub what: Pattern,
    /// What to extract from the message.
    pub takes: Extract,
    /// Next step; `None` continues to wait.
    pub to: Option<Label>,
    /// Further actions.
    pub actions: Vec<Action>,
}

impl ScriptBuilder {
    /// Creates an empty script.
    #[must_use]
    pub fn new(name: &str) -> Self {
        let script = Script {
            name: name.to_owned(),
            steps: Vec::new(),
            expects: Vec::new(),
            templates: Vec::new(),
            laws: Vec::new(),
            actions: Vec::new(),
            variables: 0,
            policy: Policy::default(),
            class: 0,
            ends_cancelled: false,
        };
        Self { script, marks: Vec::new(), error: None }
    }

    /// Sets another name.
    pub fn name(&mut self, name: &str) -> &mut Self {
        name.clone_into(&mut self.script.name);
        self
    }

    /// Sets what the engine does by itself.
    pub fn policy(&mut self, policy: Policy) -> &mut Self {
        self.script.policy = policy;
        self
    }

    /// Sets the class: for a caller, the class of callees' scripts that answers it; for a callee, the class of
    /// callers that it answers.
    pub fn class(&mut self, class: u8) -> &mut Self {
        self.script.class = class;
        self
    }

    /// Makes a cancellation by the other party the expected ending.
    pub fn ends_cancelled(&mut self) -> &mut Self {
        self.script.ends_cancelled = true;
        self
    }

    /// Creates a label that is still to be placed.
    pub fn label(&mut self) -> Label {
        self.marks.push(None);
        Label(narrow(self.marks.len() - 1, &mut self.error))
    }

    /// Places `mark` before the next step.
    pub fn place_label(&mut self, mark: Label) -> &mut Self {
        let at = narrow(self.script.steps.len(), &mut self.error);
        if let Some(slot) = self.marks.get_mut(usize::from(mark.0)) {
            *slot = Some(at);
        }
        self
    }

    /// Adds a message that several steps send.
    pub fn template(&mut self, template: Template) -> u16 {
        self.script.templates.push(template);
        narrow(self.script.templates.len() - 1, &mut self.error)
    }

    /// Adds a law and returns its index.
    pub fn law(&mut self, law: Law) -> u16 {
        self.script.laws.push(law);
        narrow(self.script.laws.len() - 1, &mut self.error)
    }

    /// Adds a variable.
    pub fn variable(&mut self) -> u16 {
        self.script.variables += 1;
        self.script.variables - 1
    }

    /// Sends `text`; requests except ACK, and 2xx to INVITE, are retransmitted until they are answered.
    pub fn send(&mut self, text: &str) -> &mut Self {
        match Template::compile(text) {
            Ok(template) => {
                let template = self.template(template);
                self.send_template(template, true)
            }
            Err(error) => {
                let number = self.script.templates.len() + 1;
                self.error.get_or_insert(ScriptError::Template { number, error });
                self
            }
        }
    }

    /// Sends a message that was added before.
    pub fn send_template(&mut self, template: u16, repeat: bool) -> &mut Self {
        let kind = self.script.templates.get(usize::from(template)).map(Template::kind);
        let repeat = repeat
            && match kind {
                Some(Kind::Request(verb)) => verb != super::MethodId::Ack,
                Some(Kind::Response(status)) => (200..300).contains(&status),
                _ => false,
            };
        self.step(Step::Send { template, repeat })
    }

    /// Waits for one of several messages; a label of `None` continues to wait.
    pub fn wait(&mut self, expects: &[(Pattern, Extract, Option<Label>)]) -> &mut Self {
        self.wait_with(expects, None)
    }

    /// Works as [`wait`](Self::wait), with a timeout drawn from a law.
    pub fn wait_with(
        &mut self,
        expects: &[(Pattern, Extract, Option<Label>)],
        timeout: Option<(u16, Label)>,
    ) -> &mut Self {
        let start = self.script.expects.len();
        for (what, takes, to) in expects {
            let actions = 0..0;
            self.script.expects.push(Expect { what: *what, extract: *takes, to: to.map(|mark| mark.0), actions });
        }
        let end = narrow(self.script.expects.len(), &mut self.error);
        let expects = narrow(start, &mut self.error)..end;
        self.step(Step::Wait { expects, timeout: timeout.map(|(law, mark)| (law, mark.0)) })
    }

    /// Works as [`wait_with`](Self::wait_with), with actions.
    pub fn wait_for(&mut self, awaited: &[ExpectBuilder], timeout: Option<(u16, Label)>) -> &mut Self {
        let start = narrow(self.script.expects.len(), &mut self.error);
        for ExpectBuilder { what, takes, to, actions } in awaited {
            let actions = self.actions(actions);
            self.script.expects.push(Expect { what: *what, extract: *takes, to: to.map(|mark| mark.0), actions });
        }
        let end = narrow(self.script.expects.len(), &mut self.error);
        self.step(Step::Wait { expects: start..end, timeout: timeout.map(|(law, mark)| (law, mark.0)) })
    }

    /// Sets the actions of the last expected message, for [`Expect::actions`].
    pub fn on_last_expect(&mut self, actions: &[Action]) -> &mut Self {
        let range = self.actions(actions);
        if let Some(expect) = self.script.expects.last_mut() {
            expect.actions = range;
        }
        self
    }

    /// Pauses for a time drawn from a law.
    pub fn pause(&mut self, law: Law) -> &mut Self {
        let law = self.law(law);
        self.step(Step::Pause { law })
    }

    /// Jumps to `mark`.
    pub fn jump(&mut self, mark: Label) -> &mut Self {
        self.step(Step::Jump { to: mark.0 })
    }

    /// Jumps to `mark` with a probability from 0 to 1.
    pub fn chance(&mut self, part: f64, mark: Label) -> &mut Self {
        self.step(Step::Chance { share: super::share(part), to: mark.0 })
    }

    /// Jumps to `mark` if `condition` holds.
    pub fn when(&mut self, condition: super::Condition, mark: Label) -> &mut Self {
        self.step(Step::If { condition, to: mark.0 })
    }

    /// Runs actions.
    pub fn act(&mut self, actions: &[Action]) -> &mut Self {
        let actions = self.actions(actions);
        self.step(Step::Actions { actions })
    }

    /// Begins another session of the same user.
    pub fn start(&mut self, script: u16) -> &mut Self {
        self.step(Step::Start { script })
    }

    /// Ends the session.
    pub fn end(&mut self, ending: SessionResult) -> &mut Self {
        self.step(Step::End(ending))
    }

    /// Adds a step as it is; its step indexes are numbers of labels.
    pub(crate) fn step(&mut self, step: Step) -> &mut Self {
        self.script.steps.push(step);
        self
    }

    fn actions(&mut self, actions: &[Action]) -> std::ops::Range<u16> {
        let start = narrow(self.script.actions.len(), &mut self.error);
        self.script.actions.extend_from_slice(actions);
        start..narrow(self.script.actions.len(), &mut self.error)
    }

    /// Resolves the labels and determines which received messages must be kept.
    ///
    /// # Errors
    /// [`ScriptError`].
    pub fn build(mut self) -> Result<Script, ScriptError> {
        narrow(self.script.steps.len(), &mut self.error);
        if let Some(error) = self.error {
            return Err(error);
        }
        let place = |mark: &mut u16| {
            let at = self.marks.get(usize::from(*mark)).copied().flatten().ok_or(ScriptError::NoSuchPlace)?;
            *mark = at;
            Ok(())
        };
        for step in &mut self.script.steps {
            match step {
                Step::Jump { to } | Step::Chance { to, .. } | Step::If { to, .. } => place(to)?,
                Step::Wait { timeout: Some((_, to)), .. } => place(to)?,
                _ => {}
            }
        }
        for to in self.script.expects.iter_mut().filter_map(|expect| expect.to.as_mut()) {
            place(to)?;
        }
        keep_what_is_needed(&mut self.script);
        Ok(self.script)
    }
}

fn narrow(value: usize, error: &mut Option<ScriptError>) -> u16 {
    u16::try_from(value).unwrap_or_else(|_| {
        error.get_or_insert(ScriptError::TooLong);
        0
    })
}

/// Sets `copy` for each expected message that a step may need after time has passed and before another message
/// replaces it. A 2xx that is repeated until its ACK is such a step, too.
fn keep_what_is_needed(script: &mut Script) {
    let count = script.steps.len();
    // needs[i]: step i or a later one uses the last message.
    let mut needs = vec![false; count + 1];
    let at = |needs: &[bool], index: u16| needs.get(usize::from(index)).copied().unwrap_or(false);
    loop {
        let mut changed = false;
        for index in (0..count).rev() {
            let Some(step) = script.steps.get(index) else { continue };
            let next = needs.get(index + 1).copied().unwrap_or(false);
            let behind = match step {
                Step::Jump { to } => at(&needs, *to),
                Step::Chance { to, .. } | Step::If { to, .. } => at(&needs, *to) || next,
                Step::Wait { timeout, expects } => {
                    // Another message replaces it, unless that only continues the wait.
                    let _ = expects;
                    timeout.is_some_and(|(_, to)| at(&needs, to))
                }
                Step::End(_) => false,
                _ => next,
            };
            let value = behind || uses_last(script, step);
            if let Some(slot) = needs.get_mut(index)
                && *slot != value
            {
                *slot = value;
                changed = true;
            }
        }
        if !changed {
            break;
        }
    }
    let repeats = |script: &Script, from: u16| {
        script
            .steps
            .get(usize::from(from)..)
            .unwrap_or(&[])
            .iter()
            .take_while(|step| !matches!(step, Step::End(_)))
            .any(|step| match step {
                Step::Send { template, repeat: true } => script
                    .templates
                    .get(usize::from(*template))
                    .is_some_and(|template| template.uses_last() && matches!(template.kind(), Kind::Response(_))),
                _ => false,
            })
    };
    for index in 0..script.expects.len() {
        let Some(expect) = script.expects.get(index) else { continue };
        let copy = match expect.to {
            Some(to) => at(&needs, to) && (waits_before_use(script, to) || repeats(script, to)),
            None => false,
        };
        if let Some(expect) = script.expects.get_mut(index) {
            expect.extract.copy |= copy;
        }
    }
}

/// Returns whether a step uses the last message.
fn uses_last(script: &Script, step: &Step) -> bool {
    let of_template = |number: &u16| script.templates.get(usize::from(*number)).is_some_and(Template::uses_last);
    match step {
        Step::Send { template, .. } => of_template(template),
        Step::Actions { actions } => {
            let actions = script.actions.get(usize::from(actions.start)..usize::from(actions.end)).unwrap_or(&[]);
            actions.iter().any(|action| match action {
                Action::Find { place, .. } => !matches!(place, super::Place::Variable(_)),
                Action::Match(search) => !matches!(search.place, super::Place::Variable(_)),
                Action::Text(_, template) | Action::LogTemplate(template) | Action::Order { right: template, .. } => {
                    of_template(template)
                }
                _ => false,
            })
        }
        _ => false,
    }
}

/// Returns whether time may pass between `from` and a step that uses the last message; errs on the side of true.
fn waits_before_use(script: &Script, from: StepIndex) -> bool {
    let mut index = usize::from(from);
    let mut seen_pause = false;
    while let Some(step) = script.steps.get(index) {
        match step {
            Step::Pause { .. } | Step::PauseFor { .. } => seen_pause = true,
            Step::Actions { .. } if seen_pause && uses_last(script, step) => return true,
            Step::Send { template, .. } => {
                let uses = script.templates.get(usize::from(*template)).is_some_and(Template::uses_last);
                if uses && seen_pause {
                    return true;
                }
            }
            Step::Jump { .. } | Step::Chance { .. } | Step::If { .. } => return true,
            Step::Wait { timeout, .. } => return timeout.is_some(),
            Step::End(_) | Step::SwitchScript { .. } => return false,
            Step::Actions { .. } | Step::Start { .. } => {}
        }
        index += 1;
    }
    false
}
