//! `strowger plan failover`: what callers notice of a failure.

use clap::Args;
use strowger_plan::{Explain as _, FailoverTimes, PlanError, failover};

use super::field::{At, Field, Input, Show};
use super::numbers::{Numbers, shares, times, times_or_none};
use super::present::{Answer, Model, ShownArguments, present};
use crate::failure::Failure;

#[derive(Debug, Args)]
pub(crate) struct FailoverArguments {
    /// R, the share of its time that a server answers
    #[arg(long, value_name = "SHARE", value_parser = shares, default_value = "99%", allow_hyphen_values = true)]
    availability: Numbers,
    /// T_R, after how long a client tries the next server; 32 s is timer B of RFC 3261, phones may be told less
    #[arg(long, value_name = "TIME", value_parser = times_or_none, default_value = "32s", allow_hyphen_values = true)]
    retry: Numbers,
    /// T_D, how long a DNS record is kept
    #[arg(long, value_name = "TIME", value_parser = times_or_none, default_value = "5min", allow_hyphen_values = true)]
    ttl: Numbers,
    /// T_M, the mean time to repair
    #[arg(long, value_name = "TIME", value_parser = times, default_value = "1h", allow_hyphen_values = true)]
    repair: Numbers,
    /// T_F, the mean time to failure [default: what R and T_M make of it, T_M·R/(1 − R)]
    #[arg(long, value_name = "TIME", value_parser = times, allow_hyphen_values = true)]
    mtbf: Option<Numbers>,
    /// T_d, how long a registration takes to the other server
    #[arg(long, value_name = "TIME", value_parser = times_or_none, default_value = "100ms", allow_hyphen_values = true)]
    replication: Numbers,
    /// T_c, how long it stays in the server's memory before that
    #[arg(long, value_name = "TIME", value_parser = times_or_none, default_value = "0", allow_hyphen_values = true)]
    cache: Numbers,
    /// T_r, how often phones register
    #[arg(long, value_name = "TIME", value_parser = times, default_value = "1h", allow_hyphen_values = true)]
    refresh: Numbers,
    #[command(flatten)]
    shown: ShownArguments,
}

impl FailoverArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        present(self, &self.shown)
    }
}

impl Model for FailoverArguments {
    const NAME: &'static str = "failover";
    const TITLE: &'static str = "Failover: what callers notice when a server fails and another takes over";

    fn inputs(&self) -> Vec<Input<'_>> {
        let mut inputs = vec![
            Input::new("availability", "a server's availability R", Show::Share, &self.availability),
            Input::new("retry_s", "clients try another after T_R", Show::Seconds, &self.retry),
            Input::new("ttl_s", "DNS time to live T_D", Show::Seconds, &self.ttl),
            Input::new("repair_s", "mean time to repair T_M", Show::Seconds, &self.repair),
            Input::new("replication_s", "replication takes T_d", Show::Seconds, &self.replication),
            Input::new("cache_s", "kept back before T_c", Show::Seconds, &self.cache),
            Input::new("refresh_s", "phones register every T_r", Show::Seconds, &self.refresh),
        ];
        inputs.extend(
            self.mtbf.as_ref().map(|mtbf| Input::new("failure_s", "mean time to failure T_F", Show::Seconds, mtbf)),
        );
        inputs
    }

    fn answer(&self, at: &At) -> Result<Answer, PlanError> {
        let (availability, repair_s) = (at.of("availability"), at.of("repair_s"));
        let failure_s =
            if self.mtbf.is_some() { at.of("failure_s") } else { repair_s * availability / (1.0 - availability) };
        if !failure_s.is_finite() {
            return Err(PlanError::Contradiction {
                input: "the mean time to failure".into(),
                reason: "a server that always answers never fails".to_owned(),
                remedy: "give an availability below 100 %, or the time itself (--mtbf)",
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
        if self.mtbf.is_none() {
            outputs.push(Field::new("failure_s", "mean time to failure T_F", Show::Seconds, failure_s));
        }
        outputs.extend([
            Field::new("repaired_within_ttl", "repaired within T_D", Show::Share, found.repaired_within_ttl),
            Field::new("setup_delay_s", "added to call set-up", Show::Seconds, found.setup_delay_s).drawn(),
            Field::new("lost_registration", "first registration lost", Show::Share, found.lost_registration).drawn(),
            Field::new(
                "lost_registration_with_cache",
                "lost, with T_c",
                Show::Share,
                found.lost_registration_with_cache,
            ),
            Field::new("unreachable_s", "then unreachable at most", Show::Seconds, found.unreachable_s).drawn(),
        ]);
        Ok(Answer { outputs, says: self.says(&found), explanation: found.explain(), ..Answer::default() })
    }
}

impl FailoverArguments {
    /// What it means.
    fn says(&self, found: &strowger_plan::Failover) -> Vec<String> {
        let times = &found.times;
        vec![
            format!(
                "Over all calls, set-up takes {} longer; a call during an outage waits {} for its first try.",
                Show::Seconds.text(found.setup_delay_s),
                Show::Seconds.text(times.client_retry_s)
            ),
            format!(
                "A server fails every {}; a phone that registers for the first time is lost with it once in {} times, and is then \
                 not reachable for at most {}.",
                Show::Seconds.text(times.failure_s),
                Show::Number.text((1.0 / found.lost_registration_with_cache.max(1e-15)).round()),
                Show::Seconds.text(found.unreachable_s)
            ),
            "What helps first: a shorter retry time of the clients (or IP takeover, which needs none); then a shorter refresh."
                .to_owned(),
        ]
    }
}
