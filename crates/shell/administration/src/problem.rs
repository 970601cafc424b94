//! Errors of the API, as problem details (RFC 9457).

use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::backend::Refusal;

/// Why a request failed (RFC 9457).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Problem {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    #[schema(example = "about:blank")]
    pub kind: String,
    /// Name of the status.
    #[schema(example = "Forbidden")]
    pub title: String,
    /// The status.
    #[schema(example = 403)]
    pub status: u16,
    /// What is wrong, and what to do.
    pub detail: String,
    /// The member of the request with the value that cannot be used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub field: Option<String>,
    /// Seconds after which the request may be repeated, as in Retry-After.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub retry_after_s: Option<u64>,
}

impl Problem {
    /// Media type of problem details.
    pub(crate) const MEDIA_TYPE: &str = "application/problem+json";

    pub(crate) fn new(status: StatusCode, detail: impl Into<String>) -> Self {
        Self {
            kind: "about:blank".to_owned(),
            title: status.canonical_reason().unwrap_or("Error").to_owned(),
            status: status.as_u16(),
            detail: detail.into(),
            field: None,
            retry_after_s: None,
        }
    }

    /// A value of the request cannot be used.
    pub(crate) fn invalid(field: &str, detail: impl Into<String>) -> Self {
        let field = Some(field.to_owned()).filter(|field| !field.is_empty());
        Self { field, ..Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail) }
    }

    pub(crate) fn retry_after(self, seconds: u64) -> Self {
        Self { retry_after_s: Some(seconds.max(1)), ..self }
    }
}

impl From<Refusal> for Problem {
    fn from(refusal: Refusal) -> Self {
        match refusal {
            Refusal::NotFound(why) => Self::new(StatusCode::NOT_FOUND, why),
            Refusal::Conflict(why) => Self::new(StatusCode::CONFLICT, why),
            Refusal::Invalid { field, why } => Self::invalid(field.unwrap_or_default(), why),
            Refusal::Busy(why) => Self::new(StatusCode::SERVICE_UNAVAILABLE, why).retry_after(1),
            Refusal::Failed(why) => Self::new(StatusCode::INTERNAL_SERVER_ERROR, why),
        }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let status = StatusCode::from_u16(self.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (status, [(header::CONTENT_TYPE, Self::MEDIA_TYPE)], body).into_response();
        if let Some(seconds) = self.retry_after_s {
            response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
        }
        if status == StatusCode::UNAUTHORIZED {
            let scheme = HeaderValue::from_static("Bearer realm=\"strowger\"");
            response.headers_mut().insert(header::WWW_AUTHENTICATE, scheme);
        }
        response
    }
}
