//! Both ends against another implementation, tungstenite, over pipes in memory.

#[path = "../../../../fuzz/src/wire_bodies.rs"]
#[allow(unreachable_pub, dead_code, reason = "shared with the fuzz targets, where it is a library's module")]
mod wire_bodies;

use std::collections::VecDeque;
use std::io::{self, Read, Write};

use proptest::collection::vec;
use proptest::prelude::*;
use strowger_wire::websocket::{
    CloseCode, Failure, MessageKind, ProtocolError, write_close, write_message, write_ping,
};
use tungstenite::client::ClientRequestBuilder;
use tungstenite::handshake::server::{Request, Response};
use tungstenite::handshake::{HandshakeError, HandshakeRole, MidHandshake};
use tungstenite::protocol::frame::coding::{Data, OpCode};
use tungstenite::protocol::frame::{CloseFrame, Frame};
use tungstenite::protocol::{Role, WebSocket, WebSocketConfig};
use tungstenite::{Error, Message, ServerHandshake};
use wire_bodies::{End, LIMIT, REQUEST, Receiver, Seen};

/// The end of a pipe that tungstenite holds.
#[derive(Debug, Default)]
struct Pipe {
    incoming: VecDeque<u8>,
    outgoing: Vec<u8>,
}

impl Read for Pipe {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.incoming.is_empty() { Err(io::ErrorKind::WouldBlock.into()) } else { self.incoming.read(buffer) }
    }
}

impl Write for Pipe {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.outgoing.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// One end of ours, and one of theirs.
struct Pair<E> {
    ours: Receiver<E>,
    theirs: WebSocket<Pipe>,
}

impl<E: End> Pair<E> {
    /// Passes what theirs has sent, in pieces.
    fn pass_to_ours(&mut self, piece: usize) {
        let bytes = std::mem::take(&mut self.theirs.get_mut().outgoing);
        bytes.chunks(piece).for_each(|piece| self.ours.receive(piece));
    }

