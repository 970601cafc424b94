//! Reports of `strowger load run` as measurements of the server.

use serde::Deserialize;
use serde_json::Value;

use super::error::FitError;
use super::linear::count as float;
use super::observation::{Kind, MessageObservation, Observation, Work};
use crate::timing::{MessageTiming, Part};

/// Fields of a report that matter here.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Report {
    workload: String,
    elapsed_s: f64,
    offered: u64,
    offered_per_s: f64,
    carried_per_s: f64,
    to: String,
    broken_off: Option<String>,
    messages_sent: Counts,
    messages_received: Counts,
    generator: Generator,
    server: Option<Server>,
    timing: Option<Timing>,
}

type Counts = std::collections::BTreeMap<String, u64>;

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Generator {
    was_bottleneck: bool,
    bottleneck: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Server {
    processors: f64,
    cpu_us_per_call: f64,
    drops: Option<u64>,
    timing: Option<Timing>,
}

/// Times reported by a server that measures its packets, µs.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Timing {
    /// K_sockq^w: mean waiting time of a packet.
    wait_us: Option<f64>,
    /// K_sockq: mean of waiting and the socket's part of the service time together.
    sockq_us: Option<f64>,
    messages: Vec<MessageTimes>,
}

/// Parts of one type; a missing part is 0.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct MessageTimes {
    message: String,
    count: u64,
    sockq_base_us: Option<Times>,
    copy_us: Option<Times>,
    sip_us: Option<Times>,
    send_us: Option<Times>,
    service_us: Option<Times>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default)]
struct Times {
    mean: f64,
    /// Variance, µs².
    variance: f64,
}

impl Times {
    fn part(self) -> Part {
        Part { mean_s: self.mean * 1e-6, variance_s2: self.variance * 1e-12 }
    }
}

/// Options for reading reports.
#[derive(Clone, Copy, Debug)]
pub struct RunOptions {
    /// Whether calls used stateless routes.
    pub stateless: bool,
    /// c: threads that take packets from one queue.
    pub servers: u32,
}

/// Reads a report; `name` is the file's name.
///
/// # Errors
/// The file is not a report, the generator was the bottleneck, or the report says nothing of the server. The text
/// says what to do.
pub fn from_run(name: &str, report: &Value, are: RunOptions) -> Result<Observation, FitError> {
    let wrong = |what: &str| FitError(format!("{name}: {what}"));
    if report.get("sweep").is_some() || report.get("probes").is_some() {
        return Err(wrong(
            "this is the report of a sweep or a search, which has no message counts; give reports of single runs (load run --json)",
        ));
    }
    if report.get("carried").is_none() || report.get("offered").is_none() {
        return Err(wrong(
            "this is not the report of a run; give a file written by load run --json FILE, or a table (.csv)",
        ));
    }
    let read = Report::deserialize(report).map_err(|error| wrong(&format!("this report cannot be read: {error}")))?;
    if let Some(why) = &read.broken_off {
        return Err(wrong(&format!("the run was aborted ({why}); repeat it")));
    }
    if read.generator.was_bottleneck {
        let why = read.generator.bottleneck.clone().unwrap_or_default();
        return Err(wrong(&format!(
            "the generator was the bottleneck ({why}), so this says nothing about the server; omit it"
        )));
    }
    if read.elapsed_s <= 0.0 || read.offered == 0 {
        return Err(wrong("nothing was measured in this run; omit it"));
    }
    if read.server.is_none() && read.timing.is_none() {
        return Err(wrong(&format!(
            "the generator did not monitor the server ({}); run it on the server's machine, or give the process (load run --pid)",
            read.to
        )));
    }
    Ok(read.observation(name, are))
}

