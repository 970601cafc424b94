//! Upgrades and frames byte by byte, with the examples of the RFCs.

use super::server::UpgradeRequest;
use super::*;

const LIMIT: u32 = 70_000;
/// The request of RFC 7118 §4.1.
const REQUEST: &str = "GET /ws?user=alice HTTP/1.1\r\n\
    Host: sip-ws.example.com\r\n\
    Upgrade: websocket\r\n\
    Connection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
    Origin: http://www.example.com\r\n\
    Sec-WebSocket-Protocol: sip\r\n\
    Sec-WebSocket-Version: 13\r\n\r\n";
const RESPONSE: &str = "HTTP/1.1 101 Switching Protocols\r\n\
    Upgrade: websocket\r\n\
    Connection: Upgrade\r\n\
    Sec-WebSocket-Protocol: sip\r\n\
    Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n";
const KEY: [u8; 16] = *b"the sample nonce";
const MASK: MaskKey = [0x37, 0xFA, 0x21, 0x3D];

fn upgrade(request: &[u8]) -> (Input, String) {
    let mut out = Vec::new();
    let input = WebSocketServer::new(LIMIT).handle_input(&mut request.to_vec(), &AllowedOrigins::any(), &mut out);
    (input, String::from_utf8(out).unwrap())
}

fn refusal(request: &str) -> Refusal {
    let (input, response) = upgrade(request.as_bytes());
    let Event::Failed(Failure::Refused(refusal)) = input.event else { panic!("{request}: {input:?}") };
    assert!(response.starts_with(&format!("HTTP/1.1 {} ", refusal.status())), "{response}");
    let (head, body) = response.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("Connection: ") && head.contains("close"), "{head}");
    assert!(head.contains(&format!("\r\nContent-Length: {}", body.len())), "{response}");
    assert!(body.contains(&refusal.to_string()), "{response}");
    assert_eq!(input.consumed, request.len());
    refusal
}

fn open_server() -> WebSocketServer {
    let mut server = WebSocketServer::new(LIMIT);
    server.handle_input(&mut REQUEST.as_bytes().to_vec(), &AllowedOrigins::any(), &mut Vec::new());
    assert!(server.is_open());
    server
}

fn open_client() -> WebSocketClient {
    let request = ClientRequest { host: "sip-ws.example.com", target: "/", origin: None };
    let mut client = WebSocketClient::start(&request, KEY, LIMIT, &mut Vec::new());
    client.handle_input(&mut RESPONSE.as_bytes().to_vec(), MASK, &mut Vec::new());
    assert!(client.is_open());
    client
}

/// Passes one input to an open server; returns the event and what the server sends.
fn serve(bytes: &[u8]) -> (Input, Vec<u8>, Vec<u8>) {
    let (mut bytes, mut out) = (bytes.to_vec(), Vec::new());
    let input = open_server().handle_input(&mut bytes, &AllowedOrigins::any(), &mut out);
    (input, bytes, out)
}

/// Builds a frame without the encoder.
fn frame(first: u8, payload: &[u8]) -> Vec<u8> {
    let mut bytes = vec![first, 0x80 | u8::try_from(payload.len()).unwrap()];
    bytes.extend(MASK);
    bytes.extend(payload.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key));
    bytes
}

//= rfc6455#4.2.2:accept
//= rfc7118#4.1:selects-sip
#[test]
fn the_example_of_rfc_7118_is_accepted() {
    let (input, response) = upgrade(REQUEST.as_bytes());
    assert_eq!((input.consumed, input.event), (REQUEST.len(), Event::Opened));
    assert_eq!(response, RESPONSE);
    let request = UpgradeRequest::parse(REQUEST.as_bytes()).unwrap();
    assert_eq!(request.origin, Some(&b"http://www.example.com"[..]));
}

#[test]
fn a_request_in_pieces_is_accepted_when_its_end_arrives() {
    let mut server = WebSocketServer::new(LIMIT);
    let (mut out, mut bytes) = (Vec::new(), Vec::new());
    for byte in REQUEST.bytes() {
        assert!(out.is_empty() && !server.is_open());
        bytes.push(byte);
        let input = server.handle_input(&mut bytes, &AllowedOrigins::any(), &mut out);
        if bytes.len() < REQUEST.len() {
            let needed = bytes.len() + 1;
            assert_eq!(input, Input { consumed: 0, event: Event::Incomplete { needed } });
        }
    }
    assert!(server.is_open() && out == RESPONSE.as_bytes());
}

