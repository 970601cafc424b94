//! What a program needs that opens connections like many clients: a load generator.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rustls::client::danger::{ServerCertVerified, ServerCertVerifier};
use rustls::client::{ClientSessionStore, Resumption, Tls12ClientSessionValue, Tls13ClientSessionValue};
use rustls::crypto::WebPkiSupportedAlgorithms;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{Error, NamedGroup};

use super::signatures::verify_signatures;

/// Number of servers whose sessions are kept for resumption of outgoing connections.
const RESUMED_SERVERS: usize = 256;

/// Maximum number of tickets kept for each server if there are many clients.
const TICKETS_OF_CLIENTS: usize = 65_536;

/// How connections that we open continue earlier sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResumptionOfClients {
    /// As one client: eight tickets of each server are kept.
    #[default]
    One,
    /// As many clients: all tickets are kept, up to 65,536 of each server, so that any number of connections at once
    /// may continue sessions.
    Many,
    /// Never: each handshake is a full one.
    Off,
}

impl ResumptionOfClients {
    pub(super) fn store(self) -> Resumption {
        match self {
            Self::One => Resumption::in_memory_sessions(RESUMED_SERVERS),
            Self::Many => Resumption::store(Arc::new(ManyClients::default())),
            Self::Off => Resumption::disabled(),
        }
    }
}

/// Sessions of many clients. Under TLS 1.3 each ticket is used once; under TLS 1.2 all continue the last session.
#[derive(Debug, Default)]
struct ManyClients(Mutex<HashMap<ServerName<'static>, Sessions>>);

#[derive(Debug, Default)]
struct Sessions {
    group: Option<NamedGroup>,
    tls12: Option<Tls12ClientSessionValue>,
    tickets: Vec<Tls13ClientSessionValue>,
}

impl ManyClients {
    fn all(&self) -> MutexGuard<'_, HashMap<ServerName<'static>, Sessions>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ClientSessionStore for ManyClients {
    fn set_kx_hint(&self, server: ServerName<'static>, group: NamedGroup) {
        self.all().entry(server).or_default().group = Some(group);
    }

    fn kx_hint(&self, server: &ServerName<'_>) -> Option<NamedGroup> {
        self.all().get(&server.to_owned())?.group
    }

    fn set_tls12_session(&self, server: ServerName<'static>, session: Tls12ClientSessionValue) {
        self.all().entry(server).or_default().tls12 = Some(session);
    }

    fn tls12_session(&self, server: &ServerName<'_>) -> Option<Tls12ClientSessionValue> {
        self.all().get(&server.to_owned())?.tls12.clone()
    }

    fn remove_tls12_session(&self, server: &ServerName<'_>) {
        if let Some(sessions) = self.all().get_mut(&server.to_owned()) {
            sessions.tls12 = None;
        }
    }

    fn insert_tls13_ticket(&self, server: ServerName<'static>, ticket: Tls13ClientSessionValue) {
        let mut all = self.all();
        let tickets = &mut all.entry(server).or_default().tickets;
        if tickets.len() < TICKETS_OF_CLIENTS {
            tickets.push(ticket);
        }
    }

    fn take_tls13_ticket(&self, server: &ServerName<'_>) -> Option<Tls13ClientSessionValue> {
        self.all().get_mut(&server.to_owned())?.tickets.pop()
    }
}

/// Accepts every certificate whose key the server has.
#[derive(Debug)]
pub(super) struct AnyServer(pub(super) WebPkiSupportedAlgorithms);

impl ServerCertVerifier for AnyServer {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        Ok(ServerCertVerified::assertion())
    }

    verify_signatures!(|verifier| verifier.0);
}
