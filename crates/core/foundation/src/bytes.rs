//! Values as bytes, for what is stored or given to another process. Numbers are big-endian.

use core::net::{Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};

use crate::{Timestamp, Transport};

/// The transports by their stored numbers, which must not change between versions of the program.
const TRANSPORTS: [Transport; 5] = [Transport::Udp, Transport::Tcp, Transport::Tls, Transport::Ws, Transport::Wss];

/// Appends a text of at most 255 bytes after its length; a longer one as empty.
pub fn put_text8(out: &mut Vec<u8>, text: &[u8]) {
    let length = u8::try_from(text.len()).unwrap_or(0);
    out.push(length);
    out.extend_from_slice(text.get(..usize::from(length)).unwrap_or_default());
}

/// Appends a text of at most 65,535 bytes after its length; a longer one as empty.
pub fn put_text16(out: &mut Vec<u8>, text: &[u8]) {
    let length = u16::try_from(text.len()).unwrap_or(0);
    out.extend_from_slice(&length.to_be_bytes());
    out.extend_from_slice(text.get(..usize::from(length)).unwrap_or_default());
}

/// Appends an address: 6 bytes, or 22 with the scope of an IPv6 address. The reader must know which.
pub fn put_address(out: &mut Vec<u8>, address: SocketAddr) {
    match address {
        SocketAddr::V4(v4) => out.extend_from_slice(&v4.ip().octets()),
        SocketAddr::V6(v6) => {
            out.extend_from_slice(&v6.ip().octets());
            out.extend_from_slice(&v6.scope_id().to_be_bytes());
        }
    }
    out.extend_from_slice(&address.port().to_be_bytes());
}

/// Appends a moment, which means the same only to a process with the same clock.
pub fn put_time(out: &mut Vec<u8>, at: Timestamp) {
    out.extend_from_slice(&at.as_nanos().to_be_bytes());
}

/// Appends what `write` writes, after its length in four bytes.
pub fn put_block(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>)) {
    let at = out.len();
    out.extend_from_slice(&[0; 4]);
    write(out);
    let length = u32::try_from(out.len().saturating_sub(at).saturating_sub(4)).unwrap_or(u32::MAX);
    for (place, byte) in out.iter_mut().skip(at).zip(length.to_be_bytes()) {
        *place = byte;
    }
}

/// Returns the stored number of a transport.
#[must_use]
pub fn transport_number(transport: Transport) -> u8 {
    let at = TRANSPORTS.iter().position(|known| *known == transport);
    at.and_then(|at| u8::try_from(at).ok()).unwrap_or(0)
}

/// The bytes still to be read. Everything returns `None` if they are too few or mean nothing.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    /// Whether everything has been read.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Reads `N` bytes.
    pub fn take<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (taken, rest) = self.0.split_first_chunk()?;
        self.0 = rest;
        Some(*taken)
    }

    /// Reads `length` bytes.
    pub fn text(&mut self, length: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(length)?;
        self.0 = rest;
        Some(taken)
    }

    /// Reads one byte.
    pub fn byte(&mut self) -> Option<u8> {
        self.take().map(|[byte]| byte)
    }

    /// Reads a number of two bytes.
    pub fn number16(&mut self) -> Option<u16> {
        self.take().map(u16::from_be_bytes)
    }

    /// Reads a number of four bytes.
    pub fn number32(&mut self) -> Option<u32> {
        self.take().map(u32::from_be_bytes)
    }

    /// Reads a number of eight bytes.
    pub fn number64(&mut self) -> Option<u64> {
        self.take().map(u64::from_be_bytes)
    }

    /// Reads what [`put_text8`] has written.
    pub fn text8(&mut self) -> Option<&'a [u8]> {
        let length = self.byte()?;
        self.text(length.into())
    }

    /// Reads what [`put_text16`] has written.
    pub fn text16(&mut self) -> Option<&'a [u8]> {
        let length = self.number16()?;
        self.text(length.into())
    }

    /// Reads what [`put_block`] has written.
    pub fn block(&mut self) -> Option<Self> {
        let length = self.number32()?;
        self.text(usize::try_from(length).ok()?).map(Self)
    }

    /// Reads what [`put_time`] has written.
    pub fn time(&mut self) -> Option<Timestamp> {
        self.number64().map(Timestamp::from_nanos)
    }

    /// Reads what [`put_address`] has written.
    pub fn address(&mut self, is_v6: bool) -> Option<SocketAddr> {
        if is_v6 {
            let ip = Ipv6Addr::from(self.take::<16>()?);
            let scope = self.number32()?;
            return Some(SocketAddrV6::new(ip, self.number16()?, 0, scope).into());
        }
        let ip = Ipv4Addr::from(self.take::<4>()?);
        Some(SocketAddr::new(ip.into(), self.number16()?))
    }

    /// Reads the [number](transport_number) of a transport.
    pub fn transport(&mut self) -> Option<Transport> {
        let number = self.byte()?;
        TRANSPORTS.get(usize::from(number)).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_round_trip_and_too_few_bytes_are_none() {
        let [v4, v6] = ["192.0.2.1:5060", "[fe80::1%3]:5061"].map(|text| text.parse().expect("an address"));
        let mut out = Vec::new();
        put_text8(&mut out, b"one");
        put_text16(&mut out, &[7; 300]);
        put_address(&mut out, v4);
        put_address(&mut out, v6);
        put_time(&mut out, Timestamp::MAX);
        put_block(&mut out, |out| out.extend_from_slice(b"block"));
        out.extend(TRANSPORTS.map(transport_number));
        let read = |bytes: &[u8]| {
            let mut reader = Reader(bytes);
            let texts = (reader.text8()?.to_vec(), reader.text16()?.to_vec());
            let others = (reader.address(false)?, reader.address(true)?, reader.time()?, reader.block()?.0.to_vec());
            let mut transports = Vec::new();
            for _ in TRANSPORTS {
                transports.push(reader.transport()?);
            }
            assert!(reader.is_empty());
            Some((texts, others, transports))
        };
        let whole = read(&out).expect("all of it");
        assert_eq!(whole.0, (b"one".to_vec(), vec![7; 300]));
        assert_eq!(whole.1, (v4, v6, Timestamp::MAX, b"block".to_vec()));
        assert_eq!(whole.2, TRANSPORTS);
        assert!((0..out.len()).all(|end| read(out.get(..end).unwrap_or_default()).is_none()));
        assert_eq!(Reader(&[5]).transport(), None, "no transport has this number");
    }

    #[test]
    fn a_text_that_is_too_long_is_written_as_none() {
        let mut out = Vec::new();
        put_text8(&mut out, &[1; 256]);
        put_text16(&mut out, &vec![1; 65_536]);
        assert_eq!(out, [0, 0, 0]);
    }
}
