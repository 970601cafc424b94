//! The operator's routes: matching requests, their targets, and the changes made to the request.

use core::net::{IpAddr, SocketAddr};
use core::time::Duration;
use std::sync::Arc;

use smallvec::SmallVec;
use strowger_auth::Network;
use strowger_balancer::{FailoverBudget, Set};
use strowger_foundation::{Flow, HostId, Transport};
use strowger_locate::{Hop, LocateQuery, SplitMix64};
use strowger_message::{SipUri, Status, Uri};
use strowger_overload::Class;
use strowger_proxy::{Changes, Stateless};
use strowger_trunk::NumberRewrite;

/// The address of a configured target.
#[derive(Clone, Debug)]
pub enum TargetAddress {
    /// A literal address.
    Literal {
        /// The address.
        address: SocketAddr,
        /// The transport, if the URI names one.
        transport: Option<Transport>,
    },
    /// A name to be resolved by the DNS.
    Name(LocateQuery),
}

/// One target of a route.
#[derive(Clone, Debug)]
pub struct RouteTarget {
    /// The URI as configured.
    pub uri: Box<[u8]>,
    /// Its address or name.
    pub address: TargetAddress,
    /// Priority; lower numbers are tried first.
    pub priority: u16,
    /// Share of requests among targets of one priority.
    pub weight: u16,
}

/// The action of a route.
#[derive(Clone, Debug)]
pub enum Action {
    /// Forwards the request: to the targets or, without any, to the user's contacts or as the Request-URI says.
    Proxy {
        /// The targets; tried one after the other until one answers.
        targets: Vec<RouteTarget>,
        /// Whether the request is forwarded without state.
        stateless: Stateless,
        /// The trunk that the targets belong to, by its [id](strowger_trunk::Trunk::id).
        trunk: Option<u32>,
        /// The balanced set that selects among the targets; `targets` has the same order as its members.
        balance: Option<Arc<Set>>,
    },
    /// Answers 302 with the targets or, without any, with the user's contacts.
    Redirect {
        /// The contacts.
        targets: Vec<RouteTarget>,
    },
    /// Refuses the request.
    Reject {
        /// The status.
        status: Status,
        /// The reason phrase, if it is not the default one.
        reason: Option<Box<str>>,
    },
    /// Answers 500 with a Retry-After, because none of its gateways is in service.
    OutOfService,
    /// Answers 503 with a Retry-After, because its balanced set has no target.
    NoTarget,
}

/// The conditions of a route; a request must meet all of them.
#[derive(Clone, Debug)]
pub struct Match {
    /// The Request-URI's domain in lower case: a name, `*.name`, or `*` for any.
    pub domain: Box<[u8]>,
    /// The methods, in capitals; empty for any.
    pub methods: Vec<Box<[u8]>>,
    /// Prefixes of the called number: the user of a SIP URI or the digits of a tel URI; empty for any.
    pub prefixes: Vec<Box<[u8]>>,
    /// Source networks; empty for any.
    pub sources: Vec<Network>,
}

impl Default for Match {
    fn default() -> Self {
        Self { domain: b"*"[..].into(), methods: Vec::new(), prefixes: Vec::new(), sources: Vec::new() }
    }
}

/// A route; the first one that matches a request applies.
#[derive(Clone, Debug)]
pub struct Route {
    /// The conditions.
    pub matches: Match,
    /// The action.
    pub action: Action,
    /// The rewrite of the called number.
    pub rewrite: Option<NumberRewrite>,
    /// Header fields to add and remove.
    pub changes: Option<Arc<Changes>>,
    /// Ring timeout of a target, if it differs from the server's default.
    pub ring_timeout: Option<Duration>,
    /// Overload class of its requests, if it differs from their usual one.
    pub class: Option<Class>,
    /// Failover budget of its targets; a balanced set has its own.
    pub budget: Arc<FailoverBudget>,
}

impl RouteTarget {
    /// Returns whether a message received on `source` came from the target's literal address; on a connection, any
    /// port matches.
    pub(crate) fn has_sent(&self, source: &Flow) -> bool {
        let TargetAddress::Literal { address, .. } = &self.address else { return false };
        let is_port = source.transport.is_reliable() || source.peer.port() == address.port();
        is_port && address.ip().to_canonical() == source.peer.ip().to_canonical()
    }

