//! `strowger plan mmck` and `mgck`: losses of c servers with a queue of capacity K.

use clap::Args;
use strowger_plan::capacity::{mgck_capacity, mmck_capacity};
use strowger_plan::{Beta, Explanation, Objective, PlanError, ServiceTime, mgck, mmck, threads_on_one_core};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, counts, rates, shares};
use super::presentation::{Answer, DisplayArguments, Model, present};
use super::profile::LoadedProfile;
use super::service::{Service, ServiceArguments, joined};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct FiniteArguments {
    /// λ, packets per second offered, including those dropped
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    rate: Numbers,
    #[command(flatten)]
    service: ServiceArguments,
    /// c, number of threads, processes or machines at one queue
    #[arg(long, value_name = "N", value_parser = counts, default_value = "1", allow_hyphen_values = true)]
    servers: Numbers,
    /// K, capacity of the queue in packets, including those in service
    #[arg(long, value_name = "N", value_parser = counts, default_value = "200", allow_hyphen_values = true)]
    queue: Numbers,
    /// The servers are threads on one core: β(λ,c), their slowdown by contention; thesis, profile or A,B,D of A·c +
    /// B·λ + D
    #[arg(long, value_name = "BETA", value_parser = beta)]
    beta: Option<BetaArgument>,
    /// Maximum acceptable share of drops; the highest rate that keeps it is computed
    #[arg(long, value_name = "SHARE", value_parser = shares, default_value = "1%", allow_hyphen_values = true)]
    drops: Numbers,
    #[command(flatten)]
    shown: DisplayArguments,
}

/// Source of β.
#[derive(Clone, Copy, Debug)]
enum BetaArgument {
    Given(Beta),
    Profile,
}

fn beta(text: &str) -> Result<BetaArgument, String> {
    match text.trim() {
        "thesis" => return Ok(BetaArgument::Given(Beta::THESIS)),
        "profile" => return Ok(BetaArgument::Profile),
        _ => {}
    }
    let wrong = || {
        format!(
            "'{text}' is not a β; write thesis, profile, or the three numbers of A·c + B·λ + D, such as 0.174,0.923e-4,-0.6"
        )
    };
    let numbers: Vec<f64> = text.split(',').map_while(|part| part.trim().parse().ok()).collect();
    match numbers.as_slice() {
        [per_thread, per_packet, constant] if text.split(',').count() == 3 => {
            Ok(BetaArgument::Given(Beta { per_thread: *per_thread, per_packet: *per_packet, constant: *constant }))
        }
        _ => Err(wrong()),
    }
}

/// Results of both models.
struct QueueMetrics {
    rho: f64,
    drop_probability: f64,
    throughput_per_s: f64,
    utilization: f64,
    wait_s: f64,
    in_queue: f64,
    explanation: Explanation,
}

struct Parts<'a> {
    arguments: &'a FiniteArguments,
    service: Service<'a>,
    beta: Option<Beta>,
}

impl FiniteArguments {
    pub(super) fn run_mmck(&self) -> Result<(), Failure> {
        present(&Exponential(self.parts(self.service.exponential()?)?), &self.shown)
    }

    pub(super) fn run_mgck(&self) -> Result<(), Failure> {
        present(&General(self.parts(self.service.general()?)?), &self.shown)
    }

    fn parts<'a>(&'a self, service: Service<'a>) -> Result<Parts<'a>, Failure> {
        let beta = match self.beta {
            None => None,
            Some(BetaArgument::Given(beta)) => Some(beta),
            Some(BetaArgument::Profile) => {
                Some(service.profile.as_ref().and_then(LoadedProfile::beta).ok_or_else(|| {
                    let remedy = "fit a profile to runs with several threads, or write --beta thesis";
                    Failure::Usage(format!("--beta profile needs a --profile with a β; {remedy}"))
                })?)
            }
        };
        Ok(Parts { arguments: self, service, beta })
    }
}

