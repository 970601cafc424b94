//! `admin.listen`

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// Where the HTTP listener is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminListen {
    /// Nowhere.
    Off,
    /// At an address and port.
    At(SocketAddr),
}

impl FromStr for AdminListen {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            address => address.parse().map(Self::At).map_err(|_| {
                format!("{text:?} is not a literal address with a port; write one, such as 127.0.0.1:8060, or off")
            }),
        }
    }
}

impl fmt::Display for AdminListen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("off"),
            Self::At(address) => address.fmt(f),
        }
    }
}
