//! `strowger plan overload`: throughput under overload.

use clap::Args;
use strowger_plan::{Explain as _, PlanError, overload};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, plain, times};
use super::presentation::{Answer, DisplayArguments, Model, present};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct OverloadArguments {
    /// x, offered load as a multiple of capacity
    #[arg(long, value_name = "N", value_parser = plain, allow_hyphen_values = true)]
    load: Numbers,
    /// Time to refuse a request, or to drop it after it was received
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    refuse: Numbers,
    /// Time to serve a request, with all its messages
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    serve: Numbers,
    /// n, number of transmissions of a refused request: 7 for an INVITE over UDP that is not answered
    #[arg(long, value_name = "N", value_parser = plain, default_value = "1", allow_hyphen_values = true)]
    transmissions: Numbers,
    #[command(flatten)]
    shown: DisplayArguments,
}

impl OverloadArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(self, &self.shown)
    }
}

impl Model for OverloadArguments {
    const NAME: &'static str = "overload";
    const TITLE: &'static str = "(1 − x·r)/(1 − r): the capacity left under overload, if refused work costs r";
    const SWEEP: &'static str = "--load 1..10/0.5";

    fn inputs(&self) -> Vec<Input<'_>> {
        vec![
            Input::new("load", "offered x, in capacities", DisplayUnit::Number, &self.load),
            Input::new("refuse_us", "refusing takes", DisplayUnit::Micros, &self.refuse),
            Input::new("serve_us", "serving takes", DisplayUnit::Micros, &self.serve),
            Input::new("transmissions", "transmissions of refused work n", DisplayUnit::Number, &self.transmissions),
        ]
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let found = overload(at.of("load"), at.of("refuse_us"), at.of("serve_us"), at.of("transmissions"))?;
        let end = match found.vanishes_at {
            Some(load) => {
                format!("At {} times the capacity, nothing is carried.", DisplayUnit::Number.text(load))
            }
            None => "Refusing costs nothing, so the load does not matter.".to_owned(),
        };
        Ok(Answer {
            outputs: vec![
                Field::new("ratio", "r, refusing ÷ serving", DisplayUnit::Number, found.ratio),
                Field::new("goodput", "carried at most", DisplayUnit::Share, found.goodput).drawn(),
                Field::new("vanishes_at", "nothing carried from", DisplayUnit::Number, found.vanishes_at),
            ],
            conclusions: vec![format!(
                "At most {} of the capacity is carried. {end}",
                DisplayUnit::Share.text(found.goodput)
            )],
            explanation: found.explain(),
            ..Answer::default()
        })
    }
}
