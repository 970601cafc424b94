//! Record lookups with `hickory-resolver`, without its cache.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hickory_resolver::TokioResolver;
use hickory_resolver::config::{
    ConnectionConfig, NameServerConfig, ProtocolConfig, ResolverConfig, ResolverOpts, ServerOrderingStrategy,
};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{Name, Record, RecordType};

use super::{DnsConfig, NameServers};

/// The system's resolver configuration.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Maximum number of concurrent queries on one connection to a name server.
const MAX_ACTIVE_REQUESTS: usize = 1_024;

/// Records of one name and type.
pub(super) struct RecordAnswer {
    pub(super) records: Vec<Record>,
    /// Smallest TTL of the records and of the aliases that lead to them.
    pub(super) ttl: Duration,
}

/// Reason why there are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordError {
    /// The records do not exist, with the lifetime of this answer; `None` if DNS gave none (RFC 2308 §5).
    None(Option<Duration>),
    /// The server does not support this type of query.
    NotImplemented,
    /// DNS did not answer, or answered with a failure.
    NoAnswer,
}

/// Lookup of records.
pub(super) trait RecordLookup: Clone + Send + Sync + 'static {
    /// Returns the records of the fully qualified `name`, following aliases.
    fn look_up(&self, name: Name, kind: RecordType) -> impl Future<Output = Result<RecordAnswer, RecordError>> + Send;

    /// Whether there are name servers; without them, only addresses in the hosts file are known.
    fn has_servers(&self) -> bool;
}

/// Lookup in the real DNS.
#[derive(Clone)]
pub(super) struct Hickory {
    resolver: TokioResolver,
    has_servers: bool,
}

impl Hickory {
    pub(super) fn new(config: &DnsConfig) -> io::Result<(Self, NameServers)> {
        let (servers, source) = name_servers(config);
        let has_servers = !servers.is_empty();
        let config_of = ResolverConfig::from_parts(None, Vec::new(), servers);
        let mut builder = TokioResolver::builder_with_config(config_of, TokioRuntimeProvider::default());
        set_options(builder.options_mut(), config);
        let resolver = builder.build().map_err(io::Error::other)?;
        Ok((Self { resolver, has_servers }, source))
    }
}

fn set_options(options: &mut ResolverOpts, config: &DnsConfig) {
    let attempts = config.attempts.max(1);
    options.timeout = config.timeout / attempts;
    // The library counts retries after the first attempt.
    options.attempts = usize::try_from(attempts - 1).unwrap_or(usize::MAX);
    options.cache_size = 0;
    options.preserve_intermediates = true;
    options.max_active_requests = MAX_ACTIVE_REQUESTS;
    options.server_ordering_strategy = ServerOrderingStrategy::QueryStatistics;
}

fn name_servers(config: &DnsConfig) -> (Vec<NameServerConfig>, NameServers) {
    if !config.servers.is_empty() {
        let servers = config.servers.iter().map(|address| name_server(*address)).collect();
        return (servers, NameServers::Configured(config.servers.clone()));
    }
    match hickory_resolver::system_conf::read_system_conf() {
        Ok((system, _)) => {
            let port = |server: &NameServerConfig| server.connections.first().map_or(super::DNS_PORT, |one| one.port);
            let servers = system.name_servers().iter();
            let addresses = servers.map(|server| SocketAddr::new(server.ip, port(server))).collect();
            (system.name_servers().to_vec(), NameServers::System(PathBuf::from(RESOLV_CONF), addresses))
        }
        Err(error) => (Vec::new(), NameServers::Nobody(format!("{RESOLV_CONF}: {error}"))),
    }
}

fn name_server(address: SocketAddr) -> NameServerConfig {
    let connections = [ProtocolConfig::Udp, ProtocolConfig::Tcp].map(|protocol| {
        let mut connection = ConnectionConfig::new(protocol);
        connection.port = address.port();
        connection
    });
    NameServerConfig::new(address.ip(), true, connections.into())
}

impl RecordLookup for Hickory {
    async fn look_up(&self, name: Name, kind: RecordType) -> Result<RecordAnswer, RecordError> {
        let answer = self.resolver.lookup(name, kind).await.map_err(|error| record_error(&error))?;
        let ttl = answer.answers().iter().map(|record| record.ttl).min().unwrap_or(0);
        let records: Vec<Record> =
            answer.answers().iter().filter(|record| record.record_type() == kind).cloned().collect();
        if records.is_empty() {
            return Err(RecordError::None(None));
        }
        Ok(RecordAnswer { records, ttl: Duration::from_secs(u64::from(ttl)) })
    }

    fn has_servers(&self) -> bool {
        self.has_servers
    }
}

fn record_error(error: &NetError) -> RecordError {
    match error {
        NetError::Dns(DnsError::NoRecordsFound(none))
            if matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) =>
        {
            RecordError::None(none.negative_ttl.map(|ttl| Duration::from_secs(u64::from(ttl))))
        }
        NetError::Dns(DnsError::ResponseCode(ResponseCode::NotImp | ResponseCode::FormErr)) => {
            RecordError::NotImplemented
        }
        _ => RecordError::NoAnswer,
    }
}
