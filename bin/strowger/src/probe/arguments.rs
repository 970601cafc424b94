//! The arguments of `strowger probe`.

use std::path::PathBuf;

use clap::{ArgGroup, Args, ValueEnum};
use strowger_control::config::Span;
use strowger_timing::{Protocol, Target};

use crate::timing::PictureArguments;

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("target").required(true))]
pub(crate) struct ProbeArguments {
    /// The process to measure, with its threads and child processes
    #[arg(long, value_name = "PID", group = "target")]
    pid: Option<u32>,
    /// The local port to measure; finds the processes that serve it
    #[arg(long, value_name = "PORT", group = "target", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Only this protocol [default: both]
    #[arg(long, value_name = "PROTOCOL")]
    protocol: Option<ProtocolName>,
    /// How long to measure; Ctrl-C ends it earlier
    #[arg(long, value_name = "TIME", default_value = "10s")]
    pub(super) duration: Span,
    /// How often the display is renewed
    #[arg(long, value_name = "TIME", default_value = "1s")]
    pub(super) interval: Span,
    /// Number of threads to list, the busiest first
    #[arg(long, value_name = "N", default_value_t = 5)]
    pub(super) top: usize,
    /// Only uses /proc, even where eBPF is permitted
    #[arg(long, conflicts_with = "log")]
    pub(super) no_ebpf: bool,
    /// Shows nothing while measuring
    #[arg(short, long)]
    pub(super) quiet: bool,
    /// Writes the report as JSON; - is standard output
    #[arg(long, value_name = "FILE", help_heading = "Output")]
    pub(super) json: Option<PathBuf>,
    #[command(flatten)]
    pub(super) pictures: PictureArguments,
    /// Writes a line for each packet, which plan fit and plan validate read; needs eBPF
    #[arg(long, value_name = "FILE.csv", help_heading = "Output")]
    pub(super) log: Option<PathBuf>,
}

/// A protocol on the command line.
#[derive(Clone, Copy, Debug, ValueEnum)]
enum ProtocolName {
    Udp,
    Tcp,
}

impl ProbeArguments {
    pub(super) fn target(&self) -> Target {
        // The parser has checked that exactly one is given.
        match (self.pid, self.port) {
            (Some(pid), _) => Target::Process(pid),
            (None, port) => Target::Port(port.unwrap_or_default()),
        }
    }

    pub(super) fn protocol(&self) -> Option<Protocol> {
        self.protocol.map(|name| match name {
            ProtocolName::Udp => Protocol::Udp,
            ProtocolName::Tcp => Protocol::Tcp,
        })
    }
}
