//! The paper's figures: Singh and Schulzrinne, Failover, load sharing and server architecture in SIP telephony,
//! section 5.

use super::layout::Layout;

/// A test of the paper.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Name of the test.
    pub name: &'static str,
    /// C_s per second.
    pub first: f64,
    /// C_p per second.
    pub second: f64,
}

/// Proxy 200, both stages stateless (figures 15 and 16).
pub const STATELESS: Test = Test { name: "calls, both stages stateless (figure 16)", first: 1_050.0, second: 900.0 };
/// Proxy 200, the second stage stateful (figure 18).
pub const STATEFUL: Test = Test { name: "calls, second stage stateful (figure 18)", first: 800.0, second: 650.0 };
/// Registrations (figure 20).
pub const REGISTRATIONS: Test = Test { name: "registrations (figure 20)", first: 2_500.0, second: 2_400.0 };

/// Returns the clusters' shares, as the paper's hash distributed a hundred users.
#[must_use]
pub const fn shares(layout: Layout) -> &'static [f64] {
    match layout.clusters {
        1 => &[1.0],
        2 => &[0.6, 0.4],
        _ => &[0.4, 0.3, 0.3],
    }
}

/// Weights that give the clusters the shares of the paper's S2P2.
pub const WEIGHTS: [u16; 2] = [60, 40];
