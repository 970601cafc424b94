//! Settings and sessions of TLS: files, names, reasons of refusals, records larger than the socket takes.

#[path = "support/authority.rs"]
mod authority;

use std::fs;
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use authority::Authority;
use strowger_foundation::{HostId, Transport};
use strowger_net::{
    CertificateFiles, Channel, ClientCertificates, IoOutcome, Progress, StreamSocket, TlsContext, TlsSettings,
};

const DEADLINE: Duration = Duration::from_secs(20);

fn bind(settings: &TlsSettings) -> StreamSocket {
    let tls = Arc::new(TlsContext::new(settings).expect("sound files"));
    StreamSocket::bind_tls(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)), tls).expect("a free port")
}

fn settings(authority: &Authority, certificates: &[&CertificateFiles]) -> TlsSettings {
    let certificates = certificates.iter().map(|files| (*files).clone()).collect();
    TlsSettings { certificates, ca: Some(authority.ca.clone()), ..TlsSettings::default() }
}

/// Both ends of a connection from `near` to `far`, as that name; or why one of them refused.
fn pair(near: &StreamSocket, far: &StreamSocket, name: &str) -> Result<(Channel, Channel), [Option<String>; 2]> {
    let host = Some((HostId(1), name)).filter(|(_, name)| name.parse::<IpAddr>().is_err());
    let mut one = near.connect(far.local_addr(), host).expect("loopback");
    let mut other = None;
    let deadline = Instant::now() + DEADLINE;
    let mut reasons = [None, None];
    let mut open = [false, false];
    while open != [true, true] {
        assert!(Instant::now() < deadline, "no handshake");
        if other.is_none() {
            other = far
                .accept()
                .expect("a connection")
                .map(|(stream, _)| stream.into_channel(false).expect("a certificate"));
        }
        for (at, channel) in [Some(&mut one), other.as_mut()].into_iter().enumerate() {
            let Some(channel) = channel.filter(|_| reasons[at].is_none()) else { continue };
            match channel.advance() {
                Ok(Progress::Open) => open[at] = true,
                Ok(Progress::Opening) => {}
                Err(error) => reasons[at] = Some(error.to_string()),
            }
        }
        if reasons.iter().zip(open).all(|(reason, is_open)| reason.is_some() || is_open) && reasons != [None, None] {
            // Who has refused, and whom that leaves with an open connection that ends at once.
            return Err(reasons);
        }
    }
    Ok((one, other.expect("accepted")))
}

fn read(channel: &mut Channel, buffer: &mut [u8]) -> io::Result<IoOutcome> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        match channel.read(buffer)? {
            IoOutcome::Blocked => assert!(Instant::now() < deadline, "nothing arrives"),
            done => return Ok(done),
        }
    }
}

#[test]
fn both_ends_know_each_other_by_certificate() {
    let mut authority = Authority::new();
    let server = authority.issue(&["example.com", "sip:carrier.example"]);
    let client = authority.issue(&["client.example"]);
    let far =
        bind(&TlsSettings { client_certificates: ClientCertificates::Optional, ..settings(&authority, &[&server]) });
    let near = bind(&settings(&authority, &[&client]));
    let (mut one, mut other) = pair(&near, &far, "carrier.example").expect("both are valid");
    assert_eq!(
        (one.transport(), one.domains(), one.host()),
        (Transport::Tls, vec!["carrier.example".to_owned()], HostId(1))
    );
    assert_eq!((other.domains(), other.host()), (vec!["client.example".to_owned()], HostId::NONE));
    assert_eq!(one.write(b"hello").expect("open"), IoOutcome::Bytes(5));
    let mut buffer = [0; 64];
    assert_eq!(read(&mut other, &mut buffer).expect("open"), IoOutcome::Bytes(5));
    assert_eq!(&buffer[..5], b"hello");
    one.end();
    assert_eq!(read(&mut other, &mut buffer).expect("a sound end"), IoOutcome::Eof);
    let (again, _) = pair(&near, &far, "carrier.example").expect("both are valid");
    assert!(again.is_resumed() || again.domains() == ["carrier.example"]);
}

