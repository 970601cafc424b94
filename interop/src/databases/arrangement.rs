//! Arrangements of engines through which members share registrations.

use std::fmt;
use std::str::FromStr;

use tempfile::TempDir;

use crate::machine::Lan;
use crate::{Program, free_port};

use super::galera::Galera;
use super::mariadb::{self, Circle};
use super::node::Node;
use super::postgres::{self, Pair};
use super::redis::{self, Cluster, Sentinels};

/// Replication setup of the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrangement {
    /// One Redis without persistence.
    Redis,
    /// A Redis master, its replica, and three sentinels.
    RedisSentinel,
    /// A Redis Cluster of three masters and three replicas.
    RedisCluster,
    /// One PostgreSQL.
    Postgres,
    /// A PostgreSQL primary with an asynchronous standby.
    PostgresStandby,
    /// A PostgreSQL primary whose commits wait for its standby.
    PostgresSynchronous,
    /// One MariaDB with `innodb_flush_log_at_trx_commit = 0`, which loses its last second if it is killed.
    MariaDb,
    /// Two MariaDBs that replicate each other.
    MariaDbTwoWay,
    /// Three MariaDBs that replicate in a circle.
    MariaDbCircle,
    /// Three MariaDBs with Galera.
    MariaDbGalera,
}

impl Arrangement {
    /// All arrangements.
    pub const ALL: [Arrangement; 10] = [
        Arrangement::Redis,
        Arrangement::RedisSentinel,
        Arrangement::RedisCluster,
        Arrangement::Postgres,
        Arrangement::PostgresStandby,
        Arrangement::PostgresSynchronous,
        Arrangement::MariaDb,
        Arrangement::MariaDbTwoWay,
        Arrangement::MariaDbCircle,
        Arrangement::MariaDbGalera,
    ];

    /// Returns whether its programs are installed. If not, prints that the test is skipped.
    ///
    /// # Panics
    /// As [`Program::available`].
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Self::Redis | Self::RedisSentinel | Self::RedisCluster => Program::Redis.available(),
            Self::Postgres | Self::PostgresStandby | Self::PostgresSynchronous => Program::Postgres.available(),
            Self::MariaDb | Self::MariaDbTwoWay | Self::MariaDbCircle => Program::MariaDb.available(),
            Self::MariaDbGalera => Program::MariaDb.available() && Program::Galera.available(),
        }
    }

    /// Returns the number of machines that its servers need.
    #[must_use]
    pub const fn machines(self) -> u8 {
        match self {
            Self::Redis | Self::Postgres | Self::MariaDb => 1,
            Self::PostgresStandby | Self::PostgresSynchronous | Self::MariaDbTwoWay => 2,
            Self::RedisSentinel | Self::MariaDbCircle | Self::MariaDbGalera => 3,
            Self::RedisCluster => 6,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Redis => "redis",
            Self::RedisSentinel => "redis-sentinel",
            Self::RedisCluster => "redis-cluster",
            Self::Postgres => "postgres",
            Self::PostgresStandby => "postgres-standby",
            Self::PostgresSynchronous => "postgres-synchronous",
            Self::MariaDb => "mariadb",
            Self::MariaDbTwoWay => "mariadb-two-way",
            Self::MariaDbCircle => "mariadb-circle",
            Self::MariaDbGalera => "mariadb-galera",
        }
    }
}

impl fmt::Display for Arrangement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Arrangement {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let names = || Self::ALL.map(Self::name).join(", ");
        Self::ALL
            .into_iter()
            .find(|one| one.name() == text)
            .ok_or_else(|| format!("unknown arrangement {text}; the known ones are {}", names()))
    }
}

/// The servers of an arrangement.
#[derive(Debug)]
enum Servers {
    /// A single server and its URL.
    One([Node; 1], String),
    Sentinels(Box<Sentinels>),
    Cluster(Cluster),
    Pair(Pair),
    Circle(Circle),
    Galera(Galera),
}

/// Running engines, on the first machines of a network.
#[derive(Debug)]
pub struct Engines {
    servers: Servers,
    _folder: TempDir,
}

