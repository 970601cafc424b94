//! Session descriptions in messages.

use std::borrow::Cow;

use strowger_message::{HeaderName, Message, trim, unquote};

/// Returns the session description of a message: its body, or the first such part of a multipart body (RFC 2046 §5.1).
/// An encoded one is not found, nor one within a part.
pub(super) fn sdp_of<'a>(message: &Message<'a>) -> Option<&'a [u8]> {
    let body = message.body();
    let kind = message.head().first(HeaderName::ContentType)?;
    let sdp = match boundary_of(kind) {
        Some(boundary) => sdp_part(body, &boundary)?,
        None if is_sdp(kind) => body,
        None => return None,
    };
    // An encoded one begins otherwise.
    sdp.starts_with(b"v=").then_some(sdp)
}

/// Returns the body of a message with another session description in place of its own.
pub(super) fn body_with<'s>(message: &Message<'_>, sdp: &'s [u8]) -> Cow<'s, [u8]> {
    let body = message.body();
    let Some(old) = sdp_of(message).filter(|old| old.len() < body.len()) else { return Cow::Borrowed(sdp) };
    let at = old.as_ptr().addr().wrapping_sub(body.as_ptr().addr());
    let (before, rest) = body.split_at_checked(at).unwrap_or((body, b""));
    Cow::Owned([before, sdp, rest.get(old.len()..).unwrap_or_default()].concat())
}

fn is_sdp(kind: &[u8]) -> bool {
    let kind = trim(kind.split(|byte| *byte == b';').next().unwrap_or(kind));
    kind.eq_ignore_ascii_case(b"application/sdp")
}

/// Returns what precedes each part of a multipart body: two hyphens and the boundary.
fn boundary_of(kind: &[u8]) -> Option<Vec<u8>> {
    let multipart = b"multipart/";
    if !kind.get(..multipart.len())?.eq_ignore_ascii_case(multipart) {
        return None;
    }
    let boundary = kind.split(|byte| *byte == b';').skip(1).find_map(|param| {
        let at = param.iter().position(|byte| *byte == b'=')?;
        let (name, value) = param.split_at_checked(at)?;
        trim(name).eq_ignore_ascii_case(b"boundary").then(|| unquote(trim(value.get(1..).unwrap_or_default())))
    })?;
    (!boundary.is_empty()).then(|| [&b"--"[..], boundary.as_ref()].concat())
}

/// Returns the content of the first part with a session description that is not encoded.
fn sdp_part<'a>(body: &'a [u8], boundary: &[u8]) -> Option<&'a [u8]> {
    let mut rest = body.get(find(body, boundary)?.saturating_add(boundary.len())..)?;
    loop {
        // The first empty line ends the part's fields; the boundary line may have white space at its end.
        let head = find(rest, b"\r\n\r\n")?;
        let (fields, content) = rest.split_at_checked(head.saturating_add(4))?;
        let end = find(content, boundary)?;
        let part = content.get(..end)?;
        if fields.starts_with(b"--") {
            return None;
        }
        let part = part.strip_suffix(b"\r\n").unwrap_or(part);
        let is_encoded = field(fields, b"content-transfer-encoding").is_some_and(|encoding| {
            ![&b"7bit"[..], b"8bit", b"binary"].iter().any(|one| encoding.eq_ignore_ascii_case(one))
        });
        if !is_encoded && field(fields, b"content-type").is_some_and(is_sdp) {
            return Some(part);
        }
        rest = content.get(end.saturating_add(boundary.len())..)?;
    }
}

/// Returns the value of the first field called `name`, in lower case.
fn field<'a>(fields: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    fields.split(|byte| *byte == b'\n').find_map(|line| {
        let (start, rest) = line.split_at_checked(name.len())?;
        let value = trim(rest).strip_prefix(b":")?;
        start.eq_ignore_ascii_case(name).then(|| trim(value))
    })
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len().max(1)).position(|part| part == wanted)
}

#[cfg(test)]
mod tests {
    use strowger_proxy::forward::with_body;

    use super::*;

