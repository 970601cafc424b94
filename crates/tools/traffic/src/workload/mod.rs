//! The workloads that are known by name.

mod calls;

pub use calls::{CallTimes, callee, caller, registering};

use crate::engine::Mix;
use crate::law::Law;
use crate::script::{Script, ScriptError, Verb};

/// What both ends of a run do.
#[derive(Clone, Debug)]
pub struct Workload {
    /// What it is called.
    pub name: String,
    /// The caller's scripts.
    pub callers: Vec<Script>,
    /// Which of them an arrival begins.
    pub mix: Mix,
    /// The callee's scripts.
    pub callees: Vec<Script>,
    /// Which of them answers which request.
    pub answers: Vec<(Verb, u16)>,
    /// The script of [`callees`](Self::callees) by which callees register before the run, where they must.
    pub registering: Option<u16>,
}

/// The names, as `--help` and error messages show them.
pub const WORKLOADS: &[&str] = &["proxy-200", "baseline", "registration"];

impl Workload {
    /// The workload of this name; `None` where there is none.
    ///
    /// # Errors
    /// Never for the built-in ones.
    pub fn by_name(name: &str) -> Result<Option<Self>, ScriptError> {
        Ok(match name {
            "proxy-200" => Some(Self::calls(name, &CallTimes::default())?),
            "baseline" => {
                let pause = Law::constant(std::time::Duration::from_millis(250));
                let times = CallTimes { ring: Some(pause.clone()), hold: Some(pause) };
                Some(Self::calls(name, &times)?)
            }
            "registration" => Some(Self {
                name: name.to_owned(),
                callers: vec![registering()?],
                mix: Mix::One(0),
                callees: Vec::new(),
                answers: Vec::new(),
                registering: None,
            }),
            _ => None,
        })
    }

    /// Calls that are answered, after the times that are given.
    ///
    /// # Errors
    /// Never.
    pub fn calls(name: &str, times: &CallTimes) -> Result<Self, ScriptError> {
        Ok(Self {
            name: name.to_owned(),
            callers: vec![caller(times)?],
            mix: Mix::One(0),
            callees: vec![callee(times)?, registering()?],
            answers: vec![(Verb::Invite, 0)],
            registering: Some(1),
        })
    }
}
