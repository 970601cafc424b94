//! `strowger plan availability`: availability in nines.

use clap::Args;
use strowger_plan::{Availability, Explain as _, PlanError, units};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, counts, counts_or_none, share, shares};
use super::presentation::{Answer, DisplayArguments, Model, present};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct AvailabilityArguments {
    /// S, number of first-stage servers; 0 for none
    #[arg(long, value_name = "N", value_parser = counts_or_none, default_value = "0", allow_hyphen_values = true)]
    first: Numbers,
    /// P, number of second-stage clusters, each with its own users
    #[arg(long, value_name = "N", value_parser = counts, default_value = "1", allow_hyphen_values = true)]
    clusters: Numbers,
    /// B, number of members per cluster, each of which can serve the cluster's users
    #[arg(long, value_name = "N", value_parser = counts, default_value = "2", allow_hyphen_values = true)]
    members: Numbers,
    /// R, availability of a server
    #[arg(long, value_name = "SHARE", value_parser = shares, allow_hyphen_values = true)]
    node: Numbers,
    /// R_s, availability of a first-stage server [default: same as --node]
    #[arg(long, value_name = "SHARE", value_parser = shares, allow_hyphen_values = true)]
    first_node: Option<Numbers>,
    /// Instead: P, number of proxies, each of which serves all users, in front of --databases
    #[arg(long, value_name = "N", value_parser = counts, requires = "databases",
        conflicts_with_all = ["first", "clusters", "members"], allow_hyphen_values = true)]
    proxies: Option<Numbers>,
    /// D, number of fully replicated databases behind --proxies
    #[arg(long, value_name = "N", value_parser = counts, requires = "proxies", allow_hyphen_values = true)]
    databases: Option<Numbers>,
    /// R_d, availability of a database [default: same as --node]
    #[arg(long, value_name = "SHARE", value_parser = shares, allow_hyphen_values = true)]
    database_node: Option<Numbers>,
    /// Instead: D, number of groups of one proxy and one database behind one server, without spares
    #[arg(long, value_name = "D", value_parser = counts,
        conflicts_with_all = ["first", "clusters", "members", "proxies"], allow_hyphen_values = true)]
    no_spares: Option<Numbers>,
    /// Required availability; the exit code is 1 if it is not reached
    #[arg(long, value_name = "SHARE", value_parser = share)]
    goal: Option<f64>,
    #[command(flatten)]
    shown: DisplayArguments,
}

impl AvailabilityArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(self, &self.shown)
    }

    fn node_of(&self, at: &InputPoint, given: bool, key: &str) -> f64 {
        at.of(if given { key } else { "node" })
    }

    fn found(&self, at: &InputPoint) -> Result<Availability, PlanError> {
        let node = at.of("node");
        let database = self.node_of(at, self.database_node.is_some(), "database_node");
        let front = self.node_of(at, self.first_node.is_some(), "first_node");
        if self.proxies.is_some() {
            return Availability::replicated(at.count("proxies"), node, at.count("databases"), database);
        }
        if self.no_spares.is_some() {
            return Availability::without_redundancy(front, at.count("groups"), node, database);
        }
        Availability::two_stage(at.count("first"), front, at.count("clusters"), at.count("members"), node)
    }

    /// Returns the availability with one more of each kind, the best first.
    fn one_more(&self, at: &InputPoint) -> Result<Vec<(&'static str, Availability)>, PlanError> {
        if self.proxies.is_some() || self.no_spares.is_some() {
            return Ok(Vec::new());
        }
        let front = self.node_of(at, self.first_node.is_some(), "first_node");
        let (first, clusters, members, node) =
            (at.count("first"), at.count("clusters"), at.count("members"), at.of("node"));
        let mut more = vec![(
            if clusters == 1 { "one more member" } else { "one more member in each cluster" },
            Availability::two_stage(first, front, clusters, members + 1, node)?,
        )];
        if first > 0 {
            more.push((
                "one more first-stage server",
                Availability::two_stage(first + 1, front, clusters, members, node)?,
            ));
        }
        more.sort_by(|a, b| a.1.unavailability.total_cmp(&b.1.unavailability));
        Ok(more)
    }
}

