//! Commands to an engine.

use core::net::IpAddr;

use crate::bencode::DictWriter;

/// What the receiver of a session description understands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SessionKind {
    /// The profile is kept: both ends are phones, or both are browsers that negotiate directly.
    #[default]
    AsOffered,
    /// RTP without encryption, ICE or multiplexing, for a phone whose peer is a browser.
    Plain,
    /// What browsers require (RFC 8829): ICE, DTLS-SRTP and RTCP on the port of RTP.
    Browser,
}

/// How an engine rewrites a session description.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// What the receiver understands.
    pub to: SessionKind,
    /// Whether the receiver is a browser, to which ICE candidates of the engine are offered.
    pub is_to_browser: bool,
    /// Where the sender's message came from, if the addresses in its description are not reachable from here: behind
    /// a NAT.
    pub received_from: Option<IpAddr>,
}

/// The dialog of a description, as the engine sees it: the offerer first, whoever of the two sent the message.
#[derive(Clone, Copy, Debug)]
pub struct Dialog<'a> {
    /// The Call-ID.
    pub call_id: &'a [u8],
    /// The tag of the offerer.
    pub from_tag: &'a [u8],
    /// The tag of the answerer; `None` in an offer outside a dialog.
    pub to_tag: Option<&'a [u8]>,
    /// Distinguishes the branches of a forked offer, and names the branch of an answer.
    pub branch: Option<&'a [u8]>,
}

/// A command.
#[derive(Clone, Copy, Debug)]
pub enum Command<'a> {
    /// An offer, whose description is to be replaced.
    Offer(Dialog<'a>, Profile, &'a [u8]),
    /// An answer, whose description is to be replaced.
    Answer(Dialog<'a>, Profile, &'a [u8]),
    /// The end of a call.
    Delete {
        /// The Call-ID.
        call_id: &'a [u8],
        /// The tag of one of the parties.
        from_tag: &'a [u8],
    },
    /// Asks whether the engine is alive.
    Ping,
}

impl Command<'_> {
    /// Appends the command as a bencoded dictionary to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Offer(dialog, profile, sdp) => write_session(out, "offer", dialog, *profile, sdp),
            Self::Answer(dialog, profile, sdp) => write_session(out, "answer", dialog, *profile, sdp),
            Self::Delete { call_id, from_tag } => {
                let mut dict = DictWriter::new(out);
                dict.bytes("call-id", call_id).bytes("command", b"delete").bytes("from-tag", from_tag).finish();
            }
            Self::Ping => DictWriter::new(out).bytes("command", b"ping").finish(),
        }
    }
}

fn write_session(out: &mut Vec<u8>, command: &'static str, dialog: &Dialog<'_>, profile: Profile, sdp: &[u8]) {
    let mut flags: Vec<&[u8]> = Vec::new();
    if profile.received_from.is_some() {
        flags.push(b"SIP-source-address");
    }
    if profile.is_to_browser {
        flags.push(b"generate-mid");
    }
    let address = profile.received_from.map(|ip| ip.to_canonical());
    let text = address.map(|ip| ip.to_string());
    let family: &[u8] = if address.is_some_and(|ip| ip.is_ipv6()) { b"IP6" } else { b"IP4" };
    let from: Vec<&[u8]> = text.iter().flat_map(|text| [family, text.as_bytes()]).collect();
    let transport: Option<&[u8]> = match profile.to {
        SessionKind::AsOffered => None,
        SessionKind::Plain => Some(b"RTP/AVP"),
        SessionKind::Browser => Some(b"UDP/TLS/RTP/SAVPF"),
    };
    let (mux, sdes): (&[&[u8]], &[&[u8]]) = match profile.to {
        SessionKind::AsOffered => (&[], &[]),
        SessionKind::Plain => (&[b"demux"], &[]),
        SessionKind::Browser => (&[b"require"], &[b"off"]),
    };
    DictWriter::new(out)
        // A phone must not learn candidates that lead past the engine.
        .bytes("ICE", if profile.is_to_browser { b"force" } else { b"remove" })
        .list("SDES", sdes)
        .bytes("call-id", dialog.call_id)
        .bytes("command", command.as_bytes())
        .list("flags", &flags)
        .bytes("from-tag", dialog.from_tag)
        .list("received-from", &from)
        .list("replace", &[b"origin", b"session-connection"])
        .list("rtcp-mux", mux)
        .bytes("sdp", sdp)
        .optional("to-tag", dialog.to_tag)
        .optional("transport-protocol", transport)
        .optional("via-branch", dialog.branch)
        .finish();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bencode::Value;

    fn text(command: &Command<'_>) -> String {
        let mut out = Vec::new();
        command.write(&mut out);
        assert!(Value::parse(&out).is_ok());
        String::from_utf8(out).expect("text")
    }

    const DIALOG: Dialog<'_> = Dialog { call_id: b"c@h", from_tag: b"a", to_tag: None, branch: None };

    #[test]
    fn an_offer_between_phones_keeps_their_profile() {
        assert_eq!(
            text(&Command::Offer(DIALOG, Profile::default(), b"v=0")),
            "d3:ICE6:remove7:call-id3:c@h7:command5:offer8:from-tag1:a\
             7:replacel6:origin18:session-connectione3:sdp3:v=0e"
        );
    }

    #[test]
    fn an_offer_to_a_browser_requires_what_browsers_require() {
        let profile = Profile {
            to: SessionKind::Browser,
            is_to_browser: true,
            received_from: Some("192.0.2.7".parse().expect("an address")),
        };
        assert_eq!(
            text(&Command::Offer(Dialog { branch: Some(b"1-0"), ..DIALOG }, profile, b"v=0")),
            "d3:ICE5:force4:SDESl3:offe7:call-id3:c@h7:command5:offer5:flagsl18:SIP-source-address12:generate-mide\
             8:from-tag1:a13:received-froml3:IP49:192.0.2.7e7:replacel6:origin18:session-connectione\
             8:rtcp-muxl7:requiree3:sdp3:v=018:transport-protocol17:UDP/TLS/RTP/SAVPF10:via-branch3:1-0e"
        );
    }

    #[test]
    fn an_answer_to_a_phone_is_plain() {
        let profile = Profile { to: SessionKind::Plain, ..Profile::default() };
        let dialog = Dialog { to_tag: Some(b"b"), ..DIALOG };
        assert_eq!(
            text(&Command::Answer(dialog, profile, b"v=0")),
            "d3:ICE6:remove7:call-id3:c@h7:command6:answer8:from-tag1:a\
             7:replacel6:origin18:session-connectione8:rtcp-muxl5:demuxe3:sdp3:v=06:to-tag1:b\
             18:transport-protocol7:RTP/AVPe"
        );
    }

    #[test]
    fn the_other_commands_are_short() {
        let delete = Command::Delete { call_id: b"c@h", from_tag: b"a" };
        assert_eq!(text(&delete), "d7:call-id3:c@h7:command6:delete8:from-tag1:ae");
        assert_eq!(text(&Command::Ping), "d7:command4:pinge");
    }
}
