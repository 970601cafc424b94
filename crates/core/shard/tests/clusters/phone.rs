//! A phone at an address of its own, and its dialogs.

use std::net::SocketAddr;

use strowger_foundation::{ConnId, Flow, ListenerId, Transport};

use crate::network::{Network, ReceivedMessage, server_of};

/// The way a phone reaches the servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// By UDP without NAT.
    Plain,
    /// By UDP through a NAT, which gives it another address.
    Translated,
    /// By one TCP connection that it has opened.
    Connected,
}

#[derive(Clone, Debug)]
pub(crate) struct Phone {
    pub(crate) user: String,
    /// The address that its messages come from and go to.
    pub(crate) address: String,
    access: Access,
    /// The last number of its requests.
    number: u32,
    /// Parameters of its Contact.
    pub(crate) params: String,
    /// Header lines of its REGISTERs.
    pub(crate) lines: String,
}

impl Phone {
    /// The `number`-th phone of `user`.
    pub(crate) fn new(user: &str, number: u8) -> Self {
        Self::by(Access::Plain, user, number)
    }

    pub(crate) fn by(access: Access, user: &str, number: u8) -> Self {
        let port = if access == Access::Plain { 5060 } else { 33_000 };
        let address = format!("192.0.2.{number}:{port}");
        Self { user: user.to_owned(), address, access, number: 0, params: String::new(), lines: String::new() }
    }

    /// Returns the address in its own view.
    fn own(&self) -> String {
        match self.access {
            Access::Plain => self.address.clone(),
            Access::Translated => "10.0.0.5:5060".to_owned(),
            Access::Connected => self.address.replace(":33000", ":5060"),
        }
    }

    pub(crate) fn contact(&self) -> String {
        let transport = if self.access == Access::Connected { ";transport=tcp" } else { "" };
        format!("sip:{}@{}{transport}", self.user, self.own())
    }

    /// Returns the flow to a server; it has one connection to each.
    fn flow(&self, to: usize) -> Flow {
        let peer: SocketAddr = self.address.parse().expect("an address");
        match self.access {
            Access::Plain | Access::Translated => Flow::new(ListenerId(0), Transport::Udp, peer),
            Access::Connected => {
                let slot = u32::try_from(to).expect("small") + 1;
                Flow::on_connection(ListenerId(1), Transport::Tcp, peer, ConnId::new(0, slot, 1))
            }
        }
    }

    fn via(&self) -> String {
        let transport = if self.access == Access::Connected { "TCP" } else { "UDP" };
        let branch = format!("{}-{}-{}", self.user, self.address.replace([':', '.'], ""), self.number);
        format!("SIP/2.0/{transport} {};branch=z9hG4bK{branch};rport", self.own())
    }

    /// Returns its next REGISTER; `contact` is the whole header value or empty.
    pub(crate) fn registration(&mut self, contact: &str, extra: &str) -> String {
        self.number += 1;
        let Self { user, number, lines, address, .. } = self;
        let (user, number, lines, address) = (user.clone(), *number, lines.clone(), address.clone());
        let contact = if contact.is_empty() { String::new() } else { format!("Contact: {contact}\r\n") };
        format!(
            "REGISTER sip:example.com SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag=r\r\n\
             To: <sip:{user}@example.com>\r\nCall-ID: registration-{address}\r\nCSeq: {number} REGISTER\r\n\
             {contact}{lines}{extra}Content-Length: 0\r\n\r\n",
            self.via()
        )
    }

    /// Registers through a server; returns the responses.
    pub(crate) fn register(&mut self, network: &mut Network, through: usize) -> Vec<ReceivedMessage> {
        let contact = format!("<{}>{}", self.contact(), self.params);
        let text = self.registration(&contact, "");
        self.send(network, through, &text)
    }

