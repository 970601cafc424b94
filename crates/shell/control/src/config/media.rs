//! `[media]`: media engines.

use std::net::SocketAddr;
use std::sync::Arc;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use strowger_media::{Engines, FailurePolicy, MediaPolicy, When};

use super::values::EngineAddress;
use super::{Config, Span};

/// `[media]`: engines (rtpengine) that relay the media of calls: for phones behind a NAT, and between browsers and
/// phones. docs/operating/media.md has the steps.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Media {
    /// Addresses of the engines for commands (listen-ng in rtpengine.conf), such as "udp:192.0.2.50:2223". Each call
    /// keeps its engine.
    pub engines: Vec<EngineAddress>,
    /// Which calls go through an engine: `never`; `browser`: those between a browser and a phone; `nat`: also those
    /// with a party behind a NAT; `always`.
    pub when: MediaWhen,
    /// What happens to a call if no engine answers or the engine refuses it: `refuse` it with 503, or `forward` it
    /// without an engine.
    pub on_failure: MediaFailure,
    /// How long to wait for the answer of an engine before the next one is asked.
    pub timeout: Span,
    /// Interval at which each engine is probed.
    pub probe_interval: Span,
}

impl Default for Media {
    fn default() -> Self {
        Self {
            engines: Vec::new(),
            when: MediaWhen::Never,
            on_failure: MediaFailure::Refuse,
            timeout: Span::from_secs(1),
            probe_interval: Span::from_secs(5),
        }
    }
}

/// `media.when`: which calls go through an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the key says what they mean")]
pub enum MediaWhen {
    Never,
    Browser,
    Nat,
    Always,
}

/// `media.on_failure`: what happens without an engine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
#[expect(missing_docs, reason = "the key says what they mean")]
pub enum MediaFailure {
    Refuse,
    Forward,
}

impl Config {
    /// Returns the policy for media, if calls go through engines. Engines of `before` keep their health.
    #[must_use]
    pub fn media_policy(&self, before: Option<&MediaPolicy>) -> Option<Arc<MediaPolicy>> {
        let media = &self.media;
        let addresses: Vec<SocketAddr> = media.engines.iter().map(|engine| engine.0).collect();
        let policy = MediaPolicy {
            engines: Engines::new(&addresses, before.map(|before| &before.engines)),
            when: match media.when {
                MediaWhen::Never => When::Never,
                MediaWhen::Browser => When::Browser,
                MediaWhen::Nat => When::Nat,
                MediaWhen::Always => When::Always,
            },
            on_failure: match media.on_failure {
                MediaFailure::Refuse => FailurePolicy::Refuse,
                MediaFailure::Forward => FailurePolicy::Forward,
            },
            timeout: media.timeout.0,
            probe_interval: media.probe_interval.0,
        };
        (policy.when != When::Never).then(|| Arc::new(policy))
    }
}
