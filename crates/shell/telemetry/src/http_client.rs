//! A client that posts to one place over one connection, HTTP/1.1 without TLS.

use std::time::Duration;

use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1::{self, SendRequest};
use hyper::header::{CONTENT_TYPE, HOST, HeaderName, HeaderValue, RETRY_AFTER, USER_AGENT};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

/// Time limit of a request with its response, including a new connection.
const TIMEOUT: Duration = Duration::from_secs(5);
/// Maximum size of a response, in bytes.
const MAX_RESPONSE: usize = 64 * 1024;

/// Where requests go.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HttpTarget {
    /// Host and port, as in Host.
    pub authority: String,
    /// Path of the requests, with the leading slash.
    pub path: String,
    /// Header fields of each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpTarget {
    /// Returns a header field; `None` if it is not valid. Its value is not shown by `Debug`.
    #[must_use]
    pub fn header(name: &str, value: &str) -> Option<(HeaderName, HeaderValue)> {
        let mut value = HeaderValue::from_str(value).ok()?;
        value.set_sensitive(true);
        Some((HeaderName::from_bytes(name.as_bytes()).ok()?, value))
    }
}

/// A response.
#[derive(Debug)]
pub(crate) struct HttpResponse {
    pub(crate) status: StatusCode,
    /// When the server wants the request again.
    pub(crate) retry_after: Option<Duration>,
    pub(crate) body: Bytes,
}

/// The client. Must be used within one runtime.
#[derive(Debug)]
pub(crate) struct HttpClient {
    target: HttpTarget,
    user_agent: String,
    connection: Option<SendRequest<Full<Bytes>>>,
}

impl HttpClient {
    pub(crate) fn new(target: HttpTarget, user_agent: String) -> Self {
        Self { target, user_agent, connection: None }
    }

    /// Posts `body`. The error is a text for a log.
    pub(crate) async fn post(&mut self, content_type: &'static str, body: Bytes) -> Result<HttpResponse, String> {
        match timeout(TIMEOUT, self.try_post(content_type, body)).await {
            Ok(Ok(response)) => Ok(response),
            Ok(Err(why)) => {
                self.connection = None;
                Err(why)
            }
            Err(_) => {
                self.connection = None;
                Err(format!("no response within {} s", TIMEOUT.as_secs()))
            }
        }
    }

    async fn try_post(&mut self, content_type: &'static str, body: Bytes) -> Result<HttpResponse, String> {
        let mut sender = match self.open_connection().await {
            Some(open) => open,
            None => self.connect().await?,
        };
        let HttpTarget { authority, path, headers } = &self.target;
        let mut request = Request::post(path).header(HOST, authority).header(CONTENT_TYPE, content_type);
        request = request.header(USER_AGENT, &self.user_agent);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(|error| error.to_string())?;
        let response = sender.send_request(request).await.map_err(|error| error.to_string())?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, MAX_RESPONSE).collect().await.map_err(|error| error.to_string())?.to_bytes();
        let retry_after = head.headers.get(RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse().ok());
        self.connection = Some(sender);
        Ok(HttpResponse { status: head.status, retry_after: retry_after.map(Duration::from_secs), body })
    }

    /// Returns the connection of the last request, unless the server has closed it.
    async fn open_connection(&mut self) -> Option<SendRequest<Full<Bytes>>> {
        let mut open = self.connection.take()?;
        open.ready().await.is_ok().then_some(open)
    }

    async fn connect(&self) -> Result<SendRequest<Full<Bytes>>, String> {
        let stream = TcpStream::connect(&self.target.authority).await.map_err(|error| error.to_string())?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(|error| error.to_string())?;
        // Ends with the sender; its errors are those of the requests.
        drop(tokio::spawn(connection));
        Ok(sender)
    }
}
