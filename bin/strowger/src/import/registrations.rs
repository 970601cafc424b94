//! Import of registrations from the table `location`, written as if the phones had registered here.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use strowger_control::config::Config;
use strowger_foundation::{Flow, ListenerId, Timestamp, Transport};
use strowger_kamailio::{BadRow, Registration, Table, Tables};
use strowger_message::{NameAddr, SipUri, Uri, split_list};
use strowger_net::local_addresses;
use strowger_persistence::{BackupError, OfflineStore};
use strowger_registrar::{
    ContactUpdate, Durability, Locations, Nat, OptionTags, Policy, Record, Source, Update, UpdateKind,
};
use strowger_store::{AnyBackend, PutOutcome, UserStore};

use super::{Import, Part};
use crate::backup::Progress;
use crate::failure::Failure;
use crate::{cluster, key, serve};

/// Placeholder for an address that nothing is sent to.
const NOWHERE: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

pub(super) fn import(import: &Import, tables: &mut Tables) -> Result<Part, Failure> {
    let of = tables.count(Table::Location).map_err(|error| Failure::No(error.to_string()))?;
    let offline = if import.from.dry_run { None } else { Some(open(import)?) };
    let table = ImportTable::new(&import.config, offline.as_ref())?;
    // A server that requires passwords removes registrations without a user at its start.
    let needs_user = import.config.auth.require.iter().any(|method| method.0 == "REGISTER");
    let users = if needs_user && !import.from.dry_run { Some(import.store()?) } else { None };
    let mut registrations = Registrations { import, offline, users, table, part: Part::new(Table::Location) };
    let mut progress = Progress::new("reading registrations");
    let (mut done, mut outcome) = (0, Ok(()));
    let read = tables.for_each_registration(&import.identity, &mut |row| {
        done += 1;
        progress.show(done, of.max(done));
        if outcome.is_ok() {
            outcome = registrations.take(row);
        }
    });
    outcome?;
    read.map_err(|error| Failure::No(error.to_string()))?;
    drop(progress);
    let Registrations { offline, table, mut part, .. } = registrations;
    match offline {
        Some(mut offline) => drop(offline.write(&table.locations)?),
        None => {
            part.note("existing registrations and users of this server were not checked".to_owned());
        }
    }
    Ok(part)
}

/// Opens and locks the server's storage, so that no server starts meanwhile.
fn open(import: &Import) -> Result<OfflineStore, Failure> {
    let opened = OfflineStore::open(&import.config.journal_folder(), &import.path()?);
    opened.map_err(|error| match error {
        BackupError::Running { path } => Failure::No(format!(
            "{} is in use by a running server; stop it, or omit registrations with --only users,gateways",
            path.display()
        )),
        other => other.into(),
    })
}

struct Registrations<'i> {
    import: &'i Import,
    offline: Option<OfflineStore>,
    /// Users database, if each address must be a user.
    users: Option<UserStore<AnyBackend>>,
    table: ImportTable,
    part: Part,
}

impl Registrations<'_> {
    fn take(&mut self, row: Result<Registration, BadRow>) -> Result<(), Failure> {
        let registration = match row {
            Ok(registration) => registration,
            Err(bad) => {
                self.part.refuse(bad);
                return Ok(());
            }
        };
        let Ok(left_s @ 1..) = u32::try_from(registration.expires_in_s) else {
            self.part.count_expired();
            return Ok(());
        };
        let put = self.put(&registration, left_s)?;
        self.part.count(&format!("{} {}", registration.address, registration.contact), put);
        Ok(())
    }

    fn put(&mut self, registration: &Registration, left_s: u32) -> Result<PutOutcome, Failure> {
        let domain = registration.address.domain();
        if !self.import.is_served(domain) {
            return Ok(PutOutcome::Refused(format!("{domain} is not in server.domains")));
        }
        if let Some(users) = &mut self.users
            && !users.has_user(&registration.address)?
        {
            return Ok(PutOutcome::Refused("there is no such user here; import users as well".to_owned()));
        }
        let aor = registration.address.as_str().as_bytes();
        let is_bound = self.offline.as_ref().map_or(Ok(false), |offline| offline.is_bound(aor))?;
        if is_bound && !self.import.from.replace {
            return Ok(PutOutcome::Kept);
        }
        Ok(match self.table.bind(registration, left_s) {
            Ok(()) if is_bound => PutOutcome::Replaced,
            Ok(()) => PutOutcome::Added,
            Err(why) => PutOutcome::Refused(why),
        })
    }
}

/// A location table like the server's, with only the imported registrations.
struct ImportTable {
    locations: Locations,
    listeners: Vec<(Transport, SocketAddr)>,
    policy: Policy,
    record: Vec<u8>,
}

impl ImportTable {
    fn new(config: &Config, offline: Option<&OfflineStore>) -> Result<Self, Failure> {
        let local = local_addresses().map_err(|error| Failure::No(format!("no addresses of this machine: {error}")))?;
        let listeners = config.addresses(&local);
        // For a dry run, any key will do.
        let key = if offline.is_some() { key::of_server(config, serve::fresh_key()?)? } else { [0; 16] };
        let locations = cluster::share(serve::empty_table(listeners.iter().copied(), 1, &key)?, config);
        if let Some(offline) = offline {
            offline.begin(&locations);
        }
        let policy = Policy {
            expires_min: Duration::ZERO,
            expires_max: Duration::from_secs(u32::MAX.into()),
            max_contacts: usize::MAX,
            durability: Durability::WriteThrough,
            ..Policy::default()
        };
        Ok(Self { locations, listeners, policy, record: Vec::new() })
    }

