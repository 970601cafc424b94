//! Import of gateways from the table `dispatcher`.

use strowger_control::config::values::Target;
use strowger_kamailio::{Member, Table, Tables};
use strowger_store::{
    AnyBackend, GatewayChange, GatewayEntry, NewGateway, OnConflict, PutOutcome, StoreError, UserStore,
};

use super::{Import, Part};
use crate::failure::Failure;

pub(super) fn import(import: &Import, tables: &mut Tables) -> Result<Part, Failure> {
    let sets = tables.sets(&import.from.set_prefix).map_err(|error| Failure::No(error.to_string()))?;
    let (sets, bad) = sets;
    let mut part = Part::new(Table::Dispatcher);
    bad.into_iter().for_each(|row| part.refuse(row));
    let mut store = import.store()?;
    let there = store.list_gateways(None)?;
    for set in sets {
        for member in &set.members {
            let uri = String::from_utf8_lossy(&member.gateway.uri).into_owned();
            let new = NewMember { set: &set.name, uri: &uri, member };
            let put = new.put(import, &mut store, &there)?;
            part.count(&format!("{} {uri}", set.name), put);
            if !member.ignored.is_empty() {
                let ignored = member.ignored.join(", ");
                part.note(format!(
                    "{uri} of {}: {ignored} is ignored; listeners and routes determine the path here",
                    set.name
                ));
            }
        }
    }
    Ok(part)
}

struct NewMember<'m> {
    set: &'m str,
    uri: &'m str,
    member: &'m Member,
}

impl NewMember<'_> {
    fn put(
        &self,
        import: &Import,
        store: &mut UserStore<AnyBackend>,
        there: &[GatewayEntry],
    ) -> Result<PutOutcome, Failure> {
        if let Err(why) = self.uri.parse::<Target>() {
            return Ok(PutOutcome::Refused(why));
        }
        let put = match there.iter().any(|other| other.set == self.set && other.uri == self.uri) {
            true if import.existing() == OnConflict::Keep => return Ok(PutOutcome::Kept),
            true => PutOutcome::Replaced,
            false => PutOutcome::Added,
        };
        if import.from.dry_run {
            return Ok(put);
        }
        let done = if put == PutOutcome::Replaced { self.change(store) } else { self.add(store) };
        match done {
            Ok(()) => Ok(put),
            Err(
                error @ (StoreError::BadSet { .. }
                | StoreError::BadGateway { .. }
                | StoreError::FullSet { .. }
                | StoreError::TooManyGateways),
            ) => Ok(PutOutcome::Refused(error.to_string())),
            Err(error) => Err(error.into()),
        }
    }

    fn add(&self, store: &mut UserStore<AnyBackend>) -> Result<(), StoreError> {
        let Member { gateway, description, .. } = self.member;
        let (priority, weight, capacity, enabled) =
            (gateway.priority, gateway.weight, gateway.capacity, gateway.enabled);
        store.add_gateway(self.set, &NewGateway { uri: self.uri, priority, weight, capacity, description, enabled })
    }

    fn change(&self, store: &mut UserStore<AnyBackend>) -> Result<(), StoreError> {
        let Member { gateway, description, .. } = self.member;
        let change = GatewayChange {
            priority: Some(gateway.priority),
            weight: Some(gateway.weight),
            capacity: Some(gateway.capacity),
            description: Some(description),
            enabled: Some(gateway.enabled),
        };
        store.change_gateway(self.set, self.uri, &change)
    }
}
