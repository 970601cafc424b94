//! The address of a media engine.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Address of a media engine for commands, such as `udp:192.0.2.50:2223`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EngineAddress(pub SocketAddr);

impl FromStr for EngineAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let Some(address) = text.strip_prefix("udp:") else {
            return Err(format!("{text:?} is not an engine; write udp:ADDRESS:PORT, such as udp:192.0.2.50:2223"));
        };
        let parsed: Option<SocketAddr> = address.parse().ok();
        let Some(address) = parsed.filter(|address| address.port() != 0 && !address.ip().is_unspecified()) else {
            return Err(format!(
                "{address:?} is not a literal address with a port; write the one of listen-ng in rtpengine.conf, such as udp:192.0.2.50:2223"
            ));
        };
        Ok(Self(address))
    }
}

impl fmt::Display for EngineAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "udp:{}", self.0)
    }
}
