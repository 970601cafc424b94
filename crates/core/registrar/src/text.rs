//! The text of a binding in one allocation.

/// The parts of a binding's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Parts<'p> {
    pub(crate) aor: &'p [u8],
    pub(crate) uri: &'p [u8],
    /// The Path values as one list.
    pub(crate) path: &'p [u8],
    pub(crate) instance: &'p [u8],
    /// 0 for none; only with an instance.
    pub(crate) reg_id: u32,
    /// The epoch of the instance's valid temporary GRUUs; 0 without an instance.
    pub(crate) epoch: u32,
}

/// The concatenated parts. None is longer than a message head, and an instance no longer than
/// [`MAX_INSTANCE_LEN`](crate::MAX_INSTANCE_LEN). The numbers are present only with an instance.
#[derive(Debug, Default)]
pub(crate) struct Text {
    bytes: Box<[u8]>,
    aor: u16,
    uri: u16,
    path: u16,
    instance: u8,
}

impl Parts<'_> {
    /// Returns whether both belong to one binding, whatever the epoch.
    pub(crate) fn same_binding(&self, other: &Self) -> bool {
        Self { epoch: other.epoch, ..*self } == *other
    }

    pub(crate) fn to_text(self) -> Text {
        let narrow = |part: &[u8]| u16::try_from(part.len()).unwrap_or(0);
        let (reg_id, epoch) = (self.reg_id.to_be_bytes(), self.epoch.to_be_bytes());
        let numbers: [&[u8]; 2] = if self.instance.is_empty() { [&[]; 2] } else { [&reg_id, &epoch] };
        let [reg_id, epoch] = numbers;
        Text {
            bytes: [self.aor, self.uri, self.path, self.instance, reg_id, epoch].concat().into(),
            aor: narrow(self.aor),
            uri: narrow(self.uri),
            path: narrow(self.path),
            instance: u8::try_from(self.instance.len()).unwrap_or(0),
        }
    }
}

impl Text {
    pub(crate) fn parts(&self) -> Parts<'_> {
        Parts {
            aor: self.aor(),
            uri: self.uri(),
            path: self.path(),
            instance: self.instance(),
            reg_id: self.number(0),
            epoch: self.number(4),
        }
    }

    pub(crate) fn aor(&self) -> &[u8] {
        self.part(0, self.aor.into())
    }

    pub(crate) fn uri(&self) -> &[u8] {
        self.part(self.aor.into(), self.uri.into())
    }

    pub(crate) fn path(&self) -> &[u8] {
        self.part(usize::from(self.aor) + usize::from(self.uri), self.path.into())
    }

    pub(crate) fn instance(&self) -> &[u8] {
        self.part(self.instance_start(), self.instance.into())
    }

    pub(crate) fn reg_id(&self) -> Option<u32> {
        Some(self.number(0)).filter(|reg_id| *reg_id > 0)
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.number(4)
    }

    /// Sets the epoch; does nothing without an instance.
    pub(crate) fn set_epoch(&mut self, epoch: u32) {
        let start = self.instance_start() + usize::from(self.instance) + 4;
        if let Some(place) = self.bytes.get_mut(start..) {
            for (place, byte) in place.iter_mut().zip(epoch.to_be_bytes()) {
                *place = byte;
            }
        }
    }

    fn instance_start(&self) -> usize {
        usize::from(self.aor) + usize::from(self.uri) + usize::from(self.path)
    }

    fn number(&self, at: usize) -> u32 {
        let start = self.instance_start() + usize::from(self.instance) + at;
        self.bytes.get(start..).and_then(<[u8]>::first_chunk).map_or(0, |bytes| u32::from_be_bytes(*bytes))
    }

    fn part(&self, start: usize, length: usize) -> &[u8] {
        self.bytes.get(start..start + length).unwrap_or(&[])
    }
}
