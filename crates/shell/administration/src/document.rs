//! The OpenAPI document.

use axum::http::Method;
use utoipa::openapi::path::Operation;
use utoipa::openapi::security::{HttpAuthScheme, HttpBuilder, SecurityScheme};
use utoipa::openapi::{Content, ContentBuilder, OpenApi, Ref, RefOr, Response, ResponseBuilder};

use crate::problem::Problem;

/// Name of the security scheme.
pub(crate) const SCHEME: &str = "token";

#[derive(utoipa::OpenApi)]
#[openapi(
    info(
        title = "Strowger administration",
        description = "What `strowger ctl`, `strowger user` and `strowger gateway` do, over HTTP. Make a token with \
                       `strowger token add NAME --role ROLE`, and send it as `Authorization: Bearer TOKEN`. The security \
                       requirement of an operation names the smallest role that may use it: viewer, operator or \
                       administrator. Errors are problem details (RFC 9457).",
        license(name = "MIT OR Apache-2.0", identifier = "MIT OR Apache-2.0"),
    ),
    components(schemas(Problem))
)]
pub(crate) struct Begin;

/// Adds what all operations have in common.
pub(crate) fn finished(mut document: OpenApi) -> OpenApi {
    let components = document.components.get_or_insert_default();
    let bearer = HttpBuilder::new().scheme(HttpAuthScheme::Bearer).description(Some("A token of the server")).build();
    components.add_security_scheme(SCHEME, SecurityScheme::Http(bearer));
    for item in document.paths.paths.values_mut() {
        let operations = [&mut item.get, &mut item.put, &mut item.post, &mut item.delete, &mut item.patch];
        for operation in operations.into_iter().flatten() {
            let is_open = operation.security.is_none();
            let has_body = operation.request_body.is_some();
            let has_path = operation.parameters.iter().flatten().next().is_some();
            let responses = &mut operation.responses.responses;
            responses.values_mut().for_each(name_media_type);
            for (status, what) in [
                ("400", has_body || has_path),
                ("401", !is_open),
                ("403", true),
                ("413", true),
                ("415", has_body),
                ("422", has_body),
                ("429", true),
                ("503", !is_open),
            ] {
                if what {
                    responses.entry(status.to_owned()).or_insert_with(|| problem(status));
                }
            }
        }
    }
    document
}

/// Gives problems in a response their media type.
fn name_media_type(response: &mut RefOr<Response>) {
    let RefOr::T(response) = response else { return };
    let problem = RefOr::Ref(Ref::from_schema_name("Problem"));
    let named = |(media_type, content)| match &content {
        RefOr::T(Content { schema: Some(schema), .. }) if *schema == problem => {
            (Problem::MEDIA_TYPE.to_owned(), content)
        }
        _ => (media_type, content),
    };
    response.content = std::mem::take(&mut response.content).into_iter().map(named).collect();
}

fn problem(status: &str) -> RefOr<Response> {
    let what = match status {
        "400" => "The request cannot be parsed",
        "401" => "The token is missing or not valid",
        "403" => "The role of the token is too small, or the request comes from another site",
        "413" => "The body is too large",
        "415" => "The body is not JSON",
        "422" => "A value cannot be used",
        "429" => "Too many requests; Retry-After says when to try again",
        _ => "Not possible now; Retry-After says when to try again",
    };
    let content = ContentBuilder::new().schema(Some(Ref::from_schema_name("Problem"))).build();
    RefOr::T(ResponseBuilder::new().description(what).content(Problem::MEDIA_TYPE, content).build())
}

/// Returns all operations with their methods and paths.
pub(crate) fn operations(document: &OpenApi) -> impl Iterator<Item = (Method, &str, &Operation)> {
    document.paths.paths.iter().flat_map(|(path, item)| {
        let of = [
            (Method::GET, &item.get),
            (Method::PUT, &item.put),
            (Method::POST, &item.post),
            (Method::DELETE, &item.delete),
            (Method::PATCH, &item.patch),
        ];
        of.into_iter().filter_map(|(method, operation)| Some((method, path.as_str(), operation.as_ref()?)))
    })
}
