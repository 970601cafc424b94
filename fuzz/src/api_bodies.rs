//! The body of the target `api`: a request to the administration API of a server that does nothing.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::ConnectInfo;
use axum::http::{Request, header};
use strowger_administration::{
    Alias, Api, ApiConfiguration, Backend, Gateway, GatewayChange, Gateways, NewGateway, NewUser, Problem, Refusal,
    Role, TokenFile, User, UserChange, UserPage, Users,
};
use strowger_control::protocol::{
    BackupReport, BackupRequest, Ban, Bans, Calls, ChangedTarget, Registrations, Reloaded, Request as Asked, Response,
    Target, Targets,
};
use strowger_control::socket::Handler;
use tokio::runtime::{self, Runtime};
use tower::ServiceExt as _;

/// A server that does nothing.
#[derive(Debug, Default)]
pub struct Idle;

impl Handler for Idle {
    fn handle(&self, request: Asked) -> Response {
        match request {
            Asked::Status => Response::Status(Box::default()),
            Asked::Registrations { .. } => Response::Registrations(Registrations::default()),
            Asked::Unregister { .. } => Response::Unregistered(Registrations::default()),
            Asked::Calls { .. } => Response::Calls(Calls::default()),
            Asked::EndCall { .. } => Response::Ending(Calls::default()),
            Asked::Bans { .. } => Response::Bans(Bans::default()),
            Asked::AddBan(new) => {
                assert!(new.for_s != Some(0), "a ban that has ended");
                Response::Ban(ban(new.address))
            }
            Asked::RemoveBan { address } => Response::Ban(ban(address)),
            Asked::Targets { .. } => Response::Targets(Targets::default()),
            Asked::Drain { .. } | Asked::Undrain { .. } | Asked::AddTarget(_) | Asked::RemoveTarget { .. } => {
                Response::Target(Box::new(ChangedTarget { target: Target::default(), lasts: String::new() }))
            }
            Asked::Reload | Asked::CheckReload => {
                Response::Reloaded(Reloaded { result: String::new(), changes: Vec::new() })
            }
            Asked::Clusters(_) => Response::NotFound("there is none".to_owned()),
            _ => Response::Busy("try again".to_owned()),
        }
    }

    fn backup(&self, request: &BackupRequest, _: &mut dyn FnMut(u64, u64)) -> Result<BackupReport, String> {
        assert_eq!(request.file.parent(), Some(PathBuf::from("/nowhere").as_path()), "it left its folder");
        Ok(BackupReport::default())
    }
}

fn ban(address: IpAddr) -> Ban {
    Ban { address: address.to_string(), cause: "operator".to_owned(), since_s: 0.0, left_s: None, number: 0 }
}

impl Backend for Idle {
    fn handler(&self) -> &dyn Handler {
        self
    }

    fn version(&self) -> &str {
        "0"
    }

    fn domains(&self) -> Vec<String> {
        vec!["localhost".to_owned()]
    }

    fn aor(&self, typed: &str) -> Result<String, Refusal> {
        Ok(typed.to_owned())
    }

    fn users(&self, page: &UserPage) -> Result<Users, Refusal> {
        assert!((1..=UserPage::MAX_LIMIT).contains(&page.limit));
        Ok(Users::default())
    }

    fn user(&self, _: &str) -> Result<User, Refusal> {
        Ok(User::default())
    }

    fn add_user(&self, new: &NewUser) -> Result<User, Refusal> {
        Ok(User { aor: new.aor.clone(), ..User::default() })
    }

    fn change_user(&self, user: &str, _: &UserChange) -> Result<User, Refusal> {
        Ok(User { aor: user.to_owned(), ..User::default() })
    }

    fn remove_user(&self, user: &str) -> Result<(), Refusal> {
        Err(Refusal::NotFound(user.to_owned()))
    }

    fn add_alias(&self, user: &str, alias: &str) -> Result<Alias, Refusal> {
        Ok(Alias { alias: alias.to_owned(), aor: user.to_owned() })
    }

