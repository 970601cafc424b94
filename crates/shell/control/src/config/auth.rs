//! `[auth]`: passwords.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Span;
use super::values::{Algorithm, MethodName, Realm, Source};

/// `[auth]`
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Auth {
    /// Realm of all challenges. Default: each domain is its own realm. Passwords are stored as hashes that include
    /// the realm, so after a change they must be set again.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub realm: Option<Realm>,
    /// Digest algorithms (MD5, SHA-256, SHA-512-256): one challenge each, in this order. Many phones reject a
    /// challenge that offers more than MD5.
    pub algorithms: Vec<Algorithm>,
    /// Methods that require a password; [] requires none.
    pub require: Vec<MethodName>,
    /// Whether users need a password for these methods inside calls too. ACK and CANCEL never need one, nor do
    /// gateways and trunks.
    pub in_dialog: bool,
    /// Addresses and networks (192.0.2.0/24) that need no password and whose asserted identity is trusted.
    pub trusted: Vec<Source>,
    /// Time for which a challenge can be answered.
    pub nonce_age: Span,
    /// Offered quality of protection: auth, or "auth,auth-int".
    pub qop: Qop,
}

impl Default for Auth {
    fn default() -> Self {
        Self {
            realm: None,
            algorithms: vec![Algorithm(strowger_auth::Algorithm::Md5)],
            require: ["REGISTER", "INVITE"].map(|name| MethodName(name.to_owned())).to_vec(),
            in_dialog: false,
            trusted: Vec::new(),
            nonce_age: Span::from_secs(300),
            qop: Qop::Auth,
        }
    }
}

/// `auth.qop`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(inline)]
#[expect(missing_docs, reason = "`Auth::qop` says what they mean")]
pub enum Qop {
    #[serde(rename = "auth")]
    Auth,
    #[serde(rename = "auth,auth-int")]
    AuthOrAuthInt,
}
