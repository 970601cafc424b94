//! `strowger plan size`: number of servers.

mod report;

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use serde_json::json;
use strowger_plan::size::{FailoverMethod, Replication};
use strowger_plan::traffic::Calls;
use strowger_plan::{Explain as _, Plan, PlanError, Profile, Requirements, size};

use super::field::{Input, InputPoint};
use super::numbers::{Numbers, bandwidths, counts, erlangs, plain, shares, sizes, times, times_or_none};
use super::presentation::{Answer, DisplayArguments, Model, present};
use super::profile::{LoadedProfile, load};
use crate::failure::Failure;
use crate::plot::DisplayUnit;

use report::{influence, no_plan, outputs, report};

const TRAFFIC: &str = "What subscribers do";
const PROMISE: &str = "What is promised";
const SERVER: &str = "The servers";

/// Assumption of `--replication copies`.
const ENGINE: &str = "members of a cluster share registrations through an engine (docs/operating/members.md); the servers, cost and \
                      failures of the engine are not included";
/// Assumption of `--replication store`.
const DATABASES: &str = "each member has a database, and all replicate each other, as with MariaDB in both directions \
                         (docs/operating/members.md); a member holds only the data that it serves in memory, as in the failover paper, but members of this \
                         server hold all data: take their memory from --replication copies";

/// Creates an input for a number of the needs or of a server, from the option's field, its display name and its
/// value.
macro_rules! ask {
    ($self:ident, $default:ident => requirements, $field:ident, $option:literal, $key:literal, $name:literal, $show:ident, $of:ident $(,)?) => {
        ask!(@ $self.$field, $option, $key, $name, $show, $default.$of, |requirements, _, value| requirements.$of = value)
    };
    ($self:ident, $default:ident => server, $field:ident, $option:literal, $key:literal, $name:literal, $show:ident, $of:ident $(,)?) => {
        ask!(@ $self.$field, $option, $key, $name, $show, $default.$of, |_, profile, value| profile.server.$of = value)
    };
    (@ $given:expr, $option:literal, $key:literal, $name:literal, $show:ident, $default:expr, $put:expr) => {
        SizeInput {
            key: $key,
            option: $option,
            name: $name,
            show: DisplayUnit::$show,
            given: $given.as_ref(),
            default: Numbers::one($default),
            put: $put,
        }
    };
}

