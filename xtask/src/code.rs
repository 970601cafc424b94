//! Rust source without comments and literals: they are replaced by blanks. Line ends remain, so positions stay valid.

/// Returns `source` with comments and literals replaced by blanks.
pub(crate) fn bare(source: &str) -> String {
    let mut rest = source;
    let mut bare = String::with_capacity(source.len());
    let mut before = ' ';
    while let Some(first) = rest.chars().next() {
        let length = literal_len(rest, before);
        let (taken, left) = rest.split_at(if length == 0 { first.len_utf8() } else { length });
        if length == 0 {
            bare.push(first);
        } else {
            bare.extend(taken.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
        }
        before = first;
        rest = left;
    }
    bare
}

/// Returns the length in bytes of the comment or literal at the start of `rest`; 0 if there is none.
fn literal_len(rest: &str, before: char) -> usize {
    let inside_word = before.is_alphanumeric() || before == '_';
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    if rest.starts_with("/*") {
        return block_comment_len(rest);
    }
    if rest.starts_with('"') {
        return quoted_len(rest, 1);
    }
    if rest.starts_with('\'') {
        return char_len(rest);
    }
    if !inside_word {
        let prefix = ["br", "cr", "r"].into_iter().find(|prefix| rest.starts_with(prefix));
        if let Some(prefix) = prefix {
            return raw_len(rest, prefix.len());
        }
    }
    0
}

fn block_comment_len(rest: &str) -> usize {
    let mut depth = 0usize;
    let mut at = 0;
    while at < rest.len() {
        match rest.as_bytes().get(at..at + 2) {
            Some(b"/*") => (depth, at) = (depth + 1, at + 2),
            Some(b"*/") => {
                (depth, at) = (depth - 1, at + 2);
                if depth == 0 {
                    return at;
                }
            }
            _ => at += 1,
        }
    }
    rest.len()
}

fn quoted_len(rest: &str, from: usize) -> usize {
    let mut escaped = false;
    for (at, byte) in rest.bytes().enumerate().skip(from) {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Distinguishes characters (`'a'`, `'\n'`) from lifetimes (`'a`).
fn char_len(rest: &str) -> usize {
    let mut chars = rest.char_indices().skip(1);
    let escaped = matches!(chars.next(), Some((_, '\\')));
    if escaped {
        chars.next();
        return rest.get(2..).and_then(|tail| tail.get(1..)?.find('\'')).map_or(0, |at| at + 4);
    }
    match chars.next() {
        Some((at, '\'')) => at + 1,
        _ => 0,
    }
}

fn raw_len(rest: &str, prefix: usize) -> usize {
    let tail = &rest[prefix..];
    let hashes = tail.bytes().take_while(|byte| *byte == b'#').count();
    if tail.as_bytes().get(hashes) != Some(&b'"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    tail[hashes + 1..].find(&end).map_or(rest.len(), |at| prefix + hashes + 1 + at + end.len())
}

/// Returns the byte offsets of `word` in `text`, as a whole word.
pub(crate) fn words<'a>(text: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    text.match_indices(word)
        .map(|(at, _)| at)
        .filter(move |at| !text[..*at].ends_with(part) && !text[*at + word.len()..].starts_with(part))
}

/// Returns the line number of byte `at`, from 1.
pub(crate) fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|byte| *byte == b'\n').count() + 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_code_is_left() {
        let source = "let a = \"unsafe \\\" {\"; // unsafe\nlet c = '\"'; let l: &'static str = r#\"unsafe \" {\"#; /* /* unsafe */ */ x('\\'', b'\\\\')";
        let left = bare(source);
        assert_eq!(left.len(), source.len());
        assert!(!left.contains("unsafe"), "{left}");
        assert!(left.contains("&'static str") && left.contains("x("), "{left}");
        assert_eq!(left.matches('\n').count(), 1);
    }

    #[test]
    fn words_are_whole() {
        assert_eq!(words("unsafe_code unsafe {", "unsafe").collect::<Vec<_>>(), [12]);
        assert_eq!(line_of("a\nb\nc", 4), 3);
    }
}
