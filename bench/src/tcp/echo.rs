//! The echo server: one thread, one loop over readable sockets; all data is sent back.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr};

use mio::net::{TcpListener, TcpStream, UdpSocket};
use mio::{Events, Interest, Poll, Token};
use socket2::{Domain, Protocol, Socket, Type};

use super::PORT;

/// Tokens of the listener and the datagram socket; connections have tokens from 2 on.
const LISTENER: Token = Token(0);
const DATAGRAMS: Token = Token(1);
const FIRST: usize = 2;

/// Opens a listener that shares its address with those of other processes.
///
/// # Errors
/// If the address is not available.
pub fn shared(address: SocketAddr, kind: Type, protocol: Protocol) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    socket.set_reuse_address(true)?;
    socket.set_reuse_port(true)?;
    socket.set_nonblocking(true)?;
    if kind == Type::DGRAM {
        socket.set_recv_buffer_size(4 << 20)?;
    }
    socket.bind(&address.into())?;
    Ok(socket)
}

/// Serves at all addresses until it is killed. Prints `ready` once.
///
/// # Errors
/// If a socket fails.
pub fn serve(is_datagrams: bool) -> io::Result<()> {
    let address = SocketAddr::from((Ipv4Addr::UNSPECIFIED, PORT));
    let mut poll = Poll::new()?;
    let mut server = Server { connections: slab::Slab::new(), buffer: vec![0; 1 << 16] };
    let listener = shared(address, Type::STREAM, Protocol::TCP)?;
    listener.listen(65_535)?;
    let mut listener = TcpListener::from_std(listener.into());
    poll.registry().register(&mut listener, LISTENER, Interest::READABLE)?;
    let mut datagrams = None;
    if is_datagrams {
        let mut socket = UdpSocket::from_std(shared(address, Type::DGRAM, Protocol::UDP)?.into());
        poll.registry().register(&mut socket, DATAGRAMS, Interest::READABLE)?;
        datagrams = Some(socket);
    }
    println!("ready");
    let mut events = Events::with_capacity(1024);
    loop {
        poll.poll(&mut events, None)?;
        for event in &events {
            match event.token() {
                LISTENER => server.accept(&poll, &listener)?,
                DATAGRAMS => datagrams.as_ref().map_or(Ok(()), |socket| server.echo_datagrams(socket))?,
                Token(number) => server.echo(number - FIRST),
            }
        }
    }
}

struct Server {
    connections: slab::Slab<TcpStream>,
    buffer: Vec<u8>,
}

impl Server {
    fn accept(&mut self, poll: &Poll, listener: &TcpListener) -> io::Result<()> {
        loop {
            match listener.accept() {
                Ok((mut connection, _)) => {
                    let entry = self.connections.vacant_entry();
                    poll.registry().register(&mut connection, Token(entry.key() + FIRST), Interest::READABLE)?;
                    entry.insert(connection);
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }

    /// Reads until no data is left. Closes a connection that has ended or does not accept data.
    fn echo(&mut self, index: usize) {
        let Some(connection) = self.connections.get_mut(index) else { return };
        loop {
            match connection.read(&mut self.buffer) {
                Ok(0) => break,
                Ok(count) => {
                    if connection.write_all(&self.buffer[..count]).is_err() {
                        break;
                    }
                    // A whole message: nothing else is in flight.
                    if count < self.buffer.len() {
                        return;
                    }
                }
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(_) => break,
            }
        }
        self.connections.remove(index);
    }

    fn echo_datagrams(&mut self, socket: &UdpSocket) -> io::Result<()> {
        loop {
            match socket.recv_from(&mut self.buffer) {
                Ok((count, peer)) => drop(socket.send_to(&self.buffer[..count], peer)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error),
            }
        }
    }
}
