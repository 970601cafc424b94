//! The address of a collector of HEP.

use std::fmt;
use std::str::FromStr;

use strowger_foundation::Transport;
use strowger_message::Host;

/// Address of a collector of HEP, such as `udp:192.0.2.60:9060` or `tcp:homer.example.com:9060`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CollectorAddress {
    /// `udp` or `tcp`.
    pub transport: Transport,
    /// Host and port, as the system's resolver takes them.
    pub place: String,
}

impl FromStr for CollectorAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let fault =
            |what: &str| format!("{text:?} {what}; write udp:HOST:PORT or tcp:HOST:PORT, such as udp:192.0.2.60:9060");
        let (name, place) = text.split_once(':').ok_or_else(|| fault("names no transport"))?;
        let transport = match name {
            "udp" => Transport::Udp,
            "tcp" => Transport::Tcp,
            "tls" => return Err(fault("is not supported: run a collector on this machine that forwards over TLS")),
            _ => return Err(fault("names no transport")),
        };
        let (host, port) = place.rsplit_once(':').ok_or_else(|| fault("has no port"))?;
        if port.parse::<u16>().ok().is_none_or(|port| port == 0) {
            return Err(fault("has no port from 1 to 65535"));
        }
        if Host::parse(host.as_bytes()).is_none() {
            return Err(fault("has no host name or address"));
        }
        Ok(Self { transport, place: place.to_owned() })
    }
}

impl fmt::Display for CollectorAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.transport.as_str().to_ascii_lowercase(), self.place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_faults_are_told() {
        for good in ["udp:192.0.2.60:9060", "tcp:homer.example.com:9060", "udp:[2001:db8::60]:9060"] {
            assert_eq!(good.parse::<CollectorAddress>().map(|address| address.to_string()).as_deref(), Ok(good));
        }
        for (bad, told) in [
            ("192.0.2.60:9060", "names no transport"),
            ("tls:homer.example.com:9061", "forwards over TLS"),
            ("udp:192.0.2.60", "has no port"),
            ("udp:192.0.2.60:0", "has no port from"),
            ("udp:ho mer:9060", "has no host name"),
            ("udp:2001:db8::60:9060", "has no host name"),
        ] {
            let error = bad.parse::<CollectorAddress>().expect_err(bad);
            assert!(error.contains(told), "{bad}: {error}");
        }
    }
}
