//! The REGISTER of each user, and the parser of its response.

use std::net::SocketAddr;
use std::sync::LazyLock;

use memchr::memmem::Finder;

/// Domain of all users.
pub const DOMAIN: &str = "ex.example.com";
/// CSeq of a user's first REGISTER. All have seven digits, so that messages are filled in at fixed positions.
pub const FIRST_CSEQ: u32 = 1_000_000;

const USER_DIGITS: usize = 8;
const CSEQ_DIGITS: usize = 7;
const MARK: &str = "z9hG4bK";

/// The REGISTERs of one source address: a text with fixed positions for the user's number and the CSeq.
#[derive(Debug)]
pub struct Template {
    bytes: Vec<u8>,
    users: Vec<usize>,
    cseqs: Vec<usize>,
}

impl Template {
    /// Returns the template for users at `local`. The address of record has 24 bytes, the contact 40 with a port of
    /// five digits: the reference contact.
    #[must_use]
    pub fn register(local: SocketAddr) -> Template {
        Template::of(local, &format!("Contact: <sip:u{{user}}@{local};line=abcde>\r\nExpires: 3600\r\n"))
    }

    /// Returns the template of a query for a user's contacts: a REGISTER without Contact.
    #[must_use]
    pub fn query(local: SocketAddr) -> Template {
        Template::of(local, "")
    }

    fn of(local: SocketAddr, contact: &str) -> Template {
        let text = format!(
            "REGISTER sip:{DOMAIN} SIP/2.0\r\nVia: SIP/2.0/UDP {local};branch={MARK}{{user}}{{cseq}};rport\r\n\
             Max-Forwards: 70\r\nFrom: <sip:u{{user}}@{DOMAIN}>;tag=t{{user}}\r\nTo: <sip:u{{user}}@{DOMAIN}>\r\n\
             Call-ID: 7a1f9c64-{{user}}@127.0.0.1\r\nCSeq: {{cseq}} REGISTER\r\n{contact}\
             User-Agent: Bench-Phone 1.0\r\nAllow: INVITE, ACK, CANCEL, BYE, OPTIONS\r\nContent-Length: 0\r\n\r\n"
        );
        let (mut bytes, mut users, mut cseqs) = (Vec::new(), Vec::new(), Vec::new());
        let mut rest = text.as_str();
        while let Some((before, after)) = rest.split_once('{') {
            bytes.extend_from_slice(before.as_bytes());
            let (name, after) = after.split_once('}').expect("the text closes its braces");
            let (places, digits) = if name == "user" { (&mut users, USER_DIGITS) } else { (&mut cseqs, CSEQ_DIGITS) };
            places.push(bytes.len());
            bytes.resize(bytes.len() + digits, b'0');
            rest = after;
        }
        bytes.extend_from_slice(rest.as_bytes());
        Template { bytes, users, cseqs }
    }

    /// Appends the REGISTER of this user with this CSeq.
    pub fn write(&self, user: u32, cseq: u32, out: &mut Vec<u8>) {
        let begin = out.len();
        out.extend_from_slice(&self.bytes);
        let fill = |out: &mut Vec<u8>, places: &[usize], digits: usize, number: u32| {
            for place in places {
                let mut rest = number;
                for digit in out[begin + place..begin + place + digits].iter_mut().rev() {
                    *digit = b'0' + (rest % 10) as u8;
                    rest /= 10;
                }
            }
        };
        fill(out, &self.users, USER_DIGITS, user);
        fill(out, &self.cseqs, CSEQ_DIGITS, cseq);
    }
}

/// A response and the REGISTER that it belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer {
    /// Status code.
    pub status: u16,
    /// User number.
    pub user: u32,
    /// CSeq of the REGISTER.
    pub cseq: u32,
}

impl Answer {
    /// Parses a response by the branch of the topmost Via. Returns `None` if it does not answer one of these
    /// requests.
    #[must_use]
    pub fn read(bytes: &[u8]) -> Option<Answer> {
        static FINDER: LazyLock<Finder<'static>> = LazyLock::new(|| Finder::new(MARK));
        let status = number(bytes.strip_prefix(b"SIP/2.0 ")?.get(..3)?)?;
        let at = FINDER.find(bytes)? + MARK.len();
        let user = number(bytes.get(at..at + USER_DIGITS)?)?;
        let at = at + USER_DIGITS;
        let cseq = number(bytes.get(at..at + CSEQ_DIGITS)?)?;
        Some(Answer { status: u16::try_from(status).ok()?, user, cseq })
    }
}

fn number(digits: &[u8]) -> Option<u32> {
    digits.iter().try_fold(0, |number, digit| digit.is_ascii_digit().then(|| number * 10 + u32::from(digit - b'0')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_register_has_the_reference_contact_and_matches_its_answer() {
        let template = Template::register("127.0.0.1:25060".parse().expect("an address"));
        let mut text = Vec::new();
        template.write(1_234_567, FIRST_CSEQ + 1, &mut text);
        let text = String::from_utf8(text).expect("text");
        assert!(text.contains("\r\nCSeq: 1000001 REGISTER\r\n"), "{text}");
        let aor = text.split_once("To: <sip:").and_then(|(_, rest)| rest.split_once('>')).expect("a To").0;
        let contact = text.split_once("Contact: <").and_then(|(_, rest)| rest.split_once('>')).expect("a contact").0;
        assert_eq!((aor, aor.len()), ("u01234567@ex.example.com", 24));
        assert_eq!((contact, contact.len()), ("sip:u01234567@127.0.0.1:25060;line=abcde", 40));
        let answer = text.replacen("REGISTER sip:ex.example.com SIP/2.0", "SIP/2.0 503 Service Unavailable", 1);
        let expected = Answer { status: 503, user: 1_234_567, cseq: FIRST_CSEQ + 1 };
        assert_eq!(Answer::read(answer.as_bytes()), Some(expected));
        assert_eq!(Answer::read(text.as_bytes()), None, "a request is no answer");
        assert_eq!(Answer::read(b"SIP/2.0 200 OK\r\nVia: SIP/2.0/UDP 127.0.0.1;branch=z9hG4bKother\r\n\r\n"), None);
    }
}