#[test]
fn a_refusal_has_a_reason() {
    let mut authority = Authority::new();
    let own = authority.issue(&["client.example"]);
    let near = bind(&settings(&authority, &[&own]));
    let refused = |far: &TlsSettings, name: &str, [client, server]: [&str; 2]| {
        let reasons = pair(&near, &bind(far), name).err().unwrap_or_else(|| panic!("{name} is not refused"));
        for (reason, wanted) in reasons.iter().zip([client, server]) {
            let reason = reason.as_deref().unwrap_or_default();
            assert!(reason.contains(wanted) && reason.is_empty() == wanted.is_empty(), "{reason:?}, not {wanted:?}");
        }
    };
    let good = authority.issue(&["example.com", "*.example.net"]);
    refused(
        &settings(&authority, &[&good]),
        "example.org",
        ["it speaks for example.com, *.example.net, not for example.org", "it does not trust our"],
    );
    refused(&settings(&authority, &[&good]), "a.example.net", ["not for a.example.net", "it does not trust our"]);
    refused(&settings(&authority, &[&good]), "127.0.0.1", ["not for 127.0.0.1", "it does not trust our"]);
    let expired = authority.issue_expired(&["example.com"]);
    refused(&settings(&authority, &[&expired]), "example.com", ["it has expired", "our certificate has expired"]);
    let own_word = authority.self_signed(&["example.com"]);
    refused(
        &settings(&authority, &[&own_word]),
        "example.com",
        ["no trusted authority signed it", "it does not trust our"],
    );
    let pinned = TlsSettings { ca: Some(own_word.certificate.clone()), ..settings(&authority, &[&own]) };
    let far = bind(&settings(&authority, &[&own_word]));
    pair(&bind(&pinned), &far, "example.com").expect("a certificate can be its own authority");
    // The first one issued was the client's.
    let crl = Some(authority.revoke(&[1]));
    let checking =
        TlsSettings { client_certificates: ClientCertificates::Required, crl, ..settings(&authority, &[&good]) };
    refused(&checking, "example.com", ["", "it is revoked (tls.crl)"]);
    let crl = Some(authority.revoke_until(&[], 2025));
    let outdated =
        TlsSettings { client_certificates: ClientCertificates::Required, crl, ..settings(&authority, &[&good]) };
    refused(
        &outdated,
        "example.com",
        ["", "the list of revoked certificates of its authority has expired (tls.crl); renew that file"],
    );
    let near_13 = TlsSettings { is_13_only: true, ..settings(&authority, &[&good]) };
    let old = TlsSettings {
        ciphers: vec!["TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256".to_owned()],
        ..settings(&authority, &[&own])
    };
    let reasons = pair(&bind(&old), &bind(&near_13), "example.com").expect_err("no version in common");
    assert!(reasons.iter().flatten().all(|reason| reason.contains("version")), "{reasons:?}");
}

//= rfc5922#7.1
#[test]
fn the_name_constraints_of_an_authority_apply_to_sip_uris() {
    let mut authority = Authority::limited_to(&["example.com"]);
    let own = authority.issue(&["sip:a.example.com"]);
    let near = bind(&settings(&authority, &[&own]));
    for (names, is_good) in [
        (&["example.com"][..], true),
        (&["sip:example.com"], true),
        (&["sip:carrier.example", "example.com"], false),
        (&["sip:example.com", "sip:carrier.example"], false),
    ] {
        let files = authority.issue(names);
        let far = bind(&settings(&authority, &[&files]));
        match pair(&near, &far, "example.com") {
            Ok(_) => assert!(is_good, "{names:?}"),
            Err([reason, _]) => {
                let reason = reason.expect("the client refuses");
                assert!(!is_good && reason.contains("may not issue certificates for carrier.example"), "{reason}");
            }
        }
    }
}

