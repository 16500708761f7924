/* The protocol of include/fusewire/device/channel_view.hpp, with the push and the pull of comm/all_gather/transfer_chunks.hpp, for
   spin. `check` runs it; docs/protocol.md says what it shows.

   Every rank runs launches in stream order, without any host between them. A launch is BLOCKS blocks; the first COMM communicate,
   then all take tiles. Which rank owns how many chunks, and whether a launch pushes or pulls, is chosen again for every launch, the
   same on all ranks. Where a chunk lies in its slot, and which flag it has, depends on that choice too.

   Memory is sequentially consistent: what `signal` and `wait` order on real machines is tested elsewhere. A value in memory stands
   for what was written: the number of the launch it belongs to, or TORN while somebody writes it.

   Without LAUNCHES the model has no end. Launches are then numbered 1 to NUMBERS again and again, and what a launch left in memory
   becomes OLD when it is over on every rank: real epochs do not repeat. This loses nothing as long as no rank starts a launch before
   all others have started the one before, which is asserted. It also gives progress: a wait is one step, not a loop, so a run
   without end goes through launches without end, and on all ranks. With LAUNCHES, epochs are the real ones and the model ends after
   that many.

   What follows a wait is checked in a step of its own, which may come at any later time; and what a copy reads, when it ends as well.
   So every reader is as slow as can be. Steps are as large as they can be without hiding an order that matters:
     - a header goes to all ranks in one step: a flag that is up early is one that its waiter has not looked at yet;
     - the end of a copy and its flag are one step: who waits for the flag sees both, and who still reads what was there before has
       failed at TORN already.

   With PARTS > 1 the blocks of a launch are round_robin over that many parts of a device (XCDs), and what the stream wrote into A lies in all
   of their L2s: a launch that pulls releases each of them before its header goes out (channel_view::begin_readable).

   With DEPARTS a block takes its ticket at any time after it has the epoch, and no block hands out work (channel_epoch::depart); a
   launch is over when its blocks are. A launch that the stream starts early waits for the one before it ahead of everything that the
   model has a step for; EPOCH_BEFORE_STREAM is one that does not.

   Three changes make no difference, and `check` expects that:
     AT_LEAST               waits ask for >= instead of ==. A rank raises a flag of slot e&1 to more than e in launch e+2 at the
                            earliest, when every wait of launch e is over: no waiter ever sees more than it asks for.
     NO_CREDIT with PULL    when all launches pull, each waits for every rank's acknowledgement, which is a credit too: it is sent
                            from the same launch of that rank, hence after the launch before.
     HEADER_AT_END with PUSH when all launches push, nobody waits for a header before its own end, and a header that is sent later
                            still comes from the same launch. (It could no longer tell ranks that disagree from a hang.) */

#ifndef RANKS
#define RANKS 2
#endif
#ifndef CHUNKS
#define CHUNKS 1 /* a rank owns 0 to CHUNKS */
#endif
#ifndef BLOCKS
#define BLOCKS 2
#endif
#ifdef ONE_RANK_WITH_BLOCKS /* fewer states: what several blocks do is between the blocks of a rank, and ranks are alike */
#define blocks_of(r) ((r) == 0 -> BLOCKS : 1)
#define has_parts(r) ((r) == 0)
#else
#define blocks_of(r) BLOCKS
#define has_parts(r) true
#endif
#ifndef COMM
#define COMM 1 /* blocks that communicate; every other only multiplies */
#endif
#ifndef TILES
#define TILES 1 /* each reads every chunk */
#endif

#ifndef PARTS
#define PARTS 1
#endif
#ifdef BLOCKS_ON_ONE_PART
#define part_of(b) 0
#else
#define part_of(b) ((b) % PARTS)
#endif

#define OLD 0
#define TORN 255

#ifndef NUMBERS
#define NUMBERS 2 /* even: slots go by parity */
#endif
#ifdef LAUNCHES
#define RING 8
#define succ(e) ((e) + 1)
#define is_over(p, n) (running[p] > (n))
#else
#define RING NUMBERS
#define succ(e) ((e) % NUMBERS + 1)
#define is_over(p, n) (running[p] != (n))
#endif

/* ------------------------------------------------------------------------------------------------------- planted bugs */

