//! `strowger plan failover`: effects of a failure on callers.

use clap::Args;
use strowger_plan::failover::mean_time_to_failure_s;
use strowger_plan::{Explain as _, FailoverTimes, PlanError, failover, units};

use super::field::{Field, Input, InputPoint};
use super::numbers::{Numbers, shares, times, times_or_none};
use super::presentation::{Answer, DisplayArguments, Model, present};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

#[derive(Debug, Args)]
pub(crate) struct FailoverArguments {
    /// R, availability of a server [default: 99%]
    #[arg(long, value_name = "SHARE", value_parser = shares, allow_hyphen_values = true)]
    availability: Option<Numbers>,
    /// T_R, time until a client tries the next server; 32s is timer B of RFC 3261, phones may be configured with less
    /// [default: 32s]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, allow_hyphen_values = true)]
    retry: Option<Numbers>,
    /// T_D, TTL of a DNS record [default: 5min]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, allow_hyphen_values = true)]
    ttl: Option<Numbers>,
    /// T_M, mean time to repair [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    repair: Option<Numbers>,
    /// T_F, mean time to failure [default: derived from R and T_M, T_M·R/(1 − R)]
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    mtbf: Option<Numbers>,
    /// T_d, time for a registration to reach the other server [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, allow_hyphen_values = true)]
    replication: Option<Numbers>,
    /// T_c, time for which it stays in the server's memory before that [default: 0]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, allow_hyphen_values = true)]
    cache: Option<Numbers>,
    /// T_r, registration interval of phones [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    refresh: Option<Numbers>,
    #[command(flatten)]
    shown: DisplayArguments,
}

/// The arguments, with defaults from the model.
struct FailoverModel<'a> {
    arguments: &'a FailoverArguments,
    asked: Vec<ModelInput<'a>>,
}

/// An input number.
struct ModelInput<'a> {
    key: &'static str,
    name: &'static str,
    show: DisplayUnit,
    given: Option<&'a Numbers>,
    default: Numbers,
}

impl FailoverArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(&FailoverModel { arguments: self, asked: self.asked() }, &self.shown)
    }

    fn asked(&self) -> Vec<ModelInput<'_>> {
        let times = FailoverTimes::default();
        let ask =
            |key, name, show, given, default| ModelInput { key, name, show, given, default: Numbers::one(default) };
        vec![
            ask(
                "availability",
                "a server's availability R",
                DisplayUnit::Share,
                self.availability.as_ref(),
                times.availability,
            ),
            ask(
                "retry_s",
                "clients try another after T_R",
                DisplayUnit::Seconds,
                self.retry.as_ref(),
                times.client_retry_s,
            ),
            ask("ttl_s", "DNS time to live T_D", DisplayUnit::Seconds, self.ttl.as_ref(), times.dns_ttl_s),
            ask("repair_s", "mean time to repair T_M", DisplayUnit::Seconds, self.repair.as_ref(), times.repair_s),
            ask(
                "replication_s",
                "replication takes T_d",
                DisplayUnit::Seconds,
                self.replication.as_ref(),
                times.replication_s,
            ),
            ask("cache_s", "kept back before T_c", DisplayUnit::Seconds, self.cache.as_ref(), times.cache_s),
            ask("refresh_s", "phones register every T_r", DisplayUnit::Seconds, self.refresh.as_ref(), times.refresh_s),
        ]
    }
}

impl Model for FailoverModel<'_> {
    const NAME: &'static str = "failover";
    const TITLE: &'static str = "Failover: what callers notice when a server fails and another one takes over";
    const SWEEP: &'static str = "--refresh 1min..60min/1min";

    fn inputs(&self) -> Vec<Input<'_>> {
        let mut inputs: Vec<Input<'_>> = self
            .asked
            .iter()
            .map(|asked| Input::new(asked.key, asked.name, asked.show, asked.given.unwrap_or(&asked.default)))
            .collect();
        inputs.extend(
            self.arguments
                .mtbf
                .as_ref()
                .map(|mtbf| Input::new("failure_s", "mean time to failure T_F", DisplayUnit::Seconds, mtbf)),
        );
        inputs
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let (availability, repair_s) = (at.of("availability"), at.of("repair_s"));
        let is_told = self.arguments.mtbf.is_some();
        let failure_s = if is_told { at.of("failure_s") } else { mean_time_to_failure_s(availability, repair_s) };
        if !failure_s.is_finite() {
            return Err(PlanError::Contradiction {
                input: "the mean time to failure".into(),
                reason: "a server with an availability of 100 % never fails".to_owned(),
                remedy: "give an availability below 100 %, or the mean time to failure (--mtbf)",
            });
        }
        let found = failover(FailoverTimes {
            availability,
            client_retry_s: at.of("retry_s"),
            dns_ttl_s: at.of("ttl_s"),
            repair_s,
            failure_s,
            replication_s: at.of("replication_s"),
            cache_s: at.of("cache_s"),
            refresh_s: at.of("refresh_s"),
        })?;
        let mut outputs = Vec::new();
        if !is_told {
            outputs.push(Field::new("failure_s", "mean time to failure T_F", DisplayUnit::Seconds, failure_s));
        }
        outputs.extend([
            Field::new("repaired_within_ttl", "repaired within T_D", DisplayUnit::Share, found.repaired_within_ttl),
            Field::new("setup_delay_s", "added to call set-up", DisplayUnit::Seconds, found.setup_delay_s).drawn(),
            Field::new("lost_registration", "first registration lost", DisplayUnit::Share, found.lost_registration)
                .drawn(),
            Field::new(
                "lost_registration_with_cache",
                "lost, with T_c",
                DisplayUnit::Share,
                found.lost_registration_with_cache,
            ),
            Field::new("unreachable_s", "then unreachable at most", DisplayUnit::Seconds, found.unreachable_s).drawn(),
        ]);
        Ok(Answer { outputs, conclusions: says(&found), explanation: found.explain(), ..Answer::default() })
    }
}

/// Describes the result in words.
fn says(found: &strowger_plan::Failover) -> Vec<String> {
    let times = &found.times;
    vec![
        format!(
            "Averaged over all calls, set-up takes {} longer; a call during an outage waits {} for its first attempt.",
            DisplayUnit::Seconds.text(found.setup_delay_s),
            DisplayUnit::Seconds.text(times.client_retry_s)
        ),
        format!(
            "A server fails every {}; a first registration is lost with it once in {} times, and the phone is then \
             unreachable for at most {}.",
            DisplayUnit::Seconds.text(times.failure_s),
            units::brief::count(1.0 / found.lost_registration_with_cache.max(1e-15)),
            DisplayUnit::Seconds.text(found.unreachable_s)
        ),
        "What helps first: a shorter retry time of the clients (or IP takeover, which needs no retry); then a shorter refresh interval."
            .to_owned(),
    ]
}
