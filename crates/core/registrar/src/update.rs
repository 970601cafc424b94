//! A REGISTER as the location table understands it.

use smallvec::SmallVec;
use strowger_message::{HeaderName, Message, NameAddr, Uri, parse_decimal, parse_q};

use crate::gruu::{MAX_INSTANCE_LEN, read_instance, same_instance};
use crate::record::contact_key;
use crate::refusal::Refusal;
use crate::version_table::ContactKey;

/// Contacts that one REGISTER may carry; each is compared with every other, so the number is bounded whatever the policy.
pub const MAX_CONTACTS_IN_REGISTER: usize = 128;

/// Bytes of all Path values of one REGISTER; they are kept with each of its contacts.
pub const MAX_PATH_LEN: usize = 2048;

/// Bytes of a contact's URI.
pub const MAX_CONTACT_LEN: usize = 2048;

/// The values of Path in their order.
pub type Path<'a> = SmallVec<[&'a [u8]; 2]>;

/// What one REGISTER asks for.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    /// Call-ID: orders the updates of one client, with `cseq`.
    pub call_id: &'a [u8],
    /// The number of CSeq.
    pub cseq: u32,
    /// The way back: its first value is the next hop of a request to the contacts (RFC 3327 §5.3).
    pub path: Path<'a>,
    /// What the client says to support.
    pub supported: Supported,
    /// No proxy is between the client and us.
    pub is_first_hop: bool,
    /// What to do.
    pub kind: UpdateKind<'a>,
}

/// Option tags of Supported that a registrar looks at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Supported {
    /// `outbound` (RFC 5626).
    pub outbound: bool,
    /// `gruu` (RFC 5627).
    pub gruu: bool,
    /// `path` (RFC 3327).
    pub path: bool,
}

/// The three kinds of REGISTER.
#[derive(Clone, Debug)]
pub enum UpdateKind<'a> {
    /// No Contact: only the present bindings are asked for.
    Fetch,
    /// `Contact: *` with `Expires: 0`.
    RemoveAll,
    /// Bindings to add, to refresh and to remove.
    Contacts(SmallVec<[ContactUpdate<'a>; 1]>),
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
    /// The name in `+sip.instance`, without quotes and brackets; empty for none.
    pub instance: &'a [u8],
    /// `reg-id` where it counts: with an instance, and where the first hop keeps flows (RFC 5626 §6).
    pub reg_id: Option<u32>,
}

/// What the parameters of a Contact say; see [`ContactUpdate`].
pub(crate) struct ContactParams<'a> {
    pub(crate) expires_s: Option<u32>,
    pub(crate) q: Option<u16>,
    pub(crate) instance: &'a [u8],
    pub(crate) reg_id: Option<u32>,
}

impl<'a> Update<'a> {
    /// Reads every Contact, Expires, Path and Supported of a REGISTER.
    ///
    /// A Path is taken also where the client does not say that it supports it: RFC 3327 §5.3 recommends 420 but leaves it to
    /// the registrar, and without the Path nothing would reach who is behind such a proxy. Only the answer lists no Path then.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] where a Contact, one of its parameters that we read, or a Path breaks the grammar, Expires is
    /// repeated, `*` is not alone or without `Expires: 0`, or a flow is registered beside other contacts;
    /// [`Refusal::TooManyContacts`] past [`MAX_CONTACTS_IN_REGISTER`]; [`Refusal::FirstHopLacksOutbound`] where a flow is
    /// registered through a proxy that keeps none.
    pub fn read(message: &Message<'a>) -> Result<Self, Refusal> {
        let expires =
            message.head().only(HeaderName::Expires).map_err(|_| Refusal::BadRequest("Repeated Expires Header"))?;
        let expires_s = expires.and_then(read_seconds);
        let supported = Supported::read(message);
        let first_hop = message.has_one_via();
        let (path, path_is_outbound) = read_path(message)?;
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
            (false, _) => {
                check_flows(&mut contacts, supported, first_hop || path_is_outbound)?;
                UpdateKind::Contacts(contacts)
            }
        };
        let (call_id, cseq) = (message.call_id(), message.cseq().number);
        Ok(Self { call_id, cseq, path, supported, is_first_hop: first_hop, kind })
    }

    //= rfc5626#6
    /// Whether the answer must say `Require: outbound`.
    #[must_use]
    pub fn uses_outbound(&self) -> bool {
        let UpdateKind::Contacts(contacts) = &self.kind else { return false };
        self.supported.outbound && contacts.iter().any(|contact| contact.reg_id.is_some())
    }

    /// The values of Path as one.
    pub(crate) fn joined_path(&self) -> SmallVec<[u8; 64]> {
        let mut joined = SmallVec::new();
        for value in &self.path {
            if !joined.is_empty() {
                joined.extend_from_slice(b", ");
            }
            joined.extend_from_slice(value);
        }
        joined
    }
}

impl Supported {
    fn read(message: &Message<'_>) -> Self {
        let mut supported = Self::default();
        if message.head().first(HeaderName::Supported).is_none() {
            return supported;
        }
        for tag in message.head().elements(HeaderName::Supported) {
            supported.outbound |= tag.eq_ignore_ascii_case(b"outbound");
            supported.gruu |= tag.eq_ignore_ascii_case(b"gruu");
            supported.path |= tag.eq_ignore_ascii_case(b"path");
        }
        supported
    }
}

