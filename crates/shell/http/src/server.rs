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
use tokio::sync::{Semaphore, oneshot};
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

/// A running listener. Dropping it closes the listener and its connections.
#[derive(Debug)]
pub struct HttpServer {
    address: SocketAddr,
    /// Dropped to stop the thread.
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
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime =
            runtime::Builder::new_current_thread().enable_all().max_blocking_threads(BLOCKING_THREADS).build()?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let (stop, stopped) = oneshot::channel();
        let serve = move || {
            yield_to_calls();
            runtime.block_on(async {
                tokio::select! {
                    () = accept(listener, tls.map(Arc::new), router, limits, &counters) => {}
                    _ = stopped => {}
                }
            });
            // A handler that still works must not delay the end of the server.
            runtime.shutdown_background();
        };
        let thread = thread::Builder::new().name("http".to_owned()).spawn(serve)?;
        Ok(Self { address, stop: Some(stop), thread: Some(thread) })
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
    tls: Option<Arc<HttpTls>>,
    router: Router,
    limits: HttpLimits,
    counters: &HttpCounters,
) {
    let places = Arc::new(Semaphore::new(limits.connections));
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
        let (router, tls) = (router.clone(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => connection::serve(stream, peer, router, limits).await,
                Some(tls) => {
                    // A failed handshake concerns the client alone.
                    if let Ok(Ok(stream)) = timeout(limits.head, tls.acceptor().accept(stream)).await {
                        connection::serve(stream, peer, router, limits).await;
                    }
                }
            }
            drop(place);
        });
    }
}