impl Model for AvailabilityArguments {
    const NAME: &'static str = "availability";
    const TITLE: &'static str = "Availability: the probability that a request is answered";
    const SWEEP: &'static str = "--members 1..4/1";

    fn inputs(&self) -> Vec<Input<'_>> {
        let mut inputs = Vec::new();
        if let (Some(proxies), Some(databases)) = (&self.proxies, &self.databases) {
            inputs.push(Input::new("proxies", "proxies P", DisplayUnit::Count, proxies));
            inputs.push(Input::new("databases", "databases D", DisplayUnit::Count, databases));
        } else if let Some(groups) = &self.no_spares {
            inputs.push(Input::new("groups", "groups D, without spares", DisplayUnit::Count, groups));
        } else {
            inputs.push(Input::new("first", "first stage S", DisplayUnit::Count, &self.first));
            inputs.push(Input::new("clusters", "clusters P", DisplayUnit::Count, &self.clusters));
            inputs.push(Input::new("members", "members of each B", DisplayUnit::Count, &self.members));
        }
        inputs.push(Input::new("node", "a server's availability R", DisplayUnit::Share, &self.node));
        inputs.extend(
            self.first_node
                .as_ref()
                .map(|node| Input::new("first_node", "a first-stage server's", DisplayUnit::Share, node)),
        );
        inputs.extend(
            self.database_node
                .as_ref()
                .map(|node| Input::new("database_node", "a database's", DisplayUnit::Share, node)),
        );
        inputs
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let found = self.found(at)?;
        let nines = Some(found.nines).filter(|nines| nines.is_finite());
        let mut says = vec![match nines {
            Some(nines) => {
                format!("Downtime per year: {}, which is {}.", units::outage(found.downtime_s_per_year), counted(nines))
            }
            None => "There is no downtime because the servers never fail; real servers do.".to_owned(),
        }];
        let more = self.one_more(at)?;
        if let Some((what, then)) = more.first().filter(|(_, then)| then.unavailability < found.unavailability) {
            says.push(format!(
                "What helps first: {what}, which makes it {} ({} a year).",
                units::all_but(then.unavailability),
                units::outage(then.downtime_s_per_year)
            ));
        }
        says.push(
            "The formula assumes independent failures and short repairs: it does not cover a fault that all servers share."
                .to_owned(),
        );
        let no = self.goal.filter(|goal| found.unavailability > (1.0 - goal) * (1.0 + 1e-9)).map(|goal| {
            let remedy = more.first().map(|(what, _)| format!("; try {what}")).unwrap_or_default();
            format!(
                "{} is below the goal of {}{remedy}",
                units::all_but(found.unavailability),
                units::all_but(1.0 - goal)
            )
        });
        let unseen = found.unavailability > 0.0 && found.unavailability < units::UNSEEN;
        let mut outputs = vec![
            Field::new("availability", "availability", DisplayUnit::Share, found.availability)
                .said(unseen.then(|| units::all_but(found.unavailability))),
            Field::new("unavailability", "not available", DisplayUnit::Share, found.unavailability)
                .said(unseen.then(|| "under 0.0000001 %".to_owned()))
                .drawn(),
            Field::new("nines", "nines", DisplayUnit::Number, nines).said(unseen.then(|| "above 9".to_owned())),
            Field::new("downtime_s_per_year", "downtime per year", DisplayUnit::Seconds, found.downtime_s_per_year)
                .said(units::outage(found.downtime_s_per_year))
                .drawn(),
        ];
        if self.goal.is_some() {
            let reaches = if no.is_none() { 1.0 } else { 0.0 };
            outputs.push(Field::new("reaches_goal", "reaches the goal", DisplayUnit::Truth, reaches));
        }
        Ok(Answer { outputs, conclusions: says, explanation: found.explain(), rejection: no, ..Answer::default() })
    }
}

/// Formats whole nines, up to a meaningful number.
fn counted(nines: f64) -> String {
    // Compensates for rounding just below a whole number.
    match (nines + 1e-9).floor() {
        1.0 => "1 nine".to_owned(),
        many if many > 9.0 => "more than 9 nines, beyond what a formula can tell".to_owned(),
        many => format!("{} nines", DisplayUnit::Number.text(many)),
    }
}
