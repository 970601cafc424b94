//! `strowger plan mg1`: waiting time of packets at a single server.

use clap::Args;
use strowger_plan::capacity::mg1_capacity;
use strowger_plan::{Explanation, Mg1, Objective, PlanError, ServiceTime, mg1};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, rates, times};
use super::presentation::{Answer, DisplayArguments, Model, present};
use super::service::{Service, ServiceArguments, joined};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct Mg1Arguments {
    /// λ, packets per second
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    rate: Numbers,
    #[command(flatten)]
    service: ServiceArguments,
    /// Maximum acceptable mean wait; the highest rate that keeps it is computed
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    wait: Option<Numbers>,
    #[command(flatten)]
    shown: DisplayArguments,
}

struct Queue<'a> {
    arguments: &'a Mg1Arguments,
    service: Service<'a>,
}

impl Mg1Arguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(&Queue { arguments: self, service: self.service.general()? }, &self.shown)
    }
}

impl Model for Queue<'_> {
    const NAME: &'static str = "mg1";
    const TITLE: &'static str = "M/G/1: one server, Poisson arrivals, unlimited queue";
    const SWEEP: &'static str = "--rate 100..2000/100";

    fn inputs(&self) -> Vec<Input<'_>> {
        let mut inputs = vec![Input::new("rate_per_s", "arrivals λ", DisplayUnit::Rate, &self.arguments.rate)];
        inputs.extend(self.service.inputs());
        inputs.extend(
            self.arguments
                .wait
                .as_ref()
                .map(|wait| Input::new("wait_limit_us", "longest wait", DisplayUnit::Micros, wait)),
        );
        inputs
    }

    fn assumptions(&self) -> Vec<String> {
        self.service.assumptions()
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let rate = at.of("rate_per_s");
        let service = self.service.at(at, rate)?;
        let mut answer = match mg1(rate, service) {
            Ok(queue) => Answer {
                outputs: self.outputs(service, queue.rho, Some(queue)),
                conclusions: self.says(at, rate, &queue)?,
                explanation: joined(self.service.explain(at, rate)?, &queue),
                ..Answer::default()
            },
            Err(PlanError::Unstable { rho, highest_per_s, .. }) => Answer {
                outputs: self.outputs(service, rho, None),
                rejection: Some(unstable(rho, highest_per_s)),
                explanation: Explanation::default(),
                ..Answer::default()
            },
            Err(error) => return Err(error),
        };
        if at.is_one_of_few() {
            let highest = self.highest(at, Objective::Utilization(1.0))?;
            let below = Field::new("highest_rate_per_s", "stable below", DisplayUnit::Rate, highest);
            answer.outputs.push(below.said(edge(highest)));
            if self.arguments.wait.is_some() {
                let limit = at.of("wait_limit_us");
                let kept = self.highest(at, Objective::WaitS(limit));
                let kept = match kept {
                    Ok(kept) => Some(kept),
                    Err(PlanError::Unreachable { .. }) => None,
                    Err(error) => return Err(error),
                };
                answer.outputs.push(Field::new(
                    "rate_at_wait_limit_per_s",
                    "keeps the wait up to",
                    DisplayUnit::Rate,
                    kept,
                ));
            }
        }
        Ok(answer)
    }
}

