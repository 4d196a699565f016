/* SPDX-License-Identifier: BSD-3-Clause
 *
 * A grid's blocks: published in a slot, claimed by the publisher, helpers and hosts, closed, and
 * the slot used for the next grid, of another publisher too.
 *
 * Follows Cores::run_erased(), State::take_slot(), publish(), help_once(), help_as_host(),
 * run_blocks() (device/cores.cpp) and Slot::enter(), leave(), claim(), fail(), close_and_wait()
 * (device/grid_slot.h).
 * Checked: every block is run once, or, in a grid of which a block throws, once at most; it is run
 * while its publisher is in run(), which returns after the last block has ended and finds the
 * exception; a host runs blocks of grids for hosts only; a publisher that sleeps is woken.
 *
 * Each step is one access to what threads share. All hints (which slots are open, priorities,
 * seats, by_any before the slot is entered) may say anything: helpers try any slot at any time, and
 * leave again as if there were no seat; so the relaxed order of those is covered, and so is a helper
 * that comes with what it knew of an earlier grid; and they may sleep for good at any time. What decides is `entered`: enter() is acquire,
 * opening and leaving are release, closing is both, and what a slot holds is plain memory that is
 * written while it is closed and empty. Claims are relaxed: they divide numbers. A failed block's
 * stores into the shares may come between the two accesses of a claim, as in the code.
 * There is one slot, for which publishers compete; who gets none runs its blocks alone. Left out:
 * more slots, which share nothing but the words of hints; the sleep of helpers (helpers.pml); nested
 * grids; spinning.
 *
 * run: -DPUBLISHERS=2 -DGRIDS=1 -DHELPERS=2 -DBLOCKS=2 -DSHARES=1
 * run: -DPUBLISHERS=2 -DGRIDS=2 -DHELPERS=1 -DBLOCKS=2 -DSHARES=1
 * run: -DPUBLISHERS=1 -DGRIDS=2 -DHELPERS=2 -DBLOCKS=3 -DSHARES=2 -DTHROWS
 * mutation: -DENTERED_UNASKED: assertion violated
 * mutation: -DGRID_READ_BEFORE: assertion violated
 * mutation: -DBY_ANY_READ_BEFORE: assertion violated
 * mutation: -DNOBODY_WAITED_FOR: assertion violated
 * mutation: -DCOUNTED_BEFORE_CLOSED: assertion violated
 * mutation: -DFREED_BEFORE_EMPTY -DPUBLISHERS=2: invalid end state
 * mutation: -DOPENED_BEFORE_FILLED: assertion violated
 * mutation: -DCLAIM_IN_TWO: assertion violated
 * mutation: -DSLEEP_UNSAID: invalid end state
 * mutation: -DERROR_AFTER_LEAVING -DTHROWS: assertion violated
 */

#ifndef PUBLISHERS
#define PUBLISHERS 1
#endif
#ifndef GRIDS
#define GRIDS 2
#endif
#ifndef HELPERS
#define HELPERS 2
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifndef SHARES
#define SHARES 1
#endif
#define ALL (PUBLISHERS * GRIDS)
#define BLOCK(grid, block) ((grid) * BLOCKS + (block))

/* The slot. */
bool closed = true, publisher_sleeps; /* entered: kClosed, kPublisherSleeps, */
byte inside;                          /* kCount */
bool free = true;                     /* Cores::State::free, the slot's bit */
byte grid = 255;                      /* function and context: whose they are */
bool by_any;
byte share_next[SHARES];
byte share_end[SHARES];
bool failed, error;
bool sleeps;                   /* the kernel's list for `entered`: one publisher at most */

/* What is checked. */
bool alive[ALL];               /* its publisher is in run() */
bool for_any[ALL];             /* published as RunBy::kAny */
bool threw[ALL];
byte begun[ALL * BLOCKS], ended[ALL * BLOCKS];

/* run_block(), with the grid whose function and context are called. */
inline run_block(whose, block, by_host) {
  atomic {
    assert(whose != 255);
    assert(alive[whose] && (!by_host || for_any[whose]));
    begun[BLOCK(whose, block)]++;
    assert(begun[BLOCK(whose, block)] == 1)
  }
  if
#ifdef THROWS
  :: block == 0 ->
    atomic {
      threw[whose] = true;
      ended[BLOCK(whose, block)]++
    }
    atomic { thrown = !failed; failed = true } /* exchange, relaxed */
#ifndef ERROR_AFTER_LEAVING
    if
    :: thrown -> error = true; thrown = false
    :: else
    fi;
#endif
    i = 0;
    do
    :: i < SHARES -> share_next[i] = share_end[i]; i++
    :: else -> break
    od;
    i = 0
#endif
  :: true -> atomic { assert(alive[whose]); ended[BLOCK(whose, block)]++ }
  fi
}

/* claim(): `block` or 255 when a whole round has found none. */
inline claim() {
  block = 255;
  tried = 0;
  do
  :: tried < SHARES ->
    if
    :: share_next[share] < share_end[share] ->
#ifdef CLAIM_IN_TWO
      block = share_next[share];
      share_next[share] = block + 1;
#else
      atomic { block = share_next[share]; share_next[share] = block + 1 } /* fetch_add, relaxed */
#endif
      if
      :: block < share_end[share] -> break
      :: else -> block = 255
      fi
    :: else
    fi;
    atomic { share = (share + 1) % SHARES; tried++ }
  :: else -> break
  od;
  tried = 0
}

