//! Addresses of record as typed by an operator.

use std::net::IpAddr;

use strowger_control::config::Config;
use strowger_net::local_addresses;
use strowger_store::{Address, StoreError};

/// Returns the address meant by `typed`. A bare name gets the first domain; a listening address of this machine
/// stands for that domain too, as in the server.
pub(crate) fn typed(config: &Config, typed: &str) -> Result<Address, StoreError> {
    Address::parse(&full(config, typed))
}

fn full(config: &Config, typed: &str) -> String {
    let domains = &config.server.domains;
    let Some(first) = domains.first() else { return typed.to_owned() };
    let Some((user, domain)) = typed.rsplit_once('@') else { return format!("{typed}@{first}") };
    let named = domains.iter().any(|own| own.0.eq_ignore_ascii_case(domain));
    let Ok(ip) = domain.trim_matches(['[', ']']).parse::<IpAddr>() else { return typed.to_owned() };
    let local = local_addresses().unwrap_or_default();
    let ours = config.addresses(&local).iter().any(|(_, address)| address.ip() == ip);
    if ours && !named { format!("{user}@{first}") } else { typed.to_owned() }
}
