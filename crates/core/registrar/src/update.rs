//! A REGISTER as the location table understands it.

use smallvec::SmallVec;
use strowger_message::{HeaderName, Message, NameAddr, Uri, parse_decimal};

use crate::refusal::Refusal;

/// Contacts that one REGISTER may carry; each is compared with every other, so the number is bounded whatever the policy.
pub const MAX_CONTACTS_IN_REGISTER: usize = 128;

/// What one REGISTER asks for.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    /// Call-ID: orders the updates of one client, with `cseq`.
    pub call_id: &'a [u8],
    /// The number of CSeq.
    pub cseq: u32,
    /// What to do.
    pub kind: UpdateKind<'a>,
}

/// The three kinds of REGISTER.
#[expect(clippy::large_enum_variant, reason = "it lives on the stack for one REGISTER, and most have a Contact")]
#[derive(Clone, Debug)]
pub enum UpdateKind<'a> {
    /// No Contact: only the present bindings are asked for.
    Fetch,
    /// `Contact: *` with `Expires: 0`.
    RemoveAll,
    /// Bindings to add, to refresh and to remove.
    Contacts(SmallVec<[ContactUpdate<'a>; 4]>),
}

/// One Contact.
#[derive(Clone, Copy, Debug)]
pub struct ContactUpdate<'a> {
    /// The URI, with its bytes as they came.
    pub uri: Uri<'a>,
    /// The expiry that is asked for in seconds, 0 to remove; `None` leaves it to the registrar.
    pub expires_s: Option<u32>,
    /// The preference in thousandths, 0 to 1000, where one is given.
    pub q: Option<u16>,
}

impl<'a> Update<'a> {
    /// Reads every Contact and Expires of a REGISTER.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] where a Contact or its `q` breaks the grammar, Expires is repeated, or `*` is not alone or
    /// without `Expires: 0`; [`Refusal::TooManyContacts`] past [`MAX_CONTACTS_IN_REGISTER`].
    pub fn read(message: &Message<'a>) -> Result<Self, Refusal> {
        let expires =
            message.head().only(HeaderName::Expires).map_err(|_| Refusal::BadRequest("Repeated Expires Header"))?;
        let expires_s = expires.and_then(read_seconds);
        let mut contacts = SmallVec::new();
        let (mut elements, mut star) = (0usize, false);
        for element in message.head().elements(HeaderName::Contact) {
            elements = elements.saturating_add(1);
            if element == b"*" {
                star = true;
                continue;
            }
            if contacts.len() == MAX_CONTACTS_IN_REGISTER {
                return Err(Refusal::TooManyContacts);
            }
            contacts.push(ContactUpdate::read(element, expires_s)?);
        }
        //= rfc3261#10.2.2
        //= rfc3261#10.3 step 6
        let kind = match (star, elements) {
            (true, 1) if expires_s == Some(0) => UpdateKind::RemoveAll,
            (true, 1) => return Err(Refusal::BadRequest("Contact * Without Expires: 0")),
            (true, _) => return Err(Refusal::BadRequest("Contact * Beside Others")),
            (false, 0) => UpdateKind::Fetch,
            (false, _) => UpdateKind::Contacts(contacts),
        };
        Ok(Self { call_id: message.call_id(), cseq: message.cseq().number, kind })
    }
}

impl<'a> ContactUpdate<'a> {
    fn read(element: &'a [u8], expires_header_s: Option<u32>) -> Result<Self, Refusal> {
        const BAD: Refusal = Refusal::BadRequest("Bad Contact Header");
        let contact = NameAddr::parse(element).ok_or(BAD)?;
        let uri = contact.parse_uri().ok_or(BAD)?;
        //= rfc3261#10.3 step 7
        // The parameter decides before the header does; a malformed one says nothing (§20.10, §10.2.1.1).
        let expires_s = match contact.params.find("expires") {
            Some(param) => param.value.and_then(read_seconds),
            None => expires_header_s,
        };
        let q = match contact.params.find("q") {
            Some(param) => Some(param.value.and_then(read_q).ok_or(Refusal::BadRequest("Bad Contact q"))?),
            None => None,
        };
        Ok(Self { uri, expires_s, q })
    }
}

/// Delta-seconds; what exceeds 2^32−1 is that, what is no number is nothing.
fn read_seconds(text: &[u8]) -> Option<u32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| parse_decimal(text).and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(u32::MAX))
}

/// `qvalue = ( "0" [ "." 0*3DIGIT ] ) / ( "1" [ "." 0*3("0") ] )` in thousandths.
fn read_q(text: &[u8]) -> Option<u16> {
    let (whole, decimals) = match text {
        [whole] => (whole, &[][..]),
        [whole, b'.', decimals @ ..] => (whole, decimals),
        _ => return None,
    };
    let valid = decimals.len() <= 3 && decimals.iter().all(u8::is_ascii_digit);
    let thousandths =
        [100u16, 10, 1].iter().zip(decimals).map(|(unit, digit)| unit * u16::from(digit.wrapping_sub(b'0')));
    match whole {
        b'0' if valid => Some(thousandths.sum()),
        b'1' if valid && decimals.iter().all(|digit| *digit == b'0') => Some(1000),
        _ => None,
    }
}
