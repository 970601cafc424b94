//! The listener and its thread.

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use axum::Router;
use rustix::process::{getpriority_process, setpriority_process};
use rustix::thread::gettid;
use tokio::runtime;
use tokio::sync::{Semaphore, oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::connection;
use crate::limits::HttpLimits;
use crate::tls::HttpTls;

/// Pause after a failure to accept: descriptors or memory are exhausted, and trying again at once would not help.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Maximum number of threads for work that blocks; more of it waits.
const BLOCKING_THREADS: usize = 4;
/// By how much the niceness of the listener's threads is above that of the process: on a core without idle time they get a
/// thirtieth of what a thread that processes messages gets.
const NICER_BY: i32 = 15;
/// The highest niceness.
const NICEST: i32 = 19;

/// Counts of the listener since its start.
#[derive(Debug, Default)]
pub struct HttpCounters {
    accepted: AtomicU64,
    refused: AtomicU64,
}

impl HttpCounters {
    /// Returns the number of accepted connections.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.accepted.load(Ordering::Relaxed)
    }

    /// Returns the number of connections closed at once because of [`HttpLimits::connections`].
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused.load(Ordering::Relaxed)
    }
}

/// What new connections get.
#[derive(Clone, Debug)]
struct Service {
    tls: Option<Arc<HttpTls>>,
    router: Router,
}

/// A running listener. Dropping it closes the listener and its connections.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    /// The same socket, for the process that takes it over.
    listener: TcpListener,
    /// Connections end when it changes, or is dropped.
    service: watch::Sender<Service>,
    /// Stops the thread: when the responses in progress are sent, or at once if it is dropped.
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl HttpServer {
    /// Answers requests on `listener` by `router`, whose handlers must not block. They find the client's address as
    /// `ConnectInfo<SocketAddr>`, and a [`LongResponse`](crate::LongResponse). With `tls`, connections are encrypted.
    ///
    /// # Errors
    /// The system refuses the listener or the thread.
    pub fn start(
        listener: TcpListener,
        tls: Option<HttpTls>,
        router: Router,
        limits: HttpLimits,
        counters: Arc<HttpCounters>,
    ) -> io::Result<Self> {
        let (address, same) = (listener.local_addr()?, listener.try_clone()?);
        listener.set_nonblocking(true)?;
        let runtime =
            runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let (service, current) = watch::channel(Service { tls: tls.map(Arc::new), router });
        let serve = move || {
            yield_to_calls();
            runtime.block_on(async {
                let places = Arc::new(Semaphore::new(limits.connections));
                let may_answer = tokio::select! {
                    () = accept(listener, current, Arc::clone(&places), limits, &counters) => false,
                    stop = stopped => stop.is_ok(),
                };
                if may_answer {
                    // Each connection has a time limit of its own.
                    let all = u32::try_from(limits.connections).unwrap_or(u32::MAX);
                    drop(places.acquire_many(all).await);
                }
            });
            // A handler that still works must not delay the end of the server.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Self { address, listener: same, service, stop: Some(stop), thread: Some(thread) })
    }

    /// Serves new connections by `router` and `tls` instead. Open ones end after the response in progress.
    pub fn exchange(&self, tls: Option<HttpTls>, router: Router) {
        self.service.send_replace(Service { tls: tls.map(Arc::new), router });
    }

    /// Closes the listener, and lets each connection end after the response in progress. Does not wait for that.
    pub fn retire(mut self) {
        if let Some(stop) = self.stop.take() {
            // It fails only if the thread has ended.
            let _ = stop.send(());
        }
        drop(self.thread.take());
    }

    /// Returns another descriptor of the listening socket, for the process that takes it over.
    ///
    /// # Errors
    /// When the process has no file descriptor left.
    pub fn to_handover(&self) -> io::Result<TcpListener> {
        self.listener.try_clone()
    }

    /// Returns the address of the listener.
    #[must_use]
    pub const fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // It panics only if the runtime does.
            drop(thread.join());
        }
    }
}

/// Lowers the priority of this thread, and of those that it starts. On a full machine, clients of the listener wait for calls.
fn yield_to_calls() {
    let thread = Some(gettid());
    let lowered = getpriority_process(thread)
        .and_then(|niceness| setpriority_process(thread, niceness.saturating_add(NICER_BY).min(NICEST)));
    if let Err(error) = lowered {
        tracing::debug!(%error, "the HTTP listener keeps the priority of the server");
    }
}

async fn accept(
    listener: tokio::net::TcpListener,
    service: watch::Receiver<Service>,
    places: Arc<Semaphore>,
    limits: HttpLimits,
    counters: &HttpCounters,
) {
    loop {
        let (stream, peer) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::debug!(%error, "an HTTP connection cannot be accepted");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            counters.refused.fetch_add(1, Ordering::Relaxed);
            continue;
        };
        counters.accepted.fetch_add(1, Ordering::Relaxed);
        // Responses are written whole.
        drop(stream.set_nodelay(true));
        let mut service = service.clone();
        let Service { tls, router } = service.borrow_and_update().clone();
        tokio::spawn(async move {
            // An error says that the listener is gone.
            let replaced = async move { drop(service.changed().await) };
            match tls {
                None => connection::serve(stream, peer, router, limits, replaced).await,
                Some(tls) => {
                    // A failed handshake concerns the client alone.
                    if let Ok(Ok(stream)) = timeout(limits.head, tls.acceptor().accept(stream)).await {
                        connection::serve(stream, peer, router, limits, replaced).await;
                    }
                }
            }
            drop(place);
        });
    }
}