    /// Registers the contact for `left_s` seconds, like its REGISTER.
    fn bind(&mut self, registration: &Registration, left_s: u32) -> Result<(), String> {
        let contact = Uri::parse(registration.contact.as_bytes()).ok_or("its contact is not a URI")?;
        let path = path_of(registration)?;
        let way = self.contact_flow(registration, &contact, path.is_empty())?;
        let update = Update {
            call_id: registration.call_id.as_bytes(),
            cseq: registration.cseq,
            is_first_hop: path.is_empty(),
            path: path.into_iter().collect(),
            supported: OptionTags::default(),
            kind: UpdateKind::Contacts(
                [ContactUpdate {
                    uri: contact,
                    expires_s: Some(left_s),
                    q: registration.q,
                    instance: registration.instance.as_bytes(),
                    reg_id: registration.reg_id.filter(|_| way.flow.peer != NOWHERE),
                }]
                .into_iter()
                .collect(),
            ),
        };
        self.policy.nat = way.nat;
        let source = Source { flow: way.flow, via_sent_by_matches: true };
        let aor = registration.address.as_str().as_bytes();
        self.record.clear();
        let Self { locations, policy, record, .. } = self;
        let staged = locations.stage(Timestamp::ZERO, aor, policy, &source, &update, record);
        staged.map_err(|refusal| format!("it cannot be registered here: {refusal}"))?;
        if let Ok(staged) = Record::parse(record) {
            locations.put(Timestamp::ZERO, &staged, None);
        }
        Ok(())
    }

    /// Returns how the contact is reached.
    fn contact_flow(
        &self,
        registration: &Registration,
        contact: &Uri<'_>,
        is_first_hop: bool,
    ) -> Result<ContactFlow, String> {
        let socket = registration.socket.as_deref().and_then(listener_of);
        let received = registration.received.as_deref().filter(|_| is_first_hop).map(|uri| {
            Uri::parse(uri.as_bytes()).and_then(|uri| uri.sip().copied()).ok_or("its received address is not a URI")
        });
        let received = received.transpose()?;
        let place = received.or(contact.sip().copied());
        let named = place.and_then(|uri| uri.params.value("transport")).map(Transport::from_token);
        let transport = match (named, socket) {
            (Some(transport), _) => transport,
            (None, Some((transport, _))) => Some(transport),
            (None, None) => Some(Transport::Udp),
        };
        let transport = transport.filter(|transport| matches!(transport, Transport::Udp | Transport::Tcp));
        let transport = transport.ok_or("its transport is not supported; only UDP and TCP are")?;
        if transport == Transport::Tcp && received.is_some() {
            return Err(
                "it can be reached only over its connection to the other server; it becomes reachable when it registers again".to_owned()
            );
        }
        let listener = self.listener(transport, socket).ok_or_else(|| format!("no listener uses {transport}"))?;
        let peer = place.and_then(|uri| literal(&uri, transport)).unwrap_or(NOWHERE);
        if received.is_some() && peer == NOWHERE {
            return Err("its received address is not an IP address".to_owned());
        }
        let nat = if received.is_some() { Nat::Always } else { Nat::Never };
        Ok(ContactFlow { flow: Flow::new(listener, transport, peer), nat })
    }

    /// Returns the listener that corresponds to the other server's: with the same address, or else with the same
    /// transport, preferably of the same address family.
    fn listener(&self, transport: Transport, socket: Option<(Transport, SocketAddr)>) -> Option<ListenerId> {
        let of = |fits: &dyn Fn(SocketAddr) -> bool| {
            self.listeners.iter().position(|(own, address)| *own == transport && fits(*address))
        };
        let same = socket.and_then(|(_, socket)| of(&|own| own == socket));
        let family = socket.and_then(|(_, socket)| of(&|own| own.is_ipv4() == socket.is_ipv4()));
        let index = same.or(family).or_else(|| of(&|_| true))?;
        u16::try_from(index).ok().map(ListenerId)
    }
}

struct ContactFlow {
    flow: Flow,
    nat: Nat,
}

/// Returns the values of its Path, each in angle brackets.
fn path_of(registration: &Registration) -> Result<Vec<&[u8]>, String> {
    let Some(path) = &registration.path else { return Ok(Vec::new()) };
    let values: Vec<&[u8]> = split_list(path.as_bytes()).collect();
    let is_proxy = |value: &&[u8]| {
        value.starts_with(b"<")
            && NameAddr::parse(value).and_then(|value| value.parse_uri()).is_some_and(|uri| uri.sip().is_some())
    };
    if values.iter().all(is_proxy) {
        Ok(values)
    } else {
        Err("its path contains an entry that is not a proxy URI".to_owned())
    }
}

/// Parses a listener as written by the other server: `udp:192.0.2.1:5060`.
fn listener_of(text: &str) -> Option<(Transport, SocketAddr)> {
    let (transport, address) = text.split_once(':')?;
    Some((Transport::from_token(transport.as_bytes())?, address.parse().ok()?))
}

fn literal(uri: &SipUri<'_>, transport: Transport) -> Option<SocketAddr> {
    Some(SocketAddr::new(uri.host().ip()?, uri.port().unwrap_or(transport.default_port())))
}