#[test]
fn values_as_browsers_and_proxies_write_them_are_accepted() {
    for (from, to) in [
        ("Connection: Upgrade", "connection:keep-alive ,\tupgrade"),
        ("Connection: Upgrade", "Connection: keep-alive\r\nConnection: Upgrade"),
        ("Upgrade: websocket", "UPGRADE: h2c, WebSocket"),
        ("Protocol: sip", "Protocol: xmpp, sip"),
        ("Protocol: sip", "Protocol: xmpp\r\nSec-WebSocket-Protocol: sip,msrp"),
        ("Version: 13", "Version: 13\r\nSec-WebSocket-Extensions: permessage-deflate; client_max_window_bits"),
        ("Version: 13", "Version: 13\r\nCookie: a=b; c=\"d\"\r\nContent-Length: 0\r\nX-Name: caf\u{e9}"),
        ("/ws?user=alice", "*"),
    ] {
        let (input, response) = upgrade(REQUEST.replace(from, to).as_bytes());
        assert_eq!((input.event, response.as_str()), (Event::Opened, RESPONSE), "{to}");
    }
}

//= rfc6455#4.2.1:malformed
#[test]
fn other_requests_are_refused_with_a_reason() {
    for (from, to, expected) in [
        ("GET /ws?user=alice", "POST /", Refusal::NotGet),
        ("GET ", "get ", Refusal::NotGet),
        ("HTTP/1.1", "HTTP/1.0", Refusal::HttpVersion),
        ("HTTP/1.1", "SIP/2.0", Refusal::Malformed),
        ("GET /ws?user=alice", "GET  /", Refusal::Malformed),
        ("GET /ws?user=alice", "GET ", Refusal::Malformed),
        (" HTTP/1.1", "", Refusal::Malformed),
        ("Host: ", "Host : ", Refusal::Malformed),
        ("Host: ", " Host: ", Refusal::Malformed),
        ("Host: ", "Nothing\r\nHost: ", Refusal::Malformed),
        ("Host: ", "X: a\nb\r\nHost: ", Refusal::Malformed),
        ("Host: ", ": x\r\nHost: ", Refusal::Malformed),
        ("Host: sip-ws.example.com\r\n", "", Refusal::Field("Host")),
        ("Host: ", "Host: a\r\nHost: ", Refusal::Field("Host")),
        ("Origin: ", "Origin: http://a\r\nOrigin: ", Refusal::Field("Origin")),
        ("Host: ", "Transfer-Encoding: chunked\r\nHost: ", Refusal::Body),
        ("Host: ", "Content-Length: 5\r\nHost: ", Refusal::Body),
        ("Upgrade: websocket\r\n", "", Refusal::NotUpgrade),
        ("Connection: Upgrade", "Connection: keep-alive", Refusal::NotUpgrade),
        ("Version: 13", "Version: 8", Refusal::Version),
        ("Sec-WebSocket-Version: 13\r\n", "", Refusal::Version),
        ("Key: dGhl", "Key: dGh", Refusal::Field("Sec-WebSocket-Key")),
        ("Key: ", "Key: a\r\nSec-WebSocket-Key: ", Refusal::Field("Sec-WebSocket-Key")),
        ("Protocol: sip", "Protocol: SIP", Refusal::Subprotocol),
        ("Protocol: sip", "Protocol: sips", Refusal::Subprotocol),
        ("Sec-WebSocket-Protocol: sip\r\n", "", Refusal::Subprotocol),
    ] {
        assert!(REQUEST.contains(from), "{from}");
        assert_eq!(refusal(&REQUEST.replacen(from, to, 1)), expected, "{from:?} → {to:?}");
    }
}

//= rfc6455#4.4:versions
#[test]
fn a_client_with_another_version_learns_which_one_to_use() {
    let (_, response) = upgrade(REQUEST.replace("Version: 13", "Version: 7").as_bytes());
    assert!(response.starts_with("HTTP/1.1 426 ") && response.contains("\r\nSec-WebSocket-Version: 13\r\n"));
}

