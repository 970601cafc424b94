//! Messages and calls for other tools, as `[trace]` says.

use std::sync::{Arc, PoisonError, RwLock};

use strowger_calls::CallRecord;
use strowger_control::config::values::MethodName;
use strowger_control::config::{self, Config};
use strowger_control::protocol::Counters;
use strowger_foundation::Transport;
use strowger_net::Clock;
use strowger_shard::Listeners;
use strowger_telemetry::{
    Attribute, CollectorTransport, HepConfig, HepCounters, HepExporter, HepSource, HttpTarget, OtlpConfig,
    OtlpCounters, OtlpExporter, Resource,
};
use strowger_worker::{CallSample, Trace, TraceFilter, Tracer};

/// The threads that send to other tools.
pub(crate) struct Exporters {
    tracer: Arc<Tracer>,
    clock: Clock,
    /// What runs, if anything.
    hep: Option<(HepWanted, HepExporter)>,
    hep_counts: Arc<HepCounters>,
    otlp: Option<OtlpConfig>,
    otlp_counts: Arc<OtlpCounters>,
    calls: EndedCalls,
}

/// What the configuration wants of HEP.
type HepWanted = (HepConfig, CallSample);

/// Takes the records of ended calls.
#[derive(Clone, Default)]
pub(crate) struct EndedCalls(Arc<RwLock<Option<OtlpExporter>>>);

impl EndedCalls {
    /// Queues a record. Never waits for a collector.
    pub(crate) fn write(&self, record: &Arc<CallRecord>) {
        if let Some(exporter) = &*self.0.read().unwrap_or_else(PoisonError::into_inner) {
            exporter.end_call(record);
        }
    }

    fn replace(&self, exporter: Option<OtlpExporter>) -> Option<OtlpExporter> {
        std::mem::replace(&mut *self.0.write().unwrap_or_else(PoisonError::into_inner), exporter)
    }
}

impl Exporters {
    /// Starts what the configuration wants.
    pub(crate) fn start(config: &Config, listeners: &Listeners, tracer: Arc<Tracer>, clock: Clock) -> Self {
        let mut exporters = Self {
            tracer,
            clock,
            hep: None,
            hep_counts: Arc::default(),
            otlp: None,
            otlp_counts: Arc::default(),
            calls: EndedCalls::default(),
        };
        exporters.apply(config, listeners);
        exporters
    }

    /// Returns where the records of ended calls go.
    pub(crate) fn ended_calls(&self) -> EndedCalls {
        self.calls.clone()
    }

    /// Starts and ends threads as a new configuration wants. What has not changed goes on.
    pub(crate) fn apply(&mut self, config: &Config, listeners: &Listeners) {
        self.apply_hep(hep_wanted(config, listeners));
        self.apply_otlp(otlp_wanted(config));
    }

    /// Ends all threads, which send what waits.
    pub(crate) fn stop(self) {
        drop(self.calls.replace(None));
    }

    /// Adds the counters.
    pub(crate) fn count(&self, counters: &mut Counters) {
        let (hep, otlp) = (self.hep_counts.counts(), self.otlp_counts.counts());
        for (part, [sent, dropped, failed]) in
            [("hep", [hep.sent, hep.dropped, hep.failed]), ("otlp", [otlp.sent, otlp.dropped, otlp.failed])]
        {
            let counts = [("sent", sent), ("dropped", dropped), ("failed", failed)];
            counters.insert(part.to_owned(), counts.map(|(name, value)| (name.to_owned(), value)).into());
        }
    }

    fn apply_hep(&mut self, wanted: Option<HepWanted>) {
        if self.hep.as_ref().map(|(running, _)| running) == wanted.as_ref() {
            return;
        }
        if let Some((_, exporter)) = self.hep.take() {
            exporter.detach();
        }
        let Some(wanted) = wanted else { return tracing::info!("messages are no longer sent to a HEP collector") };
        let place = wanted.0.place.clone();
        match self.start_hep(wanted) {
            Ok(running) => {
                self.hep = Some(running);
                tracing::info!("messages are sent to the HEP collector {place}");
            }
            Err(why) => tracing::error!("messages are not sent to a HEP collector: {why}; reload to try again"),
        }
    }