#[derive(Debug, Args)]
pub(crate) struct SizeArguments {
    /// Number of subscribers, such as 2M
    #[arg(long, visible_alias = "users", value_name = "N", value_parser = counts, allow_hyphen_values = true)]
    subscribers: Numbers,
    /// Mean number of calls in progress per subscriber in the busy hour: 0.1 is 6 minutes [default: 0.1]
    #[arg(long, value_name = "NUMBER", value_parser = erlangs, help_heading = TRAFFIC, conflicts_with_all = ["calls_each", "bhca"], allow_hyphen_values = true)]
    erlangs: Option<Numbers>,
    /// Instead: call attempts per subscriber in the busy hour
    #[arg(long, value_name = "NUMBER", value_parser = plain, help_heading = TRAFFIC, conflicts_with = "bhca", allow_hyphen_values = true)]
    calls_each: Option<Numbers>,
    /// Instead: call attempts of all subscribers in the busy hour
    #[arg(long, value_name = "N", value_parser = counts, help_heading = TRAFFIC, allow_hyphen_values = true)]
    bhca: Option<Numbers>,
    /// Mean duration of a call [default: 180s]
    #[arg(long, value_name = "TIME", value_parser = times, help_heading = TRAFFIC, allow_hyphen_values = true)]
    hold: Option<Numbers>,
    /// Mean ringing time [default: 10s]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, help_heading = TRAFFIC, allow_hyphen_values = true)]
    ring: Option<Numbers>,
    /// Requests per call besides INVITE, ACK and BYE, such as PRACK and UPDATE [default: 0]
    #[arg(long, value_name = "NUMBER", value_parser = plain, help_heading = TRAFFIC, allow_hyphen_values = true)]
    further_requests: Option<Numbers>,
    /// Phones and other contacts per subscriber [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = plain, help_heading = TRAFFIC, allow_hyphen_values = true)]
    contacts: Option<Numbers>,
    /// Registration interval of a contact [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = times, help_heading = TRAFFIC, allow_hyphen_values = true)]
    refresh: Option<Numbers>,
    /// Share of REGISTERs that are challenged [default: 100%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = TRAFFIC, allow_hyphen_values = true)]
    challenged: Option<Numbers>,
    /// Share of calls that are challenged [default: 100%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = TRAFFIC, allow_hyphen_values = true)]
    challenged_calls: Option<Numbers>,
    /// Share of calls that are forwarded statefully [default: 100%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = TRAFFIC, allow_hyphen_values = true)]
    stateful: Option<Numbers>,
    /// Share of contacts with a TCP connection [default: 0%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = TRAFFIC, allow_hyphen_values = true)]
    connected: Option<Numbers>,
    /// Share of the other contacts behind a NAT, to which the server sends keep-alives [default: 100%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = TRAFFIC, allow_hyphen_values = true)]
    nat: Option<Numbers>,
    /// Interval between these keep-alives (registrar.keepalive_interval) [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = times, help_heading = TRAFFIC, allow_hyphen_values = true)]
    keepalive: Option<Numbers>,
    /// Required availability of the service [default: 99.999%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = PROMISE, allow_hyphen_values = true)]
    availability: Option<Numbers>,
    /// Failover method [default: members]
    #[arg(long, value_enum, value_name = "METHOD", help_heading = PROMISE)]
    failover: Option<FailoverArgument>,
    /// Replication of registrations in a cluster [default: copies]
    #[arg(long, value_enum, value_name = "HOW", help_heading = PROMISE)]
    replication: Option<ReplicationArgument>,
    /// Maximum utilization of a server while one of its group is down [default: 70%]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = PROMISE, allow_hyphen_values = true)]
    utilization: Option<Numbers>,
    /// Load of the busiest cluster relative to the mean [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = plain, help_heading = PROMISE, allow_hyphen_values = true)]
    skew: Option<Numbers>,
    /// T_R, time until a client tries another server; 32s is timer B of RFC 3261, phones may be configured with less
    /// [default: 32s]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, help_heading = PROMISE, allow_hyphen_values = true)]
    retry: Option<Numbers>,
    /// Mean time to repair a server [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = times, help_heading = PROMISE, allow_hyphen_values = true)]
    repair: Option<Numbers>,
    /// T_D, TTL of a DNS record [default: 5min]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, help_heading = PROMISE, allow_hyphen_values = true)]
    ttl: Option<Numbers>,
    /// T_d, time for a registration to reach the other members [default: 100ms]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, help_heading = PROMISE, allow_hyphen_values = true)]
    replicated_within: Option<Numbers>,
    /// T_c, delay before a registration is sent to them [default: 0]
    #[arg(long, value_name = "TIME", value_parser = times_or_none, help_heading = PROMISE, allow_hyphen_values = true)]
    cache: Option<Numbers>,
    /// Measured costs of a server: a file from plan fit, measured, or goals
    #[arg(long, value_name = "PROFILE", default_value = "measured", help_heading = SERVER)]
    profile: PathBuf,
    /// Number of cores of a server [default: from the profile]
    #[arg(long, value_name = "N", value_parser = counts, help_heading = SERVER, allow_hyphen_values = true)]
    cores: Option<Numbers>,
    /// Memory of a server, such as 16GiB [default: from the profile]
    #[arg(long, value_name = "SIZE", value_parser = sizes, help_heading = SERVER, allow_hyphen_values = true)]
    memory: Option<Numbers>,
    /// Network bandwidth of a server in each direction, such as 1Gbit/s [default: from the profile]
    #[arg(long, value_name = "BANDWIDTH", value_parser = bandwidths, help_heading = SERVER, allow_hyphen_values = true)]
    network: Option<Numbers>,
    /// Maximum number of connections of a server (tcp.connections), up to 1,000,000 [default: 1M; the server's own
    /// default is 16,384]
    #[arg(long, value_name = "N", value_parser = counts, help_heading = SERVER, allow_hyphen_values = true)]
    connections: Option<Numbers>,
    /// Availability of a server [default: from the profile]
    #[arg(long, value_name = "SHARE", value_parser = shares, help_heading = SERVER, allow_hyphen_values = true)]
    node: Option<Numbers>,
    /// Monthly cost of a server, in your currency [default: from the profile]
    #[arg(long, value_name = "NUMBER", value_parser = plain, help_heading = SERVER, allow_hyphen_values = true)]
    price: Option<Numbers>,
    #[command(flatten)]
    shown: DisplayArguments,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum FailoverArgument {
    /// All members serve; the others take over the load of a failed one
    Members,
    /// Phones know all members, register with each and try the next
    Client,
    /// DNS names a primary; the others stand by
    Dns,
    /// A standby server takes over the address
    Takeover,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ReplicationArgument {
    /// Each REGISTER is replicated to all members through a shared engine (docs/operating/members.md)
    Copies,
    /// Each member has a database, replicated to all others, as with MariaDB two-way
    Store,
    /// No replication: a cluster has one member, or phones register with each (--failover client)
    None,
}

/// An input number with its source and its place in the model.
pub(super) struct SizeInput<'a> {
    pub(super) key: &'static str,
    pub(super) option: &'static str,
    pub(super) name: &'static str,
    pub(super) show: DisplayUnit,
    pub(super) given: Option<&'a Numbers>,
    default: Numbers,
    put: fn(&mut Requirements, &mut Profile, f64),
}

pub(super) struct Sizing<'a> {
    arguments: &'a SizeArguments,
    loaded: LoadedProfile,
    pub(super) asked: Vec<SizeInput<'a>>,
}

