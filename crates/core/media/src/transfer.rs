//! Calls with media as bytes, for another process that takes over from this one.
//!
//! The form is versioned by what contains it. Results for retransmissions are left out: the engine is asked again.
//!
//! | | bytes | |
//! |---|---|---|
//! | key | 8 | |
//! | Call-ID, tag | 2 + n each | |
//! | expiry | 8 | |
//! | engine | 1, then 0, 6 or 22 | 0 none, 4 or 6; its address |
//! | number of transactions | 1 | |
//! | flags, targets, CSeq | 1, 1, 4 | of each transaction |
//! | tag of the requester | 2 + n | |
//! | tag of the sender of a response with the offer | 0 or 2 + n | |

use std::sync::Arc;

use strowger_foundation::Timestamp;
use strowger_foundation::bytes::{Reader, put_address, put_text16, put_time};

use crate::calls::{Exchange, MAX_AGE, MAX_CALLS, MAX_EXCHANGES, MediaCall, MediaCalls};
use crate::engine::Engines;

/// Numbers of transactions of another process count down from here, apart from our own.
const FOREIGN: u64 = u64::MAX;

const IS_INVITE: u8 = 1;
const HAS_OFFER: u8 = 2;
const IS_FROM_BROWSER: u8 = 4;
const IS_OFFERED: u8 = 8;
const IS_OFFERED_BY_BROWSER: u8 = 16;

impl MediaCalls {
    /// Appends a call; returns whether it is known.
    pub fn export(&self, key: u64, out: &mut Vec<u8>) -> bool {
        let call = self.get(key);
        if let Some(call) = call {
            out.extend_from_slice(&key.to_be_bytes());
            call.write(out);
        }
        call.is_some()
    }

    /// Reads calls up to the end of `bytes`. A call that is known already, because a request was faster than the other
    /// process, gets the transactions in addition to its own. Returns the number of calls that are not known because
    /// the table is full; `None` for bytes that are no calls.
    pub fn import(&mut self, now: Timestamp, bytes: &[u8], engines: &Engines) -> Option<usize> {
        let (mut reader, mut refused) = (Reader(bytes), 0_usize);
        while !reader.is_empty() {
            let key = reader.number64()?;
            let call_id = reader.text16()?;
            let tag = reader.text16()?;
            let until = reader.time()?.min(now + MAX_AGE);
            let engine = match reader.byte()? {
                0 => None,
                family @ (4 | 6) => Some(reader.address(family == 6)?),
                _ => return None,
            };
            let exchanges = read_exchanges(&mut reader)?;
            if self.get(key).is_none() {
                if self.len() >= MAX_CALLS {
                    refused = refused.saturating_add(1);
                    continue;
                }
                self.insert(key, call_id, tag, until);
            }
            let Some(call) = self.get_mut(key) else { continue };
            if call.engine.is_none() {
                // The call of an engine that is not configured any more goes to another one.
                let known = engine.and_then(|engine| engines.iter().find(|known| known.address() == engine));
                call.engine = known.map(Arc::clone);
            }
            exchanges.into_iter().for_each(|exchange| call.begin(exchange));
        }
        Some(refused)
    }
}

impl MediaCall {
    fn write(&self, out: &mut Vec<u8>) {
        put_text16(out, &self.call_id);
        put_text16(out, &self.tag);
        put_time(out, self.until);
        match self.engine.as_ref().map(|engine| engine.address()) {
            None => out.push(0),
            Some(address) => {
                out.push(if address.is_ipv6() { 6 } else { 4 });
                put_address(out, address);
            }
        }
        out.push(u8::try_from(self.exchanges.len()).unwrap_or(0));
        for exchange in &self.exchanges {
            let flag = |is_set: bool, flag: u8| if is_set { flag } else { 0 };
            let flags = flag(exchange.is_invite, IS_INVITE)
                | flag(exchange.has_offer, HAS_OFFER)
                | flag(exchange.is_from_browser, IS_FROM_BROWSER)
                | flag(exchange.offered_by.is_some(), IS_OFFERED)
                | flag(exchange.is_offered_by_browser, IS_OFFERED_BY_BROWSER);
            out.extend_from_slice(&[flags, exchange.branches]);
            out.extend_from_slice(&exchange.cseq.to_be_bytes());
            put_text16(out, &exchange.requester_tag);
            exchange.offered_by.iter().for_each(|tag| put_text16(out, tag));
        }
    }
}

fn read_exchanges(reader: &mut Reader<'_>) -> Option<Vec<Exchange>> {
    let count = reader.byte().filter(|count| usize::from(*count) <= MAX_EXCHANGES)?;
    let mut exchanges = Vec::with_capacity(count.into());
    for number in 0..u64::from(count) {
        let (flags, branches) = (reader.byte()?, reader.byte()?);
        let is_set = |flag: u8| flags & flag != 0;
        let cseq = reader.number32()?;
        let requester_tag = reader.text16()?.into();
        let offered_by = if is_set(IS_OFFERED) { Some(reader.text16()?.into()) } else { None };
        exchanges.push(Exchange {
            transaction: FOREIGN.wrapping_sub(number),
            cseq,
            requester_tag,
            is_invite: is_set(IS_INVITE),
            has_offer: is_set(HAS_OFFER),
            branches,
            is_from_browser: is_set(IS_FROM_BROWSER),
            offered_by,
            is_offered_by_browser: is_set(IS_OFFERED_BY_BROWSER),
        });
    }
    Some(exchanges)
}
