//! The audit log: a line for each change that somebody asked for, and for each trace of calls.

use std::borrow::Cow;

use strowger_control::caller::Caller;
use strowger_control::protocol::Change;

/// Target of the lines, which the log writes at every level.
pub(crate) const TARGET: &str = "audit";
/// Maximum length of a text from the client, in bytes.
const MAX_TEXT: usize = 512;

/// Writes a line: who, what, and why it failed, if it did. The log escapes control characters.
pub(crate) fn write(caller: &Caller, Change { action, object }: &Change, failure: Option<&str>) {
    let (by, action, object) = (caller.to_string(), shortened(action), shortened(object));
    let (by, action, object) = (by.as_str(), &*action, &*object);
    match failure.map(shortened) {
        None => tracing::info!(target: TARGET, by, action, object, result = "done", "audit"),
        Some(why) => tracing::info!(target: TARGET, by, action, object, result = "failed", why = &*why, "audit"),
    }
}

fn shortened(text: &str) -> Cow<'_, str> {
    if text.len() <= MAX_TEXT {
        return text.into();
    }
    let end = (0..=MAX_TEXT).rev().find(|end| text.is_char_boundary(*end)).unwrap_or(0);
    format!("{}…", &text[..end]).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(shortened("drain"), "drain");
        let long = "ü".repeat(300);
        let short = shortened(&long);
        assert!(short.len() <= MAX_TEXT + 3 && short.ends_with("ü…"), "{short}");
    }
}