impl Queue<'_> {
    fn highest(&self, at: &InputPoint, promise: Objective) -> Result<f64, PlanError> {
        if self.service.is_constant() && promise == Objective::Utilization(1.0) {
            return Ok(1.0 / self.service.at(at, 0.0)?.mean_s());
        }
        mg1_capacity(promise, |rate| self.service.at(at, rate)).map(|capacity| capacity.rate_per_s)
    }

    /// Returns the metrics of a queue; for an unstable one, only its load.
    fn outputs(&self, service: ServiceTime, rho: f64, queue: Option<Mg1>) -> Vec<Field> {
        let mut outputs = Vec::new();
        if !self.service.is_told() {
            outputs.push(Field::new("mean_service_us", "service E[X]", DisplayUnit::Micros, service.mean_s()));
        }
        outputs.extend([
            Field::new("second_moment_us2", "E[X²] in µs²", DisplayUnit::Number, service.second_moment_s2() * 1e12),
            Field::new("rho", "utilization ρ", DisplayUnit::Share, rho).drawn(),
            Field::new("wait_us", "mean wait W", DisplayUnit::Micros, queue.map(|queue| queue.wait_s)).drawn(),
            Field::new("response_us", "wait and service", DisplayUnit::Micros, queue.map(|queue| queue.response_s)),
            Field::new("in_queue", "packets that wait", DisplayUnit::Number, queue.map(|queue| queue.in_queue)),
        ]);
        outputs
    }

    /// Describes the result in words.
    fn says(&self, at: &InputPoint, rate: f64, queue: &Mg1) -> Result<Vec<String>, PlanError> {
        let mut says = vec![format!(
            "A packet waits {} for {} of service; the server is busy {} of the time.",
            DisplayUnit::Seconds.text(queue.wait_s),
            DisplayUnit::Seconds.text(queue.service_s),
            DisplayUnit::Share.text(queue.rho)
        )];
        let more = 1.1 * rate;
        says.push(match mg1(more, self.service.at(at, more)?) {
            Ok(then) => format!(
                "With 10 % more arrivals, {}, it waits {}: {} times as long.",
                DisplayUnit::Rate.text(more),
                DisplayUnit::Seconds.text(then.wait_s),
                DisplayUnit::Number.text((100.0 * then.wait_s / queue.wait_s).round() / 100.0)
            ),
            Err(PlanError::Unstable { .. }) => {
                format!(
                    "With 10 % more arrivals, {}, the queue grows without bound: the load is at the limit.",
                    DisplayUnit::Rate.text(more)
                )
            }
            Err(error) => return Err(error),
        });
        if queue.rho > NEAR_THE_EDGE {
            says.extend(self.near_the_edge(at, rate)?);
        }
        Ok(says)
    }
}

/// Load above which the mean wait is too uncertain for planning.
const NEAR_THE_EDGE: f64 = 0.95;

impl Queue<'_> {
    /// Describes the effect of small changes near saturation.
    fn near_the_edge(&self, at: &InputPoint, rate: f64) -> Result<Option<String>, PlanError> {
        let less = 0.99 * rate;
        // If packets cost more at lower rates, there may be no answer.
        let Ok(then) = mg1(less, self.service.at(at, less)?) else { return Ok(None) };
        Ok(Some(format!(
            "CAUTION: this close to saturation, do not plan with the mean: with 1 % fewer arrivals, {}, the wait is {}. The queue settles \
             slowly, and real queues are finite: mmck computes the drops.",
            DisplayUnit::Rate.text(less),
            DisplayUnit::Seconds.text(then.wait_s)
        )))
    }
}

/// Formats the highest rate, rounded down to whole packets, for tables and sentences.
fn edge(highest_per_s: f64) -> String {
    // 1/(1/n) may be slightly below n.
    let whole = (highest_per_s * (1.0 + 1e-12)).floor();
    DisplayUnit::Rate.text(if whole >= 1.0 { whole } else { highest_per_s })
}

/// Describes why there is no answer, and the remedy.
fn unstable(rho: f64, highest_per_s: f64) -> String {
    let rounded = (100.0 * rho).round() / 100.0;
    let work = if rho < 1.0 + 1e-9 {
        "arrivals keep one server busy all the time, so the queue grows without bound".to_owned()
    } else {
        // A load slightly above 1 must not be shown as 1.
        let servers = DisplayUnit::Number.text(if rounded > 1.0 { rounded } else { rho });
        let servers = if servers == "1" { "slightly more than 1".to_owned() } else { servers };
        format!("{servers} servers' worth of work arrives for 1")
    };
    let more = rho.floor();
    let servers =
        if more <= 1.0 { "a server".to_owned() } else { format!("{} servers", DisplayUnit::Number.text(more)) };
    format!(
        "the queue is unstable: {work}; stay below {}, or add {servers} (mmck computes the drops of c servers with a queue of K)",
        edge(highest_per_s)
    )
}
