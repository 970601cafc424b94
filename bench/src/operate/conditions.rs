//! Conditions under which scrapes are measured.

use std::time::Duration;

/// Number of registered users.
pub(crate) const USERS: u32 = 100_000;
/// Number of targets of the balancer: as many as one may have.
pub(crate) const TARGETS: u16 = 256;
/// Time between two scrapes of *each second*: more than the time for which the server reuses a scrape's text.
pub(crate) const EACH_SECOND: Duration = Duration::from_millis(1_050);

/// How often the metrics are scraped in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scraping {
    /// Never.
    Never,
    /// Once a second; each is new.
    EachSecond,
    /// As fast as they are answered; most repeat the last one.
    BackToBack,
}

impl Scraping {
    pub(crate) const ALL: [Self; 3] = [Self::Never, Self::EachSecond, Self::BackToBack];

    pub(crate) const fn every(self) -> Option<Duration> {
        match self {
            Self::Never => None,
            Self::EachSecond => Some(EACH_SECOND),
            Self::BackToBack => Some(Duration::ZERO),
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Never => "none",
            Self::EachSecond => "each second",
            Self::BackToBack => "back to back",
        }
    }
}

/// Whom the calls reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Callees {
    /// Registered phones.
    Phones,
    /// The targets of a balancer, each of which has histograms of its own.
    Targets,
}

/// A load on the server.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Load {
    /// Poisson arrivals, in calls per second.
    Rate(f64),
    /// This many calls in progress at any time.
    Closed(u32),
}
