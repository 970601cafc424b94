//! `[watch]`: what `strowger watch` watches, and the zone that it keeps.

use std::net::IpAddr;
use std::path::PathBuf;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_foundation::Transport;

use super::values::{DnsServer, Listen, RecordName};
use super::{Probe, Span};

/// `[watch]`: servers whose records `strowger watch` takes out of a zone of the DNS when they die, and puts back. `strowger serve` does
/// not look at it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Watch {
    /// The primary name server of the zone, as 192.0.2.53 or 192.0.2.53:5353.
    pub server: DnsServer,
    /// The zone, as example.com.
    pub zone: RecordName,
    /// The file of the key that updates are signed with, as tsig-keygen of BIND writes it.
    pub key_file: PathBuf,
    /// How long others may keep the records.
    #[serde(default = "default_ttl")]
    pub ttl: Span,
    /// How servers are asked for their health by OPTIONS: a table with interval, timeout, down, up and accept.
    #[serde(default)]
    pub probe: Probe,
    /// How long the name server may take for an answer.
    #[serde(default = "default_timeout")]
    pub timeout: Span,
    /// How often the zone is looked at where no server dies or comes back.
    #[serde(default = "default_refresh")]
    pub refresh: Span,
    /// The records.
    #[serde(rename = "record")]
    pub records: Vec<WatchedRecord>,
}

/// `[[watch.record]]`: a record that is in the zone while a server is alive: an SRV record where it has a target, else the address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct WatchedRecord {
    /// Its name, as _sip._udp.example.com.
    pub name: RecordName,
    /// The host that an SRV record names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target: Option<RecordName>,
    /// The server's port.
    #[serde(default = "default_port")]
    #[schemars(range(min = 1))]
    pub port: u16,
    /// Of SRV records: those of a lower one are used first.
    #[serde(default)]
    pub priority: u16,
    /// Of SRV records: the share among those of the same priority.
    #[serde(default = "default_weight")]
    pub weight: u16,
    /// The server's address. Beside an SRV record it is put into the zone as the target's, and stays there. Not given: the
    /// target's address is somebody else's to keep, and probe is given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<IpAddr>,
    /// Where the server is asked for its health, as udp:192.0.2.1:5060. Not given: at its address and port, over TCP for names that begin
    /// with _sip._tcp, else over UDP.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub probe: Option<Listen>,
}

impl WatchedRecord {
    /// Where its server is asked; none where the record says neither an address nor a place.
    #[must_use]
    pub fn probed_at(&self) -> Option<Listen> {
        let is_tcp = self.name.0.starts_with("_sip._tcp.");
        let transport = if is_tcp { Transport::Tcp } else { Transport::Udp };
        self.probe.or_else(|| Some(Listen { transport, address: (self.address?, self.port).into() }))
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