    fn start_hep(&self, wanted: HepWanted) -> Result<(HepWanted, HepExporter), String> {
        let (config, sample) = wanted.clone();
        let trace = self.trace(sample)?;
        let exporter = HepExporter::start(config, trace, self.clock, Arc::clone(&self.hep_counts));
        Ok((wanted, exporter.map_err(|error| format!("a thread cannot be started: {error}"))?))
    }

    fn apply_otlp(&mut self, wanted: Option<OtlpConfig>) {
        if self.otlp == wanted {
            return;
        }
        self.otlp = None;
        if let Some(exporter) = self.calls.replace(None) {
            exporter.detach();
        }
        let Some(wanted) = wanted else { return tracing::info!("spans are no longer sent to an OTLP collector") };
        match self.start_otlp(wanted.clone()) {
            Ok(exporter) => {
                let HttpTarget { authority, path, .. } = &wanted.target;
                tracing::info!("spans of calls are sent to the OTLP collector http://{authority}{path}");
                drop(self.calls.replace(Some(exporter)));
                self.otlp = Some(wanted);
            }
            Err(why) => tracing::error!("spans are not sent to an OTLP collector: {why}; reload to try again"),
        }
    }

    fn start_otlp(&self, wanted: OtlpConfig) -> Result<OtlpExporter, String> {
        let mut seed = [0; 16];
        getrandom::fill(&mut seed).map_err(|error| format!("the system does not provide random bytes: {error}"))?;
        let trace = self.trace(wanted.sample.clone().only_setup())?;
        OtlpExporter::start(wanted, trace, self.clock, seed, Arc::clone(&self.otlp_counts))
            .map_err(|error| format!("a thread cannot be started: {error}"))
    }

    fn trace(&self, sample: CallSample) -> Result<Trace, String> {
        self.tracer.start(TraceFilter::Sample(sample)).map_err(|_| "too many traces are running".to_owned())
    }
}

fn hep_wanted(config: &Config, listeners: &Listeners) -> Option<HepWanted> {
    let hep = &config.trace.hep;
    let to = hep.to.as_ref()?;
    let source = HepSource {
        capture_id: hep.capture_id,
        node: config.trace_node(),
        auth_key: hep.auth_key.as_ref().map(|key| key.expose().to_owned()),
    };
    let transport = if to.transport == Transport::Tcp { CollectorTransport::Tcp } else { CollectorTransport::Udp };
    let listeners = listeners.all().map(|listener| listener.address).collect();
    let methods = hep.except.iter().map(|MethodName(method)| method.clone()).collect();
    let wanted = HepConfig { transport, place: to.place.clone(), source, listeners };
    Some((wanted, CallSample::new(hep.sample).except(methods)))
}

fn otlp_wanted(config: &Config) -> Option<OtlpConfig> {
    let otlp = &config.trace.otlp;
    let to = otlp.to.as_ref()?;
    let node = config.trace_node();
    let attributes: Vec<Attribute> = vec![
        ("service.name", otlp.service.clone().into()),
        ("service.version", env!("CARGO_PKG_VERSION").into()),
        ("service.instance.id", node.into()),
        ("host.name", config::host_name().into()),
        ("process.pid", std::process::id().into()),
    ];
    // The configuration has been checked.
    let headers = otlp.headers.iter().filter_map(|(name, value)| HttpTarget::header(name, value.expose()));
    let target = HttpTarget { authority: to.authority.clone(), path: to.path.clone(), headers: headers.collect() };
    Some(OtlpConfig {
        target,
        resource: Resource { attributes, version: env!("CARGO_PKG_VERSION") },
        sample: CallSample::new(otlp.sample),
        has_users: otlp.users,
    })
}

/// Describes for `check` what is sent to other tools.
pub(crate) fn summary(config: &Config) -> String {
    let share = |sample: f64| if sample < 1.0 { format!(", {} % of calls", sample * 100.0) } else { String::new() };
    let hep = &config.trace.hep;
    let otlp = &config.trace.otlp;
    let messages = hep.to.as_ref().map(|to| format!("messages to {to} (HEP){}", share(hep.sample)));
    let spans = otlp.to.as_ref().map(|to| format!("spans of calls to {to} (OTLP){}", share(otlp.sample)));
    let all: Vec<_> = messages.into_iter().chain(spans).collect();
    if all.is_empty() { "none".to_owned() } else { all.join("\n") }
}