#ifdef FLAG_IS_ONE
#define stamp(e) 1
#else
#define stamp(e) (e)
#endif
#ifdef AT_LEAST
#define is_up(flag, e) ((flag) >= stamp(e))
#else
#define is_up(flag, e) ((flag) == stamp(e))
#endif
#ifdef ONE_FLAG_SET
#define flag_slot(e) 0
#else
#define flag_slot(e) ((e) & 1)
#endif
#ifdef ONE_SLOT
#define slot(e) 0
#else
#ifdef SLOT_FROM_SHAPE /* slot 1 of a small launch begins inside slot 0 of a large one */
#define slot(e) (((e) & 1) && owned(0) == CHUNKS)
#else
#define slot(e) ((e) & 1)
#endif
#endif
#ifdef NO_CREDIT
#define has_credit(s) true
#else
#ifdef CREDIT_FROM_OWNERS
#define has_credit(s) (owned(s) == 0 || is_up(header(r, s), e))
#else
#define has_credit(s) is_up(header(r, s), e)
#endif
#endif
#ifdef HEADER_FROM_OWNERS
#define sends_header (owned(r) > 0)
#else
#define sends_header true
#endif
#ifdef NO_ACKNOWLEDGEMENT_WAIT
#define is_acknowledged(s) true
#else
#define is_acknowledged(s) is_up(acknowledgement(r, s), e)
#endif
#ifdef ACKNOWLEDGED_BY_FIRST_CHUNK
#define all_fetched(s) (arrived[r * RANKS + s] == 1)
#else
#define all_fetched(s) (arrived[r * RANKS + s] == owned(s))
#endif
#define is_header_of_launch(s) (header(r, s) == stamp(e))
#ifdef FIRST_OUT_ADVANCES
#define advances (ticket[r] == 1)
#else
#define advances (ticket[r] == blocks_of(r))
#endif
#ifdef HEADER_AFTER_ONE_RELEASE
#define all_have_begun (began[r] == 1)
#else
#define all_have_begun (began[r] == blocks_of(r))
#endif

/* ------------------------------------------------------------------------------------------------------------- memory */

byte a[RANKS];              /* input of the launch, written by the stream before it */
byte epoch[RANKS];
byte ticket[RANKS];
byte next[RANKS];
byte arrived[RANKS * RANKS];
#if PARTS > 1
byte began[RANKS];
byte released_in[RANKS * PARTS];
bool unreleased[RANKS * PARTS]; /* whether a part's L2 holds some of A */
#define is_out(p) (!unreleased[(p) * 2] && !unreleased[(p) * 2 + 1]) /* PARTS is 2 */
#endif
#ifdef DEPARTS
byte ended[RANKS];
#endif

#define PLACES (RANKS * CHUNKS)
#define place(s, n) (((s) * CHUNKS + (n) + owned(0)) % PLACES)
byte inboxes[RANKS * 2 * PLACES];
byte data_flags[RANKS * 2 * PLACES];
byte headers[RANKS * 2 * RANKS];
byte acknowledgements[RANKS * 2 * RANKS];
#define inbox(p, s, n) inboxes[((p) * 2 + slot(e)) * PLACES + place(s, n)]
#define data_flag(p, s, n) data_flags[((p) * 2 + flag_slot(e)) * PLACES + place(s, n)]
#define header(p, s) headers[((p) * 2 + flag_slot(e)) * RANKS + (s)]
#define acknowledgement(p, s) acknowledgements[((p) * 2 + flag_slot(e)) * RANKS + (s)]

/* ------------------------------------------------------------------------------------------------- streams and shapes */

byte running[RANKS]; /* the launch that the stream has started last */
bool chosen[RING];
bool pulls[RING];
byte owned_[RING * RANKS];
#define owned(s) owned_[(launch % RING) * RANKS + (s)]
#define pull pulls[launch % RING]

inline choose(n, k) {
  chosen[n % RING] = true;
#if defined(PUSH)
  pulls[n % RING] = false;
#elif defined(PULL)
  pulls[n % RING] = true;
#else
  if :: pulls[n % RING] = false :: pulls[n % RING] = true fi;
#endif
#ifdef UNEVEN /* fewer states: one rank owns nothing, the next a chunk, the next two if there may be two */
  byte turn;
  select(turn : 0 .. RANKS - 1);
#endif
  k = 0;
  do
  :: k < RANKS ->
     if
#ifdef UNEVEN
     :: owned_[(n % RING) * RANKS + k] = ((k + turn) % RANKS < CHUNKS -> (k + turn) % RANKS : CHUNKS)
#else
     :: owned_[(n % RING) * RANKS + k] = 0
     :: owned_[(n % RING) * RANKS + k] = 1
#if CHUNKS > 1
     :: owned_[(n % RING) * RANKS + k] = CHUNKS
#endif
#endif
     fi;
     k++
  :: else -> break
  od;
#ifdef UNEVEN
  turn = 0;
#endif
  k = 0
}

#define rename_old(values, count, n, k) \
  k = 0; \
  do :: k < count -> if :: values[k] == n -> values[k] = OLD :: else fi; k++ :: else -> break od; \
  k = 0