//= rfc5626#6
/// A `reg-id` counts only where the first hop can keep the flow; and then it comes alone.
fn check_flows(contacts: &mut [ContactUpdate<'_>], supported: Supported, can_keep: bool) -> Result<(), Refusal> {
    if contacts.iter().all(|contact| contact.reg_id.is_none()) {
        return Ok(());
    }
    if can_keep {
        let stays = |contact: &&ContactUpdate<'_>| contact.expires_s != Some(0);
        let alone = contacts.iter().filter(stays).count() <= 1;
        let stays_by_flow = contacts.iter().filter(stays).any(|contact| contact.reg_id.is_some());
        return if alone || !stays_by_flow { Ok(()) } else { Err(Refusal::BadRequest("reg-id Beside Others")) };
    }
    if supported.outbound {
        return Err(Refusal::FirstHopLacksOutbound);
    }
    for contact in contacts {
        contact.reg_id = None;
    }
    Ok(())
}

/// The values, and whether the proxy next to the client keeps flows.
fn read_path<'a>(message: &Message<'a>) -> Result<(Path<'a>, bool), Refusal> {
    const BAD: Refusal = Refusal::BadRequest("Bad Path Header");
    let (mut path, mut outbound, mut length) = (Path::new(), false, 0usize);
    if message.head().first(HeaderName::Path).is_none() {
        return Ok((path, outbound));
    }
    for value in message.head().elements(HeaderName::Path) {
        let uri = NameAddr::parse(value).filter(|value| value.text.contains(&b'<')).and_then(|value| value.parse_uri());
        let Some(Uri::Sip(uri)) = uri else { return Err(BAD) };
        //= rfc5626#5.1
        // Each proxy writes its value before the others', so that the last is the one next to the client.
        outbound = uri.params.contains("ob");
        length = length.saturating_add(value.len()).saturating_add(2);
        path.push(value);
    }
    if length > MAX_PATH_LEN { Err(Refusal::BadRequest("Path Too Long")) } else { Ok((path, outbound)) }
}

impl<'a> ContactUpdate<'a> {
    fn read(element: &'a [u8], expires_header_s: Option<u32>) -> Result<Self, Refusal> {
        const BAD: Refusal = Refusal::BadRequest("Bad Contact Header");
        let contact = NameAddr::parse(element).ok_or(BAD)?;
        let uri = contact.parse_uri().ok_or(BAD)?;
        if uri.as_bytes().len() > MAX_CONTACT_LEN {
            return Err(Refusal::BadRequest("Contact Too Long"));
        }
        Self::read_params(&contact, expires_header_s).map(|params| Self {
            uri,
            expires_s: params.expires_s,
            q: params.q,
            instance: params.instance,
            reg_id: params.reg_id,
        })
    }

    pub(crate) fn read_params(
        contact: &NameAddr<'a>,
        expires_header_s: Option<u32>,
    ) -> Result<ContactParams<'a>, Refusal> {
        //= rfc3261#10.3 step 7
        // The parameter decides before the header does; a malformed one says nothing (§20.10, §10.2.1.1).
        let expires_s = match contact.params.find("expires") {
            Some(param) => param.value.and_then(read_seconds),
            None => expires_header_s,
        };
        let q = match contact.params.find("q") {
            Some(param) => Some(param.value.and_then(parse_q).ok_or(Refusal::BadRequest("Bad Contact q"))?),
            None => None,
        };
        let instance = contact.params.value("+sip.instance").and_then(read_instance).unwrap_or(&[]);
        if instance.len() > MAX_INSTANCE_LEN {
            return Err(Refusal::BadRequest("Instance Too Long"));
        }
        //= rfc5626#6
        // Without an instance a reg-id says nothing.
        let reg_id = match contact.params.find("reg-id").filter(|_| !instance.is_empty()) {
            Some(param) => Some(param.value.and_then(read_reg_id).ok_or(Refusal::BadRequest("Bad Contact reg-id"))?),
            None => None,
        };
        Ok(ContactParams { expires_s, q, instance, reg_id })
    }

    /// Names it in all servers.
    pub(crate) fn key(&self, aor: &[u8]) -> ContactKey {
        contact_key(aor, self.uri.as_bytes(), self.instance, self.reg_id.unwrap_or(0))
    }

    /// Whether its URI is `uri`; the same bytes need no reading.
    pub(crate) fn has_uri(&self, uri: &[u8]) -> bool {
        uri == self.uri.as_bytes() || Uri::parse(uri).is_some_and(|uri| uri.same(&self.uri))
    }

    //= rfc5626#6
    /// Whether both are one binding: the same flow of the same instance, or without a flow the same URI.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self.reg_id, other.reg_id) {
            (Some(one), Some(other_one)) => one == other_one && same_instance(self.instance, other.instance),
            (None, None) => self.uri.as_bytes() == other.uri.as_bytes() || self.uri.same(&other.uri),
            _ => false,
        }
    }
}

/// Delta-seconds; what exceeds 2^32−1 is that, what is no number is nothing.
pub(crate) fn read_seconds(text: &[u8]) -> Option<u32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| parse_decimal(text).and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(u32::MAX))
}

/// 1 to 2^31−1 (RFC 5626 §10).
fn read_reg_id(text: &[u8]) -> Option<u32> {
    parse_decimal(text).and_then(|id| u32::try_from(id).ok()).filter(|id| (1..1 << 31).contains(id))
}
