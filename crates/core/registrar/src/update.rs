//! A parsed REGISTER.

use smallvec::SmallVec;
use strowger_message::{Aor, HeaderName, Message, NameAddr, Uri, parse_decimal, parse_q};

use crate::gruu::{MAX_INSTANCE_LEN, read_instance, same_instance};
use crate::record::contact_key;
use crate::refusal::Refusal;
use crate::version_table::ContactKey;

/// Maximum number of contacts in one REGISTER. Each is compared with every other, so the number is bounded whatever
/// the policy.
pub const MAX_CONTACTS_IN_REGISTER: usize = 128;

/// Maximum length of all Path values of one REGISTER, in bytes; they are stored with each of its contacts.
pub const MAX_PATH_LEN: usize = 2048;

/// Maximum length of a contact URI, in bytes.
pub const MAX_CONTACT_LEN: usize = 2048;

/// The values of Path, in order.
pub type Path<'a> = SmallVec<[&'a [u8]; 2]>;

/// The contents of one REGISTER.
#[derive(Clone, Debug)]
pub struct Update<'a> {
    /// The Call-ID, which orders the updates of one client together with `cseq`.
    pub call_id: &'a [u8],
    /// The number of CSeq.
    pub cseq: u32,
    /// The Path; its first value is the next hop of a request to the contacts (RFC 3327 §5.3).
    pub path: Path<'a>,
    /// The extensions that the client supports.
    pub supported: OptionTags,
    /// Whether no proxy is between the client and this server.
    pub is_first_hop: bool,
    /// The requested change.
    pub kind: UpdateKind<'a>,
}

/// Option tags in Supported that matter to a registrar.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OptionTags {
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
    /// No Contact: a query for the current bindings.
    Fetch,
    /// `Contact: *` with `Expires: 0`.
    RemoveAll,
    /// Bindings to add, refresh and remove.
    Contacts(SmallVec<[ContactUpdate<'a>; 1]>),
}

/// One Contact.
#[derive(Clone, Copy, Debug)]
pub struct ContactUpdate<'a> {
    /// The URI, with its original bytes.
    pub uri: Uri<'a>,
    /// The requested expiry in seconds, 0 to remove; `None` for the registrar's default.
    pub expires_s: Option<u32>,
    /// The preference in thousandths, 0 to 1000, if given.
    pub q: Option<u16>,
    /// The instance ID of `+sip.instance`, without quotes and brackets; empty for none.
    pub instance: &'a [u8],
    /// The `reg-id`, if it applies: with an instance and a first hop that supports flows (RFC 5626 §6).
    pub reg_id: Option<u32>,
}

/// The parameters of a Contact; see [`ContactUpdate`].
pub(crate) struct ContactParams<'a> {
    pub(crate) expires_s: Option<u32>,
    pub(crate) q: Option<u16>,
    pub(crate) instance: &'a [u8],
    pub(crate) reg_id: Option<u32>,
}

