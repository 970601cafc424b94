//! Extraction of UDP and TCP payloads from frames, with VLAN tags and IP fragments.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use foldhash::fast::FixedState;
use hashbrown::HashMap;

use super::file::Frame;
use super::skipped::{Reason, SkipCounts};

/// Maximum number of packets being reassembled.
const MAX_PARTIAL: usize = 4_096;
/// Maximum number of fragments of a packet.
const MAX_FRAGMENTS: usize = 64;
/// Maximum size of an IP packet, in bytes.
const MAX_PACKET: usize = 65_535;

const UDP: u8 = 17;
const TCP: u8 = 6;

/// Payload of an IP packet.
#[derive(Debug)]
pub(super) enum Payload<'a> {
    Datagram(SocketAddr, SocketAddr, &'a [u8]),
    Segment(Segment<'a>),
}

/// A TCP segment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segment<'a> {
    pub source: SocketAddr,
    pub destination: SocketAddr,
    pub sequence: u32,
    pub is_syn: bool,
    /// Whether FIN or RST is set.
    pub is_last: bool,
    pub bytes: &'a [u8],
}

/// A packet with missing fragments.
#[derive(Debug, Default)]
struct Partial {
    parts: Vec<(usize, Vec<u8>)>,
    total: Option<usize>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct PacketId {
    source: IpAddr,
    destination: IpAddr,
    protocol: u8,
    number: u32,
}

/// Position of a fragment in its packet.
#[derive(Clone, Copy, Debug)]
struct FragmentPlace {
    offset: usize,
    more: bool,
}

/// Frame reader, which holds fragments until their packet is complete.
#[derive(Debug)]
pub(super) struct FrameReader {
    partial: HashMap<PacketId, Partial, FixedState>,
}

impl Default for FrameReader {
    fn default() -> Self {
        Self { partial: HashMap::with_hasher(FixedState::with_seed(1)) }
    }
}

impl FrameReader {
    /// Passes the payload of a frame to `each` if it is UDP or TCP and complete.
    pub(super) fn read(
        &mut self,
        frame: Frame<'_>,
        skipped: &mut SkipCounts,
        each: impl FnOnce(Payload<'_>, &mut SkipCounts),
    ) {
        let packet = match network_of(frame) {
            Ok(packet) => packet,
            Err(reason) => return skipped.add(reason),
        };
        let read = match packet.first().map(|byte| byte >> 4) {
            Some(4) => ipv4(packet),
            Some(6) => ipv6(packet),
            _ => Err(Reason::NoIp),
        };
        let (id, place, payload) = match read {
            Ok(read) => read,
            Err(reason) => return skipped.add(reason),
        };
        let whole;
        let payload = match place {
            None => payload,
            Some(place) => match self.put(id, place, payload, skipped) {
                None => return,
                Some(bytes) => {
                    whole = bytes;
                    &whole
                }
            },
        };
        match parse_payload(id, payload) {
            Ok(carried) => each(carried, skipped),
            Err(reason) => skipped.add(reason),
        }
    }

    /// Counts the fragments of packets that were never completed.
    pub(super) fn finish(self, skipped: &mut SkipCounts) {
        let left: usize = self.partial.values().map(|partial| partial.parts.len()).sum();
        skipped.add_many(Reason::Fragment, left as u64);
    }

    /// Adds a fragment and returns the packet once it is complete.
    fn put(&mut self, id: PacketId, place: FragmentPlace, bytes: &[u8], skipped: &mut SkipCounts) -> Option<Vec<u8>> {
        let is_full = self.partial.len() >= MAX_PARTIAL && !self.partial.contains_key(&id);
        if is_full || place.offset.saturating_add(bytes.len()) > MAX_PACKET {
            skipped.add(Reason::Fragment);
            return None;
        }
        let partial = self.partial.entry(id).or_default();
        if partial.parts.len() >= MAX_FRAGMENTS {
            skipped.add(Reason::Fragment);
            return None;
        }
        if !place.more {
            partial.total = Some(place.offset + bytes.len());
        }
        if !partial.parts.iter().any(|(offset, _)| *offset == place.offset) {
            partial.parts.push((place.offset, bytes.to_vec()));
        }
        let whole = partial.whole()?;
        self.partial.remove(&id);
        Some(whole)
    }
}

impl Partial {
    fn whole(&mut self) -> Option<Vec<u8>> {
        let total = self.total?;
        self.parts.sort_by_key(|(offset, _)| *offset);
        let mut whole = Vec::with_capacity(total);
        for (offset, bytes) in &self.parts {
            if *offset > whole.len() {
                return None;
            }
            // Where fragments overlap, the one with the lower offset wins.
            whole.extend_from_slice(bytes.get(whole.len() - offset..).unwrap_or(&[]));
        }
        (whole.len() >= total).then(|| {
            whole.truncate(total);
            whole
        })
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    let part = bytes.get(at..at + 2)?;
    Some(u16::from_be_bytes(part.try_into().ok()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let part = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(part.try_into().ok()?))
}

/// Returns the IP packet in a frame, by its link type.
fn network_of(frame: Frame<'_>) -> Result<&[u8], Reason> {
    let bytes = frame.bytes;
    let behind = |header: usize| bytes.get(header..).ok_or(Reason::Malformed);
    match frame.link {
        // NULL and LOOP: the address family, in the byte order of the capturing host.
        0 | 108 => behind(4),
        // Ethernet.
        1 => by_type(bytes, 12),
        // Raw IP; the number depends on the system.
        12 | 14 | 101 | 228 | 229 => Ok(bytes),
        // Linux cooked, versions 1 and 2.
        113 => by_type(bytes, 14),
        276 => match u16_at(bytes, 0).ok_or(Reason::Malformed)? {
            0x8100 | 0x88A8 => by_type(bytes, 18 + 2),
            0x0800 | 0x86DD => behind(20),
            _ => Err(Reason::NoIp),
        },
        _ => Err(Reason::Link),
    }
}

/// Returns the packet after the protocol type at offset `at` and any VLAN tags.
fn by_type(bytes: &[u8], mut at: usize) -> Result<&[u8], Reason> {
    for _ in 0..4 {
        match u16_at(bytes, at).ok_or(Reason::Malformed)? {
            0x0800 | 0x86DD => return bytes.get(at + 2..).ok_or(Reason::Malformed),
            0x8100 | 0x88A8 | 0x9100 => at += 4,
            _ => return Err(Reason::NoIp),
        }
    }
    Err(Reason::NoIp)
}

type Packet<'a> = (PacketId, Option<FragmentPlace>, &'a [u8]);

fn ipv4(packet: &[u8]) -> Result<Packet<'_>, Reason> {
    let bad = Reason::Malformed;
    let header = usize::from(packet.first().ok_or(bad)? & 0x0F) * 4;
    let total = usize::from(u16_at(packet, 2).ok_or(bad)?);
    // With segmentation offload, the length is still zero.
    let total = if total == 0 { packet.len() } else { total };
    if header < 20 {
        return Err(bad);
    }
    let payload = packet.get(header..total).ok_or(if total > packet.len() { Reason::Truncated } else { bad })?;
    let address = |at| u32_at(packet, at).map(|bits| IpAddr::V4(Ipv4Addr::from_bits(bits)));
    let fragment = u16_at(packet, 6).ok_or(bad)?;
    let place = FragmentPlace { offset: usize::from(fragment & 0x1FFF) * 8, more: fragment & 0x2000 != 0 };
    let id = PacketId {
        source: address(12).ok_or(bad)?,
        destination: address(16).ok_or(bad)?,
        protocol: *packet.get(9).ok_or(bad)?,
        number: u32::from(u16_at(packet, 4).ok_or(bad)?),
    };
    Ok((id, (place.more || place.offset > 0).then_some(place), payload))
}

fn ipv6(packet: &[u8]) -> Result<Packet<'_>, Reason> {
    let bad = Reason::Malformed;
    let length = usize::from(u16_at(packet, 4).ok_or(bad)?);
    let length = if length == 0 { packet.len().saturating_sub(40) } else { length };
    let mut rest = packet.get(40..40 + length).ok_or(Reason::Truncated)?;
    let address = |at: usize| {
        let bytes: [u8; 16] = packet.get(at..at + 16)?.try_into().ok()?;
        Some(IpAddr::V6(Ipv6Addr::from(bytes)))
    };
    let (source, destination) = (address(8).ok_or(bad)?, address(24).ok_or(bad)?);
    let mut id = PacketId { source, destination, protocol: *packet.get(6).ok_or(bad)?, number: 0 };
    let mut place = None;
    // Extension headers (RFC 8200 §4).
    for _ in 0..8 {
        let header = match id.protocol {
            0 | 43 | 60 => 8 + usize::from(*rest.get(1).ok_or(bad)?) * 8,
            44 => {
                let bits = u16_at(rest, 2).ok_or(bad)?;
                place = Some(FragmentPlace { offset: usize::from(bits & 0xFFF8), more: bits & 1 != 0 });
                id.number = u32_at(rest, 4).ok_or(bad)?;
                8
            }
            _ => break,
        };
        id.protocol = *rest.first().ok_or(bad)?;
        rest = rest.get(header..).ok_or(bad)?;
        if place.is_some_and(|place| place.offset > 0) {
            // The header of a later fragment is followed by the middle of the packet.
            break;
        }
    }
    let place = place.filter(|place| place.more || place.offset > 0);
    Ok((id, place, rest))
}

fn parse_payload(id: PacketId, payload: &[u8]) -> Result<Payload<'_>, Reason> {
    let bad = Reason::Malformed;
    if !matches!(id.protocol, UDP | TCP) {
        return Err(Reason::Protocol);
    }
    let source = SocketAddr::new(id.source, u16_at(payload, 0).ok_or(bad)?);
    let destination = SocketAddr::new(id.destination, u16_at(payload, 2).ok_or(bad)?);
    if id.protocol == UDP {
        let length = usize::from(u16_at(payload, 4).ok_or(bad)?);
        let end = if length == 0 { payload.len() } else { length };
        let bytes = payload.get(8..end).ok_or(if end > payload.len() { Reason::Truncated } else { bad })?;
        return Ok(Payload::Datagram(source, destination, bytes));
    }
    let header = usize::from(payload.get(12).ok_or(bad)? >> 4) * 4;
    let flags = *payload.get(13).ok_or(bad)?;
    if header < 20 {
        return Err(bad);
    }
    Ok(Payload::Segment(Segment {
        source,
        destination,
        sequence: u32_at(payload, 4).ok_or(bad)?,
        is_syn: flags & 0x02 != 0,
        is_last: flags & 0x05 != 0,
        bytes: payload.get(header..).ok_or(bad)?,
    }))
}
