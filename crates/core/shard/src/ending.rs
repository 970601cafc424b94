//! Ending a call at the operator's command: CANCEL while it is being set up, BYE to both parties once it is answered.
//!
//! The server is no party of the call. Each BYE looks as if the other party had sent it through this server: it has
//! that party's tags and takes the way that its own requests would take, by our own Record-Route.
//! `docs/adr/0047-ending-calls.md` has the reasons.

mod drive;

use slab::Slab;
use smallvec::SmallVec;
use strowger_calls::{CallKey, CallView, DialogView};
use strowger_foundation::{Flow, ListenerId};
use strowger_message::{NameAddr, Uri, split_list};
use strowger_proxy::OWN_USERS;

use crate::snapshot::Snapshot;

/// The first user number of the transactions of BYEs; the offset names the BYE.
pub(crate) const BYE_USERS: u32 = OWN_USERS | 1 << 29;

/// Maximum number of BYEs of a shard that wait for their responses. A call that would exceed it is not ended.
pub const MAX_BYES: usize = 2048;

/// The bit of the query IDs of BYEs' DNS queries.
const QUERIES: u64 = 1 << 62;

/// Maximum number of requests for one BYE: to further next hops, or after a challenge.
const MAX_REQUESTS: u32 = 8;

//= rfc3261#8.1.1.5:cseq-below-2-31
//= rfc3261#12.2.1.1
/// CSeq of the first request, just below 2³¹. Parties begin with lower numbers and count up by one, so this one is higher
/// than any that the other party has used, without looking at its requests.
const CSEQ: u32 = 0x7fff_fff0;

/// A party of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Party {
    Caller,
    Callee,
}

impl Party {
    const fn as_str(self) -> &'static str {
        match self {
            Self::Caller => "caller",
            Self::Callee => "callee",
        }
    }
}

/// A BYE without a final response.
#[derive(Debug)]
struct Bye {
    call: CallKey,
    party: Party,
    /// Where the other party's requests come from.
    source: Flow,
    /// The request up to CSeq, with all Routes and a Via that is replaced.
    head: Vec<u8>,
    call_id: Box<[u8]>,
    /// Index of the next hop in use.
    hop: usize,
    /// Number of requests sent.
    requests: u32,
    is_resolved: bool,
    /// The trunk that the party belongs to, by its id, and the Request-URI as sent there.
    trunk: Option<u32>,
    request_uri: SmallVec<[u8; 64]>,
    /// The header lines that answer the trunk's challenge.
    credentials: Vec<u8>,
}

/// The BYEs of one shard.
#[derive(Debug, Default)]
pub(crate) struct Byes {
    list: Slab<Bye>,
}

impl Byes {
    pub(crate) fn len(&self) -> usize {
        self.list.len()
    }

    pub(crate) fn has_any_of(&self, call: CallKey) -> bool {
        self.list.iter().any(|(_, bye)| bye.call == call)
    }
}

//= rfc3261#12.2.1.1
/// Prepares the BYE to `party`; `None` without its contact, or if this server is not in the path of its requests.
fn bye(snapshot: &Snapshot, call: CallKey, dialog: &DialogView<'_>, view: &CallView<'_>, party: Party) -> Option<Bye> {
    let (from, to, contact) = match party {
        Party::Caller => (dialog.callee, dialog.caller, dialog.caller_contact),
        Party::Callee => (dialog.caller, dialog.callee, dialog.callee_contact),
    };
    let contact = NameAddr::parse(split_list(contact).next()?)?;
    let uri = contact.parse_uri()?;
    let uri = uri.sip().map_or(contact.uri, |uri| uri.without_headers());
    let (transport, peer) = match party {
        Party::Caller => (view.target_transport.unwrap_or_default(), view.target.unwrap_or(view.source)),
        Party::Callee => (view.transport, view.source),
    };
    let mut head = Vec::with_capacity(512);
    let parts: [&[u8]; 3] = [b"BYE ", uri, b" SIP/2.0\r\nVia: SIP/2.0/UDP party.invalid;branch=z9hG4bK0\r\n"];
    parts.iter().for_each(|part| head.extend_from_slice(part));
    for route in own_route_set(snapshot, dialog.record_routes, party)? {
        [b"Route: ", route, b"\r\n"].iter().for_each(|part| head.extend_from_slice(part));
    }
    let parts: [&[u8]; 8] = [
        b"Max-Forwards: 70\r\nReason: Q.850;cause=16;text=\"Ended by operator\"\r\nFrom: ",
        from,
        b"\r\nTo: ",
        to,
        b"\r\nCall-ID: ",
        dialog.call_id,
        b"\r\n",
        b"CSeq: ",
    ];
    parts.iter().for_each(|part| head.extend_from_slice(part));
    Some(Bye {
        call,
        party,
        source: Flow::new(ListenerId(0), transport, peer),
        head,
        call_id: dialog.call_id.into(),
        hop: 0,
        requests: 0,
        is_resolved: false,
        trunk: None,
        request_uri: SmallVec::new(),
        credentials: Vec::new(),
    })
}

/// Returns the part of the other party's route set that begins at this server; `None` if the server is not in it.
fn own_route_set<'a>(snapshot: &Snapshot, listed: &'a [u8], party: Party) -> Option<Vec<&'a [u8]>> {
    let mut routes: Vec<&[u8]> = split_list(listed).filter(|route| !route.is_empty()).collect();
    // The caller's route set is the reverse of what the 2xx lists (RFC 3261 §12.1.2).
    if party == Party::Callee {
        routes.reverse();
    }
    let is_ours = |route: &&[u8]| {
        let uri = NameAddr::parse(route).and_then(|route| route.parse_uri());
        uri.as_ref().and_then(Uri::sip).is_some_and(|uri| snapshot.is_own_hop(uri))
    };
    let at = routes.iter().position(is_ours)?;
    Some(routes.split_off(at))
}
