//! DNS names of balancers' targets: services, resolved by SRV records, and hosts, resolved by addresses.

use std::fmt;
use std::str::FromStr;

use strowger_foundation::Transport;
use strowger_locate::LocateQuery;
use strowger_message::Host;

use crate::config::values::prefix::HOST;

/// A host whose addresses (A, AAAA) are all targets, written as `dns:HOST`, `dns:HOST:PORT` or
/// `dns:HOST:PORT;transport=tcp`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostName {
    question: LocateQuery,
    text: String,
}

impl HostName {
    /// Returns the host, port and transport as a query.
    #[must_use]
    pub const fn question(&self) -> &LocateQuery {
        &self.question
    }
}

impl FromStr for HostName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault = |what: &str| {
            format!("{text:?} {what}; write dns:HOST or dns:HOST:PORT, such as dns:sip.default.svc.cluster.local:5060")
        };
        let written = text.strip_prefix(HOST).unwrap_or_default().to_ascii_lowercase();
        let (place, transport) = match written.split_once(';') {
            None => (&*written, Transport::Udp),
            Some((place, "transport=udp")) => (place, Transport::Udp),
            Some((place, "transport=tcp")) => (place, Transport::Tcp),
            Some((place, "transport=tls")) => (place, Transport::Tls),
            Some(_) => return Err(fault("has a parameter that is not supported, only transport=udp, tcp and tls are")),
        };
        let (host, port) = match place.rsplit_once(':').filter(|(host, _)| !host.ends_with(':')) {
            None => (place, None),
            Some((host, port)) => {
                let port = port.parse().ok().filter(|port: &u16| *port > 0);
                (host, Some(port.ok_or_else(|| fault("has no port from 1 to 65535"))?))
            }
        };
        let host = host.strip_suffix('.').unwrap_or(host);
        match Host::parse(host.as_bytes()) {
            Some(Host::Name(name)) => {
                let question = LocateQuery::new(name, port, Some(transport), false);
                if !question.is_valid_name() {
                    return Err(fault("is longer than any name"));
                }
                let shown_port = port.map_or_else(String::new, |port| format!(":{port}"));
                let shown_transport = match transport {
                    Transport::Udp => String::new(),
                    other => format!(";transport={}", other.as_str().to_ascii_lowercase()),
                };
                Ok(Self { question, text: format!("{host}{shown_port}{shown_transport}") })
            }
            Some(Host::Ip(_)) => Err(fault("is an address, which is written as sip:ADDRESS")),
            None => Err(fault("is not a DNS name")),
        }
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{HOST}{}", self.text)
    }
}