/* The kernel of launch n - 1 on rank r is over; the stream writes A, as the caller may, and starts launch n. */
inline start(r, n, k) {
  running[r] = n;
  a[r] = n;
#if PARTS > 1
  unreleased[r * 2] = true;
  unreleased[r * 2 + 1] = has_parts(r);
#endif
#ifndef LAUNCHES
  k = 0;
  do :: k < RANKS -> assert(running[k] == n || succ(running[k]) == n); k++ :: else -> break od;
#endif
  if
  :: chosen[n % RING] -> skip
  :: else ->
     choose(n, k)
  fi
}

/* No rank needs the choice of launch n any more. */
inline forget(n, k) {
  k = 0;
  do :: k < RANKS && is_over(k, n) -> k++ :: else -> break od;
  if
  :: k == RANKS ->
     chosen[n % RING] = false;
     pulls[n % RING] = false;
     k = 0;
     do :: k < RANKS -> owned_[(n % RING) * RANKS + k] = 0; k++ :: else -> break od;
#ifndef FLAG_IS_ONE
     rename_old(inboxes, RANKS * 2 * PLACES, n, k);
     rename_old(data_flags, RANKS * 2 * PLACES, n, k);
     rename_old(headers, RANKS * 2 * RANKS, n, k);
     rename_old(acknowledgements, RANKS * 2 * RANKS, n, k)
#endif
#if PARTS > 1
     ;
     rename_old(released_in, RANKS * PARTS, n, k)
#endif
  :: else
  fi;
  k = 0
}

/* ------------------------------------------------------------------------------------------------------------ kernels */

/* The lanes of a block poll all together. */
#if RANKS == 2
#define every(condition) (condition(0) && condition(1))
#else
#define every(condition) (condition(0) && condition(1) && condition(2))
#endif

inline send_headers() {
  do :: s < RANKS -> if :: sends_header -> header(s, r) = stamp(e) :: else fi; s++ :: else -> break od;
  s = 0
}

/* A copy into an inbox, and its flag. */
inline begin_copy(p, source, n) {
  assert(a[source] == launch);
#if PARTS > 1
  assert(p == source || source == r || is_out(source));
#endif
#ifdef FLAG_BEFORE_DATA
  data_flag(p, source, n) = stamp(e);
#endif
  inbox(p, source, n) = TORN
}
inline end_copy(p, source, n) {
  assert(a[source] == launch);
  inbox(p, source, n) = e;
#ifndef FLAG_BEFORE_DATA
  data_flag(p, source, n) = stamp(e)
#endif
}

inline acknowledge_chunk(source) {
  arrived[r * RANKS + source]++;
  if :: all_fetched(source) -> acknowledgement(source, r) = stamp(e) :: else fi;
  if :: arrived[r * RANKS + source] == owned(source) -> arrived[r * RANKS + source] = 0 :: else fi
}

/* Items b, b + COMM, ...: chunk i / RANKS, to or from the rank i % RANKS places on. */
#define ITEMS (RANKS * CHUNKS)
#define peer(i) ((r + (i) % RANKS) % RANKS)
#define is_empty(i) ((i) / RANKS >= owned((pull -> peer(i) : r)))
inline go_on(stride) {
  if :: i + stride < ITEMS -> i = i + stride :: else -> i = 0; break fi
}
inline communicate() {
  do
  :: atomic {
       is_empty(i) ->
#ifndef ACKNOWLEDGEMENT_FROM_READERS
       if :: pull && i < RANKS -> acknowledgement(peer(i), r) = stamp(e) :: else fi;
#endif
       go_on(COMM)
     }
  :: atomic { !is_empty(i) && !pull -> begin_copy(peer(i), r, i / RANKS) };
     atomic { end_copy(peer(i), r, i / RANKS); go_on(COMM) }
#ifdef NO_HEADER_WAIT
  :: atomic { !is_empty(i) && pull };
#else
  :: atomic { !is_empty(i) && pull && is_up(header(r, peer(i)), e) };
#endif
     atomic {
#ifndef NO_HEADER_WAIT
       assert(header(r, peer(i)) == stamp(e)); /* the note beside it says where A is */
#endif
#ifdef ACKNOWLEDGED_BEFORE_FETCH
       acknowledge_chunk(peer(i));
#endif
       begin_copy(r, peer(i), i / RANKS)
     };
     atomic { end_copy(r, peer(i), i / RANKS) };
     atomic {
#ifndef ACKNOWLEDGED_BEFORE_FETCH
       acknowledge_chunk(peer(i));
#endif
       go_on(COMM)
     }
  od
}

#define exists(i) ((i) % CHUNKS < owned((i) / CHUNKS))
inline multiply() {
  do
#ifdef DEPARTS
  :: atomic { tile < TILES -> tile = tile + blocks_of(r) };
#else
  :: atomic { next[r] < TILES -> next[r]++ };
#endif
     do
     :: atomic { !exists(i) -> go_on(1) }
     :: exists(i) && is_up(data_flag(r, i / CHUNKS, i % CHUNKS), e);
        atomic { assert(inbox(r, i / CHUNKS, i % CHUNKS) == launch); go_on(1) }
     od
#ifdef DEPARTS
  :: atomic { tile >= TILES -> tile = 0; break }
#else
  :: next[r] >= TILES -> break
#endif
  od
}

