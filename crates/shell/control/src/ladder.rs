//! Draws a trace as a ladder diagram: one lane for each party, one for the server, one arrow for each message.
//!
//! The ladder is drawn while messages arrive, so the parties are not known in advance. The first party stands left of
//! the server, the others right of it. The heading is drawn again when a party joins.

use std::collections::VecDeque;
use std::net::SocketAddr;

use crate::protocol::TracedMessage;

/// Maximum number of parties drawn at one time. A further party replaces the one that has been silent longest.
const MAX_PARTIES: usize = 4;
/// Maximum number of numbered calls. A new call takes the number of the oldest.
const MAX_CALLS: usize = 256;
/// Number of rows after which the heading is repeated.
const PAGE: u64 = 40;
/// Characters left of the lanes: the time, the time since the previous row and the call number.
const GUTTER: usize = 22;
/// Characters between an edge and the nearest lane: half of an IPv4 address with its port.
const MARGIN: usize = 9;
/// Minimum width in columns. Below it, arrows have no room for a label.
const MIN_WIDTH: usize = 80;
/// Index of the server's lane. The first party's lane is left of it.
const SERVER: usize = 1;

/// Draws a ladder row by row.
#[derive(Debug)]
pub struct Ladder {
    width: usize,
    /// Parties by lane; `None` for the server's lane and for free lanes.
    lanes: Vec<Option<Party>>,
    calls: VecDeque<String>,
    /// Number of calls that have lost their number.
    forgotten: usize,
    first_us: Option<u64>,
    last_us: u64,
    rows: u64,
    needs_heading: bool,
}

#[derive(Debug)]
struct Party {
    transport: String,
    peer: SocketAddr,
    /// Last row in which the party took part.
    row: u64,
}

impl Ladder {
    /// Creates a ladder of `width` columns, at least 80.
    #[must_use]
    pub fn new(width: usize) -> Self {
        Self {
            width: width.max(MIN_WIDTH),
            lanes: vec![None, None, None],
            calls: VecDeque::new(),
            forgotten: 0,
            first_us: None,
            last_us: 0,
            rows: 0,
            needs_heading: true,
        }
    }

    /// Returns the lines for one message: a heading if due, the arrow, and the message text if present. Each line
    /// ends with a newline.
    #[must_use]
    pub fn message(&mut self, message: &TracedMessage) -> String {
        let lane = self.lane(message);
        self.needs_heading |= self.rows.is_multiple_of(PAGE);
        self.rows += 1;
        let mut text = String::new();
        if std::mem::take(&mut self.needs_heading) {
            text += &self.heading();
        }
        let (number, is_new) = self.call(&message.call_id);
        if is_new {
            text += &format!("{:GUTTER$}call {number} is {}\n", "", message.call_id);
        }
        let first = *self.first_us.get_or_insert(message.at_us);
        let since_first = message.at_us.saturating_sub(first);
        let since_last = since_first.saturating_sub(self.last_us);
        self.last_us = since_first;
        let gutter = format!("{:>9} {:>8} {number:>2} ", millis(since_first), format!("+{}", millis(since_last)));
        text += &format!("{gutter}{}\n", self.arrow(lane, message));
        if let Some(lines) = &message.lines {
            lines.iter().for_each(|line| text += &format!("    {line}\n"));
            text += "\n";
        }
        text
    }

    /// Returns the line that reports `count` missing messages.
    #[must_use]
    pub fn lost(&self, count: u64) -> String {
        format!("{:GUTTER$}{count} messages are missing here: they arrived faster than they were read\n", "")
    }

    /// Returns the lane of the message's remote party.
    fn lane(&mut self, message: &TracedMessage) -> usize {
        let row = self.rows;
        let is_it = |party: &Party| party.peer == message.peer && party.transport == message.transport;
        for (lane, party) in self.lanes.iter_mut().enumerate() {
            if let Some(party) = party.as_mut().filter(|party| is_it(party)) {
                party.row = row;
                return lane;
            }
        }
        let lane = self.new_lane(message.sent);
        if lane == self.lanes.len() {
            self.lanes.push(None);
        }
        if let Some(place) = self.lanes.get_mut(lane) {
            *place = Some(Party { transport: message.transport.clone(), peer: message.peer, row });
        }
        self.needs_heading = true;
        lane
    }

    fn new_lane(&self, is_sent: bool) -> usize {
        let parties = || self.lanes.iter().enumerate().filter(|(lane, _)| *lane != SERVER);
        let free = || parties().filter(|(_, party)| party.is_none()).map(|(lane, _)| lane);
        let wanted = if is_sent { free().next_back() } else { free().next() };
        let oldest = || parties().min_by_key(|(_, party)| party.as_ref().map(|party| party.row));
        match wanted {
            // A party that the server contacts first stands right of it, even if the left lane is free.
            Some(0) if is_sent && parties().count() < MAX_PARTIES => self.lanes.len(),
            Some(lane) => lane,
            None if parties().count() < MAX_PARTIES => self.lanes.len(),
            None => oldest().map_or(0, |(lane, _)| lane),
        }
    }

