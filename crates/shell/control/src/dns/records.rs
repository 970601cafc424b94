//! Where records come from: `hickory-resolver`, without its cache.

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

/// The system's list of name servers.
const RESOLV_CONF: &str = "/etc/resolv.conf";

/// Queries under way on one connection to a name server.
const MAX_ACTIVE_REQUESTS: usize = 1_024;

/// Records of a name and a type.
pub(super) struct RecordAnswer {
    pub(super) records: Vec<Record>,
    /// The smallest TTL among them and the aliases that lead to them.
    pub(super) ttl: Duration,
}

/// Why there are no records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RecordError {
    /// There are none, which may be believed for so long; `None`: the DNS did not say (RFC 2308 §5).
    None(Option<Duration>),
    /// The server does not know this kind of question.
    NotImplemented,
    /// The DNS did not answer, or with a failure.
    NoAnswer,
}

/// What can be asked for records.
pub(super) trait RecordLookup: Clone + Send + Sync + 'static {
    /// The records of `name`, which is fully qualified, aliases followed.
    fn look_up(&self, name: Name, kind: RecordType) -> impl Future<Output = Result<RecordAnswer, RecordError>> + Send;

    /// Whether there is anybody to ask; if not, only addresses are known, from the hosts file.
    fn has_servers(&self) -> bool;
}

/// The real DNS.
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
    // They count what comes after the first.
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
