/* SPDX-License-Identifier: BSD-3-Clause
 *
 * The chunks that hold a queue's commands: one producer appends, one consumer walks behind it, and
 * chunks that are done with are used again.
 *
 * Follows CommandBuffer::append(), link_new_chunk(), take_chunk(), front(), pop(), recycle()
 * (device/command_buffer.h, .cpp), and what the queue adds: submitted_ is stored with release order
 * after the command is in place, and loaded with acquire order before it is looked at.
 * Checked: the consumer finds every command, in order; it reads only what has been published, in
 * chunks that are in use; the producer writes only to chunks that are its own. Commands are of one
 * to three places, a chunk holds CAPACITY of them (a larger command has a chunk of its size), and
 * the constructor of a command's callable may throw after its chunk has been linked.
 *
 * Each step is one access to what the two share. What is written before `submitted` is one step
 * with it where nothing is written in between that the consumer reads. The list of spare chunks is
 * behind its mutex: a step. Left out: alignment, the end of memory, several producers (which take
 * turns under submit_mutex_, see queue.pml), and the visits of a buffer that nobody consumes.
 *
 * run: -DCOMMANDS=6 -DTHROWS=0
 * run: -DCOMMANDS=4 -DTHROWS=2
 * mutation: -DONE_LINK -DTHROWS=1: assertion violated
 * mutation: -DRECYCLED_FIRST -DTHROWS=0: assertion violated
 * mutation: -DPUBLISHED_EARLY -DTHROWS=0: assertion violated
 * mutation: -DNO_ROOM_FOR_LINK -DTHROWS=0: assertion violated
 */

#ifndef COMMANDS
#define COMMANDS 5
#endif
#ifndef THROWS
#define THROWS 1
#endif
#define CAPACITY 2
#define LARGEST 3
#define CHUNKS (COMMANDS + THROWS + 1)
#define MAX_SPARE 1
#define NONE 255
#define LINK 254               /* a header without ops */
#define AT(chunk, offset) ((chunk) * (LARGEST + 1) + (offset))
#define CELL(chunk, offset) cell[AT(chunk, offset)]
#define SIZE(chunk, offset) sizes[AT(chunk, offset)]

byte cell[CHUNKS * (LARGEST + 1)]; /* the headers: a command's number, LINK, or what was left */
byte sizes[CHUNKS * (LARGEST + 1)]; /* next_offset of each */
byte next[CHUNKS];             /* Chunk::next: to the next chunk, or the next spare one */
byte bytes[CHUNKS];            /* Chunk::bytes; 0: not allocated */
byte spare = NONE, spares;     /* spare_, spare_count_ */
byte read_chunk = NONE, read_offset;
byte submitted;                /* Queue::submitted_ */

active proctype producer() {
  byte write_chunk = NONE, write_offset, chunk, number = 1, size, throws = THROWS;

  do
  :: number <= COMMANDS ->
    if
    :: size = 1
    :: size = 2
    :: size = 3
    fi;
    if
#ifdef NO_ROOM_FOR_LINK
    :: write_chunk != NONE && write_offset + size <= bytes[write_chunk] + 1
#else
    :: write_chunk != NONE && write_offset + size <= bytes[write_chunk]
#endif
    :: else ->
      atomic {                 /* take_chunk() */
        if
        :: size <= CAPACITY && spare != NONE -> chunk = spare; spare = next[chunk]; spares--
        :: else ->
          chunk = 0;
          do
          :: bytes[chunk] != 0 -> chunk++; assert(chunk < CHUNKS)
          :: else -> break
          od;
          bytes[chunk] = (size > CAPACITY -> size : CAPACITY)
        fi
      }
      if
      :: write_chunk == NONE -> read_chunk = chunk
      :: else ->
        assert(bytes[write_chunk] != 0 && write_offset <= bytes[write_chunk]);
        CELL(write_chunk, write_offset) = LINK;
        next[write_chunk] = chunk
      fi;
      write_chunk = chunk;
      write_offset = 0;
      chunk = 0
    fi;
    if
    :: throws > 0 -> throws--  /* the callable's constructor */
    :: true ->
      assert(bytes[write_chunk] != 0);
#ifdef PUBLISHED_EARLY
      submitted = number;
#endif
      SIZE(write_chunk, write_offset) = size;
      CELL(write_chunk, write_offset) = number;
      write_offset = write_offset + size;
      submitted = number;      /* release or stronger */
      number++
    fi
  :: else -> break
  od
}

active proctype consumer() {
  byte done, available, header, finished;

  do
  :: done < COMMANDS ->
    submitted > done;
    available = submitted;     /* acquire */
    do
    :: done < available ->
      done++;
      /* front() */
      assert(bytes[read_chunk] != 0);
      header = CELL(read_chunk, read_offset);
#ifdef ONE_LINK
      if
#else
      do
#endif
      :: header == LINK ->
        finished = read_chunk;
#ifndef RECYCLED_FIRST
        read_chunk = next[finished]; /* follow_link() */
        read_offset = 0;
#endif
        atomic {               /* recycle() */
          if
          :: bytes[finished] == CAPACITY && spares < MAX_SPARE ->
            next[finished] = spare; spare = finished; spares++
          :: else -> bytes[finished] = 0
          fi
        }
#ifdef RECYCLED_FIRST
        read_chunk = next[finished];
        read_offset = 0;
        assert(read_chunk != NONE);
#endif
        finished = 0;
        assert(bytes[read_chunk] != 0);
        header = CELL(read_chunk, read_offset)
#ifdef ONE_LINK
      :: else
      fi;
#else
      :: else -> break
      od;
#endif
      assert(header == done);
      header = 0;
      read_offset = read_offset + SIZE(read_chunk, read_offset) /* pop() */
    :: else -> break
    od
  :: else -> break
  od
}