impl Report {
    fn observation(mut self, name: &str, are: RunOptions) -> Observation {
        let incoming = self.incoming();
        let packets = incoming.iter().fold(0_u64, |sum, (_, count)| sum.saturating_add(*count));
        let server = self.server.take().unwrap_or_default();
        let drops = server.drops.unwrap_or(0);
        let rate_per_s = float_of(packets) / self.elapsed_s;
        let served = float_of(packets.saturating_sub(drops)) / self.elapsed_s;
        let mut observation = Observation {
            name: name.to_owned(),
            rate_per_s,
            calls_per_s: Some(self.offered_per_s).filter(|rate| *rate > 0.0),
            servers: are.servers.max(1),
            cpu: Some(server.processors).filter(|busy| *busy > 0.0),
            drops: server.drops.map(|drops| float_of(drops) / float_of(packets.max(1))),
            work: self.work(&server, packets, are),
            ..Observation::default()
        };
        match self.timing.take().or(server.timing) {
            Some(timing) => timing.fill(&mut observation),
            // Processor time per served unit: it includes the kernel's part and batching.
            None if server.processors > 0.0 && served > 0.0 => {
                observation.service_s = Some(server.processors * f64::from(observation.servers) / served);
            }
            None => {}
        }
        if observation.messages.is_empty() && observation.service_s.is_none() {
            observation.messages = incoming
                .into_iter()
                .map(|(message, count)| MessageObservation {
                    message,
                    weight: float_of(count),
                    ..MessageObservation::default()
                })
                .collect();
        }
        observation
    }

    /// Returns the messages that reached the server: requests of callers and responses of callees. The server's own
    /// responses do not count: 100, proxy challenges, and a final response to each REGISTER.
    fn incoming(&self) -> Vec<(String, u64)> {
        let mut incoming: Vec<(String, u64)> =
            self.messages_sent.iter().map(|(message, count)| (message.clone(), *count)).collect();
        let mut registers = self.messages_sent.get("REGISTER").copied().unwrap_or(0);
        // Most responses to REGISTER are challenges, then 200.
        for status in ["401", "200"] {
            let received = self.messages_received.get(status).copied().unwrap_or(0);
            let own = received.min(registers);
            registers -= own;
            incoming.push((status.to_owned(), received - own));
        }
        for (status, count) in &self.messages_received {
            if !matches!(status.as_str(), "100" | "407" | "401" | "200") {
                incoming.push((status.clone(), *count));
            }
        }
        incoming.retain(|(_, count)| *count > 0);
        incoming
    }

    fn work(&self, server: &Server, packets: u64, are: RunOptions) -> Option<Work> {
        let is = |name: &str| self.workload.starts_with(name);
        let challenged = self.messages_received.get("401").copied().unwrap_or(0) > self.offered / 2;
        let kind = if is("registration") {
            if challenged { Kind::ChallengedRegister } else { Kind::Register }
        } else if is("proxy-200") || is("baseline") || is("outbound") {
            if are.stateless { Kind::StatelessCall } else { Kind::Call }
        } else {
            return None;
        };
        let is_known = server.cpu_us_per_call > 0.0 && self.carried_per_s > 0.0;
        is_known.then(|| Work {
            kind,
            carried_per_s: self.carried_per_s,
            cost_s: server.cpu_us_per_call * 1e-6,
            messages_in: float_of(packets) / float_of(self.offered),
        })
    }
}

impl Timing {
    fn fill(self, observation: &mut Observation) {
        observation.wait_s = self.wait_us.map(|us| us * 1e-6);
        observation.sockq_s = self.sockq_us.map(|us| us * 1e-6);
        let (mut base, mut rest, mut all) = (0.0, 0.0, 0.0);
        for times in self.messages.into_iter().filter(|times| times.count > 0) {
            let timing = times.timing();
            let weight = float_of(times.count);
            let parts = [timing.sockq_base, timing.copy, timing.sip, timing.send];
            let (mean, variance) = match times.service_us {
                Some(service) => (service.mean * 1e-6, service.variance * 1e-12),
                None => {
                    (parts.iter().map(|part| part.mean_s).sum(), parts.iter().map(|part| part.variance_s2).sum::<f64>())
                }
            };
            let own_rest: f64 = parts.iter().skip(1).map(|part| part.mean_s).sum();
            (base, rest, all) = (base + weight * timing.sockq_base.mean_s, rest + weight * own_rest, all + weight);
            let is_known = mean > 0.0;
            observation.messages.push(MessageObservation {
                message: times.message,
                weight,
                service_s: is_known.then_some(mean),
                scv: (is_known && variance > 0.0).then(|| variance / (mean * mean)),
            });
        }
        observation.base_s = (base > 0.0).then(|| base / all);
        observation.rest_s = (rest > 0.0).then(|| rest / all);
    }
}

