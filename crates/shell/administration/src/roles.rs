//! The role that each operation needs.

use std::collections::HashMap;

use axum::http::Method;
use utoipa::openapi::OpenApi;

use crate::document::{self, SCHEME};
use crate::tokens::Role;

/// The role that each operation needs, by method and path; none for operations that need no token.
#[derive(Debug)]
pub(crate) struct Roles(HashMap<(Method, String), Option<Role>>);

impl Roles {
    /// Takes the roles from the document, so that it states what is enforced.
    pub(crate) fn of(document: &OpenApi) -> Self {
        let role = |operation: &utoipa::openapi::path::Operation| {
            let needed = serde_json::to_value(&operation.security).unwrap_or_default();
            let names = needed.as_array().into_iter().flatten().filter_map(|one| one.get(SCHEME));
            let names = names.filter_map(|roles| roles.get(0)?.as_str());
            names.filter_map(|name| name.parse().ok()).max()
        };
        let all = document::operations(document);
        Self(all.map(|(method, path, operation)| ((method, path.to_owned()), role(operation))).collect())
    }

    /// Returns the role that a request needs: `None` if there is no such operation.
    pub(crate) fn needed(&self, method: &Method, path: &str) -> Option<Option<Role>> {
        let method = if method == Method::HEAD { Method::GET } else { method.clone() };
        self.0.get(&(method, path.to_owned())).copied()
    }
}
