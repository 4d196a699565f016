/* SPDX-License-Identifier: BSD-3-Clause
 *
 * Queues that wait for each other: host threads submit commands, record events, make queues wait
 * for them, in any order, and every queue comes to its end.
 *
 * Follows Queue::wait_for(), wait_for_all_of() (device/queue_waits.cpp), seal(), with_open(),
 * enqueue() (device/queue.h, queue_submit.h), QueueEvent::record(), block() (device/event.cpp).
 * Checked: all that is submitted runs, so no queues wait for each other in a circle; a command runs
 * after all that its thread has made its queue wait for, also what that waited for in turn.
 *
 * The rule that keeps circles away: who takes a position for others to wait for closes the wait that
 * is open there (seal()), so that nothing that is submitted later can make it longer. A wait then
 * refers to what was final before it was submitted, or became longer. The mutation
 * POSITION_UNSEALED breaks the rule: it waits for submitted() as it is, and two queues stop for ever.
 *
 * Each step is what one holder of submit_mutex_ does under it, or one look at completed_ (acquire);
 * between the look of wait_for() whether the position is reached, its look whether a wait is open,
 * and its submission, others may come. A worker that waits goes on when the position is reached: how
 * it sleeps and is woken is in queue.pml. A host does any STEPS things (a second one, OTHER_STEPS):
 * submit to a queue, record an event (it keeps the last of each queue), make a queue wait for an
 * event, or for all that another one has got. Left out: full queues (a host thread that is held
 * waits for one queue, and no queue waits for it); captures; open programs, which their workers
 * close; stops (exit.pml).
 *
 * run: -DQUEUES=2 -DSTEPS=7
 * run: -DQUEUES=2 -DSTEPS=3 -DOTHER_STEPS=2
 * run: -DQUEUES=3 -DSTEPS=5
 * mutation: -DPOSITION_UNSEALED -DSTEPS=7: invalid end state
 * mutation: -DPOSITION_UNSEALED -DSTEPS=3 -DOTHER_STEPS=3: invalid end state
 * mutation: -DCLOSED_LATE: assertion violated
 * mutation: -DNEVER_WAITS: assertion violated
 * mutation: -DLENGTHENS_ANY -DQUEUES=3 -DSTEPS=5: invalid end state
 * mutation: -DLEAVES_OUT_ANY -DQUEUES=3 -DSTEPS=4: assertion violated
 */

#ifndef QUEUES
#define QUEUES 2
#endif
#ifndef STEPS
#define STEPS 5
#endif
#ifndef OTHER_STEPS
#define OTHER_STEPS 0
#endif
/* No step of a host submits more than one command. */
#define ROOM (STEPS + OTHER_STEPS + 1)
#define COMMAND(queue, position) ((queue) * ROOM + (position))
#define AFTER(queue, other) ((queue) * QUEUES + (other))

byte submitted[QUEUES], completed[QUEUES];
byte open[QUEUES];             /* open_: the position of an open wait; 0: none */
byte awaited[QUEUES * ROOM];   /* a wait's timeline: the queue's number + 1; 0: no wait */
byte until[QUEUES * ROOM];     /* OpenWait::position */
/* What is checked: the positions of other queues that come before a command. */
byte after[QUEUES * ROOM * QUEUES];

/* enqueue(), with the lock; `target`: as `awaited`, `position` what is waited for. */
inline enqueue(queue, target, position) {
  atomic {
    submitted[queue]++;
    awaited[COMMAND(queue, submitted[queue])] = target;
    until[COMMAND(queue, submitted[queue])] = position;
    open[queue] = (target != 0 -> submitted[queue] : 0);
    i = 0;
    do
    :: i < QUEUES ->
      if
      :: target == 0 && i != queue ->
        after[COMMAND(queue, submitted[queue]) * QUEUES + i] = comes_after[AFTER(queue, i)]
      :: else
      fi;
      i++
    :: else -> break
    od;
    i = 0
  }
}

/* The position of what has been submitted to `queue` up to now. */
inline seal(queue) {
  atomic {
#ifndef POSITION_UNSEALED
    open[queue] = 0;
#endif
    mark = submitted[queue]
  }
}

/* Queue::wait_for() of `queue` for position `mark` of `other`. */
inline wait_for() {
  atomic {
    longer = false;
    reached = completed[other] >= mark
  }
#ifdef NEVER_WAITS
  reached = true;
#endif
  if
  :: reached
  :: else ->
    atomic {                   /* with_open() */
      if
#ifdef LENGTHENS_ANY
      :: open[queue] != 0 ->
#else
      :: open[queue] != 0 && awaited[COMMAND(queue, open[queue])] == other + 1 ->
#endif
        longer = true;
        if
        :: until[COMMAND(queue, open[queue])] < mark ->
          until[COMMAND(queue, open[queue])] = mark
        :: else
        fi
      :: else
      fi
    }
    if
    :: longer
    :: else -> enqueue(queue, other + 1, mark)
    fi
  fi;
  atomic { longer = false; reached = false }
}

