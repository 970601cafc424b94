//! `[admin]`

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_auth::Network;

use super::error::Fault;
use super::streams::Certificate;
use super::values::{AdminListen, Domain, Source};

/// Address of the HTTP listener if none is configured.
const DEFAULT_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8060);

/// `[admin]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Admin {
    /// Address and port of the HTTP listener with the page, the API and the metrics; off: none. Other machines than this
    /// one need `admin.tls`. Default: 127.0.0.1:8060, if that is free.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub listen: Option<AdminListen>,
    /// Certificate of the listener, which then speaks HTTPS only.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls: Option<Certificate>,
    /// Names by which browsers and programs reach the listener, besides its addresses, localhost, this machine's name
    /// and `server.domains`. Requests under other names are refused.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub hosts: Vec<Domain>,
    /// Whether the listener has metrics only: no page and no API.
    pub metrics_only: bool,
    /// Addresses and networks that may read the metrics, without a token.
    pub metrics_from: Vec<Source>,
}

impl Default for Admin {
    fn default() -> Self {
        let loopback = [
            Network { address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 0)), prefix: 8 },
            Network { address: IpAddr::V6(Ipv6Addr::LOCALHOST), prefix: 128 },
        ];
        Self {
            listen: None,
            tls: None,
            hosts: Vec::new(),
            metrics_only: false,
            metrics_from: loopback.map(Source).to_vec(),
        }
    }
}

impl Admin {
    /// Returns the address of the listener; `None` if it is off.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        match self.listen {
            None => Some(DEFAULT_LISTEN),
            Some(AdminListen::Off) => None,
            Some(AdminListen::At(address)) => Some(address),
        }
    }

    /// Whether the server has to refuse to start if the address is taken. Several servers of a machine may have the
    /// default address.
    #[must_use]
    pub const fn is_required(&self) -> bool {
        self.listen.is_some()
    }

    /// Whether a client at `ip` may read the metrics.
    #[must_use]
    pub fn may_read_metrics(&self, ip: IpAddr) -> bool {
        // A listener at [::] sees IPv4 clients as mapped addresses.
        self.metrics_from.iter().any(|Source(network)| network.contains(ip.to_canonical()))
    }

    /// Checks that tokens never leave this machine unencrypted.
    pub(super) fn validate(&self) -> Result<(), Fault> {
        let Some(address) = self.address() else { return Ok(()) };
        if address.ip().to_canonical().is_loopback() || self.tls.is_some() || self.metrics_only {
            return Ok(());
        }
        let message = format!(
            "other machines reach {address}, and tokens would pass the network unencrypted; give a certificate in \
             [admin.tls] (certificate and key), or listen on 127.0.0.1:{}, or set metrics_only = true",
            address.port()
        );
        Err(Fault::new("admin.listen", message))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;

    #[test]
    fn only_this_machine_may_read_by_default() {
        let admin = Admin::default();
        let may = |ip: &str| admin.may_read_metrics(ip.parse().expect("an address"));
        assert!(may("127.0.0.1") && may("127.1.2.3") && may("::1") && may("::ffff:127.0.0.1"));
        assert!(!may("192.0.2.1") && !may("2001:db8::1") && !may("::ffff:192.0.2.1"));
        assert!(admin.address().is_some_and(|address| address.ip().is_loopback()) && !admin.is_required());
    }

    #[test]
    fn other_machines_need_tls() {
        let parsed = |text: &str| Config::parse(&format!("[admin]\n{text}")).map(|config| config.admin.address());
        let tls = "\ntls = { certificate = \"admin.pem\", key = \"admin.key\" }";
        for local in ["127.0.0.1:8060", "127.0.0.2:0", "[::1]:8060", "[::ffff:127.0.0.1]:8060"] {
            assert!(parsed(&format!("listen = \"{local}\"")).is_ok(), "{local}");
        }
        for reachable in ["0.0.0.0:8060", "192.0.2.1:8060", "[::]:8060", "[2001:db8::1]:8060"] {
            let listen = format!("listen = \"{reachable}\"");
            let error = parsed(&listen).expect_err(reachable).to_string();
            assert!(error.contains("admin.listen") && error.contains("[admin.tls]"), "{error}");
            assert!(error.contains("metrics_only = true") && error.contains("127.0.0.1:8060"), "{error}");
            assert!(parsed(&format!("{listen}{tls}")).is_ok(), "{reachable}");
            assert!(parsed(&format!("{listen}\nmetrics_only = true")).is_ok(), "{reachable}");
        }
        assert_eq!(parsed("listen = \"off\"").ok(), Some(None));
        let error = parsed("listen = \"8060\"").expect_err("no address").to_string();
        assert!(error.contains("127.0.0.1:8060"), "{error}");
    }
}