impl Parts<'_> {
    fn inputs(&self) -> Vec<Input<'_>> {
        let arguments = self.arguments;
        let mut inputs = vec![Input::new("rate_per_s", "arrivals λ", DisplayUnit::Rate, &arguments.rate)];
        inputs.extend(self.service.inputs());
        inputs.push(Input::new("servers", "servers c", DisplayUnit::Count, &arguments.servers));
        inputs.push(Input::new("queue", "queue K", DisplayUnit::Count, &arguments.queue));
        inputs.push(Input::new("drop_limit", "accepted drops", DisplayUnit::Share, &arguments.drops));
        inputs
    }

    fn assumptions(&self) -> Vec<String> {
        let mut said = self.service.assumptions();
        said.push(match self.beta {
            None => "each server has its own core (for threads that share a core: --beta)".to_owned(),
            Some(Beta { per_thread, per_packet, constant }) => format!(
                "the servers share one core: E[X] is the service time of one alone, and β = {}·c + {}·λ {} {}",
                DisplayUnit::Number.text(per_thread),
                DisplayUnit::Number.text(per_packet),
                if constant < 0.0 { '−' } else { '+' },
                DisplayUnit::Number.text(constant.abs())
            ),
        });
        said
    }

    /// Returns X of one server.
    fn service_at(&self, at: &InputPoint, rate: f64) -> Result<ServiceTime, PlanError> {
        let single = self.service.at(at, rate)?;
        match self.beta {
            None => Ok(single),
            Some(beta) => threads_on_one_core(rate, single, at.count("servers"), beta).map(|threads| threads.service),
        }
    }

    fn explain(&self, at: &InputPoint, rate: f64) -> Result<Explanation, PlanError> {
        let explanation = self.service.explain(at, rate)?;
        let Some(beta) = self.beta else { return Ok(explanation) };
        let threads = threads_on_one_core(rate, self.service.at(at, rate)?, at.count("servers"), beta)?;
        Ok(joined(explanation, &threads))
    }

    fn answer(
        &self,
        at: &InputPoint,
        found: QueueMetrics,
        capacity: Option<Result<f64, PlanError>>,
    ) -> Result<Answer, PlanError> {
        let rate = at.of("rate_per_s");
        let service = self.service_at(at, rate)?;
        let capacity = match capacity.transpose() {
            Ok(capacity) => capacity,
            Err(PlanError::Unreachable { .. }) => None,
            Err(error) => return Err(error),
        };
        let mut outputs = Vec::new();
        if !self.service.is_told() || self.beta.is_some() {
            outputs.push(Field::new("mean_service_us", "service E[X]", DisplayUnit::Micros, service.mean_s()));
        }
        outputs.extend([
            Field::new("rho", "offered to a server ρ", DisplayUnit::Share, found.rho).drawn(),
            Field::new("drop_probability", "dropped p_K", DisplayUnit::Share, found.drop_probability).drawn(),
            Field::new("carried_per_s", "carried", DisplayUnit::Rate, found.throughput_per_s),
            Field::new("utilization", "a server works", DisplayUnit::Share, found.utilization),
            Field::new("wait_us", "mean wait", DisplayUnit::Micros, found.wait_s).drawn(),
            Field::new("in_queue", "packets that wait", DisplayUnit::Number, found.in_queue),
        ]);
        if at.is_one_of_few() {
            outputs.push(Field::new("rate_at_drop_limit_per_s", "keeps the drops up to", DisplayUnit::Rate, capacity));
        }
        let says = self.says(at, &found, capacity);
        Ok(Answer { outputs, conclusions: says, explanation: found.explanation, ..Answer::default() })
    }

    /// Describes the result in words.
    fn says(&self, at: &InputPoint, found: &QueueMetrics, capacity: Option<f64>) -> Vec<String> {
        let (rate, limit) = (at.of("rate_per_s"), at.of("drop_limit"));
        let servers = at.count("servers");
        let mut says = Vec::new();
        if found.rho > 1.0 {
            says.push(format!(
                "Overload: {} servers' worth of work arrives for {servers}, so at least {} is dropped with any queue; a longer \
                 queue only makes the rest wait longer.",
                DisplayUnit::Number.text((found.rho * f64::from(servers) * 100.0).round() / 100.0),
                DisplayUnit::Share.text(1.0 - 1.0 / found.rho)
            ));
        } else {
            says.push(format!(
                "{} of {} are dropped, {}; the others wait {}.",
                DisplayUnit::Share.text(found.drop_probability),
                DisplayUnit::Rate.text(rate),
                DisplayUnit::Rate.text(rate * found.drop_probability),
                DisplayUnit::Seconds.text(found.wait_s)
            ));
        }
        match capacity {
            Some(capacity) if capacity >= rate => says.push(format!(
                "Drops stay below {} up to {}: {} more than the given rate.",
                DisplayUnit::Share.text(limit),
                DisplayUnit::Rate.text(capacity.floor()),
                DisplayUnit::Share.text((1000.0 * (capacity / rate - 1.0)).floor() / 1000.0)
            )),
            Some(capacity) => says.push(format!(
                "That exceeds {}, which holds up to {}: reduce the rate by {}, or {}.",
                DisplayUnit::Share.text(limit),
                DisplayUnit::Rate.text(capacity.floor()),
                DisplayUnit::Rate.text((rate - capacity).ceil()),
                if self.beta.is_some() {
                    "add a core (more threads on this one make it worse)"
                } else {
                    "add a server, or make the service faster"
                }
            )),
            None => {}
        }
        says
    }
}

