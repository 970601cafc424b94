//! `[watch]`: records must be in the zone, unique, and have an address to probe.

use std::time::Duration;

use strowger_foundation::Transport;

use super::balancing::validate_probe;
use super::{count, whole_seconds, within};
use crate::config::error::Fault;
use crate::config::{Config, Watch, WatchedRecord};

/// Maximum number of records. Resolvers do not use more under one name.
const MAX_RECORDS: usize = 256;

impl Config {
    pub(super) fn validate_watch(&self) -> Result<(), Fault> {
        let Some(watch) = &self.watch else { return Ok(()) };
        within("watch.ttl", watch.ttl, Duration::from_secs(1))?;
        whole_seconds("watch.ttl", watch.ttl)?;
        within("watch.timeout", watch.timeout, Duration::from_millis(10))?;
        within("watch.refresh", watch.refresh, Duration::from_secs(1))?;
        validate_probe(&watch.probe, &|name| format!("watch.{name}"))?;
        if watch.records.is_empty() {
            let message = "the list is empty; add a [[watch.record]] with name, target and address";
            return Err(Fault::new("watch.record", message));
        }
        count("watch.record", watch.records.len(), MAX_RECORDS)?;
        watch.records.iter().enumerate().try_for_each(|(index, record)| validate_record(watch, index, record))
    }
}

fn validate_record(watch: &Watch, index: usize, record: &WatchedRecord) -> Result<(), Fault> {
    let fault = |key: &str, message: String| Err(Fault::new(format!("watch.record[{index}].{key}"), message));
    if !record.name.is_in(&watch.zone) {
        return fault("name", format!("{} is not in the zone {}; correct one of them", record.name, watch.zone));
    }
    if record.target.is_none() && record.address.is_none() {
        let message = "is missing; give the host of an SRV record, or the address of an address record in address";
        return fault("target", message.to_owned());
    }
    if record.target.is_none() && record.name.0.starts_with('_') {
        return fault(
            "target",
            "is missing, but an SRV record needs it; give its host, such as s1.example.com".to_owned(),
        );
    }
    match record.probed_at() {
        None => fault("address", "is missing; set it, or the probed address in probe".to_owned()),
        Some(place) if place.address.ip().is_unspecified() || place.address.port() == 0 => {
            fault("probe", format!("{place} cannot be probed; give the server's address, such as udp:192.0.2.1:5060"))
        }
        Some(place) if !matches!(place.transport, Transport::Udp | Transport::Tcp) => {
            fault("probe", format!("{place} cannot be probed over that transport; write udp: or tcp:"))
        }
        Some(_) => {
            let same = |other: &&WatchedRecord| {
                (&other.name, &other.target, other.target.as_ref().map(|_| other.port))
                    == (&record.name, &record.target, record.target.as_ref().map(|_| record.port))
                    && (record.target.is_some() || other.address == record.address)
            };
            match watch.records.iter().take(index).find(same) {
                Some(_) => fault("name", "the same server is listed twice under this name; remove one".to_owned()),
                None => Ok(()),
            }
        }
    }
}