proctype host(byte steps) {
  byte queue, other, mark, i;
  byte event[QUEUES];          /* the mark of the last one recorded on each queue */
  byte comes_after[QUEUES * QUEUES], event_after[QUEUES * QUEUES];
  bool longer, reached, excluded;

  do
  :: steps > 0 ->
    steps--;
    if
    :: queue = 0
    :: queue = 1
#if QUEUES > 2
    :: queue = 2
#endif
    fi;
    if
    :: enqueue(queue, 0, 0)    /* submit() */
    :: seal(queue);            /* QueueEvent::record() */
      atomic {
        event[queue] = mark;
        i = 0;
        do
        :: i < QUEUES -> event_after[AFTER(queue, i)] = comes_after[AFTER(queue, i)]; i++
        :: else -> break
        od;
        event_after[AFTER(queue, queue)] = mark;
        i = 0
      }
    :: true ->                 /* QueueEvent::block() or wait_for_all_of() */
      if
      :: other = (queue + 1) % QUEUES
#if QUEUES > 2
      :: other = (queue + 2) % QUEUES
#endif
      fi;
      if
      :: event[other] > 0 ->
        mark = event[other];
        wait_for();
        atomic {
          i = 0;
          do
          :: i < QUEUES ->
            if
            :: i != queue && comes_after[AFTER(queue, i)] < event_after[AFTER(other, i)] ->
              comes_after[AFTER(queue, i)] = event_after[AFTER(other, i)]
            :: else
            fi;
            i++
          :: else -> break
          od;
          i = 0
        }
      :: submitted[other] > 0 ->
        atomic {               /* other.with_open() */
#ifdef LEAVES_OUT_ANY
          excluded = open[other] != 0;
#else
          excluded = open[other] != 0 && awaited[COMMAND(other, open[other])] == queue + 1;
#endif
          mark = submitted[other] - 1
        }
        if
        :: excluded
        :: else -> seal(other)
        fi;
        wait_for();
        atomic {
          excluded = false;
          if
          :: comes_after[AFTER(queue, other)] < mark -> comes_after[AFTER(queue, other)] = mark
          :: else
          fi;
          i = 0;
          do
          :: i < QUEUES ->
            if
            :: i != queue && i != other &&
               comes_after[AFTER(queue, i)] < comes_after[AFTER(other, i)] ->
              comes_after[AFTER(queue, i)] = comes_after[AFTER(other, i)]
            :: else
            fi;
            i++
          :: else -> break
          od;
          i = 0
        }
      :: else
      fi
    fi;
    atomic { queue = 0; other = 0; mark = 0 }
  :: else -> break
  od;
  atomic {
    i = 0;
    do
    :: i < QUEUES * QUEUES ->
      comes_after[i] = 0;
      event_after[i] = 0;
      i++
    :: else -> break
    od;
    i = 0;
    do
    :: i < QUEUES -> event[i] = 0; i++
    :: else -> break
    od;
    i = 0
  }
}

proctype worker(byte me) {
  byte position, i;
  bool reached;

end:
  do
  :: submitted[me] > position ->
    position++;
    if
    :: awaited[COMMAND(me, position)] == 0 ->
      atomic {
        i = 0;
        do
        :: i < QUEUES ->
          assert(completed[i] >= after[COMMAND(me, position) * QUEUES + i]);
          i++
        :: else -> break
        od;
        i = 0
      }
    :: else ->
      do
      :: true ->
#ifdef CLOSED_LATE
        reached = completed[awaited[COMMAND(me, position)] - 1] >= until[COMMAND(me, position)];
        atomic {
          if
          :: reached && open[me] == position -> open[me] = 0
          :: else
          fi
        }
#else
        atomic {               /* with the lock */
          reached = completed[awaited[COMMAND(me, position)] - 1] >= until[COMMAND(me, position)];
          if
          :: reached && open[me] == position -> open[me] = 0
          :: else
          fi
        }
#endif
        if
        :: reached -> reached = false; break
        :: else
        fi;
        /* block_on(), until what was the wait's position; a later one is looked at again. */
        completed[awaited[COMMAND(me, position)] - 1] >= until[COMMAND(me, position)]
      od
    fi;
    completed[me] = position   /* advance() */
  od
}

init {
  atomic {
    run worker(0);
    run worker(1);
#if QUEUES > 2
    run worker(2);
#endif
    run host(STEPS);
#if OTHER_STEPS > 0
    run host(OTHER_STEPS)
#endif
  }
}