    fn message(fields: &str, body: &str) -> String {
        format!(
            "INVITE sip:b@h SIP/2.0\r\nVia: SIP/2.0/UDP a;branch=z9hG4bK1\r\n{fields}From: <sip:a@h>;tag=1\r\n\
             To: <sip:b@h>\r\nCall-ID: c\r\nCSeq: 1 INVITE\r\n\r\n{body}"
        )
    }

    #[test]
    fn only_a_plain_description_is_found() {
        for (fields, found) in [
            ("Content-Type: application/sdp\r\n", true),
            ("c: Application/SDP ; charset=utf-8\r\n", true),
            ("Content-Type: multipart/mixed;boundary=a\r\n", false),
            ("Content-Type: text/plain\r\n", false),
            ("", false),
        ] {
            let text = message(fields, "v=0\r\n");
            let parsed = Message::parse(text.as_bytes()).expect("valid");
            assert_eq!(sdp_of(&parsed).is_some(), found, "{fields}");
        }
        for body in ["", "\u{1f}gzip"] {
            let text = message("Content-Type: application/sdp\r\n", body);
            assert_eq!(sdp_of(&Message::parse(text.as_bytes()).expect("valid")), None);
        }
    }

    const PARTS: &str = "--a b\r\nContent-Type: application/pidf+xml\r\n\r\n<x/>\r\n--a b \r\n\
        Content-Disposition: session\r\ncontent-type : Application/SDP;charset=utf-8\r\n\r\nv=0\r\ns=-\r\n\r\n\
        --a b\r\nContent-Type: application/sdp\r\n\r\nv=1\r\n--a b--\r\n";

    #[test]
    fn the_first_description_of_a_multipart_body_is_found_and_replaced() {
        let text = message("Content-Type: multipart/Mixed; x=1 ;Boundary=\"a b\"\r\n", PARTS);
        let parsed = Message::parse(text.as_bytes()).expect("valid");
        assert_eq!(sdp_of(&parsed), Some(&b"v=0\r\ns=-\r\n"[..]));
        let changed = body_with(&parsed, b"v=0\r\nm=audio\r\n");
        assert_eq!(String::from_utf8_lossy(&changed), PARTS.replace("s=-", "m=audio"));
        let plain = message("Content-Type: application/sdp\r\n", "v=0\r\n");
        assert_eq!(&*body_with(&Message::parse(plain.as_bytes()).expect("valid"), b"v=2\r\n"), b"v=2\r\n");
    }

    #[test]
    fn a_multipart_body_without_a_plain_description_has_none() {
        let kind = "Content-Type: multipart/mixed;boundary=a\r\n";
        for (fields, body) in [
            (kind, "--a\r\nContent-Type: application/isup\r\n\r\nx\r\n--a--\r\n"),
            (kind, "--a\r\nContent-Type: application/sdp\r\nContent-Transfer-Encoding: base64\r\n\r\nv=0\r\n--a--\r\n"),
            (kind, "--a\r\nContent-Type: application/sdp\r\n\r\ndj0w\r\n--a--\r\n"),
            (kind, "--a\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n"),
            (kind, "--a--\r\nContent-Type: application/sdp\r\n\r\nv=0\r\n--a--\r\n"),
            (kind, "--a"),
            (kind, ""),
            ("Content-Type: multipart/mixed\r\n", PARTS),
            ("Content-Type: multipart/mixed;boundary=\"\"\r\n", PARTS),
        ] {
            let text = message(fields, body);
            assert_eq!(sdp_of(&Message::parse(text.as_bytes()).expect("valid")), None, "{body}");
        }
    }

    #[test]
    fn another_body_changes_only_the_length() {
        for (before, after) in [("Content-Length: 5\r\n", "Content-Length: 11\r\n"), ("l:5\r\n", "l:11\r\n"), ("", "")]
        {
            let text = message(before, "v=0\r\n");
            let parsed = Message::parse(text.as_bytes()).expect("valid");
            let changed = String::from_utf8(with_body(&parsed, b"v=0\r\ns=-\r\n\n")).expect("text");
            assert_eq!(changed, message(after, "v=0\r\ns=-\r\n\n"));
        }
    }
}