impl SizeArguments {
    pub(super) fn run(&self) -> Result<(), Failure> {
        let loaded = load(&self.profile)?;
        let asked = self.asked(&loaded.profile);
        present(&Sizing { arguments: self, loaded, asked }, &self.shown)
    }

    /// Returns all inputs in display order.
    fn asked(&self, profile: &Profile) -> Vec<SizeInput<'_>> {
        let mut asked = self.of_the_subscribers();
        asked.extend(self.of_the_promise());
        asked.extend(self.of_the_servers(profile));
        asked
    }

    fn of_the_subscribers(&self) -> Vec<SizeInput<'_>> {
        let default = Requirements::default();
        vec![
            SizeInput {
                key: "subscribers",
                option: "--subscribers",
                name: "subscribers",
                show: DisplayUnit::Count,
                given: Some(&self.subscribers),
                default: Numbers::one(default.subscribers),
                put: |needs, _, value| needs.subscribers = value,
            },
            self.calls(default.calls),
            ask!(self, default => requirements, hold, "--hold", "hold_s", "duration of a call", Seconds, hold_s),
            ask!(self, default => requirements, ring, "--ring", "ring_s", "ring time", Seconds, ring_s),
            ask!(self, default => requirements, further_requests,
                "--further-requests",
                "further_requests",
                "requests beyond INVITE, ACK, BYE",
                Number,
                further_requests_per_call
            ),
            ask!(self, default => requirements, contacts, "--contacts", "contacts", "contacts per subscriber", Number, contacts_per_subscriber),
            ask!(self, default => requirements, refresh, "--refresh", "refresh_s", "registration interval", Seconds, refresh_s),
            ask!(self, default => requirements, challenged, "--challenged", "challenged_share", "REGISTERs challenged", Share, challenged_share),
            ask!(self, default => requirements, challenged_calls,
                "--challenged-calls",
                "challenged_calls_share",
                "calls challenged",
                Share,
                challenged_calls_share
            ),
            ask!(self, default => requirements, stateful, "--stateful", "stateful_share", "calls with transactions", Share, stateful_share),
            ask!(self, default => requirements, connected, "--connected", "connected_share", "contacts on TCP", Share, connected_share),
            ask!(self, default => requirements, nat, "--nat", "nat_share", "other contacts behind NAT", Share, nat_share),
            ask!(self, default => requirements, keepalive, "--keepalive", "keep_alive_s", "keep-alive interval", Seconds, keep_alive_s),
        ]
    }

    /// Returns the call volume in the chosen one of three forms.
    fn calls(&self, default: Calls) -> SizeInput<'_> {
        if let Some(each) = &self.calls_each {
            return SizeInput {
                key: "calls_each",
                option: "--calls-each",
                name: "busy-hour calls of each",
                show: DisplayUnit::Number,
                given: Some(each),
                default: Numbers::one(0.0),
                put: |needs, _, value| needs.calls = Calls::PerSubscriber(value),
            };
        }
        if let Some(all) = &self.bhca {
            return SizeInput {
                key: "bhca",
                option: "--bhca",
                name: "calls in the busy hour",
                show: DisplayUnit::Count,
                given: Some(all),
                default: Numbers::one(0.0),
                put: |needs, _, value| needs.calls = Calls::Total(value),
            };
        }
        let (Calls::Erlangs(each) | Calls::PerSubscriber(each) | Calls::Total(each)) = default;
        SizeInput {
            key: "erlangs",
            option: "--erlangs",
            name: "erlangs per subscriber",
            show: DisplayUnit::Number,
            given: self.erlangs.as_ref(),
            default: Numbers::one(each),
            put: |needs, _, value| needs.calls = Calls::Erlangs(value),
        }
    }

    fn of_the_promise(&self) -> Vec<SizeInput<'_>> {
        let default = Requirements::default();
        vec![
            ask!(self, default => requirements, availability, "--availability", "availability_asked", "required availability", Share, availability),
            ask!(self, default => requirements, utilization, "--utilization", "utilization", "maximum utilization", Share, utilization),
            ask!(self, default => requirements, skew, "--skew", "skew", "busiest cluster / mean", Number, skew),
            ask!(self, default => requirements, retry, "--retry", "retry_s", "clients retry after", Seconds, client_retry_s),
            ask!(self, default => requirements, repair, "--repair", "repair_s", "mean time to repair", Seconds, repair_s),
            ask!(self, default => requirements, ttl, "--ttl", "ttl_s", "DNS time to live", Seconds, dns_ttl_s),
            ask!(self, default => requirements, replicated_within,
                "--replicated-within",
                "replication_s",
                "replication delay",
                Seconds,
                replication_s
            ),
            ask!(self, default => requirements, cache, "--cache", "cache_s", "delay before replication", Seconds, cache_s),
        ]
    }

    fn of_the_servers(&self, profile: &Profile) -> Vec<SizeInput<'_>> {
        let (server, default) = (&profile.server, Requirements::default());
        let cores = SizeInput {
            key: "server_cores",
            option: "--cores",
            name: "cores per server",
            show: DisplayUnit::Count,
            given: self.cores.as_ref(),
            default: Numbers::one(f64::from(server.cores)),
            put: put_cores,
        };
        vec![
            cores,
            ask!(self, server => server, memory, "--memory", "server_memory_bytes", "memory per server", Bytes, memory_bytes),
            ask!(self, server => server, network, "--network", "server_network_bits_per_s", "network per server", Bits, network_bits_per_s),
            ask!(self, default => requirements, connections,
                "--connections",
                "server_connections",
                "connections per server",
                Count,
                connections_per_server
            ),
            ask!(self, server => server, node, "--node", "server_availability", "availability of a server", Share, availability),
            ask!(self, server => server, price, "--price", "server_cost_per_month", "monthly price of a server", Number, cost_per_month),
        ]
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it was read as a count")]
fn put_cores(_: &mut Requirements, profile: &mut Profile, value: f64) {
    profile.server.cores = value.min(f64::from(u32::MAX)) as u32;
}

