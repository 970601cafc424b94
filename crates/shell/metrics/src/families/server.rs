//! The server as a whole, its workers and its counters.

use std::collections::BTreeMap;
use std::fmt;

use strowger_control::protocol::{Status, WorkerLoad};

use crate::counters::{COUNTERS, Counter, Kind};
use crate::encoder::{Encoder, Family, Labels, flag};

/// Connections of the HTTP listener since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HttpConnections {
    /// Accepted.
    pub accepted: u64,
    /// Closed at once because too many were open.
    pub refused: u64,
}

pub(crate) fn write(to: &mut Encoder<'_>, status: &Status, http: HttpConnections) -> fmt::Result {
    let version = vec![("version", status.version.clone())];
    to.gauges(&Family::new("build_info", "Always 1; the label has the server's version."), [(version, 1_u64)])?;
    to.gauge(&Family::seconds("uptime", "Time since the server started."), status.uptime_s)?;
    to.gauge(&Family::new("draining", "1 while the server is being stopped."), flag(status.draining))?;
    to.gauge(&Family::new("registrations", "Registered contacts."), status.registrations)?;
    to.gauge(&Family::new("registered_addresses", "Addresses of record with a contact."), status.addresses)?;
    to.gauge(&Family::new("users", "Users in the directory."), status.users)?;
    to.gauge(&Family::new("transactions", "Transactions in progress."), status.transactions)?;
    to.gauge(&Family::new("calls", "Calls in progress."), calls(status))?;
    counters(to, status)?;
    workers(to, &status.loads)?;
    overload(to, status)?;
    earlier_processes(to, status)?;
    certificates(to, status)?;
    // Each name once, even if the configuration has it twice.
    let engines: BTreeMap<_, _> = status.media.iter().map(|engine| (engine.address, engine.is_up)).collect();
    let engines = engines.into_iter().map(|(address, is_up)| (vec![("engine", address.to_string())], flag(is_up)));
    to.gauges(&Family::new("media_engine_up", "1 if a media engine answers."), engines)?;
    let help = "Connections to the HTTP listener.";
    to.counter(&Family::new("http_connections", help), http.accepted)?;
    let help = "Connections to the HTTP listener that were closed at once because too many were open.";
    to.counter(&Family::new("http_connections_refused", help), http.refused)
}

fn calls(status: &Status) -> u64 {
    let count = |name| count(status, "shards", name).unwrap_or(0);
    count("calls").saturating_sub(count("calls_ended"))
}

fn count(status: &Status, part: &str, name: &str) -> Option<u64> {
    status.counters.get(part)?.get(name).copied()
}

/// Writes the counters of `ctl status`.
fn counters(to: &mut Encoder<'_>, status: &Status) -> fmt::Result {
    let metrics: Vec<String> = COUNTERS.iter().map(Counter::metric).collect();
    for (index, (counter, metric)) in COUNTERS.iter().zip(&metrics).enumerate() {
        if metrics.iter().position(|first| first == metric) != Some(index) {
            // It was written with the first counter of its metric.
            continue;
        }
        let of_metric = COUNTERS.iter().zip(&metrics).filter(|(_, other)| *other == metric);
        let samples = of_metric.filter_map(|(counter, _)| {
            let labels: Labels = counter.label.into_iter().map(|(label, value)| (label, value.to_owned())).collect();
            Some((labels, count(status, counter.part, counter.name)?))
        });
        let help = counter.metric_help();
        match counter.kind {
            Kind::Counter => to.counters(&Family::new(metric, help), samples)?,
            Kind::Bytes => to.counters(&Family::bytes(metric, help), samples)?,
            Kind::Gauge => to.gauges(&Family::new(metric, help), samples)?,
        }
    }
    Ok(())
}

fn workers(to: &mut Encoder<'_>, loads: &[WorkerLoad]) -> fmt::Result {
    let label = |index: usize| -> Labels { vec![("worker", index.to_string())] };
    let each = || loads.iter().enumerate();
    let family = Family::ratio("worker_load", "Share of a worker's time that it spent working.");
    to.gauges(&family, each().map(|(index, worker)| (label(index), worker.load)))?;
    let family = Family::new("worker_shards", "Shards that a worker runs.");
    to.gauges(&family, each().map(|(index, worker)| (label(index), worker.shards)))
}

/// Writes what the processes before an upgrade still have, which the other families do not contain.
fn earlier_processes(to: &mut Encoder<'_>, status: &Status) -> fmt::Result {
    let all = status.takeover.as_ref().map_or(&[][..], |takeover| &takeover.predecessors);
    let help = "Processes before an upgrade that still have transactions or connections.";
    to.gauge(&Family::new("earlier_processes", help), all.len() as u64)?;
    let help = "Transactions in progress in processes before an upgrade.";
    to.gauge(
        &Family::new("earlier_processes_transactions", help),
        all.iter().map(|one| one.transactions).sum::<u64>(),
    )?;
    let help = "Open connections of processes before an upgrade.";
    to.gauge(&Family::new("earlier_processes_connections", help), all.iter().map(|one| one.connections).sum::<u64>())
}

fn overload(to: &mut Encoder<'_>, status: &Status) -> fmt::Result {
    let now = &status.overload;
    let help = "Workers that refuse new work because of overload.";
    to.gauge(&Family::new("overload_limiting_workers", help), now.limiting)?;
    let help = "Share of new calls that is refused or dropped because of overload.";
    to.gauge(&Family::ratio("overload_shed", help), now.shed)?;
    let help = "New work admitted per second by the workers that refuse some.";
    to.gauge(&Family::new("overload_admitted_per_second", help), now.admitted_per_s)?;
    let help = "Time that new work waits before it is read.";
    #[expect(clippy::cast_precision_loss, reason = "a time of 100 years is exact")]
    let wait_s = now.wait_us as f64 / 1e6;
    to.gauge(&Family::seconds("overload_wait", help), wait_s)?;
    let help = "Workers for which the kernel drops what would be refused.";
    to.gauge(&Family::new("overload_kernel_filtered_workers", help), now.filtered_by_kernel)
}

fn certificates(to: &mut Encoder<'_>, status: &Status) -> fmt::Result {
    let left: BTreeMap<&str, i64> = status
        .certificates
        .iter()
        .filter_map(|certificate| Some((certificate.file.as_str(), certificate.expires_days?)))
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "a number of days")]
    let left = left.into_iter().map(|(file, days)| (vec![("file", file.to_owned())], days as f64 * 86_400.0));
    let help = "Time until a TLS certificate expires, in whole days; negative once it has expired.";
    to.gauges(&Family::seconds("tls_certificate_expires", help), left)
}
