//! Log lines about those who try passwords, users or servers, for fail2ban and for people. Their form is documented in
//! docs/operating/security.md and does not change.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use strowger_ban::{FailureOutcome, LineLimits};
use strowger_foundation::Transport;
use strowger_message::lossy;
use strowger_net::Clock;
use strowger_shard::Event;

use crate::ban_keeper::{self, BanKeeper};
use crate::failures::FailedLogIn;

/// Writes the lines and counts failures towards bans.
pub(crate) struct SecurityLog {
    bans: Arc<BanKeeper>,
    limits: Mutex<LineLimits>,
    clock: Clock,
}

/// Where something came from.
#[derive(Clone, Copy)]
struct Source {
    ip: IpAddr,
    port: u16,
    transport: &'static str,
    /// Whether the address cannot be forged.
    is_proven: bool,
}

impl Source {
    fn new(peer: SocketAddr, transport: Transport, is_proven: bool) -> Self {
        let transport = match transport {
            Transport::Udp => "udp",
            Transport::Tcp => "tcp",
            Transport::Tls => "tls",
            Transport::Ws => "ws",
            Transport::Wss => "wss",
        };
        Self { ip: peer.ip().to_canonical(), port: peer.port(), transport, is_proven }
    }
}

/// Writes a line at a level. The order of the fields is part of the documented form.
macro_rules! line {
    ($level:ident, $event:expr, $source:expr, $exempt:expr, $($field:tt)*) => {
        tracing::$level!(
            event = $event,
            address = %$source.ip,
            port = $source.port,
            transport = %$source.transport,
            proven = $source.is_proven,
            exempt = $exempt,
            $($field)*,
            "security"
        )
    };
}

impl SecurityLog {
    /// Creates a log; `seed` is random.
    pub(crate) fn new(bans: Arc<BanKeeper>, seed: u64, clock: Clock) -> Self {
        Self { bans, limits: Mutex::new(LineLimits::new(seed)), clock }
    }

    /// Handles an event if it is about security; returns whether it is.
    pub(crate) fn handle(&self, event: &Event) -> bool {
        match event {
            Event::WrongCredentials { peer, transport, identity, user, is_known_user, is_proven } => {
                let source = Source::new(*peer, *transport, *is_proven);
                let user = lossy(user.as_ref().unwrap_or(identity).as_bytes());
                if let Some(exempt) = self.begin(source) {
                    let event = if *is_known_user { "wrong-password" } else { "unknown-user" };
                    line!(warn, event, source, exempt, user);
                    self.note(event, source, exempt, Some(user));
                }
                self.count(source);
            }
            Event::Scanner { peer, transport, agent } => {
                let source = Source::new(*peer, *transport, transport.is_reliable());
                if let Some(exempt) = self.begin(source) {
                    let agent = lossy(agent.as_bytes());
                    line!(warn, "scanner", source, exempt, agent);
                    self.note("scanner", source, exempt, Some(agent));
                }
                self.count(source);
            }
            Event::Malformed { peer, transport, fault } => {
                let source = Source::new(*peer, *transport, transport.is_reliable());
                if let Some(exempt) = self.begin(source) {
                    line!(info, "malformed", source, exempt, reason = fault.to_string());
                }
            }
            Event::HandshakeFailed { peer, transport, reason } => {
                let source = Source::new(*peer, *transport, true);
                if let Some(exempt) = self.begin(source) {
                    line!(info, "tls-handshake", source, exempt, reason);
                }
            }
            _ => return false,
        }
        true
    }

    /// Reports a request to the administration interface with a wrong token.
    pub(crate) fn wrong_token(&self, peer: SocketAddr) {
        let source = Source { transport: "http", ..Source::new(peer, Transport::Tcp, true) };
        // Behind it may be a reverse proxy with all of its clients.
        let is_local = [IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST)].contains(&source.ip);
        if let Some(exempt) = self.begin(source) {
            line!(warn, "admin-token", source, exempt || is_local, reason = "unknown or expired token");
            self.note("admin-token", source, exempt || is_local, None);
        }
        if !is_local {
            self.count(source);
        }
    }

    /// Remembers a failure of which a line is logged.
    fn note(&self, event: &'static str, source: Source, is_exempt: bool, user: Option<String>) {
        let Source { ip, transport, is_proven, .. } = source;
        self.bans.note_failure(FailedLogIn { event, ip, transport, user, is_proven, is_exempt });
    }

    /// Returns whether a source is exempt from bans, if a line about it may be logged.
    fn begin(&self, source: Source) -> Option<bool> {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        limits.admits(self.clock.now(), source.ip).then(|| self.bans.is_exempt(source.ip))
    }

    /// Counts a failure towards a ban, if the source is proven.
    fn count(&self, source: Source) {
        if !source.is_proven {
            return;
        }
        match self.bans.handle_failure(source.ip) {
            FailureOutcome::Banned(ban) => {
                let seconds = ban.until.map_or(0, |until| until.saturating_since(ban.since).as_secs());
                let (address, number) = (ban_keeper::network(&ban), ban.number);
                tracing::warn!(event = "banned", %address, seconds, number, "security");
            }
            FailureOutcome::Spared => {
                let address = source.ip;
                tracing::warn!(
                    %address,
                    "too many failed authentications, but the address is not banned, because it also belongs to somebody known; correct the phone with the wrong password"
                );
            }
            FailureOutcome::Full => {
                tracing::error!("an address is not banned, because too many are; filter whole networks in a firewall");
            }
            FailureOutcome::Counted => {}
        }
    }

    /// Returns when suppressed lines are to be reported.
    pub(crate) fn report_due(&self) -> Option<Instant> {
        let due = self.limits.lock().unwrap_or_else(PoisonError::into_inner).report_due()?;
        Some(Instant::now() + due.saturating_since(self.clock.now()))
    }

    /// Reports suppressed lines if it is time, or `at_once`.
    pub(crate) fn report_suppressed(&self, at_once: bool) {
        let mut limits = self.limits.lock().unwrap_or_else(PoisonError::into_inner);
        let is_due = limits.report_due().is_some_and(|due| at_once || due <= self.clock.now());
        let count = if is_due { limits.take_suppressed() } else { 0 };
        drop(limits);
        if count > 0 {
            tracing::warn!(kind = "security", count, "similar lines were suppressed");
        }
    }
}
