//! Reports of `strowger probe --json` and `strowger ctl timing --json` as measurements.
//!
//! A report of the probe has the service time X, as in a packet log. One of the server itself, or of an older probe, has
//! only the parts after the socket's queue. Their sum misses what lies between them, such as the program's loop around
//! the receive call, and, of an older probe, all send calls of a packet but the first.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

use super::error::FitError;
use super::observation::{MessageObservation, Observation};

/// Parts after the socket's queue, of which X consists if it was not measured.
const REST: [&str; 3] = ["k_copy", "t_sip", "send_call"];
/// Share of the packets that woke the receiver from which the median of K_sockq is that of an idle server.
const IDLE: f64 = 0.5;

#[derive(Debug, Deserialize)]
struct Report {
    method: String,
    seconds: f64,
    packets_per_s: f64,
    #[serde(default)]
    messages: Vec<Message>,
    all: Message,
    #[serde(default)]
    service: BTreeMap<String, Service>,
    #[serde(default)]
    drops: BTreeMap<String, f64>,
    cpu: Option<f64>,
}

#[derive(Debug, Default, Deserialize)]
struct Message {
    message: String,
    packets: f64,
    #[serde(default)]
    parts: BTreeMap<String, Times>,
}

#[derive(Clone, Copy, Debug, Default, Deserialize)]
struct Times {
    count: f64,
    mean_us: f64,
    #[serde(default)]
    variance_us2: f64,
    #[serde(default)]
    p50_us: f64,
}

/// X as the probe measured it.
#[derive(Clone, Copy, Debug, Deserialize)]
struct Service {
    mean_us: f64,
    variance_us2: Option<f64>,
}

/// E\[X\], s, and its variation if that is known.
type MeanAndScv = (f64, Option<f64>);

/// Whether this is a report of packet times.
#[must_use]
pub fn is_timing_report(report: &Value) -> bool {
    ["method", "packets_per_s", "all", "messages"].iter().all(|key| report.get(key).is_some())
}

/// Reads a report; `name` is the file's name, `servers` the number of threads that take packets from one queue.
///
/// # Errors
/// The report does not have the times that the fit needs. The text says what to do.
pub fn from_timing_report(name: &str, report: &Value, servers: u32) -> Result<Observation, FitError> {
    let wrong = |what: &str| FitError(format!("{name}: {what}"));
    let read = Report::deserialize(report).map_err(|error| wrong(&format!("this report cannot be read: {error}")))?;
    if read.all.packets <= 0.0 || read.seconds <= 0.0 {
        return Err(wrong("no packet was measured; omit it"));
    }
    if read.method == "proc" {
        return Err(wrong("this was measured without eBPF and has no service times; run strowger probe as root"));
    }
    let (service, scv) = read
        .service(&read.all)
        .ok_or_else(|| wrong("the report has no T_sip; measure a program that receives and sends, or longer"))?;
    let part = |key: &str| read.all.parts.get(key);
    let woken = part("wake_up").map_or(0.0, |times| times.count);
    let sockq = part("k_sockq").copied();
    let setup_s = sockq.filter(|times| woken > IDLE * times.count).map(|times| times.p50_us * 1e-6);
    let sockq_s = sockq.map(|times| times.mean_us * 1e-6);
    // Others never wanted a place in the queue, were received nevertheless, or are packets that the program sent.
    let drops = read.drops.iter().filter(|(cause, _)| is_full_queue(cause)).fold(0.0, |sum, (_, count)| sum + count);
    let served = read.packets_per_s;
    let service_s = read.cpu.filter(|_| servers > 1).map(|cpu| cpu * f64::from(servers) / served);
    let messages = read.messages.iter().filter(|message| message.packets > 0.0).map(|message| {
        let own = read.service(message);
        MessageObservation {
            message: message.message.clone(),
            weight: message.packets,
            service_s: own.map(|own| own.0),
            scv: own.and_then(|own| own.1),
        }
    });
    Ok(Observation {
        name: name.to_owned(),
        rate_per_s: served + drops / read.seconds,
        servers,
        service_s: service_s.or(Some(service)),
        scv,
        sockq_s,
        wait_s: setup_s.zip(sockq_s).filter(|_| servers == 1).map(|(setup, sockq)| (sockq - setup).max(0.0)),
        drops: Some(drops / (drops + served * read.seconds)),
        cpu: read.cpu.filter(|cpu| *cpu > 0.0),
        messages: messages.collect(),
        ..Observation::default()
    })
}

/// Whether packets dropped for this cause are lost because a queue was full, so that they belong to the offered rate:
/// the name of the server, of /proc, or of the kernel.
pub(super) fn is_full_queue(cause: &str) -> bool {
    ["socket_queue_full", "RcvbufErrors", "SOCKET_RCVBUFF", "SOCKET_BACKLOG", "PROTO_MEM"].contains(&cause)
}

impl Report {
    /// Returns X of a row; `None` if nothing of the program is known.
    fn service(&self, message: &Message) -> Option<MeanAndScv> {
        let measured = self.service.get(&message.message).filter(|service| service.mean_us > 0.0);
        let of = |service: &Service| {
            let scv = service.variance_us2.map(|variance| variance / service.mean_us.powi(2));
            (service.mean_us * 1e-6, scv)
        };
        measured.map(of).or_else(|| message.service())
    }
}