/// Collects the common results of both models, after the given explanation.
macro_rules! queue_metrics {
    ($found:expr, $before:expr) => {{
        let found = $found;
        QueueMetrics {
            rho: found.rho,
            drop_probability: found.drop_probability,
            throughput_per_s: found.throughput_per_s,
            utilization: found.utilization,
            wait_s: found.wait_s,
            in_queue: found.in_queue,
            explanation: joined($before, &found),
        }
    }};
}

/// M/M/c/K.
struct Exponential<'a>(Parts<'a>);

impl Model for Exponential<'_> {
    const NAME: &'static str = "mmck";
    const TITLE: &'static str = "M/M/c/K: c servers with one queue, room for K packets, exponential service times";
    const SWEEP: &'static str = "--rate 6000..16000/500";

    fn inputs(&self) -> Vec<Input<'_>> {
        self.0.inputs()
    }

    fn assumptions(&self) -> Vec<String> {
        self.0.assumptions()
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let rate = at.of("rate_per_s");
        let (servers, queue) = (at.count("servers"), at.large("queue"));
        let found = queue_metrics!(
            mmck(rate, self.0.service_at(at, rate)?.mean_s(), servers, queue)?,
            self.0.explain(at, rate)?
        );
        let capacity = at.is_one_of_few().then(|| {
            let promise = Objective::Drops(at.of("drop_limit"));
            let service_at = |rate| self.0.service_at(at, rate).map(|service| service.mean_s());
            mmck_capacity(promise, servers, queue, service_at).map(|capacity| capacity.rate_per_s)
        });
        self.0.answer(at, found, capacity)
    }
}

/// M/G/c/K.
struct General<'a>(Parts<'a>);

impl Model for General<'_> {
    const NAME: &'static str = "mgck";
    const TITLE: &'static str =
        "M/G/c/K: c servers with one queue, room for K packets, general service times (Smith's approximation)";
    const SWEEP: &'static str = "--rate 6000..16000/500";

    fn inputs(&self) -> Vec<Input<'_>> {
        self.0.inputs()
    }

    fn assumptions(&self) -> Vec<String> {
        self.0.assumptions()
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let rate = at.of("rate_per_s");
        let (servers, queue) = (at.count("servers"), at.large("queue"));
        let found =
            queue_metrics!(mgck(rate, self.0.service_at(at, rate)?, servers, queue)?, self.0.explain(at, rate)?);
        let capacity = at.is_one_of_few().then(|| {
            let promise = Objective::Drops(at.of("drop_limit"));
            mgck_capacity(promise, servers, queue, |rate| self.0.service_at(at, rate))
                .map(|capacity| capacity.rate_per_s)
        });
        self.0.answer(at, found, capacity)
    }
}
