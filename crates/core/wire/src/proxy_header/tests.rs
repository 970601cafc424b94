//! Headers as balancers send them.

use super::*;

/// What HAProxy 2 sends for a client at 172.19.0.1:42578.
const TCP4: &[u8] = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xac\x13\x00\x01\xac\x13\x00\x03\xa6\x52\x00\x50";

fn binary(command: u8, family: u8, variable: &[u8]) -> Vec<u8> {
    let length = u16::try_from(variable.len()).unwrap().to_be_bytes();
    [SIGNATURE, &[command, family][..], &length, variable].concat()
}

fn pair(source: &str, destination: &str) -> Option<ProxyAddresses> {
    Some(ProxyAddresses { source: source.parse().unwrap(), destination: destination.parse().unwrap() })
}

/// Reads a header with data behind it, and checks that every shorter part of it is incomplete.
fn read(header: &[u8]) -> Option<ProxyAddresses> {
    for cut in 0..header.len() {
        let Ok(ProxyHeader::Incomplete(needed)) = read_proxy_header(&header[..cut]) else { panic!("{cut}") };
        assert!(cut < needed && needed <= header.len(), "{cut}: {needed}");
    }
    let result = read_proxy_header(&[header, b"REGISTER"].concat());
    let Ok(ProxyHeader::Complete { length, addresses }) = result else { panic!("{result:?}") };
    assert_eq!(length, header.len());
    addresses
}

#[test]
fn binary_headers_name_the_client() {
    assert_eq!(read(TCP4), pair("172.19.0.1:42578", "172.19.0.3:80"));
    assert_eq!(read(&binary(0x21, 0x12, &TCP4[16..])), pair("172.19.0.1:42578", "172.19.0.3:80"));
    let mut v6 = [0; 36];
    (v6[15], v6[31]) = (1, 2);
    v6[32..].copy_from_slice(&[0x13, 0xC4, 0x13, 0xC5]);
    assert_eq!(read(&binary(0x21, 0x21, &v6)), pair("[::1]:5060", "[::2]:5061"));
    assert_eq!(read(&binary(0x21, 0x22, &v6)), pair("[::1]:5060", "[::2]:5061"));
}

#[test]
fn ipv4_addresses_written_as_ipv6_are_those_of_ipv4() {
    let expected = pair("198.51.100.7:5060", "192.0.2.1:5061");
    let text = "PROXY TCP6 ::ffff:198.51.100.7 ::ffff:c000:201 5060 5061\r\n";
    assert_eq!(read(text.as_bytes()), expected);
    let addresses = ["198.51.100.7", "192.0.2.1"].map(|ip| ip.parse::<Ipv4Addr>().unwrap().to_ipv6_mapped().octets());
    let variable = [&addresses.concat()[..], &[0x13, 0xC4, 0x13, 0xC5]].concat();
    assert_eq!(read(&binary(0x21, 0x21, &variable)), expected);
}

#[test]
fn fields_behind_the_addresses_are_skipped() {
    let with_authority = [&TCP4[16..], b"\x02\x00\x0bexample.com"].concat();
    assert_eq!(read(&binary(0x21, 0x11, &with_authority)), pair("172.19.0.1:42578", "172.19.0.3:80"));
    let longest = [&TCP4[16..], &[0; MAX_HEADER - 28]].concat();
    assert_eq!(read(&binary(0x21, 0x11, &longest)), pair("172.19.0.1:42578", "172.19.0.3:80"));
}

#[test]
fn health_checks_and_unknown_addresses_use_those_of_the_socket() {
    assert_eq!(read(&binary(0x20, 0x00, b"")), None);
    assert_eq!(read(&binary(0x20, 0x11, &TCP4[16..])), None);
    assert_eq!(read(&binary(0x20, 0xFF, b"x")), None);
    assert_eq!(read(&binary(0x21, 0x00, b"abc")), None);
    assert_eq!(read(&binary(0x21, 0x31, &[b'/'; 216])), None);
    assert_eq!(read(b"PROXY UNKNOWN\r\n"), None);
    assert_eq!(read(b"PROXY UNKNOWN ffff:f...f:ffff 65535\r\n"), None);
}

#[test]
fn malformed_binary_headers_are_refused() {
    let error = |bytes: &[u8]| read_proxy_header(bytes).expect_err("malformed");
    assert_eq!(error(&binary(0x11, 0x11, &TCP4[16..])), ProxyHeaderError::Version(1));
    assert_eq!(error(&binary(0x31, 0x11, &TCP4[16..])), ProxyHeaderError::Version(3));
    assert_eq!(error(&binary(0x22, 0x11, &TCP4[16..])), ProxyHeaderError::Command(2));
    for family in [0x01, 0x10, 0x13, 0x23, 0x41, 0xFF] {
        assert_eq!(error(&binary(0x21, family, &[0; 300])), ProxyHeaderError::Family(family));
    }
    assert_eq!(error(&binary(0x21, 0x11, &TCP4[17..])), ProxyHeaderError::TooShort);
    assert_eq!(error(&binary(0x21, 0x21, &[0; 35])), ProxyHeaderError::TooShort);
    assert_eq!(error(&binary(0x21, 0x31, &[0; 215])), ProxyHeaderError::TooShort);
    assert_eq!(error(&binary(0x21, 0x11, &[0; 2033])[..16]), ProxyHeaderError::TooLong, "without waiting for the rest");
}

#[test]
fn a_connection_without_header_is_refused_at_once() {
    for start in [&b"REGISTER"[..], b"\x16\x03\x01", b"GET", b"PUBLISH", b"\r\n\r\n\r", b"\n"] {
        assert_eq!(read_proxy_header(start), Err(ProxyHeaderError::Missing), "{start:?}");
    }
}

/// The examples of section 2.1 of the specification.
#[test]
fn lines_name_the_client() {
    assert_eq!(
        read(b"PROXY TCP4 255.255.255.255 255.255.255.255 65535 65535\r\n"),
        pair("255.255.255.255:65535", "255.255.255.255:65535")
    );
    assert_eq!(read(b"PROXY TCP6 2001:db8::1 ::2 5060 0\r\n"), pair("[2001:db8::1]:5060", "[::2]:0"));
}

#[test]
fn malformed_lines_are_refused() {
    for line in [
        "PROXY \r\n",
        "PROXY TCP5 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2 3\r\n",
        "PROXY TCP4 1.2.3.4  1.2.3.4 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 01 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 +1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 65536\r\n",
        "PROXY TCP4 1.2.3.04 1.2.3.4 1 2\r\n",
        "PROXY TCP4 ::1 ::1 1 2\r\n",
        "PROXY TCP6 1.2.3.4 1.2.3.4 1 2\r\n",
        "PROXY TCP6 ::1%eth0 ::1 1 2\r\n",
        "PROXY TCP4 1.2.3.4 1.2.3.4 1 2\n\r\n",
        &format!("PROXY UNKNOWN {}\r\n", "x".repeat(MAX_LINE)),
    ] {
        assert_eq!(read_proxy_header(line.as_bytes()), Err(ProxyHeaderError::Line), "{line}");
    }
}
