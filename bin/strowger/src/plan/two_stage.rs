//! `strowger plan two-stage`: capacity of a two-stage cluster, and when a first stage is needed.

use clap::Args;
use serde_json::{Value, json};
use strowger_plan::two_stage::{Bottleneck, part_stateful_capacity};
use strowger_plan::{BreakPoint, Explain as _, PlanError, StageRequirements, StageSizing, TwoStage, stages};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, counts, counts_or_none, plain, rates, rates_or_none, share, shares};
use super::presentation::{Answer, DisplayArguments, Model, present};
use crate::failure::Failure;
use crate::plot::{Chart, DisplayUnit, Line};

#[derive(Debug, Args)]
pub(crate) struct TwoStageArguments {
    /// n, number of first-stage servers; 0 for none
    #[arg(long, value_name = "N", value_parser = counts_or_none, allow_hyphen_values = true)]
    first: Option<Numbers>,
    /// C_s, forwarding capacity of one of them
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    first_capacity: Option<Numbers>,
    /// m, number of second-stage servers [default: one per share]
    #[arg(long, value_name = "N", value_parser = counts, allow_hyphen_values = true)]
    second: Option<Numbers>,
    /// C_p, capacity of one of them; with --requests, in requests
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    second_capacity: Numbers,
    /// f, share of the load that the hash assigns to each second-stage server, such as 0.4,0.3,0.3 [default: equal
    /// shares]
    #[arg(long, value_name = "SHARES", value_delimiter = ',', value_parser = share)]
    shares: Vec<f64>,
    /// f_s, share of calls that the second stage forwards statefully; --second-capacity is then the stateless
    /// capacity
    #[arg(long, value_name = "SHARE", value_parser = shares, requires = "stateful_capacity", allow_hyphen_values = true)]
    stateful: Option<Numbers>,
    /// C', capacity of a second-stage server if it forwards all calls statefully
    #[arg(long, value_name = "RATE", value_parser = rates, requires = "stateful", allow_hyphen_values = true)]
    stateful_capacity: Option<Numbers>,
    /// Offered load; its throughput is computed
    #[arg(long, value_name = "RATE", value_parser = rates, allow_hyphen_values = true)]
    load: Option<Numbers>,
    /// Instead: λ_P, requests per second to serve (INVITE, MESSAGE, …); computes the number of servers in each stage
    #[arg(long, value_name = "RATE", value_parser = rates_or_none, help_heading = "How many are needed",
        conflicts_with_all = ["first", "second", "shares", "stateful", "load"],
        allow_hyphen_values = true)]
    requests: Option<Numbers>,
    /// λ_R, REGISTERs per second
    #[arg(long, value_name = "RATE", value_parser = rates_or_none, default_value = "0", help_heading = "How many are needed",
        allow_hyphen_values = true)]
    registers: Numbers,
    /// μ_r, REGISTER capacity of a second-stage server
    #[arg(long, value_name = "RATE", value_parser = rates, requires = "requests", help_heading = "How many are needed",
        allow_hyphen_values = true)]
    register_capacity: Option<Numbers>,
    /// Maximum utilization of a server
    #[arg(long, value_name = "SHARE", value_parser = shares, default_value = "70%", help_heading = "How many are needed",
        allow_hyphen_values = true)]
    utilization: Numbers,
    /// Load of the busiest cluster relative to the mean
    #[arg(long, value_name = "NUMBER", value_parser = plain, default_value = "1", help_heading = "How many are needed",
        allow_hyphen_values = true)]
    skew: Numbers,
    #[command(flatten)]
    shown: DisplayArguments,
}

