//! Trunks: the server as the customer of a carrier. It registers there ([`Registration`]), proves who it is when a request
//! is challenged ([`answer_challenge`]), and writes numbers as the carrier wants them ([`Rewrite`]).

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
