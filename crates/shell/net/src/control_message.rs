//! Parser for control messages received with a datagram: timestamps, drop counts, ICMP errors and send timestamps.

use std::mem::size_of;

use crate::clock::RealNanos;

/// Sizes in the control message header: total length as `size_t`, level and type as `int`.
const LENGTH_BYTES: usize = size_of::<usize>();
const HEADER_BYTES: usize = LENGTH_BYTES + 8;

const _: () = assert!(size_of::<libc::cmsghdr>() == HEADER_BYTES);

/// Control data received with a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct ControlData {
    /// Time at which the kernel received the datagram (`SO_TIMESTAMPNS`).
    pub(crate) stamp: Option<RealNanos>,
    /// Number of datagrams the socket had dropped when it queued this one, modulo 2^32 (`SO_RXQ_OVFL`).
    pub(crate) drops: Option<u32>,
}

/// Parses the control messages of a received datagram.
pub(crate) fn read_control(control: &[u8]) -> ControlData {
    let mut beside = ControlData::default();
    for (level, kind, data) in (Messages { rest: control }) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => beside.stamp = read_timespec(data),
            (libc::SOL_SOCKET, libc::SO_RXQ_OVFL) => beside.drops = data.first_chunk().map(|n| u32::from_ne_bytes(*n)),
            _ => {}
        }
    }
    beside
}

/// A message of a socket's error queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queued {
    /// An error about a sent datagram, by its number; `None` if the kernel did not provide it.
    Error(Option<i32>),
    /// A sent datagram has reached the device. The key counts the datagrams for which this was requested.
    Sent { key: u32, at: RealNanos },
}

/// Reads a message of the error queue: `sock_extended_err`, and a timestamp if it is one of a sent datagram.
pub(crate) fn read_queued(control: &[u8]) -> Queued {
    let is_error = |level, kind| {
        (level, kind) == (libc::SOL_IP, libc::IP_RECVERR) || (level, kind) == (libc::SOL_IPV6, libc::IPV6_RECVERR)
    };
    let mut messages = Messages { rest: control };
    let Some((_, _, data)) = messages.find(|(level, kind, _)| is_error(*level, *kind)) else {
        return Queued::Error(None);
    };
    match data {
        [_, _, _, _, libc::SO_EE_ORIGIN_TIMESTAMPING, _, _, _, _, _, _, _, key @ ..] => {
            let is_stamp = |level, kind| (level, kind) == (libc::SOL_SOCKET, libc::SO_TIMESTAMPING);
            let stamp = Messages { rest: control }.find(|(level, kind, _)| is_stamp(*level, *kind));
            match (key.first_chunk(), stamp.and_then(|(_, _, data)| read_timespec(data))) {
                (Some(key), Some(at)) => Queued::Sent { key: u32::from_ne_bytes(*key), at },
                _ => Queued::Error(None),
            }
        }
        data => Queued::Error(data.first_chunk().map(|errno| i32::from_ne_bytes(*errno))),
    }
}

fn read_timespec(data: &[u8]) -> Option<RealNanos> {
    const HALF: usize = size_of::<libc::time_t>();
    const _: () = assert!(HALF == 8 && size_of::<libc::timespec>() == 2 * HALF, "written for 64-bit time");
    let (seconds, rest) = data.split_first_chunk::<HALF>()?;
    let nanos = rest.first_chunk::<HALF>()?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds)).ok()?;
    let nanos = u64::try_from(i64::from_ne_bytes(*nanos)).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos).map(RealNanos)
}

/// Iterator over the control messages in a buffer as (level, type, data); stops at the first incomplete one.
struct Messages<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Messages<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let (length, after) = self.rest.split_first_chunk::<LENGTH_BYTES>()?;
        let length = usize::from_ne_bytes(*length);
        let (level, after) = after.split_first_chunk::<4>()?;
        let (kind, _) = after.split_first_chunk::<4>()?;
        let data = self.rest.get(HEADER_BYTES..length)?;
        let aligned = length.checked_next_multiple_of(LENGTH_BYTES)?;
        self.rest = self.rest.get(aligned..).unwrap_or_default();
        Some((i32::from_ne_bytes(*level), i32::from_ne_bytes(*kind), data))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(level: i32, kind: i32, data: &[u8]) -> Vec<u8> {
        let mut bytes = (HEADER_BYTES + data.len()).to_ne_bytes().to_vec();
        bytes.extend(level.to_ne_bytes());
        bytes.extend(kind.to_ne_bytes());
        bytes.extend(data);
        bytes.resize(bytes.len().next_multiple_of(LENGTH_BYTES), 0);
        bytes
    }

    fn stamp(seconds: i64, nanos: i64) -> Vec<u8> {
        message(libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS, &[seconds.to_ne_bytes(), nanos.to_ne_bytes()].concat())
    }

    #[test]
    fn stamp_and_drop_count_are_parsed() {
        let drops = message(libc::SOL_SOCKET, libc::SO_RXQ_OVFL, &7_u32.to_ne_bytes());
        let other = message(libc::SOL_IP, libc::IP_TOS, &[1]);
        let beside = read_control(&[other, drops, stamp(3, 9)].concat());
        assert_eq!(beside, ControlData { stamp: Some(RealNanos(3_000_000_009)), drops: Some(7) });
        assert_eq!(read_control(&stamp(-1, 0)).stamp, None);
        assert_eq!(read_control(&[]), ControlData::default());
    }

    #[test]
    fn errors_of_both_families_are_found() {
        for (level, kind) in [(libc::SOL_IP, libc::IP_RECVERR), (libc::SOL_IPV6, libc::IPV6_RECVERR)] {
            let mut record = libc::ECONNREFUSED.to_ne_bytes().to_vec();
            record.extend([libc::SO_EE_ORIGIN_ICMP, 3, 3, 0]);
            let error = message(level, kind, &record);
            assert_eq!(read_queued(&[stamp(1, 1), error].concat()), Queued::Error(Some(libc::ECONNREFUSED)));
        }
        assert_eq!(read_queued(&stamp(1, 1)), Queued::Error(None));
    }

    #[test]
    fn a_send_timestamp_is_not_an_error() {
        let mut record = libc::ENOMSG.to_ne_bytes().to_vec();
        record.extend([libc::SO_EE_ORIGIN_TIMESTAMPING, 0, 0, 0]);
        record.extend([0_u32.to_ne_bytes(), 7_u32.to_ne_bytes()].concat());
        let report = message(libc::SOL_IP, libc::IP_RECVERR, &record);
        let times = [3_i64, 9, 0, 0, 0, 0].map(i64::to_ne_bytes).concat();
        let times = message(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &times);
        let sent = Queued::Sent { key: 7, at: RealNanos(3_000_000_009) };
        assert_eq!(read_queued(&[times.clone(), report.clone()].concat()), sent);
        assert_eq!(read_queued(&[report.clone(), times].concat()), sent);
        assert_eq!(read_queued(&report), Queued::Error(None));
    }

    #[test]
    fn malformed_buffers_are_read_without_panic() {
        let whole = [stamp(3, 9), message(libc::SOL_IP, libc::IP_RECVERR, &[0; 16])].concat();
        for length in 0..whole.len() {
            let cut = whole.get(..length).expect("within");
            let _ = (read_control(cut), read_queued(cut));
        }
        for claimed in [0, 1, HEADER_BYTES - 1, HEADER_BYTES, usize::MAX - 3, usize::MAX] {
            let mut bytes = whole.clone();
            bytes.splice(..LENGTH_BYTES, claimed.to_ne_bytes());
            let _ = (read_control(&bytes), read_queued(&bytes));
        }
    }
}