/* A block takes its ticket. */
#ifdef DEPARTS
inline depart() {
  ticket[r]++;
  departed = true;
  is_last = ticket[r] == blocks_of(r)
}
#endif

#if PARTS > 1 && !defined(HEADER_FROM_BLOCK_0)
#define is_sent_by_last pull
#else
#define is_sent_by_last false
#endif
/* The last block to begin sends the header; a block has begun when it has released its part, unless another of that part does. */
#if PARTS > 1
inline begin_readable() {
  atomic {
    releases = released_in[r * PARTS + part_of(b)] != e;
    released_in[r * PARTS + part_of(b)] = e;
#ifdef COUNTED_BEFORE_RELEASE
    began[r]++;
    if :: all_have_begun -> began[r] = 0; send_headers() :: else fi
#endif
  };
  atomic {
    if :: releases -> unreleased[r * PARTS + part_of(b)] = false :: else fi;
    releases = false;
#ifndef COUNTED_BEFORE_RELEASE
    began[r]++;
    if :: all_have_begun -> send_headers() :: else fi;
    if :: began[r] == blocks_of(r) -> began[r] = 0 :: else fi
#endif
  }
}
#endif

proctype block(byte r, b) {
  byte launch, e, i, s;
#if PARTS > 1
  bool releases;
#endif
#ifdef DEPARTS
  byte tile;
  bool departed, is_last;
#endif
  do
#ifdef LAUNCHES
  :: launch == LAUNCHES -> break
#endif
  :: atomic {
#ifdef LAUNCHES
       launch < LAUNCHES &&
#endif
#ifdef EPOCH_BEFORE_STREAM
       true -> e = succ(epoch[r])
     };
     atomic {
       running[r] == succ(launch) -> launch = running[r];
#else
#ifdef DEPARTS_BEFORE_EPOCH
       running[r] == succ(launch) -> launch = running[r]; depart()
     };
     atomic {
       e = succ(epoch[r]);
#else
       running[r] == succ(launch) -> launch = running[r]; e = succ(epoch[r]);
#endif
#endif
#if !defined(HEADER_AT_END) && !defined(HEADER_AFTER_CREDIT)
       if :: b == 0 && !is_sent_by_last -> send_headers() :: else fi;
#endif
#ifdef DEPARTS
       tile = b;
#ifndef DEPARTS_BEFORE_EPOCH
       if :: depart() :: skip fi;
#endif
#endif
       if :: b < COMM -> i = b :: else fi
     };
#if PARTS > 1
     if :: is_sent_by_last -> begin_readable() :: else fi;
#endif
     if :: b < COMM -> communicate() :: else fi;
     multiply();
     if
     :: b == 0 ->
        if :: !pull || every(is_acknowledged) fi;
#ifdef HEADER_AT_END
        atomic { send_headers() };
#endif
        every(has_credit);
#ifdef HEADER_AFTER_CREDIT
        atomic { send_headers() }
#endif
     :: else
     fi;

     atomic {
#if !defined(NO_CREDIT) && !defined(CREDIT_FROM_OWNERS)
       assert(b > 0 || every(is_header_of_launch)); /* the note beside it was compared until now */
#endif
#ifdef DEPARTS
       if :: departed :: else -> depart() fi;
       if :: is_last -> ticket[r] = 0; epoch[r] = e :: else fi;
       departed = false;
       is_last = false;
       ended[r]++;
       if
       :: ended[r] == blocks_of(r) ->
          ended[r] = 0;
#else
       ticket[r]++;
       if :: advances -> epoch[r] = e :: else fi;
       if
       :: ticket[r] == blocks_of(r) ->
          ticket[r] = 0;
          next[r] = 0;
#endif
#ifdef LAUNCHES
          if :: launch < LAUNCHES -> start(r, succ(launch), s) :: else -> running[r] = succ(launch) fi;
#else
          start(r, succ(launch), s);
#endif
          forget(launch, s)
       :: else
       fi;
       e = 0
     }
  od
}

init {
  byte r, b, k;
  atomic {
    do
    :: r < RANKS ->
       running[r] = 1;
       a[r] = 1;
#if PARTS > 1
       unreleased[r * 2] = true;
       unreleased[r * 2 + 1] = has_parts(r);
#endif
       r++
    :: else -> break
    od;
    choose(1, k);
    r = 0;
    do
    :: r < RANKS ->
       b = 0;
       do :: b < blocks_of(r) -> run block(r, b); b++ :: else -> break od;
       r++
    :: else -> break
    od
  }
}
