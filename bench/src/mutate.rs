//! Structure-aware mutations of valid messages. They damage lines, values, lists, parameters, quotes and numbers as
//! such, so that a parser gets past its first check before it meets the damage. A seed determines the sequence.

use crate::messages;

/// Replacements for a value, a parameter or a separator.
const PIECES: &[&[u8]] = &[
    b"",
    b" ",
    b"\t",
    b"\r\n ",
    b"\r\n\t",
    b"\r",
    b"\n",
    b"\r\n",
    b"\r\n\r\n",
    b"\0",
    b"\xff\xfe",
    b"\xc3\xa9",
    b"\"",
    b"\\",
    b"\\\"",
    b"<",
    b">",
    b"<>",
    b"<<",
    b",",
    b",,",
    b";",
    b";;",
    b"=",
    b":",
    b"::",
    b"@",
    b"?",
    b"%",
    b"%00",
    b"%zz",
    b"[",
    b"]",
    b"[::1]",
    b"[::1",
    b"[2001:db8:::192.0.2.1]",
    b"255.255.255.255",
    b"0.0.0.0",
    b"*",
    b"sip:",
    b"sips:a@b",
    b"tel:+1",
    b"urn:x:y",
    b"sip:a@b:0",
    b"sip:a@b:65536",
    b"z9hG4bK",
    b";branch=z9hG4bK",
    b";tag=",
    b";tag",
    b";rport",
    b";rport=99999",
    b";received=x",
    b";lr",
    b";maddr=224.0.0.1",
    b";ttl=256",
    b"?Route=%3Csip:x%3E",
    b"0",
    b"-1",
    b"+1",
    b"1e9",
    b"4294967295",
    b"4294967296",
    b"2147483648",
    b"18446744073709551616",
    b"99999999999999999999999999",
    b"SIP/2.0",
    b"SIP/3.0",
    b"SIP/2.0/UDP x",
    b"INVITE",
    b"invite",
    b"ACK",
    b"CANCEL",
    b"REGISTER",
    b"Digest a=b",
    b"Digest ",
    b"Basic x",
    b"\"a\", b=\"c",
    b"1.000",
    b"q=1.0000",
    b"expires=0",
];

/// Whole lines, mostly duplicates of fields that may occur once.
const LINES: &[&[u8]] = &[
    b"Content-Length: 0",
    b"l: 99999",
    b"Content-Length: -1",
    b"CSeq: 0 X",
    b"Via: SIP/2.0/UDP h;branch=z9hG4bK1",
    b"v: ,",
    b"To: <sip:x>",
    b"f: a",
    b"i: twice",
    b"Max-Forwards: 0",
    b"Max-Forwards: 256",
    b"Contact: *",
    b"m: <sip:a@b>;expires=0",
    b"Expires: 0",
    b"Route: <sip:a;lr>",
    b"Route: ,",
    b"Record-Route: x",
    b"Require: x",
    b"Proxy-Require: y",
    b"Max-Breadth: 0",
    b"Authorization: Digest",
    b"Proxy-Authorization: Digest username=\"a\"",
    b": no name",
    b"no colon",
    b" a fold",
    b"X:",
    b"X",
    b"\x00: y",
    b"Path: <sip:p;lr>",
    b"P-Asserted-Identity: <sip:king@example.org>",
    b"Timestamp: 1",
];

/// SplitMix64: small, fast, and the same everywhere.
#[derive(Clone, Debug)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    fn one_in(&mut self, of: usize) -> bool {
        self.below(of) == 0
    }

    fn pick<'a>(&mut self, from: &[&'a [u8]]) -> &'a [u8] {
        from[self.below(from.len())]
    }
}

/// An endless sequence of damaged messages.
#[derive(Clone, Debug)]
pub struct Mutator {
    random: Random,
    lines: Vec<Vec<u8>>,
}