impl TwoStageArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        if let (Some(requests), Some(register_capacity), Some(first_capacity)) =
            (&self.requests, &self.register_capacity, &self.first_capacity)
        {
            return present(
                &RequiredStages { arguments: self, requests, register_capacity, first_capacity },
                &self.shown,
            );
        }
        if self.requests.is_some() {
            return Err(Failure::Usage(
                "--requests computes the number of servers in each stage; it also needs the capacity of one server, with --first-capacity \
                 RATE, --second-capacity RATE and --register-capacity RATE"
                    .to_owned(),
            ));
        }
        let Some(first) = &self.first else {
            return Err(Failure::Usage(
                "give the number of first-stage servers to compute their throughput (--first N --first-capacity RATE, --first 0 for none), or \
                 the load to compute the number of servers (--requests RATE --first-capacity RATE --register-capacity RATE)"
                    .to_owned(),
            ));
        };
        if self.first_capacity.is_none() && first.all().iter().any(|count| *count > 0.0) {
            return Err(Failure::Usage(
                "give the forwarding capacity of a first-stage server: --first-capacity RATE".to_owned(),
            ));
        }
        if self.shares.is_empty() && self.second.is_none() {
            return Err(Failure::Usage(
                "describe the second stage: --second N for equal shares, or --shares, such as 0.4,0.3,0.3".to_owned(),
            ));
        }
        if let Some(second) = self.second.as_ref().filter(|_| !self.shares.is_empty()) {
            let count = self.shares.len();
            if second.all() != [f64::from(u32::try_from(count).unwrap_or(u32::MAX))] {
                return Err(Failure::Usage(format!(
                    "there are {count} shares for --second {}; give one share per server, or omit --second",
                    second.all().iter().map(|value| DisplayUnit::Number.text(*value)).collect::<Vec<_>>().join(",")
                )));
            }
        }
        present(&Cluster { arguments: self, first }, &self.shown)
    }
}

/// Model of a cluster with given n and m.
struct Cluster<'a> {
    arguments: &'a TwoStageArguments,
    first: &'a Numbers,
}

impl Cluster<'_> {
    fn cluster(&self, at: &InputPoint) -> Result<TwoStage, PlanError> {
        let second = self.second_capacity(at)?;
        let (first, capacity) = (at.count("first"), at.of("first_capacity_per_s"));
        if self.arguments.shares.is_empty() {
            TwoStage::even(first, capacity, at.count("second"), second)
        } else {
            TwoStage::new(first, capacity, second, &self.arguments.shares)
        }
    }

    /// Describes the bottleneck and the gain of one more server there.
    fn says(&self, at: &InputPoint, cluster: &TwoStage) -> Result<Vec<String>, PlanError> {
        let points = cluster.break_points();
        let mut says = vec![format!(
            "All load up to {} is carried; the maximum throughput is {}.",
            DisplayUnit::Rate.text(cluster.carries_all_up_to().floor()),
            DisplayUnit::Rate.text(cluster.capacity().floor())
        )];
        if let Some(first) = points.first() {
            says.push(match first.full {
                Bottleneck::First => format!("What limits first: the first stage, full at {}.", DisplayUnit::Rate.text(first.load_per_s)),
                Bottleneck::Second(_) if first.slope_after == 0.0 => {
                    format!("What limits first: the second stage, with all servers full at {}.", DisplayUnit::Rate.text(first.load_per_s))
                }
                Bottleneck::Second(_) => format!(
                    "What limits first: the second-stage server with the largest share ({}), full at {}; of any further \
                     load, {} is carried.",
                    DisplayUnit::Share.text(cluster.shares().first().copied().unwrap_or(0.0)),
                    DisplayUnit::Rate.text(first.load_per_s),
                    DisplayUnit::Share.text(first.slope_after)
                ),
            });
        }
        let first = at.count("first");
        if first > 0 && self.arguments.shares.is_empty() {
            let now = cluster.carries_all_up_to();
            let capacity = at.of("first_capacity_per_s");
            let (second, each) = (at.count("second"), self.second_capacity(at)?);
            let more_first = TwoStage::even(first + 1, capacity, second, each)?;
            let more_second = TwoStage::even(first, capacity, second + 1, each)?;
            let gains = [
                ("one more first-stage server", more_first.carries_all_up_to()),
                ("one more second-stage server", more_second.carries_all_up_to()),
            ];
            let (what, then) = if gains[0].1 > gains[1].1 { gains[0] } else { gains[1] };
            if then > now * 1.000_001 {
                says.push(format!("With {what}, all load up to {} is carried.", DisplayUnit::Rate.text(then.floor())));
            } else {
                says.push(
                    "One more server in only one stage does not help: both stages are full at the same load."
                        .to_owned(),
                );
            }
        }
        Ok(says)
    }

    fn second_capacity(&self, at: &InputPoint) -> Result<f64, PlanError> {
        let second = at.of("second_capacity_per_s");
        match self.arguments.stateful {
            Some(_) => part_stateful_capacity(at.of("stateful_share"), second, at.of("stateful_capacity_per_s")),
            None => Ok(second),
        }
    }
}

