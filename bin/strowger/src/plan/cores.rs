//! `strowger plan cores`: capacity with more cores.

use clap::Args;
use strowger_plan::{Explain as _, PlanError, cores};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, counts, rates};
use super::presentation::{Answer, DisplayArguments, Model, present};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct CoresArguments {
    /// p, number of processors (sockets) of the machine
    #[arg(long, value_name = "N", value_parser = counts, default_value = "1", allow_hyphen_values = true)]
    processors: Numbers,
    /// c, total number of cores
    #[arg(long, value_name = "N", value_parser = counts, allow_hyphen_values = true)]
    cores: Numbers,
    /// C₁, capacity of one thread on one core: calls per second without noticeable drops
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    base: Numbers,
    #[command(flatten)]
    shown: DisplayArguments,
}

impl CoresArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(self, &self.shown)
    }
}

impl Model for CoresArguments {
    const NAME: &'static str = "cores";
    const TITLE: &'static str = "C = T·C₁: threads of one process that share a socket, on many cores";
    const SWEEP: &'static str = "--cores 2..16/2";

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![
            Input::new("processors", "processors p", DisplayUnit::Count, &self.processors),
            Input::new("cores", "cores c", DisplayUnit::Count, &self.cores),
            Input::new("base_per_s", "one thread carries C₁", DisplayUnit::Rate, &self.base),
        ]
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let found = cores(at.count("processors"), at.count("cores"), at.of("base_per_s"))?;
        let why = if found.processors == 1 {
            "On one processor, two more threads than cores keep all cores busy."
        } else {
            "On several processors, use as many threads as cores: moving a thread between processors costs more than a briefly idle core."
        };
        Ok(Answer {
            outputs: vec![
                Field::new("threads", "best number of threads T", DisplayUnit::Count, f64::from(found.threads)),
                Field::new("capacity", "capacity C", DisplayUnit::Rate, found.capacity_per_s).drawn(),
                Field::new(
                    "capacity_per_core",
                    "a core",
                    DisplayUnit::Rate,
                    found.capacity_per_s / f64::from(found.cores),
                ),
            ],
            conclusions: vec![
                format!("{} threads carry {}. {why}", found.threads, DisplayUnit::Rate.text(found.capacity_per_s)),
                "This is a first approximation, measured up to 6 cores; strowger's own workers have one socket each and share less."
                    .to_owned(),
            ],
            explanation: found.explain(),
            ..Answer::default()
        })
    }
}
