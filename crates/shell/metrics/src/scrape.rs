//! What a scrape reads, and its text.

use std::fmt;
use std::sync::Arc;

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, prometheus_text, text};
use prometheus_client::registry::Registry;
use strowger_control::protocol::{DestinationSetup, Status, Target};
use strowger_timing::TypeBuckets;

use crate::encoder::Encoder;
use crate::families::{self, HttpConnections};
use crate::format::Format;
use crate::process::Process;

/// What a scrape reads.
#[derive(Clone, Debug, Default)]
pub struct Scrape {
    /// The status, as `strowger ctl status` shows it.
    pub status: Status,
    /// The targets of balancers, as `strowger ctl targets` shows them.
    pub targets: Vec<Target>,
    /// The times of call setup by trunk and target.
    pub setups: Vec<DestinationSetup>,
    /// The times of packets by message type, with the bounds [`BOUNDS_NS`](crate::BOUNDS_NS); empty if they are not measured.
    pub times: Vec<TypeBuckets>,
    /// Figures of the process.
    pub process: Process,
    /// Connections of the HTTP listener.
    pub http: HttpConnections,
}

impl Scrape {
    /// Returns the text.
    #[must_use]
    pub fn encode(self, format: Format) -> String {
        let scrape = Arc::new(self);
        let mut registry = Registry::default();
        registry.register_collector(Box::new(ProcessFamilies(Arc::clone(&scrape))));
        registry.sub_registry_with_prefix("strowger").register_collector(Box::new(ServerFamilies(scrape)));
        let mut text = String::with_capacity(64 * 1024);
        let written = match format {
            Format::Prometheus => prometheus_text::encode(&mut text, &registry),
            Format::OpenMetrics => text::encode(&mut text, &registry),
        };
        debug_assert!(written.is_ok(), "a string takes everything");
        text
    }
}

/// The families that each process has.
#[derive(Debug)]
struct ProcessFamilies(Arc<Scrape>);

impl Collector for ProcessFamilies {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        families::process(&mut Encoder::new(encoder), &self.0.process)
    }
}

/// The families of this server.
#[derive(Debug)]
struct ServerFamilies(Arc<Scrape>);

impl Collector for ServerFamilies {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let Scrape { status, targets, setups, times, http, .. } = &*self.0;
        let to = &mut Encoder::new(encoder);
        families::server(to, status, *http)?;
        families::setup(to, &status.call_setup)?;
        families::setups(to, setups)?;
        families::times(to, times)?;
        families::targets(to, status, targets)?;
        families::store(to, status)?;
        families::cluster(to, status.cluster.as_ref())
    }
}
