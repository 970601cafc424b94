//! The PROXY protocol: a balancer in front writes the client's address at the start of a connection.
//!
//! Version 1 is a line of text and version 2 is binary; the sender chooses. The specification is `doc/proxy-protocol.txt`
//! of HAProxy. A receiver must know which peers send the header and require it of them (its §5): whoever may omit it may
//! also forge it.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::str::FromStr;

/// Longest header accepted, in bytes. Addresses need at most 52; the rest is for fields that follow them, such as a
/// certificate's name.
pub const MAX_HEADER: usize = 2048;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
/// Length of the fixed part of version 2.
const FIXED: usize = 16;
/// Longest line of version 1, with its end.
const MAX_LINE: usize = 107;

/// What the start of a connection contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeader {
    /// Incomplete: the number of bytes, from the start, that are needed.
    Incomplete(usize),
    /// A complete header.
    Complete {
        /// Length in bytes; the connection's own data follows.
        length: usize,
        /// The client's connection. `None` if the balancer connects on its own behalf, as for a health check, or does
        /// not know the address: then those of the socket are used.
        addresses: Option<ProxyAddresses>,
    },
}

/// The addresses of the client's connection to the balancer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProxyAddresses {
    /// The client.
    pub source: SocketAddr,
    /// The address of the balancer that the client connected to.
    pub destination: SocketAddr,
}

/// Why a header cannot be used. Close the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyHeaderError {
    /// The connection starts otherwise.
    Missing,
    /// The version is neither 1 nor 2.
    Version(u8),
    /// The command is neither LOCAL nor PROXY.
    Command(u8),
    /// The address family and protocol are none of the specified ones.
    Family(u8),
    /// The header is longer than [`MAX_HEADER`].
    TooLong,
    /// The header is too short for its addresses.
    TooShort,
    /// The line of version 1 is malformed.
    Line,
}

/// Reads the header at the start of a connection. `buffer` has all bytes that have arrived.
///
/// # Errors
/// There is no header, as soon as this is certain, or it is malformed.
pub fn read_proxy_header(buffer: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    match buffer.first() {
        None => Ok(ProxyHeader::Incomplete(1)),
        Some(b'P') => read_line(buffer),
        Some(_) => read_binary(buffer),
    }
}

fn read_binary(buffer: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    if buffer.iter().zip(SIGNATURE).any(|(byte, expected)| byte != expected) {
        return Err(ProxyHeaderError::Missing);
    }
    let Some(&[version_and_command, family, high, low]) = buffer.get(SIGNATURE.len()..FIXED) else {
        return Ok(ProxyHeader::Incomplete(FIXED));
    };
    let is_local = match (version_and_command >> 4, version_and_command & 0x0F) {
        (2, 0) => true,
        (2, 1) => false,
        (2, command) => return Err(ProxyHeaderError::Command(command)),
        (version, _) => return Err(ProxyHeaderError::Version(version)),
    };
    let length = FIXED.saturating_add(u16::from_be_bytes([high, low]).into());
    if length > MAX_HEADER {
        return Err(ProxyHeaderError::TooLong);
    }
    let Some(variable) = buffer.get(FIXED..length) else { return Ok(ProxyHeader::Incomplete(length)) };
    let addresses = if is_local { None } else { read_addresses(family, variable)? };
    Ok(ProxyHeader::Complete { length, addresses })
}

/// Reads the addresses. The protocol, stream or datagram, makes no difference. What follows them is skipped.
fn read_addresses(family: u8, variable: &[u8]) -> Result<Option<ProxyAddresses>, ProxyHeaderError> {
    const UNIX_LENGTH: usize = 216;
    match family {
        0x00 => Ok(None),
        0x11 | 0x12 => read_pair::<4>(variable).map(Some),
        0x21 | 0x22 => read_pair::<16>(variable).map(Some),
        0x31 | 0x32 if variable.len() < UNIX_LENGTH => Err(ProxyHeaderError::TooShort),
        0x31 | 0x32 => Ok(None),
        _ => Err(ProxyHeaderError::Family(family)),
    }
}

