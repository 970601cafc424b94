//! Making scripts: steps by name of their labels, checked and completed when they are built.

use super::{Action, Ending, Expect, Extract, Kind, Pattern, Policy, Script, Step, StepIndex, Template, TemplateError};
use crate::law::Law;

/// A place in a script that is being made, maybe one that is still to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Label(u16);

/// Why a script cannot be built.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ScriptError {
    /// A message is not one.
    Template {
        /// Which, from 1.
        number: usize,
        /// What is wrong.
        error: TemplateError,
    },
    /// A mark that something goes to was never placed.
    NoSuchPlace,
    /// More steps, messages, expected messages, laws or actions than 65,535.
    TooLong,
}

impl std::fmt::Display for ScriptError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Template { number, error } => write!(f, "message {number}: {error}"),
            Self::NoSuchPlace => f.write_str("a step goes to a place that does not exist"),
            Self::TooLong => f.write_str("a script has at most 65,535 steps, messages and laws"),
        }
    }
}

impl std::error::Error for ScriptError {}

/// Makes a [`Script`], step after step. Places are [`Mark`]s: [`mark`](Self::mark) makes one, [`place`](Self::place) puts
/// it before the next step; they may be gone to before they are placed.
#[derive(Debug)]
pub struct ScriptBuilder {
    script: Script,
    marks: Vec<Option<StepIndex>>,
    error: Option<ScriptError>,
}

/// A message that is waited for, before it is built: see [`Expect`].
#[derive(Clone, Debug)]
pub struct ExpectBuilder {
    /// Which message.
    pub what: Pattern,
    /// What is taken from it.
    pub takes: Extract,
    /// Where to go; `None` waits on.
    pub to: Option<Label>,
    /// What else is done.
    pub actions: Vec<Action>,
}

impl ScriptBuilder {
    /// An empty script.
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

    /// Another name.
    pub fn name(&mut self, name: &str) -> &mut Self {
        name.clone_into(&mut self.script.name);
        self
    }

    /// Sets what the engine does by itself.
    pub fn policy(&mut self, policy: Policy) -> &mut Self {
        self.script.policy = policy;
        self
    }

    /// Sets by which class of callees' scripts it is answered, or which class of callers' it answers.
    pub fn class(&mut self, class: u8) -> &mut Self {
        self.script.class = class;
        self
    }

    /// That the other party cancels is how it should end.
    pub fn ends_cancelled(&mut self) -> &mut Self {
        self.script.ends_cancelled = true;
        self
    }

    /// A place that is still to be placed.
    pub fn label(&mut self) -> Label {
        self.marks.push(None);
        Label(narrow(self.marks.len() - 1, &mut self.error))
    }

    /// Puts `mark` before the next step.
    pub fn place_label(&mut self, mark: Label) -> &mut Self {
        let at = narrow(self.script.steps.len(), &mut self.error);
        if let Some(slot) = self.marks.get_mut(usize::from(mark.0)) {
            *slot = Some(at);
        }
        self
    }

    /// A message to be sent more than once.
    pub fn template(&mut self, template: Template) -> u16 {
        self.script.templates.push(template);
        narrow(self.script.templates.len() - 1, &mut self.error)
    }

    /// A law, by its number.
    pub fn law(&mut self, law: Law) -> u16 {
        self.script.laws.push(law);
        narrow(self.script.laws.len() - 1, &mut self.error)
    }

    /// A new variable.
    pub fn variable(&mut self) -> u16 {
        self.script.variables += 1;
        self.script.variables - 1
    }

    /// Sends `text`; requests but ACK, and 2xx to INVITE, are repeated until they are answered.
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

    /// Sends a message that was made before.
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

    /// Waits for one of several messages; a place of `None` waits on.
    pub fn wait(&mut self, expects: &[(Pattern, Extract, Option<Label>)]) -> &mut Self {
        self.wait_with(expects, None)
    }

    /// As [`wait`](Self::wait), for a time that a law gives at most.
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

    /// As [`wait_with`](Self::wait_with), with actions.
    pub fn wait_for(&mut self, awaited: &[ExpectBuilder], timeout: Option<(u16, Label)>) -> &mut Self {
        let start = narrow(self.script.expects.len(), &mut self.error);
        for ExpectBuilder { what, takes, to, actions } in awaited {
            let actions = self.actions(actions);
            self.script.expects.push(Expect { what: *what, extract: *takes, to: to.map(|mark| mark.0), actions });
        }
        let end = narrow(self.script.expects.len(), &mut self.error);
        self.step(Step::Wait { expects: start..end, timeout: timeout.map(|(law, mark)| (law, mark.0)) })
    }

    /// The actions that the last expected message has; for [`Expect::actions`].
    pub fn on_last_expect(&mut self, actions: &[Action]) -> &mut Self {
        let range = self.actions(actions);
        if let Some(expect) = self.script.expects.last_mut() {
            expect.actions = range;
        }
        self
    }

    /// Pauses for a time that a law gives.
    pub fn pause(&mut self, law: Law) -> &mut Self {
        let law = self.law(law);
        self.step(Step::Pause { law })
    }

    /// Goes to `mark`.
    pub fn jump(&mut self, mark: Label) -> &mut Self {
        self.step(Step::Jump { to: mark.0 })
    }

    /// Goes to `mark` in a share (0 to 1) of all cases.
    pub fn chance(&mut self, part: f64, mark: Label) -> &mut Self {
        self.step(Step::Chance { share: super::share(part), to: mark.0 })
    }

    /// Goes to `mark` where `condition` holds.
    pub fn when(&mut self, condition: super::Condition, mark: Label) -> &mut Self {
        self.step(Step::If { condition, to: mark.0 })
    }

    /// Acts.
    pub fn act(&mut self, actions: &[Action]) -> &mut Self {
        let actions = self.actions(actions);
        self.step(Step::Actions { actions })
    }

    /// Begins another session of the same user.
    pub fn start(&mut self, script: u16) -> &mut Self {
        self.step(Step::Start { script })
    }

    /// Ends the session.
    pub fn end(&mut self, ending: Ending) -> &mut Self {
        self.step(Step::End(ending))
    }

    /// A step as it is; places in it are marks' numbers.
    pub(crate) fn step(&mut self, step: Step) -> &mut Self {
        self.script.steps.push(step);
        self
    }

    fn actions(&mut self, actions: &[Action]) -> std::ops::Range<u16> {
        let start = narrow(self.script.actions.len(), &mut self.error);
        self.script.actions.extend_from_slice(actions);
        start..narrow(self.script.actions.len(), &mut self.error)
    }

    /// Resolves the places and finds out which received messages must be kept.
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

/// For each expected message: may a step that needs it be reached after time has passed and before another message takes
/// its place? A 2xx that is repeated until its ACK is such a step, too.
fn keep_what_is_needed(script: &mut Script) {
    let count = script.steps.len();
    // needs[i]: step i or one behind it uses the last message.
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
                    // Another message takes its place, unless it only makes the session wait on.
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

/// Whether a step uses the last message.
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

/// Whether time may pass between `from` and a step that uses the last message; said rather too often than too seldom.
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
