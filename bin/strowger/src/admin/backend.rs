//! The server behind the API.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::json;
use strowger_administration::{
    Alias, ApiConfiguration, Backend, Gateway, GatewayChange, Gateways, NewGateway, NewUser, Refusal, User, UserChange,
    UserPage, Users,
};
use strowger_control::config::{Config, ConfigSource};
use strowger_control::protocol::{Outage, Request, Response};
use strowger_control::socket::Handler;

use crate::operations::{GatewayOperations, UserOperations};
use crate::running_config::RunningConfig;
use crate::security_log::SecurityLog;
use crate::text::count;
use crate::{check, former_names};

/// Folder of backups in the data folder.
const BACKUPS: &str = "backups";

/// Answers the API from the running server and its database.
pub(super) struct ApiBackend {
    pub(super) handler: Arc<dyn Handler>,
    pub(super) config: RunningConfig,
    /// The file that the configuration is read from; none for the default one, if there is one.
    pub(super) file: Option<PathBuf>,
    pub(super) security: Arc<SecurityLog>,
}

impl ApiBackend {
    /// Makes the server read a change, so that the next request can rely on it.
    fn follow(&self) {
        // Otherwise the server reads it within a second.
        drop(self.handler.handle(Request::Follow { change: None }));
    }

    fn outages(&self) -> Vec<Outage> {
        match self.handler.handle(Request::Status) {
            Response::Status(status) => status.outages,
            _ => Vec::new(),
        }
    }

    fn source<'a>(&'a self, config: &'a Config) -> ConfigSource<'a> {
        ConfigSource { file: self.file.as_deref(), member: config.role().map(|role| role.name.as_str()) }
    }
}

impl Backend for ApiBackend {
    fn handler(&self) -> &dyn Handler {
        &*self.handler
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn domains(&self) -> Vec<String> {
        self.config.current().server.domains.iter().map(|domain| domain.0.clone()).collect()
    }

    fn hosts(&self) -> Vec<String> {
        let mut hosts = self.domains();
        hosts.extend(self.config.current().admin.hosts.iter().map(|host| host.0.clone()));
        hosts.push(rustix::system::uname().nodename().to_string_lossy().into_owned());
        hosts
    }

    fn has_clusters(&self) -> bool {
        !self.config.current().second_stage.is_empty()
    }

    fn aor(&self, typed: &str) -> Result<String, Refusal> {
        Ok(UserOperations::new(&self.config.current()).full(typed)?.to_string())
    }

    fn users(&self, page: &UserPage) -> Result<Users, Refusal> {
        Ok(UserOperations::new(&self.config.current()).page(page)?)
    }

    fn user(&self, user: &str) -> Result<User, Refusal> {
        Ok(UserOperations::new(&self.config.current()).show(user)?)
    }

    fn add_user(&self, new: &NewUser) -> Result<User, Refusal> {
        let config = self.config.current();
        let operations = UserOperations::new(&config);
        let mut adding = operations.adding(&new.aor)?;
        adding.add(&new.password)?;
        self.follow();
        Ok(operations.show(adding.address.as_str())?)
    }

    fn change_user(&self, user: &str, UserChange { enabled, password }: &UserChange) -> Result<User, Refusal> {
        let config = self.config.current();
        let operations = UserOperations::new(&config);
        if let Some(password) = password {
            operations.changing(user)?.set(password)?;
        }
        if let Some(enabled) = enabled {
            operations.set_enabled(user, *enabled)?;
        }
        self.follow();
        Ok(operations.show(user)?)
    }

    fn remove_user(&self, user: &str) -> Result<(), Refusal> {
        UserOperations::new(&self.config.current()).remove(user)?;
        self.follow();
        Ok(())
    }

    fn add_alias(&self, user: &str, alias: &str) -> Result<Alias, Refusal> {
        let config = self.config.current();
        let operations = UserOperations::new(&config);
        let alias = match operations.add_alias(alias, user) {
            Ok((alias, aor)) => Alias { alias: alias.to_string(), aor: aor.to_string() },
            // Repeating the request changes nothing (RFC 9110 §9.2.2).
            Err(error) => {
                let (alias, user) = (operations.full(alias)?.to_string(), operations.full(user)?.to_string());
                match operations.show(&user) {
                    Ok(shown) if shown.aliases.contains(&alias) => Alias { alias, aor: user },
                    _ => return Err(error.into()),
                }
            }
        };
        self.follow();
        Ok(alias)
    }

    fn remove_alias(&self, user: &str, alias: &str) -> Result<(), Refusal> {
        let config = self.config.current();
        let operations = UserOperations::new(&config);
        let alias = operations.full(alias)?.to_string();
        if !operations.show(user)?.aliases.contains(&alias) {
            return Err(Refusal::NotFound(format!("{user} has no alias {alias}")));
        }
        operations.remove_alias(&alias)?;
        self.follow();
        Ok(())
    }

    fn gateways(&self, set: Option<&str>) -> Result<Gateways, Refusal> {
        Ok(GatewayOperations::new(&self.config.current()).list(set, &self.outages())?)
    }

    fn add_gateway(&self, new: &NewGateway) -> Result<Gateway, Refusal> {
        let config = self.config.current();
        let operations = GatewayOperations::new(&config);
        operations.add(new)?;
        self.follow();
        Ok(operations.show(&new.set, &new.uri, &[])?)
    }

    fn change_gateway(&self, set: &str, uri: &str, change: &GatewayChange) -> Result<Gateway, Refusal> {
        let config = self.config.current();
        let operations = GatewayOperations::new(&config);
        operations.change(set, uri, change)?;
        self.follow();
        Ok(operations.show(set, uri, &self.outages())?)
    }

    fn remove_gateway(&self, set: &str, uri: &str) -> Result<(), Refusal> {
        GatewayOperations::new(&self.config.current()).remove(set, uri)?;
        self.follow();
        Ok(())
    }

    fn configuration(&self) -> ApiConfiguration {
        let file = self.config.file().map(|file| file.display().to_string());
        ApiConfiguration { file, configuration: json!(*self.config.current()) }
    }

    fn check_configuration(&self) -> Result<String, Refusal> {
        let running = self.config.current();
        let faulty = |why: String| Refusal::Invalid { field: None, why };
        let (config, read) =
            Config::load_with_secrets(self.source(&running)).map_err(|error| faulty(error.to_string()))?;
        let mut warnings = former_names::warnings(read.as_deref());
        warnings.extend(check::machine_warnings(&config, read.as_deref()));
        let file = read.as_deref().map_or("the defaults, as there is no file".into(), Path::to_string_lossy);
        let warned = match warnings.as_slice() {
            [] => String::new(),
            some => format!("; {}: {}", count(some.len() as u64, "warning"), some.join("; ")),
        };
        Ok(format!("{file} is valid{warned}"))
    }

    fn backup_file(&self, name: &str) -> Result<PathBuf, Refusal> {
        use std::os::unix::fs::DirBuilderExt as _;
        let data = self.config.current().server.data.clone();
        let folder = std::path::absolute(&data).unwrap_or(data).join(BACKUPS);
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&folder);
        made.map_err(|error| Refusal::Failed(format!("the folder {} cannot be created: {error}", folder.display())))?;
        Ok(folder.join(name))
    }

    fn on_wrong_token(&self, client: SocketAddr) {
        self.security.wrong_token(client);
    }
}