//= rfc6455#4.2.2:origin
#[test]
fn pages_of_other_origins_are_refused() {
    let origins = AllowedOrigins::new(["https://phone.example.com"]).unwrap();
    let mut out = Vec::new();
    let input = WebSocketServer::new(LIMIT).handle_input(&mut REQUEST.as_bytes().to_vec(), &origins, &mut out);
    assert_eq!(input.event, Event::Failed(Failure::Refused(Refusal::Origin)));
    assert!(out.starts_with(b"HTTP/1.1 403 Forbidden\r\n"));
    let request = REQUEST.replace("http://www.example.com", "https://phone.example.com");
    let input = WebSocketServer::new(LIMIT).handle_input(&mut request.into_bytes(), &origins, &mut out);
    assert_eq!(input.event, Event::Opened);
}

#[test]
fn what_is_not_http_is_refused_at_once() {
    let hello = b"\x16\x03\x01\x02\x00\x01";
    for start in [&hello[..], b"REGISTER sip:", b"\r\n\r\n", b"GEX"] {
        let (input, response) = upgrade(start);
        assert_eq!(input.event, Event::Failed(Failure::Refused(Refusal::NotGet)), "{start:?}");
        assert!(response.starts_with("HTTP/1.1 405 "));
    }
    for start in [&b""[..], b"G", b"GET "] {
        assert_eq!(upgrade(start).0.event, Event::Incomplete { needed: start.len() + 1 });
    }
}

#[test]
fn a_head_has_at_most_8192_bytes() {
    let fill = |length: usize| REQUEST.replace("Host:", &format!("X: {}\r\nHost:", "x".repeat(length)));
    let room = MAX_HTTP_HEAD - fill(0).len();
    assert_eq!(upgrade(fill(room).as_bytes()).0.event, Event::Opened);
    assert_eq!(refusal(&fill(room + 1)), Refusal::HeadTooLong);
    assert_eq!(refusal(&fill(2 * room)), Refusal::HeadTooLong);
    let endless = REQUEST.replace("\r\n\r\n", "\r\nX: ") + &"x".repeat(MAX_HTTP_HEAD);
    assert_eq!(refusal(&endless), Refusal::HeadTooLong);
}

#[test]
fn frames_may_follow_the_request_at_once() {
    let mut bytes = [REQUEST.as_bytes(), &frame(0x81, b"Hello")].concat();
    let (mut server, mut out) = (WebSocketServer::new(LIMIT), Vec::new());
    let input = server.handle_input(&mut bytes, &AllowedOrigins::any(), &mut out);
    let input = server.handle_input(&mut bytes[input.consumed..], &AllowedOrigins::any(), &mut out);
    assert_eq!(input, Input { consumed: 11, event: Event::Message { kind: MessageKind::Text, payload: 6..11 } });
}

//= rfc6455#4.1:request
//= rfc7118#4.1:offers-sip
#[test]
fn a_client_sends_the_request_and_accepts_the_response() {
    let mut out = Vec::new();
    let request = ClientRequest { host: "h:8080", target: "/a?b", origin: Some("https://x") };
    let mut client = WebSocketClient::start(&request, KEY, LIMIT, &mut out);
    assert!(out.starts_with(b"GET /a?b HTTP/1.1\r\nHost: h:8080\r\n"));
    assert_eq!(UpgradeRequest::parse(&out).unwrap().origin, Some(&b"https://x"[..]));
    let mut bytes = RESPONSE.as_bytes().to_vec();
    bytes.extend(b"\x81\x05Hello");
    for cut in 0..RESPONSE.len() {
        let input = client.handle_input(&mut bytes[..cut], MASK, &mut Vec::new());
        assert_eq!(input.event, Event::Incomplete { needed: cut + 1 });
    }
    let input = client.handle_input(&mut bytes, MASK, &mut Vec::new());
    assert_eq!((input.consumed, input.event), (RESPONSE.len(), Event::Opened));
    let input = client.handle_input(&mut bytes[RESPONSE.len()..], MASK, &mut Vec::new());
    assert_eq!(input, Input { consumed: 7, event: Event::Message { kind: MessageKind::Text, payload: 2..7 } });
}

