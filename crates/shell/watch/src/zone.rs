//! Access to the zone on its primary server: reads record sets, and updates them if they have not changed since.

use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use hickory_net::NetError;
use hickory_net::proto::op::{DnsRequest, DnsResponse, Message, OpCode, Query, ResponseCode};
use hickory_net::proto::rr::rdata::{A, AAAA, SRV};
use hickory_net::proto::rr::{DNSClass, Name, RData, Record, RecordType, TSigner};
use hickory_net::runtime::TokioRuntimeProvider;
use hickory_net::tcp::TcpClientStream;
use hickory_net::xfer::{DnsExchange, DnsHandle as _, DnsMultiplexer, FirstAnswer as _};
use tokio::task::JoinHandle;

use crate::plan::{Kind, RecordData, RecordSet};
use crate::tsig::TsigKey;
use crate::update::{RecordSetContents, Update};

/// Maximum clock difference between both ends (RFC 8945 §10), in seconds.
const FUDGE_S: u16 = 300;

/// Error of a name server operation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ZoneError {
    /// The record set has changed since it was read.
    Conflict,
    /// No answer in time, or no connection.
    Timeout,
    /// The name server refused, or sent something that is not understood. Usually the operator must act.
    Refused(String),
}

impl fmt::Display for ZoneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Conflict => f.write_str("another client changed the zone meanwhile"),
            Self::Timeout => f.write_str("the name server does not answer"),
            Self::Refused(why) => f.write_str(why),
        }
    }
}

/// A zone that can be updated. Each request uses its own TCP connection, so answers of any length fit.
#[derive(Clone)]
pub struct Zone {
    server: SocketAddr,
    origin: Name,
    signer: TSigner,
    timeout: Duration,
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Zone").field("server", &self.server).field("origin", &self.origin).finish_non_exhaustive()
    }
}

impl Zone {
    /// Creates access to the zone `origin` on its primary `server`, with `timeout` per request.
    ///
    /// # Errors
    /// `origin` is not a valid name, or the key cannot be used.
    pub fn new(server: SocketAddr, origin: &str, key: &TsigKey, timeout: Duration) -> Result<Self, String> {
        let signer = TSigner::new(key.secret(), key.algorithm(), key.name(), FUDGE_S);
        let signer = signer.map_err(|error| format!("the key cannot be used: {error}"))?;
        Ok(Self { server, origin: name(origin)?, signer, timeout })
    }

    /// Sends an empty update to check that the server accepts the key. Otherwise a wrong key would go unnoticed until
    /// a server dies.
    ///
    /// # Errors
    /// The server does not answer, or refuses the key.
    pub async fn check(&self) -> Result<(), ZoneError> {
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_query(Query::query(self.origin.clone(), RecordType::SOA));
        let response = self.query(message).await?;
        match response.response_code {
            ResponseCode::NoError => Ok(()),
            code => Err(self.refusal(&format!("the zone {}", self.origin), code)),
        }
    }

    /// Reads a record set.
    ///
    /// # Errors
    /// The server does not answer, or not authoritatively.
    pub async fn read(&self, set: &RecordSet) -> Result<RecordSetContents, ZoneError> {
        let mut message = Message::query();
        message.metadata.recursion_desired = false;
        message.add_query(Query::query(name(&set.name).map_err(ZoneError::Refused)?, record_type(set.kind)));
        let response = self.query(message).await?;
        match response.response_code {
            ResponseCode::NoError | ResponseCode::NXDomain if !response.authoritative => {
                let remedy = "set watch.server to the primary server of the zone";
                Err(ZoneError::Refused(format!("{} is not authoritative for {}; {remedy}", self.server, self.origin)))
            }
            ResponseCode::NoError => Ok(contents(&response.answers, set.kind)),
            ResponseCode::NXDomain => Ok(RecordSetContents::default()),
            code => Err(ZoneError::Refused(format!("{} refuses to read {set}: {code}", self.server))),
        }
    }

    /// Updates a record set if it has exactly the expected records.
    ///
    /// # Errors
    /// The set has other records, or the server does not answer, or refuses.
    pub async fn update(&self, set: &RecordSet, update: &Update) -> Result<(), ZoneError> {
        let response = self.query(self.message(set, update).map_err(ZoneError::Refused)?).await?;
        match response.response_code {
            ResponseCode::NoError => Ok(()),
            ResponseCode::NXRRSet | ResponseCode::YXRRSet | ResponseCode::NXDomain | ResponseCode::YXDomain => {
                Err(ZoneError::Conflict)
            }
            code => Err(self.refusal(&set.to_string(), code)),
        }
    }