impl Message {
    /// Returns X from the parts after the queue; `None` if nothing of the program is known.
    fn service(&self) -> Option<MeanAndScv> {
        self.parts.get("t_sip")?;
        let (mut mean, mut variance) = (0.0, 0.0);
        for times in REST.iter().filter_map(|key| self.parts.get(*key)) {
            // A packet may cause several send calls, or none. Their number varies as little as its mean permits: the
            // fraction is the share of the packets with one call more than the others.
            let each = times.count / self.packets;
            let share = each.fract();
            mean += each * times.mean_us;
            variance += each * times.variance_us2 + share * (1.0 - share) * times.mean_us.powi(2);
        }
        (mean > 0.0).then(|| (mean * 1e-6, Some(variance / (mean * mean))))
    }
}

/// Gives reports that did not find the server idle the wait that follows from the setup time of those that did.
pub fn share_setup(measured: &mut [Observation]) {
    let known = measured.iter().filter_map(|one| Some((one.rate_per_s, one.sockq_s? - one.wait_s?)));
    let Some((_, base)) = known.min_by(|one, other| one.0.total_cmp(&other.0)) else { return };
    for one in measured.iter_mut().filter(|one| one.servers == 1 && one.wait_s.is_none()) {
        one.wait_s = one.sockq_s.map(|sockq| (sockq - base).max(0.0));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report() -> Value {
        let times = |count: u64, mean: f64, variance: f64| json!({ "count": count, "mean_us": mean, "variance_us2": variance, "p50_us": mean });
        let invite = json!({ "message": "INVITE", "packets": 100, "parts": {
            "t_sip": times(100, 60.0, 100.0), "k_copy": times(100, 2.0, 0.0), "send_call": times(200, 10.0, 0.0) } });
        let all = json!({ "message": "all", "packets": 100, "parts": {
            "wake_up": times(90, 5.0, 0.0), "k_sockq": times(100, 9.0, 0.0),
            "t_sip": times(100, 60.0, 100.0), "k_copy": times(100, 2.0, 0.0), "send_call": times(200, 10.0, 0.0) } });
        json!({ "method": "ebpf", "program": "x", "seconds": 10.0, "packets_per_s": 10.0, "messages": [invite],
            "all": all, "queue": null, "drops": { "SOCKET_RCVBUFF": 25 }, "cpu": 0.1, "packets_per_receive": 1.0, "notes": [] })
    }

    #[test]
    fn parts_after_the_queue_are_the_service_time() {
        assert!(is_timing_report(&report()) && !is_timing_report(&json!({ "offered": 1 })));
        let found = from_timing_report("a.json", &report(), 1).expect("sound");
        assert_eq!((found.rate_per_s, found.drops, found.cpu), (12.5, Some(0.2), Some(0.1)));
        // T_sip, K_copy and two send calls.
        assert!(found.service_s.is_some_and(|mean| (mean - 82e-6).abs() < 1e-12), "{found:?}");
        assert_eq!((found.wait_s, found.messages.len()), (Some(0.0), 1));
        let several = from_timing_report("a.json", &report(), 4).expect("sound");
        assert!(several.service_s.is_some_and(|time| (time - 0.04).abs() < 1e-9), "{several:?}");
    }

    #[test]
    fn a_measured_service_time_is_preferred() {
        let mut report = report();
        let service = json!({ "packets": 99, "mean_us": 100.0, "variance_us2": 2_500.0 });
        report["service"] =
            json!({ "all": service, "INVITE": { "packets": 99, "mean_us": 90.0, "variance_us2": null } });
        let found = from_timing_report("a.json", &report, 1).expect("sound");
        assert!(found.service_s.is_some_and(|mean| (mean - 100e-6).abs() < 1e-12), "{found:?}");
        assert!(found.scv.is_some_and(|scv| (scv - 0.25).abs() < 1e-12), "{found:?}");
        let invite = &found.messages[0];
        assert!(
            invite.scv.is_none() && invite.service_s.is_some_and(|mean| (mean - 90e-6).abs() < 1e-12),
            "{invite:?}"
        );
    }

    #[test]
    fn several_send_calls_vary_and_other_drops_are_no_load() {
        let mut report = report();
        for (cause, count) in [("overload_control", 1_000), ("kernel_filter", 500), ("send_queue_full", 70)] {
            report["drops"][cause] = json!(count);
        }
        report["all"]["parts"]["send_call"]["variance_us2"] = json!(9.0);
        let found = from_timing_report("a.json", &report, 1).expect("sound");
        assert_eq!((found.rate_per_s, found.drops), (12.5, Some(0.2)));
        // T_sip 100 µs², and twice a send call of 9 µs².
        assert!(found.scv.is_some_and(|scv| (scv - 118.0 / 82.0_f64.powi(2)).abs() < 1e-12), "{found:?}");
    }

    #[test]
    fn a_busy_report_uses_the_base_of_an_idle_one() {
        let mut busy = report();
        busy["all"]["parts"]["wake_up"]["count"] = json!(5);
        busy["all"]["parts"]["k_sockq"]["mean_us"] = json!(109.0);
        let read = |report: &Value| from_timing_report("a.json", report, 1).expect("sound");
        let mut both = [read(&busy), read(&report())];
        assert_eq!(both[0].wait_s, None);
        share_setup(&mut both);
        assert!(both[0].wait_s.is_some_and(|wait| (wait - 100e-6).abs() < 1e-12), "{both:?}");
    }

    #[test]
    fn a_report_without_service_times_is_refused() {
        let mut report = report();
        report["method"] = json!("proc");
        let error = from_timing_report("a.json", &report, 1).expect_err("no times").0;
        assert!(error.contains("without eBPF") && error.contains("as root"), "{error}");
    }
}
