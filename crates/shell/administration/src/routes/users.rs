//! Users and their aliases.

use axum::http::{StatusCode, header};
use axum::response::IntoResponse;
use strowger_control::protocol::Change;

use super::checked_limit;
use crate::body::{Json, Parameters, Segments};
use crate::context::Context;
use crate::problem::Problem;
use crate::types::{Alias, NewUser, User, UserChange, UserPage, Users};

/// Lists users
///
/// In the order of their addresses. If there are more, ask again with the last address as `after`.
#[utoipa::path(
    get,
    path = "/api/v1/users",
    operation_id = "list_users",
    tag = "users",
    params(UserPage),
    responses((status = 200, description = "The users", body = Users)),
    security(("token" = ["viewer"])),
)]
pub(super) async fn list(context: Context, Parameters(page): Parameters<UserPage>) -> Result<Json<Users>, Problem> {
    checked_limit(page.limit, UserPage::MAX_LIMIT)?;
    context.run(None, move |backend| backend.users(&page)).await.map(Json)
}

/// Adds a user
///
/// The phone of the user can register at once. Only hashes of the password are stored.
#[utoipa::path(
    post,
    path = "/api/v1/users",
    operation_id = "add_user",
    tag = "users",
    request_body = NewUser,
    responses(
        (status = 201, description = "The user", body = User, headers(("Location" = String))),
        (status = 409, description = "There is such a user or alias", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn add(context: Context, Json(new): Json<NewUser>) -> Result<impl IntoResponse, Problem> {
    let change = Change::new("user add", &new.aor);
    let user = context.run(Some(change), move |backend| backend.add_user(&new)).await?;
    let location = format!("/api/v1/users/{}", escaped(&user.aor));
    Ok((StatusCode::CREATED, [(header::LOCATION, location)], Json(user)))
}

/// Shows a user
#[utoipa::path(
    get,
    path = "/api/v1/users/{user}",
    operation_id = "show_user",
    tag = "users",
    params(("user" = String, Path, description = "The address; without a domain, in the first one", example = "alice")),
    responses(
        (status = 200, description = "The user", body = User),
        (status = 404, description = "There is no such user", body = Problem),
    ),
    security(("token" = ["viewer"])),
)]
pub(super) async fn show(context: Context, Segments(user): Segments<String>) -> Result<Json<User>, Problem> {
    context.run(None, move |backend| backend.user(&user)).await.map(Json)
}

/// Changes a user
///
/// Enables or disables it, or sets a new password. A disabled user's registrations are removed.
#[utoipa::path(
    patch,
    path = "/api/v1/users/{user}",
    operation_id = "change_user",
    tag = "users",
    params(("user" = String, Path, description = "The address; without a domain, in the first one")),
    request_body = UserChange,
    responses(
        (status = 200, description = "The user", body = User),
        (status = 404, description = "There is no such user", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn change(
    context: Context,
    Segments(user): Segments<String>,
    Json(change): Json<UserChange>,
) -> Result<Json<User>, Problem> {
    let action = match (change.enabled, &change.password) {
        (None, None) => return Err(Problem::invalid("", "nothing is to be changed; give enabled or password")),
        (Some(true), None) => "user enable",
        (Some(false), None) => "user disable",
        (None, Some(_)) => "user passwd",
        (Some(_), Some(_)) => "user change",
    };
    let action = Change::new(action, &user);
    context.run(Some(action), move |backend| backend.change_user(&user, &change)).await.map(Json)
}

/// Removes a user
///
/// Its aliases and registrations are removed too.
#[utoipa::path(
    delete,
    path = "/api/v1/users/{user}",
    operation_id = "remove_user",
    tag = "users",
    params(("user" = String, Path, description = "The address; without a domain, in the first one")),
    responses(
        (status = 204, description = "It is removed"),
        (status = 404, description = "There is no such user", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn remove(context: Context, Segments(user): Segments<String>) -> Result<StatusCode, Problem> {
    let change = Change::new("user rm", &user);
    context.run(Some(change), move |backend| backend.remove_user(&user)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Adds an alias
///
/// Calls to the alias reach the user.
#[utoipa::path(
    put,
    path = "/api/v1/users/{user}/aliases/{alias}",
    operation_id = "add_alias",
    tag = "users",
    params(
        ("user" = String, Path, description = "The user's address"),
        ("alias" = String, Path, description = "The further address; without a domain, in the first one", example = "100"),
    ),
    responses(
        (status = 200, description = "The alias", body = Alias),
        (status = 404, description = "There is no such user", body = Problem),
        (status = 409, description = "There is such a user, or an alias of another", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn add_alias(
    context: Context,
    Segments((user, alias)): Segments<(String, String)>,
) -> Result<Json<Alias>, Problem> {
    let change = Change::new("user alias add", format!("{alias} {user}"));
    context.run(Some(change), move |backend| backend.add_alias(&user, &alias)).await.map(Json)
}

/// Removes an alias
#[utoipa::path(
    delete,
    path = "/api/v1/users/{user}/aliases/{alias}",
    operation_id = "remove_alias",
    tag = "users",
    params(
        ("user" = String, Path, description = "The user's address"),
        ("alias" = String, Path, description = "The further address; without a domain, in the first one"),
    ),
    responses(
        (status = 204, description = "It is removed"),
        (status = 404, description = "The user has no such alias", body = Problem),
    ),
    security(("token" = ["administrator"])),
)]
pub(super) async fn remove_alias(
    context: Context,
    Segments((user, alias)): Segments<(String, String)>,
) -> Result<StatusCode, Problem> {
    let change = Change::new("user alias rm", format!("{alias} {user}"));
    context.run(Some(change), move |backend| backend.remove_alias(&user, &alias)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Escapes what may not stand in a segment of a path.
fn escaped(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~@!$&'()*+,;=:".contains(&byte);
    text.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}
