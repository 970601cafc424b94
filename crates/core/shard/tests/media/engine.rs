//! A world with media engines, and messages with session descriptions.

use std::net::SocketAddr;
use std::sync::Arc;

use strowger_foundation::{Flow, ListenerId, Transport};
use strowger_media::bencode::Value;
use strowger_media::{Engines, MediaPolicy, When};
use strowger_shard::{Input, Snapshot};

use crate::support::{ALICE, BOB, SentMessage, World};

pub(crate) const ENGINE: &str = "192.0.2.50:2223";
pub(crate) const ENGINE2: &str = "192.0.2.51:2223";

/// Sets a policy with `count` engines.
pub(crate) fn policy(snapshot: &mut Snapshot, count: usize, edit: impl FnOnce(&mut MediaPolicy)) {
    let addresses: Vec<SocketAddr> =
        [ENGINE, ENGINE2].iter().take(count).map(|text| text.parse().expect("an address")).collect();
    let engines = Engines::new(&addresses, None);
    let mut policy = MediaPolicy { engines, when: When::Always, ..MediaPolicy::default() };
    edit(&mut policy);
    snapshot.media = Some(Arc::new(policy));
    (snapshot.track_calls, snapshot.record_calls) = (true, false);
}

/// A world whose calls go through one engine.
pub(crate) fn world(edit: impl FnOnce(&mut Snapshot)) -> World {
    let mut world = World::new(|snapshot| {
        policy(snapshot, 1, |_| {});
        edit(snapshot);
    });
    let none = world.wait(std::time::Duration::from_millis(1));
    assert!(none.is_empty());
    let probes = commands(&mut world);
    probes.iter().for_each(|probe| drop(probe.answer_with(&mut world, "d6:result4:ponge")));
    world
}

/// A command that the shard sent to an engine.
#[derive(Clone, Debug)]
pub(crate) struct SentCommand {
    pub(crate) engine: SocketAddr,
    cookie: String,
    pub(crate) text: String,
}

impl SentCommand {
    pub(crate) fn string(&self, key: &str) -> Option<String> {
        let value = Value::parse(self.text.as_bytes()).expect("bencode");
        value.get(key).and_then(Value::as_bytes).map(|bytes| String::from_utf8_lossy(bytes).into_owned())
    }

    /// Command, offerer, answerer, branch.
    pub(crate) fn summary(&self) -> String {
        let part = |key| self.string(key).map(|text| format!(" {text}")).unwrap_or_default();
        let command = self.string("command").expect("a command");
        format!("{command}{}{}{}", part("from-tag"), part("to-tag"), part("via-branch"))
    }

    /// Answers with a text of its own.
    pub(crate) fn answer_with(&self, world: &mut World, text: &str) -> Vec<SentMessage> {
        let message = format!("{} {text}", self.cookie);
        world.give(Input::Media { engine: self.engine, message: message.as_bytes() })
    }

    /// Answers as an engine does, with a description that names the command and the one it got.
    pub(crate) fn answer(&self, world: &mut World) -> Vec<SentMessage> {
        let sdp = self.result();
        self.answer_with(world, &format!("d3:sdp{}:{sdp}6:result2:oke", sdp.len()))
    }

    /// The description of the answer.
    pub(crate) fn result(&self) -> String {
        format!("v=0\r\ns={}\r\n{}", self.summary(), self.string("sdp").unwrap_or_default())
    }
}

/// Takes the commands sent since the last time, without probes.
pub(crate) fn commands(world: &mut World) -> Vec<SentCommand> {
    let sent = std::mem::take(&mut world.commands).into_iter().map(|(engine, bytes)| {
        let text = String::from_utf8(bytes).expect("text");
        let (cookie, text) = text.split_once(' ').expect("a cookie");
        SentCommand { engine, cookie: cookie.to_owned(), text: text.to_owned() }
    });
    sent.collect()
}

/// Takes the only command.
pub(crate) fn command(world: &mut World) -> SentCommand {
    let mut sent: Vec<_> = commands(world).into_iter().filter(|sent| sent.summary() != "ping").collect();
    assert_eq!(sent.len(), 1, "{sent:?}");
    sent.remove(0)
}

pub(crate) fn summaries(commands: &[SentCommand]) -> Vec<String> {
    commands.iter().map(SentCommand::summary).collect()
}

/// A session description of a party.
pub(crate) fn sdp(of: &str) -> String {
    format!("v=0\r\no={of}\r\n")
}

/// The body of a message; checks its length.
pub(crate) fn body(sent: &SentMessage) -> &str {
    let body = sent.text.split_once("\r\n\r\n").expect("a head").1;
    assert_eq!(sent.header("Content-Length"), Some(&*body.len().to_string()), "{}", sent.text);
    body
}

/// A request from Alice, or in her dialog with Bob if `to_tag` is given.
pub(crate) fn request(method: &str, cseq: u32, to_tag: &str, sdp: &str) -> String {
    let is_in_dialog = !to_tag.is_empty();
    let to_tag = if is_in_dialog { format!(";tag={to_tag}") } else { String::new() };
    let uri = if is_in_dialog { format!("sip:bob@{BOB}") } else { "sip:bob@example.com".to_owned() };
    let kind = if sdp.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    let branch = if method == "CANCEL" { "INVITE" } else { method };
    format!(
        "{method} {uri} SIP/2.0\r\nVia: SIP/2.0/UDP {ALICE};branch=z9hG4bK{branch}{cseq}\r\nMax-Forwards: 70\r\n\
         From: <sip:alice@example.com>;tag=a\r\nTo: <sip:bob@example.com>{to_tag}\r\nCall-ID: call-1@alice\r\n\
         CSeq: {cseq} {method}\r\nContact: <sip:alice@{ALICE}>\r\n{kind}Content-Length: {}\r\n\r\n{sdp}",
        sdp.len(),
    )
}

/// Lets a request follow the route of the dialog that `invite` began.
pub(crate) fn routed(invite: &SentMessage, request: &str) -> String {
    let route = invite.header("Record-Route").expect("recorded");
    request.replace("Max-Forwards: 70\r\n", &format!("Max-Forwards: 70\r\nRoute: {route}\r\n"))
}

/// Bob's response with a description.
pub(crate) fn response(request: &SentMessage, status: u16, tag: &str, sdp: &str) -> String {
    let kind = if sdp.is_empty() { "" } else { "Content-Type: application/sdp\r\n" };
    let text = request.response(status, "Reason", &format!(";tag={tag}"), kind);
    text.replace("Content-Length: 0\r\n\r\n", &format!("Content-Length: {}\r\n\r\n{sdp}", sdp.len()))
}

/// A flow from a browser.
pub(crate) fn by_web_socket(peer: &str) -> Flow {
    let connection = strowger_foundation::ConnId::new(0, 1, 1);
    let peer = peer.parse().expect("an address");
    Flow { connection: Some(connection), ..Flow::new(ListenerId(1), Transport::Ws, peer) }
}
