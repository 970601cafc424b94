//! The softphone `baresip`, driven through its control connection.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::namespace::Namespace;
use crate::process::{Process, tail};
use crate::{PATIENCE, Program, Server, free_port, free_port_pair, poll};

/// A running phone without an account. [`Phone::register`] adds one.
///
/// It needs no sound card: it plays a tone to its peer and discards what it receives.
#[derive(Debug)]
pub struct Phone {
    name: &'static str,
    process: Process,
    control: TcpStream,
    received: Vec<u8>,
    events: Vec<Event>,
    answers: Vec<Value>,
    _folder: TempDir,
}

/// An event reported by a phone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Type of the event, for example `CALL_ESTABLISHED`.
    pub kind: String,
    /// Address of the peer in a call.
    pub peer: String,
    /// Parameter of the event, for example the reason why a call was closed.
    pub detail: String,
}

impl Phone {
    /// Returns the user part of the phone's address.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Starts a phone on its own ports.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start(name: &'static str) -> Phone {
        Phone::start_at(name, Ipv4Addr::LOCALHOST, None)
    }

    /// Starts a phone on its own ports at this address, optionally in a network namespace.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_at(name: &'static str, host: Ipv4Addr, network: Option<&Namespace>) -> Phone {
        let listen = SocketAddr::from((host, free_port_pair()));
        Phone::launch(name, &format!("sip_listen {listen}\nnet_interface {host}\n"), &["-4"], network)
    }

    /// Like [`Phone::start`], with this name server for resolving SIP servers.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_asking(name: &'static str, names: SocketAddr) -> Phone {
        let (host, port) = (Ipv4Addr::LOCALHOST, free_port_pair());
        let settings = format!("sip_listen {host}:{port}\nnet_interface {host}\ndns_server {names}\n");
        Phone::launch(name, &settings, &["-4"], None)
    }

    /// Starts a phone that can exchange audio with browsers (ICE, DTLS-SRTP) in a network namespace. The address must not
    /// be a loopback address, since neither side proposes those.
    ///
    /// # Panics
    /// If it does not start.
    #[must_use]
    pub fn start_for_browsers(name: &'static str, host: Ipv4Addr, network: &Namespace) -> Phone {
        let listen = SocketAddr::from((host, free_port_pair()));
        let modules = "module ice.so\nmodule srtp.so\nmodule dtls_srtp.so\nrtcp_mux yes\n";
        let settings = format!("sip_listen {listen}\nnet_interface {host}\n{modules}");
        Phone::launch(name, &settings, &["-4"], Some(network))
    }

    /// Starts a phone that uses the IPv4 and IPv6 addresses of this interface and chooses its own ports.
    ///
    /// # Panics
    /// If it does not start, as on a loopback interface.
    #[must_use]
    pub fn start_on(name: &'static str, interface: &str, network: &Namespace) -> Phone {
        Phone::launch(name, &format!("net_interface {interface}\n"), &[], Some(network))
    }

    fn launch(name: &'static str, network_settings: &str, options: &[&str], network: Option<&Namespace>) -> Phone {
        // A free port may be taken before the phone binds it.
        let mut tries = (0..3).filter_map(|_| Phone::launch_once(name, network_settings, options, network));
        tries.next().unwrap_or_else(|| panic!("{name}'s phone found its control port in use three times"))
    }

    /// Returns `None` if the control port is in use.
    fn launch_once(
        name: &'static str,
        network_settings: &str,
        options: &[&str],
        network: Option<&Namespace>,
    ) -> Option<Phone> {
        let folder = tempfile::Builder::new().prefix("baresip-").tempdir().expect("a temporary folder");
        let control_port = free_port();
        let files = [("config", config(network_settings, control_port)), ("accounts", String::new())];
        for (file, text) in files {
            fs::write(folder.path().join(file), text).expect("the phone's files can be written");
        }
        // Without a contacts file it would write one with examples.
        fs::write(folder.path().join("contacts"), "").expect("the phone's files can be written");

        let arguments = options.iter().chain(&["-s", "-f"]).map(ToString::to_string);
        let arguments = arguments.chain([folder.path().display().to_string()]).collect::<Vec<_>>();
        let log = folder.path().join("phone.log");
        let mut process = Process::start_in(network, &Program::Baresip.path(), &arguments, log);
        let is_up = poll(PATIENCE, || {
            let said = process.output() + &process.errors();
            let is_taken = said.contains("ctrl_tcp: failed to listen");
            (is_taken || said.contains("baresip is ready") || process.ended().is_some()).then_some(!is_taken)
        });
        if is_up == Some(false) {
            return None;
        }
        let control = poll(PATIENCE, || {
            if let Some(status) = process.ended() {
                panic!("{name}'s phone ended with {status}:\n{}{}", process.output(), process.errors());
            }
            let connect = || TcpStream::connect((Ipv4Addr::LOCALHOST, control_port)).ok();
            network.map_or_else(connect, |network| network.inside(connect))
        })
        .unwrap_or_else(|| panic!("{name}'s phone opens no control connection"));
        let (received, events, answers) = (Vec::new(), Vec::new(), Vec::new());
        Some(Phone { name, process, control, received, events, answers, _folder: folder })
    }

    /// Adds the account `name@example.com` at this server and waits for the event `REGISTER_OK` or `REGISTER_FAIL`.
    ///
    /// # Panics
    /// If neither arrives.
    pub fn register(&mut self, server: &Server, password: &str) -> Event {
        let address = server.address();
        let account =
            format!("<sip:{}@example.com>;auth_pass=\"{password}\";outbound=\"sip:{address}\";regint=600", self.name);
        self.register_account(&account)
    }

    /// Like [`Phone::register`], over this transport (`udp`, `tcp`) to this address of the server.
    ///
    /// # Panics
    /// If neither event arrives.
    pub fn register_over(&mut self, transport: &str, address: SocketAddr) -> Event {
        let name = self.name;
        let account = format!(
            "<sip:{name}@example.com;transport={transport}>;auth_pass=\"secret of {name}\";\
             outbound=\"sip:{address};transport={transport}\";regint=600"
        );
        self.register_account(&account)
    }

    /// Like [`Phone::register_over`], as a phone [for browsers](Phone::start_for_browsers).
    ///
    /// # Panics
    /// If neither event arrives.
    pub fn register_for_browsers(&mut self, transport: &str, address: SocketAddr) -> Event {
        let name = self.name;
        self.register_account(&format!(
            "<sip:{name}@example.com;transport={transport}>;auth_pass=\"secret of {name}\";regint=600;medianat=ice;\
             mediaenc=dtls_srtp;outbound=\"sip:{address};transport={transport}\""
        ))
    }

    /// Like [`Phone::register_over`] with TCP, as a device that keeps its connection alive (RFC 5626).
    ///
    /// # Panics
    /// If neither event arrives.
    pub fn register_outbound(&mut self, address: SocketAddr) -> Event {
        let name = self.name;
        self.register_account(&format!(
            "<sip:{name}@example.com;transport=tcp>;auth_pass=\"secret of {name}\";regint=600;sipnat=outbound;\
             outbound=\"sip:{address};transport=tcp\""
        ))
    }

    /// Like [`Phone::register_outbound`], with a flow to each of two servers. Waits until both are registered.
    ///
    /// # Panics
    /// If one of them fails.
    pub fn register_flows(&mut self, [first, second]: [SocketAddr; 2]) {
        let name = self.name;
        let account = format!(
            "<sip:{name}@example.com;transport=tcp>;auth_pass=\"secret of {name}\";regint=600;sipnat=outbound;\
             outbound=\"sip:{first};transport=tcp\";outbound2=\"sip:{second};transport=tcp\""
        );
        assert_eq!(self.register_account(&account).kind, "REGISTER_OK");
        self.expect("REGISTER_OK");
    }

    /// Like [`Phone::register`], with an account in baresip's own notation.
    ///
    /// # Panics
    /// If neither event arrives.
    pub fn register_account(&mut self, account: &str) -> Event {
        self.command("uanew", account);
        self.expect_any(&["REGISTER_OK", "REGISTER_FAIL"])
    }

    /// Starts a call.
    ///
    /// # Panics
    /// If the phone refuses the command. The same holds for the commands below.
    pub fn dial(&mut self, uri: &str) {
        self.command("dial", uri);
    }

    /// Answers the ringing call.
    pub fn accept(&mut self) {
        self.command("accept", "");
    }

    /// Ends the call with BYE, CANCEL or 486, depending on its state.
    pub fn hang_up(&mut self) {
        self.command("hangup", "");
    }

    /// Puts the peer on hold with a re-INVITE.
    pub fn hold(&mut self) {
        self.command("hold", "");
    }

    /// Ends the hold with another re-INVITE.
    pub fn resume(&mut self) {
        self.command("resume", "");
    }

    /// Deletes the account, which ends its registration.
    pub fn delete_account(&mut self) {
        let account = format!("sip:{}@example.com", self.name);
        self.command("uadel", &account);
    }

    /// Waits for an event of this kind and removes it. Other events stay queued.
    ///
    /// # Panics
    /// If it does not arrive.
    pub fn expect(&mut self, kind: &str) -> Event {
        self.expect_any(&[kind])
    }

    /// Waits for the end of a call and returns the reason that the phone reports.
    ///
    /// # Panics
    /// If the call does not end.
    pub fn expect_closed(&mut self) -> String {
        self.expect("CALL_CLOSED").detail
    }

    /// Calls another phone, which answers, and hangs up.
    ///
    /// # Panics
    /// If the call is not established or does not end on both sides.
    pub fn call(&mut self, other: &mut Phone) {
        self.dial(&format!("sip:{}@example.com", other.name()));
        other.expect("CALL_INCOMING");
        other.accept();
        self.expect("CALL_ESTABLISHED");
        self.hang_up();
        other.expect_closed();
        self.expect_closed();
    }

    /// Returns whether an event of this kind is queued.
    #[must_use]
    pub fn has_seen(&self, kind: &str) -> bool {
        self.events.iter().any(|event| event.kind == kind)
    }

    fn expect_any(&mut self, kinds: &[&str]) -> Event {
        let deadline = Instant::now() + PATIENCE;
        loop {
            if let Some(at) = self.events.iter().position(|event| kinds.contains(&event.kind.as_str())) {
                return self.events.remove(at);
            }
            if !self.receive(deadline) {
                panic!("{}'s phone reports no {kinds:?}, only {:#?}", self.name, self.events);
            }
        }
    }

    fn command(&mut self, command: &str, parameters: &str) {
        let message = json!({ "command": command, "params": parameters, "token": command }).to_string();
        let frame = format!("{}:{message},", message.len());
        self.control.write_all(frame.as_bytes()).expect("the phone takes commands");
        let deadline = Instant::now() + PATIENCE;
        let answer = loop {
            if let Some(answer) = self.answers.pop() {
                break answer;
            }
            assert!(self.receive(deadline), "{}'s phone does not answer `{command}`", self.name);
        };
        assert_eq!(answer["ok"], Value::Bool(true), "{}: `{command} {parameters}`: {answer}", self.name);
    }

    /// Waits for one more message. Returns false at the deadline or if the phone is gone.
    fn receive(&mut self, deadline: Instant) -> bool {
        loop {
            if let Some(message) = take_netstring(&mut self.received) {
                self.sort(&message);
                return true;
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return false;
            }
            let slice = left.min(Duration::from_millis(500));
            self.control.set_read_timeout(Some(slice)).expect("a time-out can be set");
            let mut buffer = [0; 4096];
            match self.control.read(&mut buffer) {
                Ok(0) => return false,
                Ok(length) => self.received.extend_from_slice(&buffer[..length]),
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {}
                Err(error) => panic!("{}'s phone: {error}", self.name),
            }
        }
    }

    fn sort(&mut self, message: &[u8]) {
        let message: Value = serde_json::from_slice(message).expect("the phone speaks JSON");
        if message["event"] == Value::Bool(true) {
            let text = |key: &str| message[key].as_str().unwrap_or_default().to_owned();
            self.events.push(Event { kind: text("type"), peer: text("peeruri"), detail: text("param") });
        } else {
            self.answers.push(message);
        }
    }
}