impl Model for Sizing<'_> {
    const NAME: &'static str = "size";
    const TITLE: &'static str = "How many servers";
    const SWEEP: &'static str = "--subscribers 1M..10M/1M";

    fn inputs(&self) -> Vec<Input<'_>> {
        self.asked
            .iter()
            .map(|asked| Input::new(asked.key, asked.name, asked.show, asked.given.unwrap_or(&asked.default)))
            .collect()
    }

    fn assumptions(&self) -> Vec<String> {
        let mut said = self.loaded.says();
        let by_phones = matches!(self.arguments.failover, Some(FailoverArgument::Client));
        let shared = match self.arguments.replication {
            Some(ReplicationArgument::Store) => Some(DATABASES),
            None | Some(ReplicationArgument::Copies) if !by_phones => Some(ENGINE),
            _ => None,
        };
        said.extend(shared.map(str::to_owned));
        said
    }

    fn answer(&self, at: &InputPoint) -> Result<Answer, PlanError> {
        let (mut needs, mut profile) = (Requirements::default(), self.loaded.profile.clone());
        for asked in &self.asked {
            (asked.put)(&mut needs, &mut profile, at.of(asked.key));
        }
        needs.failover = match self.arguments.failover {
            None => needs.failover,
            Some(FailoverArgument::Members) => FailoverMethod::Members,
            Some(FailoverArgument::Client) => FailoverMethod::Client,
            Some(FailoverArgument::Dns) => FailoverMethod::Dns,
            Some(FailoverArgument::Takeover) => FailoverMethod::Takeover,
        };
        needs.replication = match self.arguments.replication {
            None => needs.replication,
            Some(ReplicationArgument::None) => Replication::None,
            Some(ReplicationArgument::Copies) => Replication::Copies,
            Some(ReplicationArgument::Store) => Replication::Store,
        };
        match size(&needs, &profile) {
            Ok(plan) => Ok(self.planned(at, &plan)),
            Err(error @ PlanError::NoPlan { .. }) => Ok(Answer {
                outputs: outputs(None),
                rejection: Some(format!("{error}; {}", error.remedy())),
                report: Some(no_plan(self, at, &error)),
                ..Answer::default()
            }),
            Err(error) => Err(error),
        }
    }
}

