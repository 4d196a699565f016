/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A queue: submissions, the worker's sleep, host threads that wait for a position, and those that
 * are held because the queue is full.
 *
 * Follows Queue::enqueue() (device/queue_submit.h), make_room(), wake_worker(), await_command(),
 * work(), stop() (device/queue.cpp) and Timeline::sleep_until(), advance() (device/timeline.cpp).
 * Checked: each command runs once, in its place, in the order of its thread; the queue holds at
 * most DEPTH + PRODUCERS commands; nobody sleeps for ever: the worker is told to stop only after
 * all have run and all who waited are back, so a wake that is missed leaves a state without end.
 *
 * Each step is one access to what threads share, in sequentially consistent order, with what the
 * thread does for itself before or after. The accesses that the code makes with
 * memory_order_seq_cst (submitted_, worker_state_, completed_, wake_at_) have that order there, too;
 * the mutations *_RELAXED show that they need it, by the exchange of two statements that a weaker
 * order would allow. The loop of compare_exchange that lowers wake_at_ is the exchange that
 * succeeds. What a submission looks at before it takes the lock (submitted_, room_until_) is relaxed
 * and read in one step: it only tells when it looks more closely.
 * A futex is its word's comparison and the sleep in one step; a sleeper may be woken for nothing
 * SPURIOUS times in a run. Spinning is left out: who spins sees what who sleeps would see.
 * Also left out: commands that fail, captures, traces, the wrap of generation_ (2^32 wakes between
 * two statements), threads of loom that submit, which are not held.
 *
 * run: -DPRODUCERS=2 -DCOMMANDS=3 -DDEPTH=1
 * run: -DPRODUCERS=2 -DCOMMANDS=2 -DDEPTH=2 -DSPURIOUS=1
 * run: -DPRODUCERS=3 -DCOMMANDS=1 -DDEPTH=3
 * run: -DPRODUCERS=1 -DCOMMANDS=6 -DDEPTH=3 -DSPURIOUS=2
 * mutation: -DWORKER_NO_RECHECK: invalid end state
 * mutation: -DSUBMITTED_RELAXED: invalid end state
 * mutation: -DPUBLISHED_EARLY: assertion violated
 * mutation: -DHOST_NO_RECHECK: invalid end state
 * mutation: -DCOMPLETED_RELAXED: invalid end state
 * mutation: -DGENERATION_LATE: invalid end state
 * mutation: -DADVANCE_WAKES_ONE: invalid end state
 * mutation: -DNO_LOCK: assertion violated
 * mutation: -DNEVER_HELD: assertion violated
 */

#ifndef PRODUCERS
#define PRODUCERS 2
#endif
#ifndef COMMANDS
#define COMMANDS 2
#endif
#ifndef DEPTH
#define DEPTH 1
#endif
#ifndef SPURIOUS
#define SPURIOUS 0
#endif
#define TOTAL (PRODUCERS * COMMANDS)
#define NOBODY 255

byte submitted, completed;     /* submitted_, timeline_.completed_ */
byte room_until = DEPTH;       /* room_until_ */
byte wake_at = NOBODY;         /* timeline_.wake_at_ */
byte generation;               /* timeline_.generation_ */
bool says_asleep;              /* worker_state_ == kSleeping */
bool stop;                     /* stop_ */
bool locked;                   /* submit_mutex_ */
bool in_place[TOTAL + 2];      /* what commands_ holds, by position */
byte ran;                      /* commands that have run, in order */
byte back;                     /* producers that have seen all of theirs run */
byte spurious = SPURIOUS;

bool worker_sleeps;            /* the kernel's list for worker_state_ */
bool host_sleeps[PRODUCERS];   /* the kernel's list for generation_ */

/* Timeline::sleep_until(); the first look at completed_ is acquire, the second seq_cst. */
inline wait_for_position(position) {
  do
  :: true ->
#ifndef GENERATION_LATE
    seen = generation;         /* acquire */
#endif
    if
    :: completed >= position -> break
    :: else
    fi;
    atomic {                   /* compare_exchange, seq_cst */
      if
      :: position < wake_at -> wake_at = position
      :: else
      fi
    }
#ifndef HOST_NO_RECHECK
    if
    :: completed >= position -> break
    :: else
    fi;
#endif
#ifdef GENERATION_LATE
    seen = generation;
#endif
    atomic {                   /* futex_wait(generation_, seen) */
      if
      :: generation == seen -> host_sleeps[me] = true
      :: else
      fi;
      seen = 0
    }
    if
    :: !host_sleeps[me]
    :: atomic { host_sleeps[me] && spurious > 0 -> spurious--; host_sleeps[me] = false }
    fi
  od;
  seen = 0
}

