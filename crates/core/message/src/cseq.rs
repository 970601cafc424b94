//! CSeq (RFC 3261 §20.16).

use crate::method::Method;
use crate::text;

/// CSeq (RFC 3261 §20.16).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CSeq<'a> {
    /// Below 2^31 (RFC 3261 §8.1.1.5).
    pub number: u32,
    /// The method of the transaction.
    pub method: Method<'a>,
}

impl<'a> CSeq<'a> {
    /// Reads the value at the start of `text`, if in the common form (one space, a known method), and returns what
    /// follows it.
    #[inline(always)]
    pub(crate) fn read_fast(text: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let (number, [b' ', rest @ ..]) = text::split_number(text)? else { return None };
        let (name, behind) = text::split_while(rest, text::TOKEN);
        let method = Method::from_token(name);
        (!matches!(method, Method::Other(_))).then_some((Self { number, method }, behind))
    }
}

pub(crate) fn read_cseq(value: &[u8]) -> Option<CSeq<'_>> {
    let digits = value.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (number, rest) = value.split_at_checked(digits)?;
    let number = text::parse_decimal(number).and_then(|number| u32::try_from(number).ok())?;
    let name = text::trim(rest);
    let method = Method::from_token(name);
    let separated = rest.len() > name.len();
    // RFC 3261 §8.1.1.5 limits the number to below 2^31. A known method is always a token.
    let valid = separated && number < 1 << 31 && (!matches!(method, Method::Other(_)) || text::all(name, text::TOKEN));
    valid.then_some(CSeq { number, method })
}
