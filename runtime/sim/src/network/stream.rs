//! One end of a connection, as the code under test holds it.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use sharestream_base::Instant;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use super::Fabric;
use super::pipe::{PipeId, Readable};

/// Of so many chunks one is split in two, so that frames arrive in pieces.
const CHUNKS_PER_SPLIT: u64 = 16;

type Timer = Pin<Box<dyn Future<Output = ()> + Send>>;

/// One end of a connection.
pub(super) struct Stream {
    fabric: Fabric,
    incoming: PipeId,
    outgoing: PipeId,
    timer: Option<(Instant, Timer)>,
}

impl fmt::Debug for Stream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stream").field("outgoing", &self.outgoing).finish_non_exhaustive()
    }
}

impl Stream {
    pub(super) fn new(fabric: Fabric, connection: u64, is_opener: bool) -> Self {
        Stream {
            fabric,
            incoming: PipeId { connection, by_opener: !is_opener },
            outgoing: PipeId { connection, by_opener: is_opener },
            timer: None,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            let now = this.fabric.clock.now();
            let readable = {
                let mut state = this.fabric.lock();
                let pipe = state.pipes.get_mut(&this.incoming);
                pipe.map_or(Readable::Reset, |pipe| pipe.read(now, buf.remaining(), cx.waker()))
            };
            match readable {
                Readable::Bytes(bytes) => {
                    buf.put_slice(&bytes);
                    return Poll::Ready(Ok(()));
                }
                Readable::EndOfStream => return Poll::Ready(Ok(())),
                Readable::Reset => return Poll::Ready(Err(io::ErrorKind::ConnectionReset.into())),
                Readable::Wait => return Poll::Pending,
                Readable::At(at) => {
                    if this.timer.as_ref().is_none_or(|(deadline, _)| *deadline != at) {
                        let clock = this.fabric.clock.clone();
                        let sleep = Box::pin(async move { clock.sleep_until(at).await });
                        this.timer = Some((at, sleep));
                    }
                    if let Some((_, timer)) = &mut this.timer
                        && timer.as_mut().poll(cx).is_pending()
                    {
                        return Poll::Pending;
                    }
                    this.timer = None;
                }
            }
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let now = this.fabric.clock.now();
        let mut state = this.fabric.lock();
        let Some(pipe) = state.pipes.get_mut(&this.outgoing) else {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        };
        let mut count = match pipe.room(cx.waker()) {
            None => return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into())),
            Some(0) => return Poll::Pending,
            Some(room) => room.min(buf.len()),
        };
        let (from, to) = (Arc::clone(&pipe.from), Arc::clone(&pipe.to));
        if count > 1 && state.rng.below(CHUNKS_PER_SPLIT) == 0 {
            count = 1 + usize::try_from(state.rng.below(count as u64 - 1)).unwrap_or(0);
        }
        let travel = state.travel(&from, &to);
        let bytes = Bytes::copy_from_slice(&buf[..count]);
        this.fabric.trace.sent(this.outgoing.connection, &from, &to, this.outgoing.by_opener, &bytes);
        if let Some(pipe) = state.pipes.get_mut(&this.outgoing) {
            pipe.send(bytes, now, travel);
        }
        if this.outgoing.by_opener {
            this.fabric.traps.at_write(&from, &to, buf);
        }
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let now = self.fabric.clock.now();
        self.fabric.finish(self.outgoing, now);
        Poll::Ready(Ok(()))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        let now = self.fabric.clock.now();
        self.fabric.finish(self.outgoing, now);
        let mut state = self.fabric.lock();
        let is_dark = state.pipes.get(&self.outgoing).is_some_and(|pipe| state.dark.contains(&pipe.from));
        if let Some(pipe) = state.pipes.get_mut(&self.incoming)
            && !is_dark
        {
            pipe.abandon();
        }
        let over = |id: &PipeId| state.pipes.get(id).is_none_or(super::Pipe::is_over);
        if over(&self.incoming) && over(&self.outgoing) {
            state.pipes.remove(&self.incoming);
            state.pipes.remove(&self.outgoing);
            drop(state);
            self.fabric.trace.closed(self.outgoing.connection);
        }
    }
}

impl Fabric {
    fn finish(&self, id: PipeId, now: Instant) {
        let mut state = self.lock();
        let Some(pipe) = state.pipes.get(&id) else { return };
        let (from, to) = (Arc::clone(&pipe.from), Arc::clone(&pipe.to));
        if state.dark.contains(&from) {
            return;
        }
        let travel = state.travel(&from, &to);
        if let Some(pipe) = state.pipes.get_mut(&id) {
            pipe.finish(now, travel);
        }
    }
}
