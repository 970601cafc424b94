//! Digest authentication for a SIP server: challenges, stateless nonces and verification of credentials (RFC 3261
//! §22, RFC 7616, RFC 8760), and the client's half for responding to challenges.
//!
//! A nonce encodes when and by whom it was issued and carries a seal, so a challenge needs no memory. Only valid
//! credentials are recorded, in [`NonceWindows`], so that none is accepted twice.

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

mod authenticator;
mod base32;
pub mod client;
mod credentials;
mod hash;
mod hex;
mod nonce;
mod policy;
#[cfg(test)]
mod tests;
mod window;

pub use authenticator::{Authenticator, Challenge, Username, Verdict};
pub use hash::{DigestInput, Ha1, Protection};
pub use nonce::NONCE_WINDOW;
pub use policy::{Algorithm, Network, Policy, Qop};
pub use window::{Issuer, MAX_NONCES_PER_STRIPE, NC_WINDOW, NonceWindows, USES_INTERVAL, WindowStats};
