//! WebSocket listeners: which web pages may connect.

use std::sync::Arc;

use strowger_control::config::Config;
use strowger_message::MAX_STREAM_MESSAGE;
use strowger_net::{AllowedOrigins, WebSocketContext};

use crate::failure::Failure;

/// Returns what the WebSocket listeners need.
pub(crate) fn context(config: &Config) -> Result<Arc<WebSocketContext>, Failure> {
    let limit = u32::try_from(MAX_STREAM_MESSAGE).unwrap_or(u32::MAX);
    Ok(Arc::new(WebSocketContext::new(origins(config).map_err(Failure::No)?, limit)))
}

/// Checks the pages of a new configuration.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    origins(config).map(drop)
}

/// Lets the pages of a [checked](check) new configuration connect.
pub(crate) fn reload(context: &WebSocketContext, config: &Config) {
    match origins(config) {
        Ok(origins) => context.allow(origins),
        Err(why) => tracing::error!("{why}; the pages that may connect are unchanged"),
    }
}

fn origins(config: &Config) -> Result<AllowedOrigins, String> {
    let listed = config.websocket.origins.iter().flatten().map(String::as_str);
    AllowedOrigins::new(listed).map_err(|error| format!("websocket.origins: {error}"))
}
