/* Puts to ranks of other nodes, as include/fusewire/nodes/nodes_view.hpp makes them, for spin. `check` runs it;
   docs/several_machines.md says what it shows.

   Two ranks on two nodes run LAUNCHES launches in stream order. In each of them a rank puts a header and one piece to the other one,
   in any order of the two. An engine takes a put at any later time, so that its source may be written again (it has left), and lets it
   arrive at any time after that: bytes first, then the flag. A later put may overtake it, unless the earlier one had left when the
   later one was made (promise 2).

   UNAWAITED       a rank may go on without waiting for the piece of a launch
   OTHER_SENDER    in launches 3 and 4 the piece comes from a rank of the receiver's node, to the same place. It stores, in a launch that
                   begins when the receiver has begun the one before

   Memory is sequentially consistent, as in channel.pml. A value stands for the launch to which it belongs; TORN: somebody writes it. */

#ifndef LAUNCHES
#define LAUNCHES 4
#endif
#define FLIGHTS 4
#define TORN 255
#define slot(e) ((e) & 1)

mtype:kind = { header, piece };
mtype:state = { none, asked, left, written };

typedef flight {
  mtype:state state = none;
  mtype:kind kind;
  byte e, value;
  byte behind; /* a bit for each flight that must arrive before */
};
flight flights[2 * FLIGHTS]; /* [sender] */
byte window[4], inbox[4], flags[4], headers[4], near_flags[4]; /* [rank][slot] */
byte began[2];

#ifdef ONE_WAY /* fewer states: rank 1 puts headers only */
#define sends(r) ((r) == 0)
#else
#define sends(r) true
#endif
#ifdef OTHER_SENDER
#define from_near(e) ((e) > 2)
#else
#define from_near(e) false
#endif

#define f(k) flights[r * FLIGHTS + (k)]
#define bit(k) (1 << (k))
#define every_put_has_left (f(0).state != asked && f(1).state != asked && f(2).state != asked && f(3).state != asked)
#ifdef OVERTAKES /* planted: promise 2 is broken */
#define holds_back(k) false
#else
#define holds_back(k) (f(k).state == left || f(k).state == written)
#endif

inline ask(k, what) {
  f(k).state = asked;
  f(k).kind = what;
  f(k).e = e;
  f(k).behind = (holds_back(0) -> bit(0) : 0) | (holds_back(1) -> bit(1) : 0) | (holds_back(2) -> bit(2) : 0) |
                (holds_back(3) -> bit(3) : 0)
}
inline put(what) {
  atomic {
    if
    :: f(0).state == none -> ask(0, what)
    :: else ->
       if
       :: f(1).state == none -> ask(1, what)
       :: else ->
          if
          :: f(2).state == none -> ask(2, what)
          :: else -> f(3).state == none -> ask(3, what)
          fi
       fi
    fi
  }
}

/* The other rank's memory. */
#define there(e) ((1 - r) * 2 + slot(e))
#define here(e) (r * 2 + slot(e))

inline leave(k) {
  f(k).value = (f(k).kind == piece -> window[here(f(k).e)] : f(k).e);
  f(k).state = left
}
inline raise(k) {
  if
  :: f(k).kind == piece -> flags[there(f(k).e)] = f(k).e
  :: else -> headers[there(f(k).e)] = f(k).e
  fi
}
inline write(k) {
  if :: f(k).kind == piece -> inbox[there(f(k).e)] = f(k).value :: else fi
}
inline forget(k) {
  f(k).state = none;
  f(k).kind = 0;
  f(k).e = 0;
  f(k).value = 0;
  f(k).behind = 0;
  f(0).behind = f(0).behind & ~bit(k);
  f(1).behind = f(1).behind & ~bit(k);
  f(2).behind = f(2).behind & ~bit(k);
  f(3).behind = f(3).behind & ~bit(k)
}
#ifdef FLAG_FIRST /* planted: promise 1 is broken */
#define first raise
#define second write
#else
#define first write
#define second raise
#endif
#define turns_of(k) \
  :: atomic { f(k).state == asked -> leave(k) } \
  :: atomic { f(k).state == left && f(k).behind == 0 -> first(k); f(k).state = written } \
  :: atomic { f(k).state == written -> second(k); forget(k) }

proctype engine(byte r) {
end:
  do
  turns_of(0)
  turns_of(1)
  turns_of(2)
  turns_of(3)
  od
}

inline send_header() {
#ifndef NO_WAIT_LEFT
  every_put_has_left;
#endif
  put(header)
}
inline send_piece() {
  if
  :: from_near(e) || !sends(r)
  :: else ->
     window[here(e)] = TORN;
     window[here(e)] = e;
     put(piece)
  fi
}

proctype rank(byte r) {
  byte e;
  do
  :: e == LAUNCHES -> break
  :: atomic { e < LAUNCHES -> e++; began[r] = e };
     if
     :: skip; send_header(); send_piece()
     :: skip; send_piece(); send_header()
     fi;
     if
     :: !sends(1 - r)
     :: sends(1 - r); (from_near(e) -> near_flags[here(e)] : flags[here(e)]) == e; assert(inbox[here(e)] == e)
#ifdef UNAWAITED
     :: sends(1 - r) && !from_near(e) /* chosen before it is known whether the flag comes */
#endif
     fi;
#ifndef NO_CREDIT
     headers[here(e)] == e;
#endif
  od
}

#ifdef OTHER_SENDER
/* A rank of r's node. */
proctype near_rank(byte r) {
  byte e = 3;
  do
  :: e > LAUNCHES -> break
  :: e <= LAUNCHES && began[r] >= e - 1;
     inbox[here(e)] = TORN;
     atomic { inbox[here(e)] = e; near_flags[here(e)] = e };
     e++
  od
}
#endif

init {
  atomic {
    run rank(0);
    run rank(1);
    run engine(0);
    run engine(1);
#ifdef OTHER_SENDER
    run near_rank(0);
    run near_rank(1)
#endif
  }
}
