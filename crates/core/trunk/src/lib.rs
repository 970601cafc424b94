//! Trunks: the server as the customer of a carrier. It registers there ([`Registration`]), answers challenges
//! ([`answer_challenge`]), and rewrites numbers for the carrier ([`NumberRewrite`]).

#![forbid(unsafe_code)]
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        reason = "a test may fail loudly"
    )
)]

mod challenge;
mod random;
mod registration;
mod rewrite;
mod trunk;

pub use challenge::{ChallengedRequest, MAX_ANSWERS, answer_challenge};
pub use registration::{MAX_WAIT, Registration, RequestParams, SLOW_WAIT, State, Status, TRYING_LIMIT};
pub use rewrite::{CountryRule, NumberRewrite};
pub use trunk::{Account, Credentials, NextHop, Secret, Trunk};
