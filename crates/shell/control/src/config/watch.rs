//! `[watch]`: servers that `strowger watch` monitors, and the DNS zone that it updates.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_foundation::Transport;

use super::values::{DnsServer, ListenAddress, RecordName};
use super::{Probe, Span};

/// `[watch]`: servers whose records `strowger watch` removes from a DNS zone when they die, and adds again. `strowger
/// serve` ignores this section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// Primary name server of the zone, such as 192.0.2.53 or 192.0.2.53:5353.
    pub server: DnsServer,
    /// The zone, such as example.com.
    pub zone: RecordName,
    /// File of the key that signs updates, as written by BIND's tsig-keygen.
    pub key_file: PathBuf,
    /// TTL of the records.
    #[serde(default = "default_ttl")]
    pub ttl: Span,
    /// Health probes by OPTIONS: a table with interval, timeout, down, up and accept.
    #[serde(default)]
    pub probe: Probe,
    /// Timeout for an answer of the name server.
    #[serde(default = "default_timeout")]
    pub timeout: Span,
    /// Interval at which the zone is checked while no server dies or comes back.
    #[serde(default = "default_refresh")]
    pub refresh: Span,
    /// Records in the zone.
    #[serde(rename = "record")]
    pub records: Vec<WatchedRecord>,
}

/// `[[watch.record]]`: a record that is in the zone while a server is alive: an SRV record if it has a target,
/// otherwise an address record.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchedRecord {
    /// Name of the record, such as _sip._udp.example.com.
    pub name: RecordName,
    /// Target host of an SRV record.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<RecordName>,
    /// Port of the server.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1))]
    pub port: u16,
    /// For SRV records: priority; lower ones are used first.
    #[serde(default)]
    pub priority: u16,
    /// For SRV records: weight among records of the same priority.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// Address of the server. With an SRV record, it is added to the zone as the target's address and stays there.
    /// Default: the target's address is maintained elsewhere, and probe is required.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Address to probe, such as udp:192.0.2.1:5060. Default: the record's address and port, over TCP for names that
    /// begin with _sip._tcp, otherwise over UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<ListenAddress>,
}

impl WatchedRecord {
    /// Returns the address to probe; `None` if the record has neither an address nor a probe.
    #[must_use]
    pub fn probed_at(&self) -> Option<ListenAddress> {
        let is_tcp = self.name.0.starts_with("_sip._tcp.");
        let transport = if is_tcp { Transport::Tcp } else { Transport::Udp };
        self.probe.or_else(|| Some(ListenAddress { transport, address: (self.address?, self.port).into() }))
    }
}

const fn default_ttl() -> Span {
    Span::from_secs(30)
}

const fn default_timeout() -> Span {
    Span::from_secs(2)
}

const fn default_refresh() -> Span {
    Span::from_secs(60)
}

const fn default_port() -> u16 {
    5060
}

const fn default_weight() -> u16 {
    1
}