    /// Builds the UPDATE message (RFC 2136 §2).
    fn message(&self, set: &RecordSet, update: &Update) -> Result<Message, String> {
        let owner = name(&set.name)?;
        let record = |data: &RecordData, class: DNSClass, ttl_s: u32| -> Result<Record, String> {
            let mut record = Record::from_rdata(owner.clone(), ttl_s, to_rdata(data)?);
            record.dns_class = class;
            Ok(record)
        };
        let mut message = Message::query();
        message.metadata.op_code = OpCode::Update;
        message.metadata.recursion_desired = false;
        message.add_query(Query::query(self.origin.clone(), RecordType::SOA));
        // Prerequisites: the set has exactly these records (§2.4.2), or does not exist (§2.4.3).
        if update.expected.is_empty() {
            let mut none = Record::update0(owner.clone(), 0, record_type(set.kind));
            none.dns_class = DNSClass::NONE;
            message.add_answer(none);
        }
        for data in &update.expected {
            message.add_answer(record(data, DNSClass::IN, 0)?);
        }
        // Updates: records are deleted (§2.5.4) and added (§2.5.1).
        for data in &update.remove {
            message.add_authority(record(data, DNSClass::NONE, 0)?);
        }
        for data in &update.add {
            message.add_authority(record(data, DNSClass::IN, set.ttl_s)?);
        }
        Ok(message)
    }

    async fn query(&self, message: Message) -> Result<DnsResponse, ZoneError> {
        let answer = tokio::time::timeout(self.timeout, self.exchange(message)).await;
        answer.unwrap_or(Err(NetError::Timeout)).map_err(|error| self.error(&error))
    }

    async fn exchange(&self, message: Message) -> Result<DnsResponse, NetError> {
        let (connecting, handle) =
            TcpClientStream::new(self.server, None, Some(self.timeout), TokioRuntimeProvider::default());
        let connection = DnsMultiplexer::new(connecting.await?, handle).with_timeout(self.timeout);
        let (exchange, driver) =
            DnsExchange::<TokioRuntimeProvider>::from_stream(connection.with_signer(self.signer.clone()));
        let _driver = AbortOnDrop(tokio::spawn(driver));
        exchange.send(DnsRequest::from(message)).first_answer().await
    }

    fn refusal(&self, what: &str, code: ResponseCode) -> ZoneError {
        let remedy = "allow the key to update the zone (allow-update or update-policy in named.conf)";
        ZoneError::Refused(format!("{} refuses to change {what}: {code}; {remedy}", self.server))
    }

    fn error(&self, error: &NetError) -> ZoneError {
        match error {
            // The library's message does not help here; the cause is nearly always the key.
            NetError::Proto(_) => {
                let remedy = "check that both use the same key (watch.key_file) and have the same time";
                ZoneError::Refused(format!("the response of {} is not signed with the key; {remedy}", self.server))
            }
            _ => ZoneError::Timeout,
        }
    }
}

/// A task that is aborted when its owner is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn name(text: &str) -> Result<Name, String> {
    let mut name = Name::from_ascii(text).map_err(|error| format!("{text:?} is not a valid DNS name: {error}"))?;
    name.set_fqdn(true);
    Ok(name)
}

const fn record_type(kind: Kind) -> RecordType {
    match kind {
        Kind::Srv => RecordType::SRV,
        Kind::A => RecordType::A,
        Kind::Aaaa => RecordType::AAAA,
    }
}

fn to_rdata(data: &RecordData) -> Result<RData, String> {
    Ok(match data {
        RecordData::Service { priority, weight, port, target } => {
            RData::SRV(SRV::new(*priority, *weight, *port, name(target)?))
        }
        RecordData::Address(std::net::IpAddr::V4(address)) => RData::A(A(*address)),
        RecordData::Address(std::net::IpAddr::V6(address)) => RData::AAAA(AAAA(*address)),
    })
}

fn contents(answers: &[Record], kind: Kind) -> RecordSetContents {
    let of_kind = answers.iter().filter(|record| record.record_type() == record_type(kind));
    let mut found = RecordSetContents::default();
    for record in of_kind {
        let data = match &record.data {
            RData::SRV(srv) => {
                let target = srv.target.to_ascii().trim_end_matches('.').to_ascii_lowercase();
                RecordData::Service { priority: srv.priority, weight: srv.weight, port: srv.port, target }
            }
            other => match other.ip_addr() {
                Some(address) => RecordData::Address(address),
                None => continue,
            },
        };
        found.ttl_s = record.ttl;
        found.records.push(data);
    }
    found
}
