//! STUN keep-alives on the port of SIP (RFC 5626 §8): Binding requests are answered with the sender's address.
//!
//! The format is that of RFC 8489. Authentication, FINGERPRINT and SOFTWARE are not used (RFC 5626 §8 requires only
//! XOR-MAPPED-ADDRESS). The first byte of a STUN message is 0 or 1, which no SIP message starts with.
//!
//! A response contains as little as possible, because its destination may be forged. It is at most twice as long as
//! the request; only over IPv6 the response to a request without attributes is 44 bytes for 20. With the headers of IP
//! and UDP it is 1.4 times as long.

use std::net::{IpAddr, SocketAddr};

/// Length of the longest response, in bytes.
pub const MAX_RESPONSE: usize = HEADER + 8 + 4 + 2 * MAX_LISTED;

/// Length of the header of a STUN message, in bytes.
const HEADER: usize = 20;
const MAGIC_COOKIE: u32 = 0x2112_A442;
/// Unknown attributes that an error lists. More say nothing new.
const MAX_LISTED: usize = 16;

const BINDING_REQUEST: u16 = 0x0001;
const BINDING_SUCCESS: u16 = 0x0101;
const BINDING_ERROR: u16 = 0x0111;

const MESSAGE_INTEGRITY: u16 = 0x0008;
const ERROR_CODE: u16 = 0x0009;
const UNKNOWN_ATTRIBUTES: u16 = 0x000A;
const MESSAGE_INTEGRITY_SHA256: u16 = 0x001C;
const XOR_MAPPED_ADDRESS: u16 = 0x0020;

/// How a datagram was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is not STUN.
    NotStun,
    /// It is STUN, but nothing is sent: an indication, a response, another method, or malformed.
    Ignored,
    /// A Binding request. The response is the first bytes of the caller's buffer.
    Success(usize),
    /// A Binding request with attributes that must be understood and are unknown. The response, an error 420, is the
    /// first bytes of the caller's buffer.
    UnknownAttributes(usize),
}

/// Returns whether a datagram is STUN: two zero bits, the magic cookie, and its own length in the header.
#[must_use]
pub fn is_stun(datagram: &[u8]) -> bool {
    Message::parse(datagram).is_some()
}

/// Handles a datagram from `source`; a response is written to `out`.
//= rfc5626#8:xor-mapped
#[must_use]
pub fn handle_datagram(datagram: &[u8], source: SocketAddr, out: &mut [u8; MAX_RESPONSE]) -> Outcome {
    let Some(message) = Message::parse(datagram) else { return Outcome::NotStun };
    if message.kind != BINDING_REQUEST {
        return Outcome::Ignored;
    }
    let Some(unknown) = UnknownAttributes::find(message.attributes) else { return Outcome::Ignored };
    let mut response = Response::begin(message.transaction, out);
    if unknown.is_empty() {
        response.put_xor_mapped_address(source);
        Outcome::Success(response.finish(BINDING_SUCCESS))
    } else {
        // The reason phrase is empty: the response must be short.
        response.put_attribute(ERROR_CODE, &[0, 0, 4, 20]);
        response.put_attribute(UNKNOWN_ATTRIBUTES, unknown.as_bytes());
        Outcome::UnknownAttributes(response.finish(BINDING_ERROR))
    }
}

/// A STUN message.
#[derive(Clone, Copy, Debug)]
struct Message<'a> {
    kind: u16,
    transaction: &'a [u8; 12],
    attributes: &'a [u8],
}

impl<'a> Message<'a> {
    fn parse(datagram: &'a [u8]) -> Option<Self> {
        let (kind, rest) = datagram.split_first_chunk()?;
        let kind = u16::from_be_bytes(*kind);
        if kind & 0xC000 != 0 {
            return None;
        }
        let (length, rest) = rest.split_first_chunk()?;
        let (cookie, rest) = rest.split_first_chunk()?;
        let (transaction, attributes) = rest.split_first_chunk()?;
        let is_whole =
            usize::from(u16::from_be_bytes(*length)) == attributes.len() && attributes.len().is_multiple_of(4);
        (is_whole && u32::from_be_bytes(*cookie) == MAGIC_COOKIE).then_some(Self { kind, transaction, attributes })
    }
}

/// The attributes of a request that must be understood and are unknown: two bytes each.
#[derive(Clone, Copy, Debug)]
struct UnknownAttributes {
    types: [u8; 2 * MAX_LISTED],
    length: usize,
}

