/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The end of the process, or of a queue, while hosts and workers wait.
 *
 * Follows stop_threads(), LoomThread::LoomThread() (device/thread.cpp), Queue::stop(), work(),
 * await_command(), start_worker() (device/queue.cpp), block_on(), the command of wait_for()
 * (device/queue_waits.cpp) and Timeline::sleep_until(), advance(), interrupt()
 * (device/timeline.cpp).
 * Checked: everything that waits returns and every thread ends; the handler joins every thread that
 * was started; after that no command begins. Two queues, of which the second waits for the first,
 * and a host that submits to both and waits for the second; or, with LATE_HOST, two hosts that use
 * one queue, for the first time or the last. The handler runs at any time, and stops the queues in
 * any order. With DESTROY there is no handler: the second queue is destroyed while the first is in a
 * command that ends later, and nobody waits for the second; its worker waits for the first.
 *
 * Each step is one access to what threads share. The process's state (here `exiting`) and stop_ are
 * relaxed where waiters look at them: generation_, which changes after they were set (release), is
 * read before (acquire). All looks of finished() are one step: what they look at only changes once.
 * Spinning is left out, as are errors, signals and fork.
 *
 * run: -DBOTH_QUEUES
 * run: -DLATE_HOST
 * run: -DDESTROY
 * mutation: -DNO_INTERRUPT: invalid end state
 * mutation: -DEXITING_LATE: invalid end state
 * mutation: -DGENERATION_LATE: invalid end state
 * mutation: -DSTOP_UNSEEN_BY_WORKER: invalid end state
 * mutation: -DREGISTERED_UNLOCKED -DLATE_HOST: assertion violated
 * mutation: -DNO_INTERRUPT_OF_OTHER -DDESTROY: invalid end state
 * mutation: -DBLOCKED_ON_LATE -DDESTROY: invalid end state
 */

#define NOBODY 255
#define NONE 255
/* Who sleeps on a timeline: workers 0 and 1, hosts 2 and 3. */
#define SLEEPERS 4
#define SLEEPS(timeline, who) sleeps[(timeline) * SLEEPERS + (who)]

bool exiting;                  /* detail::g_process_state */
bool registry_locked;
bool registered[2];            /* Registry::threads */
bool running[2];               /* the worker's thread exists */
bool over;                     /* the handler has returned, or the queue is destroyed */
bool gate;                     /* the command of queue 0 may end */

bool submit_locked[2], blocked_locked[2];
bool started[2], says_asleep[2], worker_sleeps[2], stop[2];
byte submitted[2], completed[2];
byte wake_at[2] = NOBODY, generation[2];
byte blocked_on[2] = NONE;
bool sleeps[2 * SLEEPERS];

inline lock(mutex) { atomic { !mutex -> mutex = true } }

inline wake_worker(queue) {
  atomic {
    if
    :: says_asleep[queue] -> says_asleep[queue] = false; worker_sleeps[queue] = false
    :: else
    fi
  }
}

inline interrupt(timeline) {
  generation[timeline]++;      /* release */
  atomic {
    SLEEPS(timeline, 0) = false;
    SLEEPS(timeline, 1) = false;
    SLEEPS(timeline, 2) = false;
    SLEEPS(timeline, 3) = false
  }
}

/* Timeline::sleep_until(); `stopped` is the look at `stop`. */
inline sleep_until(timeline, position, who, stopped) {
  do
  :: true ->
#ifndef GENERATION_LATE
    seen = generation[timeline]; /* acquire */
#endif
    if
    :: completed[timeline] >= position || exiting || stopped -> break
    :: else
    fi;
    atomic {
      if
      :: position < wake_at[timeline] -> wake_at[timeline] = position
      :: else
      fi
    }
    if
    :: completed[timeline] >= position || exiting || stopped -> break
    :: else
    fi;
#ifdef GENERATION_LATE
    seen = generation[timeline];
#endif
    atomic {                   /* futex_wait(generation_, seen) */
      if
      :: generation[timeline] == seen -> SLEEPS(timeline, who) = true
      :: else
      fi;
      seen = 0
    }
    !SLEEPS(timeline, who)
  od;
  seen = 0
}

inline start_worker(queue) {
  /* LoomThread's constructor */
#ifdef REGISTERED_UNLOCKED
  if
  :: exiting
  :: else -> atomic { registered[queue] = true; running[queue] = true; run worker(queue) }
  fi;
#else
  lock(registry_locked);
  if
  :: exiting
  :: else -> atomic { registered[queue] = true; running[queue] = true; run worker(queue) }
  fi;
  registry_locked = false;
#endif
  started[queue] = true
}

