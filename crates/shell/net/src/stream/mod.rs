//! Stream transports: what a listener speaks, and the bytes of a connection.
//!
//! Everything that differs between stream transports is here: how connections are accepted and opened, when one is
//! open, how its bytes are read and written, how it ends, and which [`Transport`](strowger_foundation::Transport) its
//! messages have. The worker queues and frames, the same for all.

mod channel;
mod listener;
mod preface;
mod progress;
mod source;
mod tcp;
mod tls;
mod web_socket;

pub use channel::Channel;
pub use listener::{AcceptedStream, StreamSocket};
pub use progress::Progress;
pub use tcp::{BACKLOG, IoOutcome, TcpListener, TcpStream};
pub use tls::{
    CertificateFiles, CertificateStatus, ClientCertificates, ResumptionOfClients, SubjectNames, TlsContext, TlsError,
    TlsSettings, identities, is_same_domain, speaks_for,
};
pub use web_socket::{AllowedOrigins, WebSocket, WebSocketContext, WebSocketInput};
