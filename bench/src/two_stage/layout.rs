//! Layouts of servers and kinds of work.

use std::fmt;

use serde::{Deserialize, Serialize};

/// S first-stage servers in front of P clusters of B second-stage servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Layout {
    /// S: number of first-stage servers. With 0, callers send directly to the only cluster.
    pub first: u32,
    /// P: number of clusters.
    pub clusters: u32,
    /// B: servers per cluster. They share their registrations, and each serves a part of the cluster's users.
    pub servers: u32,
}

impl Layout {
    /// The paper's layouts, the smallest first.
    pub const PAPER: [Self; 6] = [
        Self::new(0, 1, 1),
        Self::new(1, 1, 1),
        Self::new(1, 2, 1),
        Self::new(2, 2, 1),
        Self::new(2, 3, 1),
        Self::new(3, 3, 1),
    ];
    /// A layout whose first stage saturates before its clusters, because it forwards for more than two of them.
    pub const WIDE: Self = Self::new(1, 3, 1);
    /// A layout whose clusters have two servers each.
    pub const PAIRS: Self = Self::new(2, 2, 2);

    /// Returns the layout S*n*P*m* with B.
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

/// Kind of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Work {
    /// Calls: the paper's Proxy 200.
    Calls,
    /// Registrations without authentication and without overload control, like the paper's servers.
    Registrations,
    /// Registrations with overload control.
    ControlledRegistrations,
    /// Calls and registrations; the share of registrations in percent.
    Mixed(u8),
}

impl Work {
    /// Returns the workload of `strowger load`.
    #[must_use]
    pub fn workload(self) -> String {
        match self {
            Self::Calls => "proxy-200".to_owned(),
            Self::Registrations | Self::ControlledRegistrations => "registration".to_owned(),
            Self::Mixed(percent) => format!("proxy-200:{},registration:{percent}", 100 - percent),
        }
    }

    /// Returns the counted unit.
    #[must_use]
    pub const fn unit(self) -> &'static str {
        match self {
            Self::Calls => "calls/s",
            Self::Registrations | Self::ControlledRegistrations => "registrations/s",
            Self::Mixed(_) => "calls and registrations/s",
        }
    }

    /// Returns whether servers use overload control, which is the default.
    #[must_use]
    pub const fn has_control(self) -> bool {
        !matches!(self, Self::Registrations)
    }

    /// Returns the share of registrations.
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
