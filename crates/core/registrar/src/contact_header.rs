//! A binding as a Contact value of the response (RFC 3261 §10.3 step 8, RFC 5627 §5.2).

use smallvec::SmallVec;
use strowger_foundation::Timestamp;
use strowger_message::Decimal;

use crate::binding::Binding;
use crate::gruu::GruuKey;

/// The text of a [`GruuKey`] in a temporary GRUU, valid as a user part.
pub type GruuText = SmallVec<[u8; 64]>;

/// Makes the text of a temporary GRUU.
pub(crate) type GruuEncoder<'f> = &'f dyn Fn(&GruuKey) -> GruuText;

/// Writes the Contact field, with GRUUs if the client supports them.
pub(crate) fn write_contact(
    out: &mut Vec<u8>,
    now: Timestamp,
    binding: &Binding,
    gruu: Option<(GruuKey, GruuEncoder<'_>)>,
) {
    out.extend_from_slice(b"Contact: <");
    out.extend_from_slice(binding.uri());
    out.extend_from_slice(b">;expires=");
    push_decimal(out, binding.expires_in_s(now));
    if let Some(q) = binding.packed_flow.preference.q() {
        out.extend_from_slice(b";q=");
        push_q(out, q);
    }
    if !binding.instance().is_empty() {
        write_instance(out, binding, gruu);
    }
    out.extend_from_slice(b"\r\n");
}

fn write_instance(out: &mut Vec<u8>, binding: &Binding, gruu: Option<(GruuKey, GruuEncoder<'_>)>) {
    for part in [b";+sip.instance=\"<", binding.instance(), b">\""] {
        out.extend_from_slice(part);
    }
    if let Some(reg_id) = binding.reg_id() {
        out.extend_from_slice(b";reg-id=");
        push_decimal(out, u64::from(reg_id));
    }
    if let Some((key, seal)) = gruu {
        push_gruus(out, binding, &seal(&key));
    }
}

//= rfc5627#5.2
fn push_gruus(text: &mut Vec<u8>, binding: &Binding, temporary: &[u8]) {
    let aor = binding.aor();
    let at = aor.iter().rposition(|byte| *byte == b'@').unwrap_or(0);
    let (user, domain) = (aor.get(..at).unwrap_or(&[]), aor.get(at..).unwrap_or(&[]));
    // The domain itself has no devices.
    if user.is_empty() {
        return;
    }
    text.extend_from_slice(b";pub-gruu=\"sip:");
    push_escaped(text, user, b"-_.!~*'()&=+$,");
    text.extend_from_slice(domain);
    text.extend_from_slice(b";gr=");
    push_escaped(text, binding.instance(), b"-_.!~*'()[]/:&+$");
    for part in [b"\";temp-gruu=\"sip:", temporary, domain, b";gr\""] {
        text.extend_from_slice(part);
    }
}

fn push_escaped(text: &mut Vec<u8>, part: &[u8], marks: &[u8]) {
    const HEX: [u8; 16] = *b"0123456789ABCDEF";
    let digit = |nibble: u8| HEX.get(usize::from(nibble)).copied().unwrap_or(b'0');
    for byte in part {
        if byte.is_ascii_alphanumeric() || marks.contains(byte) {
            text.push(*byte);
        } else {
            text.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte & 15)]);
        }
    }
}

fn push_decimal(text: &mut Vec<u8>, number: u64) {
    text.extend_from_slice(Decimal::new(u32::try_from(number).unwrap_or(u32::MAX)).as_bytes());
}

/// Writes a q value with as many decimals as needed.
fn push_q(text: &mut Vec<u8>, q: u16) {
    text.push(if q >= 1000 { b'1' } else { b'0' });
    let mut rest = q % 1000;
    if rest > 0 {
        text.push(b'.');
    }
    while rest > 0 {
        text.push(b'0' + u8::try_from(rest / 100).unwrap_or(0));
        rest = rest % 100 * 10;
    }
}
