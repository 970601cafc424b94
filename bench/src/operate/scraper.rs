//! A client that scrapes the metrics as Prometheus does, over one connection.

use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use rustix::thread::gettid;

/// Maximum time for an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Size of a piece in which an answer is read, in bytes.
const PIECE: usize = 64 * 1024;
/// What Prometheus accepts.
const ACCEPT: &str = "application/openmetrics-text;version=1.0.0;q=0.5,text/plain;version=0.0.4;q=0.3";

/// Scrapes that were answered.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Scrapes {
    /// Their number.
    pub(crate) count: u64,
    /// Size of the largest answer, in bytes.
    pub(crate) bytes: u64,
    /// The longest time until an answer was read.
    pub(crate) longest: Duration,
    /// The time of all.
    pub(crate) time: Duration,
}

/// A connection to a server's HTTP listener.
#[derive(Debug)]
pub(crate) struct Scraper {
    address: SocketAddr,
    stream: BufReader<TcpStream>,
    scrapes: Scrapes,
}

impl Scraper {
    /// Connects.
    ///
    /// # Errors
    /// If the server does not accept.
    pub(crate) fn new(address: SocketAddr) -> io::Result<Self> {
        let stream = TcpStream::connect(address)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        stream.set_nodelay(true)?;
        Ok(Self { address, stream: BufReader::with_capacity(PIECE, stream), scrapes: Scrapes::default() })
    }

    /// Scrapes once.
    ///
    /// # Errors
    /// If the answer is not a 200 with a length.
    pub(crate) fn scrape(&mut self) -> io::Result<()> {
        let begun = Instant::now();
        let request = format!("GET /metrics HTTP/1.1\r\nHost: {}\r\nAccept: {ACCEPT}\r\n\r\n", self.address);
        self.stream.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        if !line.starts_with("HTTP/1.1 200 ") {
            return Err(io::Error::other(format!("a scrape was answered {}", line.trim_end())));
        }
        let mut length = None;
        while line != "\r\n" {
            line.clear();
            if self.stream.read_line(&mut line)? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            let field = line.split_once(':').filter(|(name, _)| name.eq_ignore_ascii_case("content-length"));
            length = field.and_then(|(_, value)| value.trim().parse().ok()).or(length);
        }
        let length: u64 = length.ok_or_else(|| io::Error::other("a scrape was answered without a length"))?;
        let read = io::copy(&mut self.stream.by_ref().take(length), &mut io::sink())?;
        if read < length {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let lasted = begun.elapsed();
        let Scrapes { count, bytes, longest, time } = &mut self.scrapes;
        *count += 1;
        *time += lasted;
        (*bytes, *longest) = (length.max(*bytes), lasted.max(*longest));
        Ok(())
    }

    /// Returns the scrapes so far.
    pub(crate) const fn scrapes(&self) -> Scrapes {
        self.scrapes
    }
}

/// A thread that scrapes until it is stopped.
#[derive(Debug)]
pub(crate) struct BackgroundScraper {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<io::Result<Scrapes>>,
}

impl BackgroundScraper {
    /// Starts scraping with this time between the beginnings of two scrapes; with zero, back to back.
    ///
    /// # Errors
    /// If the server does not accept.
    pub(crate) fn start(address: SocketAddr, every: Duration) -> io::Result<Self> {
        let mut scraper = Scraper::new(address)?;
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            yield_to_generator();
            let mut next = Instant::now();
            while !stopped.load(Ordering::Relaxed) {
                scraper.scrape()?;
                next += every;
                thread::sleep(next.saturating_duration_since(Instant::now()));
            }
            Ok(scraper.scrapes())
        });
        Ok(Self { stop, thread })
    }

    /// Stops it and returns the scrapes.
    ///
    /// # Errors
    /// If one failed.
    pub(crate) fn stop(self) -> io::Result<Scrapes> {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap_or_else(|_| Err(io::Error::other("the scraper failed")))
    }
}

/// Gives this thread the lowest priority: a real Prometheus has a machine of its own, while this one shares the
/// generator's core. Without the permission, it disturbs the generator more.
fn yield_to_generator() {
    let _ = rustix::process::setpriority_process(Some(gettid()), 19);
}