    fn remove_alias(&self, _: &str, _: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn gateways(&self, _: Option<&str>) -> Result<Gateways, Refusal> {
        Ok(Gateways::default())
    }

    fn add_gateway(&self, new: &NewGateway) -> Result<Gateway, Refusal> {
        Ok(Gateway { uri: new.uri.clone(), ..Gateway::default() })
    }

    fn change_gateway(&self, _: &str, _: &str, _: &GatewayChange) -> Result<Gateway, Refusal> {
        Ok(Gateway::default())
    }

    fn remove_gateway(&self, _: &str, _: &str) -> Result<(), Refusal> {
        Ok(())
    }

    fn configuration(&self) -> ApiConfiguration {
        ApiConfiguration { file: None, configuration: serde_json::Value::Null }
    }

    fn check_configuration(&self) -> Result<String, Refusal> {
        Ok(String::new())
    }

    fn backup_file(&self, name: &str) -> Result<PathBuf, Refusal> {
        Ok(PathBuf::from("/nowhere").join(name))
    }
}

/// Returns the API of a server that does nothing, and an administrator's token.
pub fn idle_api() -> (Router, String) {
    let folder = std::env::temp_dir().join(format!("strowger-api-{}", std::process::id()));
    let tokens = TokenFile::in_folder(&folder);
    // Another thread of this process may have made it.
    drop(std::fs::remove_file(tokens.path()));
    let token = tokens.add("fuzzer", Role::Administrator, 0, None).expect("a writable folder");
    (Api::new(Arc::new(Idle), tokens).router(Router::new()), token)
}

/// Checks a request: a line with its method and target, lines with header fields, an empty line, and the body. Whatever
/// it is, the answer is well-formed, and errors are problems.
pub fn api(data: &[u8]) {
    static API: OnceLock<(Router, String)> = OnceLock::new();
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    static CLIENTS: AtomicU32 = AtomicU32::new(0);
    let (router, token) = API.get_or_init(idle_api);
    let Some(mut request) = request(data, token) else { return };
    let runtime = RUNTIME.get_or_init(runtime);
    // Limits are per client.
    let client = Ipv4Addr::from_bits(0x0a00_0000 | (CLIENTS.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff));
    request.extensions_mut().insert(ConnectInfo(SocketAddr::from((IpAddr::from(client), 1))));
    runtime.block_on(async {
        let response = router.clone().oneshot(request).await.expect("infallible");
        let status = response.status();
        assert!(status.as_u16() != 500, "an internal error");
        if status.is_client_error() || status.is_server_error() {
            let media_type = response.headers().get(header::CONTENT_TYPE).cloned();
            let body = to_bytes(response.into_body(), usize::MAX).await.expect("a body");
            // The answer to HEAD has no body.
            if !body.is_empty() {
                assert_eq!(
                    media_type.as_ref().map(axum::http::HeaderValue::as_bytes),
                    Some(&b"application/problem+json"[..])
                );
                let problem: Problem = serde_json::from_slice(&body).expect("a problem");
                assert!(problem.status == status.as_u16() && !problem.detail.is_empty());
            }
        }
    });
}

/// Returns a runtime whose threads stay: what a thread has not yet freed at its end looks like a leak to the fuzzer.
fn runtime() -> Runtime {
    let mut builder = runtime::Builder::new_current_thread();
    builder.enable_time().thread_keep_alive(Duration::MAX).build().expect("a runtime")
}

fn request(data: &[u8], token: &str) -> Option<Request<Body>> {
    let (head, body) = match data.windows(2).position(|pair| pair == b"\n\n") {
        Some(end) => (&data[..end], &data[end + 2..]),
        None => (data, &[][..]),
    };
    let mut lines = head.split(|byte| *byte == b'\n');
    let mut first = lines.next()?.splitn(2, |byte| *byte == b' ');
    let (method, target) = (first.next()?, first.next()?);
    let mut request = Request::builder().method(method).uri(std::str::from_utf8(target).ok()?);
    request = request.header(header::AUTHORIZATION, format!("Bearer {token}")).header(header::HOST, "localhost");
    for line in lines {
        let colon = line.iter().position(|byte| *byte == b':')?;
        request = request.header(&line[..colon], line[colon + 1..].trim_ascii());
    }
    request.body(Body::from(body.to_vec())).ok()
}
