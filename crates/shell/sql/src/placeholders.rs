//! Placeholders, written `?` for all databases.

/// Replaces each `?` outside quotes and comments by `$1`, `$2`, … for PostgreSQL.
pub(crate) fn number_placeholders(sql: &str) -> String {
    let mut text = String::with_capacity(sql.len() + 8);
    let (mut count, mut within) = (0, None);
    let mut rest = sql.chars().peekable();
    while let Some(c) = rest.next() {
        match (within, c) {
            (None, '?') => {
                count += 1;
                text.push_str(&format!("${count}"));
                continue;
            }
            (None, '\'' | '"') => within = Some(c),
            (None, '-') if rest.peek() == Some(&'-') => within = Some('\n'),
            (Some(end), c) if c == end => within = None,
            _ => {}
        }
        text.push(c);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn placeholders_are_numbered_outside_quotes_and_comments() {
        assert_eq!(
            number_placeholders("SELECT ?, '?', \"?\", 'it''s ?', ? -- ?\n, ?"),
            "SELECT $1, '?', \"?\", 'it''s ?', $2 -- ?\n, $3"
        );
    }
}