    /// Returns whether it is at `hop`, as far as its URI contains an address.
    pub(crate) fn is_hop(&self, hop: &Hop) -> bool {
        match &self.address {
            TargetAddress::Literal { address, transport } => {
                let is_transport = transport.is_none_or(|transport| transport == hop.transport);
                *address == hop.address && hop.host == HostId::NONE && is_transport
            }
            TargetAddress::Name(_) => false,
        }
    }

    /// Returns whether a URI denotes only its host and port.
    pub(crate) fn is_at(&self, uri: &SipUri<'_>) -> bool {
        match &self.address {
            TargetAddress::Literal { address, .. } => crate::uri_address::peer_of(uri) == Some(*address),
            TargetAddress::Name(question) => crate::uri_address::question_of(uri)
                .is_some_and(|asked| asked.host == question.host && asked.port == question.port),
        }
    }

    /// Creates a target at a literal address, with priority 1 and weight 1.
    #[must_use]
    pub fn at(uri: &[u8], address: SocketAddr) -> Self {
        Self { uri: uri.into(), address: TargetAddress::Literal { address, transport: None }, priority: 1, weight: 1 }
    }
}

impl Action {
    /// Forwards requests to `targets`.
    #[must_use]
    pub const fn proxy(targets: Vec<RouteTarget>, stateless: Stateless) -> Self {
        Self::Proxy { targets, stateless, trunk: None, balance: None }
    }

    /// Forwards requests to the member of `set` that the set selects; `targets` has the same order as its members.
    #[must_use]
    pub const fn balance(set: Arc<Set>, targets: Vec<RouteTarget>, stateless: Stateless) -> Self {
        Self::Proxy { targets, stateless, trunk: None, balance: Some(set) }
    }

    /// Returns the configured targets.
    pub(crate) fn targets(&self) -> &[RouteTarget] {
        match self {
            Self::Proxy { targets, .. } | Self::Redirect { targets } => targets,
            Self::Reject { .. } | Self::OutOfService | Self::NoTarget => &[],
        }
    }
}

impl Route {
    /// Creates a route that changes nothing in the request.
    #[must_use]
    pub fn new(matches: Match, action: Action) -> Self {
        Self { matches, action, rewrite: None, changes: None, ring_timeout: None, class: None, budget: Arc::default() }
    }

    /// Creates a match for all requests for `domain`.
    #[must_use]
    pub fn of_domain(domain: &[u8], action: Action) -> Self {
        Self::new(Match { domain: domain.into(), ..Match::default() }, action)
    }
}

impl Match {
    /// Returns whether a request of `method` (in capitals) from `source` for `uri` in `domain` (in lower case)
    /// matches.
    #[must_use]
    pub fn fits(&self, domain: &[u8], method: &[u8], uri: &Uri<'_>, source: IpAddr) -> bool {
        let named = match self.domain.as_ref() {
            b"*" => true,
            [b'*', suffix @ ..] => domain.ends_with(suffix),
            name => name == domain,
        };
        named
            && (self.methods.is_empty() || self.methods.iter().any(|m| **m == *method))
            && (self.sources.is_empty() || self.sources.iter().any(|network| network.contains(source)))
            && (self.prefixes.is_empty() || self.fits_number(uri))
    }

    fn fits_number(&self, uri: &Uri<'_>) -> bool {
        let digits = match uri {
            Uri::Sip(sip) => number_of(sip),
            Uri::Tel(tel) => tel.digits(),
            Uri::Other { .. } => return false,
        };
        self.prefixes.iter().any(|prefix| digits.starts_with(prefix))
    }
}