//= rfc6455#4.1:status
//= rfc6455#4.1:accept
//= rfc6455#4.1:extensions
//= rfc6455#4.1:subprotocol
#[test]
fn a_client_rejects_other_responses() {
    for (from, to, expected) in [
        ("101 Switching Protocols", "403 Forbidden", UpgradeError::Status(403)),
        ("101 Switching Protocols", "200", UpgradeError::Status(200)),
        ("101 ", "1010 ", UpgradeError::Malformed),
        ("101 ", "+11 ", UpgradeError::Malformed),
        ("HTTP/1.1", "HTTP/1.0", UpgradeError::Malformed),
        ("HTTP/1.1", "SIP/2.0", UpgradeError::Malformed),
        ("Upgrade: websocket", "Upgrade: h2c", UpgradeError::NotUpgraded),
        ("Connection: Upgrade", "Connection: close", UpgradeError::NotUpgraded),
        ("s3pP", "S3pP", UpgradeError::Accept),
        ("Sec-WebSocket-Accept:", "X:", UpgradeError::Accept),
        ("Protocol: sip", "Protocol: xmpp", UpgradeError::Subprotocol),
        ("Sec-WebSocket-Protocol: sip\r\n", "", UpgradeError::Subprotocol),
        ("Upgrade: w", "Sec-WebSocket-Extensions: permessage-deflate\r\nUpgrade: w", UpgradeError::Extension),
        ("Connection", "Connection ", UpgradeError::Malformed),
        ("Upgrade: w", &format!("X: {}\r\nUpgrade: w", "x".repeat(MAX_HTTP_HEAD)), UpgradeError::HeadTooLong),
    ] {
        let request = ClientRequest { host: "h", target: "/", origin: None };
        let mut client = WebSocketClient::start(&request, KEY, LIMIT, &mut Vec::new());
        let mut bytes = RESPONSE.replacen(from, to, 1).into_bytes();
        let input = client.handle_input(&mut bytes, MASK, &mut Vec::new());
        assert_eq!(input.event, Event::Failed(Failure::NotUpgraded(expected)), "{from:?} → {to:?}");
        assert!(!client.is_open());
    }
}