inline leave() {
  atomic {                     /* fetch_sub, release */
    assert(inside > 0);
    wakes = publisher_sleeps && inside == 1;
    inside--
  }
  if
  :: atomic { wakes -> sleeps = false; wakes = false } /* futex_wake(entered, 1) */
  :: else
  fi
}

/* A helper, or a host that waits. */
proctype helper(byte rank; bool host) {
  byte share, block = 255, tried, i, known = 255;
  bool wakes, was_closed, thrown, known_by_any;

  do
  :: true ->
#ifdef GRID_READ_BEFORE
    known = grid;
#endif
    known_by_any = by_any;
    atomic { was_closed = closed; inside++ } /* enter(): fetch_add, acquire */
#ifdef ENTERED_UNASKED
    was_closed = false;
#endif
    if
    :: !was_closed ->
#ifndef BY_ANY_READ_BEFORE
      known_by_any = by_any;
#endif
      if
      :: !host || known_by_any ->
        known_by_any = false;
        share = rank * SHARES / (HELPERS + 1);
        do
        :: true ->
          claim();
          if
          :: block == 255 -> break
          :: else
          fi;
#ifdef GRID_READ_BEFORE
          if
          :: known == 255 -> known = grid
          :: else
          fi;
#else
          known = grid;
#endif
          run_block(known, block, host);
          atomic { known = 255; block = 255 }
          if
          :: true              /* something new was published, or the host need not wait more */
            -> break
          :: true
          fi
        od;
        share = 0
      :: else
      fi
    :: true                    /* closed, or no seat */
    fi;
    was_closed = false;
    known_by_any = false;
    known = 255;
    leave()
#ifdef ERROR_AFTER_LEAVING
    ;
    if
    :: thrown -> error = true; thrown = false
    :: else
    fi
#endif
  :: true -> break             /* asleep for good: nobody relies on it */
  od
}

proctype publisher(byte first) {
  byte mine = first, share, block = 255, tried, i, seen;
  bool wakes, thrown, said, was_free;

  do
  :: mine < first + GRIDS ->
    atomic {
      alive[mine] = true;
      if
      :: for_any[mine] = true
      :: for_any[mine] = false
      fi;
      was_free = free; free = false /* take_slot(): compare_exchange, acquire */
    }
    if
    :: was_free ->
      was_free = false;
      /* publish() */
#ifdef OPENED_BEFORE_FILLED
      closed = false;
#endif
      grid = mine;
      failed = false;
      do
      :: i < SHARES ->
        share_next[i] = BLOCKS * i / SHARES;
        share_end[i] = BLOCKS * (i + 1) / SHARES;
        i++
      :: else -> break
      od;
      i = 0;
      by_any = for_any[mine];
#ifndef OPENED_BEFORE_FILLED
      closed = false;          /* fetch_and, release */
#endif
      do
      :: true ->
        claim();
        if
        :: block == 255 -> break
        :: else
        fi;
        run_block(mine, block, false);
        block = 255
      od;
      share = 0;
#ifdef FREED_BEFORE_EMPTY
      free = true;
#endif
      /* close_and_wait() */
#ifdef COUNTED_BEFORE_CLOSED
      seen = inside;
      closed = true;
#else
      atomic { closed = true; seen = inside } /* fetch_or, acq_rel */
#endif
#ifndef NOBODY_WAITED_FOR
      if
      :: seen == 0
      :: else ->
        do
        :: true ->
          atomic { seen = inside; said = publisher_sleeps } /* load, acquire */
          if
          :: seen == 0 -> break
          :: else
          fi;
#ifndef SLEEP_UNSAID
          atomic {             /* compare_exchange, acq_rel */
            if
            :: inside == seen && publisher_sleeps == said -> publisher_sleeps = true; said = true
            :: else -> seen = 0
            fi
          }
#endif
          if
          :: seen != 0 ->
            atomic {           /* futex_wait(entered, asleep) */
              if
              :: inside == seen && publisher_sleeps == said -> sleeps = true
              :: else
              fi
            }
            !sleeps
          :: else
          fi
        od;
        publisher_sleeps = false /* fetch_and, relaxed */
      fi;
#endif
      atomic {
        seen = 0; said = false;
        assert(error == threw[mine]);
        error = false          /* exchange */
      }
#ifndef FREED_BEFORE_EMPTY
      free = true              /* fetch_or, release */
#endif
    :: else ->
      block = 0;
      do                       /* all slots are taken; the first exception ends it */
      :: block < BLOCKS -> atomic { begun[BLOCK(mine, block)]++; ended[BLOCK(mine, block)]++; block++ }
      :: else -> break
      od;
      block = 255
    fi;
    d_step {
      i = 0;
      do
      :: i < BLOCKS ->
        assert(begun[BLOCK(mine, i)] == ended[BLOCK(mine, i)]);
        assert(begun[BLOCK(mine, i)] == 1 || (threw[mine] && begun[BLOCK(mine, i)] == 0));
        i++
      :: else -> break
      od;
      i = 0;
      alive[mine] = false;
      mine++
    }
  :: else -> break
  od
}

init {
  byte i;

  atomic {
    for (i : 0 .. PUBLISHERS - 1) {
      run publisher(i * GRIDS)
    }
    for (i : 1 .. HELPERS) {
      run helper(i, i == HELPERS)
    }
  }
}