#[test]
fn the_end_after_an_incomplete_record_is_noticed() {
    let mut authority = Authority::new();
    let own = authority.issue(&["example.com"]);
    let socket = bind(&settings(&authority, &[&own]));
    let relay = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    // The client's bytes go through us, so that a record can be cut.
    let host = Some((HostId(1), "example.com"));
    let mut one = socket.connect(relay.local_addr().expect("bound"), host).expect("loopback");
    let mut ends = [relay.accept().expect("it calls").0, TcpStream::connect(socket.local_addr()).expect("loopback")];
    ends.iter().for_each(|end| end.set_nonblocking(true).expect("a sound socket"));
    let mut other = None;
    let deadline = Instant::now() + DEADLINE;
    let pass = |ends: &mut [TcpStream; 2]| {
        let mut buffer = [0; 4096];
        for (from, to) in [(0, 1), (1, 0)] {
            if let Ok(count @ 1..) = ends[from].read(&mut buffer) {
                ends[to].write_all(&buffer[..count]).expect("it takes it");
            }
        }
    };
    loop {
        assert!(Instant::now() < deadline, "no handshake");
        pass(&mut ends);
        if other.is_none() {
            let accepted = socket.accept().expect("a connection");
            other = accepted.map(|(stream, _)| stream.into_channel(false).expect("a certificate"));
        }
        let far = other.as_mut().map(|channel| channel.advance().expect("sound"));
        if one.advance().expect("sound") == Progress::Open && far == Some(Progress::Open) {
            break;
        }
    }
    let mut other = other.expect("accepted");
    assert_eq!((one.write(b"hello").expect("open"), other.held()), (IoOutcome::Bytes(5), 0));
    let mut record = [0; 64];
    let count = loop {
        if let Ok(count) = ends[0].read(&mut record) {
            break count;
        }
        assert!(Instant::now() < deadline, "nothing arrives");
    };
    ends[1].write_all(&record[..count - 2]).expect("it takes it");
    while !other.is_midway() {
        assert_eq!(other.read(&mut [0; 64]).expect("open"), IoOutcome::Blocked);
        assert!(Instant::now() < deadline, "nothing arrives");
    }
    assert_eq!(other.held(), count - 2, "it is incomplete");
    // More of it and the end are there: one read must find both, since no event follows.
    ends[1].write_all(&record[count - 2..count - 1]).expect("it takes it");
    ends[1].shutdown(Shutdown::Write).expect("connected");
    assert_eq!(other.read(&mut [0; 64]).expect("an end"), IoOutcome::Eof);
}

#[test]
fn the_name_selects_the_certificate() {
    let mut authority = Authority::new();
    let [first, second, third] =
        [["one.example"], ["two.example"], ["*.three.example"]].map(|names| authority.issue(&names));
    let far = bind(&settings(&authority, &[&first, &second, &third]));
    let near = bind(&settings(&authority, &[]));
    for name in ["one.example", "two.example"] {
        let (channel, _) = pair(&near, &far, name).expect("it has one");
        assert_eq!(channel.domains(), [name]);
    }
    let reasons = pair(&near, &far, "other.example").expect_err("it has none");
    assert!(
        reasons[0].as_deref().is_some_and(|reason| reason.contains("it speaks for one.example, not for")),
        "{reasons:?}"
    );
}