/// The examples of RFC 6455 §5.7.
//= rfc6455#5.1:client-masks
//= rfc6455#5.4:fragments
//= rfc6455#5.5.2:pong
//= rfc6455#5.5.3:same-data
//= rfc7118#4.2:text-and-binary
//= rfc7118#4.2:not-utf8
#[test]
fn the_examples_of_rfc_6455() {
    let hello: &mut [u8] = &mut b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58".to_vec();
    let (input, bytes, _) = serve(hello);
    assert_eq!(input, Input { consumed: 11, event: Event::Message { kind: MessageKind::Text, payload: 6..11 } });
    assert_eq!(&bytes[6..], b"Hello");
    let mut written = Vec::new();
    write_message(&mut written, b"Hello", Some(MASK));
    assert_eq!(written, hello);

    let (input, _, out) = serve(b"\x89\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
    assert_eq!((input.consumed, input.event), (11, Event::Ping));
    assert_eq!(out, b"\x8a\x05Hello");
    assert_eq!(serve(b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58").0.event, Event::Pong);

    let (mut client, mut out) = (open_client(), Vec::new());
    let mut bytes = b"\x01\x03Hel\x80\x02lo".to_vec();
    let input = client.handle_input(&mut bytes, MASK, &mut out);
    assert_eq!(input, Input { consumed: 9, event: Event::Message { kind: MessageKind::Text, payload: 0..5 } });
    assert_eq!(&bytes[..5], b"Hello");
    client.handle_input(&mut b"\x89\x05Hello".to_vec(), MASK, &mut out);
    assert_eq!(out, b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58", "a client's pong is masked");

    for (length, head) in
        [(125, &b"\x82\x7d"[..]), (256, b"\x82\x7e\x01\x00"), (65_536, b"\x82\x7f\x00\x00\x00\x00\x00\x01\x00\x00")]
    {
        let mut bytes = Vec::new();
        write_message(&mut bytes, &vec![0xFF; length], None);
        assert_eq!((&bytes[..head.len()], bytes.len()), (head, head.len() + length));
        let input = open_client().handle_input(&mut bytes, MASK, &mut Vec::new());
        let payload = head.len()..bytes.len();
        assert_eq!(input.event, Event::Message { kind: MessageKind::Binary, payload });
    }
}

//= rfc6455#5.4:control-between-fragments
#[test]
fn a_ping_within_a_fragmented_message_is_answered_once() {
    let parts = [frame(0x01, b"REG"), frame(0x89, b"?"), frame(0x00, b""), frame(0x8A, b""), frame(0x80, b"ISTER")];
    let mut bytes = parts.concat();
    let (mut server, mut out) = (open_server(), Vec::new());
    let mut next = |out: &mut Vec<u8>| server.handle_input(&mut bytes, &AllowedOrigins::any(), out);
    assert_eq!(next(&mut out), Input { consumed: 0, event: Event::Ping });
    assert_eq!(next(&mut out), Input { consumed: 0, event: Event::Pong });
    let message = next(&mut out);
    let length = parts.concat().len();
    assert_eq!(message, Input { consumed: length, event: Event::Message { kind: MessageKind::Text, payload: 0..8 } });
    assert_eq!((&bytes[..8], out), (&b"REGISTER"[..], b"\x8a\x01?".to_vec()));
}

#[test]
fn incomplete_frames_say_how_many_bytes_they_need() {
    for (bytes, needed) in [
        (&b""[..], 2),
        (b"\x81", 2),
        (b"\x81\x85\x37", 4),
        (b"\x81\x85\x37\xfa\x21\x3d", 11),
        (b"\x81\xfe\x01\x00\x37\xfa\x21\x3d\x00", 264),
        (b"\x01\x81\x00\x00\x00\x00a\x80", 9),
    ] {
        assert_eq!(serve(bytes).0, Input { consumed: 0, event: Event::Incomplete { needed } }, "{bytes:x?}");
    }
}

//= rfc6455#5.1:not-masked
//= rfc6455#5.1:masked
//= rfc6455#5.2:reserved-bits
//= rfc6455#5.2:opcodes
//= rfc6455#5.2:minimal-length
//= rfc6455#5.4:no-interleaving
//= rfc6455#5.5:control-length
//= rfc6455#8.1:utf8
#[test]
fn broken_frames_end_the_connection_with_a_reason() {
    use ProtocolError as Error;
    let long = |first: u8, length: u64| [&[first, 0xFF][..], &length.to_be_bytes(), &MASK].concat();
    let not_utf8 = [frame(0x01, b"\xC3"), frame(0x80, b"x")].concat();
    for (bytes, error, code) in [
        (frame(0xC1, b""), Error::ReservedBits, 1002),
        (frame(0x91, b""), Error::ReservedBits, 1002),
        (frame(0x83, b""), Error::UnknownOpcode(3), 1002),
        (frame(0x8B, b""), Error::UnknownOpcode(11), 1002),
        (b"\x81\x00".to_vec(), Error::NotMasked, 1002),
        (frame(0x09, b""), Error::FragmentedControl, 1002),
        (b"\x89\xfe\x00\x7e".to_vec(), Error::LongControl, 1002),
        (frame(0x80, b""), Error::UnexpectedContinuation, 1002),
        ([frame(0x01, b""), frame(0x81, b"")].concat(), Error::InterruptedMessage, 1002),
        (b"\x81\xfe\x00\x7d".to_vec(), Error::LengthNotMinimal, 1002),
        (b"\x81\xff\x00\x00\x00\x00\x00\x00\xff\xff".to_vec(), Error::LengthNotMinimal, 1002),
        (long(0x81, u64::from(LIMIT) + 1), Error::TooLong, 1009),
        (long(0x81, u64::MAX), Error::TooLong, 1009),
        ([frame(0x01, b"x"), long(0x80, LIMIT.into())].concat(), Error::TooLong, 1009),
        (frame(0x81, b"\xC3\x28"), Error::NotUtf8, 1007),
        (not_utf8, Error::NotUtf8, 1007),
        (frame(0x88, b"x"), Error::MalformedClose, 1002),
        (frame(0x88, b"\x03\xed"), Error::MalformedClose, 1002),
        (frame(0x88, b"\x03\xe8\xff"), Error::NotUtf8, 1007),
    ] {
        let (input, _, out) = serve(&bytes);
        assert_eq!(input.event, Event::Failed(Failure::Protocol(error)), "{bytes:x?}");
        let sent = open_client().handle_input(&mut out.clone(), MASK, &mut Vec::new());
        assert_eq!(sent.event, Event::Closed { code: CloseCode::new(code) });
        assert_eq!(&out[4..], error.to_string().as_bytes());
    }
    let input = open_client().handle_input(&mut frame(0x81, b"x"), MASK, &mut Vec::new());
    assert_eq!(input.event, Event::Failed(Failure::Protocol(Error::Masked)));
}

#[test]
fn the_longest_message_is_accepted() {
    let text = "x".repeat(LIMIT as usize);
    let mut bytes = Vec::new();
    write_message(&mut bytes, text.as_bytes(), Some(MASK));
    let (input, bytes, _) = serve(&bytes);
    let Event::Message { payload, .. } = input.event else { panic!("{input:?}") };
    assert_eq!(&bytes[payload], text.as_bytes());
}

#[test]
fn endless_fragments_are_refused() {
    let mut server = open_server();
    let mut bytes = frame(0x01, b"");
    loop {
        match server.handle_input(&mut bytes, &AllowedOrigins::any(), &mut Vec::new()) {
            Input { consumed: 0, event: Event::Incomplete { .. } } => bytes.extend(frame(0x00, b"")),
            Input { consumed: 0, event: Event::Ping } => {}
            input => break assert_eq!(input.event, Event::Failed(Failure::Protocol(ProtocolError::TooFragmented))),
        }
        if bytes.len().is_multiple_of(7) {
            bytes.extend(frame(0x89, b"?"));
        }
        assert!(bytes.len() <= MAX_FRAGMENT_OVERHEAD + 2 * MAX_FRAME_HEAD);
    }
}

//= rfc6455#5.5.1:confirms
#[test]
fn a_close_is_confirmed_with_its_code_and_ends_the_connection() {
    let (mut server, mut out) = (open_server(), Vec::new());
    let mut bytes = [frame(0x88, b"\x03\xe9bye"), frame(0x81, b"late")].concat();
    let origins = AllowedOrigins::any();
    let input = server.handle_input(&mut bytes, &origins, &mut out);
    assert_eq!(input, Input { consumed: 11, event: Event::Closed { code: Some(CloseCode::GOING_AWAY) } });
    assert_eq!(out, b"\x88\x02\x03\xe9");
    assert!(!server.is_open());
    let input = server.handle_input(&mut bytes[11..], &origins, &mut out);
    assert_eq!((input.consumed, input.event), (10, Event::Discarded));
    assert_eq!(server.handle_input(&mut [], &origins, &mut out).event, Event::Incomplete { needed: 1 });
    assert_eq!(out.len(), 4, "nothing follows a closing frame");

    let (input, _, out) = serve(&frame(0x88, b""));
    assert_eq!((input.event, out), (Event::Closed { code: None }, b"\x88\x00".to_vec()));
}

#[test]
fn only_codes_that_a_frame_may_contain_are_codes() {
    for code in [1000, 1001, 1002, 1003, 1007, 1011, 1014, 3000, 4999] {
        assert_eq!(CloseCode::new(code).map(CloseCode::as_u16), Some(code));
    }
    for code in [0, 999, 1004, 1005, 1006, 1015, 1016, 2999, 5000, u16::MAX] {
        assert_eq!(CloseCode::new(code), None, "{code}");
    }
}

#[test]
fn control_frames_are_cut_to_their_maximum() {
    let mut out = Vec::new();
    write_ping(&mut out, &[b'x'; 200], None);
    assert_eq!((out[1], out.len()), (125, 127));
    out.clear();
    write_close(&mut out, Some(CloseCode::INTERNAL_ERROR), &"é".repeat(100), None);
    let input = open_client().handle_input(&mut out, MASK, &mut Vec::new());
    assert_eq!(input.event, Event::Closed { code: Some(CloseCode::INTERNAL_ERROR) }, "cut between characters");
    assert_eq!(out.len(), 2 + 2 + 122);
}

#[test]
fn masking_twice_restores_a_payload_of_any_length() {
    for length in 0..70 {
        let original: Vec<u8> = (0..length).collect();
        let expected: Vec<u8> = original.iter().zip(MASK.iter().cycle()).map(|(byte, key)| byte ^ key).collect();
        let mut payload = original.clone();
        frame::apply_mask(&mut payload, MASK);
        assert_eq!(payload, expected);
        frame::apply_mask(&mut payload, MASK);
        assert_eq!(payload, original);
    }
}

#[test]
fn a_connection_costs_at_most_40_bytes() {
    assert!(size_of::<WebSocketServer>() <= 40, "{}", size_of::<WebSocketServer>());
    assert!(size_of::<WebSocketClient>() <= 40, "{}", size_of::<WebSocketClient>());
}
