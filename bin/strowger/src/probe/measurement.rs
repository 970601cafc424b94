//! A running measurement: by eBPF where that is possible, else from /proc.

use std::collections::BTreeSet;
use std::time::Duration;

use strowger_timing::proc::{Host, Program, QueueSampler, ThreadUse, UsageSampler};
use strowger_timing::{Probe, ProbeError, ProbeOptions, TimingReport};

use super::ProbeArguments;
use super::log::PacketLog;
use super::packets::Packets;
use crate::failure::Failure;

/// A running measurement.
pub(super) struct Measurement {
    host: Host,
    program: Program,
    usage: UsageSampler,
    method: Method,
}

enum Method {
    /// By eBPF.
    Ebpf(Box<Packets>),
    /// From /proc, and why.
    Proc(Box<QueueSampler>, String),
}

impl Measurement {
    /// Finds the target and begins to measure.
    pub(super) fn start(arguments: &ProbeArguments) -> Result<Self, Failure> {
        let host = Host::default();
        let (target, protocol) = (arguments.target(), arguments.protocol());
        let program = host.find(target, protocol).map_err(|error| Failure::No(error.to_string()))?;
        let probe = match arguments.no_ebpf {
            true => Err("--no-ebpf".to_owned()),
            false => match Probe::start(target, &ProbeOptions { protocol }) {
                Err(ProbeError::NoTarget(why)) => return Err(Failure::No(why)),
                started => started.map_err(|error| error.to_string()),
            },
        };
        let method = match (probe, &arguments.log) {
            (Ok(probe), log) => {
                let log = log.as_deref().map(|file| PacketLog::create(file, &program.name)).transpose()?;
                Method::Ebpf(Box::new(Packets::new(probe, log)))
            }
            (Err(why), Some(_)) => {
                return Err(Failure::No(format!("--log needs eBPF, which cannot be used: {why}")));
            }
            (Err(why), None) => {
                eprintln!(
                    "strowger: eBPF is not used ({why}), so /proc is: queue, drops and processor time, but no single packets"
                );
                Method::Proc(Box::new(QueueSampler::start(&host, &program)), why)
            }
        };
        let usage = UsageSampler::start(&host, &program.pids);
        Ok(Self { host, program, usage, method })
    }

    /// Collects for about this long.
    pub(super) fn collect(&mut self, length: Duration) -> Result<(), Failure> {
        match &mut self.method {
            Method::Ebpf(packets) => packets.collect(length),
            Method::Proc(queue, _) => {
                std::thread::sleep(length);
                queue.sample();
                Ok(())
            }
        }
    }

    /// Returns what was measured so far.
    pub(super) fn report(&mut self, seconds: f64) -> TimingReport {
        self.usage.sample();
        let mut report = TimingReport {
            program: self.program.name.clone(),
            seconds,
            cpu: self.usage.cpu(seconds),
            ..TimingReport::default()
        };
        let no_receivers = BTreeSet::new();
        let receivers = match &self.method {
            Method::Ebpf(packets) => packets.receivers(),
            Method::Proc(..) => &no_receivers,
        };
        report.load = self.usage.load(receivers, seconds);
        match &mut self.method {
            Method::Ebpf(packets) => packets.fill(&mut report),
            Method::Proc(queue, why) => {
                report.notes.push(format!("measured without eBPF: {why}"));
                queue.fill(&mut report);
            }
        }
        report.notes.extend(self.usage.scheduling(seconds));
        report
    }

    /// Ends the measurement, completes the log, and returns the whole report.
    pub(super) fn finish(&mut self, seconds: f64) -> Result<TimingReport, Failure> {
        if let Method::Ebpf(packets) = &mut self.method {
            packets.stop()?;
        }
        let report = self.report(seconds);
        if let Method::Ebpf(packets) = &mut self.method {
            packets.finish_log(&report)?;
        }
        Ok(report)
    }

    /// Whether all processes of the target have ended.
    pub(super) fn is_over(&self) -> bool {
        !self.program.pids.is_empty() && !self.program.pids.iter().any(|pid| self.host.is_running(*pid))
    }

    /// Returns what the threads used, the busiest first.
    pub(super) fn threads(&self) -> Vec<ThreadUse> {
        self.usage.threads()
    }
}
