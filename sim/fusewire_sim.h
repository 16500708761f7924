/* What a simulated run has done so far, for programs that print it. Only fusewire-sim's libamdhip64 exports these
 * functions, so look them up: dlsym(RTLD_DEFAULT, "fusewireSimStats") is null on a real GPU. */
#ifndef FUSEWIRE_SIM_H
#define FUSEWIRE_SIM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { FUSEWIRE_SIM_MAX_GPUS = 16 };

/* Bytes that waves asked for, lane by lane; not multiplied by cache lines. */
typedef struct {
  uint64_t load_bytes, store_bytes, atomic_bytes;
} fusewire_sim_link;

typedef struct {
  uint64_t size; /* in: sizeof(fusewire_sim_stats) of the caller */
  uint64_t launches, workgroups, instructions;
  uint64_t cycles; /* simulated, of the engine clock: 2.1 GHz, or what --mhz says */
  uint64_t gpus;
  fusewire_sim_link links[FUSEWIRE_SIM_MAX_GPUS][FUSEWIRE_SIM_MAX_GPUS]; /* [GPU of the wave][GPU of the memory] */
} fusewire_sim_stats;

int fusewireSimStats(fusewire_sim_stats* stats); /* 0, or -1 when size is too small */
int fusewireSimReset(void);                      /* zeroes the totals */

/* For tests of error paths. Makes the n-th HIP call from now fail, once, with an error that such a call may have. With
 * a name, it is the n-th call of that name; with n = 0, no call fails. Calls that only ask for the last error or the
 * name of an error do not count. */
void fusewireSimFailCall(uint64_t n, char const* call);
char const* fusewireSimFailedCall(void);     /* the name of the call that failed since then; null when none did */
uint64_t fusewireSimCalls(char const* call); /* how many there were since then: of this name, or all when it is null */
/* How many allocations, streams, events, graphs and modules the program holds. `text` (may be null) gets a line for
 * each, oldest first, up to `size` bytes. */
uint64_t fusewireSimHeld(char* text, size_t size);

/* For libraries that hand out parts of a large allocation. From the first call on, kernels' accesses to the allocation
 * are checked against its parts: an access that is not within one part is reported, with the name of the nearest part.
 * `at` is where the part begins. A part replaces those that it overlaps; size 0 names nothing. Threads that share
 * memory may all name the same part; the latest name counts. Returns 0, or -1 when the memory is not allocated. */
int fusewireSimNamePart(void const* at, uint64_t size, char const* name);
/* The same for an array [extent[2]][extent[1]][extent[0]] of rows, of which each has bounds of its own. In the name,
 * {0}, {1} and {2} stand for the numbers of a row. */
typedef struct {
  uint64_t bytes, stride; /* of a row; from a row to the next */
  uint64_t extent[3];
} fusewire_sim_rows;
int fusewireSimNameRows(void const* at, fusewire_sim_rows const* rows, char const* name);
int fusewireSimForgetParts(
    void const* at,
    uint64_t size); /* that begin there: an access is use after free until a part is named there again */
/* Says that one launch at a time uses the part at `at`, and that each of its workgroups does one atomic on the 4-byte
 * word `ticket` in the part, by `call`. Reported are a second atomic of a workgroup, a launch that ends without one of
 * each workgroup, and two launches at a time. */
int fusewireSimNameTicket(void const* at, void const* ticket, char const* call);
/* Of a part that has a ticket: a launch that does an atomic on the 4-byte `word` in it, by `call`, has at least `least`
 * workgroups. One with fewer is reported at its first atomic. Returns 0, or -1 when there is no such part. */
int fusewireSimNameLeast(void const* at, void const* word, uint64_t least, char const* call);

/* Says that `more` threads more of this program may be woken by something that is not simulated, as another process at
 * the other end of a socket; or, if negative, so many fewer. While there are such threads, a wait of a kernel for a
 * word of the host takes as long as it takes: without this, simulated time jumps to the end of the wait when all
 * threads have slept for --patience. */
void fusewireSimOutside(int more);

/* With a clock: a device outside of the machine, as a NIC, whose time is the machine's. Without one, the first returns
 * -1 and changes nothing. What these call runs on a thread of the simulator and must not call HIP; only from there, the
 * other two may be called. */
/* From now on calls f(context) whenever a store of a wave to these bytes of host memory has taken effect. A null f: no
 * more. When it has returned, no such call goes on. */
int fusewireSimWatch(void const* at, uint64_t size, void (*f)(void* context), void* context);
void fusewireSimAfter(double us, void (*f)(void* context), void* context); /* calls f(context) once, so much later */
double fusewireSimNow(void);                                               /* us */

typedef void (*fusewire_sim_outside_function)(int);
typedef int (*fusewire_sim_watch_function)(void const*, uint64_t, void (*)(void*), void*);
typedef void (*fusewire_sim_after_function)(double, void (*)(void*), void*);
typedef double (*fusewire_sim_now_function)(void);
typedef int (*fusewire_sim_name_part_function)(void const*, uint64_t, char const*);
typedef int (*fusewire_sim_name_rows_function)(void const*, fusewire_sim_rows const*, char const*);
typedef int (*fusewire_sim_forget_parts_function)(void const*, uint64_t);
typedef int (*fusewire_sim_name_ticket_function)(void const*, void const*, char const*);
typedef int (*fusewire_sim_name_least_function)(void const*, void const*, uint64_t, char const*);
typedef int (*fusewire_sim_stats_function)(fusewire_sim_stats*);
typedef int (*fusewire_sim_reset_function)(void);
typedef void (*fusewire_sim_fail_call_function)(uint64_t, char const*);
typedef char const* (*fusewire_sim_failed_call_function)(void);
typedef uint64_t (*fusewire_sim_calls_function)(char const*);
typedef uint64_t (*fusewire_sim_held_function)(char*, size_t);

#ifdef __cplusplus
}
#endif
#endif