impl Drop for Phone {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- {}'s phone ---\n{}", self.name, tail(&self.process.output(), 150));
        }
    }
}

/// Removes and returns the first complete netstring, `LENGTH:BYTES,`, of the received bytes.
fn take_netstring(received: &mut Vec<u8>) -> Option<Vec<u8>> {
    let colon = received.iter().position(|&byte| byte == b':')?;
    let digits = std::str::from_utf8(&received[..colon]).expect("a length is text");
    let length: usize = digits.parse().expect("a length is a number");
    let end = colon + 1 + length;
    if received.len() <= end {
        return None;
    }
    let message = received[colon + 1..end].to_vec();
    received.drain(..=end);
    Some(message)
}

/// Returns baresip's configuration. `ausine` supports only 48 kHz stereo, and only `aubridge` is a sink that needs no
/// device.
fn config(network_settings: &str, control_port: u16) -> String {
    format!(
        "poll_method          epoll
{network_settings}call_local_timeout   120
call_max_calls       1
audio_player         aubridge,none
audio_source         ausine,400
audio_alert          aubridge,none
audio_level          no
ausrc_srate          48000
auplay_srate         48000
ausrc_channels       2
rtp_ports            10000-19998
module_path          /usr/lib/baresip/modules
module               g711.so
module               aubridge.so
module               ausine.so
module_tmp           uuid.so
module_tmp           account.so
module_app           menu.so
module_app           ctrl_tcp.so
ctrl_tcp_listen      127.0.0.1:{control_port}
"
    )
}

#[cfg(test)]
mod tests {
    use super::take_netstring;

    #[test]
    fn netstrings_may_be_split() {
        let mut received = b"5:hel".to_vec();
        assert_eq!(take_netstring(&mut received), None);
        received.extend_from_slice(b"lo");
        assert_eq!(take_netstring(&mut received), None);
        received.extend_from_slice(b",2:ab,1");
        assert_eq!(take_netstring(&mut received).as_deref(), Some(&b"hello"[..]));
        assert_eq!(take_netstring(&mut received).as_deref(), Some(&b"ab"[..]));
        assert_eq!(take_netstring(&mut received), None);
        assert_eq!(received, b"1");
    }
}
