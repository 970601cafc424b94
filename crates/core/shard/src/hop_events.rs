//! News of next hops: outages and recoveries, as operators and balanced sets learn of them.

use core::cell::Cell;

use strowger_foundation::Timestamp;
use strowger_locate::Hop;
use strowger_proxy::NextHopEvent;

use crate::boundary::Event;
use crate::hop_names::{NextHopName, NextHopOwner};
use crate::shard::Shard;

impl Shard {
    #[cold]
    pub(crate) fn report_hop_event(&mut self, now: Timestamp, news: NextHopEvent) {
        let names_of = |hop| self.snapshot.names_of(now, &self.names, &hop);
        match news {
            NextHopEvent::Outage { hop, cause, avoided_for } => {
                let names = names_of(hop);
                let dead = self.newly_dead(now, &names);
                self.report(Event::Outage { hop, names, cause, avoided_for });
                dead.into_iter().for_each(|of| self.report(Event::AllTargetsOut { owner: of }));
            }
            NextHopEvent::Dead { hop } => {
                let dead = self.newly_dead(now, &names_of(hop));
                dead.into_iter().for_each(|of| self.report(Event::AllTargetsOut { owner: of }));
            }
            NextHopEvent::Recovery { hop, after, was_unreachable: was_gone } => {
                if was_gone {
                    self.begin_slow_start(now, &hop);
                }
                let names = names_of(hop);
                self.report(Event::Recovery { hop, names, after });
            }
        }
    }

    /// Starts the slow start of the balanced targets at `hop`, which answers again.
    fn begin_slow_start(&self, now: Timestamp, hop: &Hop) {
        for (set, targets) in self.snapshot.sets() {
            let members = set.members().iter().zip(targets);
            members.filter(|(_, target)| target.is_hop(hop)).for_each(|(member, _)| member.target.handle_recovery(now));
        }
    }

    /// Returns the owners all of whose next hops are dead, if not reported yet.
    fn newly_dead(&self, now: Timestamp, names: &[NextHopName]) -> Vec<NextHopOwner> {
        let is_new = |owner: &NextHopOwner| {
            let newest = Cell::new(Timestamp::ZERO);
            let is_dead = |hop: &Hop| {
                let since = self.outages.dead_since(now, hop);
                newest.set(newest.get().max(since.unwrap_or(Timestamp::ZERO)));
                since.is_some()
            };
            self.snapshot.are_all_out(now, &self.names, owner, is_dead)
                && self.outages.should_report(owner, newest.get())
        };
        names.iter().map(|name| &name.owner).filter(|owner| is_new(owner)).cloned().collect()
    }
}