    /// Registers and checks that there is one response, a success.
    pub(crate) fn is_registered(&mut self, network: &mut Network, through: usize) -> ReceivedMessage {
        let arrived = self.register(network, through);
        assert_eq!(statuses(&arrived, self), [200], "{}", summary(&arrived));
        arrived[0].clone()
    }

    /// Removes its own contact.
    pub(crate) fn unregister(&mut self, network: &mut Network, through: usize) {
        let contact = format!("<{}>{}", self.contact(), self.params);
        let text = self.registration(&contact, "Expires: 0\r\n");
        let arrived = self.send(network, through, &text);
        assert_eq!(statuses(&arrived, self), [200], "{}", summary(&arrived));
    }

    pub(crate) fn send(&self, network: &mut Network, to: usize, text: &str) -> Vec<ReceivedMessage> {
        network.send_by(self.flow(to), to, text)
    }

    /// Returns an out-of-dialog request.
    pub(crate) fn request(&mut self, method: &str, uri: &str, extra: &str) -> String {
        self.number += 1;
        let Self { user, number, address, .. } = &*self;
        format!(
            "{method} {uri} SIP/2.0\r\nVia: {}\r\nMax-Forwards: 70\r\nFrom: <sip:{user}@example.com>;tag=caller\r\n\
             To: <{uri}>\r\nCall-ID: call-{number}-{address}\r\nCSeq: {number} {method}\r\nContact: <{}>\r\n\
             {extra}Content-Length: 0\r\n\r\n",
            self.via(),
            self.contact()
        )
    }

    /// Calls `uri` through a server; returns what phones receive.
    pub(crate) fn call(&mut self, network: &mut Network, through: usize, uri: &str) -> Vec<ReceivedMessage> {
        let text = self.request("INVITE", uri, "");
        self.send(network, through, &text)
    }

    /// Returns the CANCEL of the request `text`, or the ACK to its failure.
    pub(crate) fn follow_up(&self, method: &str, text: &str, to_tag: &str) -> String {
        let invite = text.split("\r\n").next().expect("a line");
        let start = invite.replacen("INVITE", method, 1);
        let keeps =
            |line: &&str| ["Via: ", "Max-Forwards", "From: ", "Call-ID"].iter().any(|name| line.starts_with(name));
        let kept: String = text.split("\r\n").filter(keeps).map(|line| format!("{line}\r\n")).collect();
        let to = text.split("\r\n").find(|line| line.starts_with("To: ")).expect("a To");
        let cseq = text.split("\r\n").find(|line| line.starts_with("CSeq: ")).expect("a CSeq");
        let cseq = cseq.replace("INVITE", method);
        format!("{start}\r\n{kept}{to}{to_tag}\r\n{cseq}\r\nContent-Length: 0\r\n\r\n")
    }

    /// Returns whether a message has reached this phone, on its connection if it has one.
    fn is_at(&self, arrived: &ReceivedMessage) -> bool {
        let ReceivedMessage { by, sent } = arrived;
        match self.access {
            Access::Plain | Access::Translated => sent.to.to_string() == self.address,
            Access::Connected => {
                sent.flow.connection == self.flow(*by).connection && self.address.starts_with(&sent.to.ip().to_string())
            }
        }
    }

    /// Sends a request in a dialog along its Routes; returns what phones receive.
    pub(crate) fn in_dialog(&mut self, network: &mut Network, dialog: &Dialog, method: &str) -> Vec<ReceivedMessage> {
        let next = dialog.routes.first().unwrap_or(&dialog.target);
        let to = server_of(next).unwrap_or_else(|| panic!("{next} is no server"));
        self.in_dialog_by(network, to, dialog, method)
    }

