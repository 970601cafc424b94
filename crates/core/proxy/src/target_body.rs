//! Bodies that differ from the request's, one for each target, and which of them a response belongs to.

use strowger_foundation::Buf;
use strowger_message::Message;
use strowger_transaction::ServerId;

use crate::branch::BranchOwner;
use crate::engine::{PAIRED, Proxy, is_paired};
use crate::forward::with_body;
use crate::policy::TargetBody;

/// What a response answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseOrigin {
    /// The server transaction of the forwarded request.
    pub server: ServerId,
    /// The number of the [`TargetBody`] that was sent, or 0.
    pub number: u8,
}

impl Proxy {
    /// Replaces the body of a request that is about to be sent to one target.
    #[cold]
    pub(crate) fn replace_body(&mut self, request: &mut Buf, owner: BranchOwner, body: &TargetBody) {
        if let BranchOwner::Client(client) = owner {
            let Self { body_numbers, transactions, .. } = self;
            body_numbers.insert(client, body.number, |client| transactions.client_user(client).is_some());
        }
        let replaced = Message::parse(request).ok().map(|message| with_body(&message, &body.bytes));
        if let Some(mut replaced) = replaced {
            core::mem::swap(request, &mut replaced);
            self.transactions.pool().recycle(replaced);
        }
    }

    /// Returns what a response with a branch of `owner` answers, if the transactions of a forwarded request are still
    /// known. Once only a success can be repeated, the number is 0.
    #[must_use]
    pub fn origin_of_response(&self, owner: BranchOwner) -> Option<ResponseOrigin> {
        let client = match owner {
            BranchOwner::Client(client) => client,
            BranchOwner::Stateless(place) => self.client_at(place)?,
            BranchOwner::KeepAlive(_) => return None,
        };
        let user = self.transactions.client_user(client)?;
        if is_paired(user) {
            let server = self.transactions.server_of(user & !PAIRED, PAIRED | client.index())?;
            return Some(ResponseOrigin { server, number: 0 });
        }
        let context = self.context(user)?;
        Some(ResponseOrigin { server: context.server, number: self.body_numbers.find(client) })
    }
}
