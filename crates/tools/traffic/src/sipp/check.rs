//! The flow graph of a scenario: the successors of each message, whether the end can be reached, and the requests
//! that may be pending where a response is expected.

use super::Diagnostic;
use super::reader::{Item, ItemKind, Message, Optional, Reader, Receive};
use crate::script::{Action, Check, Kind, MethodId, Stop};

/// Successors of a scenario's items. The index after the last item is the end.
#[derive(Debug)]
pub(super) struct FlowGraph {
    edges: Vec<Vec<usize>>,
    /// The methods that may be pending before each item, as a bit set.
    open: Vec<u16>,
}

impl FlowGraph {
    /// Builds the graph and resolves all labels.
    ///
    /// # Errors
    /// If a label or an index does not exist, optional messages are not followed by a mandatory one, or the end
    /// cannot be reached.
    pub(super) fn of(reader: &Reader<'_>) -> Result<Self, Diagnostic> {
        let mut edges = Vec::with_capacity(reader.items.len());
        for index in 0..reader.items.len() {
            edges.push(leads_to(reader, index)?);
        }
        groups(reader)?;
        let mut flow = Self { edges, open: Vec::new() };
        flow.check_end(reader)?;
        flow.find_open(&reader.items);
        Ok(flow)
    }

    /// Returns the methods of the requests that may be pending where `index` waits; empty if none is known.
    pub(super) fn open(&self, index: usize) -> Vec<MethodId> {
        let open = self.open.get(index).copied().unwrap_or(0);
        MethodId::ALL.into_iter().filter(|verb| open & bit(*verb) != 0).collect()
    }

    fn check_end(&self, reader: &Reader<'_>) -> Result<(), Diagnostic> {
        let count = reader.items.len();
        let mut seen = vec![false; count + 1];
        let mut todo = vec![0];
        while let Some(index) = todo.pop() {
            match seen.get_mut(index) {
                Some(seen) if !*seen => *seen = true,
                _ => continue,
            }
            if index == count || reader.items.get(index).is_some_and(may_end) {
                return Ok(());
            }
            todo.extend(self.edges.get(index).into_iter().flatten());
        }
        let last = (0..count).rev().find(|index| seen.get(*index) == Some(&true)).unwrap_or(0);
        let at = reader.items.get(last).map_or(0, |item| item.next.as_ref().map_or(item.at, |next| next.at));
        let what = "the scenario can never end: from here on it only loops; give the loop an exit (next with test \
                    or chance, ontimeout, or stop_call)";
        Err(reader.source.diagnostic(at, what))
    }

    /// Computes a fixed point: the requests pending before an item are all those pending after its predecessors.
    fn find_open(&mut self, items: &[Item]) {
        self.open = vec![0; items.len() + 1];
        let mut todo: Vec<usize> = (0..items.len()).rev().collect();
        while let Some(index) = todo.pop() {
            let before = self.open.get(index).copied().unwrap_or(0);
            let behind = match items.get(index).map(|item| &item.kind) {
                Some(ItemKind::Send { kind: Kind::Request(verb), .. }) if *verb != MethodId::Ack => before | bit(*verb),
                Some(ItemKind::Receive(Receive {
                    message: Message::Response(200.., method),
                    optional: Optional::No,
                    ..
                })) => match method {
                    Some(method) => before & !bit(*method),
                    None if before.count_ones() == 1 => 0,
                    None => before,
                },
                _ => before,
            };
            for next in self.edges.get(index).into_iter().flatten() {
                if let Some(open) = self.open.get_mut(*next)
                    && *open | behind != *open
                {
                    *open |= behind;
                    todo.push(*next);
                }
            }
        }
    }
}

const fn bit(verb: MethodId) -> u16 {
    1 << verb as u8
}

/// Returns the possible successors of an item.
fn leads_to(reader: &Reader<'_>, index: usize) -> Result<Vec<usize>, Diagnostic> {
    let Some(item) = reader.items.get(index) else { return Ok(Vec::new()) };
    let mut edges = Vec::new();
    if let ItemKind::Receive(Receive { timeout: Some((_, Some((label, at)))), .. }) = &item.kind {
        edges.push(target(reader, label, *at)?);
    }
    let is_optional = matches!(&item.kind, ItemKind::Receive(receive) if receive.optional != Optional::No);
    let mut falls_through = true;
    if let Some((to, at)) = item.jump {
        if to > reader.items.len() {
            let what = format!(
                "<jump value=\"{to}\">: the scenario's messages have the indices 0 to {}",
                reader.items.len() - 1
            );
            return Err(reader.source.diagnostic(at, what));
        }
        edges.push(to);
        falls_through = is_optional;
    } else if let Some(next) = &item.next {
        let to = target(reader, &next.label, next.at)?;
        let chance = next.chance.unwrap_or(1.0);
        if chance > 0.0 {
            edges.push(to);
        }
        falls_through = is_optional || next.test.is_some() || chance < 1.0;
    }
    if falls_through || item.skip.is_some() {
        edges.push(index + 1);
    }
    Ok(edges)
}

/// Returns the index of the item that a label precedes.
pub(super) fn target(reader: &Reader<'_>, label: &str, at: usize) -> Result<usize, Diagnostic> {
    match reader.labels.get(label) {
        Some((index, _)) => Ok(*index),
        None => {
            let known: Vec<&str> = reader.labels.keys().take(10).map(String::as_str).collect();
            let known = if known.is_empty() {
                "has no labels".to_owned()
            } else {
                format!("has the labels {}", known.join(", "))
            };
            let what = format!("there is no <label id=\"{label}\"/>; the scenario {known}");
            Err(reader.source.diagnostic(at, what))
        }
    }
}

/// Checks that optional messages are followed by a mandatory one, for which a call waits meanwhile.
fn groups(reader: &Reader<'_>) -> Result<(), Diagnostic> {
    let mut open: Option<usize> = None;
    for item in &reader.items {
        match &item.kind {
            ItemKind::Receive(receive) if receive.optional != Optional::No => open = Some(item.at),
            ItemKind::Receive(_) => open = None,
            _ => {
                if let Some(at) = open {
                    return Err(reader.source.diagnostic(at, LONELY));
                }
            }
        }
    }
    open.map_or(Ok(()), |at| Err(reader.source.diagnostic(at, LONELY)))
}

const LONELY: &str = "an optional <recv> must be followed by a <recv> that is not optional (other optional ones may be in between); \
                      remove optional=\"true\" here";

/// Returns whether a call may end in this item.
fn may_end(item: &Item) -> bool {
    item.actions.iter().any(|action| match action {
        Action::Stop(Stop::Call | Stop::Now) => true,
        Action::Match(search) => search.check != Check::None,
        _ => false,
    })
}
