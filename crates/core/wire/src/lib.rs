//! Wire formats around SIP messages: what arrives before, between or around them on a transport.
//!
//! - [`websocket`]: SIP in WebSocket messages (RFC 6455, RFC 7118).
//! - [`stun`]: keep-alives between SIP datagrams (RFC 5626 §8, RFC 8489).
//! - [`proxy_header`]: the client's address, told by a balancer in front (PROXY protocol 1 and 2).
//!
//! The codecs work on the caller's buffers. They read no clock, open no socket and draw no random number.

#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects,
        reason = "a test may fail loudly"
    )
)]

pub mod proxy_header;
pub mod stun;
pub mod websocket;