impl Route {
    /// Returns the Request-URI for `target` if it differs from `request_uri`: with the number rewritten and, for a
    /// trunk, with the trunk's host instead of ours, and a tel URI as a SIP URI (RFC 3261 §19.1.6).
    #[must_use]
    pub fn request_uri(&self, request_uri: &[u8], target: &RouteTarget, is_trunk: bool) -> Option<SmallVec<[u8; 64]>> {
        if self.rewrite.is_none() && !is_trunk {
            return None;
        }
        let uri = Uri::parse(request_uri)?;
        let (user, is_number) = match &uri {
            Uri::Sip(sip) => match sip.user {
                Some(_) => (unescaped_where_plain(sip), sip.params.value("user") == Some(b"phone")),
                None => return None,
            },
            Uri::Tel(tel) => (tel.digits(), true),
            Uri::Other { .. } => return None,
        };
        let mut number = Vec::new();
        let changed = self.rewrite.as_ref().is_some_and(|rewrite| rewrite.apply(&user, &mut number));
        let user = if changed { &number[..] } else { &user[..] };
        let host = host_part(if is_trunk { &target.uri } else { request_uri });
        let mut out = SmallVec::new();
        match (&uri, host) {
            (Uri::Tel(tel), None) => {
                let tail = request_uri.get(b"tel:".len().saturating_add(tel.number.len())..).unwrap_or(&[]);
                [b"tel:", user, tail].iter().for_each(|part| out.extend_from_slice(part));
            }
            (_, Some(host)) => {
                let secure = uri.sip().is_some_and(|sip| sip.secure);
                let scheme: &[u8] = if secure { b"sips:" } else { b"sip:" };
                let phone: &[u8] = if is_number { b";user=phone" } else { b"" };
                [scheme, user, b"@", host, phone].iter().for_each(|part| out.extend_from_slice(part));
            }
            (_, None) => return None,
        }
        Some(out)
    }
}

/// Returns the targets in the order in which one request tries them: by priority, and at equal priority by `choice`
/// and the weights.
pub(crate) fn order_targets(targets: &[RouteTarget], choice: u64) -> SmallVec<[&RouteTarget; 4]> {
    let mut left: SmallVec<[&RouteTarget; 4]> = targets.iter().collect();
    let mut order = SmallVec::new();
    let mut draw = SplitMix64(choice);
    while let Some(best) = left.iter().map(|target| target.priority).min() {
        let share = |target: &RouteTarget| u64::from(target.weight).saturating_mul(1 << 16).max(1);
        let equals = || left.iter().enumerate().filter(|(_, target)| target.priority == best);
        let mut drawn = draw.below(equals().map(|(_, target)| share(target)).sum());
        let found = equals().find(|(_, target)| {
            let found = drawn < share(target);
            drawn = drawn.saturating_sub(share(target));
            found
        });
        let Some(index) = found.map(|(index, _)| index) else { break };
        order.push(left.remove(index));
    }
    order
}

//= rfc3261#19.1.4
/// Returns the number in a user part: escapes are decoded, and visual separators of telephone numbers (RFC 3966
/// §5.1.1) are removed. So no spelling of a number evades a rule for it.
fn number_of(uri: &SipUri<'_>) -> SmallVec<[u8; 24]> {
    let mut user = uri.unescaped_user();
    let is_separator = |byte: &u8| b"-.()".contains(byte);
    let number = user.split(|byte| *byte == b';').next().unwrap_or(&[]);
    if number.iter().all(|byte| byte.is_ascii_digit() || b"+*#".contains(byte) || is_separator(byte)) {
        user.retain(|byte| !is_separator(byte));
    }
    user
}

/// Returns a user part with escapes decoded, except for characters that must be escaped.
fn unescaped_where_plain(uri: &SipUri<'_>) -> SmallVec<[u8; 24]> {
    let plain = uri.unescaped_user();
    let is_plain = plain.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.!~*'()&=+$,;".contains(byte));
    if is_plain { plain } else { SmallVec::from_slice(uri.user.unwrap_or(&[])) }
}

/// Returns host and port of a SIP URI, as written.
fn host_part(uri: &[u8]) -> Option<&[u8]> {
    let parsed = Uri::parse(uri)?;
    let sip = parsed.sip()?;
    let from = sip.host_port.host.as_ptr().addr().wrapping_sub(uri.as_ptr().addr());
    let rest = uri.get(from..)?;
    let end = rest.iter().position(|byte| matches!(byte, b';' | b'?' | b'>')).unwrap_or(rest.len());
    rest.get(..end)
}
