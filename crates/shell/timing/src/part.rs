//! The parts of a packet's way through a server.

/// A part of the time that a packet spends in a server.
///
/// The names are those of Krishnamurthy's thesis, section 3.3. K_rcv is the sum of K_stack, K_sockq and K_copy. A
/// program that receives or sends several packets with one system call makes packets wait for each other; this
/// waiting is separate from the parts of the thesis.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Part {
    /// K_stack: from the network device to the socket's queue.
    Stack,
    /// K_sockq: in the socket's queue, waiting and service together.
    SocketQueue,
    /// The part of K_sockq from the wake-up of the sleeping receiver until it ran; absent if it did not sleep.
    WakeUp,
    /// K_copy: from the queue to the program.
    Copy,
    /// K_rcv: from the network device to the program.
    Receive,
    /// From the return of the receive call until the program begins with this packet; zero unless the call returned
    /// several packets.
    ReceiveBatch,
    /// T_sip¹: the part of T_sip that all message types have in common, such as finding the transaction.
    Common,
    /// T_sip²: the rest of T_sip, which depends on the message type.
    Specific,
    /// T_sip, or T_app of other protocols: from the program's receipt to its send call.
    Application,
    /// From the end of a packet's processing until the send call that sends it begins; zero unless the program
    /// collects several packets for one call.
    SendBatch,
    /// K_snd: from the send call to the network device.
    Send,
    /// The whole send call. On a loopback device it includes the receiver's K_stack.
    SendCall,
}

impl Part {
    /// Number of parts.
    pub const COUNT: usize = 12;

    /// All parts, in the order of a packet's way.
    pub const ALL: [Self; Self::COUNT] = [
        Self::Stack,
        Self::SocketQueue,
        Self::WakeUp,
        Self::Copy,
        Self::Receive,
        Self::ReceiveBatch,
        Self::Common,
        Self::Specific,
        Self::Application,
        Self::SendBatch,
        Self::Send,
        Self::SendCall,
    ];

    /// Returns the thesis's name, or a short name for what the thesis does not have.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Stack => "K_stack",
            Self::SocketQueue => "K_sockq",
            Self::WakeUp => "wake-up",
            Self::Copy => "K_copy",
            Self::Receive => "K_rcv",
            Self::ReceiveBatch => "receive batch",
            Self::Common => "T_sip common",
            Self::Specific => "T_sip specific",
            Self::Application => "T_sip",
            Self::SendBatch => "send batch",
            Self::Send => "K_snd",
            Self::SendCall => "send call",
        }
    }

    /// Returns the key in JSON.
    #[must_use]
    pub const fn key(self) -> &'static str {
        match self {
            Self::Stack => "k_stack",
            Self::SocketQueue => "k_sockq",
            Self::WakeUp => "wake_up",
            Self::Copy => "k_copy",
            Self::Receive => "k_rcv",
            Self::ReceiveBatch => "receive_batch",
            Self::Common => "t_sip_common",
            Self::Specific => "t_sip_specific",
            Self::Application => "t_sip",
            Self::SendBatch => "send_batch",
            Self::Send => "k_snd",
            Self::SendCall => "send_call",
        }
    }

    /// Returns the position in [`Part::ALL`].
    #[must_use]
    pub const fn index(self) -> usize {
        self as usize
    }
}

/// The parts of one packet, ns; `None` where a part was not measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartTimes([Option<u64>; Part::COUNT]);

impl PartTimes {
    /// Returns a part, ns.
    #[must_use]
    pub fn get(&self, part: Part) -> Option<u64> {
        self.0[part.index()]
    }

    /// Sets a part, ns.
    pub fn set(&mut self, part: Part, nanos: u64) {
        self.0[part.index()] = Some(nanos);
    }

    /// Iterates over the measured parts, ns.
    pub fn iter(&self) -> impl Iterator<Item = (Part, u64)> + '_ {
        Part::ALL.into_iter().filter_map(|part| Some((part, self.get(part)?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_has_its_own_place_and_names() {
        for (index, part) in Part::ALL.into_iter().enumerate() {
            assert_eq!(part.index(), index);
            assert_eq!(Part::ALL.iter().filter(|other| other.name() == part.name()).count(), 1);
            assert_eq!(Part::ALL.iter().filter(|other| other.key() == part.key()).count(), 1);
        }
    }

    #[test]
    fn only_measured_parts_are_returned() {
        let mut times = PartTimes::default();
        times.set(Part::Send, 7);
        times.set(Part::Stack, 3);
        assert_eq!(times.iter().collect::<Vec<_>>(), [(Part::Stack, 3), (Part::Send, 7)]);
        assert_eq!(times.get(Part::Copy), None);
    }
}