impl MessageTimes {
    fn timing(&self) -> MessageTiming {
        let part = |times: Option<Times>| times.map(Times::part).unwrap_or_default();
        MessageTiming {
            message: self.message.clone(),
            share: 0.0,
            sockq_base: part(self.sockq_base_us),
            copy: part(self.copy_us),
            sip: part(self.sip_us),
            send: part(self.send_us),
        }
    }
}

fn float_of(count: u64) -> f64 {
    float(usize::try_from(count).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ONE: RunOptions = RunOptions { stateless: false, servers: 1 };

    fn report() -> Value {
        json!({
            "workload": "proxy-200", "to": "udp:127.0.0.1:5060", "elapsed_s": 10.0, "offered": 1_000, "carried": 1_000,
            "offered_per_s": 100.0, "carried_per_s": 100.0,
            "messages_sent": { "INVITE": 1_000, "ACK": 1_000, "BYE": 1_000 },
            "messages_received": { "100": 1_000, "180": 1_000, "200": 2_000 },
            "generator": { "was_bottleneck": false },
            "server": { "processors": 0.06, "cpu_us_per_call": 600.0, "drops": 0 },
        })
    }

    #[test]
    fn a_call_sends_six_messages_to_the_server() {
        let found = from_run("run.json", &report(), ONE).expect("a run");
        assert_eq!((found.rate_per_s, found.calls_per_s, found.cpu), (600.0, Some(100.0), Some(0.06)));
        assert!(found.service_s.is_some_and(|time| (time - 100e-6).abs() < 1e-12), "{found:?}");
        let work = found.work.expect("calls");
        assert_eq!((work.kind, work.messages_in), (Kind::Call, 6.0));
        let stateless = from_run("run.json", &report(), RunOptions { stateless: true, ..ONE }).expect("a run");
        assert_eq!(stateless.work.map(|work| work.kind), Some(Kind::StatelessCall));
    }

    #[test]
    fn a_registration_run_is_read() {
        let mut report = report();
        report["workload"] = json!("registration");
        report["messages_sent"] = json!({ "REGISTER": 2_000 });
        report["messages_received"] = json!({ "401": 1_000, "200": 1_000 });
        let found = from_run("run.json", &report, ONE).expect("a run");
        assert_eq!(found.rate_per_s, 200.0);
        assert_eq!(found.work.map(|work| work.kind), Some(Kind::ChallengedRegister));
    }

    #[test]
    fn a_servers_own_timing_is_used() {
        let mut report = report();
        report["timing"] = json!({ "wait_us": 5.5, "messages": [
            { "message": "INVITE", "count": 1, "sockq_base_us": { "mean": 8.0 }, "sip_us": { "mean": 200.0, "variance": 400.0 } },
            { "message": "ACK", "count": 3, "sockq_base_us": { "mean": 8.0 }, "sip_us": { "mean": 80.0, "variance": 100.0 } },
        ] });
        let found = from_run("run.json", &report, ONE).expect("a run");
        assert!(found.mean_s().is_some_and(|mean| (mean - 118e-6).abs() < 1e-12), "{found:?}");
        assert!(found.base_s.is_some_and(|base| (base - 8e-6).abs() < 1e-15));
        assert!(found.wait_s.is_some_and(|wait| (wait - 5.5e-6).abs() < 1e-15));
        assert!(found.measured_scv().is_some_and(|scv| scv > 0.15 && scv < 0.25), "{:?}", found.measured_scv());
    }

    #[test]
    fn an_unusable_report_is_rejected_with_a_hint() {
        let refused = |change: &dyn Fn(&mut Value), part: &str| {
            let mut report = report();
            change(&mut report);
            let error = from_run("run.json", &report, ONE).expect_err(part).0;
            assert!(error.starts_with("run.json: ") && error.contains(part), "{error}");
        };
        refused(&|report| report["generator"]["was_bottleneck"] = json!(true), "the generator was the bottleneck");
        refused(&|report| report["server"] = Value::Null, "give the process (load run --pid)");
        refused(&|report| report["sweep"] = json!("rate"), "the report of a sweep");
        refused(&|report| *report = json!({}), "this is not the report of a run");
        refused(&|report| report["broken_off"] = json!("no answer"), "was aborted (no answer)");
    }
}