#[test]
fn what_the_socket_does_not_take_is_pending() {
    let mut authority = Authority::new();
    let own = authority.issue(&["example.com"]);
    let socket = bind(&settings(&authority, &[&own]));
    let (mut one, mut other) = pair(&socket, &socket, "example.com").expect("valid");
    let text: Vec<u8> = (0..4_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    let (mut sent, mut received, mut was_pending) = (0, Vec::new(), false);
    let mut buffer = vec![0; 65_536];
    let deadline = Instant::now() + DEADLINE;
    while received.len() < text.len() {
        assert!(Instant::now() < deadline, "{sent} sent, {} received", received.len());
        while sent < text.len() {
            match one.write(&text[sent..]).expect("open") {
                IoOutcome::Bytes(count) => sent += count,
                _ => break,
            }
        }
        was_pending |= one.pending() > 0;
        assert!(one.pending() < 2 * 16_384, "at most a record waits");
        one.flush().expect("open");
        if let IoOutcome::Bytes(count) = other.read(&mut buffer).expect("open") {
            received.extend_from_slice(&buffer[..count]);
        }
    }
    assert!(was_pending && received == text && one.pending() == 0);
}

#[test]
fn files_that_cannot_be_used_are_named() {
    let mut authority = Authority::new();
    let [one, two] = [["one.example"], ["two.example"]].map(|names| authority.issue(&names));
    let fails = |settings: TlsSettings, wanted: &str| {
        let error = TlsContext::new(&settings).err().unwrap_or_else(|| panic!("no error: {wanted}")).to_string();
        assert!(error.contains(wanted), "{error}, not {wanted}");
    };
    let of = |certificate: &CertificateFiles, key: &CertificateFiles| {
        let files = CertificateFiles { certificate: certificate.certificate.clone(), key: key.key.clone() };
        settings(&authority, &[&files])
    };
    fails(of(&one, &two), "2-key.pem is not the key of ");
    let missing = CertificateFiles { certificate: "/nowhere/c.pem".into(), key: "/nowhere/k.pem".into() };
    fails(of(&missing, &one), "/nowhere/c.pem cannot be read: No such file");
    let swapped = CertificateFiles { certificate: one.key.clone(), key: one.key.clone() };
    fails(of(&swapped, &one), "1-key.pem contains no certificate in PEM form");
    let crl = Some(one.certificate.clone());
    fails(
        TlsSettings { crl, ..settings(&authority, &[&one]) },
        "1-certificate.pem contains no list of revoked certificates in PEM form",
    );
    let ciphers = vec!["TLS_RSA_WITH_RC4_128_MD5".to_owned()];
    fails(
        TlsSettings { ciphers, ..settings(&authority, &[&one]) },
        "is not a cipher suite; known are TLS_AES_256_GCM_SHA384, ",
    );
    fs::set_permissions(&one.key, fs::Permissions::from_mode(0o640)).expect("our file");
    fails(of(&one, &one), "is a private key that other users may read (mode 640); run: chmod 600 ");
    let context = TlsContext::new(&settings(&authority, &[&two])).expect("sound");
    let before = context.certificates();
    assert!(context.reload(&of(&one, &one)).is_err());
    assert_eq!(context.certificates(), before, "a failed reload changes nothing");
    assert_eq!(before[0].domains, ["two.example"]);
    assert!(before[0].not_after.is_some_and(|at| at > SystemTime::now()));
    assert_eq!(context.next_update(), None, "there is no list");
    let crl = Some(authority.revoke_until(&[], 2025));
    context.reload(&TlsSettings { crl, ..settings(&authority, &[&two]) }).expect("sound");
    let start_of_2025 = SystemTime::UNIX_EPOCH + Duration::from_secs(1_735_689_600);
    assert_eq!(context.next_update(), Some(start_of_2025));
}

#[test]
fn a_reload_is_for_new_connections() {
    let mut authority = Authority::new();
    let [old, new] = [["example.com"], ["example.com"]].map(|names| authority.issue(&names));
    let context = Arc::new(TlsContext::new(&settings(&authority, &[&old])).expect("sound"));
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let socket = StreamSocket::bind_tls(address, Arc::clone(&context)).expect("a free port");
    let (mut one, mut other) = pair(&socket, &socket, "example.com").expect("valid");
    let crl = Some(authority.revoke(&[1]));
    context.reload(&TlsSettings { crl, ..settings(&authority, &[&new]) }).expect("sound");
    pair(&socket, &socket, "example.com").expect("the new one is not revoked");
    assert_eq!(one.write(b"still here").expect("open"), IoOutcome::Bytes(10));
    assert_eq!(read(&mut other, &mut [0; 64]).expect("open"), IoOutcome::Bytes(10));
}
