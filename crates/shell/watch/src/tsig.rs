//! Key that signs updates (TSIG, RFC 8945), in the format of BIND's tools.

use std::fmt;

use data_encoding::BASE64;
use hickory_net::proto::rr::Name;
use hickory_net::proto::rr::rdata::tsig::TsigAlgorithm;

/// A shared secret with its name and algorithm.
#[derive(Clone, PartialEq, Eq)]
pub struct TsigKey {
    name: Name,
    algorithm: TsigAlgorithm,
    secret: Vec<u8>,
}

/// Why a text is not a valid key. Does not show the secret.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadKey(String);

impl fmt::Display for BadKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; write key \"NAME\" {{ algorithm hmac-sha256; secret \"BASE64\"; }};, as `tsig-keygen NAME` prints it",
            self.0
        )
    }
}

impl std::error::Error for BadKey {}

impl fmt::Debug for TsigKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Key").field("name", &self.name).field("algorithm", &self.algorithm).finish_non_exhaustive()
    }
}

impl TsigKey {
    /// Parses a `key` statement of a `named.conf`, optionally with comments around it.
    ///
    /// # Errors
    /// If there is no such statement or several, if its algorithm is not supported, or if its secret is not base64.
    pub fn parse(text: &str) -> Result<Self, BadKey> {
        let fault = |what: &str| BadKey(what.to_owned());
        let words = words(text);
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        let ["key", name, "{", rest @ .., "}", ";"] = words.as_slice() else {
            return Err(fault("there is no key statement that ends in };"));
        };
        let (mut algorithm, mut secret) = (None, None);
        for statement in rest.split(|word| *word == ";") {
            match statement {
                ["algorithm", value] => algorithm = Some(*value),
                ["secret", value] => secret = Some(*value),
                [] => {}
                [other, ..] => {
                    return Err(BadKey(format!("{other:?} is not a known option; only algorithm and secret are")));
                }
            }
        }
        let name = Name::from_ascii(name).map_err(|_| fault("its name is not a DNS name"))?;
        let secret = secret.ok_or_else(|| fault("it has no secret"))?;
        let secret = BASE64.decode(secret.as_bytes()).map_err(|_| fault("its secret is not base64"))?;
        Ok(Self { name, algorithm: algorithm_of(algorithm)?, secret })
    }

    pub(crate) fn name(&self) -> Name {
        self.name.clone()
    }

    pub(crate) fn algorithm(&self) -> TsigAlgorithm {
        self.algorithm.clone()
    }

    pub(crate) fn secret(&self) -> Vec<u8> {
        self.secret.clone()
    }
}

fn algorithm_of(name: Option<&str>) -> Result<TsigAlgorithm, BadKey> {
    let name = name.ok_or_else(|| BadKey("it has no algorithm".to_owned()))?;
    match &*name.to_ascii_lowercase() {
        "hmac-sha256" => Ok(TsigAlgorithm::HmacSha256),
        "hmac-sha384" => Ok(TsigAlgorithm::HmacSha384),
        "hmac-sha512" => Ok(TsigAlgorithm::HmacSha512),
        _ => Err(BadKey(format!("the algorithm {name:?} is not supported; only hmac-sha256, -sha384 and -sha512 are"))),
    }
}

/// Splits into words, braces and semicolons, without comments of all three kinds. Quoted text is one word.
fn words(text: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut left = text.trim_start();
    while let Some(first) = left.chars().next() {
        let length = match first {
            '#' => line(left),
            '/' if left.starts_with("//") => line(left),
            '/' if left.starts_with("/*") => left.find("*/").map_or(left.len(), |end| end + 2),
            '"' => {
                let quoted = left.split('"').nth(1).unwrap_or_default();
                words.push(quoted.to_owned());
                (quoted.len() + 2).min(left.len())
            }
            '{' | '}' | ';' => {
                words.push(first.to_string());
                1
            }
            _ => {
                let end = |message: char| message.is_whitespace() || matches!(message, '{' | '}' | ';' | '"' | '#');
                let word = left.split(end).next().unwrap_or(left);
                words.push(word.to_owned());
                word.len()
            }
        };
        left = left.get(length..).unwrap_or_default().trim_start();
    }
    words
}

/// Returns the length of a comment that ends with the line.
fn line(text: &str) -> usize {
    text.find('\n').unwrap_or(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bind_key_files_are_read() {
        let plain = "key \"watch\" {\n\talgorithm hmac-sha256;\n\tsecret \"c2VjcmV0\";\n};\n";
        let key = TsigKey::parse(plain).expect("sound");
        assert_eq!((key.name().to_ascii().as_str(), key.algorithm()), ("watch", TsigAlgorithm::HmacSha256));
        assert_eq!(key.secret(), b"secret");
        assert!(!format!("{key:?}").contains("c2Vj") && !format!("{key:?}").contains("115"), "{key:?}");
        let other =
            "# tsig-keygen\n// a { ; }\n/* b */ key watch.example.com { secret \"ab//cQ==\"; algorithm HMAC-SHA512; };";
        let key = TsigKey::parse(other).expect("sound");
        assert_eq!((key.name().to_ascii().as_str(), key.algorithm()), ("watch.example.com", TsigAlgorithm::HmacSha512));
    }

    #[test]
    fn invalid_key_errors_do_not_show_the_secret() {
        for (text, expected) in [
            ("", "there is no key statement"),
            ("key \"a\" { algorithm hmac-sha256; secret \"c2VjcmV0\"; }", "there is no key statement"),
            ("key \"a\" { algorithm hmac-sha256; };", "it has no secret"),
            ("key \"a\" { secret \"c2VjcmV0\"; };", "it has no algorithm"),
            ("key \"a\" { algorithm hmac-md5; secret \"c2VjcmV0\"; };", "the algorithm \"hmac-md5\" is not supported"),
            ("key \"a\" { algorithm hmac-sha256; secret \"c2VjcmV\"; };", "its secret is not base64"),
            ("key \"a\" { algorithm hmac-sha256; secrets \"c2VjcmV0\"; };", "\"secrets\" is not a known option"),
        ] {
            let error = TsigKey::parse(text).expect_err(text).to_string();
            assert!(error.starts_with(expected) && error.contains("; write key"), "{text}: {error}");
            assert!(!error.contains("c2Vj"), "{error}");
        }
    }
}