impl Sizing<'_> {
    fn planned(&self, at: &InputPoint, plan: &Plan) -> Answer {
        let mut answer = Answer {
            outputs: outputs(Some(plan)),
            conclusions: plan
                .caveats
                .iter()
                .cloned()
                .chain(influence(self, plan))
                .chain(plan.reasons.iter().cloned())
                .collect(),
            explanation: plan.explain(),
            report: Some(report(self, at, plan)),
            ..Answer::default()
        };
        let assumed: Vec<&str> =
            self.asked.iter().filter(|asked| asked.given.is_none()).map(|asked| asked.option).collect();
        let more = [
            ("traffic", json!(plan.traffic)),
            ("limits", json!(plan.limits)),
            ("sensitivities", json!(plan.sensitivities)),
            ("failover", json!(plan.failover)),
            ("work", json!(plan.work)),
            ("storm", json!(plan.avalanche)),
            ("failover_method", json!(plan.requirements.failover)),
            ("replication", json!(plan.requirements.replication)),
            ("assumed", json!(assumed)),
            ("profile", json!(plan.profile.name)),
        ];
        answer.more.extend(more.into_iter().map(|(key, value)| (key.to_owned(), value)));
        answer
    }

    /// Describes the chosen or assumed alternatives.
    pub(super) fn choices(&self) -> String {
        let method = |given: bool| if given { "" } else { " (assumed)" };
        let replication = word(self.arguments.replication, "copies");
        format!(
            "--failover {}{}, --replication {replication}{}, --profile {}",
            word(self.arguments.failover, "members"),
            method(self.arguments.failover.is_some()),
            method(self.arguments.replication.is_some()),
            self.arguments.profile.display()
        )
    }
}

/// Returns the name of a choice on the command line.
fn word(choice: Option<impl ValueEnum + Copy>, default: &str) -> String {
    let value = choice.as_ref().and_then(ValueEnum::to_possible_value);
    value.map_or_else(|| default.to_owned(), |value| value.get_name().to_owned())
}
