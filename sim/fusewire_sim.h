/* What a simulated run did so far, for programs that want to print it. Both functions are exported by fusewire-sim's
 * libamdhip64 and by nothing else, so look them up: dlsym(RTLD_DEFAULT, "fusewireSimStats") is null on a real GPU. */
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
  uint64_t cycles; /* simulated, core clock of 2.1 GHz */
  uint64_t gpus;
  fusewire_sim_link links[FUSEWIRE_SIM_MAX_GPUS][FUSEWIRE_SIM_MAX_GPUS]; /* [GPU of the wave][GPU of the memory] */
} fusewire_sim_stats;

int fusewireSimStats(fusewire_sim_stats* stats); /* 0, or -1 when size is too small */
int fusewireSimReset(void);                      /* zeroes the totals */

typedef int (*fusewire_sim_stats_function)(fusewire_sim_stats*);
typedef int (*fusewire_sim_reset_function)(void);

#ifdef __cplusplus
}
#endif
#endif