impl<'a> Update<'a> {
    //= rfc3261#10.3:ignores-record-route
    /// Parses every Contact, Expires, Path and Supported of a REGISTER.
    ///
    /// A Path is accepted even if the client does not list it in Supported: RFC 3327 §5.3 recommends 420 but leaves
    /// it to the registrar, and without the Path a client behind such a proxy would be unreachable. Only the response
    /// contains no Path then.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`] if a Contact, one of its parameters that the registrar reads, or a Path is malformed,
    /// Expires is repeated, `*` is not alone or lacks `Expires: 0`, or a flow is registered together with other
    /// contacts; [`Refusal::TooManyContacts`] above [`MAX_CONTACTS_IN_REGISTER`]; [`Refusal::FirstHopLacksOutbound`]
    /// if a flow is registered through a proxy that does not support flows.
    pub fn read(message: &Message<'a>) -> Result<Self, Refusal> {
        let expires =
            message.head().only(HeaderName::Expires).map_err(|_| Refusal::BadRequest("Repeated Expires Header"))?;
        let expires_s = expires.and_then(read_seconds);
        let supported = OptionTags::read(message);
        //= rfc5626#6:first-hop
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
        //= rfc3261#10.2.2:star
        //= rfc3261#10.3:star-alone
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

    //= rfc5626#6:require
    /// Returns whether the response must contain `Require: outbound`.
    #[must_use]
    pub fn uses_outbound(&self) -> bool {
        let UpdateKind::Contacts(contacts) = &self.kind else { return false };
        self.supported.outbound && contacts.iter().any(|contact| contact.reg_id.is_some())
    }

    //= rfc5626#6:stored
    /// Returns the values of Path as one list.
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

impl OptionTags {
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

//= rfc5626#6:no-outbound
/// Checks flows. A `reg-id` applies only if the first hop supports flows, and must then be the only contact.
fn check_flows(contacts: &mut [ContactUpdate<'_>], supported: OptionTags, can_keep: bool) -> Result<(), Refusal> {
    if contacts.iter().all(|contact| contact.reg_id.is_none()) {
        return Ok(());
    }
    if can_keep {
        let stays = |contact: &&ContactUpdate<'_>| contact.expires_s != Some(0);
        let alone = contacts.iter().filter(stays).count() <= 1;
        let stays_by_flow = contacts.iter().filter(stays).any(|contact| contact.reg_id.is_some());
        //= rfc5626#6:one-flow
        return if alone || !stays_by_flow { Ok(()) } else { Err(Refusal::BadRequest("reg-id Beside Others")) };
    }
    //= rfc5626#11.6:only-asked
    if supported.outbound {
        //= rfc5626#6:439
        return Err(Refusal::FirstHopLacksOutbound);
    }
    for contact in contacts {
        //= rfc5626#6:reg-id-ignored
        contact.reg_id = None;
    }
    Ok(())
}

//= rfc5626#6:path-examined
/// Returns the values, and whether the proxy next to the client supports flows.
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
        // Each proxy adds its value in front, so the last value belongs to the proxy next to the client.
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
        //= rfc3261#10.3:expires-parameter
        //= rfc3261#10.3:expires-header
        // A parameter overrides the header even if malformed; a malformed value counts as none given (§20.10, §10.2.1.1).
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
        // Without an instance a reg-id has no meaning.
        let reg_id = match contact.params.find("reg-id").filter(|_| !instance.is_empty()) {
            Some(param) => Some(param.value.and_then(read_reg_id).ok_or(Refusal::BadRequest("Bad Contact reg-id"))?),
            None => None,
        };
        Ok(ContactParams { expires_s, q, instance, reg_id })
    }

    /// Returns its key, which is the same in all members.
    pub(crate) fn key(&self, aor: &[u8]) -> ContactKey {
        contact_key(aor, self.uri.as_bytes(), self.instance, self.reg_id.unwrap_or(0))
    }

    /// Returns whether its URI is `uri`; equal bytes need no parsing.
    pub(crate) fn has_uri(&self, uri: &[u8]) -> bool {
        uri == self.uri.as_bytes() || Uri::parse(uri).is_some_and(|uri| uri.same(&self.uri))
    }

    //= rfc5626#6:flow-updated
    //= rfc5626#6:time-updated
    /// Returns whether both denote one binding: the same flow of the same instance or, without a flow, the same URI.
    pub(crate) fn same(&self, other: &Self) -> bool {
        match (self.reg_id, other.reg_id) {
            (Some(one), Some(other_one)) => one == other_one && same_instance(self.instance, other.instance),
            (None, None) => self.uri.as_bytes() == other.uri.as_bytes() || self.uri.same(&other.uri),
            _ => false,
        }
    }
}

/// Parses delta-seconds. A larger number than 2^32−1 gives that; anything else gives `None`.
pub(crate) fn read_seconds(text: &[u8]) -> Option<u32> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    digits.then(|| parse_decimal(text).and_then(|seconds| u32::try_from(seconds).ok()).unwrap_or(u32::MAX))
}

//= rfc5626#10:reg-id
/// Parses a reg-id: 1 to 2^31−1 (RFC 5626 §10).
fn read_reg_id(text: &[u8]) -> Option<u32> {
    parse_decimal(text).and_then(|id| u32::try_from(id).ok()).filter(|id| (1..1 << 31).contains(id))
}

//= rfc5627#5.1
/// Checks that a contact with an instance does not resolve to its own address of record.
pub(crate) fn check_contact(aor: &[u8], contact: &ContactUpdate<'_>) -> Result<(), Refusal> {
    if contact.instance.is_empty() {
        return Ok(());
    }
    let Uri::Sip(uri) = &contact.uri else {
        return Err(Refusal::Forbidden("Contact With Instance Is No SIP URI"));
    };
    let own = Aor::new(uri.user.unwrap_or(&[]), uri.host_port.host);
    let domain = aor.rsplit(|byte| *byte == b'@').next().unwrap_or(&[]);
    let is_gruu = uri.params.contains("gr") && own.domain() == domain;
    let is_itself = own.as_bytes() == aor && uri.port().is_none() && !uri.params.contains("maddr");
    if is_gruu || is_itself {
        return Err(Refusal::Forbidden("Contact Is The Address Itself"));
    }
    Ok(())
}
