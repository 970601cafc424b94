//! Gateways.

use std::path::PathBuf;

use strowger_administration::{Gateway, GatewayChange, Gateways, NewGateway};
use strowger_control::config::Config;
use strowger_control::config::values::Target;
use strowger_control::protocol::Outage;
use strowger_store::{GatewayEntry, StoreError};

use super::{Database, OperationError};

/// Operations on gateways.
pub(crate) struct GatewayOperations<'a> {
    config: &'a Config,
}

/// A gateway that was added.
pub(crate) struct AddedGateway {
    /// The database that was created for it, if any.
    pub(crate) new_database: Option<PathBuf>,
    /// Why the listeners cannot reach it, if they cannot.
    pub(crate) warning: Option<String>,
}

impl<'a> GatewayOperations<'a> {
    pub(crate) const fn new(config: &'a Config) -> Self {
        Self { config }
    }

    pub(crate) fn add(&self, new: &NewGateway) -> Result<AddedGateway, OperationError> {
        // Parsed like the targets of a route.
        let target = new.uri.parse::<Target>().map_err(|why| OperationError::Invalid { field: "uri", why })?;
        let database = self.database();
        let new_database = database.path_of_new()?;
        let NewGateway { set, uri, priority, weight, capacity, note } = new;
        let gateway = strowger_store::NewGateway {
            uri,
            priority: *priority,
            weight: *weight,
            capacity: *capacity,
            description: note,
            enabled: true,
        };
        database.open_or_make()?.add_gateway(set, &gateway)?;
        let warning = self.config.unreachable(&target).map(|why| why.message_alone());
        Ok(AddedGateway { new_database, warning })
    }

    pub(crate) fn change(&self, set: &str, uri: &str, change: &GatewayChange) -> Result<(), OperationError> {
        let GatewayChange { priority, weight, capacity, note, enabled } = change;
        let change = strowger_store::GatewayChange {
            priority: *priority,
            weight: *weight,
            capacity: *capacity,
            description: note.as_deref(),
            enabled: *enabled,
        };
        Ok(self.database().open()?.change_gateway(set, uri, &change)?)
    }

    pub(crate) fn remove(&self, set: &str, uri: &str) -> Result<(), OperationError> {
        Ok(self.database().open()?.remove_gateway(set, uri)?)
    }

    /// Lists the gateways of a set, or all, with these outages.
    pub(crate) fn list(&self, set: Option<&str>, outages: &[Outage]) -> Result<Gateways, OperationError> {
        let gateways = self.database().open()?.list_gateways(set)?;
        Ok(Gateways { gateways: gateways.into_iter().map(|gateway| shown(gateway, outages)).collect() })
    }

    /// Returns a gateway.
    pub(crate) fn show(&self, set: &str, uri: &str, outages: &[Outage]) -> Result<Gateway, OperationError> {
        let found = self.list(Some(set), outages)?.gateways.into_iter().find(|gateway| gateway.uri == uri);
        found.ok_or_else(|| StoreError::UnknownGateway { set: set.to_owned(), uri: uri.to_owned() }.into())
    }

    const fn database(&self) -> Database<'a> {
        Database { config: self.config, what: ("gateways", "gateway") }
    }
}

fn shown(gateway: GatewayEntry, outages: &[Outage]) -> Gateway {
    let is_it =
        |outage: &&Outage| outage.set.as_ref() == Some(&gateway.set) && outage.uri.as_ref() == Some(&gateway.uri);
    let outage = outages.iter().find(is_it).cloned();
    let GatewayEntry { set, uri, priority, weight, capacity, enabled, description, created_s } = gateway;
    Gateway { set, uri, priority, weight, capacity, enabled, note: description, created_s, outage }
}