    /// Returns the call's number and whether it is newly assigned.
    fn call(&mut self, call_id: &str) -> (usize, bool) {
        if let Some(at) = self.calls.iter().position(|known| known == call_id) {
            return (self.forgotten + at + 1, false);
        }
        self.calls.push_back(call_id.to_owned());
        if self.calls.len() > MAX_CALLS {
            self.calls.pop_front();
            self.forgotten += 1;
        }
        (self.forgotten + self.calls.len(), true)
    }

    fn heading(&self) -> String {
        let (mut names, mut transports) = (self.canvas(), self.canvas());
        for (lane, party) in self.lanes.iter().enumerate() {
            let at = self.position(lane);
            let (name, transport) = match party {
                Some(party) => (party.peer.to_string(), party.transport.as_str()),
                None if lane == SERVER => ("strowger".to_owned(), ""),
                None => continue,
            };
            centre(&mut names, at, &shorten_middle(&name, self.gap() - 1));
            centre(&mut transports, at, transport);
        }
        let blank = if self.rows > 1 { "\n" } else { "" };
        let names: String = names.into_iter().collect();
        let transports: String = transports.into_iter().collect();
        format!(
            "{blank}{:>9} {:>8} {:>2} {}\n{:GUTTER$}{}\n",
            "ms",
            "+ms",
            "#",
            names.trim_end(),
            "",
            transports.trim_end()
        )
    }

    fn arrow(&self, lane: usize, message: &TracedMessage) -> String {
        let mut row = self.canvas();
        for (lane, party) in self.lanes.iter().enumerate() {
            if party.is_some() || lane == SERVER {
                put(&mut row, self.position(lane), '│');
            }
        }
        let (party, server) = (self.position(lane), self.position(SERVER));
        let (start, end) = (party.min(server) + 1, party.max(server) - 1);
        (start..=end).for_each(|at| put(&mut row, at, '─'));
        let points_right = (party > server) == message.sent;
        put(&mut row, if points_right { end } else { start }, if points_right { '>' } else { '<' });
        let label = shorten(&label(message), (end - start).saturating_sub(4));
        centre(&mut row, start + (end - start) / 2, &format!(" {label} "));
        row.into_iter().collect::<String>().trim_end().to_owned()
    }

    fn canvas(&self) -> Vec<char> {
        vec![' '; self.width - GUTTER]
    }

    /// Returns the column of a lane.
    fn position(&self, lane: usize) -> usize {
        MARGIN + lane * (self.width - GUTTER - 1 - 2 * MARGIN) / (self.lanes.len() - 1)
    }

    /// Returns the number of characters between lanes.
    fn gap(&self) -> usize {
        self.position(1) - self.position(0)
    }
}

/// Returns the arrow's label: method and URI of a request, or status of a response, with the method unless it is
/// INVITE.
fn label(message: &TracedMessage) -> String {
    let Some(status) = message.start.strip_prefix("SIP/2.0 ") else {
        return message.start.strip_suffix(" SIP/2.0").unwrap_or(&message.start).to_owned();
    };
    match message.cseq.split_whitespace().nth(1) {
        Some(method) if method != "INVITE" => format!("{} ({method})", status.trim_end()),
        _ => status.trim_end().to_owned(),
    }
}

fn millis(micros: u64) -> String {
    format!("{}.{}", micros / 1000, micros % 1000 / 100)
}

fn put(row: &mut [char], at: usize, what: char) {
    if let Some(place) = row.get_mut(at) {
        *place = what;
    }
}

fn centre(row: &mut [char], at: usize, text: &str) {
    let start = at.saturating_sub(text.chars().count() / 2);
    text.chars().enumerate().for_each(|(offset, c)| put(row, start + offset, c));
}

fn shorten(text: &str, room: usize) -> String {
    if text.chars().count() <= room {
        return text.to_owned();
    }
    text.chars().take(room.saturating_sub(1)).chain(['…']).collect()
}