impl Engines {
    /// Starts the engines.
    ///
    /// # Panics
    /// If one does not start.
    #[must_use]
    pub fn start(arrangement: Arrangement, lan: &Lan) -> Engines {
        let folder = super::folder();
        let path = folder.path();
        let first = || (lan.machine(0), free_port());
        let one = |node: Node, url: &dyn Fn(&str) -> String| {
            let url = url(&node.authority());
            Servers::One([node], url)
        };
        let servers = match arrangement {
            Arrangement::Redis => one(redis::start(first(), path, &[]), &|authority| format!("redis://{authority}")),
            Arrangement::RedisSentinel => Servers::Sentinels(Box::new(Sentinels::start(lan, path))),
            Arrangement::RedisCluster => Servers::Cluster(Cluster::start(lan, path)),
            Arrangement::Postgres => one(postgres::start(first(), path, &[]), &postgres::url),
            Arrangement::PostgresStandby => Servers::Pair(Pair::start(lan, path, false)),
            Arrangement::PostgresSynchronous => Servers::Pair(Pair::start(lan, path, true)),
            Arrangement::MariaDb => {
                one(mariadb::start(first(), path, &["--innodb-flush-log-at-trx-commit=0"]), &mariadb::url)
            }
            Arrangement::MariaDbTwoWay => Servers::Circle(Circle::start(lan, path, 2)),
            Arrangement::MariaDbCircle => Servers::Circle(Circle::start(lan, path, 3)),
            Arrangement::MariaDbGalera => Servers::Galera(Galera::start(lan, path)),
        };
        Engines { servers, _folder: folder }
    }

    /// Returns the URL of the engines for this member.
    #[must_use]
    pub fn url(&self, member: u16) -> String {
        match &self.servers {
            Servers::One(_, url) => url.clone(),
            Servers::Sentinels(servers) => servers.url(),
            Servers::Cluster(servers) => servers.url(),
            Servers::Pair(servers) => servers.url(),
            Servers::Circle(servers) => servers.url(member),
            Servers::Galera(servers) => servers.url(member),
        }
    }

    /// Returns the engine that the next fault hits: the master if there is one, otherwise each in turn.
    pub fn victim(&mut self) -> usize {
        match &mut self.servers {
            Servers::One(..) => 0,
            Servers::Sentinels(servers) => servers.master(),
            Servers::Cluster(servers) => servers.master(),
            Servers::Pair(servers) => servers.primary(),
            Servers::Circle(servers) => servers.next(),
            Servers::Galera(servers) => servers.next(),
        }
    }

    /// Kills an engine (SIGKILL).
    pub fn kill(&mut self, number: usize) {
        self.nodes()[number].kill();
    }

    /// Stops an engine until [`go_on`](Self::go_on). It accepts connections and answers nothing.
    pub fn freeze(&mut self, number: usize) {
        self.nodes()[number].signal("STOP");
    }

    /// Continues a stopped engine.
    pub fn go_on(&mut self, number: usize) {
        self.nodes()[number].signal("CONT");
    }

    /// Waits until another engine has taken over from one that was killed or isolated, or promotes it. Does nothing
    /// if the arrangement has no failover.
    ///
    /// # Panics
    /// If no engine takes over in time.
    pub fn fail_over(&mut self, lost: usize) {
        match &mut self.servers {
            Servers::Sentinels(servers) => servers.fail_over(),
            Servers::Cluster(servers) => servers.fail_over(lost),
            Servers::Pair(servers) => servers.fail_over(),
            Servers::One(..) | Servers::Circle(_) | Servers::Galera(_) => {}
        }
    }

    /// Returns whether the engines fail over automatically from a stopped one.
    #[must_use]
    pub fn fail_over_by_themselves(&self) -> bool {
        matches!(self.servers, Servers::Sentinels(_) | Servers::Cluster(_))
    }

    /// Restarts a killed engine.
    ///
    /// # Panics
    /// If it does not come back.
    pub fn start_again(&mut self, number: usize) {
        match &mut self.servers {
            // `restore` rebuilds it.
            Servers::Pair(_) => {}
            Servers::Galera(servers) => servers.start_again(number),
            Servers::One(..) | Servers::Sentinels(_) | Servers::Cluster(_) | Servers::Circle(_) => {
                self.nodes()[number].start_again(&[]);
            }
        }
    }

    /// Waits until all engines are running and have their data, and rebuilds a lost standby.
    ///
    /// # Panics
    /// If that takes too long.
    pub fn restore(&mut self) {
        match &mut self.servers {
            Servers::One(..) => {}
            Servers::Sentinels(servers) => servers.restore(),
            Servers::Cluster(servers) => servers.wait_until_whole(),
            Servers::Pair(servers) => servers.restore(),
            Servers::Circle(servers) => servers.wait_until_in_step(),
            Servers::Galera(servers) => servers.wait_until_whole(),
        }
    }

    fn nodes(&mut self) -> &mut [Node] {
        match &mut self.servers {
            Servers::One(nodes, _) => nodes,
            Servers::Sentinels(servers) => servers.nodes(),
            Servers::Cluster(servers) => servers.nodes(),
            Servers::Pair(servers) => servers.nodes(),
            Servers::Circle(servers) => servers.nodes(),
            Servers::Galera(servers) => servers.nodes(),
        }
    }
}
