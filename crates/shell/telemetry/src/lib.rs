//! Traces of messages and calls for other tools: packet captures for Wireshark, HEP for Homer, and spans for
//! OpenTelemetry.

mod call_spans;
mod collector;
mod headers;
mod hep;
mod hep_exporter;
mod http_client;
mod message;
mod otlp;
mod otlp_counts;
mod otlp_exporter;
mod pcapng;
mod setup_message;
mod span;
mod span_sender;
mod trace_thread;

pub use collector::CollectorTransport;
pub use hep::HepSource;
pub use hep_exporter::{HepConfig, HepCounters, HepCounts, HepExporter};
pub use http_client::HttpTarget;
pub use message::CapturedMessage;
pub use otlp::Resource;
pub use otlp_counts::{OtlpCounters, OtlpCounts};
pub use otlp_exporter::{OtlpConfig, OtlpExporter};
pub use pcapng::PcapngWriter;
pub use span::{Attribute, Span, SpanEvent, SpanKind, Value};
