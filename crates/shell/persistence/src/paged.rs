//! Paged memory that returns to the system as soon as it is dropped.
//!
//! An allocator keeps freed memory for later requests. A start and a checkpoint need, for some seconds, as much
//! memory as the server needs permanently, so that would double its footprint. These pages are therefore larger and
//! more aligned than what an allocator keeps: it requests each from the system and returns it.

/// Size and alignment of a page. Above 64 KiB mimalloc maps memory directly, above 128 KiB the system's allocator
/// does.
const PAGE: usize = 128 << 10;

/// A page of [`PAGE`] bytes; `N` must be chosen accordingly.
#[derive(Debug)]
#[repr(C, align(131_072))]
struct Page<T, const N: usize>([T; N]);

impl<T: Copy + Default, const N: usize> Page<T, N> {
    fn new() -> Box<Self> {
        const { assert!(size_of::<Self>() == PAGE) };
        Box::new(Self([T::default(); N]))
    }
}

/// Values by number, `N` per page. They never move.
#[derive(Debug)]
pub(crate) struct PagedVec<T, const N: usize> {
    pages: Vec<Box<Page<T, N>>>,
    len: usize,
}

impl<T, const N: usize> Default for PagedVec<T, N> {
    fn default() -> Self {
        Self { pages: Vec::new(), len: 0 }
    }
}

impl<T: Copy + Default, const N: usize> PagedVec<T, N> {
    /// Creates `len` default values.
    pub(crate) fn with_len(len: usize) -> Self {
        Self { pages: (0..len.div_ceil(N)).map(|_| Page::new()).collect(), len }
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn push(&mut self, value: T) {
        if self.len == self.pages.len() * N {
            self.pages.push(Page::new());
        }
        self.len += 1;
        *self.get_mut(self.len - 1) = value;
    }

    pub(crate) fn get(&self, number: usize) -> &T {
        &self.pages[number / N].0[number % N]
    }

    pub(crate) fn get_mut(&mut self, number: usize) -> &mut T {
        &mut self.pages[number / N].0[number % N]
    }
}

/// Byte strings, each contiguous.
#[derive(Debug, Default)]
pub(crate) struct ByteArena {
    blocks: Vec<Block>,
    /// The block being filled, and its used length.
    open: Option<(u32, usize)>,
}

#[derive(Debug)]
enum Block {
    Page(Box<Page<u8, PAGE>>),
    /// A string longer than a page.
    Long(Vec<u8>),
}

impl ByteArena {
    /// Reserves `len` bytes; returns the block and the offset in it.
    pub(crate) fn reserve(&mut self, len: u32) -> (u32, u32) {
        let len = len as usize;
        if len > PAGE {
            return (self.add(Block::Long(vec![0; len])), 0);
        }
        let (block, at) = match self.open {
            Some((block, at)) if at + len <= PAGE => (block, at),
            _ => (self.add(Block::Page(Page::new())), 0),
        };
        self.open = Some((block, at + len));
        (block, at as u32)
    }

    fn add(&mut self, block: Block) -> u32 {
        self.blocks.push(block);
        u32::try_from(self.blocks.len() - 1).expect("memory ends before")
    }

    pub(crate) fn get(&self, block: u32, at: u32, len: u32) -> &[u8] {
        let bytes = match &self.blocks[block as usize] {
            Block::Page(page) => &page.0[..],
            Block::Long(bytes) => bytes,
        };
        &bytes[at as usize..][..len as usize]
    }

    pub(crate) fn get_mut(&mut self, block: u32, at: u32, len: u32) -> &mut [u8] {
        let bytes = match &mut self.blocks[block as usize] {
            Block::Page(page) => &mut page.0[..],
            Block::Long(bytes) => bytes,
        };
        &mut bytes[at as usize..][..len as usize]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_strings_of_any_length_round_trip() {
        let mut texts = ByteArena::default();
        let lengths = [1, 70_000, 70_000, 0, PAGE, PAGE + 1, 5, 1 << 20, PAGE - 5, 6];
        let places: Vec<(u32, u32)> = lengths.iter().map(|len| texts.reserve(*len as u32)).collect();
        for (number, (len, (block, at))) in (1u8..).zip(lengths.iter().zip(&places)) {
            texts.get_mut(*block, *at, *len as u32).fill(number);
        }
        for (number, (len, (block, at))) in (1u8..).zip(lengths.iter().zip(&places)) {
            assert_eq!(texts.get(*block, *at, *len as u32), vec![number; *len]);
        }
    }

    #[test]
    fn values_are_found_by_their_index() {
        let mut values = PagedVec::<u64, 16_384>::with_len(16_384);
        assert!((0..values.len()).all(|number| *values.get(number) == 0));
        for value in 0..40_000 {
            values.push(value);
        }
        assert_eq!(values.len(), 56_384);
        assert!((0..40_000).all(|value| *values.get(16_384 + value) == value as u64));
    }

    #[test]
    fn pages_are_page_sized_and_aligned() {
        let page = Page::<u8, PAGE>::new();
        assert_eq!((align_of_val(&*page), size_of_val(&*page)), (PAGE, PAGE));
    }
}
