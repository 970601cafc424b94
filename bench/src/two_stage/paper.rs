//! What the paper has: Singh and Schulzrinne, Failover, load sharing and server architecture in SIP telephony, section 5.

use super::layout::Layout;

/// A test of the paper's.
#[derive(Clone, Copy, Debug)]
pub struct Test {
    /// Its name.
    pub name: &'static str,
    /// C_s, a second.
    pub first: f64,
    /// C_p, a second.
    pub second: f64,
}

/// Proxy 200, both stages stateless (figures 15 and 16).
pub const STATELESS: Test = Test { name: "calls, both stages stateless (figure 16)", first: 1_050.0, second: 900.0 };
/// Proxy 200, the second stage stateful (figure 18).
pub const STATEFUL: Test = Test { name: "calls, second stage stateful (figure 18)", first: 800.0, second: 650.0 };
/// Registrations (figure 20).
pub const REGISTRATIONS: Test = Test { name: "registrations (figure 20)", first: 2_500.0, second: 2_400.0 };

/// The shares of the clusters, as its hash spread a hundred users.
#[must_use]
pub const fn shares(layout: Layout) -> &'static [f64] {
    match layout.clusters {
        1 => &[1.0],
        2 => &[0.6, 0.4],
        _ => &[0.4, 0.3, 0.3],
    }
}

/// The weights with which our clusters have the shares of the paper's S2P2.
pub const WEIGHTS: [u16; 2] = [60, 40];