impl UnknownAttributes {
    /// Finds them; `None` if the attributes are malformed.
    fn find(mut attributes: &[u8]) -> Option<Self> {
        let mut found = Self { types: [0; 2 * MAX_LISTED], length: 0 };
        while !attributes.is_empty() {
            let (kind, rest) = attributes.split_first_chunk()?;
            let (length, rest) = rest.split_first_chunk()?;
            let padded = usize::from(u16::from_be_bytes(*length)).next_multiple_of(4);
            attributes = rest.get(padded..)?;
            match u16::from_be_bytes(*kind) {
                // What follows the integrity is not protected by it and ignored (RFC 8489 §14.5).
                MESSAGE_INTEGRITY | MESSAGE_INTEGRITY_SHA256 => break,
                kind if is_unknown(kind) => found.push(kind),
                _ => {}
            }
        }
        Some(found)
    }

    fn push(&mut self, kind: u16) {
        if let Some(place) = self.types.get_mut(self.length..self.length.saturating_add(2)) {
            place.copy_from_slice(&kind.to_be_bytes());
            self.length = self.length.saturating_add(2);
        }
    }

    fn is_empty(&self) -> bool {
        self.length == 0
    }

    fn as_bytes(&self) -> &[u8] {
        self.types.get(..self.length).unwrap_or_default()
    }
}

/// Returns whether an attribute must be understood and is not one of RFC 8489 §18.3. Those are ignored even if they make
/// no sense in a request (§6.3.1).
fn is_unknown(kind: u16) -> bool {
    !matches!(kind, 0x0001 | 0x0006 | 0x0008..=0x000A | 0x0014 | 0x0015 | 0x001C..=0x001E | 0x0020 | 0x8000..)
}

/// A response in the caller's buffer.
#[derive(Debug)]
struct Response<'a> {
    transaction: &'a [u8; 12],
    out: &'a mut [u8; MAX_RESPONSE],
    length: usize,
}

impl<'a> Response<'a> {
    fn begin(transaction: &'a [u8; 12], out: &'a mut [u8; MAX_RESPONSE]) -> Self {
        Self { transaction, out, length: HEADER }
    }

    /// RFC 8489 §14.2.
    fn put_xor_mapped_address(&mut self, address: SocketAddr) {
        let mut mask = [0; 16];
        let (cookie, rest) = mask.split_at_mut(4);
        cookie.copy_from_slice(&MAGIC_COOKIE.to_be_bytes());
        rest.copy_from_slice(self.transaction);
        let mut value = [0; 20];
        let (family, length) = match address.ip().to_canonical() {
            IpAddr::V4(ip) => (1, put_masked(&mut value, &ip.octets(), &mask)),
            IpAddr::V6(ip) => (2, put_masked(&mut value, &ip.octets(), &mask)),
        };
        let [port_high, port_low] = (address.port() ^ 0x2112).to_be_bytes();
        if let Some(head) = value.first_chunk_mut() {
            *head = [0, family, port_high, port_low];
        }
        self.put_attribute(XOR_MAPPED_ADDRESS, value.get(..length).unwrap_or_default());
    }

    /// Appends an attribute with its padding.
    fn put_attribute(&mut self, kind: u16, value: &[u8]) {
        let length = u16::try_from(value.len()).unwrap_or(u16::MAX);
        self.put(&kind.to_be_bytes());
        self.put(&length.to_be_bytes());
        self.put(value);
        let padding = value.len().next_multiple_of(4).saturating_sub(value.len());
        self.put([0; 4].get(..padding).unwrap_or_default());
    }

    fn put(&mut self, bytes: &[u8]) {
        let end = self.length.saturating_add(bytes.len());
        let place = self.out.get_mut(self.length..end);
        debug_assert!(place.is_some(), "MAX_RESPONSE is the longest response");
        if let Some(place) = place {
            place.copy_from_slice(bytes);
            self.length = end;
        }
    }

    /// Writes the header; returns the length of the response.
    fn finish(self, kind: u16) -> usize {
        let length = u16::try_from(self.length.saturating_sub(HEADER)).unwrap_or(u16::MAX);
        let header = [
            &kind.to_be_bytes()[..],
            &length.to_be_bytes()[..],
            &MAGIC_COOKIE.to_be_bytes()[..],
            &self.transaction[..],
        ];
        for (place, byte) in self.out.iter_mut().zip(header.into_iter().flatten()) {
            *place = *byte;
        }
        self.length
    }
}

/// Writes an address behind four bytes; returns the length of both.
fn put_masked(value: &mut [u8; 20], address: &[u8], mask: &[u8; 16]) -> usize {
    for ((place, byte), mask) in value.iter_mut().skip(4).zip(address).zip(mask) {
        *place = byte ^ mask;
    }
    address.len().saturating_add(4)
}

#[cfg(test)]
mod tests;
