/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A command that its submitter waits for, because it uses the submitter's stack, and the three ways
 * in which that wait ends: the command has run, a signal's handler has thrown, the process exits.
 *
 * Follows Queue::submit_and_wait(), await(), synchronize() (device/queue_submit.h,
 * queue_failures.cpp, queue.cpp), Awaited, AwaitedCommand (device/awaited_command.h), and what
 * the worker does about a command that fails, or reads failed memory and does not run
 * (run_part(), fail()).
 * Checked: when the submitter has returned, the command has ended or never begins; the submitter
 * reads the failure only after it was written, and sees it if there is one and it has waited.
 *
 * Each step is one access to what the two share. Awaited::state_ is relaxed: what the command uses
 * was written before it was submitted, and the timeline (release, acquire) orders what it has
 * written. How the two sleep and are woken is in queue.pml and exit.pml; the worker of a process
 * that exits ends the command that it is in, and begins no other.
 *
 * run: -DEXITS
 * run: -DSIGNALS
 * run: -DEXITS -DSIGNALS
 * mutation: -DUNASKED -DSIGNALS: assertion violated
 * mutation: -DEND_NOT_WAITED_FOR -DSIGNALS: assertion violated
 * mutation: -DEXIT_NOT_WAITED_FOR -DEXITS: assertion violated
 * mutation: -DFAILURE_LATE: assertion violated
 */

mtype = { QUEUED, BEGUN, GIVEN_UP };

mtype state = QUEUED;          /* Awaited::state_ */
bool reached;                  /* the timeline has reached the command */
bool exiting;
bool returned;                 /* the submitter's frame is gone */
bool failure, failed;          /* Awaited::failure; whether the command has failed */
bool ended;                    /* the worker will not come to the command any more */

/* leave_queued(): compare_exchange, relaxed. */
inline leave_queued(to) {
  atomic {
    first = state == QUEUED;
    if
    :: first -> state = to
    :: else
    fi
  }
}

proctype worker() {
  bool first;

  if
  :: exiting                   /* stopping() between two commands */
  :: true ->
    if
    :: true ->
      leave_queued(BEGUN);
#ifdef UNASKED
      first = true;
#endif
      if
      :: first ->
        assert(!returned);
        assert(!returned);     /* uses the stack for a while */
        if
        :: true
        :: failed = true
        fi
      :: else                  /* throws GivenUp */
      fi
    :: failed = true           /* it reads failed memory, and is not run */
    fi;
#ifdef FAILURE_LATE
    reached = true;
#endif
    if
    :: failed ->
      leave_queued(BEGUN);     /* AwaitedCommand::failed() */
      failure = true
    :: else
    fi;
    reached = true             /* advance(), release */
  fi;
  ended = true
}

proctype submitter() {
  bool first, thrown;

  /* synchronize(position) */
  if
  :: reached                   /* acquire */
#ifdef EXITS
  :: exiting
#endif
#ifdef SIGNALS
  :: thrown = true
#endif
  fi;
  if
  :: reached -> first = false
  :: else ->
#ifdef EXIT_NOT_WAITED_FOR
    if
    :: !thrown -> goto done
    :: else
    fi;
#endif
    leave_queued(GIVEN_UP);
    if
    :: !first ->
#ifndef END_NOT_WAITED_FOR
      reached                  /* the worker ends what it has begun, also when the process exits */
#else
      skip
#endif
    :: else
    fi
  fi;
done:
  if
  :: reached && !thrown -> assert(failure == failed)
  :: else
  fi;
  returned = true
}

init {
  atomic {
    run worker();
    run submitter()
  }
#ifdef EXITS
  if
  :: exiting = true
  :: true
  fi;
#endif
  ended
}
