//! What the server needs of an answered call's dialog to end it itself.

use strowger_message::{HeaderName, Message};

use crate::record::CallText;

/// Bytes stored of a dialog; a call whose dialog is longer cannot be ended by the server.
pub const MAX_DIALOG: usize = 2048;

/// Number of parts before the Record-Routes.
const PARTS: usize = 4;
/// Bytes of their lengths.
const LENGTHS: usize = 2 * PARTS;

/// The dialog of an answered call. Values are as written by the parties.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DialogView<'a> {
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// From of the INVITE, with the caller's tag.
    pub caller: &'a [u8],
    /// To of the 2xx, with the callee's tag.
    pub callee: &'a [u8],
    /// Contact of the INVITE.
    pub caller_contact: &'a [u8],
    /// Contact of the 2xx.
    pub callee_contact: &'a [u8],
    /// The Record-Routes of the 2xx as a list, with a comma after each: the first is the callee's neighbour.
    pub record_routes: &'a [u8],
}

impl CallText {
    /// Replaces the caller's Contact, stored so far, by the whole dialog, if `answer` has what it takes.
    pub(crate) fn store_dialog(&mut self, answer: &Message<'_>) {
        let head = answer.head();
        let (caller, callee) = (answer.from(), answer.to());
        let parts: [&[u8]; PARTS] =
            [caller.text, callee.text, self.rest(), head.first(HeaderName::Contact).unwrap_or_default()];
        let routes = || head.all(HeaderName::RecordRoute);
        let of_parts = parts.iter().fold(LENGTHS, |sum, part| sum.saturating_add(part.len()));
        let whole = routes().fold(of_parts, |sum, route| sum.saturating_add(route.len()).saturating_add(1));
        let has_tags = caller.tag().is_some() && callee.tag().is_some();
        if !has_tags || self.call_id().len() != answer.call_id().len() || whole > MAX_DIALOG {
            return self.clear_rest();
        }
        let mut bytes = self.begin_again(whole);
        for part in parts {
            bytes.extend_from_slice(&u16::try_from(part.len()).unwrap_or(0).to_be_bytes());
        }
        parts.iter().for_each(|part| bytes.extend_from_slice(part));
        for route in routes() {
            bytes.extend_from_slice(route);
            bytes.push(b',');
        }
        self.replace(bytes);
    }

    /// Returns the dialog of an answered call, if it was stored.
    pub(crate) fn dialog(&self) -> Option<DialogView<'_>> {
        let (lengths, mut rest) = self.rest().split_at_checked(LENGTHS)?;
        let mut parts = [&b""[..]; PARTS];
        for (part, length) in parts.iter_mut().zip(lengths.as_chunks::<2>().0) {
            (*part, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
        }
        let [caller, callee, caller_contact, callee_contact] = parts;
        let call_id = self.call_id();
        Some(DialogView { call_id, caller, callee, caller_contact, callee_contact, record_routes: rest })
    }
}
