//! Which servers there are, and what is asked of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// S first-stage servers before P clusters of B second-stage servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// S; 0: callers go straight to the only cluster.
    pub first: u32,
    /// P.
    pub clusters: u32,
    /// B: they share their registrations, and each serves a part of the cluster's users.
    pub servers: u32,
}

impl Layout {
    /// Those that the paper measured, from the smallest.
    pub const PAPER: [Self; 6] = [
        Self::new(0, 1, 1),
        Self::new(1, 1, 1),
        Self::new(1, 2, 1),
        Self::new(2, 2, 1),
        Self::new(2, 3, 1),
        Self::new(3, 3, 1),
    ];
    /// One whose first stage is full before its clusters, where it forwards for more than two of them.
    pub const WIDE: Self = Self::new(1, 3, 1);
    /// One whose clusters have two servers each.
    pub const PAIRS: Self = Self::new(2, 2, 2);

    /// As in S*n*P*m*, with B.
    #[must_use]
    pub const fn new(first: u32, clusters: u32, servers: u32) -> Self {
        Self { first, clusters, servers }
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "S{}P{}", self.first, self.clusters)?;
        if self.servers > 1 { write!(f, "B{}", self.servers) } else { Ok(()) }
    }
}

/// What is asked of the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Work {
    /// Calls: the paper's Proxy 200.
    Calls,
    /// Registrations, nobody asked for a password, and without overload control, as the paper's servers had none.
    Registrations,
    /// The same with overload control.
    ControlledRegistrations,
    /// Both; the share of registrations, in percent.
    Mixed(u8),
}

impl Work {
    /// The workload of `strowger load`.
    #[must_use]
    pub fn workload(self) -> String {
        match self {
            Self::Calls => "proxy-200".to_owned(),
            Self::Registrations | Self::ControlledRegistrations => "registration".to_owned(),
            Self::Mixed(percent) => format!("proxy-200:{},registration:{percent}", 100 - percent),
        }
    }

    /// What is counted.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Calls => "calls/s",
            Self::Registrations | Self::ControlledRegistrations => "registrations/s",
            Self::Mixed(_) => "calls and registrations/s",
        }
    }

    /// Whether servers limit under overload, as they do by default.
    #[must_use]
    pub const fn has_control(self) -> bool {
        !matches!(self, Self::Registrations)
    }

    /// The share of registrations.
    #[must_use]
    pub fn registrations(self) -> f64 {
        match self {
            Self::Calls => 0.0,
            Self::Registrations | Self::ControlledRegistrations => 1.0,
            Self::Mixed(percent) => f64::from(percent) / 100.0,
        }
    }
}

impl fmt::Display for Work {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calls => f.write_str("calls"),
            Self::Registrations => f.write_str("registrations"),
            Self::ControlledRegistrations => f.write_str("registrations, overload control"),
            Self::Mixed(percent) => write!(f, "{percent} % registrations"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn layouts_are_named_as_in_the_paper() {
        let names: Vec<String> = Layout::PAPER.iter().map(Layout::to_string).collect();
        assert_eq!(names, ["S0P1", "S1P1", "S1P2", "S2P2", "S2P3", "S3P3"]);
        assert_eq!(Layout::PAIRS.to_string(), "S2P2B2");
    }
}
