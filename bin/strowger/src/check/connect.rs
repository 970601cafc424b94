//! `strowger check --connect`: tests the engine and databases in the configuration.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::time::Duration;

use serde_json::{Value, json};
use strowger_control::config::Config;
use strowger_sql::{Database, DatabaseUrl};
use strowger_store::UserStore;

use crate::cluster;

/// Number of commands sent to a media engine; datagrams may be lost.
const PINGS: u32 = 3;

/// An engine, a database, or a group of alternative servers.
pub(super) struct ConnectionCheck {
    /// Configuration key.
    key: &'static str,
    urls: Vec<String>,
    /// Reason why it cannot be used.
    why: Option<String>,
}

impl ConnectionCheck {
    /// Tries each one in the configuration. Blocks until a timeout if one does not answer.
    pub(super) fn all(config: &Config) -> Vec<Self> {
        let (users, calls) = (config.shared_users(), config.calls_databases());
        let engine = config.cluster.as_ref().and_then(|cluster| {
            let urls = cluster.store.0.iter().map(ToString::to_string).collect();
            let why = cluster::try_engine(cluster)?.err().map(|error| error.to_string());
            Some(Self { key: "cluster.store", urls, why })
        });
        let of_users =
            (!users.is_empty()).then(|| UserStore::connect(&users).map(drop).map_err(|error| error.to_string()));
        let of_calls = (!calls.is_empty()).then(|| {
            Database::connect_to_writable(&calls, Database::TIMEOUT).map(drop).map_err(|error| error.to_string())
        });
        let of_kamailio = config.kamailio.as_ref().map(|kamailio| {
            let tried = Database::connect(&kamailio.database.0, Database::TIMEOUT).map(drop);
            Self::new(
                "kamailio.database",
                std::slice::from_ref(&kamailio.database.0),
                tried.map_err(|error| error.to_string()),
            )
        });
        let databases = [
            of_users.map(|tried| Self::new("store.shared_users", &users, tried)),
            of_calls.map(|tried| Self::new("cdr.database", &calls, tried)),
            of_kamailio,
        ];
        let engines = config.media.engines.iter().map(|engine| {
            let why = ping(engine.0, config.media.timeout.0).err().map(|error| error.to_string());
            Self { key: "media.engines", urls: vec![format!("udp:{}", engine.0)], why }
        });
        engine.into_iter().chain(databases.into_iter().flatten()).chain(engines).collect()
    }

    fn new(key: &'static str, urls: &[DatabaseUrl], tried: Result<(), String>) -> Self {
        Self { key, urls: urls.iter().map(ToString::to_string).collect(), why: tried.err() }
    }

    pub(super) const fn is_usable(&self) -> bool {
        self.why.is_none()
    }

    pub(super) fn line(&self) -> String {
        let urls = self.urls.join(", ");
        match &self.why {
            None => format!("{}: {urls} is usable", self.key),
            Some(why) => format!("{}: {urls} is NOT USABLE: {why}", self.key),
        }
    }

    pub(super) fn to_json(&self) -> Value {
        json!({ "key": self.key, "urls": self.urls, "usable": self.is_usable(), "why": self.why })
    }
}

/// Asks a media engine whether it is there, by the control protocol of rtpengine.
fn ping(engine: SocketAddr, timeout: Duration) -> io::Result<()> {
    let any: IpAddr = if engine.is_ipv4() { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() };
    let socket = UdpSocket::bind((any, 0))?;
    socket.connect(engine)?;
    socket.set_read_timeout(Some(timeout.max(Duration::from_millis(1))))?;
    let mut last =
        io::Error::other("it does not answer; check that rtpengine runs there, and the path to its listen-ng");
    for number in 0..PINGS {
        let cookie = format!("check{}-{number}", std::process::id());
        let mut answer = [0; 1500];
        let sent = socket.send(format!("{cookie} d7:command4:pinge").as_bytes());
        match sent.and_then(|_| socket.recv(&mut answer)) {
            Ok(length) if answer.get(..length) == Some(format!("{cookie} d6:result4:ponge").as_bytes()) => {
                return Ok(());
            }
            Ok(_) => {
                last = io::Error::other("it answers, but not as a media engine; name the address of its listen-ng");
            }
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => last = error,
        }
    }
    Err(last)
}