impl Mutator {
    /// Creates the sequence of `seed`.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        Self { random: Random(seed), lines: Vec::new() }
    }

    /// Writes the next message to `out`, replacing its contents. At most about 64 kB, as a datagram.
    pub fn next_message(&mut self, out: &mut Vec<u8>) {
        let template = self.random.pick(messages::ALL);
        let head = template.windows(4).position(|end| end == b"\r\n\r\n").map_or(template.len(), |at| at + 4);
        let (head, body) = template.split_at(head);
        self.lines.clear();
        self.lines.extend(
            head[..head.len() - 4].split(|byte| *byte == b'\n').map(|l| l.strip_suffix(b"\r").unwrap_or(l).to_vec()),
        );
        for _ in 0..=self.random.below(4) {
            self.damage_lines();
        }
        out.clear();
        for line in &self.lines {
            out.extend_from_slice(line);
            out.extend_from_slice(b"\r\n");
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
        self.damage_bytes(out);
        out.truncate(65_507);
    }

    fn damage_lines(&mut self) {
        let at = self.random.below(self.lines.len());
        match self.random.below(16) {
            0 => drop(self.lines.remove(at)),
            1 => self.lines.insert(at, self.lines[at].clone()),
            2 => {
                let other = self.random.below(self.lines.len());
                self.lines.swap(at, other);
            }
            3 | 4 => {
                let line = self.random.pick(LINES).to_vec();
                self.lines.insert((at + 1).min(self.lines.len()), line);
            }
            5 => self.replace_value(at),
            6 => self.repeat_line(at),
            7 => self.grow_list(at),
            8 => self.respell(at),
            _ => self.replace_around_separator(at),
        }
        if self.lines.is_empty() {
            self.lines.push(self.random.pick(LINES).to_vec());
        }
    }

    /// Replaces a value by another one or by several pieces.
    fn replace_value(&mut self, at: usize) {
        let line = &mut self.lines[at];
        let colon = line.iter().position(|byte| *byte == b':').map_or(0, |at| at + 1);
        line.truncate(colon);
        for _ in 0..=self.random.below(3) {
            line.extend_from_slice(self.random.pick(PIECES));
        }
    }

    /// Repeats a line a few times, or seldom more often than a message may have lines.
    fn repeat_line(&mut self, at: usize) {
        let times = if self.random.one_in(200) { 300 } else { self.random.below(6) };
        let line = self.lines[at].clone();
        self.lines.splice(at..at, std::iter::repeat_n(line, times));
    }

    /// Grows a list, a run of parameters or a single value, seldom to the size of a datagram.
    fn grow_list(&mut self, at: usize) {
        let (piece, times) = (self.random.pick(PIECES), 1 + self.random.below(20));
        let times = if self.random.one_in(200) { 20_000 } else { times };
        let separator: &[u8] = [&b","[..], b";", b"", b" ", b"="][self.random.below(5)];
        let line = &mut self.lines[at];
        for _ in 0..times {
            if line.len() > 60_000 {
                break;
            }
            line.extend_from_slice(separator);
            line.extend_from_slice(piece);
        }
    }

    fn respell(&mut self, at: usize) {
        let upper = self.random.one_in(2);
        for byte in self.lines[at].iter_mut().take_while(|byte| **byte != b':') {
            *byte = if upper { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() };
        }
    }

    /// Damages the message after a separator, and sometimes replaces what follows.
    fn replace_around_separator(&mut self, at: usize) {
        let line = &mut self.lines[at];
        let turns = |byte: u8| b" :;,=<>\"@/?[]&%\t".contains(&byte);
        let places = line.iter().filter(|byte| turns(**byte)).count();
        let wanted = self.random.below(places);
        let place = line.iter().enumerate().filter(|(_, byte)| turns(**byte)).nth(wanted).map_or(0, |(at, _)| at + 1);
        let end = match self.random.below(3) {
            0 => place,
            1 => (place + 1).min(line.len()),
            _ => line[place..].iter().position(|byte| turns(*byte)).map_or(line.len(), |length| place + length),
        };
        let piece = self.random.pick(PIECES);
        line.splice(place..end, piece.iter().copied());
    }

    /// Seldom damages bytes regardless of structure.
    fn damage_bytes(&mut self, out: &mut Vec<u8>) {
        let at = self.random.below(out.len());
        match self.random.below(24) {
            0 => out.truncate(at),
            1 => {
                if let Some(byte) = out.get_mut(at) {
                    *byte = self.random.next() as u8;
                }
            }
            2 => {
                let piece = self.random.pick(PIECES);
                out.splice(at..at, piece.iter().copied());
            }
            3 => out.extend_from_slice(self.random.pick(messages::ALL)),
            4 => drop(out.splice(0..0, *b"\r\n\r\n")),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence_of_mutations() {
        let (mut a, mut b, mut read) = (Mutator::new(7), Mutator::new(7), 0);
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for _ in 0..2_000 {
            a.next_message(&mut one);
            b.next_message(&mut two);
            assert_eq!(one, two);
            assert!(one.len() <= 65_507);
            read += usize::from(strowger_message::Message::parse(&one).is_ok());
        }
        assert!((200..1_800).contains(&read), "{read} of 2,000 were read: too tame or too wild");
    }
}
