//! `cargo xtask sbom`: the bill of materials of the binary, in CycloneDX 1.5.

use serde_json::{Value, json};

use crate::component::{Checksum, Component};
use crate::components::{BINARY, Contents};

/// Returns the document. `time` is when the sources were last changed, in seconds since 1970.
pub(crate) fn document(contents: &Contents, time: u64) -> Value {
    let itself = format!("pkg:generic/{BINARY}@{}", contents.version);
    let mut dependencies = vec![json!({"ref": itself, "dependsOn": contents.uses})];
    dependencies.extend(contents.components.iter().map(|one| json!({"ref": one.purl, "dependsOn": one.uses})));
    json!({
        "bomFormat": "CycloneDX",
        "specVersion": "1.5",
        "version": 1,
        "metadata": {
            "timestamp": rfc3339(time),
            "tools": {"components": [{"type": "application", "name": "xtask sbom", "version": contents.version}]},
            "component": {
                "type": "application",
                "bom-ref": itself,
                "name": BINARY,
                "version": contents.version,
                "licenses": [{"expression": "MIT OR Apache-2.0"}],
                "purl": itself,
            },
        },
        "components": contents.components.iter().map(component).collect::<Vec<_>>(),
        "dependencies": dependencies,
    })
}

fn component(one: &Component) -> Value {
    let mut value = json!({
        "type": "library",
        "bom-ref": one.purl,
        "name": one.name,
        "version": one.version,
        "purl": one.purl,
        "licenses": [{"expression": one.licence}],
    });
    if let Some(checksum) = &one.checksum {
        let (algorithm, hex) = match checksum {
            Checksum::Sha256(hex) => ("SHA-256", hex),
            Checksum::Sha512(hex) => ("SHA-512", hex),
        };
        value["hashes"] = json!([{"alg": algorithm, "content": hex}]);
    }
    if let Some(url) = &one.repository {
        value["externalReferences"] = json!([{"type": "website", "url": url}]);
    }
    value
}

/// Returns the time in UTC, such as `2026-01-02T03:04:05Z`.
fn rfc3339(time: u64) -> String {
    let (days, second) = (time / 86_400, time % 86_400);
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut year, mut day) = (1970, days);
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let lengths = [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let mut month = 1;
    for length in lengths {
        if day < length {
            break;
        }
        day -= length;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_dates() {
        assert_eq!(rfc3339(0), "1970-01-01T00:00:00Z");
        assert_eq!(rfc3339(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(rfc3339(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(rfc3339(1_798_761_599), "2026-12-31T23:59:59Z");
    }

    #[test]
    fn each_reference_leads_to_a_component() {
        let contents = crate::components::read(&crate::root(), &[]).expect("cargo runs");
        let document = document(&contents, 0);
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        let known: Vec<Value> = list(&document["components"]).iter().map(|one| one["bom-ref"].clone()).collect();
        assert!(known.len() > 100, "{}", known.len());
        let dependencies = list(&document["dependencies"]);
        assert_eq!(dependencies.len(), known.len() + 1);
        for used in dependencies.iter().flat_map(|one| list(&one["dependsOn"])) {
            assert!(known.contains(&used), "{used}");
        }
        assert!(list(&document["components"]).iter().all(|one| one["licenses"][0]["expression"] != ""));
    }
}