/* enqueue(); `mine` is the position, or what submitted() says when the command is dropped. */
inline enqueue(queue) {
  if
  :: exiting -> mine = submitted[queue]
  :: else ->
    lock(submit_locked[queue]);
    if
    :: !started[queue] -> start_worker(queue)
    :: else
    fi;
    atomic {
      submitted[queue]++;
      mine = submitted[queue];
      submit_locked[queue] = false
    }
    if
    :: says_asleep[queue] -> wake_worker(queue)
    :: else
    fi
  fi
}

proctype host() {
  byte seen, mine;

#ifndef LATE_HOST
  enqueue(0);
  enqueue(1);                  /* wait_for(queue 0, 1); its worker runs it as that */
#endif
  enqueue(1);
#ifndef DESTROY
  sleep_until(1, mine, 2, false);
#endif
  mine = 0
}

proctype late_host() {
  byte seen, mine;

  enqueue(1);
  sleep_until(1, mine, 3, false);
  mine = 0
}

proctype worker(byte me) {
  byte done, available, seen;
  bool ends;

  do
  :: true ->
    /* await_command() */
    if
    :: submitted[me] != done || stop[me]
    :: else ->
      do
      :: true ->
        says_asleep[me] = true;
#ifdef STOP_UNSEEN_BY_WORKER
        if
        :: submitted[me] != done -> break
        :: else
        fi;
#else
        if
        :: submitted[me] != done || stop[me] -> break
        :: else
        fi;
#endif
        atomic {
          if
          :: says_asleep[me] -> worker_sleeps[me] = true
          :: else
          fi
        }
        !worker_sleeps[me];
#ifdef STOP_UNSEEN_BY_WORKER
        if
        :: stop[me] -> break
        :: else
        fi
#endif
      od;
      says_asleep[me] = false
    fi;
    if
    :: stop[me] || exiting -> break
    :: else
    fi;
    available = submitted[me];
    do
    :: done < available ->
      if
      :: stop[me] || exiting -> ends = true; break
      :: else
      fi;
      assert(!over);
      done++;
      if
#ifndef LATE_HOST
      :: me == 1 && done == 1 ->
        /* The command of wait_for(). */
        do
        :: true ->
          lock(submit_locked[me]);
          ends = completed[0] >= 1 || stop[me] || exiting;
          submit_locked[me] = false;
          if
          :: ends -> break
          :: else
          fi;
          /* block_on() */
#ifdef BLOCKED_ON_LATE
          if
          :: !stop[me] ->
            sleep_until(0, 1, me, false)
          :: else
          fi;
#else
          lock(blocked_locked[me]);
          blocked_on[me] = 0;
          blocked_locked[me] = false;
          sleep_until(0, 1, me, stop[me]);
          lock(blocked_locked[me]);
          blocked_on[me] = NONE;
          blocked_locked[me] = false
#endif
        od;
        ends = false
#endif
#ifdef DESTROY
      :: me == 0 -> gate
#endif
      :: else                  /* something that ends */
      fi;
      /* advance(done) */
      completed[me] = done;
      if
      :: wake_at[me] <= done -> wake_at[me] = NOBODY; interrupt(me)
      :: else
      fi
    :: else -> break
    od;
    available = 0;
    if
    :: ends -> break
    :: else
    fi
  od;
  done = 0; available = 0; ends = false;
  running[me] = false
}

/* Queue::stop() */
inline stop_queue(queue) {
  stop[queue] = true;          /* seq_cst */
  wake_worker(queue);
#ifndef NO_INTERRUPT
  interrupt(queue);
#endif
  lock(blocked_locked[queue]);
#ifndef NO_INTERRUPT_OF_OTHER
  if
  :: blocked_on[queue] != NONE -> interrupt(blocked_on[queue])
  :: else
  fi;
#endif
  blocked_locked[queue] = false
}

init {
  bool taken[2];
  byte first, second;

  atomic {
    run host();
#ifdef LATE_HOST
    run late_host()
#endif
  }
#ifdef DESTROY
  submitted[1] == 2;
  /* ~Queue() of the second one, then the end of the first. */
  stop_queue(1);
  !running[1];
  gate = true;
  completed[0] == 1;
  stop_queue(0);
  !running[0];
#else
  /* stop_threads() */
  lock(registry_locked);
#ifndef EXITING_LATE
  exiting = true;              /* relaxed */
#endif
  atomic {
    taken[0] = registered[0];
    taken[1] = registered[1];
    registry_locked = false;
    if
    :: first = 0
    :: first = 1
    fi;
    second = 1 - first
  }
  if
  :: taken[first] -> stop_queue(first)
  :: else
  fi;
  if
  :: taken[second] -> stop_queue(second)
  :: else
  fi;
#ifdef EXITING_LATE
  exiting = true;
#endif
  if
  :: taken[0] -> !running[0]   /* join() */
  :: else
  fi;
  if
  :: taken[1] -> !running[1]
  :: else
  fi;
  assert(!running[0] && !running[1]);
#endif
  over = true;
  _nr_pr == 1
}