/// Shortens a text in the middle; the end holds the port.
fn shorten_middle(text: &str, room: usize) -> String {
    const END: usize = 6;
    let length = text.chars().count();
    if length <= room {
        return text.to_owned();
    }
    let start = text.chars().take(room.saturating_sub(END + 1));
    start.chain(['…']).chain(text.chars().skip(length.saturating_sub(END))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(at_us: u64, arrow: &str, peer: &str, start: &str, cseq: &str, call_id: &str) -> TracedMessage {
        TracedMessage {
            time: String::new(),
            unix_ns: 0,
            at_us: 7_000_000 + at_us,
            sent: arrow == "to",
            transport: "UDP".to_owned(),
            local: "192.0.2.2:5060".to_owned(),
            peer: peer.parse().expect("an address"),
            start: start.to_owned(),
            cseq: cseq.to_owned(),
            call_id: call_id.to_owned(),
            length: 0,
            lines: None,
            bytes: None,
            cut: 0,
        }
    }

    fn draw(messages: &[TracedMessage]) -> String {
        let mut ladder = Ladder::new(100);
        let text: String = messages.iter().map(|message| ladder.message(message)).collect();
        for line in text.lines() {
            assert!(line.chars().count() <= 100 && line.trim_end() == line, "{line:?}");
        }
        format!("\n{text}")
    }

    const A: &str = "192.0.2.1:5060";
    const B: &str = "192.0.2.77:5062";

    #[test]
    fn a_call() {
        let m = |at, arrow, peer, start, cseq| message(at, arrow, peer, start, cseq, "f81d4fae@192.0.2.1");
        let text = draw(&[
            m(0, "from", A, "INVITE sip:bob@example.com SIP/2.0", "1 INVITE"),
            m(120, "to", A, "SIP/2.0 100 Trying", "1 INVITE"),
            m(150, "to", B, "INVITE sip:bob@192.0.2.77:5062;ob=1 SIP/2.0", "1 INVITE"),
            m(40_960, "from", B, "SIP/2.0 180 Ringing", "1 INVITE"),
            m(41_000, "to", A, "SIP/2.0 180 Ringing", "1 INVITE"),
            m(5_041_000, "from", A, "BYE sip:bob@192.0.2.77:5062 SIP/2.0", "2 BYE"),
            m(5_052_000, "from", B, "SIP/2.0 200 OK", "2 BYE"),
        ]);
        let expected = "
       ms      +ms  #   192.0.2.1:5060                  strowger
                              UDP
                      call 1 is f81d4fae@192.0.2.1
      0.0     +0.0  1          │─ INVITE sip:bob@example… ─>│
      0.1     +0.1  1          │<────── 100 Trying ─────────│

       ms      +ms  #   192.0.2.1:5060                  strowger                   192.0.2.77:5062
                              UDP                                                        UDP
      0.1     +0.0  1          │                            │─ INVITE sip:bob@192.0.2.… ─>│
     40.9    +40.8  1          │                            │<─────── 180 Ringing ────────│
     41.0     +0.0  1          │<────── 180 Ringing ────────│                             │
   5041.0  +5000.0  1          │─ BYE sip:bob@192.0.2.77… ─>│                             │
   5052.0    +11.0  1          │                            │<────── 200 OK (BYE) ────────│
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn a_fork_a_second_call_and_a_long_address() {
        let text = draw(&[
            message(0, "from", A, "INVITE sip:bob@example.com SIP/2.0", "1 INVITE", "c1"),
            message(100, "to", B, "INVITE sip:bob@192.0.2.77 SIP/2.0", "1 INVITE", "c1"),
            message(200, "to", "[2001:db8:85a3::8a2e:370:7334]:5060", "INVITE sip:bob@b SIP/2.0", "1 INVITE", "c1"),
            message(300, "from", A, "OPTIONS sip:a SIP/2.0", "1 OPTIONS", "c2"),
            message(250, "from", "[2001:db8:85a3::8a2e:370:7334]:5060", "SIP/2.0 486 Busy Here", "1 INVITE", "c1"),
        ]);
        let expected = "
       ms      +ms  #   192.0.2.1:5060                  strowger
                              UDP
                      call 1 is c1
      0.0     +0.0  1          │─ INVITE sip:bob@example… ─>│

       ms      +ms  #   192.0.2.1:5060                  strowger                   192.0.2.77:5062
                              UDP                                                        UDP
      0.1     +0.1  1          │                            │─ INVITE sip:bob@192.0.2.… ─>│

       ms      +ms  #   192.0.2.1:5060        strowger         192.0.2.77:5062   [2001:db8:8…]:5060
                              UDP                                    UDP                 UDP
      0.2     +0.1  1          │                  │────────── INVITE sip:bob@b ──────────>│
                      call 2 is c2
      0.3     +0.1  2          │─ OPTIONS sip:a ─>│                   │                   │
      0.2     +0.0  1          │                  │<─────────── 486 Busy Here ────────────│
";
        assert_eq!(text, expected, "{text}");
    }

    #[test]
    fn idle_parties_are_replaced_beyond_the_lane_limit() {
        let mut ladder = Ladder::new(100);
        for port in 1..=20 {
            let peer = format!("192.0.2.9:{port}");
            let arrow = if port % 3 == 0 { "to" } else { "from" };
            let text = ladder.message(&message(port, arrow, &peer, "ACK sip:b SIP/2.0", "1 ACK", "c"));
            assert!(text.contains(&peer), "{text}");
            assert!(ladder.lanes.len() <= MAX_PARTIES + 1);
        }
        assert!(ladder.lost(7).contains("7 messages are missing"));
    }

    #[test]
    fn full_messages_follow_their_arrows() {
        let lines = Some(vec!["OPTIONS sip:a SIP/2.0".to_owned(), "Via: x".to_owned()]);
        let text = Ladder::new(10)
            .message(&TracedMessage { lines, ..message(0, "from", A, "OPTIONS sip:a SIP/2.0", "1 OPTIONS", "c") });
        assert!(text.ends_with("│\n    OPTIONS sip:a SIP/2.0\n    Via: x\n\n"), "{text}");
    }
}
