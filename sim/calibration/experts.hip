// Rows of tokens to the ranks of their experts and back, as MORI's intra-node kernels do it.
//
//   experts dispatch|combine GPUS TOKENS TOP_K ROW_BYTES BLOCKS WAVES
//
//   dispatch   a wave takes (token, expert) after (token, expert): a rank that the token is already sent to is left out
//              | slot in the peer's inbox: an atomic of one lane over the link | the row into the peer's memory
//              | grid counter | one wave waits for it, tells every rank how many rows it got from here, and waits for
//              what they tell
//   combine    grid counter | ranks meet | a wave adds up a token's rows, or a part of them, from the inboxes that they
//              lie in
//
//     per rank and launch: TOKENS x (ranks that a token goes to, of W: W (1 - (1 - 1 / W)^TOP_K)) x ROW_BYTES;
//     (W - 1) / W of them over links
//
// Experts are drawn evenly. Counters are another set in every launch, so nothing resets them.
#include "point.hpp"

using namespace calibration;

namespace {

constexpr char const* how = "experts dispatch|combine GPUS TOKENS TOP_K ROW_BYTES BLOCKS WAVES";
constexpr int most_launches = 4, most_k = 16;

/// One per rank and launch. `slots` and `received` are for peers: uncached.
struct counters {
  int slots, received[node::most];
  unsigned met[node::most];
};
struct local_counters {
  int sent[node::most];
  unsigned waves;
};

struct arguments {
  words const* rows;         // [tokens, row_words] of this rank
  int const* ranks;          // [tokens, top_k]: where each expert is
  int* places;               // [tokens, top_k]: rank * capacity + slot, or -1
  words* inbox[node::most];  // [capacity, row_words], uncached
  int* source[node::most];   // [capacity]: which token of which rank lies there
  counters* shared[node::most];
  local_counters* mine;
  words* output;  // [tokens, row_words]
  int rank, gpus, tokens, top_k, row_words, capacity, launch;
};

__device__ void wait_for(unsigned* counter, unsigned value) {
  while (__hip_atomic_load(counter, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) != value) {}
}

__global__ void dispatch(arguments a) {
  int const lane = int(threadIdx.x) % 64, waves_of_block = int(blockDim.x) / 64,
            waves = int(gridDim.x) * waves_of_block;
  int const wave = int(blockIdx.x) * waves_of_block + __builtin_amdgcn_readfirstlane(int(threadIdx.x) / 64);
  auto& mine = a.mine[a.launch];
  for (int i = wave; i < a.tokens * a.top_k; i += waves) {
    int const token = i / a.top_k, nth = i % a.top_k, to = __builtin_amdgcn_readfirstlane(a.ranks[i]);
    if (__any(lane < nth && a.ranks[token * a.top_k + min(lane, nth)] == to)) {
      if (lane == 0) a.places[i] = -1;
      continue;
    }
    int slot = 0;
    if (lane == 0) {
      slot = __hip_atomic_fetch_add(&a.shared[to][a.launch].slots, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
      __hip_atomic_fetch_add(&mine.sent[to], 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
      a.places[i] = to * a.capacity + slot;
      a.source[to][slot] = a.rank * a.tokens + token;
    }
    slot = __builtin_amdgcn_readfirstlane(slot);
    words* const out = a.inbox[to] + std::int64_t(slot) * a.row_words;
    words const* const in = a.rows + std::int64_t(token) * a.row_words;
    for (int w = lane; w < a.row_words; w += 64) out[w] = in[w];
  }
  __builtin_amdgcn_s_waitcnt(0x0f70);  // what goes to uncached memory has arrived
  if (lane == 0) __hip_atomic_fetch_add(&mine.waves, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  if (wave == 0 && lane < a.gpus) {
    wait_for(&mine.waves, unsigned(waves));
    int const sent = __hip_atomic_load(&mine.sent[lane], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
    __hip_atomic_store(&a.shared[lane][a.launch].received[a.rank], sent + 1, __ATOMIC_RELAXED,
                       __HIP_MEMORY_SCOPE_SYSTEM);
    while (__hip_atomic_load(&a.shared[a.rank][a.launch].received[lane], __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) ==
           0) {}
  }
}

__device__ void add(float (&sum)[8], words const& row) {
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    sum[2 * i] += __builtin_bit_cast(float, row[i] << 16);
    sum[2 * i + 1] += __builtin_bit_cast(float, row[i] & 0xffff0000u);
  }
}

template <int K>
__global__ void combine(arguments a) {
  int const lane = int(threadIdx.x) % 64, waves_of_block = int(blockDim.x) / 64,
            waves = int(gridDim.x) * waves_of_block;
  int const wave = int(blockIdx.x) * waves_of_block + __builtin_amdgcn_readfirstlane(int(threadIdx.x) / 64);
  if (lane == 0) __hip_atomic_fetch_add(&a.mine[a.launch].waves, 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
  if (blockIdx.x == 0 && int(threadIdx.x) < a.gpus) {
    wait_for(&a.mine[a.launch].waves, unsigned(waves));
    __hip_atomic_store(&a.shared[threadIdx.x][a.launch].met[a.rank], 1u, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM);
  }
  if (int(threadIdx.x) < a.gpus)
    while (__hip_atomic_load(&a.shared[a.rank][a.launch].met[threadIdx.x], __ATOMIC_RELAXED,
                             __HIP_MEMORY_SCOPE_SYSTEM) == 0) {}
  __syncthreads();
  int const per_token = (waves + a.tokens - 1) / a.tokens, part = (a.row_words + per_token - 1) / per_token;
  for (int i = wave; i < a.tokens * per_token; i += waves) {
    int const token = i / per_token, first = i % per_token * part, end = min(a.row_words, first + part);
    words const* from[K];
#pragma unroll
    for (int j = 0; j < K; ++j) {
      int const place = j < a.top_k ? __builtin_amdgcn_readfirstlane(a.places[token * a.top_k + j]) : -1;
      from[j] = place < 0 ? nullptr : a.inbox[place / a.capacity] + std::int64_t(place % a.capacity) * a.row_words;
    }
    for (int w = first + lane; w < end; w += 64) {
      words row[K];
#pragma unroll
      for (int j = 0; j < K; ++j)
        if (from[j]) row[j] = from[j][w];
      float sum[8] = {};
#pragma unroll
      for (int j = 0; j < K; ++j)
        if (from[j]) add(sum, row[j]);
      words out;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        out[e] = __builtin_bit_cast(unsigned, sum[2 * e]) >> 16 |
                 (__builtin_bit_cast(unsigned, sum[2 * e + 1]) & 0xffff0000u);
      a.output[std::int64_t(token) * a.row_words + w] = out;
    }
  }
}

/// A small number as bf16: element `at` of a rank's token.
unsigned short element(int rank, int token, int at) {
  float const x = float(small_number(std::size_t(rank * 7919 + token * 31 + at)));
  return static_cast<unsigned short>(__builtin_bit_cast(unsigned, x) >> 16);
}

}  // namespace

int main(int argc, char** argv) {
  std::string const what = argc > 1 ? argv[1] : "";
  int const gpus = int(number(argc, argv, 2, how)), tokens = int(number(argc, argv, 3, how)),
            top_k = int(number(argc, argv, 4, how)), row_bytes = int(number(argc, argv, 5, how)),
            blocks = int(number(argc, argv, 6, how)), waves = int(number(argc, argv, 7, how)),
            row_words = row_bytes / 16, capacity = gpus * tokens;
  if ((what != "dispatch" && what != "combine") || gpus > node::most || top_k > most_k || row_bytes % 16 || waves > 16)
    usage(how);
  node n(gpus);
  std::vector<arguments> a(static_cast<std::size_t>(gpus));
  std::vector<std::vector<int>> ranks(static_cast<std::size_t>(gpus));
  unsigned random = 1;
  for (int g = 0; g < gpus; ++g) {
    auto const count = std::size_t(tokens) * std::size_t(top_k), elements = std::size_t(row_words) * 8;
    auto& to = ranks[std::size_t(g)];
    for (std::size_t i = 0; i < count; ++i) to.push_back(int((random = random * 1664525u + 1013904223u) >> 16) % gpus);
    std::vector<unsigned short> rows(std::size_t(tokens) * elements);
    for (int t = 0; t < tokens; ++t)
      for (std::size_t e = 0; e < elements; ++e) rows[std::size_t(t) * elements + e] = element(g, t, int(e));
    auto& mine = a[std::size_t(g)];
    auto* const row = n.allocate<words>(g, std::size_t(tokens) * std::size_t(row_words));
    node::upload(reinterpret_cast<unsigned short*>(row), rows);
    mine.rows = row;
    mine.ranks = node::upload(n.allocate<int>(g, count), to);
    mine.places = n.allocate<int>(g, count);
    mine.output = n.allocate<words>(g, std::size_t(tokens) * std::size_t(row_words));
    mine.mine = n.allocate<local_counters>(g, most_launches);
    auto* const inbox = n.allocate<words>(g, std::size_t(capacity) * std::size_t(row_words), true);
    auto* const source = n.allocate<int>(g, std::size_t(capacity), true);
    auto* const shared = n.allocate<counters>(g, most_launches, true);
    for (auto& of : a) {
      of.inbox[g] = inbox;
      of.source[g] = source;
      of.shared[g] = shared;
    }
    mine.rank = g;
    mine.gpus = gpus;
    mine.tokens = tokens;
    mine.top_k = top_k;
    mine.row_words = row_words;
    mine.capacity = capacity;
  }
  auto const enqueue = [&](bool sends, int g, hipStream_t stream, int launch) {
    arguments of = a[std::size_t(g)];
    of.launch = launch;
    if (sends) dispatch<<<unsigned(blocks), unsigned(waves * 64), 0, stream>>>(of);
    else if (top_k <= 8) combine<8><<<unsigned(blocks), unsigned(waves * 64), 0, stream>>>(of);
    else combine<16><<<unsigned(blocks), unsigned(waves * 64), 0, stream>>>(of);
  };
  double us = 0;
  if (what == "dispatch") {
    us = n.time(1, 1, [&](int g, hipStream_t stream, int i) { enqueue(true, g, stream, i); });
  } else {
    n.time(0, 1, [&](int g, hipStream_t stream, int i) { enqueue(true, g, stream, i); });
    us = n.time(1, 1, [&](int g, hipStream_t stream, int i) { enqueue(false, g, stream, 1 + i); });
  }
  bool right = true;
  for (int g = 0; g < gpus; ++g) {
    auto const& mine = a[std::size_t(g)];
    if (what == "dispatch") {
      auto const arrived = node::download(mine.shared[g] + 1, 1)[0];
      auto const source = node::download(mine.source[g], std::size_t(arrived.slots));
      auto const rows = node::download(reinterpret_cast<unsigned short const*>(mine.inbox[g]),
                                       std::size_t(arrived.slots) * std::size_t(row_words) * 8);
      int rows_told = -gpus;
      for (int r = 0; r < gpus; ++r) rows_told += arrived.received[r];
      right &= rows_told == arrived.slots && arrived.slots > 0;
      for (int s = 0; s < arrived.slots; ++s)
        for (int e = 0; e < row_words * 8; ++e)
          right &= rows[std::size_t(s * row_words) * 8 + std::size_t(e)] ==
                   element(source[std::size_t(s)] / tokens, source[std::size_t(s)] % tokens, e);
    } else {
      auto const out = node::download(reinterpret_cast<unsigned short const*>(mine.output),
                                      std::size_t(tokens) * std::size_t(row_words) * 8);
      for (int t = 0; t < tokens; ++t) {
        unsigned went = 0;
        for (int j = 0; j < top_k; ++j) went |= 1u << ranks[std::size_t(g)][std::size_t(t * top_k + j)];
        for (int e = 0; e < row_words * 8; ++e) {
          float const x = __builtin_bit_cast(float, unsigned(element(g, t, e)) << 16) * float(__builtin_popcount(went));
          right &= out[std::size_t(t * row_words) * 8 + std::size_t(e)] ==
                   static_cast<unsigned short>(__builtin_bit_cast(unsigned, x) >> 16);
        }
      }
    }
  }
  return report(us, right);
}