/* wake_worker(): the exchange, then futex_wake(worker_state_, 1). */
inline wake_worker() {
  atomic {
    if
    :: says_asleep -> says_asleep = false
    :: else -> asleep = false
    fi
  }
  if
  :: atomic { asleep -> worker_sleeps = false; asleep = false }
  :: else
  fi
}

proctype producer(byte me) {
  byte left = COMMANDS, seen, mine, before;
  bool asleep;

  do
  :: left > 0 ->
    /* enqueue() */
    if
    :: submitted < room_until
#ifdef NEVER_HELD
    :: else
#else
    :: else ->
      /* make_room(): unsigned, so a completed_ that has overtaken `before` is a large distance, and
         the position that is waited for is reached already. */
      before = submitted;      /* relaxed */
      if
      :: before < completed || before - completed >= DEPTH ->
        assert(before >= DEPTH);
        before = before - DEPTH / 2;
        wait_for_position(before)
      :: else
      fi;
      before = completed;
      atomic { room_until = before + DEPTH; before = 0 }
#endif
    fi;
    atomic {
#ifndef NO_LOCK
      !locked -> locked = true;
#endif
      assert(submitted + 1 > mine);
      mine = submitted + 1;
#ifndef PUBLISHED_EARLY
      in_place[mine] = true;   /* append() */
#endif
      left--
    }
#ifdef SUBMITTED_RELAXED
    asleep = says_asleep;      /* the load has overtaken the store */
#endif
    atomic {
      submitted = mine;        /* seq_cst */
      locked = false;
      assert(mine <= completed + DEPTH + PRODUCERS)
    }
#ifdef PUBLISHED_EARLY
    in_place[mine] = true;
#endif
#ifndef SUBMITTED_RELAXED
    asleep = says_asleep;      /* seq_cst */
#endif
    if
    :: asleep -> wake_worker()
    :: else
    fi
  :: else -> break
  od;
  /* synchronize(position) */
  wait_for_position(mine);
  atomic { assert(ran >= mine); mine = 0; back++ }
}

proctype worker() {
  byte done, available, sleeper;

  do
  :: true ->
    /* await_command(): a worker that spins sees one of the two, or goes to sleep. */
    if
    :: submitted != done || stop
    :: else ->
      do
      :: true ->
        says_asleep = true;    /* seq_cst */
#ifndef WORKER_NO_RECHECK
        if
        :: submitted != done || stop -> break
        :: else
        fi;
#endif
        atomic {               /* futex_wait(worker_state_, kSleeping) */
          if
          :: says_asleep -> worker_sleeps = true
          :: else
          fi
        }
        if
        :: !worker_sleeps
        :: atomic { worker_sleeps && spurious > 0 -> spurious--; worker_sleeps = false }
        fi;
#ifdef WORKER_NO_RECHECK
        if
        :: submitted != done || stop -> break
        :: else
        fi
#endif
      od;
      says_asleep = false      /* relaxed */
    fi;
    if
    :: stop -> break
    :: else
    fi;
    available = submitted;     /* acquire */
    do
    :: atomic {
        done < available ->
        done++;
        assert(in_place[done] && ran == done - 1);
        ran = done
      }
      /* advance(done) */
#ifdef COMPLETED_RELAXED
      sleeper = wake_at;       /* the load has overtaken the store */
      completed = done;
#else
      completed = done;        /* seq_cst */
      sleeper = wake_at;       /* seq_cst */
#endif
      if
      :: sleeper <= done ->
        wake_at = NOBODY;      /* exchange */
        generation++;          /* interrupt(), release */
        atomic {               /* futex_wake(generation_) */
          sleeper = 0;
          do
          :: sleeper < PRODUCERS ->
            if
            :: host_sleeps[sleeper] ->
              host_sleeps[sleeper] = false
#ifdef ADVANCE_WAKES_ONE
              ; break
#endif
            :: else
            fi;
            sleeper++
          :: else -> break
          od;
          sleeper = 0
        }
      :: else -> sleeper = 0
      fi
    :: else -> available = 0; break
    od
  od
}

init {
  byte i;
  bool asleep;

  atomic {
    run worker();
    for (i : 0 .. PRODUCERS - 1) {
      run producer(i)
    }
    i = 0
  }
  back == PRODUCERS;
  assert(submitted == TOTAL && completed == TOTAL && ran == TOTAL);
  /* Queue::stop() */
  stop = true;
  asleep = true;
  wake_worker();
  _nr_pr == 1
}
