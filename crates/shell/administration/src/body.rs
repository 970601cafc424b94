//! Bodies, queries and paths of requests, and answers in JSON.

use std::time::Duration;

use axum::body::{Bytes, to_bytes};
use axum::extract::{FromRequest, FromRequestParts, Path, Query, Request};
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::error::Category;
use tokio::time::timeout;

use crate::problem::Problem;

/// Maximum size of a request's body, in bytes.
pub(crate) const MAX_BODY: usize = 64 * 1024;
/// Time for a body to arrive.
const BODY_TIME: Duration = Duration::from_secs(10);

/// A value as JSON: of a request, or of its answer.
#[derive(Clone, Debug)]
pub(crate) struct Json<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequest<S> for Json<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, _: &S) -> Result<Self, Problem> {
        check_type(request.headers())?;
        let body = timeout(BODY_TIME, to_bytes(request.into_body(), MAX_BODY)).await;
        let body = body.map_err(|_| Problem::new(StatusCode::REQUEST_TIMEOUT, "the body did not arrive in time"))?;
        // The size is checked before; this concerns bodies that come in chunks.
        let body = body.map_err(|_| too_large())?;
        parse(&body).map(Self)
    }
}

impl<T: Serialize> IntoResponse for Json<T> {
    fn into_response(self) -> Response {
        match serde_json::to_vec(&self.0) {
            Ok(body) => ([(header::CONTENT_TYPE, "application/json")], body).into_response(),
            Err(error) => Problem::new(StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
        }
    }
}

fn check_type(headers: &HeaderMap) -> Result<(), Problem> {
    let given = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    let given = given.split(';').next().unwrap_or_default().trim();
    if given.eq_ignore_ascii_case("application/json") {
        return Ok(());
    }
    let why = "the body must be JSON; send it with `Content-Type: application/json`";
    Err(Problem::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, why))
}

/// Refuses a body that is announced to be too large.
pub(crate) fn check_size(headers: &HeaderMap) -> Result<(), Problem> {
    let announced = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    match announced.and_then(|length| length.parse::<u64>().ok()) {
        Some(length) if length > MAX_BODY as u64 => Err(too_large()),
        _ => Ok(()),
    }
}

fn too_large() -> Problem {
    let why = format!("the body has more than {MAX_BODY} bytes, which is the maximum");
    Problem::new(StatusCode::PAYLOAD_TOO_LARGE, why)
}

fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Problem> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let value = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let field = error.path().to_string();
        let cause = error.into_inner();
        match cause.classify() {
            Category::Data => {
                // The text has the place, but never a password: serde names the types of wrong values, and the values
                // of numbers and texts only, so these are left out.
                Problem::invalid(if field == "." { "" } else { &field }, explained(&field, &cause.to_string()))
            }
            _ => Problem::new(StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {cause}")),
        }
    })?;
    deserializer
        .end()
        .map_err(|error| Problem::new(StatusCode::BAD_REQUEST, format!("the body is not valid JSON: {error}")))?;
    Ok(value)
}

/// Returns what is wrong, without the value: it may be a password in the wrong place.
fn explained(field: &str, cause: &str) -> String {
    let cause = cause.split(" at line ").next().unwrap_or_default();
    let what = match cause.split_once(", expected ") {
        Some((found, expected)) if found.starts_with("invalid type") || found.starts_with("invalid value") => {
            format!("this must be {expected}")
        }
        _ => cause.to_owned(),
    };
    if field == "." { what } else { format!("{field}: {what}") }
}

/// The parameters after the path.
#[derive(Clone, Debug)]
pub(crate) struct Parameters<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned> FromRequestParts<S> for Parameters<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let query = Query::<T>::from_request_parts(parts, state).await;
        query.map(|Query(parameters)| Self(parameters)).map_err(|rejected| {
            Problem::new(StatusCode::BAD_REQUEST, format!("the query cannot be used: {}", rejected.body_text()))
        })
    }
}

/// The variable parts of the path, percent-decoded.
#[derive(Clone, Debug)]
pub(crate) struct Segments<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Send> FromRequestParts<S> for Segments<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        let path = Path::<T>::from_request_parts(parts, state).await;
        path.map(|Path(segments)| Self(segments)).map_err(|rejected| {
            Problem::new(StatusCode::BAD_REQUEST, format!("the path cannot be used: {}", rejected.body_text()))
        })
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Wanted {
        #[expect(dead_code, reason = "only parsed")]
        weight: u16,
    }

    #[test]
    fn a_wrong_value_is_named_but_not_shown() {
        for (body, status, field) in [
            ("", 400, None),
            ("{\"weight\":1", 400, None),
            ("{\"weight\":1} {}", 400, None),
            ("{\"weight\":\"secret\"}", 422, Some("weight")),
            ("{\"weight\":70000}", 422, Some("weight")),
            ("{\"weight\":-1}", 422, Some("weight")),
            ("{}", 422, None),
            ("[]", 422, None),
            ("{\"weight\":1,\"other\":\"secret\"}", 422, Some("other")),
        ] {
            let problem = parse::<Wanted>(&Bytes::from_static(body.as_bytes())).expect_err(body);
            assert_eq!((problem.status, problem.field.as_deref()), (status, field), "{body}: {problem:?}");
            assert!(!problem.detail.contains("secret") && !problem.detail.contains("70000"), "{problem:?}");
        }
    }
}
