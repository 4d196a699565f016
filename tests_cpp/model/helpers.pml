/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The sleep of helpers, and how a grid wakes as many as it has work for.
 *
 * Follows Cores::State::publish(), wake(), help(), help_once(), idle(), stop_helpers()
 * (device/cores.cpp). What a slot does is in grid.pml; here it is one word.
 * Checked: every helper comes that has a block to run. Each block waits for all blocks of its grid
 * to have begun, so that a helper too few is a state without end. The API promises less: the
 * publisher runs all blocks if nobody comes. But a grid that is left alone is slow, and
 * publish() says that no wake is missed. At the end all helpers stop.
 *
 * Each step is one access to what threads share. `signal` and `sleepers` are seq_cst where one is
 * written and then the other read; `open` is relaxed, and ordered by `signal`, which changes after
 * it. `spinners` is relaxed in the code and read in its order here: where it is read older, a grid
 * may find a helper less, as the code says. WAKES stands for kWakesAtOnce, and is less than there
 * are helpers, so that they have to wake each other.
 * Left out: hosts that look for blocks, for which fewer are woken on purpose; placement; several
 * grids at once.
 *
 * run: -DHELPERS=2 -DBLOCKS=3 -DGRIDS=2
 * run: -DHELPERS=2 -DBLOCKS=2 -DGRIDS=3
 * run: -DHELPERS=3 -DBLOCKS=4 -DGRIDS=1
 * mutation: -DSLEEPERS_READ_FIRST: invalid end state
 * mutation: -DOPENED_LATE: invalid end state
 * mutation: -DSIGNAL_READ_LATE: invalid end state
 * mutation: -DNO_CHAIN: invalid end state
 * mutation: -DSLEEPERS_UNCOUNTED: invalid end state
 */

#ifndef HELPERS
#define HELPERS 2
#endif
#ifndef BLOCKS
#define BLOCKS 3
#endif
#ifndef GRIDS
#define GRIDS 2
#endif
#ifndef WAKES
#define WAKES 1
#endif

byte signal, sleepers, spinners;
bool open, stop;
bool closed = true;            /* the slot */
byte inside, claimed, begun;
bool sleeps[HELPERS];          /* the kernel's list for `signal` */

inline futex_wake(count) {
  atomic {
    woken = 0;
    do
    :: woken < count && (sleeps[0]
#if HELPERS > 1
       || sleeps[1]
#endif
#if HELPERS > 2
       || sleeps[2]
#endif
       ) ->
      if
      :: sleeps[0] -> sleeps[0] = false
#if HELPERS > 1
      :: sleeps[1] -> sleeps[1] = false
#endif
#if HELPERS > 2
      :: sleeps[2] -> sleeps[2] = false
#endif
      fi;
      woken++
    :: else -> break
    od;
    woken = 0
  }
}

/* wake(useful) */
inline wake() {
  asleep = sleepers;           /* seq_cst */
  if
  :: asleep > 0 && useful > 0 ->
    useful = useful - spinners; /* relaxed */
    if
    :: useful > 0 -> futex_wake(WAKES)
    :: else
    fi
  :: else
  fi;
  atomic { asleep = 0; useful = 0 }
}

/* Claims blocks and runs them; each ends when all of its grid have begun. */
inline run_blocks() {
  do
  :: atomic { claimed < BLOCKS -> claimed++; begun++ }
    begun == BLOCKS
  :: else -> break
  od
}

proctype helper(byte me) {
  byte seen, asleep, woken;
  short useful;
  bool found;

  do
  :: true ->
#ifndef SIGNAL_READ_LATE
    seen = signal;             /* acquire */
    if
    :: stop -> break
    :: else
    fi;
#endif
    found = open;              /* best_open_slot(), relaxed */
#ifdef SIGNAL_READ_LATE
    seen = signal;
    if
    :: stop -> break
    :: else
    fi;
#endif
    if
    :: found ->
      /* help_once() */
      atomic { found = !closed; inside = inside + found }
      if
      :: found ->
#ifndef NO_CHAIN
        useful = BLOCKS - claimed - 1;
        wake();
#endif
        run_blocks();
        open = false;          /* inside: still this grid's bit */
        atomic { inside--; found = false }
      :: else
      fi
    :: else ->
      /* idle(seen) */
      spinners++;
      if
      :: signal != seen -> spinners--
      :: true ->               /* it has spun long enough */
#ifndef SLEEPERS_UNCOUNTED
        sleepers++;            /* seq_cst */
#endif
        spinners--;
        atomic {               /* futex_wait(signal, seen) */
          if
          :: signal == seen -> sleeps[me] = true
          :: else
          fi
        }
        !sleeps[me];
#ifndef SLEEPERS_UNCOUNTED
        sleepers--             /* relaxed */
#endif
      fi
    fi
  od
}

init {
  byte i, asleep, woken, grid;
  short useful;

  atomic {
    for (i : 0 .. HELPERS - 1) {
      run helper(i)
    }
    i = 0
  }
  do
  :: grid < GRIDS ->
    /* publish() */
    atomic { claimed = 0; begun = 0; closed = false }
#ifdef SLEEPERS_READ_FIRST
    open = true;
    asleep = sleepers;
    signal++;
    if
    :: asleep > 0 -> futex_wake(WAKES)
    :: else
    fi;
#else
#ifdef OPENED_LATE
    signal++;
    open = true;
#else
    open = true;               /* relaxed */
    signal++;                  /* seq_cst */
#endif
    useful = (BLOCKS - 1 < HELPERS -> BLOCKS - 1 : HELPERS);
    wake();
#endif
    run_blocks();
    open = false;
    closed = true;
    inside == 0;
    grid++
  :: else -> break
  od;
  /* stop_helpers() */
  stop = true;                 /* relaxed */
  signal++;                    /* seq_cst */
  futex_wake(HELPERS);
  _nr_pr == 1
}
