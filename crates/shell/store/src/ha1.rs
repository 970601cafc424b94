//! Password hashes.

use md5::Md5;
use sha2::digest::{Digest, Output};
use sha2::{Sha256, Sha512_256};
use strowger_directory::Ha1s;

use crate::StoreError;

/// Computes H(username ":" realm ":" password) of RFC 7616 §3.4.2 for MD5, SHA-256 and SHA-512-256, over the bytes as
/// given.
#[must_use]
pub fn ha1s(username: &str, realm: &str, password: &str) -> Ha1s {
    Ha1s {
        md5: Some(ha1::<Md5>(username, realm, password).into()),
        sha256: Some(ha1::<Sha256>(username, realm, password).into()),
        sha512_256: Some(ha1::<Sha512_256>(username, realm, password).into()),
    }
}

/// Checks a realm. It becomes a quoted string, which many phones parse carelessly.
pub(crate) fn check_realm(realm: &str) -> Result<(), StoreError> {
    if realm.is_empty() {
        return Err(StoreError::BadRealm { reason: "it is empty" });
    }
    if realm.chars().any(|c| c.is_control() || matches!(c, '"' | '\\')) {
        return Err(StoreError::BadRealm { reason: "it has a quote, a backslash or a control character" });
    }
    Ok(())
}

pub(crate) fn check_password(password: &str) -> Result<(), StoreError> {
    if password.is_empty() {
        return Err(StoreError::BadPassword { reason: "it is empty" });
    }
    if password.chars().any(char::is_control) {
        return Err(StoreError::BadPassword { reason: "it has a line end or another control character" });
    }
    Ok(())
}

fn ha1<D: Digest>(username: &str, realm: &str, password: &str) -> Output<D> {
    let mut hash = D::new();
    for part in [username, ":", realm, ":", password] {
        hash.update(part);
    }
    hash.finalize()
}

#[cfg(test)]
mod tests {
    use data_encoding::HEXLOWER;

    use super::*;

    const NC: &str = "00000001";

    /// Computes H(H(A1) ":" nonce ":" nc ":" cnonce ":" "auth" ":" H("GET:" uri)), in hexadecimal digits.
    fn response<D: Digest>(ha1: &[u8], nonce: &str, cnonce: &str, uri: &str) -> String {
        let a2 = HEXLOWER.encode(&D::digest(format!("GET:{uri}")));
        let a1 = HEXLOWER.encode(ha1);
        HEXLOWER.encode(&D::digest(format!("{a1}:{nonce}:{NC}:{cnonce}:auth:{a2}")))
    }

    #[test]
    fn responses_of_rfc_7616_section_3_9_1() {
        let ha1 = ha1s("Mufasa", "http-auth@example.org", "Circle of Life");
        let nonce = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v";
        let cnonce = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ";
        let (md5, sha256) = (ha1.md5.expect("computed"), ha1.sha256.expect("computed"));
        assert_eq!(response::<Md5>(&md5, nonce, cnonce, "/dir/index.html"), "8ca523f5e9506fed4657c9700eebdbec");
        assert_eq!(
            response::<Sha256>(&sha256, nonce, cnonce, "/dir/index.html"),
            "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"
        );
    }

    /// The RFC's own value was computed with a draft of SHA-512/256; erratum 4897 gives that of the standard.
    #[test]
    fn response_of_rfc_7616_section_3_9_2_as_corrected() {
        let ha1 = ha1s("Jäsøn Doe", "api@example.org", "Secret, or not?").sha512_256.expect("computed");
        let nonce = "5TsQWLVdgBdmrQ0XsxbDODV+57QdFR34I9HAbC/RVvkK";
        let cnonce = "NTg6RKcb9boFIAS3KrFK9BGeh+iDa/sm6jUMp2wds69v";
        assert_eq!(
            response::<Sha512_256>(&ha1, nonce, cnonce, "/doe.json"),
            "3798d4131c277846293534c3edc11bd8a5e4cdcbff78b05db9d95eeb1cec68a5"
        );
    }

    #[test]
    fn hashes_match_other_tools() {
        // printf Mufasa:http-auth@example.org:'Circle of Life' | openssl dgst -md5 (-sha256, -sha512-256)
        let ha1 = ha1s("Mufasa", "http-auth@example.org", "Circle of Life");
        assert_eq!(HEXLOWER.encode(&ha1.md5.expect("computed")), "3d78807defe7de2157e2b0b6573a855f");
        assert_eq!(
            HEXLOWER.encode(&ha1.sha256.expect("computed")),
            "7987c64c30e25f1b74be53f966b49b90f2808aa92faf9a00262392d7b4794232"
        );
        assert_eq!(
            HEXLOWER.encode(&ha1.sha512_256.expect("computed")),
            "fb174f5c3c7802721517cae13b98e2b8dae2e0118cb705d94ee29946319204ce"
        );
    }
}