impl Model for Cluster<'_> {
    const NAME: &'static str = "two-stage";
    const TITLE: &'static str = "SnPm: n servers that forward by a hash of the user, in front of m that serve";
    const SWEEP: &'static str = "--load 100..4000/100";

    fn inputs(&self) -> Vec<Input<'_>> {
        let arguments = self.arguments;
        let mut inputs = vec![Input::new("first", "first stage n", DisplayUnit::Count, self.first)];
        let capacity = arguments.first_capacity.as_ref();
        inputs.extend(
            capacity
                .map(|capacity| Input::new("first_capacity_per_s", "each forwards C_s", DisplayUnit::Rate, capacity)),
        );
        inputs.extend(
            arguments.second.as_ref().map(|second| Input::new("second", "second stage m", DisplayUnit::Count, second)),
        );
        inputs.push(Input::new(
            "second_capacity_per_s",
            "each serves C_p",
            DisplayUnit::Rate,
            &arguments.second_capacity,
        ));
        if let (Some(share), Some(capacity)) = (&arguments.stateful, &arguments.stateful_capacity) {
            inputs.push(Input::new("stateful_share", "kept with transactions f_s", DisplayUnit::Share, share));
            inputs.push(Input::new(
                "stateful_capacity_per_s",
                "each serves, all stateful C'",
                DisplayUnit::Rate,
                capacity,
            ));
        }
        inputs.extend(arguments.load.as_ref().map(|load| Input::new("load_per_s", "load λ", DisplayUnit::Rate, load)));
        inputs
    }

    fn assumptions(&self) -> Vec<String> {
        let shares = &self.arguments.shares;
        if shares.is_empty() {
            return vec!["the hash gives equal shares to the second-stage servers (--shares changes them)".to_owned()];
        }
        let shares: Vec<String> = shares.iter().map(|share| DisplayUnit::Share.text(*share)).collect();
        vec![format!("the hash gives {} to the second-stage servers", shares.join(", "))]
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let cluster = self.cluster(at)?;
        let points = cluster.break_points();
        let mut outputs = vec![Field::new("capacity", "capacity", DisplayUnit::Rate, cluster.capacity()).drawn()];
        if self.arguments.load.is_some() {
            let load = at.of("load_per_s");
            let carried = cluster.throughput(load);
            outputs.insert(0, Field::new("throughput_per_s", "throughput τ", DisplayUnit::Rate, carried).drawn());
            outputs.push(Field::new("carried_share", "carried", DisplayUnit::Share, carried / load));
        }
        outputs.push(Field::new(
            "all_carried_up_to_per_s",
            "all carried up to",
            DisplayUnit::Rate,
            cluster.carries_all_up_to(),
        ));
        let mut answer = Answer {
            outputs,
            conclusions: self.says(at, &cluster)?,
            explanation: cluster.explain(),
            ..Answer::default()
        };
        let pairs: Vec<Value> = points.iter().map(|point| json!([point.load_per_s, point.throughput_per_s])).collect();
        answer.more.insert("breakpoints".to_owned(), json!(pairs));
        answer.more.insert("shares".to_owned(), json!(cluster.shares()));
        answer.conclusions.extend(points.iter().map(point_text));
        Ok(answer)
    }

    fn charts(&self, answer: &Answer) -> Vec<Chart> {
        let number = |pair: &Value, at: usize| pair.get(at).and_then(Value::as_f64);
        let pairs = answer.more.get("breakpoints").and_then(Value::as_array);
        let mut points = vec![(0.0, 0.0)];
        points.extend(pairs.into_iter().flatten().filter_map(|pair| Some((number(pair, 0)?, number(pair, 1)?))));
        let Some((last, top)) = points.last().copied() else { return Vec::new() };
        // Beyond the last point the curve is flat.
        points.push((1.25 * last, top));
        let ideal = vec![(0.0, 0.0), (1.25 * last, 1.25 * last)];
        vec![Chart {
            title: "throughput against load".to_owned(),
            across: "load λ".to_owned(),
            x: DisplayUnit::Rate,
            y: DisplayUnit::Rate,
            is_log: false,
            is_across_log: false,
            lines: vec![Line::new("throughput τ", points), Line::new("all carried", ideal)],
        }]
    }
}

