//! Pauses of the thread while another process of the same member takes over.
//!
//! Two processes must not act as one member. The process that hands over pauses its thread, and lets it go on if the other
//! one fails; the other one starts its thread paused, and lets it go on once it has taken over.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};

use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

/// What the owner wants of the thread.
#[derive(Debug)]
enum Wish {
    /// Send nothing more, and say so.
    Pause(SyncSender<()>),
    /// Go on.
    Resume,
}

/// Side of the owner.
#[derive(Debug)]
pub(crate) struct PauseSwitch(UnboundedSender<Wish>);

impl PauseSwitch {
    /// Returns both sides.
    pub(crate) fn new() -> (Self, PausePoint) {
        let (sender, wishes) = unbounded_channel();
        (Self(sender), PausePoint(wishes))
    }

    /// Asks the thread to pause. The receiver gets a message once it has.
    pub(crate) fn pause(&self) -> Receiver<()> {
        let (done, paused) = sync_channel(1);
        drop(self.0.send(Wish::Pause(done)));
        paused
    }

    /// Lets the thread go on.
    pub(crate) fn resume(&self) {
        drop(self.0.send(Wish::Resume));
    }
}

/// A pause that the owner wants.
#[derive(Debug)]
pub(crate) struct Pause(SyncSender<()>);

/// Side of the thread.
#[derive(Debug)]
pub(crate) struct PausePoint(UnboundedReceiver<Wish>);

impl PausePoint {
    /// Waits until the owner wants a pause. For ever if it has gone.
    pub(crate) async fn wanted(&mut self) -> Pause {
        loop {
            match self.0.recv().await {
                Some(Wish::Pause(done)) => return Pause(done),
                Some(Wish::Resume) => {}
                None => std::future::pending().await,
            }
        }
    }

    /// Says that nothing more is sent, and waits until the thread may go on. Returns `false` if it must end instead.
    pub(crate) async fn hold(&mut self, pause: Pause, stop: &Notify) -> bool {
        // The owner may wait no more.
        let _ = pause.0.try_send(());
        self.resumed(stop).await
    }

    /// Waits until the thread may go on. Returns `false` if it must end instead.
    pub(crate) async fn resumed(&mut self, stop: &Notify) -> bool {
        loop {
            tokio::select! {
                () = stop.notified() => return false,
                wish = self.0.recv() => match wish {
                    Some(Wish::Resume) => return true,
                    Some(Wish::Pause(done)) => drop(done.try_send(())),
                    None => return false,
                },
            }
        }
    }
}