/// Reads two addresses of `N` bytes, then two ports.
fn read_pair<const N: usize>(variable: &[u8]) -> Result<ProxyAddresses, ProxyHeaderError>
where
    IpAddr: From<[u8; N]>,
{
    let read = || {
        let (source, rest) = variable.split_first_chunk::<N>()?;
        let (destination, rest) = rest.split_first_chunk::<N>()?;
        let (source_port, rest) = rest.split_first_chunk()?;
        let destination_port = rest.first_chunk()?;
        let address = |ip: [u8; N], port: [u8; 2]| socket_address(IpAddr::from(ip), u16::from_be_bytes(port));
        let source = address(*source, *source_port);
        Some(ProxyAddresses { source, destination: address(*destination, *destination_port) })
    };
    read().ok_or(ProxyHeaderError::TooShort)
}

fn read_line(buffer: &[u8]) -> Result<ProxyHeader, ProxyHeaderError> {
    const START: &[u8] = b"PROXY ";
    if buffer.iter().zip(START).any(|(byte, expected)| byte != expected) {
        return Err(ProxyHeaderError::Missing);
    }
    let window = buffer.get(..MAX_LINE).unwrap_or(buffer);
    let Some(end) = memchr::memmem::find(window, b"\r\n") else {
        let is_full = window.len() == MAX_LINE;
        let needed = window.len().saturating_add(1);
        return if is_full { Err(ProxyHeaderError::Line) } else { Ok(ProxyHeader::Incomplete(needed)) };
    };
    let line = window.get(START.len()..end).and_then(|line| std::str::from_utf8(line).ok());
    let addresses = line.and_then(parse_line).ok_or(ProxyHeaderError::Line)?;
    Ok(ProxyHeader::Complete { length: end.saturating_add(2), addresses })
}

/// Parses what follows `PROXY `; the inner `None` is an unknown address.
fn parse_line(line: &str) -> Option<Option<ProxyAddresses>> {
    let mut words = line.split(' ');
    let addresses = match words.next()? {
        "UNKNOWN" => return Some(None),
        "TCP4" => parse_pair::<Ipv4Addr>(&mut words)?,
        "TCP6" => parse_pair::<Ipv6Addr>(&mut words)?,
        _ => return None,
    };
    words.next().is_none().then_some(Some(addresses))
}

fn parse_pair<'a, Ip: FromStr + Into<IpAddr>>(words: &mut impl Iterator<Item = &'a str>) -> Option<ProxyAddresses> {
    let source: Ip = words.next()?.parse().ok()?;
    let destination: Ip = words.next()?.parse().ok()?;
    let source = socket_address(source.into(), parse_port(words.next()?)?);
    Some(ProxyAddresses { source, destination: socket_address(destination.into(), parse_port(words.next()?)?) })
}

/// A balancer that listens on IPv6 for both families writes a client's IPv4 address as one of IPv6 (RFC 4291
/// §2.5.5.2). Limits and lists of addresses are about the client's IPv4 address.
fn socket_address(ip: IpAddr, port: u16) -> SocketAddr {
    SocketAddr::new(ip.to_canonical(), port)
}

/// Parses a decimal number without sign and leading zeros.
fn parse_port(text: &str) -> Option<u16> {
    let is_decimal = text.bytes().all(|byte| byte.is_ascii_digit()) && (text == "0" || !text.starts_with('0'));
    text.parse().ok().filter(|_| is_decimal)
}

impl fmt::Display for ProxyHeaderError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Missing => "the connection starts without a PROXY header; enable it on the balancer",
            Self::Version(version) => {
                return write!(f, "the PROXY header has version {version}; 1 and 2 are supported");
            }
            Self::Command(command) => return write!(f, "the PROXY header has the unknown command {command}"),
            Self::Family(family) => return write!(f, "the PROXY header has the unknown address family {family:#04x}"),
            Self::TooLong => {
                return write!(
                    f,
                    "the PROXY header is longer than {MAX_HEADER} bytes; send fewer fields (TLVs) from the balancer"
                );
            }
            Self::TooShort => "the PROXY header is too short for its addresses",
            Self::Line => "the PROXY header is a malformed line",
        })
    }
}

impl std::error::Error for ProxyHeaderError {}

#[cfg(test)]
mod tests;