fn point_text(point: &BreakPoint) -> String {
    let what = match point.full {
        Bottleneck::First => "the first stage is full".to_owned(),
        Bottleneck::Second(1) => "the first server of the second stage is full".to_owned(),
        Bottleneck::Second(count) => format!("{count} servers of the second stage are full"),
    };
    format!(
        "  at {:>10}  {:>10} carried: {what}",
        DisplayUnit::Rate.text(point.load_per_s),
        DisplayUnit::Rate.text(point.throughput_per_s)
    )
}

/// Model that computes n and m for a given load.
struct RequiredStages<'a> {
    arguments: &'a TwoStageArguments,
    requests: &'a Numbers,
    register_capacity: &'a Numbers,
    first_capacity: &'a Numbers,
}

impl Model for RequiredStages<'_> {
    const NAME: &'static str = "two-stage";
    const TITLE: &'static str = "Two stages: is the first stage needed, and how many servers are needed in each";
    const SWEEP: &'static str = "--requests 1000..20000/1000";

    fn inputs(&self) -> Vec<Input<'_>> {
        let arguments = self.arguments;
        vec![
            Input::new("requests_per_s", "requests λ_P", DisplayUnit::Rate, self.requests),
            Input::new("registers_per_s", "REGISTERs λ_R", DisplayUnit::Rate, &arguments.registers),
            Input::new(
                "first_capacity_per_s",
                "a first-stage server forwards μ_s",
                DisplayUnit::Rate,
                self.first_capacity,
            ),
            Input::new(
                "second_capacity_per_s",
                "a server serves requests μ_p",
                DisplayUnit::Rate,
                &arguments.second_capacity,
            ),
            Input::new("register_capacity_per_s", "or REGISTERs μ_r", DisplayUnit::Rate, self.register_capacity),
            Input::new("utilization", "maximum utilization", DisplayUnit::Share, &arguments.utilization),
            Input::new("skew", "busiest cluster / mean", DisplayUnit::Number, &arguments.skew),
        ]
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let found = stages(StageRequirements {
            registers_per_s: at.of("registers_per_s"),
            requests_per_s: at.of("requests_per_s"),
            first_per_s: at.of("first_capacity_per_s"),
            register_per_s: at.of("register_capacity_per_s"),
            proxy_per_s: at.of("second_capacity_per_s"),
            utilization: at.of("utilization"),
            skew: at.of("skew"),
        })?;
        let mut more = serde_json::Map::new();
        more.insert("first_is_needed".to_owned(), json!(found.first_is_needed));
        Ok(Answer {
            outputs: vec![
                Field::new("first", "first stage S", DisplayUnit::Count, f64::from(found.first)).drawn(),
                Field::new("clusters", "second stage P", DisplayUnit::Count, f64::from(found.clusters)).drawn(),
                Field::new(
                    "single_utilization",
                    "load of a single server",
                    DisplayUnit::Share,
                    found.single_utilization,
                ),
                Field::new(
                    "first_utilization",
                    "load of a first-stage server",
                    DisplayUnit::Share,
                    found.first_utilization,
                ),
                Field::new(
                    "second_utilization",
                    "busiest second-stage server",
                    DisplayUnit::Share,
                    found.second_utilization,
                ),
            ],
            conclusions: vec![needed_text(&found)],
            explanation: found.explain(),
            more,
            ..Answer::default()
        })
    }
}

fn needed_text(found: &StageSizing) -> String {
    if found.first_is_needed {
        format!(
            "A first stage is needed: one server alone would have a load of {}, so users are divided among {} clusters, and \
             {} in front of them select each user's cluster. Neither number includes spares.",
            DisplayUnit::Share.text(found.single_utilization),
            found.clusters,
            if found.first == 1 { "1 server".to_owned() } else { format!("{} servers", found.first) }
        )
    } else {
        format!(
            "No first stage is needed: one server alone has a load of {}. Further servers are only spares.",
            DisplayUnit::Share.text(found.single_utilization)
        )
    }
}
