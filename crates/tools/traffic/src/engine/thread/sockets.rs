//! Sockets of a thread: datagrams or connections.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::driver::{ConnectionLifetime, Outbox};
use mio::{Poll, Token};
use strowger_net::{StreamSocket, TcpListener};

use crate::engine::handover::{Mailbox, ThreadWaker};
use crate::engine::line::Masks;
use crate::engine::links::{Datagrams, LinkCounts, cannot, cannot_bind};
use crate::engine::plan::{Plan, PlanError};
use crate::engine::streams::{StreamSettings, Streams};
use crate::service::Service;

pub(super) const CALLEE_BIT: usize = 1 << 40;
pub(super) const LISTENER: u32 = u32::MAX;
/// Token of a message from another thread.
pub(super) const WAKER: Token = Token(usize::MAX - 1);

pub(super) fn caller_token(link: u32) -> Token {
    Token(link as usize)
}

pub(super) fn callee_token(link: u32) -> Token {
    Token(link as usize | CALLEE_BIT)
}

#[derive(Debug)]
pub(super) enum Links {
    Udp(Datagrams),
    Tcp(Box<Streams>),
}

impl Links {
    pub(super) fn outbox(&mut self) -> &mut dyn Outbox {
        match self {
            Self::Udp(datagrams) => datagrams,
            Self::Tcp(streams) => streams.as_mut(),
        }
    }

    pub(super) fn flush(&mut self) {
        match self {
            Self::Udp(datagrams) => datagrams.flush(),
            Self::Tcp(streams) => streams.flush(),
        }
    }

    pub(super) fn counts(&self) -> LinkCounts {
        match self {
            Self::Udp(datagrams) => datagrams.counts(),
            Self::Tcp(streams) => streams.counts(),
        }
    }

    pub(super) fn addresses(&self) -> Vec<SocketAddr> {
        match self {
            Self::Udp(datagrams) => datagrams.addresses(),
            Self::Tcp(streams) => vec![streams.address()],
        }
    }
}

/// Opens a listening socket for the plan's transport.
fn bind(plan: &Plan, address: SocketAddr) -> Result<StreamSocket, PlanError> {
    let bound = match (&plan.tls, plan.transport.is_secure()) {
        (Some(tls), true) => StreamSocket::bind_tls(address, Arc::clone(tls)),
        _ => TcpListener::bind(address).map(StreamSocket::from),
    };
    bound.map_err(|error| cannot_bind(&error))
}

fn settings(plan: &Plan, index: usize, lifetime: ConnectionLifetime) -> StreamSettings {
    StreamSettings {
        transport: plan.transport,
        sources: plan.addresses.clone(),
        limit: plan.connections.max(1),
        opens_late: lifetime == ConnectionLifetime::PersistentWithOpen,
        opens_ahead: lifetime == ConnectionLifetime::Persistent,
        server: plan.server_name.clone(),
        masks: Masks::new(crate::driver::mix(plan.run.wrapping_add(index as u64))),
    }
}

/// Sockets of a thread before it runs.
#[derive(Debug)]
pub(in crate::engine) struct Prepared {
    pub(super) poll: Poll,
    pub(super) caller: Option<Links>,
    pub(super) callee: Option<Links>,
    /// Servers that the called end emulates: one for each address, regardless of the number of threads.
    pub(super) service: Option<Service>,
    /// Mailbox for the other threads that listen at the same address.
    pub(super) post: Option<Mailbox>,
}

impl Prepared {
    pub(in crate::engine) fn open(plan: &Plan, index: usize, first: Option<&Self>) -> Result<Self, PlanError> {
        let wrong = cannot;
        let poll = Poll::new().map_err(|error| wrong(&error))?;
        let address = |number: usize| plan.addresses.get(number % plan.addresses.len().max(1)).copied();
        let any_port = |number: usize| address(number).map(|ip| SocketAddr::new(ip, 0));
        let kept = |number: usize| plan.callees_at.get(number).copied().or_else(|| any_port(number));
        let is_stream = plan.transport.is_reliable();
        let registry = || poll.registry().try_clone().map_err(|error| wrong(&error));
        let nowhere = || PlanError("there is no local address (--from)".to_owned());
        let stream = |listener, lifetime, token_of| {
            let settings = settings(plan, index, lifetime);
            Ok(Links::Tcp(Box::new(Streams::new(listener, settings, registry()?, token_of))))
        };
        let caller = match &plan.caller {
            None => None,
            Some(_) if is_stream => {
                let listener = bind(plan, any_port(index).ok_or_else(nowhere)?)?;
                Some(stream(listener, plan.connection_lifetime, caller_token)?)
            }
            Some(_) => {
                let numbers = (0..plan.sockets.max(1)).map(|number| index * plan.sockets.max(1) + number);
                let addresses: Vec<_> = numbers.filter_map(any_port).collect();
                Some(Links::Udp(Datagrams::bind(&addresses, plan).map_err(|error| wrong(&error))?))
            }
        };
        let callee = match &plan.callee {
            None => None,
            Some(callee) if is_stream => {
                let listener = match first.and_then(|first| first.callee.as_ref()) {
                    Some(Links::Tcp(first)) if !callee.listen.is_empty() => first.sibling_listener()?,
                    _ => {
                        let address = callee.listen.first().copied().or_else(|| kept(index));
                        bind(plan, address.ok_or_else(nowhere)?)?
                    }
                };
                Some(stream(listener, plan.lifetime_of_callees(), callee_token)?)
            }
            Some(callee) => Some(Links::Udp(match first.and_then(|first| first.callee.as_ref()) {
                Some(Links::Udp(first)) if !callee.listen.is_empty() => {
                    first.sibling(plan).map_err(|error| wrong(&error))?
                }
                _ if callee.listen.is_empty() => {
                    let any: Vec<_> = kept(index).into_iter().collect();
                    Datagrams::bind(&any, plan).map_err(|error| wrong(&error))?
                }
                _ => Datagrams::bind(&callee.listen, plan).map_err(|error| wrong(&error))?,
            })),
        };
        let service = plan.callee.as_ref().and_then(|callee| match first {
            Some(first) => first.service.as_ref().map(Service::sibling),
            None => callee.service.clone().map(|law| {
                let addresses = callee.listen.len().max(1);
                Service::of_addresses(law, addresses, crate::driver::mix(plan.seed))
            }),
        });
        Ok(Self { poll, caller, callee, service, post: None })
    }

    /// Connects the threads that listen at one address, so that they can hand messages over.
    pub(in crate::engine) fn connect(all: &mut [Self], plan: &Plan) -> Result<(), PlanError> {
        if all.len() < 2 || plan.callee.as_ref().is_none_or(|callee| callee.listen.is_empty()) {
            return Ok(());
        }
        let bells: Result<Vec<_>, _> = all.iter().map(|one| ThreadWaker::new(one.poll.registry(), WAKER)).collect();
        let posts = Mailbox::mailboxes(bells.map_err(|error| cannot(&error))?, plan.transport.is_reliable());
        for (one, post) in all.iter_mut().zip(posts) {
            if let Some(Links::Tcp(streams)) = &mut one.callee {
                streams.number_as(post.share);
            }
            one.post = Some(post);
        }
        Ok(())
    }

    pub(in crate::engine) fn callee_addresses(&self) -> Vec<SocketAddr> {
        self.callee.as_ref().map(Links::addresses).unwrap_or_default()
    }
}