    /// The same through a server that it sends everything to.
    pub(crate) fn in_dialog_by(
        &mut self,
        network: &mut Network,
        to: usize,
        dialog: &Dialog,
        method: &str,
    ) -> Vec<ReceivedMessage> {
        if method != "ACK" {
            self.number += 1;
        }
        let Dialog { target, routes, local, remote, call_id } = dialog;
        let lines: String = routes.iter().map(|route| format!("Route: {route}\r\n")).collect();
        let via = self.via().replacen("branch=z9hG4bK", &format!("branch=z9hG4bK{}", method.to_lowercase()), 1);
        let text = format!(
            "{method} {target} SIP/2.0\r\nVia: {via}\r\nMax-Forwards: 70\r\n{lines}From: {local}\r\nTo: {remote}\r\n\
             Call-ID: {call_id}\r\nCSeq: {} {method}\r\nContact: <{}>\r\nContent-Length: 0\r\n\r\n",
            self.number,
            self.contact()
        );
        self.send(network, to, &text)
    }
}

/// One end's view of a dialog.
#[derive(Clone, Debug)]
pub(crate) struct Dialog {
    target: String,
    pub(crate) routes: Vec<String>,
    local: String,
    remote: String,
    call_id: String,
}

fn contact_of(message: &ReceivedMessage) -> String {
    let contact = message.sent.header("Contact").expect("a Contact");
    contact.trim_start_matches('<').split('>').next().expect("a URI").to_owned()
}

impl Dialog {
    /// The caller's dialog, from the response.
    pub(crate) fn of_caller(answer: &ReceivedMessage) -> Self {
        let mut routes: Vec<String> = routes(answer);
        routes.reverse();
        let header = |name| answer.sent.header(name).expect("has it").to_owned();
        Self {
            target: contact_of(answer),
            routes,
            local: header("From"),
            remote: header("To"),
            call_id: header("Call-ID"),
        }
    }

    /// The callee's dialog, from the INVITE.
    pub(crate) fn of_callee(invite: &ReceivedMessage) -> Self {
        let header = |name| invite.sent.header(name).expect("has it").to_owned();
        Self {
            target: contact_of(invite),
            routes: routes(invite),
            local: format!("{};tag=callee", header("To")),
            remote: header("From"),
            call_id: header("Call-ID"),
        }
    }
}

fn routes(message: &ReceivedMessage) -> Vec<String> {
    message.sent.headers("Record-Route").flat_map(|line| line.split(", ")).map(str::to_owned).collect()
}

/// Returns the statuses of final responses that reached a phone.
pub(crate) fn statuses(arrived: &[ReceivedMessage], phone: &Phone) -> Vec<u16> {
    let own = arrived.iter().filter(|arrived| phone.is_at(arrived));
    own.map(|arrived| arrived.sent.status()).filter(|status| *status >= 200).collect()
}

/// Returns the requests of `method` that reached a phone.
pub(crate) fn requests<'a>(arrived: &'a [ReceivedMessage], method: &str, phone: &Phone) -> Vec<&'a ReceivedMessage> {
    let own = arrived.iter().filter(|arrived| phone.is_at(arrived));
    own.filter(|arrived| arrived.sent.method() == method).collect()
}

/// Returns the only request of `method` that reached a phone.
pub(crate) fn only(arrived: &[ReceivedMessage], method: &str, phone: &Phone) -> ReceivedMessage {
    match requests(arrived, method, phone)[..] {
        [one] => one.clone(),
        _ => panic!("one {method} for {}: {}", phone.address, summary(arrived)),
    }
}

/// Returns the response with `status` that reached a phone.
pub(crate) fn response(arrived: &[ReceivedMessage], status: u16, phone: &Phone) -> ReceivedMessage {
    let mut own = arrived.iter().filter(|arrived| phone.is_at(arrived));
    let found = own.find(|arrived| arrived.sent.status() == status);
    found.unwrap_or_else(|| panic!("a {status} for {}: {}", phone.address, summary(arrived))).clone()
}

pub(crate) fn summary(arrived: &[ReceivedMessage]) -> String {
    let line = |ReceivedMessage { by, sent }: &ReceivedMessage| format!("{by} → {}: {}", sent.to, sent.start());
    arrived.iter().map(line).collect::<Vec<_>>().join("; ")
}