    /// Passes what ours has sent; returns what theirs reads.
    fn pass_to_theirs(&mut self) -> Result<Vec<Message>, Error> {
        self.theirs.get_mut().incoming.extend(std::mem::take(&mut self.ours.out));
        let mut read = Vec::new();
        loop {
            match self.theirs.read() {
                Ok(message) => read.push(message),
                Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => return Ok(read),
                Err(error) => return Err(error),
            }
        }
    }
}

/// Returns an unfinished upgrade.
fn interrupted<T, R: HandshakeRole>(result: Result<T, HandshakeError<R>>) -> MidHandshake<R> {
    match result {
        Err(HandshakeError::Interrupted(upgrade)) => upgrade,
        Err(HandshakeError::Failure(error)) => panic!("{error}"),
        Ok(_) => panic!("nothing has arrived"),
    }
}

/// Opens a connection from their client to our server.
fn their_client() -> Pair<impl End> {
    let uri = "ws://sip-ws.example.com/ws?x=y".parse().expect("a URI");
    let request = ClientRequestBuilder::new(uri).with_sub_protocol("sip").with_header("Origin", "https://example.com");
    let mut upgrade = interrupted(tungstenite::client(request, Pipe::default()));
    let pipe = upgrade.get_mut().get_mut();
    let mut ours = Receiver::server();
    ours.receive(&std::mem::take(&mut pipe.outgoing));
    assert_eq!(std::mem::take(&mut ours.seen), [Seen::Opened]);
    pipe.incoming.extend(std::mem::take(&mut ours.out));
    let (theirs, _) = upgrade.handshake().map_err(|error| error.to_string()).expect("a valid response");
    Pair { ours, theirs }
}

/// Opens a connection from our client to their server.
#[expect(clippy::result_large_err, reason = "the type of the callback's error is theirs")]
fn their_server() -> Pair<impl End> {
    let select = |request: &Request, mut response: Response| {
        let protocol = request.headers().get("Sec-WebSocket-Protocol").expect("offered").clone();
        response.headers_mut().insert("Sec-WebSocket-Protocol", protocol);
        Ok(response)
    };
    let mut ours = Receiver::client_with_request();
    let mut upgrade = ServerHandshake::start(Pipe::default(), select, None);
    upgrade.get_mut().get_mut().incoming.extend(std::mem::take(&mut ours.out));
    let theirs = upgrade.handshake().map_err(|error| error.to_string()).expect("a valid request");
    let mut pair = Pair { ours, theirs };
    pair.pass_to_ours(50);
    assert_eq!(std::mem::take(&mut pair.ours.seen), [Seen::Opened]);
    pair
}

/// What theirs sends.
#[derive(Clone, Debug)]
enum Sent {
    Whole(Vec<u8>),
    /// Fragments, with a ping between them.
    Fragments(Vec<Vec<u8>>),
    Ping(Vec<u8>),
}

fn sent() -> impl Strategy<Value = Sent> {
    let payload = prop_oneof![
        4 => "[ -~é€\r\n]{0,300}".prop_map(String::into_bytes),
        4 => vec(any::<u8>(), 0..300),
        1 => vec(any::<u8>(), 60_000..70_000),
    ];
    prop_oneof![
        4 => payload.prop_map(Sent::Whole),
        2 => vec(vec(any::<u8>(), 0..400), 2..6).prop_map(Sent::Fragments),
        1 => vec(any::<u8>(), 0..=125).prop_map(Sent::Ping),
    ]
}

fn kind_of(payload: &[u8]) -> MessageKind {
    if std::str::from_utf8(payload).is_ok() { MessageKind::Text } else { MessageKind::Binary }
}

fn their_message(payload: &[u8]) -> Message {
    match std::str::from_utf8(payload) {
        Ok(text) => Message::text(text),
        Err(_) => Message::binary(payload.to_vec()),
    }
}

/// Exchanges messages in both directions. `mask` is for ours.
fn exchange<E: End>(mut pair: Pair<E>, messages: &[Sent], piece: usize, mask: Option<[u8; 4]>) {
    let (mut expected, mut pongs) = (Vec::new(), Vec::new());
    for message in messages {
        match message {
            Sent::Whole(payload) => {
                pair.theirs.send(their_message(payload)).expect("open");
                expected.push(Seen::Message(kind_of(payload), payload.clone()));
            }
            Sent::Fragments(fragments) => {
                for (number, fragment) in fragments.iter().enumerate() {
                    let data = if number == 0 { Data::Binary } else { Data::Continue };
                    let frame = Frame::message(fragment.clone(), OpCode::Data(data), number + 1 == fragments.len());
                    pair.theirs.send(Message::Frame(frame)).expect("open");
                    if number == 0 {
                        pair.theirs.send(Message::Ping(vec![1].into())).expect("open");
                        expected.push(Seen::Ping);
                        pongs.push(Message::Pong(vec![1].into()));
                    }
                }
                expected.push(Seen::Message(MessageKind::Binary, fragments.concat()));
            }
            Sent::Ping(payload) => {
                pair.theirs.send(Message::Ping(payload.clone().into())).expect("open");
                expected.push(Seen::Ping);
                pongs.push(Message::Pong(payload.clone().into()));
            }
        }
    }
    pair.pass_to_ours(piece);
    assert_eq!(pair.ours.seen, expected);
    assert_eq!(pair.pass_to_theirs().expect("open"), pongs);

    pair.ours.seen.clear();
    let mut expected = Vec::new();
    for message in messages {
        match message {
            Sent::Whole(payload) => {
                write_message(&mut pair.ours.out, payload, mask);
                expected.push(their_message(payload));
            }
            Sent::Fragments(_) => {}
            Sent::Ping(payload) => {
                write_ping(&mut pair.ours.out, payload, mask);
                expected.push(Message::Ping(payload.clone().into()));
            }
        }
    }
    let pings = messages.iter().filter(|message| matches!(message, Sent::Ping(_))).count();
    assert_eq!(pair.pass_to_theirs().expect("open"), expected);
    pair.theirs.flush().expect("open");
    pair.pass_to_ours(piece);
    // Theirs answers the last ping of a batch (RFC 6455 §5.5.3 allows it).
    assert!(pair.ours.seen.iter().all(|seen| *seen == Seen::Pong));
    assert_eq!(pair.ours.seen.is_empty(), pings == 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn their_client_and_our_server_understand_each_other(messages in vec(sent(), 1..20), piece in 1usize..5000) {
        exchange(their_client(), &messages, piece, None);
    }

    #[test]
    fn our_client_and_their_server_understand_each_other(messages in vec(sent(), 1..20), piece in 1usize..5000, mask in any::<[u8; 4]>()) {
        exchange(their_server(), &messages, piece, Some(mask));
    }

    /// Damaged frames: both servers read the same messages, and ours refuses at least what theirs does.
    #[test]
    fn both_servers_read_damaged_frames_alike(messages in vec(sent(), 1..6), hits in vec((any::<u16>(), any::<u8>()), 1..4)) {
        let mut client = their_client();
        for message in &messages {
            match message {
                Sent::Whole(payload) => client.theirs.send(their_message(payload)).expect("open"),
                Sent::Ping(payload) => client.theirs.send(Message::Ping(payload.clone().into())).expect("open"),
                Sent::Fragments(fragments) => for (number, fragment) in fragments.iter().enumerate() {
                    let data = if number == 0 { Data::Text } else { Data::Continue };
                    let frame = Frame::message(fragment.clone(), OpCode::Data(data), number + 1 == fragments.len());
                    client.theirs.send(Message::Frame(frame)).expect("open");
                },
            }
        }
        let mut bytes = std::mem::take(&mut client.theirs.get_mut().outgoing);
        for (at, byte) in hits {
            // Damage near the start is likelier to hit the head of a frame.
            let at = usize::from(at) % bytes.len().min(64);
            bytes[at] = byte;
        }
        reads_alike(&bytes)?;
    }
}

fn reads_alike(bytes: &[u8]) -> Result<(), TestCaseError> {
    let mut ours = Receiver::server();
    ours.receive(REQUEST);
    ours.receive(bytes);
    let config = WebSocketConfig::default().max_message_size(Some(LIMIT as usize)).max_frame_size(Some(LIMIT as usize));
    let pipe = Pipe { incoming: bytes.iter().copied().collect(), outgoing: Vec::new() };
    let mut theirs = WebSocket::from_raw_socket(pipe, Role::Server, Some(config));
    let mut messages = Vec::new();
    let error = loop {
        match theirs.read() {
            Ok(Message::Text(text)) => messages.push(Seen::Message(MessageKind::Text, text.as_bytes().to_vec())),
            Ok(Message::Binary(bytes)) => messages.push(Seen::Message(MessageKind::Binary, bytes.to_vec())),
            Ok(Message::Close(_)) => break None,
            Ok(_) => {}
            Err(Error::Io(error)) if error.kind() == io::ErrorKind::WouldBlock => break None,
            Err(error) => break Some(error),
        }
    };
    let failure = ours.seen.iter().find_map(|seen| match seen {
        Seen::Failed(Failure::Protocol(error)) => Some(*error),
        _ => None,
    });
    let ours: Vec<_> = ours.seen.into_iter().filter(|seen| matches!(seen, Seen::Message(..))).collect();
    match (failure, &error) {
        (None, None) => prop_assert_eq!(&ours, &messages, "ours: {:?}, theirs: {:?}", failure, error),
        // Theirs does not check this.
        (Some(ProtocolError::LengthNotMinimal), _) => prop_assert!(messages.starts_with(&ours)),
        // Theirs waits for the whole frame, or closes with the same code without an error.
        (Some(_), _) => prop_assert_eq!(&ours, &messages, "ours: {:?}, theirs: {:?}", failure, error),
        // Theirs checks the text of a message before it is complete.
        (None, Some(Error::Utf8(_))) => prop_assert_eq!(&ours, &messages, "ours: {:?}, theirs: {:?}", failure, error),
        (None, Some(error)) => prop_assert!(false, "only theirs fails: {error}"),
    }
    Ok(())
}

#[test]
fn both_ends_close_with_their_code() {
    let mut pair = their_client();
    let frame = CloseFrame { code: 1001.into(), reason: "page left".into() };
    pair.theirs.close(Some(frame)).expect("open");
    pair.pass_to_ours(1);
    assert_eq!(pair.ours.seen, [Seen::Closed(Some(CloseCode::GOING_AWAY))]);
    let read = pair.pass_to_theirs().expect("our confirmation");
    let [Message::Close(Some(confirmed))] = &read[..] else { panic!("{read:?}") };
    assert_eq!(u16::from(confirmed.code), 1001);

    let mut pair = their_client();
    write_close(&mut pair.ours.out, Some(CloseCode::TRY_AGAIN_LATER), "overloaded", None);
    let read = pair.pass_to_theirs().expect("our close");
    let [Message::Close(Some(close))] = &read[..] else { panic!("{read:?}") };
    assert_eq!((u16::from(close.code), close.reason.as_str()), (1013, "overloaded"));
    pair.theirs.flush().expect("their confirmation");
    pair.pass_to_ours(1);
    assert_eq!(pair.ours.seen, [Seen::Closed(Some(CloseCode::TRY_AGAIN_LATER))]);
}

#[test]
fn their_client_learns_why_it_is_refused() {
    let uri = "ws://sip-ws.example.com/".parse().expect("a URI");
    let request = ClientRequestBuilder::new(uri).with_sub_protocol("chat");
    let mut upgrade = interrupted(tungstenite::client(request, Pipe::default()));
    let pipe = upgrade.get_mut().get_mut();
    let mut ours = Receiver::server();
    ours.receive(&std::mem::take(&mut pipe.outgoing));
    pipe.incoming.extend(std::mem::take(&mut ours.out));
    match upgrade.handshake() {
        Err(HandshakeError::Failure(Error::Http(response))) => {
            let body = String::from_utf8(response.body().clone().expect("a reason")).expect("text");
            assert_eq!((response.status().as_u16(), body.contains("subprotocol sip")), (400, true), "{body}");
        }
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("not a SIP client"),
    }
}
