//! The list of operations: whoever adds one decides here what it is called and who may use it.

use std::collections::BTreeSet;

use strowger_administration::Api;

const OPERATIONS: &[(&str, &str, &str)] = &[
    ("get", "/api/v1/openapi.json", ""),
    ("get", "/api/v1/session", "viewer"),
    ("get", "/api/v1/status", "viewer"),
    ("get", "/api/v1/timing", "viewer"),
    ("get", "/api/v1/users", "viewer"),
    ("post", "/api/v1/users", "administrator"),
    ("get", "/api/v1/users/{user}", "viewer"),
    ("patch", "/api/v1/users/{user}", "administrator"),
    ("delete", "/api/v1/users/{user}", "administrator"),
    ("put", "/api/v1/users/{user}/aliases/{alias}", "administrator"),
    ("delete", "/api/v1/users/{user}/aliases/{alias}", "administrator"),
    ("get", "/api/v1/gateways", "viewer"),
    ("post", "/api/v1/gateways", "administrator"),
    ("patch", "/api/v1/gateways/{set}/{uri}", "administrator"),
    ("delete", "/api/v1/gateways/{set}/{uri}", "administrator"),
    ("get", "/api/v1/registrations", "viewer"),
    ("delete", "/api/v1/registrations/{user}", "operator"),
    ("get", "/api/v1/calls", "viewer"),
    ("delete", "/api/v1/calls/{call-id}", "operator"),
    ("get", "/api/v1/call-records", "operator"),
    ("get", "/api/v1/balancers", "viewer"),
    ("get", "/api/v1/targets", "viewer"),
    ("post", "/api/v1/targets", "administrator"),
    ("delete", "/api/v1/targets/{id}", "administrator"),
    ("post", "/api/v1/targets/{id}/drain", "operator"),
    ("post", "/api/v1/targets/{id}/undrain", "operator"),
    ("get", "/api/v1/bans", "viewer"),
    ("post", "/api/v1/bans", "operator"),
    ("delete", "/api/v1/bans/{address}", "operator"),
    ("get", "/api/v1/failures", "operator"),
    ("get", "/api/v1/members", "viewer"),
    ("get", "/api/v1/clusters", "viewer"),
    ("get", "/api/v1/trace", "operator"),
    ("get", "/api/v1/configuration", "administrator"),
    ("post", "/api/v1/configuration/check", "operator"),
    ("get", "/api/v1/configuration/changes", "operator"),
    ("post", "/api/v1/configuration/reload", "operator"),
    ("post", "/api/v1/backups", "administrator"),
];

#[test]
fn the_document_lists_every_operation_with_its_role() {
    let document = serde_json::to_value(Api::document()).expect("JSON");
    let mut found = BTreeSet::new();
    for (path, item) in document["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("operations") {
            let role = operation["security"][0]["token"][0].as_str().unwrap_or_default();
            found.insert((method.clone(), path.clone(), role.to_owned()));
        }
    }
    let owned =
        |(method, path, role): &(&str, &str, &str)| ((*method).to_owned(), (*path).to_owned(), (*role).to_owned());
    assert_eq!(found, OPERATIONS.iter().map(owned).collect::<BTreeSet<_>>());
    assert_eq!(document["openapi"], "3.1.0");
}
